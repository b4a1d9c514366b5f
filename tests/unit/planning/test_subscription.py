"""What Spark's ConsumerStrategySuite tests, without a broker."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.errors import OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.subscription import (
    AssignStrategy,
    SubscribeStrategy,
    SubscriptionStrategy,
    parse_assign,
    parse_subscribe,
    parse_subscribe_pattern,
)
from pyspark_kafka_direct.planning.subscription import select_partitions

TOPICS = {"flights": [1, 0], "flights-2": [0], "clicks": [0], "__consumer_offsets": [0]}


def test_subscribe_takes_all_partitions_in_order() -> None:
    selected = select_partitions(parse_subscribe("flights,clicks"), TOPICS)
    assert [str(tp) for tp in selected.partitions] == ["clicks-0", "flights-0", "flights-1"]
    assert selected.warnings == ()


def test_assign_selects_exactly_those_partitions() -> None:
    selected = select_partitions(parse_assign('{"flights":[1,1]}'), TOPICS)
    assert selected.partitions == (TopicPartition("flights", 1),)
    assert parse_assign('{"b":[0],"a":[1]}').topics == ("a", "b")


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("light", ["flights-0", "flights-1", "flights-2-0"]),
        ("^flights$", ["flights-0", "flights-1"]),
        ("s$", ["clicks-0", "flights-0", "flights-1"]),
        ("o", []),
    ],
)
def test_a_pattern_is_found_anywhere_in_a_name_and_in_no_internal_topic(pattern: str, wanted: list[str]) -> None:
    selected = select_partitions(parse_subscribe_pattern(pattern), TOPICS, {"__consumer_offsets"})
    assert [str(tp) for tp in selected.partitions] == wanted


def test_the_broker_decides_which_topics_are_internal() -> None:
    selected = select_partitions(parse_subscribe_pattern("__.*"), TOPICS, set())
    assert [str(tp) for tp in selected.partitions] == ["__consumer_offsets-0"]


def test_a_pattern_without_a_match_selects_nothing_and_warns() -> None:
    selected = select_partitions(parse_subscribe_pattern("x+"), TOPICS)
    assert selected.partitions == ()
    assert selected.warnings == ("subscribePattern='x+' matches none of 4 topics",)


def test_a_missing_topic_is_named_with_a_hint() -> None:
    with pytest.raises(TopicNotFoundError, match="flight; did you mean 'flights'") as caught:
        select_partitions(SubscribeStrategy(("flight", "clicks")), TOPICS)
    assert caught.value.topic == "flight"


@pytest.mark.parametrize(
    "strategy",
    [
        AssignStrategy((TopicPartition("flights", 0), TopicPartition("x", 0))),
        SubscribeStrategy(("flights", "x")),
    ],
)
def test_a_missing_topic_without_a_similar_name_has_a_next_step(strategy: SubscriptionStrategy) -> None:
    with pytest.raises(TopicNotFoundError) as caught:
        select_partitions(strategy, TOPICS, servers="b:1,c:2")
    assert caught.value.message == (
        "no such topic: x; none of the 4 topics that are visible at b:1,c:2 has a similar name. Check "
        "bootstrap.servers, or create the topic (kafka-topics --bootstrap-server b:1,c:2 --create --topic x); reading "
        "never creates topics"
    )


def test_a_missing_partition_is_named() -> None:
    with pytest.raises(
        TopicNotFoundError, match="do not exist: flights-7; topic flights has partitions 0, 1"
    ) as caught:
        select_partitions(parse_assign('{"flights":[0,7]}'), TOPICS)
    assert (caught.value.topic, caught.value.partition) == ("flights", 7)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"t":[]}', '{"t":0}', '{"t":[-1]}', '{"t":[true]}', '{"t":[1.0]}', '{"t t":[0]}', '{"t":[0]'],
)
def test_malformed_assign(text: str) -> None:
    with pytest.raises(OptionError, match="assign"):
        parse_assign(text)


@pytest.mark.parametrize("text", ["", " , ", "a b", "a,b/c", ".", "..", "x" * 250, "topic.*"])
def test_malformed_subscribe(text: str) -> None:
    with pytest.raises(OptionError, match="subscribe"):
        parse_subscribe(text)


@pytest.mark.parametrize("text", ["topic.*", "orders flights", "orders;flights", "['orders', 'flights']"])
def test_an_invalid_name_in_subscribe_gets_advice(text: str) -> None:
    with pytest.raises(OptionError, match="separate names by commas; for a regular expression use subscribePattern"):
        parse_subscribe(text)
