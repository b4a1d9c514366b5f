"""How large the batches of a healthy query may be, and how large they must be, given what there is to read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.errors import ViolationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.scenarios.spark_stand_in import MicroBatchExecution

    Offsets = Mapping[tuple[str, int], int]


class Sizes(NamedTuple):
    """The smallest and the largest mean size of an offset in any record batch."""

    smallest: float
    largest: float


def check_batch_sizes(execution: MicroBatchExecution, cluster: SimulatedCluster) -> None:
    """Check each end that the planner of a run without losses has returned."""
    is_unclear = any(call.losses for call in execution.planner_calls)  # such as a start beyond the end
    if is_unclear or "backpressure" in execution.options:  # which has other checks
        return
    options, last_batch_at = execution.options, None
    calls = [call for call in execution.planner_calls if call.name == "latestOffset"]
    sizes = sizes_of(cluster) if "maxBytesPerTrigger" in options else None
    for (_, start_text, end_text, latest_text), call in zip(execution.latest_reports, calls, strict=False):
        if latest_text is None or "(start)" in end_text:
            continue
        start, end, latest = _parse(start_text), _parse(end_text), _parse(latest_text)
        if not start.keys() == end.keys() == latest.keys():
            last_batch_at = call.returned_at
            continue
        counts = {partition: end[partition] - start[partition] for partition in start}
        lags = {partition: latest[partition] - start[partition] for partition in start}
        count, lag = sum(counts.values()), sum(lags.values())
        if start == end and lag > 0:
            _check_wait(execution, lag, last_batch_at, call.called_at)
        if count <= 0:
            continue
        last_batch_at = call.returned_at
        limits = _limits(execution, sizes)
        if limits is None:
            if counts != lags:
                raise ViolationError(f"a batch without a limit ends at {end_text}, and the logs at {latest_text}")
            continue
        lowest, highest = limits
        slack = len(start)
        if count > highest + slack or count < min(lag, lowest) - slack:
            raise ViolationError(
                f"a batch has {count} of {lag} offsets, and {lowest:.0f} to {highest:.0f} are allowed: {dict(options)}"
            )
        starved = [partition for partition, each in lags.items() if each > 0 and counts[partition] <= 0]
        if starved:
            raise ViolationError(f"a batch from {start_text} to {end_text} has nothing of {starved}: {dict(options)}")


def _check_wait(execution: MicroBatchExecution, lag: int, last_batch_at: float | None, called_at: float) -> None:
    """Check that a query that does not read what there is may wait for more."""
    options = execution.options
    is_limited = execution.trigger == "processing time"
    minimum = int(options.get("minOffsetsPerTrigger", "0")) if is_limited else 0
    delay = float(options.get("maxTriggerDelay", "0s").removesuffix("s"))
    if lag >= max(minimum, 1) or last_batch_at is None or called_at > last_batch_at + delay:
        raise ViolationError(f"run {execution.number} waits although there are {lag} offsets: {dict(options)}")


def _limits(execution: MicroBatchExecution, sizes: Sizes | None) -> tuple[float, float] | None:
    """Return the fewest and the most offsets of a batch whose logs have more; None without a limit."""
    if execution.trigger == "once":
        return None
    options, bounds = execution.options, []
    if "maxOffsetsPerTrigger" in options:
        bounds.append((float(options["maxOffsetsPerTrigger"]),) * 2)
    if sizes is not None:
        most = float(options["maxBytesPerTrigger"])
        bounds.append((max(most / sizes.largest - 1, 1), max(most / sizes.smallest, 1)))
    return None if not bounds else (min(low for low, _ in bounds), min(high for _, high in bounds))


def sizes_of(cluster: SimulatedCluster) -> Sizes | None:
    """Return the sizes of offsets in the logs of a cluster; None if they are empty."""
    means = [
        len(batch.data) / (batch.last_offset - batch.base_offset + 1)
        for partition in cluster.all_partitions()
        for log in partition.replicas.values()
        for batch in log.batches
    ]
    return Sizes(min(means), max(means)) if means else None


def _parse(text: str) -> Offsets:
    return {
        (topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }
