"""Random losses of a topic, which a log and a table survive: both have the topic's records in the end."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.log_cluster import TOPIC, LogCluster, outcome, tp

from pyspark_kafka_direct.errors import DataLossError, KafkaDirectError, TopicRecreatedError, TruncatedError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable, LogRecord

KEYS = [b"k%d" % number for number in range(6)]


class Mirror:
    """The records of a topic, from the callbacks of a log only."""

    def __init__(self) -> None:
        self.records: dict[int, dict[int, bytes | None]] = {}  # by partition and offset

    def on_record(self, record: LogRecord) -> None:
        of_partition = self.records.setdefault(record.partition, {})
        assert record.offset not in of_partition, "a record is delivered once"
        assert record.offset > max(of_partition, default=-1), "records are delivered in order"
        of_partition[record.offset] = record.value

    def on_reset(self, error: KafkaDirectError) -> None:
        if isinstance(error, TopicRecreatedError):
            self.records.clear()
            return
        assert isinstance(error, TruncatedError)
        assert error.partition is not None
        of_partition = self.records.get(error.partition, {})
        for offset in [each for each in of_partition if each >= (error.truncated_to or 0)]:
            del of_partition[offset]


class History:
    """Writes to the topic, and loses records of it."""

    def __init__(self, cluster: LogCluster, seed: int) -> None:
        self.rng = random.Random(seed)
        self._cluster = cluster
        self._number = 0

    def write(self) -> None:
        for _ in range(self.rng.randint(1, 5)):
            self._number += 1
            number = self.rng.randrange(self.partition_count)
            value = None if self.rng.random() < 0.2 else b"%d" % self._number
            self._cluster.put(b"%d-" % number + self.rng.choice(KEYS), value, number)  # a key has one partition

    def lose(self) -> None:
        """Truncate one partition, or several, or recreate the topic with another number of partitions."""
        if self.rng.random() < 0.25:
            self._cluster.event("recreate_topic", topic=TOPIC, partitions=self.rng.randint(1, 3))
            return
        for number in self.rng.sample(range(self.partition_count), self.rng.randint(1, self.partition_count)):
            end = self._cluster.log(tp(number)).end
            self._cluster.truncate(tp(number), max(end - self.rng.randint(0, 6), 0), leader=self.rng.randint(1, 2))

    def pause(self) -> None:
        """Mostly shorter than the detection of a loss."""
        self._cluster.sleep(self.rng.choice([0.0, 0.01, 0.3, 3.0, 30.0]))

    @property
    def partition_count(self) -> int:
        return len(self._cluster.cluster.topics[TOPIC].partitions)

    def records(self) -> dict[int, dict[int, tuple[bytes | None, bytes | None]]]:
        """Return the keys and values of the topic by partition and offset."""
        return {
            number: {
                batch.base_offset + index: record
                for batch in self._cluster.log(tp(number)).batches
                for index, record in enumerate(zip(batch.keys, batch.values, strict=True))
            }
            for number in range(self.partition_count)
        }


def read_to_end(log: KafkaBasedLog) -> None:
    """Read to the end once all losses are found, each of which may fail a read."""
    for _ in range(20):
        error = outcome(log.read_to_end())
        if error is None:
            return
        assert isinstance(error, DataLossError)
    pytest.fail("reads fail for ever")


@pytest.mark.parametrize("seed", range(12))
def test_a_log_and_a_table_have_the_records_of_the_topic_after_losses(seed: int) -> None:
    mirror = Mirror()
    changed: dict[bytes, bytes | None] = {}
    with LogCluster() as cluster:
        history = History(cluster, seed)
        history.write()
        with (
            cluster.log_of(on_record=mirror.on_record, on_reset=mirror.on_reset) as log,
            cluster.table_of(on_change=changed.__setitem__) as table,
        ):
            reads: list[Future[Any]] = []
            for _ in range(10):
                history.rng.choice([history.write, history.write, history.lose])()
                history.pause()
                reads += [each.read_to_end() for each in (log, table) if history.rng.random() < 0.3]
            cluster.sleep(60)
            assert all(each.done() for each in reads)
            for each in (log, table.log):
                read_to_end(each)
            check(history, mirror, table)
            assert {key: value for key, value in changed.items() if value is not None} == table.snapshot()


def check(history: History, mirror: Mirror, table: KafkaTable[Any, Any]) -> None:
    expected = history.records()
    assert {number: found for number, found in mirror.records.items() if found} == {
        number: {offset: value for offset, (_, value) in found.items()} for number, found in expected.items() if found
    }
    latest = {key: value for found in expected.values() for _, (key, value) in sorted(found.items())}
    assert table.snapshot() == {key: value for key, value in latest.items() if value is not None}
