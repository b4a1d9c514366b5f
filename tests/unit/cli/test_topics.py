"""Topics as they are named on the command line."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.cli.topics import NewTopic, parse_topics
from pyspark_kafka_direct.errors import OptionError


@pytest.mark.parametrize(
    ("texts", "topics"),
    [
        ([], []),
        (["orders"], [NewTopic("orders", 1)]),
        (["orders:3"], [NewTopic("orders", 3)]),
        (["orders:3", "payments"], [NewTopic("orders", 3), NewTopic("payments", 1)]),
        (["orders:3, payments:2,"], [NewTopic("orders", 3), NewTopic("payments", 2)]),
        (["orders:3", "orders:3"], [NewTopic("orders", 3)]),
        (["a.b_c-1:10000"], [NewTopic("a.b_c-1", 10_000)]),
    ],
    ids=["none", "a name", "with partitions", "several", "a list", "twice the same", "all signs"],
)
def test_topics_are_named_with_their_partitions(texts: list[str], topics: list[NewTopic]) -> None:
    assert parse_topics(texts) == topics


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([":3"], "':3' is not a topic"),
        (["orders/eu"], "'orders/eu' is not a topic: write NAME or NAME:PARTITIONS"),
        ([".."], "'..' is not a topic"),
        (["a" * 250], "at most 249"),
        (["orders:"], "'orders:': the number of partitions must be a whole number from 1 to 10000, got ''"),
        (["orders:0"], "got '0'"),
        (["orders:10001"], "got '10001'"),
        (["orders:3:1"], "got '3:1'"),
        (["orders:three"], "got 'three'"),
        (["orders:3", "orders"], "topic 'orders' is named with 3 partitions and with 1"),
    ],
    ids=["no name", "a slash", "dots", "long", "no number", "zero", "too many", "colons", "a word", "two numbers"],
)
def test_what_cannot_be_a_topic_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_topics(texts)
    assert said in str(caught.value)
