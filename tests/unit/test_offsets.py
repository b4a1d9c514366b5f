from __future__ import annotations

import json
import pickle
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import InvalidOffsetsError
from pyspark_kafka_direct.offsets import (
    MAX_OFFSET,
    OffsetRange,
    TopicPartition,
    offset_ranges_from_json,
    offset_ranges_to_json,
    partition_offsets_from_json,
    partition_offsets_to_json,
    with_topic_ids,
)

topics = st.text("abcXYZ019._-", min_size=1, max_size=12)
offset_maps = st.dictionaries(
    st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), st.integers(-2, MAX_OFFSET), max_size=20
)


@given(offset_maps)
def test_offsets_survive_json(offsets: dict[TopicPartition, int]) -> None:
    assert partition_offsets_from_json(partition_offsets_to_json(offsets)) == offsets


@given(st.lists(st.tuples(topics, st.integers(0, 2**31 - 1), st.integers(0, MAX_OFFSET), st.integers(0, MAX_OFFSET))))
def test_ranges_survive_json(numbers: list[tuple[str, int, int, int]]) -> None:
    ranges = tuple(OffsetRange(topic, partition, *sorted(ends)) for topic, partition, *ends in numbers)
    assert offset_ranges_from_json(offset_ranges_to_json(ranges)) == ranges


def test_ranges_have_sparks_names_in_json() -> None:
    assert json.loads(offset_ranges_to_json([OffsetRange("t", 0, 5, 9)])) == [
        {"topic": "t", "partition": 0, "fromOffset": 5, "untilOffset": 9}
    ]


TOPIC_ID = UUID("0f8c6a1e-5f4b-4c0d-9d57-1a2b3c4d5e6f")


def test_a_topic_id_survives_json_and_pickling() -> None:
    planned = OffsetRange("t", 0, 5, 9, topic_id=TOPIC_ID)
    text = offset_ranges_to_json([planned, OffsetRange("t", 1, 0, 0)])
    assert json.loads(text)[0]["topicId"] == str(TOPIC_ID)
    assert [parsed.topic_id for parsed in offset_ranges_from_json(text)] == [TOPIC_ID, None]
    assert pickle.loads(pickle.dumps(planned)).topic_id == TOPIC_ID


def test_as_in_spark_a_range_is_its_four_fields() -> None:
    planned, plain = OffsetRange("t", 0, 5, 9, topic_id=TOPIC_ID), OffsetRange("t", 0, 5, 9)
    assert planned == plain
    assert len({planned, plain}) == 1
    assert repr(planned) == repr(plain)


def test_ranges_get_the_ids_of_their_topics_and_keep_their_own() -> None:
    own = OffsetRange("t", 0, 5, 9, topic_id=TOPIC_ID)
    stamped = with_topic_ids([own, OffsetRange("t", 1, 0, 1), OffsetRange("u", 0, 0, 1)], {"t": UUID(int=2)})
    assert [offset_range.topic_id for offset_range in stamped] == [TOPIC_ID, UUID(int=2), None]


@pytest.mark.parametrize("topic_id", [5, "t", "", ["x"]])
def test_a_topic_id_that_is_not_a_uuid_is_rejected(topic_id: Any) -> None:
    with pytest.raises(InvalidOffsetsError, match="topic_id must be a UUID"):
        OffsetRange("t", 0, 5, 9, topic_id=topic_id)
    entry = {"topic": "t", "partition": 0, "fromOffset": 5, "untilOffset": 9, "topicId": topic_id}
    with pytest.raises(ValueError, match="entry 0: topicId must be a UUID"):
        offset_ranges_from_json(json.dumps([entry]))


def test_deeply_nested_ranges_are_rejected() -> None:
    with pytest.raises(ValueError, match="it is nested too deeply"):
        offset_ranges_from_json("[" * 200_000)


@given(offset_maps, st.randoms())
def test_equal_offsets_give_equal_json(offsets: dict[TopicPartition, int], random: object) -> None:
    items = list(offsets.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert partition_offsets_to_json(dict(items)) == partition_offsets_to_json(offsets)


def test_json_has_sparks_format_with_partitions_in_numeric_order() -> None:
    offsets = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 5, TopicPartition("a", 9): -1}
    assert partition_offsets_to_json(offsets) == '{"a":{"9":-1,"10":5},"b":{"0":1}}'


