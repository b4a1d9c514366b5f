from __future__ import annotations

import json

import pytest
from bench.errors import BenchError
from bench.topics import SIZES, Topic, values


@pytest.mark.parametrize("size", SIZES)
def test_values_are_json_of_exactly_that_size(size: int) -> None:
    made = values(size, 50)
    assert {len(value) for value in made} == {size}
    assert all(json.loads(value)["user"].startswith("u") for value in made)
    assert len(set(made)) == 50


def test_values_are_the_same_for_the_same_seed() -> None:
    assert values(100, 5) == values(100, 5)
    assert values(100, 5) != values(100, 5, seed=2)


def test_a_topic_knows_what_a_full_read_must_find() -> None:
    topic = Topic(1024, "zstd", 1000, partitions=4, padding=50)
    assert (topic.name, topic.label) == ("bench-1024-zstd", "1 KiB zstd")
    assert (topic.until_offset, topic.end_offset, topic.total_bytes) == (250, 300, 1_024_000)


def test_partitions_hold_the_same_number_of_records() -> None:
    with pytest.raises(BenchError, match="evenly"):
        Topic(100, "none", 5, partitions=2)
