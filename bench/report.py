"""The results as text: tables for a terminal, and the same tables in Markdown for the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bench.run import CASE_LABELS
from bench.stream_report import stream_tables
from bench.summary import JVM, PEER_LABELS, WRITER_LABELS, Series, find, ratio
from bench.writers import WRITE

if TYPE_CHECKING:
    from bench.results import Results

_NUMBER = re.compile(r"-|[\d.]+(x| ms|-[\d.]+)?")

Row = tuple[str, ...]
Table = Callable[[Row, Sequence[Row]], list[str]]

_CASE_HEADER = (
    "topic",
    "sink",
    "peer",
    "M records/s",
    "MB/s",
    "core-us/record",
    "records/s vs JVM",
    "CPU vs JVM",
    "median s",
    "min-max s",
)


def render(results: Results, *, markdown: bool = False) -> str:
    """Return the whole report."""
    table = markdown_table if markdown else text_table
    lines = [*_heading(results, markdown), ""]
    for series in (results.series, results.writes):
        if series:
            lines += [*table(_CASE_HEADER, case_rows(series)), ""]
    if results.streams:
        lines += [*stream_tables(results.streams, results.planner, table), ""]
    if goal_results := results.goal_results():
        words = {True: "reached", False: "MISSED", None: "-"}
        rows = [(each.name, each.wanted, each.measured, words[each.reached]) for each in goal_results]
        lines += ["Goals, against the JVM connector:", "", *table(("goal", "wanted", "measured", ""), rows), ""]
    if results.latencies:
        rows = [
            (each.action, PEER_LABELS[each.peer], f"{each.median_seconds * 1000:.0f} ms", str(each.trace_lines))
            for each in results.latencies
        ]
        header = ("fixed costs, and first rows of a large topic", "peer", "median", "console lines with errors")
        lines += [*table(header, rows), ""]
    if results.planning is not None:
        lines += [*_planning(results, table), ""]
    if results.memory is not None:
        lines += [
            f"Memory: one task read {results.memory.range_bytes / 1e9:.2f} GB ({results.memory.records:,} records) in "
            f"{results.memory.seconds:.1f} s; the Python worker's resident memory peaked at "
            f"{results.memory.peak_bytes / 1e6:.0f} MB.",
            "",
        ]
    lines += [f"Failed: {each.topic}, {each.sink}, {each.peer}: {each.reason}" for each in results.failures]
    return "\n".join(lines).rstrip() + "\n"


def case_rows(everything: Sequence[Series]) -> list[Row]:
    """Return one row for each series, ratios against the JVM connector on the same case."""
    rows: list[Row] = []
    for series in everything:
        base = find(everything, series.topic, series.sink, JVM)
        compared = ratio(series, base) if base is not None else None
        low, high = series.spread
        rows.append(
            (
                series.topic,
                CASE_LABELS[series.sink],
                (WRITER_LABELS if series.sink == WRITE else PEER_LABELS)[series.peer],
                f"{series.records_per_second / 1e6:.3f}",
                f"{series.megabytes_per_second:.0f}",
                f"{series.core_us_per_record:.2f}",
                f"{compared.speed:.2f}x" if compared else "-",
                f"{compared.cpu:.2f}x" if compared else "-",
                f"{series.seconds:.2f}",
                f"{low:.2f}-{high:.2f}",
            )
        )
    return rows


def text_table(header: Row, rows: Sequence[Row]) -> list[str]:
    """Return a table in columns: words to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    numeric = [_numeric([row[column] for row in rows]) for column in range(len(header))]

    def line(row: Row) -> str:
        cells = zip(row, widths, numeric, strict=True)
        return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()

    return [line(header), "  ".join("-" * width for width in widths), *(line(row) for row in rows)]


def markdown_table(header: Row, rows: Sequence[Row]) -> list[str]:
    """Return the same table in Markdown."""
    numeric = [_numeric([row[column] for row in rows]) for column in range(len(header))]
    rule = ["---:" if right else "---" for right in numeric]
    return ["| " + " | ".join(cells) + " |" for cells in (header, rule, *rows)]


def _heading(results: Results, markdown: bool) -> list[str]:
    machine = results.machine
    versions = machine["versions"]
    break_ = "  " if markdown else ""
    return [
        f"Profile {results.profile}, {results.started}, commit {machine['commit']}, "
        f"{results.minutes:.0f} minutes{break_}",
        f"{machine['cpu']}, {machine['cores']} cores (shared by broker and clients), {machine['memory_gib']} GiB, "
        f"{machine['system']}{break_}",
        f"Spark {versions['pyspark']}, Kafka {versions['kafka broker']}, Java {versions['java']}, Python "
        f"{versions['python']}, PyArrow {versions['pyarrow']}, decoder {machine['decoder']}{break_}",
        f"confluent-kafka {versions['confluent-kafka']}, kafka-python {versions['kafka-python']}, JVM connector "
        f"{', '.join(jar.partition(':')[2] for jar in versions['JVM connector'])}{break_}",
        f"Median of {results.rounds} runs each, peers in turn, after one run or more to warm up. MB are 10^6 bytes of "
        "uncompressed values. core-us: processor time of the whole process tree, broker apart.",
    ]


def _planning(results: Results, table: Table) -> list[str]:
    planning = results.planning
    assert planning is not None
    rows = [
        (f"in Spark, from load() to partitions: {PEER_LABELS[peer]}", f"{seconds * 1000:.0f} ms", "")
        for peer, seconds in planning.spark_seconds.items()
    ]
    if planning.warm_seconds is not None and planning.cold_seconds is not None:
        requests = planning.requests or {}
        told = ", ".join(f"{count} {name}" for name, count in requests.items())
        rows.append(("kafka-direct alone, first time in a process", f"{planning.cold_seconds * 1000:.0f} ms", ""))
        rows.append(("kafka-direct alone, connection at hand", f"{planning.warm_seconds * 1000:.0f} ms", told))
    return table((f"planning {planning.partitions} partitions", "median", "requests"), rows)


def _numeric(cells: Sequence[str]) -> bool:
    return all(_NUMBER.fullmatch(cell) for cell in cells)
