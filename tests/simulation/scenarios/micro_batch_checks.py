"""Compares the sink of a streaming query, its offset log and its warnings with what happened to each record."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED
from tests.simulation.scenarios.micro_batch_options import GROUP, is_selected, selected_topics
from tests.simulation.scenarios.micro_batch_recreations import Looks, Recreations, Report, Run
from tests.simulation.scenarios.micro_batch_reports import (
    check_latest_offsets,
    check_limits,
    check_repeated_reports,
    check_reported_offsets,
    check_reports_of_recreations,
    check_resumptions,
    count_offsets,
    first_offsets,
    start_bounds,
)
from tests.simulation.scenarios.record_truth import generation_of
from tests.simulation.scenarios.spark_tasks import check_task_read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.oracle import Oracle
    from tests.simulation.scenarios.record_truth import RecordTruth, Version
    from tests.simulation.scenarios.spark_stand_in import BatchRead, Checkpoint, MicroBatchExecution
    from tests.simulation.scenarios.spark_tasks import TaskRead

_START = "(start)"  # the prefix of the keys with which the end of a first batch records the batch's start

Offsets = dict[tuple[str, int], int]


class _Row(NamedTuple):
    batch: int
    partition: tuple[str, int]
    generation: int
    offset: int
    value: bytes


class SinkChecker:
    """Checks the promises of a streaming query; each broken one is a ``ViolationError``."""

    def __init__(
        self,
        truth: RecordTruth,
        oracle: Oracle,
        cluster: SimulatedCluster,
        checkpoint: Checkpoint,
        reports: list[Report],
        *,
        look_seconds: float,
        may_lag: bool,
        may_hide_partitions: bool,
        may_deny_topics: bool,
    ) -> None:
        self._may_deny_topics = may_deny_topics
        self._may_hide_partitions = may_hide_partitions
        self._look_seconds = look_seconds
        self._may_lag = may_lag
        self._truth = truth
        self._oracle = oracle
        self._cluster = cluster
        self._checkpoint = checkpoint
        self._reports = reports
        self._runs: list[Run] = []
        self._looks: list[Looks] = []  # of each run
        self._recreations = Recreations(truth, cluster.settings, look_seconds, self._runs, self._looks)
        self._ends: list[Offsets] = []  # parsed entries of the offset log

    def begin_run(self, number: int, options: Mapping[str, str], trigger: str, now: float) -> None:
        self._runs.append(Run(number, options, trigger, now))

    def topics_changed(self, options: Mapping[str, str]) -> bool:
        """Return whether a selected topic or partition may have been missing, or the selection changed."""
        selected = selected_topics(options)
        return (
            self._truth.has_new_partitions
            or any(event.topic in selected for event in self._truth.events)
            or any(topic not in self._truth.generations for topic in selected)
            or any(selection(run.options) != selection(options) for run in self._runs)
        )

    def lag(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return position and end of each partition that has a lag."""
        ends = self._parsed_ends()
        if not ends or self._checkpoint.committed < len(ends):
            return {"a batch": "is not finished"}
        position = ends[-1]
        committed = self._isolation(options) == READ_COMMITTED
        found = {}
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                if not is_selected(options, topic.name, partition.index):
                    continue
                truth = self._truth.current(topic.name, partition.index)
                assert truth is not None
                end, next_offset = truth.high_watermark, position.get((topic.name, partition.index))
                stable = truth.stable_end() if committed else end
                if next_offset is None or not stable <= next_offset <= end:
                    found[f"{topic.name}-{partition.index}"] = f"{next_offset} of {stable} or {end}"
        return found

    def count_lag(self, options: Mapping[str, str]) -> int:
        """Return how many offsets are not read."""
        ends = self._parsed_ends()
        position = ends[-1] if ends else {}
        found = 0
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                truth = self._truth.current(topic.name, partition.index)
                if truth is not None and is_selected(options, topic.name, partition.index):
                    found += max(truth.end - position.get((topic.name, partition.index), 0), 0)
        return found

    def check_deadlines(self, execution: MicroBatchExecution, options: Mapping[str, str]) -> None:
        """Check that a run without faults has kept the deadlines of calls and tasks.

        A broker that requires a rebootstrap forever may delay the confirmation of a loss by the time for a request.
        """
        delay = 0.0
        if any(broker.rebootstrap_until == math.inf for broker in self._cluster.brokers.values()):
            delay = float(options.get("kafka.request.timeout.ms", "30000")) / 1000
        api_timeout = float(options.get("kafka.default.api.timeout.ms", "60000")) / 1000 + delay
        for name, called, returned in execution.calls:
            if returned - called > api_timeout:
                raise ViolationError(f"{name} takes {returned - called:.1f} s, although no fault is left")
        poll_timeout = float(options.get("kafkaConsumer.pollTimeoutMs", "120000")) / 1000 + delay
        for read in self._checkpoint.reads:
            for task in read.reads:
                if read.run == execution.number and task.ended_at - task.started_at > poll_timeout:
                    raise ViolationError(
                        f"a task takes {task.ended_at - task.started_at:.1f} s without a fault: {task}"
                    )

    def check_group(self, options: Mapping[str, str], initial: Mapping[tuple[str, int], int]) -> None:
        """Check that the group's offsets are those of finished batches; ``initial`` were committed before."""
        if "commitGroupId" not in options:
            return
        finished = self._parsed_ends()[: self._checkpoint.committed]
        for partition, (offset, *_) in GroupCoordinator.of(self._cluster).committed(GROUP).items():
            if offset != initial.get(partition) and all(end.get(partition) != offset for end in finished):
                raise ViolationError(
                    f"the group has offset {offset} of {partition}, and {len(finished)} batches are finished"
                )

    def check_available_now(self, execution: MicroBatchExecution, options: Mapping[str, str]) -> None:
        """Check that a run with Trigger.AvailableNow has read what there was at its start."""
        started_at, fixed_at = next(
            times for name, *times in execution.calls if name == "prepareForTriggerAvailableNow"
        )
        position = self._parsed_ends()[-1]
        first_batch = sum(logged.run < execution.number for logged in self._checkpoint.offsets)
        for topic in self._cluster.topics.values():
            for partition in topic.partitions:
                key = (topic.name, partition.index)
                truth = self._truth.current(*key)
                if truth is None or not is_selected(options, *key):
                    continue
                end = self._oracle.truth(key).end_offset(self._isolation(options), started_at)
                if position.get(key, -1) < end:
                    raise ViolationError(f"Trigger.AvailableNow ends at {position.get(key)} of {key}, and not at {end}")
                first = max(
                    (offsets.get(key, 0) for offsets in (self._first_start(), *self._ends[:first_batch])), default=0
                )
                if position.get(key, -1) > max(truth.max_watermark(fixed_at), first):
                    raise ViolationError(
                        f"Trigger.AvailableNow ends at {position[key]} of {key}, which was appended later"
                    )

    def check_idle_answers(self, execution: MicroBatchExecution, options: Mapping[str, str]) -> None:
        """Check that an answer without new records is not older than the question: processAllAvailable needs that."""
        if "minOffsetsPerTrigger" in options:
            return
        for asked_at, text in execution.idle_answers:
            for partition, position in _parse(text).items():
                if self._truth.current(*partition) is None:
                    continue  # its topic was recreated with fewer partitions
                end = self._oracle.truth(partition).end_offset(self._isolation(options), asked_at)
                if end > position:
                    raise ViolationError(
                        f"a call at {asked_at:.3f} says that the query has read everything, but {partition} ended at "
                        f"{end} then, and the query has read to {position}"
                    )

    def check_stable_end(self, options: Mapping[str, str]) -> None:
        """Check that a batch that was just planned has no undecided records."""
        if self._truth.events or self._isolation(options) != READ_COMMITTED:
            return
        batch = len(self._parsed_ends()) - 1
        start = self._start_of(batch)
        for partition, offset in self._ends[batch].items():
            truth = self._truth.current(*partition)
            if truth is not None and offset > max(truth.decided_end(), start.get(partition, 0)):
                raise ViolationError(f"batch {batch} ends at {offset} of {partition}, after the last stable offset")

    def end_run(self, execution: MicroBatchExecution) -> None:
        """Remember when a run has looked at the topics."""
        for time, start, end, latest in execution.latest_reports:
            if latest is not None:
                check_latest_offsets(self._truth, time, _parse(start), _parse(end), _parse(latest))
        self._looks.append([(called, returned) for name, called, returned in execution.calls if name == "latestOffset"])

    def check(self, options: Mapping[str, str]) -> None:
        """Check the whole history; ``options`` are those of the last run."""
        self._check_reports()
        check_repeated_reports(self._truth, self._reports)
        offsets = [self._first_start(), *self._parsed_ends()]
        check_reported_offsets(self._truth, self._reports, self._runs, offsets)
        check_resumptions(self._reports, self._checkpoint.offsets, offsets)
        if self._cluster.settings.topic_ids:
            check_reports_of_recreations(self._truth, self._reports, self._runs, may_lag=self._may_lag)
        self._recreations.check_reports(self._reports, self._checkpoint, self._parsed_ends())
        self._check_first_start()
        self._check_offset_log()
        for read in self._checkpoint.reads:
            self._check_read(read)
        self._check_repeated_reads()
        rows = self._check_rows()
        self._check_coverage(rows, options)

    # Reports.

    def _check_reports(self) -> None:
        """Check that each report of a data loss has a reason."""
        for report in self._reports:
            if not report.is_error and "data loss" not in report.text:
                continue
            topics = [topic for topic in self._truth.generations if topic in report.text]
            if not self._truth.explains(report.text, report.time) and not any(
                self._has_reason(topic, report) for topic in topics or self._truth.generations
            ):
                raise ViolationError(f"nothing was lost, but run {report.run} reports: {report.text}")

    def _has_reason(self, topic: str, report: Report) -> bool:
        runs = self._runs[: report.run + 1]
        # No broker that has an added partition may be reachable.
        if self._may_hide_partitions and self._truth.has_new_partitions and "deleted" in report.text:
            return True
        # Without topic ids a deposed leader looks like that of a recreated topic.
        if not self._cluster.settings.topic_ids and self._oracle.was_deposed(topic, runs[-1].started_at, report.time):
            return True
        # A run that replans a batch without a partition that it selects again calls that partition deleted.
        if len({selection(run.options) for run in runs}) > 1 and "PARTITIONS_DELETED" in report.text:
            return True
        if self._may_be_in_tiered_storage(report):
            return True
        # A user may give a start beyond the end.
        starts = [run.options.get("startingOffsets", "") for run in runs]
        return "offset was changed" in report.text and any("{" in start or start == "committed" for start in starts)

    def _may_be_in_tiered_storage(self, report: Report) -> bool:
        """Return whether a broker does not report where its local log begins, and tiered storage was silent."""
        found = re.search(r"records not returned.*\[topic (\S+), partition (\d+), offset (\d+)", report.text)
        target = None if found is None else self._cluster.partition((found[1], int(found[2])))
        if found is None or target is None or self._cluster.settings.earliest_local:
            return False
        return any(int(found[3]) < replica.local_start for replica in target.replicas.values())

    def _is_reported(self, partition: tuple[str, int], since: float, *, generation: int = 0, run: int = -1) -> bool:
        """Return whether a loss of the partition was reported from a time on, for a record of a topic generation."""
        return any(
            report.time >= since
            and partition[0] in report.text
            and run in (-1, report.run)
            and not self._promises(report, generation)
            for report in self._reports
            if report.is_error or "data loss" in report.text or "removed by retention" in report.text
        )

    def _promises(self, report: Report, generation: int) -> bool:
        """Return whether a planner reports that this topic generation is read from its start, and has logged that."""
        found = re.search(r"its id was \S+ and is (\S+) now; .* the new topic is read from its start", report.text)
        if found is None or report.is_error or self._cluster.generations_by_id.get(UUID(found[1])) != generation:
            return False
        return any(logged.run == report.run and logged.time >= report.time for logged in self._checkpoint.offsets)

    def _are_counted(self, count: int, run: int) -> bool:
        """Return whether a report since a run has so many partitions that it does not name; it names ten."""
        found = [re.search(r" and (\d+) more (are not|do not)", each.text) for each in self._reports if each.run >= run]
        return any(each and int(each[1]) >= count for each in found)

    # Offset log.

    def _parsed_ends(self) -> list[Offsets]:
        for logged in self._checkpoint.offsets[len(self._ends) :]:
            self._ends.append(_parse(logged.text))
        return self._ends

    def _first_start(self) -> Offsets:
        """Return the start that the end of the first batch records."""
        topics = json.loads(self._checkpoint.offsets[0].text)
        if _START in topics:
            return self._parsed_ends()[0]
        start: Offsets = {}
        for key in topics:
            if key.startswith(_START):
                start |= _parse(key.removeprefix(_START))
        return start

    def _start_of(self, batch: int) -> Offsets:
        return self._parsed_ends()[batch - 1] if batch else self._first_start()

    def _check_first_start(self) -> None:
        """Check where the query starts."""
        initial = self._checkpoint.initial
        if initial is None:
            return
        start = self._first_start()
        if start != _parse(initial.text):
            raise ViolationError(f"the query starts at {initial.text}, and the log of its first batch says {start}")
        options = initial.options
        known_at = initial.asked_at - self._cluster.settings.metadata_lag - self._look_seconds
        # Brokers do not list topics that the user may not describe.
        may_miss = self._may_deny_topics and "subscribePattern" in options
        for (topic, _, index), truth in self._truth.partitions.items() if not may_miss else ():
            existed = truth.created_at < known_at and truth.deleted_at == math.inf
            if existed and is_selected(options, topic, index) and (topic, index) not in start:
                raise ViolationError(f"the query starts without {topic}-{index}, which all brokers know")
        given = _parse(options["startingOffsets"]) if "{" in options.get("startingOffsets", "") else {}
        kind: str | int | None = options.get("startingOffsets")
        if "startingTimestamp" in options:
            kind = int(options["startingTimestamp"])
        times = (initial.asked_at, initial.returned_at)
        for partition, offset in start.items():
            wanted = {-2: "earliest", -1: "latest"}.get(given.get(partition, 0), kind) if given else kind
            if given.get(partition, -1) >= 0:
                if offset != given[partition]:
                    raise ViolationError(f"the query starts at {offset} of {partition}, not at {given[partition]}")
                continue
            if wanted not in ("earliest", "latest") and not isinstance(wanted, int):
                continue
            bounds = start_bounds(self._truth, self._oracle, partition, wanted, self._isolation(options), times)
            is_low = offset < bounds[0] and not self._oracle.was_deposed(partition[0], *times)
            if is_low or offset > bounds[1]:
                raise ViolationError(f"the query starts at {offset} of {partition}, and {wanted} means {bounds}")

    def _check_offset_log(self) -> None:
        """Check that no end was ahead of its log, and none went back without a loss."""
        for batch, end in enumerate(self._parsed_ends()):
            logged, start = self._checkpoint.offsets[batch], self._start_of(batch)
            for partition, offset in end.items():
                last = max((each.max_watermark(logged.time) for each in self._truth.of(*partition)), default=0)
                if offset > max(last, start.get(partition, 0)):
                    raise ViolationError(f"batch {batch} ends at {offset} of {partition}, and the log ended at {last}")
                if offset < start.get(partition, 0) and not self._is_reported(partition, 0.0):
                    raise ViolationError(f"batch {batch} starts at {start[partition]} of {partition}, ends at {offset}")
            unnamed = [each for each in start.keys() - end.keys() if not self._is_reported(each, 0.0)]
            if unnamed and not self._are_counted(len(unnamed), logged.run):
                raise ViolationError(f"batch {batch} ends without {min(unnamed)}, which it starts with")
            if all(event.kind == "log start" for event in self._truth.events):
                self._check_limits(batch)

    def _check_limits(self, batch: int) -> None:
        """Check the size of a batch; what has expired before the planner looked does not count."""
        logged, start, end = self._checkpoint.offsets[batch], self._start_of(batch), self._ends[batch]
        previous = self._checkpoint.offsets[batch - 1] if batch else None
        before = first_offsets(self._truth, self._start_of(batch - 1), previous.time) if previous else {}
        run, read_before = self._runs[logged.run], count_offsets(before, self._ends[batch - 1])
        times = (logged.asked_at, logged.time) if run.options["failOnDataLoss"] == "false" else (0.0, 0.0)
        counts = [count_offsets(first_offsets(self._truth, start, time), end) for time in times]
        check_limits(batch, counts, run, logged, previous, read_before, None if self._truth.events else self._cluster)

    # Reads.

    def _check_read(self, read: BatchRead) -> None:
        """Check that the tasks of a batch read its offsets, each once."""
        start, end = self._start_of(read.batch), self._parsed_ends()[read.batch]
        if _parse(read.end) != end:
            raise ViolationError(f"batch {read.batch} runs until {read.end}, and its logged end is {end}")
        if read.run != self._checkpoint.offsets[read.batch].run:
            left_out = [each for each in start.keys() - end.keys() if not self._is_reported(each, 0.0, run=read.run)]
            if left_out and not self._are_counted(len(left_out), read.run):
                raise ViolationError(f"batch {read.batch} runs again without {min(left_out)}, which it starts with")
        ranges: dict[tuple[str, int], list[TaskRead]] = {}
        self._check_tasks(read)
        for task in read.reads:
            ranges.setdefault((task.offsets.topic, task.offsets.partition), []).append(task)
            self._check_task(task, self._runs[read.run].options)
        for partition, until in end.items():
            tasks = ranges.pop(partition, [])
            position = tasks[0].offsets.from_offset if tasks else until
            expected = start.get(partition, 0)
            if position != expected and expected < until and not self._may_move(read, partition, position):
                raise ViolationError(f"batch {read.batch} reads {partition} from {position}, not from {expected}")
            for task in tasks:
                if task.offsets.from_offset != position:
                    raise ViolationError(f"the tasks of batch {read.batch} leave a gap or overlap: {tasks}")
                position = task.offsets.until_offset
            if position != until:
                raise ViolationError(f"batch {read.batch} reads {partition} until {position}, and ends at {until}")
        if ranges:
            raise ViolationError(f"batch {read.batch} reads {sorted(ranges)}, which its end lacks")

    def _check_tasks(self, read: BatchRead) -> None:
        """Check the sizes of a batch's tasks."""
        options, counts = self._runs[read.run].options, [task.offsets.count() for task in read.reads]
        most = int(options.get("maxRecordsPerPartition", max(counts, default=0)))
        fewest = min(int(options.get("minPartitions", 0)), sum(counts)) // 2  # rounding may give some fewer
        if len(counts) < fewest or any(not 0 < count <= most for count in counts):
            raise ViolationError(f"batch {read.batch} has tasks with {counts} offsets: {dict(options)}")

    def _may_move(self, read: BatchRead, partition: tuple[str, int], position: int) -> bool:
        """Return whether a batch may read a partition from another offset than its start."""
        if self._is_reported(partition, 0.0):
            return True
        # Partitions that are found while the first batch waits for its next try belong to the second batch.
        return read.batch == 0 and partition not in self._first_start() and position == self._ends[0][partition]

    def _check_task(self, task: TaskRead, options: Mapping[str, str]) -> None:
        fail_on_data_loss = options["failOnDataLoss"] == "true"
        # A batch of an earlier run may have a topic that is no longer selected, so the planner has no id of it.
        has_id = self._cluster.settings.topic_ids and task.offsets.topic in selected_topics(options)
        check_task_read(
            task,
            self._oracle,
            self._truth,
            self._isolation(options),
            fail_on_data_loss=fail_on_data_loss,
            generations_by_id=self._cluster.generations_by_id if has_id else None,
        )

    def _check_repeated_reads(self) -> None:
        """Check that a batch that runs again has the same ranges and rows."""
        first: dict[int, BatchRead] = {}
        for read in self._checkpoint.reads:
            earlier = first.setdefault(read.batch, read)
            if earlier is read:
                continue
            for partition in self._ends[read.batch]:
                if self._truth.has_lost(partition[0], None, read.ended_at):
                    continue
                ranges = [_range_of(each, partition) for each in (earlier, read)]
                if ranges[0] != ranges[1]:
                    raise ViolationError(f"batch {read.batch} reads {ranges[0]} of {partition}, then {ranges[1]}")

    # Rows.

    def _check_rows(self) -> dict[bytes, _Row]:
        """Check that each row of the sink is a record, and there once; return the rows by value."""
        levels = {run.number: self._isolation(run.options) for run in self._runs}
        rows: dict[bytes, _Row] = {}
        for batch in range(self._checkpoint.committed):
            committed = levels[self._checkpoint.sink[batch].run] == READ_COMMITTED
            for task in self._checkpoint.sink[batch].reads:
                partition = (task.offsets.topic, task.offsets.partition)
                for offset, value in task.rows:
                    assert value is not None
                    row = _Row(batch, partition, generation_of(value), offset, value)
                    version = self._version_of(row)
                    if version is None:
                        raise ViolationError(f"the sink has a row that is no record: {row}")
                    if committed and version.committed is False:
                        raise ViolationError(f"the sink has an aborted record: {row}")
                    earlier = rows.get(value)
                    if earlier is not None and not self._went_back(earlier, batch):
                        raise ViolationError(f"the sink has a record twice: {earlier} and {row}")
                    rows[value] = row
        return rows

    def _version_of(self, row: _Row) -> Version | None:
        truth = self._truth.partitions.get((row.partition[0], row.generation, row.partition[1]))
        versions = [] if truth is None else truth.versions.get(row.offset, [])
        return next((each for each in versions if each.value == row.value), None)

    def _went_back(self, row: _Row, last: int) -> bool:
        """Return whether the query reported a loss and went back before a row, or continued without its partition."""
        return any(end.get(row.partition, 0) <= row.offset for end in self._ends[row.batch : last])

    # Coverage.

    def _check_coverage(self, rows: Mapping[bytes, _Row], options: Mapping[str, str]) -> None:
        """Check that no record is missing without a reason."""
        committed = self._isolation(options) == READ_COMMITTED
        for (topic, generation, index), truth in self._truth.partitions.items():
            for versions in truth.versions.values():
                for version in versions:
                    if version.is_control or version.deposed or version.readable_at == math.inf:
                        continue
                    if version.value in rows or (committed and version.committed is not True):
                        continue
                    if truth.deleted_at != math.inf or version.removed_at != math.inf:
                        self._check_gone(topic, generation, index, version)
                    elif is_selected(options, topic, index):
                        others = [each for each in versions if each.value in rows]
                        if not self._is_older(rows, (topic, index), version.offset, generation):
                            self._check_missing(topic, generation, index, version, is_replaced=bool(others))

    def _is_older(self, rows: Mapping[bytes, _Row], partition: tuple[str, int], offset: int, generation: int) -> bool:
        """Return whether the deleted topic was read: without topic ids, or in a batch that another run had planned."""
        older = [row for row in rows.values() if row.partition == partition and row.generation < generation]
        if not self._cluster.settings.topic_ids:
            return any(row.offset == offset for row in older)
        reads, plans = self._checkpoint.sink, self._checkpoint.offsets
        again = [row for row in older if reads[row.batch].run != plans[row.batch].run]
        return any(row.offset <= offset < self._ends[row.batch].get(partition, 0) for row in again)

    def _check_missing(self, topic: str, generation: int, index: int, version: Version, *, is_replaced: bool) -> None:
        """Check why a record that exists until the end is not in the sink, or only another one with its offset."""
        partition = (topic, index)
        if version.offset < self._first_start().get(partition, 0) and generation <= self._first_generation(topic):
            return
        if self._is_reported(partition, version.appended_at, generation=generation):
            return
        is_truncated = self._truth.has_lost(topic, index, math.inf, ("truncated",))
        seen = (
            generation > 1
            and not is_truncated
            and (
                self._recreations.was_seen(topic, generation)
                or any(topic in report.text and self._promises(report, generation) for report in self._reports)
            )
        )
        # A broker that lags returns the ends of a deleted topic for a while.
        known_at = version.readable_at
        if generation > 1:
            known_at += self._cluster.settings.metadata_lag + self._look_seconds
        record = version.offset, version.value
        for batch, end in enumerate(() if seen else self._ends):
            # The log was truncated or the topic recreated, and grew again before anyone looked; perhaps while the
            # planner waited for the ends of other partitions. Or an earlier log, with the record, came back later:
            # Spark's offsets have no leader epochs.
            logged = self._checkpoint.offsets[batch]
            planned_at = logged.asked_at if self._truth.has_lost(topic, index, logged.time) else logged.time
            if end.get(partition, 0) > version.offset and (
                planned_at < known_at
                # A leader that was deposed while it was isolated returned its own record.
                or (is_replaced and self._oracle.was_deposed(topic, logged.asked_at, logged.time))
                or not self._oracle.was_in_log(partition, generation, record, planned_at, logged.time)
            ):
                return
        raise ViolationError(
            f"offset {version.offset} of {topic}-{index} (topic {generation}) is missing: {version.value!r}, "
            f"appended at {version.appended_at:.3f}, readable at {version.readable_at:.3f}"
        )

    def _check_gone(self, topic: str, generation: int, index: int, version: Version) -> None:
        """Check that the loss of a record that a batch should have was reported."""
        if version.reason == "compacted":
            return
        partition = (topic, index)
        if self._truth.generations[topic] > 1 or self._is_reported(partition, version.readable_at):
            return
        for batch in range(self._checkpoint.committed):
            start, end, read = self._start_of(batch), self._ends[batch], self._checkpoint.sink[batch]
            if not start.get(partition, 0) <= version.offset < end.get(partition, 0):
                continue
            if self._checkpoint.offsets[batch].time < version.readable_at:
                continue
            others = self._truth.partitions[topic, generation, index].versions[version.offset]
            if any(other is not version and other.appended_at <= read.ended_at for other in others):
                continue
            raise ViolationError(
                f"offset {version.offset} of {topic}-{index} is missing in batch {batch}, and its loss "
                f"({version.reason} at {version.removed_at:.3f}) was not reported: {version.value!r}"
            )

    def _first_generation(self, topic: str) -> int:
        """Return the generation of a topic when the query's start was resolved."""
        time = self._checkpoint.offsets[0].time
        return max(
            (
                number
                for (name, number, _), truth in self._truth.partitions.items()
                if name == topic and truth.created_at <= time
            ),
            default=0,
        )

    @staticmethod
    def _isolation(options: Mapping[str, str]) -> int:
        return READ_COMMITTED if options.get("kafka.isolation.level") == "read_committed" else READ_UNCOMMITTED


def _parse(text: str) -> Offsets:
    return {
        (topic, int(partition)): offset
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def selection(options: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(options.get(name) for name in ("subscribe", "subscribePattern", "assign"))


def _range_of(read: BatchRead, partition: tuple[str, int]) -> tuple[int, int] | None:
    tasks = [each for each in read.reads if (each.offsets.topic, each.offsets.partition) == partition]
    return (tasks[0].offsets.from_offset, tasks[-1].offsets.until_offset) if tasks else None
