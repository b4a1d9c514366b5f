"""The messages of the control channel, and proofs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.continuous._control import (
    MOST_TEXT,
    Challenge,
    Failure,
    Hello,
    Mark,
    Message,
    Refused,
    Report,
    Start,
    Welcome,
    driver_proof,
    from_line,
    same_proof,
    task_proof,
    to_line,
)
from pyspark_kafka_direct.errors import OptionError, RunFailedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.restarts import final
from pyspark_kafka_direct.settings.secret import Secret

TEXTS = st.text(max_size=20)
COUNTS = st.integers(0, (1 << 63) - 1)
NUMBERS = st.integers(0, (1 << 31) - 1)
OFFSETS = st.dictionaries(st.builds(TopicPartition, st.text(min_size=1, max_size=5), NUMBERS), COUNTS, max_size=5)
TOPIC_IDS = st.dictionaries(st.builds(TopicPartition, st.text(min_size=1, max_size=5), NUMBERS), st.uuids(), max_size=5)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Challenge, TEXTS, NUMBERS),
    st.builds(Hello, TEXTS, NUMBERS, NUMBERS, TEXTS, NUMBERS, TEXTS, TEXTS),
    st.builds(Welcome, TEXTS),
    st.builds(Refused, TEXTS),
    st.builds(Start, COUNTS, OFFSETS),
    st.builds(Mark, COUNTS, st.booleans()),
    st.builds(Report, COUNTS, OFFSETS, COUNTS, COUNTS, st.floats(0, 1e9), anew=TOPIC_IDS),
    st.builds(Failure, TEXTS, TEXTS),
)
HELLO = Hello("run", 1, 0, "host", 42, "mine")
SECRET = Secret("hush")


@given(MESSAGES)
def test_what_is_written_is_read(message: Message) -> None:
    line = to_line(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert from_line(line) == message
    assert from_line(line[:-1]) == message


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (Challenge("n"), b'{"type":"challenge","nonce":"n","version":1}\n'),
        (Mark(7, stop=False), b'{"type":"mark","epoch":7,"stop":false}\n'),
        (
            Start(3, {TopicPartition("b", 0): 9, TopicPartition("b", 10): 0}),
            b'{"type":"start","epoch":3,"offsets":{"b":{"0":9,"10":0}}}\n',
        ),
        (
            Report(
                3,
                {TopicPartition("b", 0): 9},
                5,
                600,
                0.5,
                7,
                {TopicPartition("b", 0): 2},
                {TopicPartition("b", 0): UUID(int=27)},
            ),
            b'{"type":"report","epoch":3,"offsets":{"b":{"0":9}},"rows":5,"bytes":600,"flush_ms":0.5,"rows_read":7,'
            b'"sought":{"b":{"0":2}},"anew":{"b":{"0":"0000000000000000000000000000001b"}}}\n',
        ),
    ],
    ids=["challenge", "mark", "start", "report"],
)
def test_how_it_looks(message: Message, line: bytes) -> None:
    assert to_line(message) == line


REPORT = b'{"type":"report","epoch":1,"offsets":{},"rows":1,"bytes":1,"rows_read":1,"sought":{},"anew":{},"flush_ms":'
WRONG = {
    "empty": (b"", "Expecting value"),
    "HTTP": (b"GET / HTTP/1.1\r", "Expecting value"),
    "not UTF-8": (b"\xff\xfe", "can't decode"),
    "nested": (b"[" * 100_000, "nested too deeply"),
    "a list": (b"[]", "not a JSON object"),
    "no type": (b"{}", "unknown type of message 'None'"),
    "type is a list": (b'{"type":["mark"],"epoch":1,"stop":true}', "unknown type"),
    "unknown type": (b'{"type":"halt"}', "unknown type of message 'halt'"),
    "field missing": (b'{"type":"mark","epoch":1}', "mark: missing or unknown fields: stop"),
    "field unknown": (b'{"type":"mark","epoch":1,"stop":true,"why":0}', "mark: missing or unknown fields: why"),
    "switch as number": (b'{"type":"mark","epoch":true,"stop":true}', "mark, epoch: not a whole number"),
    "negative": (b'{"type":"mark","epoch":-1,"stop":true}', "mark, epoch: not a whole number"),
    "65 bits": (b'{"type":"mark","epoch":9223372036854775808,"stop":true}', "mark, epoch: not a whole number"),
    "fraction": (b'{"type":"mark","epoch":1.0,"stop":true}', "mark, epoch: not a whole number"),
    "number as switch": (b'{"type":"mark","epoch":1,"stop":1}', "mark, stop: neither true nor false"),
    "number as text": (b'{"type":"welcome","proof":1}', "welcome, proof: not a text"),
    "offsets as list": (b'{"type":"start","epoch":1,"offsets":[]}', "start, offsets: not offsets"),
    "partitions as list": (b'{"type":"start","epoch":1,"offsets":{"a":[1]}}', "start, offsets: topic 'a' does not map"),
    "partition is a word": (b'{"type":"start","epoch":1,"offsets":{"a":{"x":1}}}', "'x' is not a partition number"),
    "negative offset": (b'{"type":"start","epoch":1,"offsets":{"a":{"0":-1}}}', "start, offsets: not a whole number"),
    "nameless topic": (b'{"type":"start","epoch":1,"offsets":{"":{"0":1}}}', "a topic's name is empty"),
    "ids as list": (REPORT.replace(b'"anew":{}', b'"anew":[]') + b"1}", "report, anew: not ids"),
    "ids of a topic as list": (REPORT.replace(b'"anew":{}', b'"anew":{"a":[]}') + b"1}", "report, anew: not ids"),
    "id of no partition": (REPORT.replace(b'"anew":{}', b'"anew":{"a":{"x":"0"}}') + b"1}", "not a partition number"),
    "id is a number": (REPORT.replace(b'"anew":{}', b'"anew":{"a":{"0":1}}') + b"1}", "report, anew: not a text"),
    "id is too short": (REPORT.replace(b'"anew":{}', b'"anew":{"a":{"0":"1"}}') + b"1}", "report, anew: badly formed"),
    "NaN": (REPORT + b"NaN}", "flush_ms: not a duration"),
    "infinity": (REPORT + b"1e999}", "flush_ms: not a duration"),
    "negative duration": (REPORT + b"-1}", "flush_ms: not a duration"),
}


@pytest.mark.parametrize(("line", "says"), WRONG.values(), ids=WRONG)
def test_everything_else_is_refused(line: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        from_line(line)


@given(st.binary(max_size=200) | MESSAGES.map(to_line), st.integers(0, 300), st.integers(0, 255))
def test_bytes_that_were_changed_are_a_message_or_a_value_error(line: bytes, place: int, byte: int) -> None:
    changed = line[:place] + bytes([byte]) + line[place + 1 :]
    try:
        message = from_line(changed)
    except ValueError:
        return
    assert from_line(to_line(message)) == message


class TestProofs:
    def test_the_secret_and_both_nonces_and_all_of_the_hello_count(self) -> None:
        right = task_proof(SECRET, "theirs", HELLO)
        changes: list[dict[str, Any]] = [
            {"run": "other"},
            {"task": 2},
            {"attempt": 1},
            {"host": "there"},
            {"pid": 43},
            {"nonce": "m"},
        ]
        others = [task_proof(SECRET, "theirs", replace(HELLO, **change)) for change in changes]
        others += [task_proof(Secret("hash"), "theirs", HELLO), task_proof(SECRET, "other", HELLO)]
        assert len({right, *others}) == 1 + len(others)
        assert not any(same_proof(right, other) for other in others)
        assert same_proof(right, task_proof(SECRET, "theirs", replace(HELLO, proof=right)))

    def test_what_one_side_proves_the_other_cannot_hand_back(self) -> None:
        assert not same_proof(task_proof(SECRET, "theirs", HELLO), driver_proof(SECRET, "theirs", HELLO))

    def test_fields_cannot_run_into_one_another(self) -> None:
        one, other = replace(HELLO, run="a", host="b"), replace(HELLO, run='a", "b', host="")
        assert task_proof(SECRET, "n", one) != task_proof(SECRET, "n", other)

    @pytest.mark.parametrize("proof", ["", "é", "\ud800", "0" * 64])
    def test_any_text_may_be_compared(self, proof: str) -> None:
        assert not same_proof(proof, task_proof(SECRET, "theirs", HELLO))

    def test_no_message_holds_the_secret(self) -> None:
        hello = replace(HELLO, proof=task_proof(SECRET, "theirs", HELLO))
        sent = to_line(Challenge("theirs")) + to_line(hello) + to_line(Welcome(driver_proof(SECRET, "theirs", HELLO)))
        assert b"hush" not in sent


class TestFailures:
    def test_an_error_is_told(self) -> None:
        assert Failure.of(KeyError("x")) == Failure("KeyError", "'x'")

    def test_one_that_says_nothing_is_named(self) -> None:
        assert Failure.of(MemoryError()) == Failure("MemoryError", "MemoryError()")

    def test_a_long_one_is_cut(self) -> None:
        assert len(Failure.of(ValueError("x" * 1_000_000)).message) == MOST_TEXT

    def test_one_of_a_user_s_code_says_where_also_if_its_class_is_derived_from_ours(self) -> None:
        def tell(error: Exception) -> str:
            try:
                raise error
            except Exception as raised:
                return Failure.of(raised).message

        assert "in tell" in tell(ValueError("x"))
        assert "in tell" in tell(DerivedError("x"))
        assert tell(OptionError("x")) == "x"


class MadeUpError(Exception):
    pass


class DerivedError(OptionError):
    pass


class AuthenticationError(Exception):
    """Of a user's code: not the one of Kafka, which ends a query for good."""

    def __str__(self) -> str:
        raise RuntimeError("it cannot say what it is")


def test_whose_error_it_is() -> None:
    assert Failure.of(OptionError("x")).cause == "OptionError"
    assert Failure.of(ZeroDivisionError("x")).cause == "ZeroDivisionError"
    assert Failure.of(MadeUpError("x")).cause == f"{__name__}.MadeUpError"
    told = Failure.of(AuthenticationError())
    assert told.cause == f"{__name__}.AuthenticationError"
    assert told.message == "its message cannot be told"
    error = RunFailedError("Task 0 failed.")
    error.cause = told.cause
    assert final(error) is None