def test_empty_offsets() -> None:
    assert partition_offsets_to_json({}) == "{}"
    assert partition_offsets_from_json("{}") == {}


def test_an_offset_may_be_a_string() -> None:
    assert partition_offsets_from_json('{"t":{"0":"23"}}') == {TopicPartition("t", 0): 23}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"t":5}', "does not map partitions"),
        ('{"t":"earliest"}', "does not map partitions"),
        ('{"t":{"zero":5}}', "not a partition number"),
        ('{"t":{"-1":5}}', "not a partition number"),
        ('{"t":{"2147483648":5}}', "not a partition number"),
        ('{"t":{"0":1.5}}', "not a 64-bit integer"),
        ('{"t":{"0":true}}', "not a 64-bit integer"),
        ('{"t":{"0":null}}', "not a 64-bit integer"),
        ('{"t":{"0":9223372036854775808}}', "not a 64-bit integer"),
        ('{"t":{"0":1},"t":{"1":1}}', "'t' occurs twice"),
        ('{"t":{"0":1,"0":2}}', "'0' occurs twice"),
        ('{"t":{"0":1,"00":2}}', "partition 0 occurs twice"),
        ('{"":{"0":1}}', "name is empty"),
        ('{"t":' * 100_000, "nested too deeply"),
    ],
)
def test_malformed_offsets_are_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidOffsetsError, match=reason):
        partition_offsets_from_json(text)


def test_topic_partitions_sort_numerically_and_print_as_in_kafka() -> None:
    assert sorted([TopicPartition("t", 10), TopicPartition("t", 9)])[0] == TopicPartition("t", 9)
    assert str(TopicPartition("flights", 3)) == "flights-3"


def test_range_has_size_and_partition() -> None:
    offset_range = OffsetRange("t", 1, 5, 12)
    assert offset_range.count() == 7
    assert offset_range.topic_partition == TopicPartition("t", 1)
    assert OffsetRange("t", 1, 5, 5).count() == 0
    assert pickle.loads(pickle.dumps(offset_range)) == offset_range
    assert len({offset_range, OffsetRange("t", 1, 5, 12)}) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", 0, 0, 1), "needs a topic name"),
        (("t", -1, 0, 1), "partition must be"),
        (("t", 2**31, 0, 1), "partition must be"),
        (("t", 0, -2, 1), "from_offset must be"),
        (("t", 0, 0, -1), "until_offset must be"),
        (("t", 0, 0, MAX_OFFSET + 1), "until_offset must be"),
        (("t", 0, 0.5, 1), "from_offset must be"),
        (("t", 0, 5, 4), "after its end 4"),
    ],
)
def test_invalid_ranges_are_rejected(arguments: tuple[str, int, int, int], message: str) -> None:
    with pytest.raises(InvalidOffsetsError, match=message):
        OffsetRange(*arguments)


def test_the_error_of_an_invalid_range_names_its_partition() -> None:
    with pytest.raises(InvalidOffsetsError) as caught:
        OffsetRange("t", 3, 5, 4)
    assert (caught.value.topic, caught.value.partition) == ("t", 3)


def test_json_numbers_are_plain_integers() -> None:
    assert json.loads(partition_offsets_to_json({TopicPartition("t", 0): MAX_OFFSET})) == {"t": {"0": MAX_OFFSET}}


def test_a_range_has_the_api_of_sparks_own() -> None:
    offset_range = OffsetRange.create("t", 1, 5, 12)
    assert offset_range == OffsetRange.create(TopicPartition("t", 1), 5, 12) == OffsetRange("t", 1, 5, 12)
    assert (offset_range.fromOffset, offset_range.untilOffset, offset_range.count()) == (5, 12, 7)
    assert offset_range.topicPartition() == TopicPartition("t", 1)


@pytest.mark.parametrize("numbers", [(), (1,), (1, 2), (1, 2, 3, 4)])
def test_a_range_with_too_few_or_too_many_arguments_is_rejected(numbers: tuple[int, ...]) -> None:
    with pytest.raises(InvalidOffsetsError, match="an offset range takes"):
        OffsetRange.create("t", *numbers)
