"""Which reports of a data loss belong together, and whether their offsets are those of batches and logs."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.errors import ViolationError
from tests.simulation.scenarios.micro_batch_limits import sizes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.oracle import Oracle
    from tests.simulation.scenarios.micro_batch_recreations import Report, Run
    from tests.simulation.scenarios.record_truth import RecordTruth
    from tests.simulation.scenarios.spark_stand_in import LoggedEnd

    Offsets = Mapping[tuple[str, int], int]

_AGED_OUT: Final = re.compile(r"data loss \(aged out\): offsets \[(\d+), (\d+)\) of (\S+) were removed by retention")
_RECREATED: Final = re.compile(r"the topic was deleted and recreated, .* unread records of (.*) are lost")
OFFSET_CHANGED: Final = re.compile(r"data loss: (\S+)'s offset was changed from (\d+) to (\d+)")
_BY_PLANNER: Final = "before they were read; they are skipped"


class _Recreation(NamedTuple):
    """How a run has reported that a topic was recreated."""

    name: str
    text: str


def check_repeated_reports(truth: RecordTruth, reports: Sequence[Report]) -> None:
    """Check that no task reports the loss of offsets that the planner of its run has reported."""
    planned: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for report in reports:
        found = _AGED_OUT.search(report.text)
        if found is None or truth.generations[found[3].rpartition("-")[0]] > 1:
            continue
        span, losses = (int(found[1]), int(found[2])), planned.setdefault((report.run, found[3]), [])
        if _BY_PLANNER in report.text:
            losses.append(span)
        elif any(span[0] < end and first < span[1] for first, end in losses):
            raise ViolationError(f"the planner has reported this loss before: {report.text}")


def check_reports_of_recreations(
    truth: RecordTruth, reports: Sequence[Report], runs: Sequence[Run], *, may_lag: bool
) -> None:
    """Check that the planner of a run reports a topic that was recreated once, in one way for each partition.

    ``may_lag`` says whether brokers may return the old id for longer than a loss is confirmed: then the planner reports
    changed offsets, and later the id.
    """
    found: dict[tuple[int, str], list[_Recreation]] = {}
    for report in reports:
        start = runs[report.run].options.get("startingOffsets", "")
        if "{" in start or start == "committed":
            continue  # the start may lie beyond the end
        if (match := _RECREATED.search(report.text)) is not None:
            for topic in truth.generations:
                if topic in match[1]:
                    found.setdefault((report.run, topic), []).append(_Recreation("its id", report.text))
        elif (match := OFFSET_CHANGED.search(report.text)) is not None:
            topic = match[1].rpartition("-")[0]
            found.setdefault((report.run, topic), []).append(_Recreation(match[1], report.text))
    for (run, topic), recreations in found.items():
        kinds = {event.kind for event in truth.events if event.topic == topic}
        if truth.generations[topic] != 2 or not kinds <= {"deleted", "created", "log start"}:
            continue
        names = [each.name for each in recreations]
        if len(set(names)) < len(names) or ("its id" in names and len(names) > 1 and not may_lag):
            texts = [each.text for each in recreations]
            raise ViolationError(f"run {run} reports more than once that {topic} was recreated: {texts}")


def check_reported_offsets(
    truth: RecordTruth, reports: Sequence[Report], runs: Sequence[Run], offsets: Iterable[Offsets]
) -> None:
    """Check that the offsets in a planner's reports are those of its batches, and bounds of a log.

    Those of runs that start at given or committed offsets may be others, of a batch that was never logged.
    """
    known: dict[str, set[int]] = {}
    for each in offsets:
        for (topic, index), offset in each.items():
            known.setdefault(f"{topic}-{index}", {0}).add(offset)
    for report in reports:
        start = runs[report.run].options.get("startingOffsets", "")
        if "{" in start or start == "committed":
            continue
        if (match := OFFSET_CHANGED.search(report.text)) is not None:
            partition, first, end = str(match[1]), int(match[2]), int(match[3])
            is_bound = end < first and (end in known.get(partition, ()) or end <= _highest_end(truth, partition))
        elif _BY_PLANNER in report.text and (match := _AGED_OUT.search(report.text)) is not None:
            partition, first, end = str(match[3]), int(match[1]), int(match[2])
            topic, _, number = partition.rpartition("-")
            starts = {offset for each in truth.of(topic, int(number)) for _, offset in each.starts}
            is_bound = first < end and (end in starts or end in known.get(partition, ()))
        else:
            continue
        if not is_bound or first not in known.get(partition, {first}):
            raise ViolationError(f"no batch and no log has these offsets: {report.text}")


def check_resumptions(reports: Sequence[Report], logged: Sequence[LoggedEnd], offsets: Sequence[Offsets]) -> None:
    """Check that the next batch of a run that reports a lower end has that end: it must be in the checkpoint soon.

    ``offsets`` are the start of the first batch, and the ends of all.
    """
    for report in reports:
        found = None if report.is_error else OFFSET_CHANGED.search(report.text)
        batch = next(
            (n for n, each in enumerate(logged) if each.run == report.run and each.time >= report.time), len(logged)
        )
        if found is None or batch == len(logged):
            continue
        topic, _, index = str(found[1]).rpartition("-")
        start, end = (each.get((topic, int(index)), 0) for each in offsets[batch : batch + 2])
        if start == int(found[2]) and end > int(found[3]):
            raise ViolationError(f"batch {batch} starts at {start} and ends at {end}, after the report: {report.text}")


def check_latest_offsets(truth: RecordTruth, time: float, start: Offsets, end: Offsets, latest: Offsets) -> None:
    """Check that the progress report's ends lie between the end of the batch and those of the logs."""
    for partition, offset in latest.items():
        last = max((each.max_watermark(time) for each in truth.of(*partition)), default=0)
        if offset > max(last, start.get(partition, 0)):
            raise ViolationError(
                f"the latest offset of {partition} is reported as {offset}, and the log ends at {last}"
            )
    for partition, offset in end.items():
        if start.get(partition, offset) < offset and latest.get(partition, -1) < offset:
            raise ViolationError(f"a batch ends at {offset} of {partition}, and the latest offsets are {latest}")


def count_offsets(start: Offsets, end: Offsets) -> int:
    """Return how many offsets a batch reads of the partitions that it starts with."""
    return sum(max(offset - start[partition], 0) for partition, offset in end.items() if partition in start)


def first_offsets(truth: RecordTruth, start: Offsets, time: float) -> Offsets:
    """Return the first offsets from a start on that existed at a time."""
    return {
        tp: max([offset, *(first for each in truth.of(*tp) for at, first in each.starts if at <= time)])
        for tp, offset in start.items()
    }


def check_limits(
    batch: int,
    counts: Sequence[int],  # without what had expired when the planner was called, and when it returned
    run: Run,
    logged: LoggedEnd,
    previous: LoggedEnd | None,
    read_before: int,  # offsets of the previous batch
    cluster: SimulatedCluster | None = None,  # if no log has lost records
) -> None:
    """Check the size of a batch whose logs lose first records only; rounding may add one for each partition."""
    most, count = counts
    options, slack = run.options, logged.text.count(":")
    limit = int(options.get("maxOffsetsPerTrigger", "0"))
    if limit and run.trigger != "once" and count > limit + slack:
        raise ViolationError(f"batch {batch} has {count} offsets, more than maxOffsetsPerTrigger={limit}")
    sizes = None if cluster is None or "maxBytesPerTrigger" not in options else sizes_of(cluster)
    if sizes is not None and run.trigger != "once":
        most_bytes = int(options["maxBytesPerTrigger"])
        if count > max(most_bytes / sizes.smallest, 1) + slack:
            raise ViolationError(f"batch {batch} has {count} offsets, more than maxBytesPerTrigger={most_bytes}")
    minimum = int(options.get("minOffsetsPerTrigger", "0"))
    if previous is None or previous.run != logged.run or not read_before or run.trigger != "processing time":
        return
    delay = float(options.get("maxTriggerDelay", "0s").removesuffix("s"))
    has_other_limit = not options.keys().isdisjoint(("maxBytesPerTrigger", "backpressure"))
    has_other_limit = has_other_limit or previous.text.count(":") != logged.text.count(":")
    if count > 0 and most < minimum - slack and not has_other_limit and logged.time - previous.asked_at < delay:
        raise ViolationError(f"batch {batch} has {count} offsets, and could wait for {minimum} for {delay} s")


def start_bounds(
    truth: RecordTruth,
    oracle: Oracle,
    partition: tuple[str, int],
    start: str | int,
    isolation: int,
    times: tuple[float, float],
) -> tuple[int, int]:
    """Return the lowest and the highest offset that "earliest", "latest" or a timestamp mean between two times.

    They are those of all generations of the topic.
    """
    asked_at, returned_at = times
    bounds = [(math.inf, 0)]
    for (topic, generation, index), each in truth.partitions.items():
        if (topic, index) != partition:
            continue
        log = oracle.truth(partition, generation)
        end = min(log.end_offset(isolation, at) for at in times)
        if start == "earliest":
            elected_at = max((epoch.at for epoch in log.epochs), default=0.0)  # a new leader may have a lower start
            starts = [offset for time, offset in each.starts if elected_at < time <= asked_at]
            bounds.append((max(starts, default=0), max(offset for _, offset in each.starts)))
        elif start == "latest":
            bounds.append((end, each.max_watermark(returned_at)))
        else:
            assert isinstance(start, int)
            offsets = [
                version.offset
                for versions in each.versions.values()
                for version in versions
                if version.timestamp >= start and version.removed_at > asked_at and version.appended_at <= returned_at
            ]
            bounds.append((min([end, *offsets]), each.first_at(start, asked_at, returned_at)))
    return int(min(low for low, _ in bounds[1:] or [(0, 0)])), max(high for _, high in bounds)


def _highest_end(truth: RecordTruth, partition: str) -> int:
    topic, _, index = partition.rpartition("-")
    return max((each.max_watermark(math.inf) for each in truth.of(topic, int(index))), default=0)
