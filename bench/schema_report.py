"""The tables of ``bench.schemas``, and its goals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.schema_decoders import (
    AVRO_ALL,
    AVRO_FEW,
    HOSTILE_US,
    NO_DATUM,
    ONE_PERCENT,
    ONE_WRITER,
    PROTOBUF_ALL,
    TWO_WRITERS,
)
from bench.summary import JVM, OURS
from bench.typed import Goal, against_jvm, decoder_goals, goal_table, job_goals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.summary import Series
    from bench.typed import GoalRow

GROUPED, ALL_FIELDS, PROTOBUF, WRITTEN, SOME_MALFORMED, ALL_MALFORMED = (
    "Avro, 3 of 14 fields, group by",
    "Avro, 14 fields to noop",
    "Protobuf, 14 fields to noop",
    "structs written as Avro",
    "Avro, 14 fields to noop, 1 % malformed",
    "Avro, 14 fields to noop, all malformed",
)
JOBS = (GROUPED, ALL_FIELDS, PROTOBUF, WRITTEN, SOME_MALFORMED, ALL_MALFORMED)

GOALS = {GROUPED: Goal(4, 0.35), ALL_FIELDS: Goal(2.5, 0.60), WRITTEN: Goal(2)}
DECODER_GOALS = {AVRO_ALL: 14e6, AVRO_FEW: 20e6, PROTOBUF_ALL: 6e6, NO_DATUM: 5e6}
RATIO_GOALS = ((TWO_WRITERS, ONE_WRITER, 0.9), (ONE_PERCENT, AVRO_ALL, 0.9))
MAX_HOSTILE_US = 50


def render(series: Sequence[Series], decoders: dict[str, float]) -> str:
    """The tables, as Markdown."""
    first = series[0]
    lines = [
        f"Flights with 14 fields, Confluent's header, lz4, 2 cores, {len(first.samples)} runs each",
        "",
        "| job | connector | records | bytes | M records/s | core-us/record | speed | CPU |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in series:
        ratios = "| | |"
        if each.peer == OURS and _has_jvm(series, each.sink):
            compared = against_jvm(series, each.sink)
            ratios = f"| {compared.speed:.2f}x | {compared.cpu:.2f}x |"
        rate = each.records_per_second / 1e6
        lines.append(
            f"| {each.sink} | {each.peer} | {each.records:,} | {each.value_bytes} | {rate:.2f} "
            f"| {each.core_us_per_record:.2f} {ratios}"
        )
    lines += ["", "| decoder alone, one core | M records/s |", "|---|---|"]
    lines += [f"| {case} | {rate / 1e6:.1f} |" for case, rate in decoders.items() if case != HOSTILE_US]
    return "\n".join(lines + goal_table(evaluate_goals(series, decoders)))


def evaluate_goals(series: Sequence[Series], decoders: dict[str, float]) -> list[GoalRow]:
    """Compare with the goals; reported, never asserted."""
    found = job_goals(series, GOALS) + decoder_goals(decoders, DECODER_GOALS)
    for case, base, least in RATIO_GOALS:
        share = decoders[case] / decoders[base]
        found.append((case, f">= {least:g}x of {base}", f"{share:.2f}x", share >= least))
    microseconds = decoders[HOSTILE_US]
    found.append((HOSTILE_US, f"< {MAX_HOSTILE_US} us", f"{microseconds:.1f} us", microseconds < MAX_HOSTILE_US))
    return found


def _has_jvm(series: Sequence[Series], job: str) -> bool:
    return any(each.sink == job and each.peer == JVM for each in series)
