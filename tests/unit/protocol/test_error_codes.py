"""Error codes: names, flags, and exceptions."""

from __future__ import annotations

import inspect
import re
from typing import Any

import kafka.errors
import pytest

from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    CorruptRecordError,
    KafkaDirectError,
    ProducerFencedError,
    ProtocolError,
    TopicNotFoundError,
    TransientBrokerError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_code_info, error_for

# The flags follow Java's classes (org.apache.kafka.common.errors) if kafka-python's differ: CORRUPT_MESSAGE is a
# RetriableException in Java.
_JAVA_DIFFERS = {ErrorCode.CORRUPT_MESSAGE}


def kafka_python_errors() -> dict[int, Any]:
    errors: dict[int, Any] = {}
    for error in vars(kafka.errors).values():
        number = getattr(error, "errno", None)
        if inspect.isclass(error) and isinstance(number, int) and number >= -1:
            errors[number] = error
    return errors


@pytest.mark.parametrize("code", [code for code in ErrorCode if code in kafka_python_errors()])
def test_flags_equal_kafka_python(code: ErrorCode) -> None:
    kafka_python_error = kafka_python_errors()[code]
    info = error_code_info(code)
    assert info.refresh_metadata == kafka_python_error.invalid_metadata, kafka_python_error
    assert info.retriable == (kafka_python_error.retriable != (code in _JAVA_DIFFERS)), kafka_python_error


def test_flags_of_codes_that_kafka_python_lacks() -> None:
    newer = [error_code_info(code) for code in ErrorCode if code not in kafka_python_errors()]
    assert {info.code: info.refresh_metadata for info in newer if info.retriable} == {
        ErrorCode.REBOOTSTRAP_REQUIRED: True,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED: False,
    }


def test_error_codes_are_complete() -> None:
    assert sorted(ErrorCode) == list(range(-1, max(ErrorCode) + 1))
    assert set(kafka_python_errors()) - set(ErrorCode) == set()


def test_invalid_metadata_is_always_retriable() -> None:
    for code in ErrorCode:
        info = error_code_info(code)
        assert info.retriable or not info.refresh_metadata


TYPES: dict[int, type[KafkaDirectError]] = {
    ErrorCode.CORRUPT_MESSAGE: CorruptRecordError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: TopicNotFoundError,
    ErrorCode.UNKNOWN_TOPIC_ID: TopicNotFoundError,
    ErrorCode.INVALID_TOPIC_EXCEPTION: TopicNotFoundError,
    ErrorCode.REQUEST_TIMED_OUT: BrokerTimeoutError,
    ErrorCode.OFFSET_NOT_AVAILABLE: BrokerUnreachableError,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: BrokerUnreachableError,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: BrokerUnreachableError,
    ErrorCode.NOT_COORDINATOR: BrokerUnreachableError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedBrokerError,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: UnsupportedBrokerError,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: UnsupportedBrokerError,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    ErrorCode.PRODUCER_FENCED: ProducerFencedError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProducerFencedError,
    ErrorCode.INVALID_TXN_STATE: BrokerError,
    ErrorCode.TRANSACTION_ABORTABLE: BrokerError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: BrokerError,
    ErrorCode.UNKNOWN_PRODUCER_ID: BrokerError,
}
"""Those that do not follow from the flags of a code."""


@pytest.mark.parametrize("code", [*ErrorCode, 4711])
def test_errors_have_type_code_and_location(code: int) -> None:
    info = error_code_info(code)
    of_flags = TransientBrokerError if info.retriable else ProtocolError
    if info.refresh_metadata:
        of_flags = BrokerUnreachableError
    error = error_for(code, "listing offsets", topic="flights", partition=3, broker="b1:9092")
    assert type(error) is TYPES.get(code, of_flags)
    assert (error.topic, error.partition, error.broker) == ("flights", 3, "b1:9092")
    message = str(error)
    assert info.name in message
    assert "while listing offsets" in message
    assert "topic flights, partition 3, broker b1:9092" in message


def test_the_codes_that_are_evidence_of_a_data_loss() -> None:
    """Brokers get five seconds to confirm it, and a user's shorter timeout does not end that."""
    seconds = {code: error_for(code, "testing").confirmation_seconds for code in ErrorCode}
    assert {code: found for code, found in seconds.items() if found} == dict.fromkeys(
        (
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        ),
        5.0,
    )


