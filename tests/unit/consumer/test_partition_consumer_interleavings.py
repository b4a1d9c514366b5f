"""Random interleavings: a ``PartitionConsumer`` returns each record of the logs exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.examples import examples
from tests.unit.consumer.fake_cluster import FakeCluster

from pyspark_kafka_direct.errors import DataLossError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.config.client_settings import IsolationLevel
    from pyspark_kafka_direct.consumer.partition_consumer import PolledBatch

PARTITIONS = [TopicPartition("flights", number) for number in range(3)]
partition_strategy = st.sampled_from(PARTITIONS)
producer_strategy = st.sampled_from([7, 8])


class Interleavings(RuleBasedStateMachine):
    """A consumer, its owner, writers, and a cluster with failures."""

    @initialize(
        isolation_level=st.sampled_from(["read_uncommitted", "read_committed"]),
        newest=st.sampled_from([11, 12, 17]),
        returns_leaders=st.booleans(),
        small=st.booleans(),
        max_rows=st.sampled_from([1, 2, 1000]),
        max_bytes=st.sampled_from([1, 40, 4 << 20]),
    )
    def begin(
        self,
        isolation_level: IsolationLevel,
        newest: int,
        returns_leaders: bool,
        small: bool,
        max_rows: int,
        max_bytes: int,
    ) -> None:
        self.cluster = FakeCluster(PARTITIONS, cluster=2)
        self.cluster.versions = {1: (4, newest), 2: (1, 11)}
        self.cluster.returns_leaders = returns_leaders
        self.committed = isolation_level == "read_committed"
        fetch = {"fetch_max_bytes": 1, "max_partition_fetch_bytes": 1} if small else {}
        self.consumer = self.cluster.consumer(
            isolation_level=isolation_level, fetch=fetch, max_rows=max_rows, max_bytes=max_bytes
        )
        self.detects_truncation = newest >= 12
        self.returned: dict[TopicPartition, list[tuple[int, bytes | None]]] = {tp: [] for tp in PARTITIONS}
        self.paused: set[TopicPartition] = set()
        self.watched_from = dict.fromkeys(PARTITIONS, 0)  # earlier offsets are no longer checked

    # Writers.

    @rule(tp=partition_strategy, count=st.integers(1, 5))
    def write(self, tp: TopicPartition, count: int) -> None:
        self.cluster.logs[tp].append(count)
        self.cluster.respond_to_waiting_fetches()

    @rule(tp=partition_strategy, producer=producer_strategy, count=st.integers(1, 3))
    def write_in_transaction(self, tp: TopicPartition, producer: int, count: int) -> None:
        self.cluster.logs[tp].append(count, producer_id=producer)
        self.cluster.respond_to_waiting_fetches()

    @rule(tp=partition_strategy, producer=producer_strategy, commit=st.booleans())
    def end_transaction(self, tp: TopicPartition, producer: int, commit: bool) -> None:
        if producer in self.cluster.logs[tp].open:
            self.cluster.logs[tp].finish(producer, commit=commit)
            self.cluster.respond_to_waiting_fetches()

    # The cluster.

    @rule(tp=partition_strategy)
    def move_leader(self, tp: TopicPartition) -> None:
        log = self.cluster.logs[tp]
        log.leader, log.epoch = 3 - log.leader, log.epoch + 1
        self.cluster.respond_to_waiting_fetches()

    @rule(node=st.sampled_from([None, 1, 2]))
    def break_connections(self, node: int | None) -> None:
        self.cluster.break_connections(node)

    @rule(node=st.sampled_from([1, 2]))
    def stop_broker(self, node: int) -> None:
        self.cluster.down.add(node)
        self.cluster.break_connections(node)

    @rule()
    def start_brokers(self) -> None:
        self.cluster.down.clear()
        self.cluster.respond_to_waiting_fetches()

    @rule(times=st.integers(1, 3))
    def throttle(self, times: int) -> None:
        self.cluster.throttled = times

    @rule(tp=partition_strategy)
    def delete_records(self, tp: TopicPartition) -> None:
        log = self.cluster.logs[tp]
        log.start = max(log.start, (log.start + log.last_stable_offset + 1) // 2)

    @rule(tp=partition_strategy, share=st.floats(0, 1))
    def truncate_log(self, tp: TopicPartition, share: float) -> None:
        """An unclean leader election, which a broker with leader epochs reports."""
        log = self.cluster.logs[tp]
        if not self.detects_truncation or not log.batches:
            return
        log.truncate(max(log.start, int(log.start + share * (log.end - log.start))))
        log.append(1)  # every leader eventually writes records of its epoch
        self.cluster.respond_to_waiting_fetches()

    @rule(hold=st.booleans())
    def hold_background_tasks(self, hold: bool) -> None:
        self.cluster.system.hold_background = hold
        if not hold:
            self.cluster.system.run_background()

    # The owner.

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 5.0]))
    def poll(self, seconds: float) -> None:
        before = self.cluster.system.now
        try:
            polled = self.consumer.poll(seconds)
        except TruncatedError as error:
            self.resume_after_truncation(error)
        except DataLossError as error:
            self.resume_after_loss(error)
        else:
            assert self.cluster.system.now <= before + seconds + 1e-6
            self.check_polled(polled)

    @rule(tp=partition_strategy)
    def pause(self, tp: TopicPartition) -> None:
        self.consumer.pause([tp])
        self.paused.add(tp)

    @rule(tp=partition_strategy)
    def resume(self, tp: TopicPartition) -> None:
        self.consumer.resume([tp])
        self.paused.discard(tp)

    @rule(tp=partition_strategy, share=st.floats(0, 1))
    def seek_back(self, tp: TopicPartition, share: float) -> None:
        position = self.consumer.positions[tp]
        first = self.cluster.logs[tp].start
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
        self.cluster.down.clear()
        self.hold_background_tasks(False)
        self.consumer.resume(PARTITIONS)
        self.paused.clear()
        idle_since = self.cluster.system.now
        for _ in range(3000):
            self.poll(1.0)
            behind = any(self.consumer.positions[tp] != self.end(tp) for tp in PARTITIONS)
            if behind or self.consumer.transient_errors:
                idle_since = self.cluster.system.now
            elif self.cluster.system.now - idle_since > 5:
                break
        for tp, log in self.cluster.logs.items():
            assert self.consumer.positions[tp] == self.end(tp), (tp, self.consumer.transient_errors)
            first = max(log.start, self.watched_from[tp])
            expected = [each for each in log.readable(committed=self.committed) if each[0] >= first]
            assert [each for each in self.returned[tp] if each[0] >= first] == expected
        assert self.consumer.transient_errors == {}
        self.consumer.close()
        released = len(self.cluster.released)
        assert released == len(self.cluster.connections)

    def end(self, tp: TopicPartition) -> int:
        log = self.cluster.logs[tp]
        return log.last_stable_offset if self.committed else log.high_watermark

    def check_polled(self, polled: Iterable[PolledBatch]) -> None:
        for tp, rows in polled:
            assert rows.num_rows
            assert tp not in self.paused
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
        log = self.cluster.logs[tp]
        first = log.start if error.truncated_to is None else error.truncated_to
        self.seek(tp, max(min(first, self.consumer.positions[tp]), log.start))

    def resume_after_loss(self, error: DataLossError) -> None:
        assert not isinstance(error, TopicRecreatedError)
        assert error.topic is not None
        assert error.partition is not None
        tp = TopicPartition(error.topic, error.partition)
        log = self.cluster.logs[tp]
        assert error.offset == self.consumer.positions[tp]
        if error.offset < log.start:
            self.consumer.seek(tp, log.start)
            return
        assert error.offset > log.end, "no offset was lost"
        self.seek(tp, log.start)


def test_random_interleavings_return_each_record_once() -> None:
    run_state_machine_as_test(Interleavings, settings=settings(examples(50), stateful_step_count=40))
