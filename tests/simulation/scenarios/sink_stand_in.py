"""A stand-in for Spark that runs a query with the exactly-once sink: drivers, tasks, executors and the commit log."""

from __future__ import annotations

import dataclasses
import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tests.simulation.errors import ViolationError
from tests.simulation.scenarios.several_topics import partition_at, partition_counts
from tests.simulation.scenarios.sink_commits import STATE_TOPIC, TARGETS, FencingCheck, is_calm, is_certain
from tests.simulation.scenarios.sink_incidents import is_open
from tests.simulation.scenarios.sink_tasks import SinkRow, TaskSet, damage_file, staged_sizes
from tests.simulation.scenarios.sink_writes import Checkpoint, SinkWrite, kind_of, uuid_of

from pyspark_kafka_direct.datasource.exactly_once_committer import ExactlyOnceCommitter
from pyspark_kafka_direct.datasource.staging_folder import prepare_staging
from pyspark_kafka_direct.datasource.write_task import StagingConfig, StagingWriteTask
from pyspark_kafka_direct.errors import KafkaDirectError, TransactionStateError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.payloads.write_schema import WriteSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.simulation.cluster.stored_batch import Headers
    from tests.simulation.environment import Environment
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scheduler import Task

    from pyspark_kafka_direct.datasource.write_task import StagedCommitMessage
    from pyspark_kafka_direct.spark.write_report import PartitionWriteReport

_SCHEMA = WriteSchema(value=0, partition=1, key=2, headers=3, timestamp=4)
_SCHEMA_WITH_TOPIC = dataclasses.replace(_SCHEMA, topic=5)
_TASK_ATTEMPTS = 4  # spark.task.maxFailures
_OTHER_RECORDS: Final = 310  # more than the sink reads first
_MAX_RUNS = 60  # while faults occur, and as many afterwards
_TOKEN: Final = re.compile(r"set resetTransactionState to (\w+)")
_WRONG_TOKEN: Final = "0123456789abcdef"


class ConcurrentRunError(Exception):
    """Another run has written the batch's entry of the commit log, so Spark ends this one."""


