"""``kafka-direct lag`` of two groups and queries with two sources, topics and partitions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from tests.unit.cli.simulated_commands import CommandCluster, write_checkpoint

from pyspark_kafka_direct.cli.lag_command import _screen
from pyspark_kafka_direct.cli.lag_measurement import (
    Measurement,
    PartitionLag,
    QueryStatus,
    ReadPartition,
    committed_rates,
)
from pyspark_kafka_direct.cli.live_table import _redraw, _Renderable
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import ConsoleOptions

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


def test_each_measurement_is_shown(cluster: CommandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.commit("a", {T0: 4, T1: 4})
    later = iter([{T0: 9}, {T1: 10}])

    def commit(_: float) -> None:
        offsets = next(later, None)
        if offsets is None:
            raise KeyboardInterrupt
        cluster.commit("a", offsets)

    monkeypatch.setattr(time, "sleep", commit)
    watched = cluster.run("lag", "a", "--watch", "--json")
    assert (watched.code, [row["lag"] for row in watched.rows]) == (130, [6, 7, 1, 7, 1, 1])


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
    short = [line for line, _ in screen.lines(80, 12)]
    assert [line.split()[1] for line in short[4:8]] == ["PARTITION", "u-0", "t-0", "more"]
    drawn = [text.plain for text in _Renderable(screen).__rich_console__(*console_of(80, 15))]
    assert drawn == [line for line, _ in lines]
    _redraw(screen)
    assert len(capsys.readouterr().out.splitlines()) > 10


def console_of(width: int, height: int) -> tuple[Console, ConsoleOptions]:
    console = Console(width=width, height=height)
    return console, console.options.update(height=height)
