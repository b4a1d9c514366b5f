"""Error codes: names, flags, and the errors they become."""

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
    FencedError,
    KafkaDirectError,
    ProtocolError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for, lookup

# Where kafka-python's flags differ from Java's classes (org.apache.kafka.common.errors), ours are Java's:
# CORRUPT_MESSAGE is a RetriableException there.
_JAVA_DIFFERS = {ErrorCode.CORRUPT_MESSAGE}


def library_errors() -> dict[int, Any]:
    found: dict[int, Any] = {}
    for error in vars(kafka.errors).values():
        number = getattr(error, "errno", None)
        if inspect.isclass(error) and isinstance(number, int) and number >= -1:
            found[number] = error
    return found


@pytest.mark.parametrize("code", [code for code in ErrorCode if code in library_errors()])
def test_flags_agree_with_the_library(code: ErrorCode) -> None:
    theirs = library_errors()[code]
    info = lookup(code)
    assert info.refresh_metadata == theirs.invalid_metadata, theirs
    if code not in _JAVA_DIFFERS:
        assert info.retriable == theirs.retriable, theirs


def test_no_code_up_to_the_newest_is_left_out() -> None:
    assert sorted(ErrorCode) == list(range(-1, max(ErrorCode) + 1))
    assert set(library_errors()) - set(ErrorCode) == set()


def test_stale_metadata_is_always_retriable() -> None:
    for code in ErrorCode:
        info = lookup(code)
        assert info.retriable or not info.refresh_metadata


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicNotFoundError),
        (ErrorCode.UNKNOWN_TOPIC_ID, TopicNotFoundError),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, TopicNotFoundError),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, BrokerUnreachableError),
        (ErrorCode.LEADER_NOT_AVAILABLE, BrokerUnreachableError),
        (ErrorCode.REQUEST_TIMED_OUT, BrokerTimeoutError),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, AuthenticationError),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedBrokerError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, FencedError),
        (ErrorCode.PRODUCER_FENCED, FencedError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, FencedError),
        (ErrorCode.INVALID_TXN_STATE, BrokerError),
        (ErrorCode.TRANSACTION_ABORTABLE, BrokerError),
        (ErrorCode.INVALID_REQUEST, ProtocolError),
        (4711, ProtocolError),
    ],
)
def test_codes_become_errors_that_name_the_place(code: int, kind: type[KafkaDirectError]) -> None:
    error = error_for(code, "listing offsets", topic="flights", partition=3, broker="b1:9092")
    assert type(error) is kind
    assert (error.topic, error.partition, error.broker) == ("flights", 3, "b1:9092")
    text = str(error)
    assert lookup(code).name in text
    assert "while listing offsets" in text
    assert "topic flights, partition 3, broker b1:9092" in text


def test_every_code_becomes_some_error_of_ours() -> None:
    for code in ErrorCode:
        error = error_for(code, "testing")
        assert isinstance(error, (BrokerError, TopicNotFoundError)) or code == ErrorCode.CORRUPT_MESSAGE


def test_the_brokers_own_words_are_kept() -> None:
    assert "Topic 'x' is collapsed" in str(error_for(-1, "fetching", detail="Topic 'x' is collapsed"))


def test_an_unknown_code_is_no_reason_to_try_again() -> None:
    info = lookup(4711)
    assert not info.retriable
    assert not info.refresh_metadata
    assert "4711" in info.name
