"""Compares the progress reports of a continuous query with its source records."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.errors import ViolationError
from tests.simulation.scenarios.continuous_checks import is_dropped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.scenarios.record_truth import RecordTruth, Version

_REPORT_SECONDS: Final = 1.0  # from the reads of an epoch until its report
_MAX_BURST: Final = 12  # records that the tasks may read at once


def check_progress(
    reports: Sequence[Mapping[str, Any]],
    truth: RecordTruth,
    parameters: Mapping[str, Any],
    since: float,  # wall time from which no fault and no loss occurs
) -> None:
    """Check the epochs, offsets and counts of the reports of one driver, the oldest first."""
    epochs = [each["batchId"] for each in reports]
    if epochs != sorted(set(epochs)):
        raise ViolationError(f"the reports have the epochs {epochs}")
    if (rate := parameters["start"].get("maxRecordsPerSecond")) is not None:
        _check_rate(reports, rate)
    ends: Mapping[str, Mapping[str, int]] = {}
    for each in reports:
        source = each["sources"][0]
        seconds = each["durationMs"]["triggerExecution"] / 1000
        ended_at = datetime.fromisoformat(each["timestamp"]).timestamp()
        if ended_at > since and seconds > _seconds_of_epoch(parameters):  # also if idle epochs were before
            raise ViolationError(f"an epoch takes {seconds} s: {each}")
        if ended_at > since + seconds:
            _check_counts(each, source, truth, parameters)
            for topic, partition, start in _positions(source["startOffset"]):
                if start != ends.get(topic, {}).get(partition, start):
                    raise ViolationError(
                        f"epoch {each['batchId']} starts at {start} of {topic}-{partition}, not at {ends}"
                    )
        ends = source["endOffset"]


def _check_rate(reports: Sequence[Mapping[str, Any]], rate: int) -> None:
    """Check that a query does not read more records than ``maxRecordsPerSecond`` allows."""
    times = [datetime.fromisoformat(each["timestamp"]).timestamp() for each in reports]
    for first in range(len(reports)):
        rows = 0
        for last in range(first + 1, len(reports)):
            rows += reports[last]["numInputRows"]
            # The records were read some time before the report.
            if rows > rate * (times[last] - times[first] + _REPORT_SECONDS) + _MAX_BURST:
                raise ViolationError(f"{rows} records are read in {times[last] - times[first]} s, more than {rate}/s")


def _seconds_of_epoch(parameters: Mapping[str, Any]) -> float:
    """Return how long an epoch with a few records may take without faults."""
    calls = 12  # of the function
    function, flush = parameters.get("function_seconds", 0.0), parameters["flush_seconds"]
    rate = parameters["start"].get("maxRecordsPerSecond") or math.inf
    return float(2 * parameters["start"]["epochInterval"] + calls * function + 2 * flush + 1.0 + _MAX_BURST / rate)


def _check_counts(
    report: Mapping[str, Any], source: Mapping[str, Any], truth: RecordTruth, parameters: Mapping[str, Any]
) -> None:
    read: list[Version] = []
    for topic, partition, end in _positions(source["endOffset"]):
        start = source["startOffset"].get(topic, {}).get(partition)
        current = truth.current(topic, int(partition))
        if start is None or current is None:  # a partition that was added: where it starts is not reported
            return
        read += [each for offset, each in current.alive.items() if start <= offset < end and not each.is_control]
        if end > ((source["latestOffset"] or {}).get(topic, {}).get(partition, end)):
            raise ViolationError(f"a report has a latest offset before its end: {source}")
    if parameters["isolation"] == "read_committed":
        read = [each for each in read if each.committed is True]
    written = [each for each in read if not (parameters["drops_rows"] and is_dropped(each.value or b""))]
    found = (report["numInputRows"], source["numInputRows"], report["sink"]["numOutputRows"])
    if found != (len(read), len(read), len(written)):
        raise ViolationError(f"a report has {found} rows, not {len(read)} and {len(written)}: {report}")


def _positions(offsets: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, int]]:
    return [(topic, partition, offset) for topic, found in offsets.items() for partition, offset in found.items()]
