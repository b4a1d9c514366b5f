from __future__ import annotations

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.subscription import (
    AssignStrategy,
    SubscribeStrategy,
    parse_assign,
    parse_subscribe,
    parse_subscribe_pattern,
)
from pyspark_kafka_direct.planning.subscription import SelectedPartitions, restrict_to_existing, select_partitions

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_missing_topics_and_partitions_are_removed() -> None:
    assert restrict_to_existing(parse_subscribe("t,u,v"), {"t": {0}, "v": {0}}) == SubscribeStrategy(("t", "v"))
    assigned = parse_assign('{"t":[0,1],"u":[0],"v":[0]}')
    assert restrict_to_existing(assigned, {"t": {0, 2}, "v": {0}}) == AssignStrategy((T0, TopicPartition("v", 0)))
    pattern = parse_subscribe_pattern("t.*")
    assert restrict_to_existing(pattern, {}) is pattern


def test_nothing_may_remain() -> None:
    assert select_partitions(restrict_to_existing(parse_subscribe("u"), {"t": {0}}), {"t": {0}}) == SelectedPartitions(
        ()
    )
    assert select_partitions(
        restrict_to_existing(parse_assign('{"t":[1]}'), {"t": {0}}), {"t": {0}}
    ) == SelectedPartitions(())
