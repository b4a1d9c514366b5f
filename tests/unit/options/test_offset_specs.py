from __future__ import annotations

import pytest
from tests.positions import at_time, at_times

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    OffsetSpec,
    check_batch_end,
    check_batch_start,
    check_start_and_end,
    parse_offset_spec,
    parse_timestamps_by_partition,
)
from pyspark_kafka_direct.options.value_types import TIMESTAMP

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize("text", ["earliest", "EARLIEST", " Earliest "])
def test_earliest_in_any_case(text: str) -> None:
    assert parse_offset_spec(text, "startingOffsets") == AT_EARLIEST


@pytest.mark.parametrize("text", ["latest", "LATEST", " laTest "])
def test_latest_in_any_case(text: str) -> None:
    assert parse_offset_spec(text, "endingOffsets") == AT_LATEST


def test_offsets_per_partition_keep_the_case_of_topics() -> None:
    assert parse_offset_spec('{"topic-A":{"0":23,"1":-1,"2":-2}}', "startingOffsets") == OffsetSpec(
        {TopicPartition("topic-A", 0): 23, TopicPartition("topic-A", 1): LATEST, TopicPartition("topic-A", 2): EARLIEST}
    )


def test_whole_topics_by_keyword_mixed_with_partitions() -> None:
    assert parse_offset_spec('{"a":"EARLIEST","b":{"0":5},"c":"latest"}', "startingOffsets") == OffsetSpec(
        {B0: 5}, {"a": EARLIEST, "c": LATEST}
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "earliest"),
        ("earlist", "did you mean 'earliest'"),
        ("5", "earliest"),
        ("Committed", "; only streams start at committed offsets"),
        ('{"a":{"0":5}', "not JSON"),
        ('{"a":"newest"}', "neither 'earliest' nor 'latest'"),
        ('{"a":"lates"}', "did you mean 'latest'"),
        ('{"a":5}', "does not map partitions"),
        ('{"a":{"0":-3}}', "-3 for a-0 is not an offset"),
        ('{"a":{"0":1.5}}', "not a 64-bit integer"),
        ('{"a":{"0":1},"a":"latest"}', "'a' occurs twice"),
    ],
)
def test_malformed_offsets(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets must be") as caught:
        parse_offset_spec(text, "startingOffsets")
    assert reason in str(caught.value)


def test_timestamps() -> None:
    assert parse_timestamps_by_partition('{"a":{"0":5,"1":"6"}}', "o", "latest") == at_times({A0: 5, A1: 6}, "latest")


@pytest.mark.parametrize("text", ["", "x", "1.5", "-1", "-2", "9223372036854775808", "1_000", "1" * 5000, "now"])
def test_a_timestamp_is_one_integer_since_1970_or_a_time(text: str) -> None:
    with pytest.raises(OptionError, match="startingTimestamp must be one timestamp in milliseconds since 1970, or a"):
        TIMESTAMP.parse(text, "startingTimestamp")


def test_negative_timestamps_are_rejected() -> None:
    assert parse_timestamps_by_partition('{"a":{"0":0}}', "endingOffsetsByTimestamp") == at_times({A0: 0})
    with pytest.raises(OptionError, match="-2 for a-0 is before 1970"):
        parse_timestamps_by_partition('{"a":{"0":-2}}', "endingOffsetsByTimestamp")


def test_start_and_end_must_have_the_same_partitions() -> None:
    check_start_and_end(OffsetSpec({A0: 1}), OffsetSpec({A0: 1}))
    with pytest.raises(InvalidOffsetsError, match="only in x: a-1; only in y: b-0"):
        check_start_and_end(OffsetSpec({A0: 1, A1: 1}, option="x"), OffsetSpec({A0: 1, B0: 1}, option="y"))
    with pytest.raises(InvalidOffsetsError, match="same topic-partitions"):
        check_start_and_end(at_times({A0: 1}), at_times({A1: 1}))


def test_the_start_must_not_be_after_the_end() -> None:
    with pytest.raises(InvalidOffsetsError, match="start offset 2") as caught:
        check_start_and_end(OffsetSpec({A0: 1, A1: 2}), OffsetSpec({A0: 1, A1: 1}))
    assert (caught.value.topic, caught.value.partition) == ("a", 1)
    with pytest.raises(InvalidOffsetsError, match="start timestamp 5"):
        check_start_and_end(at_time(5), at_time(4))
    with pytest.raises(InvalidOffsetsError, match="start timestamp 2"):
        check_start_and_end(at_times({A0: 2}), at_times({A0: 1}))
    with pytest.raises(InvalidOffsetsError, match="greater than the end offset 0"):
        check_start_and_end(OffsetSpec({A0: 5}), OffsetSpec({A0: 0}))


def test_keywords_are_compared_later() -> None:
    check_start_and_end(OffsetSpec({A0: 100}), OffsetSpec({A0: LATEST}))
    check_start_and_end(OffsetSpec({A0: EARLIEST}), OffsetSpec({A0: 0}))
    check_start_and_end(OffsetSpec({}, {"a": EARLIEST}), OffsetSpec({A0: 5}))
    check_start_and_end(OffsetSpec({A0: 100}), at_times({A0: 1}))


def test_each_position_has_a_name_and_may_be_a_time() -> None:
    spec = OffsetSpec({A0: 3, A1: 4}, {"b": EARLIEST, "c": LATEST}, 5)
    assert spec.by_name() == {
        A0: 3,
        A1: 4,
        "topic b": EARLIEST,
        "topic c": LATEST,
        "other partitions": 5,
    }
    assert not spec.has_times
    (time,) = at_times({A0: 5}).partitions.values()
    assert OffsetSpec({A0: 3, A1: time}).has_times


@pytest.mark.parametrize(
    ("position", "what"),
    [
        (AT_LATEST, "all partitions"),
        (OffsetSpec({A0: 3, A1: LATEST, B0: EARLIEST}), "a-1"),
        (OffsetSpec({A0: 3}, {"b": LATEST, "c": EARLIEST}), "topic b"),
        (OffsetSpec({A0: LATEST}, {"b": LATEST}), "a-0, topic b"),
    ],
)
def test_a_batch_does_not_start_at_the_latest(position: OffsetSpec, what: str) -> None:
    with pytest.raises(
        OptionError, match=rf"^o: the starting offset of {what} cannot be latest \(-1\) in a batch query, .*: use"
    ):
        check_batch_start(position, "o")


@pytest.mark.parametrize(
    ("position", "what"),
    [
        (AT_EARLIEST, "all partitions"),
        (OffsetSpec({A0: 3, A1: EARLIEST, B0: LATEST}), "a-1"),
        (OffsetSpec({A0: 3}, {"b": EARLIEST, "c": LATEST}), "topic b"),
    ],
)
def test_a_batch_does_not_end_at_the_earliest(position: OffsetSpec, what: str) -> None:
    with pytest.raises(OptionError, match=rf"^o: the ending offset of {what} cannot be earliest \(-2\) in a batch"):
        check_batch_end(position, "o")


def test_valid_starts_and_ends_of_a_batch() -> None:
    for both in (OffsetSpec({A0: 0}, {}), at_time(5), at_times({A0: 5})):
        check_batch_start(both, "o")
        check_batch_end(both, "o")
    check_batch_start(AT_EARLIEST, "o")
    check_batch_start(OffsetSpec({A0: EARLIEST}, {"b": EARLIEST}), "o")
    check_batch_end(AT_LATEST, "o")
    check_batch_end(OffsetSpec({A0: LATEST}, {"b": LATEST}), "o")
