"""What a planner counts as lost: each loss once, with one cause, and as many offsets as its batches skip."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.simulation.errors import ViolationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.simulation.scenarios.micro_batch_recreations import Report
    from tests.simulation.scenarios.record_truth import RecordTruth
    from tests.simulation.scenarios.spark_stand_in import Checkpoint, MicroBatchExecution, PlannerCall

    Offsets = dict[tuple[str, int], int]

_PHRASES: Final[Mapping[str, tuple[str, ...]]] = {
    "aged_out": ("removed by retention before they were read; they are skipped", "the added partition"),
    "deleted": ("do not exist any more", "cannot be found, the partitions were deleted"),
    "not_selected": ("are not selected any more", "are not part of this batch"),
    "recreated": ("the topic was deleted and recreated, its id was",),
    "beyond_end": ("'s offset was changed from",),
}
"""What the warnings about a cause have in common."""
_SPAN: Final = re.compile(r"offsets \[(\d+), (\d+)\) of (\S+) were removed by retention before they were read; they")
_ADDED: Final = re.compile(r"the added partition (\S+) starts from offset (\d+) instead")


_CONFIRMATION_SECONDS: Final = 4.0  # a deletion takes longer to be confirmed
_OTHER_LOG: Final = ("deleted", "created", "truncated")


class LossCheck:
    """Compares the losses that the planner of one run has counted with its warnings, its batches and the history."""

    def __init__(self, execution: MicroBatchExecution, truth: RecordTruth, reports: Sequence[Report]) -> None:
        self._execution = execution
        self._truth = truth
        self._texts = [each.text for each in reports if each.run == execution.number and not each.is_error]
        self._counted: Counter[tuple[str, int, str]] = Counter()  # by partition and cause
        self._offsets: Counter[tuple[str, int, str]] = Counter()
        for call in execution.planner_calls:
            for key, (losses, offsets) in call.losses.items():
                self._counted[key] += losses
                self._offsets[key] += offsets

    def check(self, checkpoint: Checkpoint, *, has_sure_deletions: bool) -> None:
        """Check the run; ``has_sure_deletions`` says whether only a deleted topic can look like one."""
        for call in self._execution.planner_calls:
            _check_one_cause(call)
        self._check_warnings()
        self._check_expired()
        if has_sure_deletions:
            self._check_deletions()
        self._check_batches(checkpoint)

    def _check_warnings(self) -> None:
        """Check that each counted loss is in a warning, and has its number of offsets."""
        for (topic, partition, cause), count in self._counted.items():
            name = f"{topic}-{partition}"
            about = [text for text in set(self._texts) if any(phrase in text for phrase in _PHRASES[cause])]
            naming = [text for text in about if re.search(rf"\b{name}\b", text)]
            if not naming and not any(re.search(r" and \d+ more", text) for text in about):
                raise ViolationError(f"a loss of {name} ({cause}) is counted, but no warning names it: {about}")
            if cause == "aged_out" and len(naming) == count:
                expected = sum(_skipped(text, name) for text in naming)
                if self._offsets[topic, partition, cause] != expected:
                    raise ViolationError(
                        f"{self._offsets[topic, partition, cause]} skipped offsets of {name} are counted: {naming}"
                    )
        was_killed = not self._execution.finished and self._execution.error is None  # perhaps before it was counted
        for text in () if was_killed else self._texts:
            cause = next((each for each, phrases in _PHRASES.items() if any(phrase in text for phrase in phrases)), "")
            names = {f"{topic}-{partition}" for topic, partition, each in self._counted if each == cause}
            if cause and "data loss" in text and not any(re.search(rf"\b{name}\b", text) for name in names):
                raise ViolationError(f"no loss is counted for this warning: {text}")

    def _check_expired(self) -> None:
        """Check that no offset of a log that only loses its first records is counted twice."""
        for topic, partition, cause in self._offsets:
            # A batch that ends before the log begins is counted up to the beginning, after its end was planned.
            offsets = self._most_of_one_step((topic, partition, cause), offsets=True)
            if cause == "aged_out" and not self._truth.has_lost(topic, None, math.inf, _OTHER_LOG):
                expired = max((each.start for each in self._truth.of(topic, partition)), default=0)
                if offsets > expired:
                    raise ViolationError(f"{offsets} expired offsets of {topic}-{partition} are counted, not {expired}")

    def _most_of_one_step(self, key: tuple[str, int, str], *, offsets: bool) -> int:
        """Return the losses or offsets that the plans of ends count, or those of batches, if these are more."""
        counts: Counter[bool] = Counter()
        for call in self._execution.planner_calls:
            counts[call.name == "partitions"] += call.losses.get(key, (0, 0))[offsets]
        return max(counts.values(), default=0)

    def _check_deletions(self) -> None:
        for topic, partition, _ in self._counted:
            # A batch that runs again lacks its partitions, and so does the next plan of an end.
            causes = [(topic, partition, cause) for cause in ("deleted", "recreated")]
            counted = sum(self._most_of_one_step(each, offsets=False) for each in causes)
            possible = self._possible_deletions(topic)
            if counted > possible:
                raise ViolationError(
                    f"{topic} was deleted or recreated at most {possible} times, but run {self._execution.number} "
                    f"counts {counted} such losses of partition {partition}: {dict(self._counted)}"
                )

    def _possible_deletions(self, topic: str) -> int:
        """Return how often a planner may notice that a topic was deleted, or that it was recreated much later.

        If no partition is left, the planner keeps the positions, and compares them with a topic that is created later.
        """
        changes = [event for event in self._truth.events if event.topic == topic and event.partition is None]
        returned_late = sum(
            before.kind == "deleted" and after.kind == "created" and after.time - before.time > _CONFIRMATION_SECONDS
            for before, after in pairwise(changes)
        )
        return returned_late + sum(event.kind == "deleted" for event in changes)

    def _check_batches(self, checkpoint: Checkpoint) -> None:
        """Check that what the batches of this run skip is counted in the calls that have planned them."""
        logged = {each.text for each in checkpoint.offsets if each.run == self._execution.number}
        counted: dict[str, Counter[tuple[str, int, str]]] = {}  # by start
        for call in self._execution.planner_calls:
            if call.name not in ("latestOffset", "partitions"):
                continue
            if not call.arguments:  # before Spark 4.2
                return
            start, end = call.arguments[0], call.result if call.name == "latestOffset" else call.arguments[1]
            losses = counted.setdefault(start, Counter())
            for key, (count, _) in call.losses.items():
                losses[key] += count
            if end not in logged:
                continue
            if call.name == "latestOffset":
                self._check_end(_parse(start), _parse(end), losses)
            elif "(start)" not in end:
                _check_first_offsets(call, losses)

    def _check_end(self, start: Offsets, end: Offsets, losses: Counter[tuple[str, int, str]]) -> None:
        for partition, offset in start.items():
            if partition not in end:
                self._require(partition, losses, ("deleted", "not_selected", "recreated"), "is left out")
            elif end[partition] < offset:
                self._require(partition, losses, ("beyond_end", "recreated"), "goes back")

    def _require(
        self, partition: tuple[str, int], losses: Counter[tuple[str, int, str]], causes: Iterable[str], what: str
    ) -> None:
        if not any(losses[*partition, cause] for cause in causes):
            raise ViolationError(
                f"partition {partition} {what} in run {self._execution.number}, and no such loss is counted: {losses}"
            )


def _check_first_offsets(call: PlannerCall, losses: Counter[tuple[str, int, str]]) -> None:
    """Check that a batch that begins after its start has counted the offsets between."""
    start = _parse(call.arguments[0])
    first: Offsets = {}
    for each in call.result:
        offsets = each.task.offsets
        first.setdefault((offsets.topic, offsets.partition), offsets.from_offset)
    for partition, offset in first.items():
        expected = start.get(partition, 0)
        is_counted = any(losses[*partition, cause] for cause in ("aged_out", "recreated"))
        if offset > expected and not is_counted:
            raise ViolationError(
                f"{partition} is read from {offset}, not from {expected}, and nothing is counted: {call}"
            )


def _check_one_cause(call: PlannerCall) -> None:
    """Check that a call counts a loss of a partition once; a log may lose records, or be deleted, twice meanwhile."""
    causes: dict[tuple[str, int], Counter[str]] = {}
    for (topic, partition, cause), (count, _) in call.losses.items():
        if cause != "aged_out":
            causes.setdefault((topic, partition), Counter())[cause] += count
    for lost, found in causes.items():
        if found.total() > 1 and found != {"deleted": 1, "recreated": 1}:
            raise ViolationError(f"one call of {call.name} counts {dict(found)} losses of {lost}")


def _skipped(text: str, name: str) -> int:
    span = _SPAN.search(text)
    if span is not None and span[3] == name:
        return int(span[2]) - int(span[1])
    added = _ADDED.search(text)
    return int(added[2]) if added is not None else 0


def _parse(text: str) -> Offsets:
    return {
        (topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }
