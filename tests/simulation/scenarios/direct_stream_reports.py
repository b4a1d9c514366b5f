"""Compares the warnings of direct streams with what has happened: each has a reason, and each reason has a warning."""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.errors import ViolationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.simulation.scenarios.direct_stream_life import DirectStreamLife
    from tests.simulation.scenarios.direct_stream_lineage import TopicAndIndex

_FAILED_GENERATION = re.compile(r"Spark failed to generate the batch at (\d+) ms")
_OUT_OF_RANGE = re.compile(r"the committed offset (\d+) of group '([^']+)' for (\S+)-(\d+) is not in the log")
_LATE_START = re.compile(r"data loss: the new partition (\S+)-(\d+) starts at offset (\d+)")
_UNCOMMITTED = "were not committed before the timeout of the stop"
_BLOCKED = "does not read past an open transaction"
_OF_ANY_HISTORY = ("is overridden to none in tasks",)
_OF_FAULTS = ("still retrying after", "data loss", "removed by retention", "reports an earlier leader epoch")


def check_requests(
    trace: Sequence[tuple[Any, ...]], driver: str, parameters: Mapping[str, Any], *, skips_loss: bool
) -> None:
    """Check the requests of a generation without faults: each batch needs metadata once, and offsets of each leader.

    These are the ends of logs. For ``read_committed`` there are also high watermarks, of all partitions and of those
    whose position is after the last stable offset, and for limits of batches that skip lost records also log starts.
    """
    is_committed = any(each["committed"] for each in parameters["streams"])
    leaders = min(parameters["brokers"], sum(parameters["partitions"].values()))
    ends = leaders * (1 + 2 * is_committed + (bool(parameters["conf"]) and skips_loss))
    planned = sum(kind == "planned" for _, kind, *_ in trace)
    sent = Counter(facts[3] for _, kind, *facts in trace if kind == "request" and facts[1] == driver)
    plans = planned + bool(parameters["failures"])  # the plan of a failed generation may end during the next one
    most = {"Metadata": plans, "ListOffsets": plans * ends}
    # The first requests of a client, and of a coordinator, need more metadata.
    if (
        not sent["FindCoordinator"]
        and not sent["ApiVersions"]
        and any(sent[api] > count for api, count in most.items())
    ):
        raise ViolationError(f"{planned} batches are planned with {dict(sent)}, at most {most} are needed")


class Warned(NamedTuple):
    """A warning of the package."""

    time: float
    text: str


class Warnings(logging.Handler):
    """Collects the warnings of the package, and checks those of direct streams."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self.all: list[Warned] = []
        self.on_loss: Callable[[str], None] = lambda _: None
        self._now = now
        self._checked = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.all.append(Warned(self._now(), text))
        if "data loss" in text or "removed by retention" in text:
            self.on_loss(f"data loss: {text}")

    def check_starts(
        self,
        group: str,
        starts: Mapping[TopicAndIndex, int],
        committed: Mapping[TopicAndIndex, int],
        since: float,
        *,
        is_new: bool,  # whether the partitions were created while the stream ran
        is_exact: bool,  # whether nothing makes the stream look for its start again
    ) -> None:
        """Check that each committed offset that was replaced is reported, and each late start of a new partition."""
        texts = [each.text for each in self.all if each.time >= since]
        replaced = [
            (match[3], int(match[4]), int(match[1]))
            for text in texts
            if (match := _OUT_OF_RANGE.match(text)) and match[2] == group
        ]
        late = [(match[1], int(match[2]), int(match[3])) for text in texts if (match := _LATE_START.match(text))]
        for (topic, index), offset in starts.items():
            before = committed.get((topic, index))
            if before is not None and before != offset:
                expected = (topic, index, before)
                if expected not in replaced or (is_exact and replaced.count(expected) > 1):
                    raise ViolationError(f"{topic}-{index} starts at {offset}, not at {before}, reported: {texts}")
            elif before is not None and is_exact and (topic, index, before) in replaced:
                raise ViolationError(f"{topic}-{index} starts at {before}, and this is reported: {texts}")
            elif before is None and is_new and offset and (topic, index, offset) not in late:
                raise ViolationError(f"the new partition {topic}-{index} starts at {offset}, and nothing reports this")

    def check_blocked(self, blocked: Sequence[TopicAndIndex], since: float) -> None:
        """Check that the partitions are reported that stay behind an open transaction."""
        texts = [each.text for each in self.all if each.time >= since and _BLOCKED in each.text]
        for topic, index in blocked[:1]:  # a long list is not reported completely
            if not any(f"{topic}-{index}" in text for text in texts):
                raise ViolationError(f"an open transaction blocks {topic}-{index}, and nothing reports this: {texts}")

    def check_life(self, life: DirectStreamLife, since: float, *, is_healthy: bool) -> None:
        """Check the warnings of a life that has ended."""
        texts = [each.text for each in self.all if each.time >= since]
        failed = [time_ms for _, time_ms in life.failed_generations]
        reported = [int(match[1]) for text in texts if (match := _FAILED_GENERATION.match(text))]
        for time_ms in {*failed, *reported}:
            # Nothing is reported if the driver dies, or stops, before it generates another batch.
            least = failed.count(time_ms) if life.generated_after(time_ms) else 0
            if not least <= reported.count(time_ms) <= failed.count(time_ms):
                raise ViolationError(
                    f"the batch at {time_ms} failed {failed.count(time_ms)} times, and {reported.count(time_ms)} are "
                    "reported"
                )
        if life.ended_cleanly:
            timeouts = sum(stream.stop_signal.flush_timed_out for stream in life.streams)
            found = sum(_UNCOMMITTED in text for text in texts)
            if (timeouts and not found) or (is_healthy and found):
                raise ViolationError(f"{timeouts} streams could not commit before the end, and {found} are reported")
        if is_healthy:
            for text in texts:
                if not any(each in text for each in _OF_ANY_HISTORY) and any(each in text for each in _OF_FAULTS):
                    raise ViolationError(f"there is no fault, but a warning: {text}")