class SinkQuery:
    """A streaming query with its checkpoint, which outlives its drivers.

    Args:
        environment: The environment.
        name: The name, which each row contains.
        parameters: ``topics`` and ``partitions``; ``batches``, a sequence of the partitions of each batch's rows
            (``draw_place``); ``names_topics``, whether rows name their topics; ``stamp``;
            ``parallelism`` of each run in turn; ``prefix``; ``restart_seconds``; ``pauses``, seconds before
            steps of batches as ``[run, batch, step, seconds]``; ``speculated`` batches; the settings of timeouts; and
            optionally what ``draw_kinds`` and ``draw_rows`` have drawn.
        number: Which one of the queries this is.
        folder: A folder for the checkpoint and staged files; None: rows are staged in messages.
    """

    def __init__(
        self,
        environment: Environment,
        name: str,
        parameters: Mapping[str, Any],
        number: int = 0,
        folder: str | None = None,
    ) -> None:
        self.environment = environment
        self.name = name
        self.parameters = parameters
        self.kind = kind_of(parameters, number)
        self.id = uuid_of(0x5EED_0000 + sum(name.encode()))
        self.folder = None if folder is None else f"{folder}/{name}"
        self.batches: Sequence[Sequence[int]] = parameters["batches"][: parameters["batch_count"]]
        self.commit_log: dict[int, str] = {}  # run ids by batch
        self.reports: dict[int, Mapping[TopicPartition, PartitionWriteReport]] = {}  # by batch
        self.committing: dict[int, set[int]] = {}  # numbers of the drivers that called the commit, by batch
        self.drivers: list[SinkDriver] = []
        self.tasks: list[Task] = []  # of the drivers
        self.rejection: TransactionStateError | None = None  # that no restart resolves
        self.newest_ticket = -1  # the offset
        self.denied: set[int] = set()  # tickets of commits that failed for certain
        self.notes: list[str] = []  # violations that matter less than lost and duplicated rows
        self.executors: list[SimulatedProcess] = []
        self.attempts: set[tuple[bytes, bytes, bytes]] = set()  # rows with the task and the attempt that wrote them
        self.attempt_count = 0
        self.writes: dict[int, SinkWrite] = {}  # by the offset of their tickets
        self.failures: list[KafkaDirectError] = []  # that ended runs
        self.reset_tokens: list[str] = []  # that the user has set, the newest one last
        self.is_mended = False  # the user has corrected what was configured wrongly
        self.open_after_failure = False  # a commit has failed, and its transaction was open then
        self.mend: Callable[[], object] = _nothing_to_mend
        self.staged_bytes: list[int] = []  # of the record batches of each write
        self.write_seconds: list[float] = []  # of writes that succeeded
        self._state_was_lost = False
        self.abandoned: set[int] = set()  # batches that are not written again, because nothing identifies their job
        self._checkpoints: dict[str, Checkpoint] = {}
        self._started_batches = 0
        self._executor_number = 0

    @property
    def is_done(self) -> bool:
        done = {*self.commit_log, *self.abandoned}
        return self.rejection is not None or len(done) == len(self.batches)

    @property
    def is_repeated(self) -> bool:
        """Whether a batch that may have been written is written again."""
        return self.kind != "unnamed"

    def next_batch(self, previous: int | None) -> int:
        """Return the batch that a driver runs after another one, or first."""
        if not self.is_repeated:
            self._started_batches += 1
            return self._started_batches - 1
        return len(self.commit_log) if previous is None else previous + 1

    def is_skipped(self, batch: int) -> bool:
        """Whether the function of ``foreachBatch`` does not write a batch."""
        return self.kind == "foreach" and batch in self.parameters.get("skipped", ())

    def rows(self, batch: int) -> list[SinkRow]:
        """Return a batch's rows."""
        if self.is_skipped(batch):
            return []
        counts = partition_counts(TARGETS, self.parameters)
        return [
            SinkRow(b"%s-%d-%d" % (self.name.encode(), batch, row), partition_at(counts, place))
            for row, place in enumerate(self.batches[batch])
        ]

    def stamp(self, batch: int) -> Headers:
        """Return the headers that ``stampBatch`` adds to all rows of a batch."""
        if not self.parameters["stamp"]:
            return ()
        if self.kind not in ("stream", "foreach"):  # they have no query
            return ()
        return ((b"spark.query.id", self.id.encode()), (b"spark.batch.id", b"%d" % batch))

    def expects_rejection(self, batch: int) -> bool:
        """Whether a batch is rejected until the user sets a token: the sink has no state of an earlier one."""
        return batch > 0 and self.kind in ("stream", "foreach") and self.parameters.get("lost_state") == batch

    def before_write(self, batch: int) -> None:
        """Do what others do to the sink state topic before a batch."""
        cluster, partition = self.environment.cluster, (STATE_TOPIC, 0)
        if batch in self.parameters.get("busy_topic", ()):
            keys = [b"other.sink.%d/ticket" % number for number in range(_OTHER_RECORDS)]
            cluster.append(partition, [None] * _OTHER_RECORDS, keys=keys)
        if self.parameters.get("lost_state") == batch and not self._state_was_lost:
            self._state_was_lost = True
            configs = dict(cluster.topics[STATE_TOPIC].configs)
            cluster.delete_topic(STATE_TOPIC)
            cluster.create_topic(STATE_TOPIC, 1, configs=configs)

    @property
    def restored_batch(self) -> int:
        """The last batch of a checkpoint that was restored; it may be older than the last one that was written."""
        last = len(self.batches) - 1
        return max(0, last - int(self.parameters.get("restored_age", 0)))

    @property
    def may_be_restored(self) -> bool:
        """Whether a write of this or a later batch has left a state, by which another one of it is recognized."""
        batches = range(self.restored_batch, len(self.batches))
        is_written = any(not self.is_skipped(batch) for batch in batches) and not self.is_skipped(self.restored_batch)
        return self.rejection is None and self.is_repeated and is_written

    @property
    def misconfigured(self) -> str | None:
        """What the user has configured wrongly, and not corrected."""
        return None if self.is_mended else self.parameters.get("misconfigured")

    def checkpoint(self, path: str) -> Checkpoint:
        """Return the checkpoint in a folder."""
        if path not in self._checkpoints:
            self._checkpoints[path] = Checkpoint(path, self.id)
        return self._checkpoints[path]

    def all_rows(self) -> Iterator[SinkRow]:
        """Return the rows of all batches."""
        return chain.from_iterable(map(self.rows, range(len(self.batches))))

    def start_driver(self) -> None:
        """Start a driver process; others may run already."""
        if self.is_done or (not self.is_repeated and self._started_batches >= len(self.batches)):
            return
        if len(self.drivers) >= _MAX_RUNS and not self.environment.is_quiet:
            self.environment.world.at(self.environment.quiet_at, self._restart_after, self.drivers[-1])
            return
        if len(self.drivers) >= 2 * _MAX_RUNS:
            self.notes.append(f"query {self.name} was started {2 * _MAX_RUNS} times and is not done")
            return
        driver = SinkDriver(self, len(self.drivers))
        self.drivers.append(driver)
        self.tasks.append(driver.process.spawn("query", driver.run))

    def start_restored(self) -> Task:
        """Start a driver whose checkpoint was restored, and has another last batch than the one that was written."""
        driver = SinkDriver(self, len(self.drivers), content=", restored")
        return driver.process.spawn("query", driver.run_restored)

    def driver_ended(self, driver: SinkDriver) -> None:
        """Restart the query, unless a newer driver runs."""
        if driver is self.drivers[-1] and not self.is_done:
            self.environment.world.after(self.parameters["restart_seconds"], self._restart_after, driver)

    def paused(self, process: SimulatedProcess) -> None:
        """Replace a driver that hangs; the old one wakes up later."""
        if self.drivers and process is self.drivers[-1].process:
            self.environment.world.after(self.parameters["restart_seconds"], self.start_driver)

    def executor(self, slot: int) -> SimulatedProcess:
        """Return an executor that lives."""
        living = [each for each in self.executors if not each.dead]
        while len(living) <= slot:
            self._executor_number += 1
            process = self.environment.process(f"{self.name}-executor-{self._executor_number}")
            self.executors.append(process)
            living.append(process)
        return living[slot]

    def _restart_after(self, driver: SinkDriver) -> None:
        if driver is self.drivers[-1]:
            self.start_driver()


