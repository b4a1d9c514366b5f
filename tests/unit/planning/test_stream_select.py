from __future__ import annotations

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.select import (
    Assign,
    Selected,
    Subscribe,
    parse_assign,
    parse_subscribe,
    parse_subscribe_pattern,
    select_partitions,
)
from pyspark_kafka_direct.planning.stream_select import existing

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_topics_and_partitions_that_are_gone_are_left_out() -> None:
    assert existing(parse_subscribe("t,u"), {"t": {0}}) == Subscribe(("t",))
    assert existing(parse_assign('{"t":[0,1],"u":[0]}'), {"t": {0, 2}}) == Assign((T0,))
    pattern = parse_subscribe_pattern("t.*")
    assert existing(pattern, {}) is pattern


def test_what_is_left_can_be_nothing() -> None:
    assert select_partitions(existing(parse_subscribe("u"), {"t": {0}}), {"t": {0}}) == Selected(())
    assert select_partitions(existing(parse_assign('{"t":[1]}'), {"t": {0}}), {"t": {0}}) == Selected(())
