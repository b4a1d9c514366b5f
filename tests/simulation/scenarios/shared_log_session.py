"""A process with one shared log or table at a time: how it is built, and what its callbacks do."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.simulation.faults import PAUSES
from tests.simulation.scenarios.shared_log_checks import (
    Sent,
    TopicTruth,
    View,
    raise_first,
)
from tests.simulation.scenarios.shared_log_reports import CallbackError
from tests.simulation.scenarios.shared_log_sends import Send
from tests.simulation.scenarios.shared_log_writers import TRANSACTIONAL_ID

from pyspark_kafka_direct.errors import (
    IllegalLogStateError,
    KafkaDirectError,
)
from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.log.record_callbacks import to_log_records
from pyspark_kafka_direct.options.settings import FetchSettings, ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Future

    import pyarrow as pa
    from tests.simulation.environment import Environment
    from tests.simulation.oracle import PartitionTruth
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scenarios.shared_log_reports import LogReports
    from tests.simulation.scenarios.shared_log_writers import Claim, SingleWriters

    from pyspark_kafka_direct.log import LogRecord
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import IsolationLevel
    from pyspark_kafka_direct.producer.async_producer import RecordMetadata


QUIET_READ_SECONDS = 90.0  # a request that got no response ends after request.timeout.ms


class LogSession:
    """A process that opens one log or table after the other."""

    def __init__(
        self,
        environment: Environment,
        topic: str,
        name: str,
        values: Mapping[str, Any],
        writers: SingleWriters,
        reports: LogReports,
    ) -> None:
        self.environment = environment
        self.topic = topic
        self.name = name
        self.values = dict(values)
        self.process: SimulatedProcess = environment.process(name)
        self.ended = False
        self._writers = writers
        self._reports = reports
        self.is_calm = not environment.plan.events and not environment.plan.parameters["kills"]
        self._is_writer: bool = values.get("transactional", False)
        only_even = not values["table"] and values.get("only_even", False)
        isolation: IsolationLevel = "read_committed" if values["committed"] else "read_uncommitted"
        self._truth = TopicTruth(environment, topic, isolation, only_even=only_even)
        self.violations: list[str] = []
        self._opened = 0
        self._is_stopping = False  # in a callback
        self._sent_count = 0
        self._new_session()

    def raise_violations(self) -> None:
        raise_first(self.violations + self.view.violations)

    @property
    def _is_rejected(self) -> bool:
        """Whether this is a table whose topic has got more partitions."""
        return self._table is not None and self._truth.partition_count > len(self._log.positions)

    @property
    def _may_be_rejected(self) -> bool:
        """Whether the table's topic had more partitions at some time; a recreated one is noticed later."""
        return self._table is not None and self._truth.highest_partition_count > len(self._log.positions)

    def _new_session(self) -> None:
        self.view = View(self._truth)
        self._reports.begin_session(self.process)
        self._is_stopped = False
        self._stopped_at = math.inf
        self._delivered = 0
        self._reads: list[Future[None]] = []
        self._sends: list[Send] = []
        self._claim: Claim

    @property
    def _opened_object(self) -> KafkaBasedLog | KafkaTable[bytes, bytes]:
        return self._log if self._table is None else self._table

    def _build(self) -> None:
        values = self.values
        clients = LogClients(
            self.environment.client(self.process, metadata_max_age_ms=values.get("max_age_ms", 300_000)),
            FetchSettings(
                "read_committed" if values["committed"] else "read_uncommitted",
                fetch_max_wait_ms=values["fetch_wait_ms"],
                max_partition_fetch_bytes=values["fetch_bytes"],
            ),
            produce=None if values.get("read_only") else ProducerSettings(max_in_flight=values["in_flight"]),
        )
        timeout = self._start_timeout(quiet=self.environment.is_quiet)
        self._table: KafkaTable[bytes, bytes] | None = None
        if values["table"]:
            self._table = KafkaTable(
                self.topic,
                clients,
                on_change=self._on_change,
                on_error=self._on_error,
                create=values.get("create"),
                transactional_id=TRANSACTIONAL_ID if self._is_writer else None,
                start_timeout=timeout,
            )
            self._log = self._table.log
        else:
            self._log = KafkaBasedLog(
                self.topic,
                clients,
                on_record=None if values.get("batches") else self._on_record,
                on_batch=self._on_batch if values.get("batches") else None,
                on_reset=self._on_reset,
                on_error=self._on_error,
                partitions=self._truth.reads,
                create=values.get("create"),
                start_timeout=timeout,
            )
        log = self._log
        self.view.positions = lambda: log.positions

    def _start_timeout(self, *, quiet: bool) -> float:
        return QUIET_READ_SECONDS if quiet else float(self.values["start_timeout"])

    def _on_record(self, record: LogRecord) -> None:
        self.view.deliver(record)
        self._delivered += 1
        if self._delivered == self.values.get("reenters_at") and not self.environment.is_quiet:
            self._reenter()
        is_started = self._log._thread.state == "started" and not self.environment.is_quiet
        if self._delivered == self.values.get("stops_at") and is_started:
            self._is_stopped = self._is_stopping = True
            try:
                self._log.stop(self.values["stop_timeout"])
            finally:
                self._is_stopping = False
        if self._delivered == self.values["fails_at"] and self._opened == 1:
            raise CallbackError

    def _on_batch(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        errors = []
        for record in to_log_records(partition, rows):
            try:
                self._on_record(record)
            except CallbackError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _on_reset(self, error: KafkaDirectError) -> bool:
        raises = self.values.get("raises", False)  # which means that the log is read again
        self.view.reset(error, reread=self.values["reread"] or raises)
        if raises:
            raise CallbackError
        return bool(self.values["reread"])

    def _on_error(self, error: KafkaDirectError) -> None:
        self.view.errors.append(error)
        if self.values.get("raises"):
            raise CallbackError

    def _on_change(self, key: bytes, value: bytes | None) -> None:
        self.view.change(key, value)
        if self.values.get("raises"):
            raise CallbackError

    def _reenter(self) -> None:
        """Write and read in a callback, also during the start; a callback cannot wait for its own log."""
        try:
            future = self._log.read_to_end()
            self._reads.append(future)
            with suppress(IllegalLogStateError):
                future.result(1.0)
                self.violations.append("a callback has waited for its own log")
            if not self.values.get("read_only"):
                send = Send(self, Sent(b"callback", b"%s-callback-%d" % (self.name.encode(), self._opened)))
                self._log.send(*send.record, send.on_done)
                self._sends.append(send)
        except (IllegalLogStateError, RuntimeError) as error:
            if self._log._thread.state != "stopped":
                self.violations.append(f"a callback cannot use its log: {error!r}")

    @property
    def opened_log(self) -> KafkaBasedLog:
        return self._log

    @property
    def opened_table(self) -> KafkaTable[bytes, bytes] | None:
        return self._table

    @property
    def has_open_transactions(self) -> bool:
        parameters = self.environment.plan.parameters
        return any(each["transaction"] == "open" for each in (*parameters["log"], *parameters["append_list"]))

    def reads(self, partition: int) -> bool:
        """Return whether the log reads a partition."""
        return self._truth.reads(partition)

    @property
    def truth_was_changed(self) -> bool:
        return self._truth.was_changed

    def partition_truths(self) -> Iterator[tuple[int, PartitionTruth]]:
        return self._truth.partitions(self._truth.generation)

    def next_batch_number(self) -> int:
        self._writers.batches += 1
        return 100_000 + self._writers.batches

    def send_one(self, key: bytes) -> Send:
        """Send a record, and wait for its outcome."""
        self._sent_count += 1
        send = Send(self, Sent(key, b"%s-%d" % (self.name.encode(), self._sent_count)))
        assert send.record.value is not None
        future: Future[RecordMetadata] | None = None
        try:
            if self._table is None:
                future = self._log.send_with_receipt(*send.record)
            else:
                future = self._table.put(key, send.record.value)
        except KafkaDirectError as error:
            send.on_done(None, error)
        if future is not None:
            self.process.wait_for_future(future, None)
            send.on_future(future)
        self._sends.append(send)
        return send

    def _check_counts(self) -> None:
        """Check that the counts of skipped offsets equal what the log has reported."""
        totals = self._log._worker._count_loss.__self__._totals  # type: ignore[attr-defined]
        counted = sum(each.offsets for each in totals.losses)
        reported = self._reports.skips[self.process]
        skipped = sum(max(offset - position, 0) for offset, position in reported)
        if counted != skipped:
            self.violations.append(f"{counted} skipped offsets are counted, and {skipped} are reported: {reported}")

    def _check_time(self, name: str, since: float, seconds: float) -> None:
        passed = self.environment.world.now - since
        seconds += sum(each.args["seconds"] for each in self.environment.plan.events if each.kind in PAUSES)
        if passed > seconds:
            self.violations.append(f"{name} takes {passed:.2f} s, and its timeout is over after {seconds:.2f} s")