class SinkDriver:
    """One run of the query."""

    def __init__(self, query: SinkQuery, number: int, *, content: str = "") -> None:
        self.content = content  # of its batches, as far as it differs from that of other drivers
        self.query = query
        self.number = number
        self.run_id = uuid_of((sum(query.name.encode()) << 32) + number + 1)
        self.process = query.environment.process(f"{query.name}-driver-{number}")
        self.started_at = query.environment.world.now
        self.ticket = -1  # the offset of the current batch's
        parameters = query.parameters
        prefix = parameters["prefix"]
        topic = None if parameters["names_topics"] else TARGETS[0]
        connection = query.environment.settings(
            request_timeout_ms=parameters["request_timeout_ms"],
            default_api_timeout_ms=parameters["api_timeout_ms"],
            metadata_max_age_ms=parameters.get("metadata_max_age_ms", 300_000),
        )
        produce = ProducerSettings(
            batch_bytes=parameters["batch_bytes"],
            buffer_bytes=parameters.get("buffer_bytes", 1 << 25),
            delivery_timeout_ms=parameters["delivery_timeout_ms"],
        )
        checkpoint, location, threshold = None, None, 1 << 20
        if query.folder is not None:
            files = parameters["files"]
            threshold = files["threshold"]
            location = f"{query.folder}/staging" if files["is_set"] else None
            checkpoint = f"{query.folder}/checkpoint{content}"
        self._checkpoint = None
        if checkpoint is not None:
            self._checkpoint = query.checkpoint(checkpoint)
        staging = StagingConfig(f"{prefix}.sink", threshold, location)
        self._task = StagingWriteTask(
            connection=connection,
            produce=produce,
            schema=_SCHEMA if topic is not None else _SCHEMA_WITH_TOPIC,
            topic=topic,
            stamp=parameters["stamp"],
            staging=staging,
            ticket=None,
            job=None,
            has_checkpoint=checkpoint is not None,
        )
        self._committer = ExactlyOnceCommitter(
            connection=connection,
            produce=produce,
            staging=staging,
            prefix=prefix,
            topic=topic,
            sink_state_topic=STATE_TOPIC,
            timeout_ms=parameters["transaction_timeout_ms"],
            reset_token=query.reset_tokens[-1] if query.reset_tokens else None,
            checkpoint=checkpoint,
        )

    @property
    def is_newest(self) -> bool:
        return self is self.query.drivers[-1]

    def run(self) -> None:
        """Run batches until all are committed, or until one fails; the query then restarts."""
        world = self.query.environment.world
        batch = self.query.next_batch(None)
        try:
            while batch < len(self.query.batches):
                with world.operation():
                    self._run_batch(batch)
                batch = self.query.next_batch(batch)
        except ConcurrentRunError as error:
            world.trace("run ended", self.process.name, str(error))
        except KafkaDirectError as error:
            text = str(error).replace(str(self.query.folder), "FOLDER")
            world.trace("run failed", self.process.name, batch, type(error).__name__, text[:160])
            self.query.failures.append(error)
            self._check_failure(batch, error)
        finally:  # also if the process dies
            if not self.query.is_repeated and batch not in self.query.commit_log and batch < len(self.query.batches):
                self.query.abandoned.add(batch)
            self.query.driver_ended(self)

    def run_restored(self) -> None:
        """Run the last batch again, which has other content and must be rejected; a job of the same name is skipped."""
        query = self.query
        batch = query.restored_batch
        try:
            with query.environment.world.operation():
                report = self._write_batch(batch)
        except TransactionStateError as error:
            if query.kind == "job":
                query.notes.append(f"a job that is submitted again is not skipped: {error}")
        except KafkaDirectError as error:
            query.notes.append(f"a restored batch fails though no fault is left: {error!r}")
        else:
            if query.kind != "job":
                query.notes.append("a batch with other content than the one that was written is not rejected")
            elif report is not None:
                query.notes.append("a job that is submitted again is written again")

    def _run_batch(self, batch: int) -> None:
        query = self.query
        report = None if query.is_skipped(batch) else self._write_batch(batch)
        if query.kind == "foreach" and batch in query.parameters.get("second_writes", ()) and report is not None:
            self._write_again(batch)
        self._pause(batch, "commit log")
        if batch in query.commit_log:
            raise ConcurrentRunError(f"batch {batch} has an entry in the commit log")
        query.commit_log[batch] = self.run_id
        query.environment.world.trace("batch committed", self.process.name, batch)

    def _write_again(self, batch: int) -> None:
        """Write a batch once more in the same call of the function of ``foreachBatch``, which must be rejected."""
        try:
            report = self._write_batch(batch)
        except KafkaDirectError as error:
            self.query.environment.world.trace("second write failed", self.process.name, batch, type(error).__name__)
        else:
            self.query.notes.append(f"a second write of batch {batch} is not rejected, but reported as {report}")

    def _write_batch(self, batch: int) -> Mapping[TopicPartition, PartitionWriteReport] | None:
        """Plan, run and commit one write; return what it reports."""
        query = self.query
        pool = query.environment.pool(self.process)
        started_at = query.environment.world.now
        self._pause(batch, "plan")
        if batch > 0 and query.parameters.get("lost_state") == batch:
            self.process.sleep(1.0)  # the transaction before has ended
        query.before_write(batch)
        content = f"{query.name} {batch}{self.content}"
        if self._checkpoint is not None:
            content = self._checkpoint.write_offsets(batch, content)
        write = SinkWrite.of(query.kind, query.id, self.run_id, batch, content, self.process.nonce())
        self._committer.prepare(pool)
        staging = self._committer.staging
        if query.folder is not None:
            staging = prepare_staging(staging, self._committer.checkpoint, self.process)
        ticket = self._committer.append_ticket(pool)
        self.ticket, query.newest_ticket = ticket.offset, max(ticket.offset, query.newest_ticket)
        query.writes[ticket.offset] = write
        task = dataclasses.replace(self._task, ticket=ticket, job=write.job, staging=staging)
        self._pause(batch, "tasks")
        messages = self._run_tasks(batch, task, write)
        self._pause(batch, "commit")
        staged_bytes = staged_sizes(messages)
        query.staged_bytes.append(sum(staged_bytes.values()))
        committing = query.committing.setdefault(batch, set())
        is_first = self.number not in committing
        committing.add(self.number)
        fencing = FencingCheck(query.environment, self.process, write.query, self.ticket)
        if query.misconfigured == "file":
            damage_file(messages, batch + self.number)
        batch_id = batch if query.kind == "stream" else None
        reported: list[StagedCommitMessage | None] = [*messages]
        if query.misconfigured == "messages":
            reported[-1] = None
        elif query.misconfigured == "batch":
            batch_id = batch + 1
        try:
            report = self._committer.commit(reported, batch_id, pool)
        except KafkaDirectError as error:
            if is_certain(error):
                query.denied.add(self.ticket)
            fencing.check()
            transactional_id = f"{query.parameters['prefix']}.sink"
            transactional_id += f".{quote(write.query, safe='')}" if write.kind == "job" else ""
            query.open_after_failure |= is_open(query.environment, transactional_id)
            self._committer.abort(messages)
            if "aborting a transaction" in str(error):
                query.notes.append(f"the failure of an abort replaces that of the batch: {error}")
            raise
        if query.misconfigured is not None:
            query.notes.append(f"a batch is committed although the {query.misconfigured} is wrong")
        query.write_seconds.append(query.environment.world.now - started_at)
        if report is not None:
            query.reports[batch] = report
            if staged_bytes != {tp: each.bytes for tp, each in report.items()}:
                query.notes.append(f"batch {batch} has {staged_bytes} bytes, but the report is {report}")
        elif is_first and committing == {self.number}:
            raise ViolationError(f"batch {batch} was not committed before, but the commit reports that it was")
        return report

    def _pause(self, batch: int, step: str) -> None:
        for run, paused_batch, paused_step, seconds in self.query.parameters["pauses"]:
            if (run, paused_batch, paused_step) == (self.number, batch, step):
                self.query.environment.world.trace("paused", self.process.name, batch, step, seconds)
                self.query.paused(self.process)
                self.process.sleep(seconds)

    def _run_tasks(self, batch: int, task: StagingWriteTask, write: SinkWrite) -> list[StagedCommitMessage]:
        rows = self.query.rows(batch)
        if self.query.misconfigured == "rows":
            rows = [*rows, SinkRow(b"a row for the state", TopicPartition(STATE_TOPIC, 0))]
        elif self.query.misconfigured == "topic":
            rows = [*rows, SinkRow(b"a row for no topic", TopicPartition("absent", 0))]
        elif self.query.misconfigured in ("policy", "timeout", "denied"):
            self.query.notes.append(f"tasks run although the {self.query.misconfigured} is wrong")
        parallelism = self.query.parameters["parallelism"]
        count = parallelism[self.number % len(parallelism)]
        size = -(-len(rows) // count) or 1
        tasks = [TaskSet(self, write, index, rows[index * size : (index + 1) * size], task) for index in range(count)]
        for task_set in tasks:
            task_set.start_attempt()
            if batch in self.query.parameters["speculated"]:
                task_set.start_attempt()
        messages: list[StagedCommitMessage | None] = []
        failure: KafkaDirectError | None = None
        for task_set in tasks:
            try:
                messages.append(task_set.result(self.process))
            except KafkaDirectError as error:
                messages.append(None)
                failure = failure or error
        if failure is not None:
            self._committer.abort(messages)
            raise failure
        return [each for each in messages if each is not None]

    def _check_failure(self, batch: int, error: KafkaDirectError) -> None:
        query = self.query
        token = _TOKEN.search(str(error))
        if query.misconfigured is not None:
            has_fenced = (self.process.name, "InitProducerId") in query.environment.network.sent_requests
            if has_fenced and query.misconfigured not in ("rows", "file"):
                query.notes.append(f"writers are fenced although the {query.misconfigured} is wrong")
            query.is_mended = True
            query.mend()
        elif query.expects_rejection(batch) and token is not None:
            # The user tries a wrong token first.
            query.reset_tokens.append(token[1] if query.reset_tokens else _WRONG_TOKEN)
        elif isinstance(error, TransactionStateError):
            if "Another query uses this" in str(error):
                query.rejection = error
                if not query.parameters["shares_prefix"]:
                    query.notes.append(f"no other query has the prefix, but the batch is rejected: {error}")
            elif self.ticket == query.newest_ticket and "has superseded this run" in str(error):
                # A driver that was started earlier may plan later: then that one continues, and this one ends.
                query.notes.append(f"the run that planned last is superseded: {error}")
            elif "there is no sink state record" in str(error) and is_calm(query.environment):
                query.notes.append(f"the run does not find the state of the last batch: {error}")
            elif (
                "has superseded this run" not in str(error)
                and batch >= len(query.commit_log)  # else the run has planned an old batch, after a pause
                and is_calm(query.environment)
            ):
                query.notes.append(f"nothing happened for which the batch may be rejected: {error}")
        elif "does not directly follow what was read" in str(error) and is_calm(query.environment):
            query.notes.append(f"batch {batch} fails because of a leader that was replaced, and none was: {error!r}")
        elif self.is_newest and self.started_at > query.environment.quiet_at + 200:
            query.notes.append(f"batch {batch} fails though no fault is left: {error!r}")


def _nothing_to_mend() -> None:
    """Do nothing: the rows of the next run are right."""
