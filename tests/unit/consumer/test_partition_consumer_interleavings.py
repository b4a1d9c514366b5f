"""Random interleavings: a ``PartitionConsumer`` returns each record of the logs exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.examples import examples, seeds
from tests.unit.consumer.polling import ConsumerCluster, offsets

from pyspark_kafka_direct.errors import DataLossError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from tests.simulation.cluster.partition_log import ReplicaLog
    from tests.simulation.cluster.stored_batch import StoredBatch

    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer, PolledBatch
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
            # A replica without any record of a log that has expired in part would begin at offset 0 again.
            least = log.start + 1 if log.start > 0 else 0
            self.cluster.truncate(tp, max(least, int(log.start + share * (log.end - log.start))))
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


FETCH_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH,
)


class InterruptedConsumer:
    """A consumer whose thread is slow, so that something happens between any two steps of a poll."""

    def __init__(self, cluster: ConsumerCluster, consumer: PartitionConsumer, rng: random.Random) -> None:
        self.cluster = cluster
        self.consumer = consumer
        self.rng = rng
        self.partitions = sorted(consumer.positions)
        self.returned: dict[TopicPartition, list[int]] = {tp: [] for tp in self.partitions}
        self.events_left = rng.randint(1, 12)
        manager = consumer._fetcher_manager
        for owner, names in (
            (consumer, ("_check_leader_logs", "_collect_batches", "_handle_response")),
            (manager, ("completed", "send_fetches", "wait", "_assign_to_leaders", "_refresh_leaders")),
            (consumer._background, ("run_callbacks", "start")),
        ):
            for name in names:
                setattr(owner, name, self.interrupted(getattr(owner, name)))

    def interrupted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            if self.events_left and self.rng.random() < 0.3:
                self.events_left -= 1
                self.interrupt()
            return step(*arguments)

        return run

    def interrupt(self) -> None:
        rng, cluster, tp = self.rng, self.cluster, self.rng.choice(self.partitions)
        match rng.randrange(8):
            case 0 | 1:
                cluster.sleep(rng.choice([0.1, 0.6, 3]))
            case 2:
                cluster.append(tp, rng.randint(1, 3))
            case 3:
                cluster.event("elect_leader", topic=tp.topic, partition=tp.partition)
            case 4:
                cluster.break_connections(rng.choice([None, 1, 2]))
            case 5:
                code = rng.choice(FETCH_ERRORS)
                cluster.fault("Fetch", "error", number=rng.randrange(2), repeats=rng.randint(1, 3), code=code)
            case 6:
                api = rng.choice(["Fetch", "Metadata", "ListOffsets"])
                cluster.fault(api, rng.choice(["lose_response", "delay_response"]), seconds=1.5)
            case 7:
                offset = rng.randint(0, self.consumer.positions[tp])
                self.consumer.seek(tp, offset)
                self.returned[tp] = self.returned[tp][:offset]

    def poll(self, seconds: float) -> None:
        for tp, found in offsets(self.consumer.poll(seconds)).items():
            self.returned[tp] += found

    def is_at_end(self) -> bool:
        return all(position == self.cluster.log(tp).end for tp, position in self.consumer.positions.items())


def check_interrupted_consumer(rng: random.Random) -> None:
    timeouts = {"request_timeout_ms": 4000, "metadata_max_age_ms": rng.choice([2000, 300_000])}
    versions = rng.choice([{}, {"Metadata": 8, "Fetch": 11}])  # the latter without reliable leader epochs
    cluster = ConsumerCluster(2, topics={"ships": 1}, connection=timeouts, newest_versions=versions)
    with cluster, cluster.consumer() as consumer:
        owner = InterruptedConsumer(cluster, consumer, rng)
        for _ in range(40):
            owner.poll(rng.choice([0, 0.3, 5]))
        owner.events_left = 0
        for tp in owner.partitions:
            cluster.append(tp, 1)
        began = cluster.now
        while not owner.is_at_end():
            owner.poll(600)
        assert cluster.now - began < 15, "nothing is slept over"
        assert owner.returned == {tp: list(range(cluster.log(tp).end)) for tp in owner.partitions}
        sent = sum(cluster.received_by("Fetch"))
        owner.poll(10)
        assert consumer.transient_errors == {}
        assert 10 <= sum(cluster.received_by("Fetch")) - sent <= 50
        assert cluster.open_connections <= 4, "one for fetches and one for other requests to each broker"


def test_what_happens_between_the_steps_of_a_poll_delays_no_partition() -> None:
    seeds(15)(check_interrupted_consumer)()
