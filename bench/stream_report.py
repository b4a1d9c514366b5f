"""Streaming queries in the report."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.stream_summary import (
    CATCH_UP,
    LATEST_OFFSET,
    QUERY_PLANNING,
    SPEEDS,
    TRIGGER,
    WRITTEN,
    PlannerAlone,
    StreamSeries,
    find_stream,
    percentile,
)
from bench.summary import JVM, PEER_LABELS, WRITER_LABELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Row = tuple[str, ...]

_SPEED_HEADER = ("streams", "peer", "M records/s", "core-us/record", "vs JVM", "median s of a run")
_BATCH_HEADER = ("streams", "peer", "what Spark's progress says", "median", "p99", "batches", "vs JVM")
_ALONE_HEADER = ("the planner of a stream, without Spark", "median", "p99")


def stream_tables(
    everything: Sequence[StreamSeries],
    planner: PlannerAlone | None,
    table: Callable[[Row, Sequence[Row]], list[str]],
) -> list[str]:
    """The tables of the streaming queries."""
    speeds, batches = [], []
    for series in everything:
        base = find_stream(everything, series.case.kind, JVM)
        if series.case.kind in SPEEDS:
            speeds.append(_speed_row(series, base))
        else:
            batches += _batch_rows(series, base)
    lines: list[str] = []
    for header, rows in ((_SPEED_HEADER, speeds), (_BATCH_HEADER, batches), (_ALONE_HEADER, _alone_rows(planner))):
        if rows:
            lines += [*table(header, rows), ""]
    return lines[:-1]


def _speed_row(series: StreamSeries, base: StreamSeries | None) -> Row:
    label, peer, speed = series.case.label, _peer(series), series.records_per_second
    # Only there the cost of the run is that of the counted batches alone.
    cpu = "-"
    if series.case.kind == CATCH_UP:
        records = series.case.topic.end_offset * series.case.topic.partitions
        cpu = f"{median(run.cost.cpu_seconds for run in series.runs) / records * 1e6:.2f}"
    compared = f"{speed / base.records_per_second:.2f}x" if base is not None else "-"
    seconds = f"{median(run.cost.seconds for run in series.runs):.2f}"
    return label, peer, f"{speed / 1e6:.3f}", cpu, compared, seconds


def _batch_rows(series: StreamSeries, base: StreamSeries | None) -> list[Row]:
    rows: list[Row] = []
    for what in (TRIGGER,) if series.case.kind in WRITTEN else (TRIGGER, LATEST_OFFSET, QUERY_PLANNING):
        took = series.milliseconds(what)
        typical, slowest = f"{median(took):.0f} ms", f"{percentile(took, 0.99):.0f} ms"
        theirs = median(base.milliseconds(what)) if base is not None else 0
        compared = f"{median(took) / theirs:.2f}x" if theirs else "-"
        rows.append((series.case.label, _peer(series), what, typical, slowest, str(len(took)), compared))
    return rows


def _peer(series: StreamSeries) -> str:
    return (WRITER_LABELS if series.case.kind in WRITTEN else PEER_LABELS)[series.peer]


def _alone_rows(planner: PlannerAlone | None) -> list[Row]:
    if planner is None:
        return []
    calls = (("latestOffset", planner.latest_offset), ("partitions", planner.plan))
    return [
        (
            f"{planner.partitions} partitions: {name}",
            f"{median(seconds) * 1000:.1f} ms",
            f"{percentile(seconds, 0.99) * 1000:.1f} ms",
        )
        for name, seconds in calls
    ]
