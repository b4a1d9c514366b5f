"""The logs on a disk that is a dictionary: what is written when, two queries at once, a crash at each write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_direct.continuous._log_format import Entry, parse_offsets
from pyspark_kafka_direct.continuous._log_state import LogState, Settlement
from pyspark_kafka_direct.continuous._logs import Logs
from pyspark_kafka_direct.continuous.settling import settle_logs
from pyspark_kafka_direct.errors import CheckpointTakenError, OffsetPlanError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
START = {A: 0, B: 0}
CONF = {"spark.sql.shuffle.partitions": "3"}


class DiedError(Exception):
    """The driver has died."""


class Disk:
    """The files of a checkpoint.

    Attributes:
        there: Their texts.
        writes: How many more writes and removals the driver lives to see; ``None``: all.
    """

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.order: list[str] = []
        self.writes: int | None = None

    def place(self, name: str) -> str:
        return f"disk:/{name}"

    def text(self, name: str) -> str | None:
        return self.there.get(name)

    def exists(self, name: str) -> bool:
        return name in self.there or any(each.startswith(f"{name}/") for each in self.there)

    def names(self, folder: str) -> list[str]:
        return [each.removeprefix(f"{folder}/") for each in self.there if each.startswith(f"{folder}/")]

    def make_folder(self, name: str) -> None:
        """Folders are in the names."""

    def create(self, name: str, text: str) -> bool:
        if name in self.there:
            return False
        self._live(f"+{name}")
        self.there[name] = text
        return True

    def delete(self, name: str) -> None:
        self._live(f"-{name}")
        self.there.pop(name, None)

    def _live(self, change: str) -> None:
        if self.writes is not None:
            if self.writes == 0:
                raise DiedError
            self.writes -= 1
        self.order.append(change)


def logs_on(disk: Disk, retain: int = 100) -> Logs:
    return Logs(disk, lambda: CONF, retain)


def ends(disk: Disk, epoch: int) -> Mapping[TopicPartition, int]:
    return parse_offsets(disk.there[f"offsets/{epoch}"], "here").offsets


def spark_goes_on(disk: Disk) -> Mapping[TopicPartition, int]:
    """Where a micro-batch query begins its next batch, by ``MicroBatchExecution.populateStartOffsets``."""
    newest = max(int(name) for name in disk.names("offsets"))
    committed = max((int(name) for name in disk.names("commits")), default=-1)
    return ends(disk, newest if newest == committed else newest - 1)


def test_a_query_from_its_start() -> None:
    disk = Disk()
    logs = logs_on(disk)
    assert logs.settle(None, at_ms=1) == Settlement(None, 0)
    logs.start(START, at_ms=2)
    logs.commit(1, {A: 3, B: 4}, at_ms=3)
    assert disk.order == ["+offsets/0", "+commits/0", "+offsets/1", "+commits/1"]
    assert logs.entry(0) == Entry(START, 2, 0, CONF, is_start=True)
    assert logs.entry(1) == Entry({A: 3, B: 4}, 3, 0, CONF)
    assert logs.state() == LogState(1, ())
    assert logs_on(disk).settle(None, at_ms=4) == Settlement({A: 3, B: 4}, 2)


def test_the_id_is_written_once() -> None:
    disk = Disk()
    assert logs_on(disk).query_id("one") == "one"
    assert logs_on(disk).query_id("two") == "one"
    assert disk.there["metadata"] == '{"id":"one"}'


def test_the_id_of_who_was_first() -> None:
    """Another query writes between the look and the write."""

    class Race(Disk):
        def create(self, name: str, text: str) -> bool:
            self.there.setdefault(name, '{"id":"first"}')
            return super().create(name, text)

    assert logs_on(Race()).query_id("second") == "first"


def test_a_query_keeps_the_settings_and_the_watermark_of_the_one_before_it() -> None:
    disk = Disk()
    disk.there = {
        "offsets/4": 'v1\n{"batchWatermarkMs":50,"batchTimestampMs":1,"conf":{"x":"y"}}\n{"t": {"0": 5}}',
        "commits/4": 'v1\n{"nextBatchWatermarkMs":60}',
    }
    logs = logs_on(disk)
    assert logs.settle(None, at_ms=1) == Settlement({A: 5}, 5)
    logs.commit(5, {A: 6}, at_ms=2)
    assert logs.entry(5) == Entry({A: 6}, 2, 60, {"x": "y"})
    assert json.loads(disk.there["commits/5"].split("\n")[1]) == {"nextBatchWatermarkMs": 60}


@pytest.mark.parametrize("there", ["offsets/1", "commits/1"])
def test_a_second_query_on_one_checkpoint_ends(there: str) -> None:
    disk = Disk()
    first = logs_on(disk)
    first.settle(None, at_ms=1)
    first.start(START, at_ms=1)
    disk.there[there] = "another's"
    with pytest.raises(
        CheckpointTakenError, match=f"disk:/{there} is there already: another query writes to the same checkpoint"
    ):
        first.commit(1, START, at_ms=2)
    assert disk.there[there] == "another's"


def test_who_slept_while_another_went_on_writes_nothing() -> None:
    disk = Disk()
    sleeper = Logs(disk, lambda: CONF, retain=2)
    sleeper.settle(None, at_ms=1)
    sleeper.start(START, at_ms=1)
    sleeper.commit(1, {A: 1, B: 1}, at_ms=2)
    other = Logs(disk, lambda: CONF, retain=2)
    for epoch in range(other.settle(None, at_ms=3).next_epoch, 10):
        other.commit(epoch, {A: epoch, B: epoch}, at_ms=epoch)
        other.purge(epoch)
    there = dict(disk.there)
    with pytest.raises(CheckpointTakenError, match="commits/1 is gone"):
        sleeper.commit(2, {A: 2, B: 2}, at_ms=99)
    assert disk.there == there


def test_an_epoch_that_its_driver_commits_while_it_is_settled() -> None:
    disk = Disk()
    first, second = logs_on(disk), logs_on(disk)
    first.settle(None, at_ms=1)
    first.start(START, at_ms=1)
    first._write_offsets(1, {A: 1, B: 1}, 2)
    state = second.state()
    assert state.unfinished == (1,)
    first._write_commit(1)
    assert second.settle({A: 1, B: 1}, at_ms=3, state=state) == Settlement({A: 1, B: 1}, 2, commit=1)
    second.commit(2, {A: 2, B: 2}, at_ms=4)


def test_state_is_refused() -> None:
    disk = Disk()
    disk.there["state/0/0/1.delta"] = ""
    with pytest.raises(OptionError, match="disk:/state shows that the query of this checkpoint keeps state"):
        logs_on(disk)


def test_an_entry_that_went_away() -> None:
    with pytest.raises(OffsetPlanError, match="There is no disk:/offsets/3 any more"):
        logs_on(Disk()).entry(3)


def test_old_epochs_are_removed_and_others_are_not_asked_for() -> None:
    disk = Disk()
    logs = logs_on(disk, retain=2)
    logs.settle(None, at_ms=1)
    logs.start(START, at_ms=1)
    for epoch in range(1, 5):
        logs.commit(epoch, START, at_ms=epoch)
        logs.purge(epoch)
    assert [each for each in disk.order if each[0] == "-"] == ["-offsets/0", "-commits/0", "-offsets/1", "-commits/1"]
    assert sorted(disk.there) == ["commits/2", "commits/3", "commits/4", "offsets/2", "offsets/3", "offsets/4"]
    again = logs_on(disk, retain=1)
    again.settle(None, at_ms=9)
    again.purge(4)
    assert sorted(disk.names("offsets")) == sorted(disk.names("commits")) == ["3", "4"]


class Cluster:
    """What transactions have committed: of each task its epoch and its offset."""

    def __init__(self) -> None:
        self.group: dict[TopicPartition, tuple[int, int]] = {}

    def reached(self, state: LogState) -> dict[TopicPartition, int]:
        return {tp: at for tp, (epoch, at) in self.group.items() if epoch >= state.next_epoch}

    def published(self) -> dict[TopicPartition, int]:
        """Where the next record to be published is."""
        return {**START, **{tp: at for tp, (_, at) in self.group.items()}}


def run_exactly_once(disk: Disk, cluster: Cluster, epochs: int, dies_within: int | None, lag: int) -> None:
    """One life of a driver; each task has published exactly what its transaction says.

    Args:
        disk: The checkpoint.
        cluster: Has the truth.
        epochs: How many.
        dies_within: In the last epoch only so many tasks get to their end, and the driver dies.
        lag: By so many epochs the logs are behind, until the query is stopped.
    """
    logs = logs_on(disk, retain=2)
    state = logs.state()
    settlement = logs.settle(cluster.reached(state), at_ms=1, state=state)
    if settlement.begin is None:
        logs.start(START, at_ms=1)
        begin, first = dict(START), 1
    else:
        assert settlement.begin == cluster.published(), "records would be lost, or published again"
        assert spark_goes_on(disk) == settlement.begin, "a micro-batch query would begin elsewhere"
        begin, first = dict(settlement.begin), settlement.next_epoch
    waiting: list[tuple[int, dict[TopicPartition, int]]] = []
    for epoch in range(first, first + epochs):
        for count, tp in enumerate(begin):
            if epoch == first + epochs - 1 and count == dies_within:
                raise DiedError
            begin[tp] += 1
            cluster.group[tp] = epoch, begin[tp]
        waiting.append((epoch, dict(begin)))
        while len(waiting) > (0 if epoch == first + epochs - 1 else lag):
            number, ends = waiting.pop(0)
            logs.commit(number, ends, at_ms=number)
            logs.purge(number)


class StillWriting(Cluster):
    """Its driver writes down epochs that it has published, whenever another one has just looked at the logs."""

    def __init__(self, logs: Logs, epochs: int) -> None:
        super().__init__()
        self._logs = logs
        self._late = iter(range(1, epochs + 1))
        self.group = {A: (epochs, epochs), B: (epochs, epochs)}

    def reached(self, state: LogState) -> dict[TopicPartition, int]:
        reached = super().reached(state)
        for epoch in self._late:
            self._logs.commit(epoch, {A: epoch, B: epoch}, at_ms=2)
            break
        return reached


@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_epochs_that_are_written_down_while_they_are_settled(epochs: int) -> None:
    disk = Disk()
    driver = logs_on(disk)
    driver.settle(None, at_ms=1)
    driver.start(START, at_ms=1)
    delivery: Any = StillWriting(driver, epochs)
    assert settle_logs(logs_on(disk), delivery, at_ms=3) == {A: epochs, B: epochs} == spark_goes_on(disk)
    assert ends(disk, epochs) == {A: epochs, B: epochs}
    assert sorted(disk.names("offsets")) == sorted(disk.names("commits"))


def test_epochs_that_go_on_coming_are_another_querys() -> None:
    disk = Disk()
    driver = logs_on(disk)
    driver.settle(None, at_ms=1)
    driver.start(START, at_ms=1)
    delivery: Any = StillWriting(driver, 100)
    with pytest.raises(CheckpointTakenError, match="another query writes to the same checkpoint"):
        settle_logs(logs_on(disk), delivery, at_ms=3)


LIVES = st.lists(
    st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 1)), st.one_of(st.none(), st.integers(0, 12))),
    max_size=6,
)


@settings(max_examples=300, deadline=None)
@given(LIVES, st.integers(0, 2))
def test_exactly_once_whatever_dies_and_when(lives: list[tuple[int, int | None, int | None]], lag: int) -> None:
    disk, cluster = Disk(), Cluster()
    for epochs, dies_within, writes in [*lives, (1, None, None), (0, None, None)]:
        disk.writes = writes
        try:
            run_exactly_once(disk, cluster, epochs, dies_within, lag)
        except DiedError:
            continue


@settings(max_examples=300, deadline=None)
@given(LIVES)
def test_at_least_once_whatever_dies_and_when(lives: list[tuple[int, int | None, int | None]]) -> None:
    """Nothing is lost, and no epoch that was committed comes again."""
    disk = Disk()
    flushed, committed = 0, 0
    for epochs, _, writes in [*lives, (1, None, None), (0, None, None)]:
        disk.writes = writes
        try:
            logs = logs_on(disk, retain=2)
            settlement = logs.settle(None, at_ms=1)
            if settlement.begin is None:
                logs.start(START, at_ms=1)
                begin, first = 0, 1
            else:
                begin, first = settlement.begin[A], settlement.next_epoch
                assert committed <= begin <= flushed
                assert spark_goes_on(disk)[A] == begin
            for epoch in range(first, first + epochs):
                begin += 1
                flushed = max(flushed, begin)
                logs.commit(epoch, {A: begin, B: begin}, at_ms=epoch)
                committed = begin
                logs.purge(epoch)
        except DiedError:
            continue
    assert disk.names("offsets")
