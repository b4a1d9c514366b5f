"""Where the batches of direct streams must end: at the end of what can be read, or at their limits.

The estimate of rates follows Spark's ``PIDRateEstimator`` and ``DirectKafkaInputDStream``, and shares no code with the
package.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.errors import ViolationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.scenarios.direct_stream_lineage import Spans, TopicAndIndex
    from tests.simulation.scenarios.record_truth import RecordTruth

_KAFKA = "spark.streaming.kafka."
_BACKPRESSURE = "spark.streaming.backpressure."


class Estimate(NamedTuple):
    """The state of a rate estimator."""

    rate: int = -1  # records per second; -1 before the first estimate
    ended_ms: int = -1
    last_rate: float = 0.0
    last_error: float = 0.0


class Logs(NamedTuple):
    """The starts and readable ends of partitions whose leaders are the first ones."""

    starts: Mapping[TopicAndIndex, int]
    ends: Mapping[TopicAndIndex, int]
    watermarks: Mapping[TopicAndIndex, int]


class BatchEnds:
    """Compares the ends of ranges with what could be read when they were planned, and with the limits."""

    def __init__(
        self, parameters: Mapping[str, Any], truth: RecordTruth, cluster: SimulatedCluster, *, is_certain: bool
    ) -> None:
        conf: Mapping[str, str] = parameters["conf"]
        self._truth = truth
        self._cluster = cluster
        self._is_certain = is_certain  # whether brokers are never outdated
        self._streams = parameters["streams"]
        self._interval_ms: int = parameters["interval_ms"]
        self._max_rate = int(conf.get(_KAFKA + "maxRatePerPartition", "0"))
        self._min_records = int(conf.get(_KAFKA + "minRatePerPartition", "1"))
        self._has_backpressure = conf.get(_BACKPRESSURE + "enabled") == "true"
        self._initial_rate = int(conf.get(_BACKPRESSURE + "initialRate", "0"))
        self._gains = [
            float(conf.get(f"{_BACKPRESSURE}pid.{name}", default))
            for name, default in (("proportional", 1.0), ("integral", 0.2), ("derived", 0.0), ("minRate", 100.0))
        ]
        self._estimates: list[Estimate | None] = [Estimate() for _ in self._streams]  # None: not known
        self._earlier: list[list[tuple[float, int]]] = [
            [] for _ in self._streams
        ]  # rates, with the times of their ends

    # Rates.

    @property
    def estimates(self) -> tuple[Estimate | None, ...]:
        return tuple(self._estimates)

    def restore(self, estimates: Sequence[Estimate | None]) -> None:
        self._estimates = list(estimates)
        self._earlier = [[] for _ in self._streams]

    def start(self, stream: int) -> None:
        self._estimates[stream] = Estimate()
        self._earlier[stream] = []

    def completed(
        self, stream: int, now: float, ended_ms: int, records: int, processing_ms: int, scheduling_ms: int
    ) -> None:
        """A batch has ended."""
        old = self._estimates[stream]
        if old is None or not self._has_backpressure:
            return
        if ended_ms <= old.ended_ms or records <= 0 or processing_ms <= 0:
            return
        measured = records / processing_ms * 1000
        if old.ended_ms < 0:
            self._estimates[stream] = Estimate(old.rate, ended_ms, measured, 0.0)
            return
        proportional, integral, derived, minimum = self._gains
        error = old.last_rate - measured
        waiting = scheduling_ms * measured / self._interval_ms
        change = (error - old.last_error) / (ended_ms - old.ended_ms) * 1000
        rate = max(old.last_rate - proportional * error - integral * waiting - derived * change, minimum)
        self._earlier[stream].append((now, old.rate))
        self._estimates[stream] = Estimate(int(rate), ended_ms, rate, error)

    # Batches.

    def logs(self, stream: int) -> Logs:
        """Return what the stream can read now."""
        is_committed = self._streams[stream]["committed"]
        starts, ends, watermarks = {}, {}, {}
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                log, key = partition.leader_log, (topic.name, partition.index)
                truth = self._truth.current(*key)
                if log is not None and truth is not None and truth.epoch == 0:
                    starts[key] = truth.start
                    watermarks[key] = log.high_watermark
                    ends[key] = log.last_stable_offset if is_committed else log.high_watermark
        return Logs(starts, ends, watermarks)

    def blocked(self, stream: int, before: Logs) -> list[TopicAndIndex]:
        """Return the partitions that an open transaction has blocked since an earlier look."""
        after = self.logs(stream)
        return [
            each
            for each, end in before.ends.items()
            if each in after.ends and end == after.ends[each] < before.watermarks[each]
        ]

    def check(
        self, stream: int, spans: Spans, before: Logs, asked_at: float, deleted: int, *, skips_loss: bool
    ) -> None:
        """Check the ends of the ranges of a batch that was just planned, and the number of offsets without records."""
        topics = {topic for (topic, _), _, _ in spans}
        events = [each for each in self._truth.events if each.topic in topics]
        after = self.logs(stream)
        if not self._is_certain or any(each.kind != "log start" for each in events):
            return
        self._check_deleted(spans, before, after, deleted, skips_loss=skips_loss)
        if events or any(each not in after.ends for each, _, _ in spans):
            return
        lowest, highest = {}, {}
        for partition, first, until in spans:
            highest[partition] = max(after.ends[partition], first)
            lowest[partition] = max(before.ends.get(partition, 0), first)
            if until > highest[partition]:
                raise ViolationError(f"a range of {partition} ends at {until}, after {highest[partition]}")
        limits = self._limits(stream, spans, lowest, highest, asked_at)
        if limits is None:
            return
        for partition, first, until in spans:
            least, most = limits[partition]
            if not min(lowest[partition], first + least) <= until <= first + most:
                raise ViolationError(
                    f"a range of {partition} ends at {until}: it begins at {first}, the log ends at "
                    f"{lowest[partition]} to {highest[partition]}, and the limit is {least} to {most}"
                )

    def _limits(
        self,
        stream: int,
        spans: Spans,
        lowest: Mapping[TopicAndIndex, int],
        highest: Mapping[TopicAndIndex, int],
        asked_at: float,
    ) -> dict[TopicAndIndex, tuple[float, float]] | None:
        """Return the lowest and the highest limit of each partition, in records; None if they are not known."""
        estimate, rates = self._estimates[stream], [0.0]
        if self._has_backpressure:
            if estimate is None:
                return None
            known = [estimate.rate, *(rate for time, rate in self._earlier[stream] if time >= asked_at)]
            rates = [rate if rate > 0 else self._initial_rate for rate in known]
        seconds = self._interval_ms / 1000
        lags = {partition: (lowest[partition] - first, highest[partition] - first) for partition, first, _ in spans}
        least_lag, most_lag = (sum(lag[each] for lag in lags.values()) for each in (0, 1))
        limits = {}
        for partition, (least, most) in lags.items():
            found: list[float] = []
            for rate in rates:
                shares = [0.0, 0.0]
                if rate > 0:
                    if not least_lag:  # without a lag there is no limit, and with one it is not known
                        found += [self._min_records, math.inf]
                        continue
                    shares = [rate * least / most_lag, rate * most / least_lag]
                for share in shares:
                    own = share if not self._max_rate else min(share, self._max_rate) if rate > 0 else self._max_rate
                    is_limited = rate > 0 or self._max_rate > 0
                    found.append(max(math.floor(seconds * own + 1e-9), self._min_records) if is_limited else math.inf)
            # Products of floating point numbers may be just below or above an integer.
            limits[partition] = (max(min(found) - (len(set(found)) > 1 or self._has_backpressure), 1), max(found))
        return limits

    def _check_deleted(self, spans: Spans, before: Logs, after: Logs, deleted: int, *, skips_loss: bool) -> None:
        known = all(partition in after.starts for partition, _, _ in spans)
        if not deleted and (not skips_loss or not known):
            return
        least, most = 0.0, 0.0
        for partition, first, until in spans:
            start, end = after.starts.get(partition, math.inf), after.ends.get(partition, until)
            most += max(0, min(start, end) - first)
            is_read = before.ends.get(partition, 0) > first
            least += max(0, min(before.starts.get(partition, 0), before.ends.get(partition, 0)) - first) * is_read
        has_limit = self._max_rate > 0
        if deleted > (most if skips_loss else 0) or (has_limit and deleted < least):
            raise ViolationError(f"{deleted} offsets of {spans} are reported as deleted, and {least} to {most} are")
