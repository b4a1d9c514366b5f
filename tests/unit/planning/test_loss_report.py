"""The losses that planners report: each once in a batch, with all of its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from tests.examples import seeds

from pyspark_kafka_direct.errors import DataLossError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import LostPartitions
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.planning.loss_report import LossReport

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from pyspark_kafka_direct.planning.loss_errors import SkippedLoss

PARTITIONS = [TopicPartition(topic, partition) for topic in "tuv" for partition in range(3)]
OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)


class Query:
    """A query with unselected partitions, and the losses that it has skipped."""

    def __init__(self, unselected: Collection[TopicPartition]) -> None:
        self.unselected = unselected
        self.losses: list[tuple[DataLossCause, TopicPartition]] = []

    def not_selected(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return [tp for tp in partitions if tp in self.unselected]

    def report_loss(self, loss: SkippedLoss) -> None:
        assert all(str(tp) in loss.message for tp in loss.offsets)
        assert set(loss.offsets.values()) == {0}, "how many records are lost is unknown"
        self.losses += [(loss.cause, tp) for tp in loss.offsets]


def check_report(rng: random.Random) -> None:
    recreated_topics = rng.sample("tuv", rng.randrange(3))
    known = rng.sample(PARTITIONS, rng.randint(1, 9))
    recreated = {tp: NEW_ID for tp in known if tp.topic in recreated_topics}
    missing = frozenset(tp for tp in known if tp not in recreated and rng.random() < 0.7)
    query = Query({tp for tp in missing if rng.random() < 0.4})
    lost, ids = LostPartitions(recreated, missing), dict.fromkeys(known, OLD_ID)
    expected = [
        *[(DataLossCause.RECREATED, tp) for tp in sorted(recreated)],
        *[(DataLossCause.DELETED, tp) for tp in sorted(missing - {*query.unselected})],
        *[(DataLossCause.NOT_SELECTED, tp) for tp in sorted(query.unselected)],
    ]
    report = LossReport(False, query)

    def reported(offset: int) -> list[tuple[DataLossCause, TopicPartition]]:
        query.losses.clear()
        report.begin_batch(dict.fromkeys(known, offset))
        report.report_lost(lost, ids)
        return sorted(query.losses, key=expected.index)

    assert reported(5) == expected
    assert reported(5) == []
    assert reported(6) == expected, "another batch"
    report.end_batch()
    assert reported(6) == expected
    if not expected:
        LossReport(True, query).report_lost(lost, ids)
        return
    with pytest.raises(DataLossError) as caught:
        LossReport(True, query).report_lost(lost, ids)
    cause, first = expected[0]
    together = [tp for each, tp in expected if each is cause]
    if cause is DataLossCause.RECREATED:
        together = [tp for tp in together if tp.topic == first.topic]
    assert (caught.value.topic, caught.value.partition) == (
        first.topic,
        first.partition if len(together) == 1 else None,
    )


def test_each_loss_is_reported_once_in_a_batch_with_all_partitions() -> None:
    seeds(100)(check_report)()
