"""Range reads and counts: exactly the range's records, once and in order, or the error that the history justifies."""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.settings import task_settings
from tests.simulation.environment import Environment
from tests.simulation.errors import TRANSIENT_ERRORS, ViolationError
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED
from tests.simulation.scenarios.range_read_checks import (
    THROTTLES,
    ObservedCounts,
    check_batch,
    check_causes,
    check_counts,
    check_error,
    check_followers,
    check_markers,
    check_times,
    has_undecided,
)
from tests.simulation.scenarios.range_read_draw import SHORT_POLL_TIMEOUT, TOPICS, draw
from tests.simulation.scenarios.range_read_queries import BatchQuery
from tests.simulation.scenarios.several_topics import create_topics, partition_counts

from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_counter import count_range
from pyspark_kafka_direct.consumer.range_task import RangeTask
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    DataLossError,
    KafkaDirectError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.planning.data_loss import CONFIRMATION_SECONDS
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from tests.simulation.history import Plan
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scheduler import World
    from tests.simulation.wire import ReceivedRequest

    from pyspark_kafka_direct.client.metadata import PartitionLeader
    from pyspark_kafka_direct.options.settings import IsolationLevel

__all__ = ["NAME", "SHRINKABLE", "draw", "run"]

NAME = "range_reads"
SHRINKABLE = {"reads": 1, "topics": 1, "log": (), "append_list": (), "read_list": (), "query_list": ()}
_UNPROVEN_GAP_SECONDS = 60.0
_CONFIRMATION_SECONDS = _UNPROVEN_GAP_SECONDS + 5.0  # the longest one while all brokers respond
_CONNECT_SECONDS = 30.0  # socket.connection.setup.timeout.max.ms
_RECOVERY_SECONDS = 6.0  # within which a read finds the leader, and confirms that a partition is missing
_FROZEN_EVENTS = frozenset(("pause_broker", "delete_topic"))
_NEVER = 1e9
_ISOLATION_LEVELS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
_EVENTS_WITHOUT_ELECTION = frozenset(("delete_records", "expire_records", "compact_log", "throttle_broker"))
_SLACK = 2.0  # seconds by which an error may come late: the connects and responses on the way


def run(world: World, plan: Plan) -> None:
    environment = Environment(world, plan)
    parameters = plan.parameters
    counts = create_topics(environment, TOPICS)
    for number, batch in enumerate(parameters["append_list"], len(parameters["log"])):
        topic = TOPICS[number % len(counts)]
        world.at(environment.started_at + batch["at"], _append, environment, topic, batch, number)
    processes = [environment.process(f"executor-{number}") for number in range(parameters["processes"])]
    handler = _Warnings()
    driver = environment.process("driver") if parameters["has_driver"] else None
    reads = [
        _Read(environment, processes[number % len(processes)], driver, read, handler.messages)
        for number, read in enumerate(parameters["read_list"][: parameters["reads"]])
    ]
    for number, read in enumerate(reads):
        read.planner.spawn(f"read {number}", partial(read.run, number))
    for number, query in enumerate(parameters.get("query_list", ())):
        process = driver or processes[number % len(processes)]
        process.spawn(f"query {number}", BatchQuery(environment, process, counts, query).run)
    fetches = 0

    def count_fetch(request: ReceivedRequest) -> None:
        nonlocal fetches
        fetches += request.api == "Fetch"

    environment.network.on_request = count_fetch
    logger = logging.getLogger("pyspark_kafka_direct")
    logger.addHandler(handler)
    try:
        world.run()
    finally:
        logger.removeHandler(handler)
    environment.raise_errors()
    if not plan.events and not parameters.get("query_list") and fetches > sum(read.fetches for read in reads):
        raise ViolationError(f"{fetches} fetches were sent, and {[read.fetches for read in reads]} are needed")
    environment.check_released([*processes, *([] if driver is None else [driver])])


