"""Topics on the command line."""

from __future__ import annotations

import pytest
from tests.unit.cli.simulated_commands import CommandCluster

from pyspark_kafka_direct.cli.topic_arguments import NewTopic, create_topics, parse_topics
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
    ids=["none", "a name", "with partitions", "several", "a list", "twice the same", "all characters"],
)
def test_topics_are_parsed_with_their_partitions(texts: list[str], topics: list[NewTopic]) -> None:
    assert parse_topics(texts) == topics


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([":3"], "':3' is not a topic"),
        (["orders/eu"], "'orders/eu' is not a topic: use NAME or NAME:PARTITIONS"),
        ([".."], "'..' is not a topic"),
        (["a" * 250], "1 to 249 of the characters"),
        (["orders:"], "'orders:': the number of partitions must be an integer from 1 to 10000, got ''"),
        (["orders:0"], "got '0'"),
        (["orders:10001"], "got '10001'"),
        (["orders:3:1"], "got '3:1'"),
        (["orders:three"], "got 'three'"),
        (["orders:3", "orders"], "topic 'orders' has two different numbers of partitions: 3 and 1"),
    ],
    ids=["no name", "a slash", "dots", "long", "no number", "zero", "too many", "colons", "a word", "two numbers"],
)
def test_an_invalid_topic_is_rejected(texts: list[str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_topics(texts)
    assert message in str(caught.value)


def test_each_topic_is_created(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with CommandCluster(monkeypatch, capsys) as cluster:
        create_topics(cluster.servers, [NewTopic("x", 1), NewTopic("y", 2)])
        assert [len(cluster.client().topics([name])[name].partitions) for name in ("x", "y")] == [1, 2]
