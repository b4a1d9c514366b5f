"""Compares the results of direct streams, their offsets and their reports with what happened to each record."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED
from tests.simulation.scenarios.record_truth import generation_of
from tests.simulation.scenarios.spark_tasks import check_task_read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.oracle import Oracle
    from tests.simulation.scenarios.direct_stream_lineage import Lineage, Spans, TopicAndIndex
    from tests.simulation.scenarios.record_truth import RecordTruth, Version
    from tests.simulation.scenarios.spark_tasks import TaskRead

    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

Key = tuple[int, int]
"""Of a result: the life, or 0 where a batch replaces those of earlier lives, and the batch time."""


class Report(NamedTuple):
    """A warning or an error."""

    time: float
    text: str


class Result(NamedTuple):
    """What an output stored for a batch."""

    spans: Spans
    reads: tuple[tuple[int, TaskRead], ...]  # with their streams


class Planned(NamedTuple):
    """The end of a range, when it was planned."""

    time: float
    partition: TopicAndIndex
    until: int


class Epoch:
    """What belongs to an application from one fresh start to the next, which its user orders after a data loss."""

    def __init__(self, outputs: int, streams: int, now: float) -> None:
        self.started_at = now
        self.sink: list[dict[Key, Result]] = [{} for _ in range(outputs)]
        self.starts: list[dict[TopicAndIndex, int]] = [{} for _ in range(streams)]  # from which all records are due
        self.stored: list[dict[TopicAndIndex, int]] = [{} for _ in range(streams)]  # offsets of the user's own store
        self.reports: list[Report] = []
        self.planned: list[Planned] = []
        self.failed_jobs: dict[tuple[int, Key], Spans] = {}  # by output and result


class ResultChecker:
    """Checks the promises of direct streams; each broken one is a ``ViolationError``."""

    def __init__(
        self, parameters: Mapping[str, Any], truth: RecordTruth, oracle: Oracle, cluster: SimulatedCluster
    ) -> None:
        self._parameters = parameters
        self._truth = truth
        self._oracle = oracle
        self._cluster = cluster
        self._committed: list[bool] = [each["committed"] for each in parameters["streams"]]
        self.allowed_commits: list[dict[TopicAndIndex, set[int]]] = [{} for _ in parameters["streams"]]

    # While the history runs.

    def check_commits(self) -> None:
        """Check that the groups have only offsets that the application committed after their results."""
        groups = GroupCoordinator.of(self._cluster)
        for number, stream in enumerate(self._parameters["streams"]):
            allowed = self.allowed_commits[number]
            for partition, committed in groups.committed(stream["group"]).items():
                if committed.offset not in allowed.get(partition, ()):
                    raise ViolationError(
                        f"{stream['group']} has offset {committed.offset} of {partition}, results are stored until "
                        f"{sorted(allowed.get(partition, ()))}"
                    )

    def check_acknowledged(self, stream: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Check that a group has the offsets whose commit was reported as successful."""
        group = self._parameters["streams"][stream]["group"]
        committed = committed_offsets(self._cluster, group)
        for tp, offset in offsets.items():
            if committed.get((tp.topic, tp.partition)) != offset and not self._truth.has_lost(tp.topic, None, math.inf):
                raise ViolationError(f"{group} has {committed} after a commit of {offset} for {tp}")

    def check_committed(self, stream: int, ranges: Sequence[OffsetRange]) -> None:
        """Check that a group has the ends of ranges whose commit was reported as successful, or later offsets."""
        group = self._parameters["streams"][stream]["group"]
        committed = committed_offsets(self._cluster, group)
        for each in ranges:
            partition = (each.topic, each.partition)
            if committed.get(partition, 0) < each.until_offset and not self._truth.has_lost(each.topic, None, math.inf):
                raise ViolationError(f"{group} has {committed} after a commit of {each}")

    def check_last_commits(self, expected: Sequence[Mapping[TopicAndIndex, int]]) -> None:
        """Check that the groups have the offsets that the last life, which had no faults, committed last."""
        for stream, offsets in zip(self._parameters["streams"], expected, strict=True):
            committed = committed_offsets(self._cluster, stream["group"])
            for partition, offset in offsets.items():
                if committed.get(partition) != offset:
                    raise ViolationError(
                        f"{stream['group']} has offset {committed.get(partition)} of {partition} after a stop, and "
                        f"{offset} was committed last"
                    )

    def check_start(
        self,
        stream: int,
        position: Mapping[TopicAndIndex, int],
        explicit: Mapping[TopicAndIndex, int],
        before: Mapping[TopicAndIndex, int],  # committed offsets
        asked_at: float,
        *,
        added: bool = False,
        restored: bool = False,  # the stream is from a checkpoint, which lacks these partitions
    ) -> None:
        """Check where partitions start."""
        shape = self._parameters["streams"][stream]
        after = committed_offsets(self._cluster, shape["group"])
        for partition, offset in position.items():
            if partition in explicit:
                if offset != explicit[partition]:
                    raise ViolationError(f"{partition} starts at {offset}, not at {explicit[partition]}")
                continue
            committed = set() if restored else {each[partition] for each in (before, after) if partition in each}
            if (
                not restored and self._has_outdated_brokers()
            ):  # a coordinator that was replaced returns what it had, or nothing
                committed |= self.allowed_commits[stream].get(partition, set())
            if offset in committed:
                continue
            is_excused = self._has_lost(partition) or self._has_outdated_brokers()
            if committed and not is_excused and all(self._was_in_log(partition, each, asked_at) for each in committed):
                raise ViolationError(f"{partition} starts at {offset}, and its group has committed {committed}")
            truths = self._truth.of(*partition)
            if added or shape["reset"] == "earliest":
                limit = max((start for truth in truths for _, start in truth.starts), default=0)
            elif shape["reset"] == "latest":
                limit = self._latest_start(stream, partition)
            else:
                raise ViolationError(f"{partition} starts at {offset}, but auto.offset.reset is none")
            if offset > limit:
                raise ViolationError(f"{partition} starts at {offset}, after {limit} ({shape['reset']})")

    def check_selection(self, stream: int, position: Mapping[TopicAndIndex, int], *, has_all_topics: bool) -> None:
        """Check that a stream starts with all that its user has named; a pattern may match topics later."""
        shape = self._parameters["streams"][stream]
        is_known = shape["kind"] == "subscribe" or (shape["kind"] == "pattern" and has_all_topics)
        missing = set(shape["topics"]) - {topic for topic, _ in position} if is_known else set()
        lacks = {tuple(each) for each in shape["partitions"]} - position.keys()
        if missing or lacks:
            raise ViolationError(f"stream {stream} starts without {sorted(missing)} {sorted(lacks)}")

    def are_topics_missing(self) -> bool:
        """Return whether a stream reads a topic or partition that does not exist."""
        for stream in self._parameters["streams"]:
            for topic in stream["topics"]:
                found = self._cluster.topics.get(topic)
                partitions = [partition for name, partition in stream["partitions"] if name == topic]
                if found is None or max(partitions, default=0) >= len(found.partitions):
                    return True
        return False

    def _latest_start(self, stream: int, partition: TopicAndIndex) -> int:
        """Return the highest offset that "latest" can mean: records of open transactions are still to be read."""
        highest = max((end for truth in self._truth.of(*partition) for _, end in truth.watermarks), default=0)
        truth = self._truth.current(*partition)
        if truth is None or not self._committed[stream] or self._truth.events or self._has_outdated_brokers():
            return highest
        return min(highest, truth.decided_end())

    def is_loss_explained(self, text: str) -> bool:
        """Return whether something happened that an error about lost data can mean."""
        if self._truth.explains(text, math.inf):
            return True
        # Without topic ids a deposed leader looks like that of a recreated topic.
        return not self._cluster.settings.topic_ids and any(
            self._oracle.was_deposed(topic, 0.0, math.inf) for topic in self._truth.generations if topic in text
        )

    def check_stable_ends(self, stream: int, spans: Spans) -> None:
        """Check that ranges that were just planned have no undecided records."""
        if self._truth.events or not self._committed[stream]:
            return
        for partition, first, until in spans:
            truth = self._truth.current(*partition)
            if truth is not None and until > max(truth.decided_end(), first):
                raise ViolationError(f"a range ends at {until} of {partition}, after the last stable offset")

    def check_rates(self, spans: Spans) -> None:
        """Check that no range is larger than its partition's limit."""
        conf = self._parameters["conf"]
        rate = int(conf.get("spark.streaming.kafka.maxRatePerPartition", "0"))
        if not rate:
            return
        minimum = int(conf.get("spark.streaming.kafka.minRatePerPartition", "1"))
        limit = max(int(rate * self._parameters["interval_ms"] / 1000), minimum)
        for partition, first, until in spans:
            if until - first > limit and not self._has_lost(partition):
                raise ViolationError(f"a batch has {until - first} offsets of {partition}, and its limit is {limit}")

    def check_read(self, stream: int, read: TaskRead, *, fail_on_data_loss: bool) -> None:
        """Check the rows of a task."""
        isolation = READ_COMMITTED if self._committed[stream] else READ_UNCOMMITTED
        has_ids = self._cluster.settings.topic_ids
        # With late metadata, a planner may return the end of a recreated topic and the id of the old one. The task
        # notices it: it fails, or reports the range as lost.
        if read.topic_id is not None and not read.counts.lost:
            (topic, index), until = read.offsets.topic_partition, read.offsets.until_offset
            generation = self._cluster.generations_by_id[read.topic_id]
            truth = self._truth.partitions.get((topic, generation, index))
            if truth is not None and until > truth.max_watermark(read.started_at) and read.offsets.count():
                raise ViolationError(f"a task reads beyond the log of its topic ({generation}): {read}")
        check_task_read(
            read,
            self._oracle,
            self._truth,
            isolation,
            fail_on_data_loss=fail_on_data_loss,
            generations_by_id=self._cluster.generations_by_id if has_ids else None,
        )

    def lag(self, lineage: Lineage, epoch: Epoch) -> list[str]:
        """Return what is missing until the streams have read everything."""
        found: list[str] = []
        for number, shape in enumerate(self._parameters["streams"]):
            position = lineage.streams[number].position
            for topic in self._cluster.topics.values():
                for partition in topic.partitions:
                    key = (topic.name, partition.index)
                    truth = self._truth.current(*key)
                    if truth is None or not is_selected(shape, *key):
                        continue
                    end = truth.high_watermark
                    stable = truth.stable_end() if self._committed[number] else end
                    offset = position.get(key)
                    if offset is None or not stable <= offset <= end:
                        found.append(f"stream {number} is at {offset} of {key}, which ends at {stable} or {end}")
        for number, output in enumerate(self._parameters["outputs"]):
            if is_complete(self._parameters, output):
                found += self._missing_results(lineage, epoch, number, output)
        return found

    def _missing_results(self, lineage: Lineage, epoch: Epoch, number: int, output: Mapping[str, Any]) -> list[str]:
        found = []
        for stream in output["streams"]:
            stored: dict[TopicAndIndex, int] = {}
            for result in epoch.sink[number].values():
                for partition, _, until in result.spans:
                    stored[partition] = max(until, stored.get(partition, 0))
            for partition, offset in lineage.streams[stream].position.items():
                start = lineage.streams[stream].starts[partition]
                if offset > start and stored.get(partition, start) < offset:
                    found.append(f"output {number} has results until {stored.get(partition)} of {partition}")
        return found

    # At the end.

    def check(self, epoch: Epoch, *, is_last: bool) -> None:
        for number, output in enumerate(self._parameters["outputs"]):
            if not is_complete(self._parameters, output):
                continue
            rows = self._check_rows(epoch, number)
            if is_last:
                for stream in output["streams"]:
                    self._check_coverage(epoch, number, stream, rows)

    def check_recreations(self, lineage: Lineage, started_at: float) -> None:
        """Check that no stream has taken a recreated topic for the old one."""
        if not self._cluster.settings.topic_ids:
            return
        for stream in lineage.streams:
            for topic, generation in stream.generations.items():
                newest = self._truth.generations[topic]
                if newest != generation and any(name == topic for name, _ in stream.position):
                    raise ViolationError(
                        f"a stream that began with topic {topic} ({generation}) continues with {newest}; it started "
                        f"at {started_at:.3f}"
                    )

    def _check_rows(self, epoch: Epoch, number: int) -> dict[tuple[int, bytes], Key]:
        """Check that each row of an output is a record, and there once; return the rows by stream and value."""
        rows: dict[tuple[int, bytes], Key] = {}
        for key, result in sorted(epoch.sink[number].items()):
            for stream, read in result.reads:
                for offset, value in read.rows:
                    assert value is not None
                    version = self._version_of(read, offset, value)
                    if version is None:
                        raise ViolationError(f"output {number} has a row that is no record: {offset} {value!r}")
                    if self._committed[stream] and version.committed is False:
                        raise ViolationError(f"output {number} has an aborted record: {offset} {value!r}")
                    earlier = rows.get((stream, value))
                    if earlier is not None and self._parameters["mode"] != "group":
                        raise ViolationError(
                            f"output {number} has a record twice, in {earlier} and {key}: {offset} {value!r}"
                        )
                    rows[stream, value] = key
        return rows

    def _check_coverage(self, epoch: Epoch, number: int, stream: int, rows: Mapping[tuple[int, bytes], Key]) -> None:
        shape = self._parameters["streams"][stream]
        for (topic, generation, index), truth in self._truth.partitions.items():
            key = (topic, index)
            start = epoch.starts[stream].get(key)
            if start is None or not is_selected(shape, *key):
                continue
            if generation > 1 and truth.created_at > epoch.started_at:
                continue  # recreations have a check of their own
            for versions in truth.versions.values():
                for version in versions:
                    if version.offset < start or version.is_control or version.deposed or version.value is None:
                        continue
                    if (stream, version.value) in rows:
                        continue
                    if version.readable_at == math.inf or (self._committed[stream] and version.committed is not True):
                        continue
                    self._check_missing(epoch, number, key, generation, version)

    def _check_missing(
        self, epoch: Epoch, number: int, partition: TopicAndIndex, generation: int, version: Version
    ) -> None:
        """Check why a record is not in the results."""
        if version.reason == "compacted" or generation != self._truth.generations[partition[0]]:
            return
        if version.removed_at < math.inf and (version.removed_at <= epoch.started_at or version.reason == "truncated"):
            return
        if self._is_forgotten(epoch, partition, version):
            return
        if any(partition[0] in report.text for report in epoch.reports if "data loss" in report.text.lower()):
            return
        record = version.offset, version.value
        if any(
            each.partition == partition
            and each.until > version.offset
            and not self._oracle.was_in_log(partition, generation, record, each.time, each.time)
            for each in epoch.planned
        ):
            return  # the log was truncated, and it grew or an earlier log came back before anyone looked
        if any(
            output == number and any(p == partition and a <= version.offset < b for p, a, b in spans)
            for (output, _), spans in epoch.failed_jobs.items()
        ):
            return
        if _has_read_deleted_topic(epoch, number, partition, version):
            return
        raise ViolationError(
            f"offset {version.offset} of {partition[0]}-{partition[1]} is missing in output {number}: "
            f"{version.value!r}, appended at {version.appended_at:.3f}, readable at {version.readable_at:.3f}, "
            f"removed at {version.removed_at:.3f} {version.reason}"
        )

    def _is_forgotten(self, epoch: Epoch, partition: TopicAndIndex, version: Version) -> bool:
        """Return whether the topic was deleted before anyone stored offsets of it; checkpoints always have them."""
        if self._parameters["mode"] == "checkpoint" or version.removed_at == math.inf:
            return False
        if version.reason == "topic deleted":
            return True
        if any(partition in each for each in epoch.stored) or any(partition in each for each in self.allowed_commits):
            return False
        return self._truth.current(*partition) is None

    def _version_of(self, read: TaskRead, offset: int, value: bytes) -> Version | None:
        truth = self._truth.partitions.get((read.offsets.topic, generation_of(value), read.offsets.partition))
        versions = [] if truth is None else truth.versions.get(offset, [])
        return next((each for each in versions if each.value == value), None)

    def _has_lost(self, partition: TopicAndIndex) -> bool:
        return self._truth.has_lost(partition[0], partition[1], math.inf)

    def _has_outdated_brokers(self) -> bool:
        return any(broker.isolated_until > 0 for broker in self._cluster.brokers.values())

    def _was_in_log(self, partition: TopicAndIndex, offset: int, time: float) -> bool:
        truth = self._truth.current(*partition)
        return truth is not None and truth.start <= offset <= truth.max_watermark(time)