class _Warnings(logging.Handler):
    """Remembers the warnings of reads."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _append(environment: Environment, name: str, batch: Mapping[str, Any], number: int) -> None:
    topic = environment.cluster.topics.get(name)
    if topic is not None:
        environment.write_log(name, len(topic.partitions), [batch], first_number=number)


def _timeouts(plan: Plan) -> dict[str, int]:
    names = {"default_api_timeout_ms": "api_timeout_ms", "request_timeout_ms": "request_timeout_ms"}
    return {name: plan.parameters[parameter] for name, parameter in names.items()}


class _Planned:
    """The range of a read, as a driver plans it; a broker that lags may return offsets of an older generation."""

    def __init__(
        self,
        offsets: OffsetRange,
        topic_id: UUID | None,
        leader: PartitionLeader | None,
        generation: int,
        oldest_generation: int,
        at: float,
        began_at: float,  # the leader that responded may have been deposed before the plan was complete
    ) -> None:
        self.began_at = began_at
        self.oldest_generation = oldest_generation
        self.offsets = offsets
        self.topic_id = topic_id
        self.leader = leader
        self.generation = generation
        self.at = at


class _Read:
    """Plans one range, waits, and reads it; after the faults have stopped it must succeed."""

    def __init__(
        self,
        environment: Environment,
        process: SimulatedProcess,
        driver: SimulatedProcess | None,
        read: Mapping[str, Any],
        warnings: Sequence[str],
    ) -> None:
        self._warnings = warnings  # of all reads
        self.environment = environment
        self.process = process
        self.planner = process if driver is None else driver
        self._read_parameters = read
        counts = partition_counts(TOPICS, environment.plan.parameters)
        self._topics = tuple(counts)
        self._topic = self._topics[read["topic"] % len(counts)]
        self._partition = TopicPartition(self._topic, read["partition"])
        self._received_at = 0.0  # when records were received last, before an error
        self._isolation: IsolationLevel = "read_committed" if read["committed"] else "read_uncommitted"
        # A user may read with read_committed up to an offset that open transactions precede.
        self._planned_isolation: IsolationLevel = (
            "read_uncommitted" if read.get("plans_uncommitted") else self._isolation
        )
        self.fetches = 0  # requests that the read may have sent

    def run(self, number: int) -> None:
        read = self._read_parameters
        self.planner.sleep(read["at"])
        planned = self._plan()
        if planned is None:
            return
        self.planner.sleep(read["wait"])
        if self.planner is self.process:
            self._run_task(planned)
        else:
            self.process.spawn(f"task {number}", partial(self._run_task, planned))

    def _run_task(self, planned: _Planned) -> None:
        world = self.environment.world
        while True:
            started = world.now
            try:
                with world.operation():
                    self._read(planned)
                return
            except DataLossError as error:
                self._check_loss(planned, error)
                return
            except TopicNotFoundError as error:
                if (self._topic, planned.generation) not in self.environment.oracle.deleted_at:
                    raise ViolationError(f"the topic exists, but the read says: {error}") from error
                return
            except TRANSIENT_ERRORS as error:
                if self._is_gap_unproven(planned, error):
                    return
                self._check_frozen(planned, started, error)
                if self._must_succeed(started):
                    raise ViolationError(f"a read fails though no fault is left: {error!r}") from error
                self.process.sleep(1.0)

    def _is_gap_unproven(self, planned: _Planned, error: KafkaDirectError) -> bool:
        """Return whether a read timed out in a gap, before the time after which a gap need not be proven."""
        return (
            isinstance(error, BrokerTimeoutError)
            and error.offset is not None
            and self._read_parameters["poll_timeout"] < _UNPROVEN_GAP_SECONDS
            and self._may_be_unproven(planned, error.offset)
        )

    def _check_frozen(self, planned: _Planned, started: float, error: KafkaDirectError) -> None:
        """Check that the loss of a topic is confirmed although one broker does not respond."""
        environment = self.environment
        kinds = {event.kind for event in environment.plan.events}
        deleted_at = environment.oracle.deleted_at.get((self._topic, planned.generation), _NEVER)
        # While the query consumes a batch, the read requests nothing. Afterwards its poll timeout starts again, and a
        # short one ends before the request to the unresponsive leader, so that there is no evidence of a loss.
        passed = environment.world.now - max(started, deleted_at, self._received_at)
        seconds = 2 * environment.plan.parameters["request_timeout_ms"] / 1000 + CONFIRMATION_SECONDS + _SLACK
        if kinds <= _FROZEN_EVENTS and len(environment.plan.events) <= 2 and passed > seconds:
            raise ViolationError(
                f"the topic was deleted {passed:.1f} s ago, but one broker that does not respond hides that: {error!r}"
            ) from error

    def _must_succeed(self, started: float) -> bool:
        """Return whether a read has no reason to fail: no fault since its start, or for long enough to recover."""
        oracle, environment = self.environment.oracle, self.environment
        if oracle.created_at[self._topic, oracle.generations[self._topic]] >= started:
            return False
        is_short = self._read_parameters["poll_timeout"] == SHORT_POLL_TIMEOUT
        if started >= environment.quiet_at and not is_short:
            return True
        plan = environment.plan
        # A fault may have stalled a request, or a connect.
        stalled_seconds = plan.parameters["request_timeout_ms"] / 1000
        if any(event.kind == "stall_connect" for event in plan.events):
            stalled_seconds = max(stalled_seconds, _CONNECT_SECONDS)
        throttles = (event.args["ms"] / 1000 for event in plan.events if event.kind == "throttle")
        stalled_seconds = max(stalled_seconds, *throttles, 0.0)  # the client waits for as long as it was told
        # The timeout does not run while the query consumes a batch.
        stalled_seconds += self._read_parameters["pause"]
        quiet_seconds = (started if is_short else environment.world.now) - environment.quiet_at
        return bool(quiet_seconds > stalled_seconds + _RECOVERY_SECONDS)

    def _plan(self) -> _Planned | None:
        client = self.environment.client(
            self.planner, first_broker=self._read_parameters["planned_by"], **_timeouts(self.environment.plan)
        )
        read = self._read_parameters
        while True:
            quiet, started = self.environment.is_quiet, self.environment.world.now
            oldest = self.environment.oldest_generation(*self._partition)
            oldest_generations = self._oldest_generations()
            try:
                with self.environment.world.operation():
                    topics = client.topics(self._topics if read["plans_all"] else [self._topic])
                    if self._topic not in topics or read["partition"] not in topics[self._topic].partitions:
                        if quiet and self.environment.cluster.partition(self._partition) is not None:
                            raise ViolationError(f"metadata lacks {self._partition} though no fault is left")
                        return None
                    deadline = client.deadline()
                    partitions = [TopicPartition(name, index) for name in topics for index in topics[name].partitions]
                    planned = partitions if read["plans_all"] else [self._partition]
                    starts = client.offsets(dict.fromkeys(planned, EARLIEST), deadline=deadline)
                    latest = dict.fromkeys(planned, LATEST)
                    ends = client.offsets(latest, isolation_level=self._planned_isolation, deadline=deadline)
                    leader = client.known_leaders([self._partition]).get(self._partition)
                break
            except KafkaDirectError as error:
                self._check_time(started, 2 * self.environment.plan.parameters["api_timeout_ms"] / 1000, error)
                if isinstance(error, (TopicNotFoundError, DataLossError)):
                    return None
                if quiet or not isinstance(error, TRANSIENT_ERRORS):
                    raise ViolationError(f"planning fails, and no fault explains it: {error!r}") from error
                self.planner.sleep(1.0)
        self._check_offsets(starts, ends, started, oldest_generations)
        start, end = starts[self._partition], ends[self._partition]
        first = start + int((end - start) * read["from"])
        last = first + int((end - first) * read["until"])
        if first >= last:
            return None
        topic_id = topics[self._topic].topic_id
        if (self._topic, oldest, read["partition"]) not in self.environment.oracle.truths:  # it was created meanwhile
            oldest = self.environment.oldest_generation(*self._partition)
        return _Planned(
            OffsetRange(self._topic, read["partition"], first, last),
            topic_id if read["has_topic_id"] else None,
            leader if read["has_leader"] else None,
            oldest if topic_id is None else self.environment.cluster.generations_by_id[topic_id],
            oldest,
            self.environment.world.now,
            started,
        )

    def _oldest_generations(self) -> dict[TopicPartition, int]:
        """Return the oldest generation of each partition that a broker may report."""
        environment = self.environment
        partitions = {TopicPartition(topic, index) for topic, _, index in environment.oracle.truths}
        return {tp: environment.oldest_generation(*tp) for tp in partitions}

    def _check_offsets(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        began_at: float,
        oldest: Mapping[TopicPartition, int],
    ) -> None:
        """Compare planned offsets with the logs, unless an event may have deposed a leader."""
        environment = self.environment
        for event in environment.plan.events:
            kind = event.args.get("change", event.kind if event.at is not None else None)
            if kind is not None and kind not in _EVENTS_WITHOUT_ELECTION:
                return
        oracle = environment.oracle
        for tp in starts:
            violations = oracle.check_offsets(
                tp,
                starts[tp],
                ends[tp],
                _ISOLATION_LEVELS[self._planned_isolation],
                started_at=began_at,
                ended_at=environment.world.now,
                oldest_generation=oldest.get(tp, oracle.generations[tp.topic]),
            )
            if violations:
                raise ViolationError("; ".join(violations))

    def _read(self, planned: _Planned) -> None:
        read, environment = self._read_parameters, self.environment
        fetch = FetchSettings(
            self._isolation,
            client_rack=read.get("rack", ""),
            max_partition_fetch_bytes=environment.plan.parameters["fetch_bytes"],
        )
        task = RangeTask(
            planned.offsets,
            planned.topic_id,
            planned.leader,
            from_earliest=read["from_earliest"] and planned.offsets.from_offset == 0,
        )
        counts = ObservedCounts(environment.world)
        pool, settings = (
            environment.pool(self.process),
            environment.settings(first_broker=read["read_by"], **_timeouts(environment.plan)),
        )
        config = task_settings(
            settings, fetch, poll_timeout=read["poll_timeout"], fail_on_data_loss=read["fail_on_data_loss"]
        )
        started = progress = environment.world.now
        rows: list[tuple[int, bytes | None]] = []
        counted, paused = -1, 0.0
        try:
            if read["count"]:
                counted = count_range(*config, task, counts=counts, pool=pool)
            else:
                batches = read_range(
                    *config,
                    task,
                    read["columns"],
                    counts,
                    max_rows=read["max_rows"],
                    limit=read.get("limit"),
                    pool=pool,
                )
                with closing(batches):
                    for number, batch in enumerate(batches, 1):
                        check_batch(batch, read, self._partition, environment.oracle)
                        rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
                        if number == read["stop_after"]:
                            break
                        if number == read["pause_after"]:
                            self.process.sleep(read["pause"])
                            paused = read["pause"]
                        progress = environment.world.now
        except KafkaDirectError as error:
            self._received_at = max(progress, counts.received_at)
            # A confirmation may begin at any time, and wait for a broker that does not respond.
            unresponsive_seconds = 2 * environment.plan.parameters["request_timeout_ms"] / 1000 + CONFIRMATION_SECONDS
            confirmation_seconds = max(_CONFIRMATION_SECONDS, unresponsive_seconds)
            self._check_time(self._received_at, read["poll_timeout"] + confirmation_seconds, error)
            check_error(error, planned.offsets, rows[-1][0] + 1 if rows else planned.offsets.from_offset)
            self._check_rows_before_error(planned, rows, started)
            raise
        finally:
            self.fetches += counts.fetches + 1  # the last one may not be needed
            kinds = {event.kind for event in environment.plan.events}
            check_times(
                counts,
                environment.world.now - started,
                paused,
                may_be_throttled=bool(kinds & THROTTLES),
            )
            check_followers(counts, self._partition, read.get("rack", ""), environment)
        self._check_rows(planned, rows, counted, counts, started)
        check_causes(counts, planned.offsets, environment, planned.generation, self._warnings)

    def _check_rows_before_error(self, planned: _Planned, rows: list[tuple[int, bytes | None]], started: float) -> None:
        """Check what a read has returned that fails, if nothing was lost."""
        oracle, now = self.environment.oracle, self.environment.world.now
        (first, until), name = (planned.offsets.from_offset, planned.offsets.until_offset), self._partition
        generation, isolation = planned.generation, _ISOLATION_LEVELS[self._isolation]
        if planned.oldest_generation != generation or oracle.loss_reasons(
            name, first, until, since=planned.began_at, generation=generation
        ):
            return
        violations = oracle.check_range(name, generation, first, until, rows, isolation, started, now, is_prefix=True)
        if violations:
            raise ViolationError("; ".join(violations[:3]))

    def _check_rows(
        self,
        planned: _Planned,
        rows: list[tuple[int, bytes | None]],
        counted: int,
        counts: ObservedCounts,
        started: float,
    ) -> None:
        fail_on_data_loss = self._read_parameters["fail_on_data_loss"]
        from_earliest = self._read_parameters["from_earliest"] and planned.offsets.from_offset == 0
        oracle, now = self.environment.oracle, self.environment.world.now
        isolation = _ISOLATION_LEVELS[self._isolation]
        first, until = planned.offsets.from_offset, planned.offsets.until_offset
        name, generation = self._partition, planned.generation
        losses = oracle.loss_reasons(name, first, until, since=planned.began_at, generation=generation)
        # Records that were removed from the start of the log are not required, but all later ones are.
        may_skip = (not fail_on_data_loss or from_earliest) and bool(
            oracle.loss_reasons(
                name, first, until, since=planned.began_at, generation=generation, with_log_starts=False
            )
        )
        if counts.lost and self._may_seem_truncated(planned):
            may_skip = True
        if counts.unproven_gaps and not fail_on_data_loss:
            resumed_at = rows[-1][0] + 1 if rows else first
            may_skip = may_skip or self._may_be_unproven(planned, resumed_at)
        if planned.topic_id is None and planned.oldest_generation != generation:
            return  # a broker that lagged served the records of the deleted topic
        if counted >= 0:
            # Meanwhile some may be compacted away. A range of a recreated topic may end where the old one's log did,
            # so that records were appended meanwhile. And transactions may be committed meanwhile.
            before, expected = (
                {offset for offset, _ in oracle.records(name, first, until, isolation, at=at, generation=generation)}
                for at in (started, now)
            )
            if not (0 if may_skip else len(expected)) <= counted <= len(before | expected) and not losses:
                raise ViolationError(f"{counted} records are counted instead of {len(expected)}")
            if losses:
                self._check_count_after_loss(planned, counted, counts, before)
            return
        if planned.topic_id is None and (self._topic, generation) in oracle.deleted_at:
            return  # without topic ids the recreated topic's records look like those of the planned one
        stopped = bool(self._read_parameters["stop_after"] and rows and rows[-1][0] < until - 1)
        if not stopped:
            check_counts(counts, planned.offsets, len(rows), from_earliest=from_earliest)
            if not losses:
                check_markers(counts, planned.offsets, self.environment, generation)
            if isolation == READ_COMMITTED and not losses and has_undecided(self.environment, name, generation, until):
                raise ViolationError(f"a read until {until} ends, and transactions before that are open")
        may_mix_epochs = not fail_on_data_loss and DataLossCause.TRUNCATED in counts.skipped
        if not self.environment.cluster.settings.leader_epochs:  # the records of a later leader look the same
            may_mix_epochs = may_mix_epochs or bool(
                oracle.loss_reasons(name, first, until, since=started, generation=generation, with_log_starts=False)
            )
        violations = oracle.check_range(
            name,
            generation,
            first,
            until,
            rows,
            isolation,
            started,
            now,
            is_prefix=stopped,
            may_lack_records=may_skip,
            may_mix_epochs=may_mix_epochs,
        )
        if losses and not stopped:
            end = min(until, oracle.replaced_from(name, until, since=planned.at, at=now, generation=generation))
            present = oracle.records(name, first, end, isolation, at=planned.at, generation=generation)
            # Offsets without a record that replaced it are no gap for a reader; a later leader's marker may abort it.
            empty = oracle.empty_offsets(name, isolation, at=now, generation=generation)
            not_lost = {offset for offset, _ in rows} | empty
            # For a range that starts at "earliest", only what expired before its first record is no loss.
            first_required = first if not from_earliest else rows[0][0] if rows else until
            lost = sum(offset >= first_required and offset not in not_lost for offset, _ in present)
            if lost > counts.lost and not counts.gaps:
                violations.append(f"{lost} records are skipped, and {counts.lost} offsets are counted as lost")
        if violations:
            raise ViolationError("; ".join(violations[:3]))

    def _check_count_after_loss(
        self, planned: _Planned, counted: int, counts: ObservedCounts, present: set[int]
    ) -> None:
        """Check that each record that was ``present`` when a count began is counted, or its offset counts as lost."""
        oracle, generation = self.environment.oracle, planned.generation
        if (self._topic, generation) in oracle.deleted_at or self._may_seem_truncated(planned):
            return
        truth = oracle.truth(self._partition, generation)
        truncations = truth.truncations(self.environment.world.now)
        if truncations and self._isolation == "read_committed":
            return  # transactions are decided again
        # After a truncation, only records before it were in the logs of all leaders.
        end = min([planned.offsets.until_offset, *(lost.first for lost in truncations)])
        # What expired before the first record of a range that starts at "earliest" is no loss.
        first = truth.log_start() if self._read_parameters["from_earliest"] else 0
        removed = {entry.offset for entry in truth.compacted}
        required = sum(first <= offset < end and offset not in removed for offset in present)
        if counted < required - counts.lost - counts.unproven_gaps:
            raise ViolationError(
                f"{required} records are there when a count begins; it returns {counted}, and the counters are {counts}"
            )

    def _check_loss(self, planned: _Planned, error: DataLossError) -> None:
        if not self._read_parameters["fail_on_data_loss"]:
            raise ViolationError(f"failOnDataLoss is false, but the read fails: {error!r}") from error
        if "(records not returned)" in error.message:
            self._check_unproven_gap(planned, error)
            return
        oracle, offsets, generation = self.environment.oracle, planned.offsets, planned.generation
        was_deleted = (self._topic, generation) in oracle.deleted_at
        # Offsets of a deleted topic, from a broker that lagged, may lie beyond the end of the recreated one.
        has_older_offsets = planned.oldest_generation != generation and "(beyond the end of the log)" in error.message
        if "deleted" in error.message.partition(":")[0]:
            is_new = generation > 1 or self._partition.partition >= self.environment.plan.parameters["partitions"]
            is_justified = was_deleted or (is_new and self.environment.may_hide_partitions)
        else:
            first, until = offsets.from_offset, offsets.until_offset
            seems_truncated = "(beyond the end of the log)" in error.message and self._may_seem_truncated(planned)
            is_justified = (
                has_older_offsets
                or seems_truncated
                or bool(
                    oracle.loss_reasons(self._partition, first, until, since=planned.began_at, generation=generation)
                )
            )
            if is_justified and planned.topic_id is not None and not (has_older_offsets or seems_truncated):
                self._check_cause(planned, error)
        if not is_justified:
            raise ViolationError(f"nothing was lost, but the read says: {error!r}") from error

    def _check_cause(self, planned: _Planned, error: DataLossError) -> None:
        """Check that the bounds of a topic that was recreated are not taken for those of the planned one."""
        oracle, generation = self.environment.oracle, planned.generation
        first, until = planned.offsets.from_offset, planned.offsets.until_offset
        reasons = oracle.loss_reasons(self._partition, first, until, since=planned.began_at, generation=generation)
        # A deposed leader may not know of the deletion, and return the end of its own log of the planned topic. Brokers
        # that know of the deletion report no later epoch, so nothing refutes it. The records are lost nevertheless.
        truth = oracle.truth(self._partition, generation)
        last_epoch = truth.epochs[-1].epoch
        has_deposed_leader = last_epoch > 0 and truth.served_until(last_epoch) >= planned.began_at
        is_end_of_deposed = has_deposed_leader and "(beyond the end of the log)" in error.message
        if set(reasons) == {"the topic was deleted"} and not is_end_of_deposed:
            raise ViolationError(f"the topic was deleted, but the read says: {error!r}") from error

    def _may_seem_truncated(self, planned: _Planned) -> bool:
        """Return whether a deposed leader may look like that of a topic that was recreated with a shorter log."""
        oracle, now = self.environment.oracle, self.environment.world.now
        return not self.environment.cluster.settings.topic_ids and oracle.was_deposed(
            self._topic, planned.began_at, now
        )

    def _check_unproven_gap(self, planned: _Planned, error: DataLossError) -> None:
        """Check that a broker returned no records for a minute, and does not report where its local log begins."""
        assert error.offset is not None
        silent_seconds = self.environment.world.now - self._received_at
        if not self._may_be_unproven(planned, error.offset) or silent_seconds < _UNPROVEN_GAP_SECONDS:
            raise ViolationError(
                f"nothing was lost, but after {silent_seconds:.1f} s the read says: {error!r}"
            ) from error

    def _may_be_unproven(self, planned: _Planned, offset: int) -> bool:
        """Return whether a broker may not report what an offset is, which is in a gap or in tiered storage."""
        if self.environment.cluster.settings.earliest_local:
            return False
        target = self.environment.cluster.partition(self._partition)
        is_tiered = target is not None and any(offset < each.local_start for each in target.replicas.values())
        until, generation = planned.offsets.until_offset, planned.generation
        oracle = self.environment.oracle
        return is_tiered or not oracle.records(self._partition, offset, until, READ_UNCOMMITTED, generation=generation)

    def _check_time(self, since: float, seconds: float, error: Exception) -> None:
        passed = self.environment.world.now - since
        if passed > seconds + _SLACK:
            raise ViolationError(f"an error comes after {passed:.1f} s, not {seconds:.1f} s: {error!r}") from error
