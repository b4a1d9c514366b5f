"""``kafka-direct lag`` of two groups and queries with two sources, topics and partitions."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests.unit.cli.simulated_commands import CommandCluster, Pipe, write_checkpoint

from pyspark_kafka_direct.cli import lag_command, lag_measurement
from pyspark_kafka_direct.cli.lag_command import _screen
from pyspark_kafka_direct.cli.lag_measurement import (
    Measurement,
    PartitionLag,
    QueryStatus,
    ReadPartition,
    committed_rates,
)
from pyspark_kafka_direct.cli.live_table import _redraw, _Renderable
from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from rich.console import ConsoleOptions

    from pyspark_kafka_direct.cli.live_table import LiveScreen

T0, T1, U0, V0, V1 = (
    TopicPartition(topic, number) for topic, number in (("t", 0), ("t", 1), ("u", 0), ("v", 0), ("v", 1))
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandCluster]:
    """A cluster with ten records in each partition, and an open transaction behind them in all but ``t-0``."""
    with CommandCluster(monkeypatch, capsys) as cluster:
        for tp in (T0, T1, U0):
            cluster.append(tp, 10)
        for tp in (T1, U0):
            cluster.append(tp, 1, producer_id=7)
        yield cluster


def test_groups_and_queries_with_two_sources(cluster: CommandCluster, tmp_path: Path) -> None:
    cluster.commit("a", {T0: 4, T1: 5, U0: 6})
    cluster.commit("b", {T1: 10, U0: 0})
    one = write_checkpoint(tmp_path / "one", [[{"u": {"0": 3}}, {"t": {"0": 1, "1": 2}}]], committed=1)
    two = write_checkpoint(tmp_path / "two", [[{"u": {"0": 10}}]], committed=1)
    found = cluster.run("lag", "a", "b", "--checkpoint", one, "--checkpoint", two, "--json")
    assert (found.code, found.errors) == (0, "")
    assert [
        (row.get("group", row.get("query_id")), row["partition"], row["lag"], row["stable_lag"]) for row in found.rows
    ] == [
        ("a", "t-0", 6, 6),
        ("a", "t-1", 6, 5),
        ("a", "u-0", 5, 4),
        ("b", "t-1", 1, 0),
        ("b", "u-0", 11, 10),
        ("one", "u-0", 8, 7),
        ("one", "t-0", 9, 9),
        ("one", "t-1", 9, 8),
        ("two", "u-0", 1, 0),
    ]
    queries, table = cluster.run("lag", "--checkpoint", two, "--checkpoint", one).text.split("\n\n")
    assert [line.split()[1] for line in queries.splitlines()] == ["QUERY", "two", "one"]
    assert table.splitlines()[0].split()[:3] == ["CHECKPOINT", "SOURCE", "PARTITION"]
    header = cluster.run("lag", "a", "--checkpoint", two).text.split("\n\n")[1].splitlines()[0]
    assert header.split()[:4] == ["GROUP", "OR", "CHECKPOINT", "PARTITION"]


def test_problems_of_each_group_and_query(cluster: CommandCluster, tmp_path: Path) -> None:
    cluster.commit("a", {T0: 4})
    ends = {"t": {"0": 12, "1": 13}, "deleted": {"0": 1, "1": 1}}
    query = write_checkpoint(tmp_path / "q", [[{"u": {"0": 1}}, ends]], committed=1)
    other = [write_checkpoint(tmp_path / name, [[{"logOffset": 1}]], committed=1) for name in ("x", "y")]
    checkpoints = [part for each in (query, *other) for part in ("--checkpoint", each)]
    found = cluster.run("lag", "a", "no", "none", *checkpoints)
    assert found.code == 1
    errors = found.errors
    assert "no, none: no committed offsets; check the id" in errors
    assert all(f"{each}: no source of batch 0 is a Kafka source" in errors for each in other)
    assert "behind the end of the log: t-0 at 12, t-1 at 13." in errors
    assert "No longer in the cluster: deleted-0, deleted-1. The topics were deleted, or the checkpoint" in errors


def test_the_last_committed_of_several_batches_counts(cluster: CommandCluster, tmp_path: Path) -> None:
    batches: list[list[Mapping[str, object] | None]] = [
        [{"u": {"0": 1}}, {"t": {"0": 2}}, None],
        [{"u": {"0": 3}}, {"t": {"0": 4}}, None],
        [{"u": {"0": 5}}, {"t": {"0": 6, "1": 7}}, {"t": {"0": 8, "1": 9}}],
        [{"u": {"0": 7}}, {"t": {"0": 7, "1": 8}}, {"t": {"0": 9, "1": 9}}],
    ]
    now_ms = int(time.time() * 1000)
    times_ms = [now_ms - 3_600_000 * hours for hours in (4, 3, 2, 1)]
    starts = {number: {"t": {"0": 1, "1": 0}} for number in (1, 2)}
    paths = [
        write_checkpoint(tmp_path / f"{count}", batches[:planned], count, times_ms=times_ms, starts=starts)
        for planned, count in ((3, 2), (4, 4))
    ]
    found = cluster.run("lag", "--checkpoint", paths[0], "--checkpoint", paths[1], "--json")
    shown = ("query_id", "batch", "state", "source", "partition", "offset", "lag")
    assert [tuple(row[name] for name in shown) for row in found.rows] == [
        ("2", 2, "in flight", "0", "u-0", 3, 8),
        ("2", 2, "in flight", "1", "t-0", 4, 6),
        ("2", 2, "in flight", "1", "t-1", None, None),
        ("2", 2, "in flight", "2", "t-0", 1, 9),
        ("2", 2, "in flight", "2", "t-1", 0, 11),
        ("4", 3, "committed", "0", "u-0", 7, 4),
        ("4", 3, "committed", "1", "t-0", 7, 3),
        ("4", 3, "committed", "1", "t-1", 8, 3),
        ("4", 3, "committed", "2", "t-0", 9, 1),
        ("4", 3, "committed", "2", "t-1", 9, 2),
    ]
    assert [row["age_seconds"] // 3600 for row in found.rows] == [2] * 5 + [1] * 5


def at_each_show(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> None:
    """Run one of the actions in each pause of the command, and interrupt it after them."""
    now, remaining = [0.0], iter(actions)

    def sleep(seconds: float) -> None:
        now[0] += seconds
        action = next(remaining, None)
        if action is None:
            raise KeyboardInterrupt
        action()

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(lag_measurement, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))


def test_rates_are_those_since_the_show_before(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    batches = [[{"t": {"0": 1, "1": 1}}], [{"t": {"0": 5, "1": 3}}], [{"t": {"0": 5, "1": 9}}]]
    query = write_checkpoint(tmp_path / "q", batches, committed=1)

    def progress(offsets: Mapping[TopicPartition, int], committed: int) -> Callable[[], object]:
        def commit() -> None:
            cluster.commit("a", offsets)
            write_checkpoint(tmp_path / "q", batches, committed)

        return commit

    cluster.commit("a", {T0: 4, T1: 4, U0: 4})
    cluster.commit("b", {U0: 1})
    at_each_show(monkeypatch, progress({T0: 8}, 2), progress({T1: 10}, 3), progress({T0: 10, U0: 10}, 3))
    watched = cluster.run("lag", "a", "b", "--checkpoint", query, "--watch", "--json")
    assert watched.code == 130
    assert [[row["rate"] for row in watched.rows[first : first + 6]] for first in range(0, 24, 6)] == [
        [None] * 6,
        [2, 0, 0, 0, 2, 1],
        [0, 3, 0, 0, 0, 3],
        [1, 0, 3, 0, 0, 0],
    ]
    assert [row["lag"] for row in watched.rows[::6]] == [6, 2, 2, 0]


@pytest.mark.parametrize("seed", range(3))
def test_each_show_of_several_groups_is_that_of_a_model(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Offsets may be 0, go back, or stay; a lag that was the greatest is forgotten after two shows."""
    screens: list[LiveScreen] = []

    @contextmanager
    def live_screen() -> Iterator[Callable[[LiveScreen], None]]:
        yield screens.append

    random = Random(seed)
    groups = ("a", "b") if seed % 2 else ("b", "a")
    interval = random.choice([0.5, 4.0])
    partitions = [(group, tp) for group in groups for tp in (T0, T1, U0)]
    offsets: list[dict[tuple[str, TopicPartition], int]] = []
    ends: list[dict[TopicPartition, int]] = []

    def progress() -> None:
        """Commit other offsets, and append records behind the open transactions."""
        for tp in random.choices((T0, T1, U0), k=2):
            cluster.append(tp, random.randrange(9))
        earlier = offsets[-1] if offsets else {}
        now = {
            each: earlier[each]
            if earlier and random.random() < 0.5
            else random.choice([0, 10, 11, random.randrange(12)])
            for each in partitions
        }
        for group in groups:
            cluster.commit(group, {tp: now[group, tp] for tp in (T0, T1, U0)})
        offsets.append(now)
        ends.append({tp: cluster.log(tp).end for tp in (T0, T1, U0)})

    monkeypatch.setattr(lag_command, "live_screen", live_screen)
    monkeypatch.setattr(lag_command, "_SHOWS_OF_PEAK", 2)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    progress()
    at_each_show(monkeypatch, *[progress] * 8)
    assert cluster.run("lag", *groups, "--watch", "--interval", str(interval)).code == 130
    lags = [{each: end[each[1]] - at[each] for each in partitions} for at, end in zip(offsets, ends, strict=True)]
    for number, screen in enumerate(screens):
        table, at = screen.tables[-1], offsets[number]
        before = lags[max(number - 2, 0) : number]
        for index, (each, row) in enumerate(zip(partitions, table.rows, strict=True)):
            assert (row["group"], row["partition"]) == (each[0], str(each[1]))
            assert (row["offset"], row["end"], row["lag"]) == (at[each], ends[number][each[1]], lags[number][each])
            stable_end = ends[number][T0] if each[1] == T0 else 10
            assert row["stable_lag"] == max(stable_end - at[each], 0)
            rate = round((at[each] - offsets[number - 1][each]) / interval) if number else None
            assert row["rate"] == rate
            is_red = bool(before) and lags[number][each] > max(lag[each] for lag in before)
            assert (index in table.highlighted) == is_red, (number, each)
        shown = [lags[number][partitions[index]] for index in table.worst_first]
        assert shown == sorted(shown, reverse=True)