def is_selected(stream: Mapping[str, Any], topic: str, partition: int) -> bool:
    """Return whether a stream reads a partition if it exists."""
    if stream["kind"] == "assign":
        return (topic, partition) in stream["partitions"]
    return topic in stream["topics"]


def is_complete(parameters: Mapping[str, Any], output: Mapping[str, Any]) -> bool:
    """Return whether an output must have every record once: it has no window, or is the only one of its streams."""
    if output["window"] != output["slide"]:
        return False
    others = [each for each in parameters["outputs"] if each is not output]
    return output["slide"] == 1 or not others


def check_order(trace: Sequence[tuple[Any, ...]]) -> None:
    """Check that no committed offset went back."""
    last: dict[tuple[str, str, int], int] = {}
    for _, kind, *facts in trace:
        if kind == "offset committed":
            group, topic, partition, offset = facts
            key = (group, topic, partition)
            if offset < last.get(key, 0):
                raise ViolationError(f"{group} goes back from {last[key]} to {offset} of {topic}-{partition}")
            last[key] = offset


def committed_offsets(cluster: SimulatedCluster, group: str) -> dict[TopicAndIndex, int]:
    committed = GroupCoordinator.of(cluster).committed(group)
    return {partition: offset.offset for partition, offset in committed.items()}


def contiguous_end(start: int, spans: Sequence[tuple[int, int]]) -> int:
    """Return until where ranges follow one another."""
    for first, until in sorted(spans):
        if first <= start < until:
            start = until
    return start


def _has_read_deleted_topic(epoch: Epoch, number: int, partition: TopicAndIndex, version: Version) -> bool:
    """Return whether a broker that is cut off returned the deleted topic's record at an offset.

    Without topic ids (Kafka before 2.8), the task cannot know: docs/guarantees.md says so.
    """
    return any(
        read.topic_id is None and read.offsets.topic_partition == partition and offset == version.offset
        for result in epoch.sink[number].values()
        for _, read in result.reads
        for offset, value in read.rows
        if value != version.value
    )
