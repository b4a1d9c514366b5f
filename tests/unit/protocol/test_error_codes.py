"""Error codes: names, flags, and exceptions."""

from __future__ import annotations

import inspect
from typing import Any

import kafka.errors
import pytest

from pyspark_kafka_direct.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
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
    if code not in _JAVA_DIFFERS:
        assert info.retriable == kafka_python_error.retriable, kafka_python_error


def test_error_codes_are_complete() -> None:
    assert sorted(ErrorCode) == list(range(-1, max(ErrorCode) + 1))
    assert set(kafka_python_errors()) - set(ErrorCode) == set()


def test_invalid_metadata_is_always_retriable() -> None:
    for code in ErrorCode:
        info = error_code_info(code)
        assert info.retriable or not info.refresh_metadata


@pytest.mark.parametrize(
    ("code", "error_type"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicNotFoundError),
        (ErrorCode.UNKNOWN_TOPIC_ID, TopicNotFoundError),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, TopicNotFoundError),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, BrokerUnreachableError),
        (ErrorCode.LEADER_NOT_AVAILABLE, BrokerUnreachableError),
        (ErrorCode.REQUEST_TIMED_OUT, BrokerTimeoutError),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, BrokerUnreachableError),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, BrokerUnreachableError),
        (ErrorCode.NOT_COORDINATOR, BrokerUnreachableError),
        (ErrorCode.CONCURRENT_TRANSACTIONS, TransientBrokerError),
        (ErrorCode.NOT_ENOUGH_REPLICAS, TransientBrokerError),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, AuthenticationError),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedBrokerError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ProducerFencedError),
        (ErrorCode.INVALID_TXN_STATE, BrokerError),
        (ErrorCode.TRANSACTION_ABORTABLE, BrokerError),
        (ErrorCode.INVALID_REQUEST, ProtocolError),
        (4711, ProtocolError),
    ],
)
def test_errors_have_code_and_location(code: int, error_type: type[KafkaDirectError]) -> None:
    error = error_for(code, "listing offsets", topic="flights", partition=3, broker="b1:9092")
    assert type(error) is error_type
    assert (error.topic, error.partition, error.broker) == ("flights", 3, "b1:9092")
    message = str(error)
    assert error_code_info(code).name in message
    assert "while listing offsets" in message
    assert "topic flights, partition 3, broker b1:9092" in message


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