@pytest.mark.parametrize(("more", "is_terminal"), [((), False), (("--json",), False), (("--json",), True)])
def test_each_show_is_flushed_before_the_pause(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], is_terminal: bool
) -> None:
    """A program that reads the output would otherwise get it late; JSON is lines also in a terminal."""
    pipe = Pipe(is_terminal=is_terminal)
    found: list[str] = []
    cluster.commit("a", {T0: 4, U0: 0})
    at_each_show(monkeypatch, *[lambda: found.append(pipe.read())] * 3)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", pipe.stream)
        code = main(["lag", "a", "--watch", *more, "-b", cluster.servers])
    lines = [each.splitlines() for each in found]
    assert (code, len(lines)) == (130, 3)
    for shown in lines:
        titles, rows = ([], shown) if more else (shown[:1], shown[1:])
        assert len(titles) == (0 if more else 1)
        names = [json.loads(row)["partition"] if more else row.split()[1] for row in rows]
        assert names == ["t-0", "u-0"]


def test_ages_of_batches(cluster: CommandCluster, tmp_path: Path) -> None:
    """The clock of the driver may be ahead of this one."""
    now_ms = int(time.time() * 1000)
    paths = [
        write_checkpoint(tmp_path / str(number), [[{"t": {"0": 10}}]], committed=1, times_ms=times_ms)
        for number, times_ms in enumerate(((now_ms + 3_600_000,), (now_ms - 7_200_000,), ()))
    ]
    checkpoints = [part for path in paths for part in ("--checkpoint", path)]
    rows = cluster.run("lag", *checkpoints, "--json").rows
    assert [None if row["age_seconds"] is None else row["age_seconds"] // 3600 for row in rows] == [0, 2, None]
    assert (rows[0]["age_seconds"], rows[0]["lag"]) == (0, 0)
    found = cluster.run("lag", *checkpoints)
    assert (found.code, found.errors) == (0, "")  # the queries are at the end of the log, and not behind it
    ages = [line.split("  ")[-1].strip() for line in found.text.splitlines()[1:4]]
    assert (ages[0], ages[1][:2], ages[2]) == ("0 s", "72", "-")


def test_offsets_of_an_open_transaction_do_not_delay_the_lag(cluster: CommandCluster) -> None:
    cluster.commit("a", {T0: 4})
    cluster.commit("b", {T0: 5})
    client = cluster.client()
    coordinator = TransactionCoordinatorClient(client, "one")
    producer = coordinator.init_transactions(60_000).producer
    coordinator.add_offsets(producer, "a")
    offsets = {T0: CommittedOffset(9, "")}
    ConsumerGroup(client, "a").commit_in_transaction("one", producer, offsets, transaction_v2=False)
    found = cluster.run("lag", "a", "b", "--json")
    assert (found.code, [row["offset"] for row in found.rows]) == (0, [4, 5])


def test_deleted_topics_and_partitions_of_groups_and_queries(cluster: CommandCluster, tmp_path: Path) -> None:
    """A topic may have fewer partitions than before, because it was recreated, and the offsets still exist."""
    cluster.cluster.create_topic("v", 4)
    cluster.cluster.create_topic("x", 1)
    cluster.sleep(60)  # until the broker knows them
    v2, v3, x0 = (TopicPartition(topic, number) for topic, number in (("v", 2), ("v", 3), ("x", 0)))
    cluster.commit("a", {T0: 0, V0: 0, v2: 0})
    cluster.commit("b", {x0: 1, v3: 1, U0: 1})

    def recreated(_: int, values: dict[str, Any]) -> dict[str, Any]:
        topics = [
            {**topic, "error_code": 3, "partitions": []}
            if topic["name"] == "x"
            else {**topic, "partitions": [each for each in topic["partitions"] if each["partition_index"] < 2]}
            for topic in values["topics"]
        ]
        return {**values, "topics": topics}

    cluster.change("Metadata", recreated)
    query = write_checkpoint(tmp_path, [[{"t": {"0": 1, "7": 1}, "v": {"1": 0, "3": 1}, "w": {"0": 0}}]], committed=1)
    found = cluster.run("lag", "a", "b", query, "--checkpoint", query, "--json")
    assert found.code == 1
    lags = {(row.get("group", "query"), row["partition"]): row["lag"] for row in found.rows}
    missing = [each for each, lag in lags.items() if lag is None]
    assert (lags["a", "t-0"], lags["b", "u-0"], lags["query", "v-1"]) == (10, 10, 0)
    assert missing == [("a", "v-2"), ("b", "v-3"), ("b", "x-0"), ("query", "t-7"), ("query", "v-3"), ("query", "w-0")]
    unknown, in_query, in_groups = found.errors.splitlines()
    assert unknown.startswith(f"{query}: no committed offsets; check the id")  # the id of a group is not a path
    assert in_query.startswith("No longer in the cluster: t-7, v-3, w-0. The topics were deleted, or the checkpoint is")
    assert in_groups.startswith(
        "No longer in the cluster: v-2, v-3, x-0. The topics were deleted, but the groups still"
    )


def test_a_group_with_an_empty_id(cluster: CommandCluster, tmp_path: Path) -> None:
    cluster.commit("", {T0: 3})
    query = write_checkpoint(tmp_path, [[{"t": {"0": 9}}]], committed=1)
    for more, count in (((), 1), (("--checkpoint", query), 2)):
        found = cluster.run("lag", "", *more)
        lines = found.text.splitlines()[-count:]
        assert (found.code, [line.split()[-5:-2] for line in lines]) == (
            0,
            [["t-0", "3", "10"], ["t-0", "9", "10"]][:count],
        )


def test_a_lag_is_highlighted_if_it_is_greater_than_in_all_shows_before(
    cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    screens: list[LiveScreen] = []

    @contextmanager
    def live_screen() -> Iterator[Callable[[LiveScreen], None]]:
        yield screens.append

    def append(tp: TopicPartition, count: int, offsets: Mapping[TopicPartition, int]) -> Callable[[], object]:
        def change() -> None:
            cluster.append(tp, count)
            cluster.commit("a", offsets)

        return change

    monkeypatch.setattr(lag_command, "live_screen", live_screen)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cluster.commit("a", {T0: 4, T1: 4, U0: 4})  # these are 6, 7 and 7 behind
    at_each_show(
        monkeypatch, append(T1, 3, {}), append(T0, 1, {T1: 14}), append(T1, 4, {}), append(U0, 1, {T1: 10, T0: 9})
    )
    assert cluster.run("lag", "a", "--watch").code == 130
    tables = [screen.tables[-1] for screen in screens]
    assert [[row["lag"] for row in table.rows] for table in tables] == [
        [6, 7, 7],
        [6, 10, 7],
        [7, 0, 7],
        [7, 4, 7],
        [2, 8, 8],
    ]
    assert [sorted(table.highlighted) for table in tables] == [[], [1], [0], [], [2]]
    assert [table.worst_first[0] for table in tables] == [1, 1, 0, 0, 1]


def test_rates_and_the_screen_of_each_partition(capsys: pytest.CaptureFixture[str]) -> None:
    readers = [ReadPartition("g", None, tp) for tp in (T0, T1, U0)]
    deleted = {ReadPartition("g", None, tp): PartitionLag(1, None, None) for tp in (V0, V1)}

    def at(time: float, *offsets: int) -> Measurement:
        lags = {each: PartitionLag(offset, 10, 10) for each, offset in zip(readers, offsets, strict=True)}
        return Measurement(time, lags | deleted, {name: QueryStatus(name, 3, True, 5) for name in ("p", "q")})

    measured = at(2, 4, 6, 1)
    assert [*committed_rates(measured, at(0, 2, 2, 1)).values()] == [1, 2, 0, 0, 0]
    peaks = [dict.fromkeys(readers, 3), {readers[0]: 7, readers[1]: 0, readers[2]: 8}]
    screen = _screen(measured, ["g", "h", "i"], {}, peaks)
    assert screen.tables[-1].highlighted == {1, 2}
    assert screen.tables[-1].worst_first[:3] == [2, 0, 1]
    assert [note.split(":")[0] for note in screen.notes] == ["h, i", "p", "q", "No longer in the cluster"]
    assert "v-0, v-1. The topics were deleted, but the groups" in screen.notes[-1]
    lines = screen.lines(80, 15)
    shown = ["CHECKPOINT", "p", "q", "GROUP", *["g"] * 5, "h,", "p:", "q:", "No"]
    assert [line.split()[0] for line, _ in lines if line] == shown
    assert [line.split()[1] for line, is_red in lines if is_red] == ["t-1", "u-0"]
    short = screen.lines(80, 12)
    assert [line.split()[1] for line, _ in short[4:8]] == ["PARTITION", "u-0", "t-0", "more"]
    assert [line.split()[1] for line, is_red in short if is_red] == ["u-0"]
    for height, expected in ((15, lines), (12, short)):
        drawn = _Renderable(screen).__rich_console__(*console_of(80, height))
        assert [(text.plain, text.style == "red") for text in drawn] == expected
    _redraw(screen)
    assert len(capsys.readouterr().out.splitlines()) > 10


def console_of(width: int, height: int) -> tuple[Console, ConsoleOptions]:
    console = Console(width=width, height=height)
    return console, console.options.update(height=height)
