"""What a planner does on a healthy cluster: few requests, no needless wait, no missing commit, and no false warning."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.errors import ViolationError
from tests.simulation.scenarios.micro_batch_options import GROUP, is_selected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.scenarios.micro_batch_recreations import Report
    from tests.simulation.scenarios.record_truth import RecordTruth
    from tests.simulation.scenarios.spark_stand_in import MicroBatchExecution
    from tests.simulation.scheduler import World

    Offsets = Mapping[tuple[str, int], int]

_ROUND_TRIPS: Final = 0.25  # seconds for all requests of a call without a fault, with new connections
_IDLE_PAUSE: Final = 0.1  # seconds between two refreshes of an idle query
_MEMBERS_SECONDS: Final = 1.0  # for which a group has members
_COMMIT_FAILED: Final = "cannot commit offsets of the group"
_COMMITS_AGAIN: Final = "are committed again"
_BLOCKED: Final = re.compile(
    r"(\S+-\d+) is blocked since [^:]+:\d+:\d+ UTC(.*?): (\d+) offsets from (\d+) on cannot be"
)
_UNUSED_START: Final = "has no effect, because the query resumes from its checkpoint"


def check_requests(execution: MicroBatchExecution, cluster: SimulatedCluster) -> None:
    """Check the number of requests and the time of each call of a run without faults, after the first two."""
    options, brokers, has_ids = execution.options, len(cluster.brokers), cluster.settings.topic_ids
    is_committed = options.get("kafka.isolation.level") == "read_committed"
    calls = [call for call in execution.planner_calls if call.name in ("latestOffset", "partitions")]
    for number, call in enumerate(calls):
        if call.losses or number < 2:
            continue
        seconds, pause = call.returned_at - call.called_at, _IDLE_PAUSE if call.name == "latestOffset" else 0.0
        if seconds > pause + _ROUND_TRIPS:
            raise ViolationError(f"{call.name} takes {seconds:.2f} s without a fault, in run {execution.number}")
        samples = 0 if has_ids else call.requests["Fetch"]  # each of them requests metadata
        limits = {"Metadata": 1 + samples, "ListOffsets": (4 + 2 * is_committed) * brokers}
        limits["OffsetCommit"] = limits["OffsetFetch"] = limits["FindCoordinator"] = 1
        for api, limit in limits.items():
            if call.requests[api] > limit:
                raise ViolationError(
                    f"{call.name} sends {call.requests[api]} {api} requests, in run {execution.number}: {call}"
                )
    for before, after in pairwise(call for call in calls if call.name == "latestOffset"):
        is_idle = before.arguments and before.arguments[0] == before.result == after.arguments[0] == after.result
        if is_idle and after.requests["OffsetCommit"]:
            raise ViolationError(f"an idle query commits the same offsets again: {before} {after}")
        if is_idle and after.returned_at - before.called_at < _IDLE_PAUSE and after.requests["ListOffsets"]:
            raise ViolationError(f"an idle query sends requests without a pause: {before} {after}")


def check_task_requests(requests: Sequence[tuple[str, str]], run: int) -> None:
    """Check that the tasks of a run without faults, which get topic ids and leaders, request no metadata."""
    found = sum(process.startswith(f"executor-run-{run}-") and api == "Metadata" for process, api in requests)
    if found:
        raise ViolationError(f"tasks of run {run} send {found} Metadata requests")


def check_latest(execution: MicroBatchExecution, cluster: SimulatedCluster, truth: RecordTruth) -> None:
    """Check that the progress report of a run without faults has the ends of all partitions that exist."""
    calls = [call for call in execution.planner_calls if call.name == "latestOffset"]
    for (_, _, _, latest_text), call in zip(execution.latest_reports, calls, strict=False):
        if latest_text is None:
            continue
        latest = _parse(latest_text)
        for topic in cluster.topics.values():
            for partition in topic.partitions:
                key = (topic.name, partition.index)
                if not is_selected(execution.options, *key):
                    continue
                current = truth.current(*key)
                assert current is not None
                end = current.max_watermark(call.called_at)
                is_old = "kafka.isolation.level" not in execution.options and latest.get(key, -1) < end
                if key not in latest or is_old:
                    raise ViolationError(f"{key} ended at {end} before a call whose report has {latest_text}")
        if extra := [key for key in latest if truth.current(*key) is None or not is_selected(execution.options, *key)]:
            raise ViolationError(f"the progress report has {extra}, which do not exist or are not selected")


class CommitRejections:
    """When the group has members, so that commits fail; else a planner on a healthy cluster has committed its start."""

    def __init__(self) -> None:
        self.is_scheduled = False  # in the run that was started last, or before
        self._spans: list[tuple[float, float]] = []
        self._failed: str | None = None  # the start whose commit may have failed; it is not committed again

    def schedule(self, world: World, cluster: SimulatedCluster, seconds: float) -> None:
        """Let members join some seconds later, and leave the group after a time."""
        self.is_scheduled = True
        span, groups = (world.now + seconds, world.now + seconds + _MEMBERS_SECONDS), GroupCoordinator.of(cluster)
        self._spans.append(span)
        for time, has_members in zip(span, (True, False), strict=True):
            world.at(time, groups.set_members, GROUP, has_members)

    def check(self, execution: MicroBatchExecution, cluster: SimulatedCluster, reports: Sequence[Report]) -> None:
        """Check that the group has the start of the batch that a planner has just planned."""
        calls = [each for each in execution.planner_calls if each.name in ("latestOffset", "partitions")]
        call = next(each for each in reversed(calls) if each.name == "latestOffset")
        if not call.arguments or "commitGroupId" not in execution.options or calls == [call]:  # of a new query
            return
        start = call.arguments[0]
        if any(call.called_at <= until and call.returned_at >= since for since, until in self._spans):
            self._failed = start
        if start == self._failed:
            return
        committed = GroupCoordinator.of(cluster).committed(GROUP)
        for partition, offset in _parse(start).items():
            found = committed.get(partition)
            if found is None or found.offset != offset:
                raise ViolationError(f"the batch before {offset} of {partition} is finished, and the group has {found}")
        changes = [each.text for each in reports if each.run == execution.number and _is_about_commits(each.text)]
        if changes and _COMMIT_FAILED in changes[-1]:
            raise ViolationError(f"commits succeed again, but run {execution.number} reports only: {changes}")


def _is_about_commits(text: str) -> bool:
    return _COMMIT_FAILED in text or _COMMITS_AGAIN in text


def check_commit_warnings(number: int, reports: Sequence[Report]) -> None:
    """Check that a run warns once when commits fail, and once when they succeed again."""
    texts = [each.text for each in reports if each.run == number]
    changes = [_COMMIT_FAILED in text for text in texts if _is_about_commits(text)]
    if any(is_failure == (position % 2 == 1) for position, is_failure in enumerate(changes)):
        raise ViolationError(f"commits fail and succeed in another order than run {number} reports: {texts}")


def check_start_warnings(execution: MicroBatchExecution, reports: Sequence[Report]) -> None:
    """Check that a run that resumes warns once that its start has no effect, and no other one does."""
    texts = [each.text for each in reports if each.run == execution.number and _UNUSED_START in each.text]
    start = execution.options.get("startingOffsets", "")
    is_due = _is_resumed(execution) and ("{" in start or "startingTimestamp" in execution.options)
    if len(texts) != is_due:
        raise ViolationError(f"run {execution.number} starts at {start} and warns: {texts}")


def check_blocked_warnings(execution: MicroBatchExecution, truth: RecordTruth, reports: Sequence[Report]) -> None:
    """Check that each blocked partition is reported once, with offsets between the stable end and the end."""
    seen: set[tuple[str, int]] = set()
    for report in reports:
        if report.run != execution.number or "open transaction" not in report.text:
            continue
        for name, _, count, offset in _BLOCKED.findall(report.text):
            topic, _, index = str(name).rpartition("-")
            end = max((each.max_watermark(report.time) for each in truth.of(topic, int(index))), default=0)
            if not 0 < int(count) <= end - int(offset):
                raise ViolationError(f"{name} ends at {end}: {report.text}")
            if not truth.events and (name, int(offset)) in seen:
                raise ViolationError(f"run {execution.number} reports an open transaction twice: {report.text}")
            seen.add((str(name), int(offset)))


def check_missing_group_offsets(
    execution: MicroBatchExecution, before: Mapping[tuple[str, int], object], reports: Sequence[Report]
) -> None:
    """Check that a run without faults warns of topics that it has read and of which the group has no offsets."""
    calls = [call for call in execution.planner_calls if call.name == "latestOffset" and call.arguments]
    if not calls or not _is_resumed(execution):
        return
    start = _parse(calls[0].arguments[0])
    topics = {partition[0] for partition in before if partition in start}
    expected = {topic for (topic, _), offset in start.items() if offset > 0} - topics
    texts = [each.text for each in reports if each.run == execution.number and "(commitGroupId) has no" in each.text]
    found = {topic for text in texts for topic in text.partition(" has read ")[2].partition(" before,")[0].split(", ")}
    if len(texts) > 1 or found != expected:
        raise ViolationError(
            f"the group had no offsets of {sorted(expected)}, and run {execution.number} says: {texts}"
        )


def _is_resumed(execution: MicroBatchExecution) -> bool:
    """Return whether a run has planned a batch behind a finished one of an earlier run."""
    names = [call.name for call in execution.planner_calls]
    before = names[: names.index("latestOffset")] if "latestOffset" in names else []
    return "partitions" in before and "initialOffset" not in before


def _parse(text: str) -> dict[tuple[str, int], int]:
    return {
        (topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }
