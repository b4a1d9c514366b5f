"""Whatever happens in whatever order, a tail hands out what the logs hold: each record once, none left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.unit.reading.made_up import Brokers

from pyspark_kafka_direct.errors import DataLossError, TopicRecreatedError, TruncatedError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.reading.tail import Polled
    from pyspark_kafka_direct.settings.fetch import IsolationLevel

NAMES = [TopicPartition("flights", number) for number in range(3)]
names = st.sampled_from(NAMES)
producers = st.sampled_from([7, 8])


class Interleavings(RuleBasedStateMachine):
    """A tail, its owner, writers, and a cluster where things go wrong."""

    @initialize(
        isolation_level=st.sampled_from(["read_uncommitted", "read_committed"]),
        newest=st.sampled_from([11, 12, 17]),
        hints=st.booleans(),
        small=st.booleans(),
        max_rows=st.sampled_from([1, 2, 1000]),
        max_bytes=st.sampled_from([1, 40, 4 << 20]),
    )
    def begin(
        self,
        isolation_level: IsolationLevel,
        newest: int,
        hints: bool,
        small: bool,
        max_rows: int,
        max_bytes: int,
    ) -> None:
        self.brokers = Brokers(NAMES, brokers=2)
        self.brokers.versions = {1: (4, newest), 2: (1, 11)}
        self.brokers.hints = hints
        self.committed = isolation_level == "read_committed"
        fetch = {"fetch_max_bytes": 1, "max_partition_fetch_bytes": 1} if small else {}
        self.tail = self.brokers.tail(
            isolation_level=isolation_level, fetch=fetch, max_rows=max_rows, max_bytes=max_bytes
        )
        self.compares = newest >= 12
        self.got: dict[TopicPartition, list[tuple[int, bytes | None]]] = {name: [] for name in NAMES}
        self.paused: set[TopicPartition] = set()
        self.sought = dict.fromkeys(NAMES, 0)  # what lies before that is not watched any more

    # Writers.

    @rule(name=names, count=st.integers(1, 5))
    def write(self, name: TopicPartition, count: int) -> None:
        self.brokers.logs[name].append(count)
        self.brokers.changed()

    @rule(name=names, producer=producers, count=st.integers(1, 3))
    def write_in_transaction(self, name: TopicPartition, producer: int, count: int) -> None:
        self.brokers.logs[name].append(count, producer_id=producer)
        self.brokers.changed()

    @rule(name=names, producer=producers, commit=st.booleans())
    def end_transaction(self, name: TopicPartition, producer: int, commit: bool) -> None:
        if producer in self.brokers.logs[name].open:
            self.brokers.logs[name].finish(producer, commit=commit)
            self.brokers.changed()

    # The cluster.

    @rule(name=names)
    def move_leader(self, name: TopicPartition) -> None:
        log = self.brokers.logs[name]
        log.leader, log.epoch = 3 - log.leader, log.epoch + 1
        self.brokers.changed()

    @rule(node=st.sampled_from([None, 1, 2]))
    def break_connections(self, node: int | None) -> None:
        self.brokers.break_connections(node)

    @rule(node=st.sampled_from([1, 2]))
    def stop_broker(self, node: int) -> None:
        self.brokers.down.add(node)
        self.brokers.break_connections(node)

    @rule()
    def start_brokers(self) -> None:
        self.brokers.down.clear()
        self.brokers.changed()

    @rule(times=st.integers(1, 3))
    def throttle(self, times: int) -> None:
        self.brokers.throttled = times

    @rule(name=names)
    def delete_records(self, name: TopicPartition) -> None:
        log = self.brokers.logs[name]
        log.start = max(log.start, (log.start + log.stable + 1) // 2)

    @rule(name=names, share=st.floats(0, 1))
    def cut_log(self, name: TopicPartition, share: float) -> None:
        """An unclean leader election, of which a broker that knows epochs tells."""
        log = self.brokers.logs[name]
        if not self.compares or not log.batches:
            return
        log.cut(max(log.start, int(log.start + share * (log.end - log.start))))
        log.append(1)  # what a leader always has of its epoch, sooner or later
        self.brokers.changed()

    @rule(hold=st.booleans())
    def hold_errands(self, hold: bool) -> None:
        self.brokers.world.holding = hold
        if not hold:
            self.brokers.world.run_errands()

    # The owner.

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 5.0]))
    def poll(self, seconds: float) -> None:
        before = self.brokers.world.now
        try:
            polled = self.tail.poll(seconds)
        except TruncatedError as error:
            self.go_back(error)
        except DataLossError as error:
            self.go_on(error)
        else:
            assert self.brokers.world.now <= before + seconds + 1e-6
            self.take(polled)

    @rule(name=names)
    def pause(self, name: TopicPartition) -> None:
        self.tail.pause([name])
        self.paused.add(name)

    @rule(name=names)
    def resume(self, name: TopicPartition) -> None:
        self.tail.resume([name])
        self.paused.discard(name)

    @rule(name=names, share=st.floats(0, 1))
    def seek_back(self, name: TopicPartition, share: float) -> None:
        position = self.tail.positions[name]
        first = self.brokers.logs[name].start
        if position > first:
            self.seek(name, int(first + share * (position - first)))

    @invariant()
    def positions_are_behind_what_was_handed_out(self) -> None:
        if not hasattr(self, "tail"):
            return
        for name, position in self.tail.positions.items():
            if self.got[name]:
                assert position > self.got[name][-1][0]

    def teardown(self) -> None:
        if not hasattr(self, "tail"):
            return
        self.brokers.down.clear()
        self.hold_errands(False)
        self.tail.resume(NAMES)
        self.paused.clear()
        calm_since = self.brokers.world.now
        for _ in range(3000):
            self.poll(1.0)
            behind = any(self.tail.positions[name] != self.end(name) for name in NAMES)
            if behind or self.tail.trouble:
                calm_since = self.brokers.world.now
            elif self.brokers.world.now - calm_since > 5:
                break
        for name, log in self.brokers.logs.items():
            assert self.tail.positions[name] == self.end(name), (name, self.tail.trouble)
            first = max(log.start, self.sought[name])
            wanted = [each for each in log.visible(committed=self.committed) if each[0] >= first]
            assert [each for each in self.got[name] if each[0] >= first] == wanted
        assert self.tail.trouble == {}
        self.tail.close()
        given_back = len(self.brokers.given_back)
        assert given_back == len(self.brokers.connections)

    def end(self, name: TopicPartition) -> int:
        log = self.brokers.logs[name]
        return log.stable if self.committed else log.high_watermark

    def take(self, polled: Iterable[Polled]) -> None:
        for name, rows in polled:
            assert rows.num_rows
            assert name not in self.paused
            for offset, value in zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True):
                assert not self.got[name] or offset > self.got[name][-1][0]
                self.got[name].append((offset, value))

    def seek(self, name: TopicPartition, offset: int) -> None:
        self.sought[name] = offset
        self.tail.seek(name, offset)
        assert self.tail.positions[name] == self.sought[name] == offset
        self.got[name] = [each for each in self.got[name] if each[0] < offset]

    def go_back(self, error: TruncatedError) -> None:
        assert error.topic is not None
        assert error.partition is not None
        assert error.cut_at is not None
        name = TopicPartition(error.topic, error.partition)
        assert error.offset == self.tail.positions[name]
        log = self.brokers.logs[name]
        self.seek(name, max(min(error.cut_at, self.tail.positions[name]), log.start))

    def go_on(self, error: DataLossError) -> None:
        assert not isinstance(error, TopicRecreatedError)
        assert error.topic is not None
        assert error.partition is not None
        name = TopicPartition(error.topic, error.partition)
        log = self.brokers.logs[name]
        assert error.offset == self.tail.positions[name]
        if error.offset < log.start:
            self.tail.seek(name, log.start)
            return
        assert error.offset > log.end, "nothing was lost"
        self.seek(name, log.start)


def test_whatever_happens_in_whatever_order() -> None:
    run_state_machine_as_test(Interleavings, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))