def test_the_codes_of_a_producer_that_brokers_may_have_deleted() -> None:
    errors = {code: error_for(code, "testing") for code in ErrorCode}
    assert {code for code, error in errors.items() if isinstance(error, BrokerError) and error.may_be_expired} == {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }


ADVICE: dict[int, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "broker's log",
    ErrorCode.OFFSET_OUT_OF_RANGE: "retention",
    ErrorCode.CORRUPT_MESSAGE: "checksum",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "DESCRIBE permission",
    ErrorCode.LEADER_NOT_AVAILABLE: "being elected",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "leader moved",
    ErrorCode.REQUEST_TIMED_OUT: "inside the cluster",
    ErrorCode.REPLICA_NOT_AVAILABLE: "replica is being moved",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "1 to 249",
    ErrorCode.NOT_ENOUGH_REPLICAS: r"min\.insync\.replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: r"min\.insync\.replicas",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "READ, or WRITE for a sink",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "READ on the consumer group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster resource",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE on the transactional id",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: r"kafka\.sasl\.mechanism",
    ErrorCode.ILLEGAL_SASL_STATE: "does not use SASL",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "password or token",
    ErrorCode.UNSUPPORTED_VERSION: "too old, or too new",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "by offsets",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "zstd",
    ErrorCode.INVALID_PRODUCER_EPOCH: r"kafka\.transaction\.timeout\.ms",
    ErrorCode.PRODUCER_FENCED: "Another producer",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: r"transactional\.id\.expiration\.ms",
    ErrorCode.INVALID_TXN_STATE: "ended the transaction",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: r"transaction\.max\.timeout\.ms",
    ErrorCode.CONCURRENT_TRANSACTIONS: "has not ended yet",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "loading its state",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "internal topic has no leader",
    ErrorCode.NOT_COORDINATOR: "coordinator moved",
    ErrorCode.TRANSACTION_ABORTABLE: "no longer be committed",
    ErrorCode.KAFKA_STORAGE_ERROR: "log directory",
    ErrorCode.LISTENER_NOT_FOUND: "no listener",
    ErrorCode.FENCED_LEADER_EPOCH: "leader changed",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "newest leader epoch",
    ErrorCode.OFFSET_NOT_AVAILABLE: "no end offset yet",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "quota",
    ErrorCode.UNKNOWN_TOPIC_ID: "deleted or recreated",
    ErrorCode.INCONSISTENT_TOPIC_ID: "was recreated",
    ErrorCode.REBOOTSTRAP_REQUIRED: "another cluster",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "tiered storage",
    4711: "unknown to this package",
}


def test_no_other_code_has_advice() -> None:
    assert {code for code in ErrorCode if error_code_info(code).advice} == ADVICE.keys() - {4711}


@pytest.mark.parametrize("code", ADVICE)
def test_advice_for_users(code: int) -> None:
    assert re.search(ADVICE[code], error_code_info(code).advice)
    assert str(error_for(code, "testing")).endswith(f" while testing. {error_code_info(code).advice}")


def test_every_code_has_an_exception() -> None:
    for code in ErrorCode:
        error = error_for(code, "testing")
        assert isinstance(error, (BrokerError, TopicNotFoundError)) or code == ErrorCode.CORRUPT_MESSAGE


def test_an_error_is_transient_if_its_code_is_retriable() -> None:
    for code in ErrorCode:
        error = error_for(code, "testing")
        if not isinstance(error, TopicNotFoundError) and code != ErrorCode.CORRUPT_MESSAGE:
            assert isinstance(error, TransientBrokerError) == error_code_info(code).retriable, code.name


def test_error_has_message_of_the_broker() -> None:
    assert "Topic 'x' is collapsed" in str(error_for(-1, "fetching", detail="Topic 'x' is collapsed"))


def test_a_message_of_a_broker_cannot_add_lines_to_a_log() -> None:
    message = str(error_for(-1, "fetching", detail="a\nERROR b\x1b[31m" + "c" * 10_000))
    assert message.isprintable()
    assert "a\\nERROR b\\x1b[31mccc" in message
    assert len(message) < 1000


def test_unknown_code_is_not_retriable() -> None:
    info = error_code_info(4711)
    assert not info.retriable
    assert not info.refresh_metadata
    assert "4711" in info.name
