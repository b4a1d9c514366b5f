"""The messages of the control channel."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.client.producer_state import ProducerIdAndEpoch
from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport, final_error
from pyspark_kafka_direct.continuous.control_messages import (
    MAX_FAILURE_CHARS,
    ControlMessage,
    DriverHandshake,
    EpochRequest,
    HandshakeChallenge,
    HandshakeRejected,
    StartTask,
    TaskFailure,
    TaskHandshake,
    decode_message,
    encode_message,
)
from pyspark_kafka_direct.errors import OptionError, QueryRunError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

TEXTS = st.text(max_size=20)
COUNTS = st.integers(0, (1 << 63) - 1)
NUMBERS = st.integers(0, (1 << 31) - 1)
OFFSETS = st.dictionaries(st.builds(TopicPartition, st.text(min_size=1, max_size=5), NUMBERS), COUNTS, max_size=5)
TOPIC_IDS = st.dictionaries(st.builds(TopicPartition, st.text(min_size=1, max_size=5), NUMBERS), st.uuids(), max_size=5)
SKIPPED = st.dictionaries(st.sampled_from(DataLossCause), OFFSETS, max_size=3)
MESSAGES: st.SearchStrategy[ControlMessage] = st.one_of(
    st.builds(HandshakeChallenge, TEXTS, NUMBERS),
    st.builds(TaskHandshake, TEXTS, NUMBERS, NUMBERS, TEXTS, NUMBERS, TEXTS, TEXTS),
    st.builds(DriverHandshake, TEXTS),
    st.builds(HandshakeRejected, TEXTS),
    st.builds(
        StartTask, COUNTS, OFFSETS, OFFSETS, TOPIC_IDS, st.none() | st.builds(ProducerIdAndEpoch, COUNTS, COUNTS)
    ),
    st.builds(EpochRequest, COUNTS, st.booleans()),
    st.builds(
        EpochReport,
        COUNTS,
        OFFSETS,
        COUNTS,
        COUNTS,
        st.floats(0, 1e9),
        recreated_topic_ids=TOPIC_IDS,
        skipped_offsets=SKIPPED,
        malformed_records=OFFSETS,
        schema_errors=OFFSETS,
    ),
    st.builds(TaskFailure, TEXTS, TEXTS),
)


@given(MESSAGES)
def test_messages_round_trip(message: ControlMessage) -> None:
    line = encode_message(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_message(line) == message
    assert decode_message(line[:-1]) == message


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (HandshakeChallenge("n"), b'{"type":"HandshakeChallenge","nonce":"n","version":4}\n'),
        (EpochRequest(7, stop=False), b'{"type":"EpochRequest","epoch":7,"stop":false}\n'),
        (
            StartTask(
                3, {TopicPartition("b", 0): 9, TopicPartition("b", 10): 0}, producer=ProducerIdAndEpoch(1 << 40, 2)
            ),
            b'{"type":"StartTask","epoch":3,"offsets":{"b":{"0":9,"10":0}},"end_offsets":{},"topic_ids":{},'
            b'"producer":[1099511627776,2]}\n',
        ),
        (
            EpochReport(
                3,
                {TopicPartition("b", 0): 9},
                5,
                600,
                0.5,
                7,
                {TopicPartition("b", 0): 2},
                {TopicPartition("b", 0): UUID(int=27)},
                {DataLossCause.AGED_OUT: {TopicPartition("b", 0): 4}},
                {TopicPartition("b", 0): 8},
                {TopicPartition("b", 1): 6},
            ),
            b'{"type":"EpochReport","epoch":3,"offsets":{"b":{"0":9}},"rows":5,"bytes":600,"flush_ms":0.5,"rows_read":7,'
            b'"reset_positions":{"b":{"0":2}},"recreated_topic_ids":{"b":{"0":"0000000000000000000000000000001b"}},'
            b'"skipped_offsets":{"AGED_OUT":{"b":{"0":4}}},"malformed_records":{"b":{"0":8}},'
            b'"schema_errors":{"b":{"1":6}}}\n',
        ),
    ],
    ids=["challenge", "request", "start", "report"],
)
def test_wire_format(message: ControlMessage, line: bytes) -> None:
    assert encode_message(message) == line


REPORT = (
    b'{"type":"EpochReport","epoch":1,"offsets":{},"rows":1,"bytes":1,"rows_read":1,"reset_positions":{},'
    b'"recreated_topic_ids":{},"skipped_offsets":{},"malformed_records":{},"schema_errors":{},"flush_ms":'
)
INVALID = {
    "unknown cause": (
        REPORT.replace(b'"skipped_offsets":{}', b'"skipped_offsets":{"theft":{}}') + b"1}",
        "not offsets by cause",
    ),
    "skipped offsets": (
        REPORT.replace(b'"skipped_offsets":{}', b'"skipped_offsets":[]') + b"1}",
        "not offsets by cause",
    ),
    "empty": (b"", "Expecting value"),
    "HTTP": (b"GET / HTTP/1.1\r", "Expecting value"),
    "not UTF-8": (b"\xff\xfe", "can't decode"),
    "nested": (b"[" * 100_000, "nested too deeply"),
    "a list": (b"[]", "not a JSON object"),
    "no type": (b"{}", "unknown message type 'None'"),
    "type is a list": (b'{"type":["EpochRequest"],"epoch":1,"stop":true}', "unknown message type"),
    "unknown message type": (b'{"type":"halt"}', "unknown message type 'halt'"),
    "field missing": (b'{"type":"EpochRequest","epoch":1}', "EpochRequest: missing or unknown fields: stop"),
    "field unknown": (
        b'{"type":"EpochRequest","epoch":1,"stop":true,"why":0}',
        "EpochRequest: missing or unknown fields: why",
    ),
    "field replaced": (
        b'{"type":"EpochRequest","epoch":1,"why":0}',
        "EpochRequest: missing or unknown fields: stop, why",
    ),
    "boolean as integer": (b'{"type":"EpochRequest","epoch":true,"stop":true}', "EpochRequest, epoch: not an integer"),
    "negative": (b'{"type":"EpochRequest","epoch":-1,"stop":true}', "EpochRequest, epoch: not an integer"),
    "65 bits": (
        b'{"type":"EpochRequest","epoch":9223372036854775808,"stop":true}',
        "EpochRequest, epoch: not an integer",
    ),
    "float": (b'{"type":"EpochRequest","epoch":1.0,"stop":true}', "EpochRequest, epoch: not an integer"),
    "integer as boolean": (b'{"type":"EpochRequest","epoch":1,"stop":1}', "EpochRequest, stop: neither true nor false"),
    "integer as string": (b'{"type":"DriverHandshake","proof":1}', "DriverHandshake, proof: not a string"),
    "offsets as list": (
        b'{"type":"StartTask","epoch":1,"offsets":[],"end_offsets":{},"topic_ids":{},"producer":null}',
        "StartTask, offsets: not offsets",
    ),
    "partitions as list": (
        b'{"type":"StartTask","epoch":1,"offsets":{"b":{"0":1},"a":[1]},"end_offsets":{},"topic_ids":{},"producer":null}',
        "StartTask, offsets: not offsets",
    ),
    "partition is a word": (
        b'{"type":"StartTask","epoch":1,"offsets":{"a":{"x":1}},"end_offsets":{},"topic_ids":{},"producer":null}',
        "'x' is not a partition number",
    ),
    "negative offset": (
        b'{"type":"StartTask","epoch":1,"offsets":{"a":{"0":-1}},"end_offsets":{},"topic_ids":{},"producer":null}',
        "StartTask, offsets: not an integer",
    ),
    "empty topic name": (
        b'{"type":"StartTask","epoch":1,"offsets":{"":{"0":1}},"end_offsets":{},"topic_ids":{},"producer":null}',
        "a topic name is empty",
    ),
    "ids as list": (
        REPORT.replace(b'"recreated_topic_ids":{}', b'"recreated_topic_ids":[]') + b"1}",
        "EpochReport, recreated_topic_ids: not topic ids",
    ),
    "ids of a topic as list": (
        REPORT.replace(b'"recreated_topic_ids":{}', b'"recreated_topic_ids":{"a":[]}') + b"1}",
        "EpochReport, recreated_topic_ids: not topic ids",
    ),
    "id of no partition": (
        REPORT.replace(b'"recreated_topic_ids":{}', b'"recreated_topic_ids":{"a":{"x":"0"}}') + b"1}",
        "not a partition number",
    ),
    "id is a number": (
        REPORT.replace(b'"recreated_topic_ids":{}', b'"recreated_topic_ids":{"a":{"0":1}}') + b"1}",
        "EpochReport, recreated_topic_ids: not a string",
    ),
    "id is too short": (
        REPORT.replace(b'"recreated_topic_ids":{}', b'"recreated_topic_ids":{"a":{"0":"1"}}') + b"1}",
        "EpochReport, recreated_topic_ids: badly formed",
    ),
    "NaN": (REPORT + b"NaN}", "flush_ms: not a duration"),
    "infinity": (REPORT + b"1e999}", "flush_ms: not a duration"),
    "negative duration": (REPORT + b"-1}", "flush_ms: not a duration"),
}


@pytest.mark.parametrize(("line", "message"), INVALID.values(), ids=INVALID)
def test_invalid_lines_are_rejected(line: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        decode_message(line)


@given(st.binary(max_size=200) | MESSAGES.map(encode_message), st.integers(0, 300), st.integers(0, 255))
def test_corrupted_lines_decode_or_raise_a_value_error(line: bytes, position: int, byte: int) -> None:
    changed = line[:position] + bytes([byte]) + line[position + 1 :]
    try:
        message = decode_message(changed)
    except ValueError:
        return
    assert decode_message(encode_message(message)) == message


class TestFailures:
    def test_a_failure_has_class_and_message(self) -> None:
        assert TaskFailure.of(KeyError("x")) == TaskFailure("KeyError", "'x'")

    def test_an_error_without_a_message_uses_its_repr(self) -> None:
        assert TaskFailure.of(MemoryError()) == TaskFailure("MemoryError", "MemoryError()")

    def test_a_long_message_is_shortened(self) -> None:
        assert len(TaskFailure.of(ValueError("x" * 1_000_000)).message) == MAX_FAILURE_CHARS

    def test_errors_of_user_code_include_a_stack_trace(self) -> None:
        def message_of(error: Exception) -> str:
            try:
                raise error
            except Exception as raised:
                return TaskFailure.of(raised).message

        assert "in message_of" in message_of(ValueError("x"))
        assert "in message_of" in message_of(DerivedError("x"))
        assert message_of(OptionError("x")) == "x"
        message = message_of(ValueError(f"beginning{'x' * MAX_FAILURE_CHARS}end"))
        assert message.startswith("beginning")
        assert message.endswith("end\n")
        assert len(message) == MAX_FAILURE_CHARS


class UserCodeError(Exception):
    pass


class DerivedError(OptionError):
    pass


class AuthenticationError(Exception):
    """An error of user code with the name of one of ours that ends a query."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


def test_error_classes_of_user_code_are_qualified() -> None:
    assert TaskFailure.of(OptionError("x")).cause_class == "OptionError"
    assert TaskFailure.of(ZeroDivisionError("x")).cause_class == "ZeroDivisionError"
    assert TaskFailure.of(UserCodeError("x")).cause_class == f"{__name__}.UserCodeError"
    failure = TaskFailure.of(AuthenticationError())
    assert failure.cause_class == f"{__name__}.AuthenticationError"
    assert failure.message == "its message is not available"
    error = QueryRunError("Task 0 failed.")
    error.cause_class = failure.cause_class
    assert final_error(error) is None
