"""Random interleavings: a ``PartitionConsumer`` returns each record of the logs exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.examples import examples
from tests.unit.consumer.polling import ConsumerCluster

from pyspark_kafka_direct.errors import DataLossError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.cluster.partition_log import ReplicaLog
    from tests.simulation.cluster.stored_batch import StoredBatch

    from pyspark_kafka_direct.consumer.partition_consumer import PolledBatch
    from pyspark_kafka_direct.options.settings import IsolationLevel

PARTITIONS = [TopicPartition("flights", number) for number in range(3)]
partition_strategy = st.sampled_from(PARTITIONS)
producer_strategy = st.sampled_from([7, 8])
_FOREVER = 1e8  # in seconds


class Interleavings(RuleBasedStateMachine):
    """A consumer, its owner, writers, and a cluster with failures."""

    @initialize(
        isolation_level=st.sampled_from(["read_uncommitted", "read_committed"]),
        newest=st.sampled_from([11, 12, 15, 17]),
        small=st.booleans(),
        max_rows=st.sampled_from([1, 2, 1000]),
        max_bytes=st.sampled_from([1, 40, 4 << 20]),
    )
    def begin(
        self,
        isolation_level: IsolationLevel,
        newest: int,
        small: bool,
        max_rows: int,
        max_bytes: int,
    ) -> None:
        self.cluster = ConsumerCluster(newest_versions={"Fetch": newest}, failure_detection=_FOREVER)
        self.committed = isolation_level == "read_committed"
        fetch = {"fetch_max_bytes": 1, "max_partition_fetch_bytes": 1} if small else {}
        self.consumer = self.cluster.consumer(
            isolation_level=isolation_level, fetch=fetch, max_rows=max_rows, max_bytes=max_bytes
        )
        self.detects_truncation = newest >= 12
        self.returned: dict[TopicPartition, list[tuple[int, bytes | None]]] = {tp: [] for tp in PARTITIONS}
        self.watched_from = dict.fromkeys(PARTITIONS, 0)  # earlier offsets are no longer checked

    # Writers.

    @rule(tp=partition_strategy, count=st.integers(1, 5))
    def write(self, tp: TopicPartition, count: int) -> None:
        self.cluster.append(tp, count)

    @rule(tp=partition_strategy, producer=producer_strategy, count=st.integers(1, 3))
    def write_in_transaction(self, tp: TopicPartition, producer: int, count: int) -> None:
        self.cluster.append(tp, count, producer_id=producer)

    @rule(tp=partition_strategy, producer=producer_strategy, commit=st.booleans())
    def end_transaction(self, tp: TopicPartition, producer: int, commit: bool) -> None:
        entry = self.cluster.log(tp).producers.get(producer)
        if entry is not None and entry.first_open_offset is not None:
            self.cluster.end_transaction(tp, producer, commit=commit)

    # The cluster.

    @rule(tp=partition_strategy)
    def move_leader(self, tp: TopicPartition) -> None:
        self.cluster.event("elect_leader", topic=tp.topic, partition=tp.partition)

    @rule(broker=st.sampled_from([None, 1, 2]))
    def break_connections(self, broker: int | None) -> None:
        self.cluster.break_connections(broker)

    @rule(broker=st.integers(0, 1))
    def stop_broker(self, broker: int) -> None:
        self.cluster.event("stop_broker", broker=broker, seconds=_FOREVER)

    @rule()
    def end_faults(self) -> None:
        self.cluster.heal()

    @rule(broker=st.integers(0, 1), seconds=st.sampled_from([0.02, 0.1, 1.0]))
    def throttle(self, broker: int, seconds: float) -> None:
        self.cluster.event("throttle_broker", broker=broker, seconds=seconds, ms=50)

    @rule(tp=partition_strategy)
    def delete_records(self, tp: TopicPartition) -> None:
        log = self.cluster.log(tp)
        self.cluster.delete_records(tp, (log.start + log.last_stable_offset + 1) // 2)

    @rule(tp=partition_strategy, share=st.floats(0, 1))
    def truncate_log(self, tp: TopicPartition, share: float) -> None:
        """An unclean leader election, which a broker with leader epochs reports."""
        log = self.cluster.log(tp)
        if (
            self.detects_truncation
            and log.batches
            and self.cluster.cluster.is_connected(self.cluster.partition(tp).leader)
        ):
            self.cluster.truncate(tp, max(log.start, int(log.start + share * (log.end - log.start))))
            self.cluster.append(tp, 1)  # every leader eventually writes records of its epoch

    @rule(api=st.sampled_from(["Metadata", "ListOffsets", "Fetch"]), seconds=st.sampled_from([0.05, 2.0]))
    def delay_response(self, api: str, seconds: float) -> None:
        self.cluster.fault(api, "delay_response", seconds=seconds)

    # The owner.

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 5.0]))
    def poll(self, seconds: float) -> None:
        before = self.cluster.now
        try:
            polled = self.consumer.poll(seconds)
        except TruncatedError as error:
            self.resume_after_truncation(error)
        except DataLossError as error:
            self.resume_after_loss(error)
        else:
            assert self.cluster.now <= before + seconds + 0.01
            self.check_polled(polled)

    @rule(tp=partition_strategy, share=st.floats(0, 1))
    def seek_back(self, tp: TopicPartition, share: float) -> None:
        position = self.consumer.positions[tp]
        first = self.cluster.log(tp).start
        if position > first:
            self.seek(tp, int(first + share * (position - first)))

    @invariant()
    def positions_are_after_the_returned_records(self) -> None:
        if not hasattr(self, "consumer"):
            return
        for tp, position in self.consumer.positions.items():
            if self.returned[tp]:
                assert position > self.returned[tp][-1][0]

    def teardown(self) -> None:
        if not hasattr(self, "consumer"):
            return
        self.cluster.heal()
        idle_since = self.cluster.now
        for _ in range(3000):
            self.poll(1.0)
            behind = any(self.consumer.positions[tp] != self.end(tp) for tp in PARTITIONS)
            if behind or self.consumer.transient_errors:
                idle_since = self.cluster.now
            elif self.cluster.now - idle_since > 5:
                break
        for tp in PARTITIONS:
            assert self.consumer.positions[tp] == self.end(tp), (tp, self.consumer.transient_errors)
            first = max(self.cluster.log(tp).start, self.watched_from[tp])
            expected = [each for each in self.readable(tp) if each[0] >= first]
            assert [each for each in self.returned[tp] if each[0] >= first] == expected
        assert self.consumer.transient_errors == {}
        self.consumer.close()
        self.cluster.__exit__(None)

    def end(self, tp: TopicPartition) -> int:
        log = self.cluster.log(tp)
        return log.last_stable_offset if self.committed else log.high_watermark

    def readable(self, tp: TopicPartition) -> list[tuple[int, bytes | None]]:
        """Offsets and values that the consumer gets."""
        log = self.cluster.log(tp)
        return [
            each
            for batch in log.batches
            if not batch.is_control and batch.base_offset < self.end(tp)
            if not (self.committed and is_aborted(log, batch))
            for each in zip(batch.offsets, batch.values, strict=True)
        ]

    def check_polled(self, polled: Iterable[PolledBatch]) -> None:
        for tp, rows in polled:
            assert rows.num_rows
            for offset, value in zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True):
                assert not self.returned[tp] or offset > self.returned[tp][-1][0]
                self.returned[tp].append((offset, value))

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.watched_from[tp] = offset
        self.consumer.seek(tp, offset)
        assert self.consumer.positions[tp] == self.watched_from[tp] == offset
        self.returned[tp] = [each for each in self.returned[tp] if each[0] < offset]

    def resume_after_truncation(self, error: TruncatedError) -> None:
        assert error.topic is not None
        assert error.partition is not None
        tp = TopicPartition(error.topic, error.partition)
        assert error.offset == self.consumer.positions[tp]
        log = self.cluster.log(tp)
        first = log.start if error.truncated_to is None else error.truncated_to
        self.seek(tp, max(min(first, self.consumer.positions[tp]), log.start))

    def resume_after_loss(self, error: DataLossError) -> None:
        assert not isinstance(error, TopicRecreatedError)
        assert error.topic is not None
        assert error.partition is not None
        tp = TopicPartition(error.topic, error.partition)
        log = self.cluster.log(tp)
        assert error.offset == self.consumer.positions[tp]
        if error.offset < log.start:
            self.consumer.seek(tp, log.start)
            return
        assert error.offset > log.end, "no offset was lost"
        self.seek(tp, log.start)


def is_aborted(log: ReplicaLog, batch: StoredBatch) -> bool:
    return batch.is_transactional and any(
        each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset < each.last_offset
        for each in log.aborted
    )


@pytest.mark.slow
def test_random_interleavings_return_each_record_once() -> None:
    run_state_machine_as_test(Interleavings, settings=settings(examples(50), stateful_step_count=40))
