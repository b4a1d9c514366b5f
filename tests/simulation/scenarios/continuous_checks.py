"""What a continuous query must have written: the model compares its output with what happened to each source record."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tests.simulation.oracle import Oracle
    from tests.simulation.scenarios.checkpoint_store import CheckpointStore
    from tests.simulation.scenarios.continuous_stand_in import JobStart
    from tests.simulation.scenarios.record_truth import PartitionTruth, RecordTruth, Version

    from pyspark_kafka_direct.errors import DataLossError
    from pyspark_kafka_direct.offsets import TopicPartition

_MAX_STAMP_AHEAD: Final = 2
OUTPUTS: Final = ("alerts", "audit")


class Delivery(NamedTuple):
    """A row that the user's sink has written."""

    value: bytes
    run: str
    time: float


class PlannedStart(NamedTuple):
    """Where a run has reported that it starts, because the log is shorter than what was committed."""

    offset: int
    time: float


class _Source(NamedTuple):
    """A source record."""

    topic: str
    generation: int
    partition: int
    version: Version


class OutputChecker:
    """Checks the output and the checkpoint of one query."""

    def __init__(
        self, parameters: Mapping[str, Any], truth: RecordTruth, oracle: Oracle, store: CheckpointStore
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.other_output: dict[int, list[bytes]] = {}  # of micro-batch queries, by batch
        self.jobs: dict[str, JobStart] = {}  # by run
        self.has_suspended_workers = False
        self.steady_at = math.inf  # when the query had read everything, after all faults
        self.planned_starts: dict[tuple[str, int], PlannedStart] = {}  # the last ones
        self.active_since: dict[int, float] = {}  # when the tasks of each driver have completed an epoch
        self._task_sizes: dict[str, list[int]] = {}  # how many partitions the tasks of each run read
        self._guarantee: str = parameters["guarantee"]
        self._committed_only: bool = parameters["isolation"] == "read_committed"
        self._drops_rows: bool = parameters["drops_rows"]
        self._output_topics: int = parameters["output_topics"]
        self._is_stamped: bool = bool(parameters.get("stamps")) and not parameters["micro_batches"]
        self._has_topic_ids: bool = parameters["cluster"].get("topic_ids", True)
        self._has_other_selections = len(parameters["selections"]) > 1
        self._truth = truth
        self._oracle = oracle
        self._store = store

    @property
    def has_lost(self) -> bool:
        """Whether a log was truncated that readers may have read."""
        return any(truth.lost for truth in self._truth.partitions.values())

    def sink_opened(self, run: str, partitions: Collection[TopicPartition] = ()) -> None:
        """Note what is committed when a task begins to read, and what it reads."""
        self._task_sizes.setdefault(run, []).append(len(partitions))
        # If another run has started, this one was suspended before: its driver may not know what is committed now.
        if run == next(reversed(self.jobs)):
            self.jobs[run] = self.jobs[run]._replace(committed=self._store.committed_offsets())

    def written(self) -> Counter[bytes]:
        """Return how often each value is in the output."""
        other = Counter(value for values in self.other_output.values() for value in values)
        if self._guarantee in ("function", "database"):
            return other + Counter(each.value for each in self.deliveries)
        return other + Counter(value for values in self._visible() for value in values if value is not None)

    def explains_loss(self, error: DataLossError, now: float) -> bool:
        """Return whether records or metadata were lost where an error reports it, or are not selected any more."""
        if "are not selected any more" in error.message:
            names_group = "offsets in the group" in error.message  # where partitions resume that are selected again
            return self._has_other_selections and names_group == (self._guarantee == "exactly-once")
        if error.topic is None:
            return bool(self._truth.events)
        return self._truth.has_lost(error.topic, error.partition, now)

    def is_complete(self, topics: Collection[str]) -> bool:
        """Return whether all replicas have all records, and all transactions of the source have ended."""
        return all(
            truth.end <= truth.high_watermark and all(each.committed is not None for each in truth.alive.values())
            for (topic, _, partition), truth in self._truth.partitions.items()
            if topic in topics and self._truth.current(topic, partition) is truth
        )

    def missing(self, topics: Collection[str]) -> list[bytes]:
        """Return the values of the surviving records that are not written."""
        written = self.written()
        return [value for _, value in self._required(topics) if value not in written]

    def uncommitted(self, topics: Collection[str]) -> list[bytes]:
        """Return the values of the surviving records that a next run would read again."""
        committed = self._store.committed_offsets()
        return [
            value
            for each, value in self._required(topics)
            if each.generation == 1 and each.version.offset >= committed.get((each.topic, each.partition), 0)
        ]

    def check(self) -> None:
        """Check everything that was written until now."""
        for run, sizes in self._task_sizes.items():
            if max(sizes) - min(sizes) > 1:
                raise ViolationError(f"the tasks of the run {run} read {sizes} partitions")
        written = self.written()
        sources = {value: each for each, value in self._sources()}
        for value in written:
            if value not in sources:
                raise ViolationError(f"the output has a row without a source record\n{value!r}")
            version = sources[value].version
            is_decided = version not in self._partition(sources[value]).decided_again
            if self._committed_only and version.committed is not True and version.producer_id >= 0 and is_decided:
                raise ViolationError(f"a record is copied whose transaction was not committed\n{value!r}")
        if self._guarantee in ("exactly-once", "database"):
            # A record that comes back in another log is a new one for readers.
            duplicates = sorted(
                value
                for value, count in written.items()
                if count > 1 and sources[value].version not in self._partition(sources[value]).returned
            )
            if duplicates:
                raise ViolationError(f"records are duplicated\n{duplicates}")
        if self._guarantee == "exactly-once":
            self._check_order(sources)
        elif self._guarantee == "function":
            self._check_repeated(sources)
            if not self.has_suspended_workers:
                self._check_runs_do_not_overlap()

    def _check_order(self, sources: Mapping[bytes, _Source]) -> None:
        for index, values in enumerate(self._visible()):
            last: dict[tuple[str, int, int], tuple[int, int]] = {}
            for value in values:
                assert value is not None
                topic, generation, partition, version = sources[value]
                key = (topic, generation, partition)
                truth = self._partition(sources[value])
                position = (version.epoch if truth.lost else 0, version.offset)  # a truncated log continues lower
                if position < last.get(key, (0, -1)) and not truth.returned:
                    raise ViolationError(f"the output is in another order: {index} has {value!r} after {last[key]}")
                last[key] = position

    def _check_repeated(self, sources: Mapping[bytes, _Source]) -> None:
        """Check that no run writes what its driver has found committed."""
        for value, run, time in self.deliveries:
            topic, _, partition, version = sources[value]
            job = self.jobs[run]
            if not job.is_alone or self._truth.generations[topic] > 1 or self._partition(sources[value]).lost:
                continue
            if version.offset < job.committed.get((topic, partition), 0):
                raise ViolationError(f"a run writes a record again that was committed before\n{value!r} at {time}")

    def _check_runs_do_not_overlap(self) -> None:
        """Check that no task writes when its driver has started the next run."""
        for value, run, time in self.deliveries:
            job = self.jobs[run]
            if any(job.driver == each.driver and job.time < each.time < time for each in self.jobs.values()):
                raise ViolationError(f"a task of an earlier run writes at {time} beside the next run\n{value!r}")

    def _visible(self) -> list[list[bytes | None]]:
        visible = []
        for topic, _, index in sorted(each for each in self._oracle.truths if each[0] in OUTPUTS):
            entries = self._oracle.truth((topic, index)).records(0, 1 << 60, READ_COMMITTED, 1e9)
            visible.append([entry.value for entry in entries])
            for entry in entries:
                if entry.value is not None:
                    self._check_output(topic, index, entry.value)
        return visible

    def _check_output(self, topic: str, index: int, value: bytes) -> None:
        """Check that a record was written to its topic, with the key of its source."""
        source, _, partition, _ = value.split(b"/")
        if topic != output_topic(value, self._output_topics):
            raise ViolationError(f"the record {value!r} was written to {topic}")
        key = self._oracle.attributes[topic, index, value].key
        expected = self._oracle.attributes[source.decode(), int(partition), value].key
        if key != expected:
            raise ViolationError(f"the record {value!r} has the key {key!r} in the output, not {expected!r}")
        if self._is_stamped:
            self._check_stamp((source.decode(), int(partition)), topic, index, value)

    def _check_stamp(self, tp: tuple[str, int], topic: str, index: int, value: bytes) -> None:
        """Check that the headers of ``stampBatch`` name the query, and the epoch of the record."""
        headers = dict(self._oracle.attributes[topic, index, value].headers)
        query = json.loads(self._store.files["metadata"])["id"]
        if headers.get(b"spark.query.id") != query.encode():
            raise ViolationError(f"the record {value!r} has the headers {headers}, and is of the query {query}")
        if self._guarantee != "exactly-once" or self._truth.generations[tp[0]] > 1:
            return  # a failed epoch has other stamps
        truth = self._truth.partitions[(tp[0], 1, tp[1])]
        offset = next(offset for offset, each in truth.versions.items() if any(v.value == value for v in each))
        ends = self._store.planned.items()
        epoch = min((each for each, offsets in ends if offsets.get(tp, 0) > offset), default=None)
        stamp = int(headers[b"spark.batch.id"] or b"-1")
        # It is higher after idle epochs, and if transactions were ahead of the logs.
        if epoch is not None and not truth.lost and not epoch <= stamp <= epoch + _MAX_STAMP_AHEAD:
            raise ViolationError(f"the record {value!r} of epoch {epoch} has the stamp {stamp}")

    def _required(self, topics: Collection[str]) -> Iterator[tuple[_Source, bytes]]:
        start = self._store.start or {}
        for (topic, generation, partition), truth in self._truth.partitions.items():
            if topic not in topics or self._truth.current(topic, partition) is not truth:
                continue
            # Offsets do not tell a recreated topic while no driver runs.
            earlier = [self._truth.partitions.get((topic, each, partition)) for each in range(1, generation)]
            first = max(start.get((topic, partition), 0), *(each.end for each in earlier if each is not None), 0)
            if generation > 1 and self.has_noticed_deletion(topic, generation):
                first = 0
            for version in truth.alive.values():
                if version.is_control or version.offset >= truth.high_watermark:
                    continue
                if self._committed_only and version.committed is not True:
                    continue
                is_passed = version in truth.decided_again or any(version.offset in each for each in truth.lost)
                is_passed = is_passed or version.offset < first or self._may_seem_lost(topic, version)
                is_passed = is_passed and not self._is_behind_planned_start(topic, partition, version)
                if is_passed and version.appended_at < (self.steady_at if version.offset >= first else math.inf):
                    continue
                assert version.value is not None
                if not (self._drops_rows and is_dropped(version.value)):
                    yield _Source(topic, generation, partition, version), version.value

    def _may_seem_lost(self, topic: str, version: Version) -> bool:
        """Return whether a deposed leader without the record may look like that of a recreated topic."""
        return not self._has_topic_ids and self._oracle.was_deposed(topic, version.appended_at, self.steady_at)

    def has_noticed_deletion(self, topic: str, generation: int) -> bool:
        """Return whether the last driver has read a topic before it was recreated, and so knows that it was."""
        if (
            generation == 1 or not self.jobs or not self._has_topic_ids or self._guarantee == "database"
        ):  # which stores no topic ids
            return False
        deleted_at = max(each.time for each in self._truth.events if each.topic == topic and each.kind == "deleted")
        last_driver = max(job.driver for job in self.jobs.values())
        return self.active_since.get(last_driver, math.inf) <= deleted_at

    def _is_behind_planned_start(self, topic: str, partition: int, version: Version) -> bool:
        """Return whether a record was appended behind the start that the last run has reported."""
        start = self.planned_starts.get((topic, partition))
        if start is None or self._guarantee == "database":  # whose positions precede the start
            return False
        last_job = next(reversed(self.jobs.values()))
        if start.time < last_job.time or not last_job.is_alone:
            return False
        has_changed = any(each.topic == topic and each.time >= start.time for each in self._truth.events)
        return (
            version.offset >= start.offset
            and version.appended_at > start.time
            and not has_changed
            and not self._oracle.was_deposed(topic, start.time, self.steady_at)
        )

    def _partition(self, source: _Source) -> PartitionTruth:
        return self._truth.partitions[source.topic, source.generation, source.partition]

    def _sources(self) -> Iterator[tuple[_Source, bytes]]:
        for (topic, generation, partition), truth in self._truth.partitions.items():
            if topic not in OUTPUTS:
                for versions in truth.versions.values():
                    for version in versions:
                        if version.value is not None and not version.is_control:
                            yield _Source(topic, generation, partition, version), version.value


def is_dropped(value: bytes) -> bool:
    """Whether the query's function drops the row."""
    return int(value.rsplit(b"/", 1)[1]) % 3 == 0


def output_topic(value: bytes, topics: int) -> str:
    """Return the topic to which the query writes a row."""
    return OUTPUTS[int(value.rsplit(b"/", 1)[1]) % topics]
