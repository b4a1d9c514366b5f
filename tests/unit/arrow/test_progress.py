"""The progress bar of a slice, and where it is shown."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from tests.unit.arrow.slice_cluster import SliceCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


Notebook: Any = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})


def shown(cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch, stream: Any, **arguments: Any) -> list[str]:
    """Return the states of the bar during a read with a pause of a second after each batch."""
    monkeypatch.setattr(sys, "stderr", stream)
    for _ in cluster.read(columns=["offset"], **arguments):
        cluster.sleep(1)
    return [] if stream is None else stream.getvalue().split("\r")[1:]


@pytest.fixture(autouse=True)
def records(cluster: SliceCluster) -> None:
    """Offsets 3 to 6 of the first partition have no record."""
    cluster.append(T0, 3)
    cluster.append_gap(T0, 4)
    cluster.append(T0, 3)
    cluster.append(T1, 10)


@pytest.mark.parametrize("stream", [Terminal, Notebook])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_bar_counts_the_planned_offsets(
    cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch, stream: Any, threads: int
) -> None:
    states = shown(cluster, monkeypatch, stream(), threads=threads, progress=True)
    assert states[0].startswith(" 50% [###############               ] 10 of 20 offsets, 1")
    assert states[-1].startswith("100% [##############################] 20 of 20 offsets, ")
    assert states[-1].endswith(" per second\n")
    assert not any("\n" in state for state in states[:-1])


def test_gaps_of_several_ranges_and_batches_count_once(cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.append_each(T0, 4, size=100_000)
    ranges = [OffsetRange(*T0, 0, 5), OffsetRange(*T0, 5, 14), OffsetRange(*T1, 0, 10)]
    small = {"max.partition.fetch.bytes": "110000"}
    states = shown(cluster, monkeypatch, Terminal(), topics=ranges, threads=1, progress=True, params=small)
    counts = [int(state.partition("] ")[2].partition(" of 24 offsets")[0]) for state in states]
    assert counts == sorted(counts)
    assert {count for count in counts if count > 14} == {24}, "the first partition has 14"
    assert {10, 11, 12, 13} & {*counts}
    assert counts[-1] == 24


def test_a_limit_is_the_end_of_the_bar(cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    states = shown(cluster, monkeypatch, Terminal(), limit=4, progress=True)
    assert "] 4 of 4 offsets" in states[-1]


@pytest.mark.parametrize("limit", [1, 2, 11, 19])
def test_no_more_than_the_limit_is_shown(cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    states = shown(cluster, monkeypatch, Terminal(), limit=limit, progress=True, threads=2, order="timestamp")
    counts = [int(state.partition("] ")[2].partition(f" of {limit} offsets")[0]) for state in states]
    assert counts == sorted(counts)
    assert counts[-1] == limit


def test_the_last_state_of_a_read_that_ends_early_is_shown(
    cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    cluster.append_each(T0, 20, size=100_000)
    small = {"max.partition.fetch.bytes": "110000"}
    found = cluster.read(columns=["value"], threads=1, progress=True, params=small)
    for _ in range(12):  # all of them in one moment, so that only the first ones are shown meanwhile
        found.read_next_batch()
    shown_before = stream.getvalue().count("\r")
    found.close()
    last = stream.getvalue().split("\r")[-1]
    assert last.endswith(" per second\n")
    assert shown_before < 12
    assert " of 40 offsets" in last


@pytest.mark.parametrize(
    ("stream", "arguments"),
    [
        (io.StringIO, {"progress": True}),
        (Terminal, {}),
        (Terminal, {"progress": True, "limit": 0}),
        (None, {"progress": True}),
    ],
)
def test_nothing_is_shown_elsewhere(
    cluster: SliceCluster, monkeypatch: pytest.MonkeyPatch, stream: Any, arguments: dict[str, Any]
) -> None:
    assert shown(cluster, monkeypatch, stream and stream(), **arguments) == []
