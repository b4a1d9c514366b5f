"""A compacted topic as a log that several processes share, like Kafka Connect's ``KafkaBasedLog`` in Java."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import BrokerTimeoutError, IllegalLogStateError, KafkaDirectError
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.log.log_topic import create_topic_if_missing, parse_topic_spec
from pyspark_kafka_direct.log.log_worker import LogWorker
from pyspark_kafka_direct.log.pending_reads import LogFuture, PendingReads, all_reached
from pyspark_kafka_direct.log.record_callbacks import LOG_COLUMNS, LogCallbacks
from pyspark_kafka_direct.log.sent_records import SentRecords
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.producer.async_producer import RecordMetadata
from pyspark_kafka_direct.spark.loss_counts import LossCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from types import TracebackType

    import pyarrow as pa

    from pyspark_kafka_direct.log.record_callbacks import LogRecord
    from pyspark_kafka_direct.log.table_state import TableState
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer

_log = logging.getLogger("pyspark_kafka_direct.log")

START_TIMEOUT: Final = 300.0
"""Default of ``start_timeout``, in seconds."""

STOP_TIMEOUT: Final = 30.0
"""Default timeout of ``stop``, in seconds."""

_CALLBACK_SECONDS: Final = 0.2  # minimum seconds for callbacks of pending reads when the timeout of a stop has expired
_CLEANUP_SECONDS: Final = 2.0  # timeout of the stop after a failed start
_DIAGNOSIS_SECONDS: Final = 2.0  # timeout of the request that explains why a start timed out


class KafkaBasedLog:
    """A topic as a shared log: a thread reads it from the beginning and follows it.

    ::

        with KafkaBasedLog("settings", {"bootstrap.servers": "broker1:9092"}, on_record=apply, create={}) as log:
            log.send(b"job-1", b'{"rate": 100}')
            log.read_to_end().result(timeout=10)  # every record that existed at the call has been applied

    The callbacks run in the log's own thread. Each record is delivered once, and the records of a partition in offset
    order. If a callback raises, the error is logged, pending reads (``start`` too) fail with it, and the next record
    follows.

    Records that were deleted before they were read (by retention, compaction or DeleteRecords) are skipped. If records
    that were already read are lost (an unclean leader election truncated the log, or the topic was deleted and
    recreated), ``on_reset`` is called, pending reads fail with the error, and reading continues.

    Args:
        topic: The topic.
        params: Client properties under their Java names; docs/log-settings.md lists them.
        on_record: Called with each record.
        on_batch: Called with a partition and its records as an Arrow batch instead, which is much faster.
        columns: The columns of these batches.
        on_error: Called with read errors, which are retried; by default they are only logged.
        on_reset: Called with the error if records that were read are lost. Reading continues at the offset to which the
            log was truncated. If it returns true, the log is read again from the beginning, as a recreated topic
            always is.
        create: How to create the compacted topic if it does not exist: ``partitions`` (1), ``replication_factor`` (the
            cluster's default) and ``configs``. By default the topic has to exist.
        partitions: Returns whether to read the partition with this number; by default all are read, including those
            that the topic gets later.
        read_only: If true, the log has no producer and cannot send.
        start_timeout: Seconds within which ``start`` has to read the log.
        view: Internal, for ``KafkaTable``: state that is read again after each error of its callback.

    Raises:
        OptionError: A parameter or ``create`` is invalid.
    """

    def __init__(
        self,
        topic: str,
        params: Mapping[str, object] | LogClients,
        *,
        on_record: Callable[[LogRecord], None] | None = None,
        on_batch: Callable[[TopicPartition, pa.RecordBatch], None] | None = None,
        columns: Sequence[str] = LOG_COLUMNS,
        on_error: Callable[[KafkaDirectError], None] | None = None,
        on_reset: Callable[[KafkaDirectError], bool | None] | None = None,
        create: Mapping[str, Any] | None = None,
        partitions: Callable[[int], bool] | None = None,
        read_only: bool = False,
        start_timeout: float = START_TIMEOUT,
        view: TableState | None = None,
    ) -> None:
        clients = params if isinstance(params, LogClients) else LogClients.from_params(params, read_only=read_only)
        callbacks = LogCallbacks(
            on_record=on_record,
            on_batch=on_batch,
            on_error=on_error,
            on_reset=on_reset,
            columns=tuple(columns),
            view=view,
        )
        clients.import_modules()
        self.topic = topic
        self._clients = clients
        self._cluster = clients.cluster
        self._system = clients.cluster.pool.system
        self._producer = clients.producer
        self._topic_spec = None if create is None else parse_topic_spec(create)
        self._start_timeout = start_timeout
        self._reads_partition: Callable[[int], bool] = (lambda _: True) if partitions is None else partitions
        self._process_id = os.getpid()
        self._state_changed = self._system.condition()
        self._state = "new"
        self._thread_id: int | None = None
        self._running = False
        self._thread_ended = True
        self._thread_error: BaseException | None = None
        self._pending_reads = PendingReads(self._system)
        self._sent_records: SentRecords | None = None  # None: the log cannot send
        self._worker = LogWorker(
            topic,
            self._cluster,
            partitions,
            lambda start: clients.open_consumer(start, callbacks.columns),
            callbacks,
            self._pending_reads,
            lambda: 0 if self._producer is None else self._producer.completed_count,
            LossCounter(self._system).add,
            read_committed=self._clients.fetch.isolation_level == "read_committed",
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(not_picklable_message(self, self.topic))

    def start(self) -> None:
        """Create the topic if ``create`` was given, and read the log to its end.

        Raises:
            TopicNotFoundError: The topic does not exist and did not appear within 30 seconds.
            BrokerTimeoutError: The log was not read in time; the message names the offsets and the last error.
            IllegalLogStateError: The log was started before.
            Exception: Any other error, or what ``on_record`` raised. The log is then stopped.
        """
        self._check_process()
        with self._state_changed:
            if self._state != "new":
                raise IllegalLogStateError("A log can be started only once; create another one.", topic=self.topic)
            self._state = "starting"
        deadline = Deadline.after(self._start_timeout, "start_timeout", system=self._system)
        initial_read = LogFuture(self._in_worker_thread, self._system)
        try:
            if self._topic_spec is not None:
                create_topic_if_missing(self._cluster, self.topic, self._topic_spec, deadline)
            self._producer = self._clients.open_producer()
            if self._producer is not None:
                self._sent_records = SentRecords(
                    self._producer, self._worker, self._pending_reads, self._reads_partition
                )
            self._pending_reads.add_read_to_end(initial_read)
            self._start_thread()
            if not self._wait_for_future(initial_read, deadline):
                raise self._start_timeout_error()
            initial_read.result()
        except BaseException:
            self._stop(_CLEANUP_SECONDS)
            raise
        with self._state_changed:
            if self._state == "starting":
                self._state = "started"

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop reading and sending; records that were sent are delivered if time allows, and pending reads fail.

        Returns in time even if a broker or a callback hangs. The log's thread then ends when the callback returns.

        Args:
            timeout: Maximum seconds to wait.
        """
        self._check_process()
        self._stop(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        callback: Callable[[RecordMetadata | None, BaseException | None], None] | None = None,
    ) -> None:
        """Send a record without waiting for it.

        Args:
            key: The key.
            value: The value; ``None`` deletes the key when the log is compacted.
            callback: Called once in the producer's thread with the record metadata or an error.

        Raises:
            IllegalLogStateError: The log is read-only, not started or stopped.
        """
        producer, sent_records = self._open_producer()
        context = sent_records.context()
        producer.send_with_callback(self.topic, key, value, callback, listener=sent_records, context=context)

    def send_with_receipt(self, key: bytes | None, value: bytes | None) -> Future[RecordMetadata]:
        """Send a record and return a future of its metadata, which is done when the brokers have acknowledged it.

        Raises:
            IllegalLogStateError: The log is read-only, not started or stopped.
        """
        producer, sent_records = self._open_producer()
        context = sent_records.context()
        return producer.send(self.topic, key, value, listener=sent_records, context=context)

    def read_to_end(self, callback: Callable[[BaseException | None], None] | None = None) -> Future[None]:
        """Read all records that are in the log now, including those that this log sent before.

        Args:
            callback: Called in the log's thread with ``None`` when these records were delivered, or with the error.

        Returns:
            A future that is done when these records were delivered. Records written in the meantime
            may or may not have been delivered.

        Raises:
            IllegalLogStateError: The log is not started or stopped.
        """
        self.require_started("read_to_end()")
        future = LogFuture(self._in_callback_thread, self._system)
        if callback is not None:
            future.add_done_callback(lambda done: callback(done.exception()))
        self._pending_reads.add_read_to_end(future, 0 if self._producer is None else self._producer.sent_count)
        self._wake_worker()
        return future

    def wait_for(
        self, target: RecordMetadata | Mapping[int, int] | Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Wait until records were delivered or skipped.

        If the metadata has another topic id or a later leader epoch than what was read, this waits until the log was
        read to its end: it then has the record, or the record was deleted with the old topic.

        Args:
            target: The metadata of a record, or an offset for each of some partitions.
            timeout: Seconds; ``None`` waits without a limit.

        Raises:
            BrokerTimeoutError: The timeout expired.
            IllegalLogStateError: The log is not started or stopped, or this is called in one of its own callbacks.
            TypeError: The target is something else, such as the future that ``send_with_receipt`` returns.
            ValueError: The log does not read the partition, or the metadata has no offset (``acks=0``). If brokers do
                not know the partition, this is raised after they have reported so for five seconds.
        """
        self.require_started("wait_for()")
        offsets = _target_offsets(self.topic, target)
        positions = self._worker.positions
        for partition in offsets:
            if partition.topic != self.topic or not self._reads_partition(partition.partition):
                assigned = ", ".join(map(str, sorted(positions)))
                raise ValueError(f"{partition} is not read by this log; it reads {assigned}")
        may_lack = isinstance(target, RecordMetadata) and self._worker.may_lack(
            TopicPartition(target.topic, target.partition), target.topic_id, target.leader_epoch
        )
        is_current = not (may_lack or self._worker.truncation_suspected or self._worker.reloading)
        if is_current and all_reached(offsets, positions):
            return
        future = LogFuture(self._in_worker_thread, self._system)
        if self._in_worker_thread():
            future.result()  # raises IllegalLogStateError
        if may_lack:
            self._pending_reads.add_read_to_end(future)
        else:
            self._pending_reads.add_read_past(future, offsets)
        deadline = None if timeout is None else Deadline.after(timeout, "timeout", system=self._system)
        try:
            self._wake_worker()
            if self._wait_for_future(future, deadline):
                future.result()
                return
        finally:
            self._pending_reads.remove(future)  # after a timeout, or an interrupt
        positions = self._worker.positions
        missing = {tp: offset for tp, offset in offsets.items() if positions.get(tp, 0) < offset}
        partition, offset = next(iter(missing.items() or offsets.items()))
        raise BrokerTimeoutError(
            f"Offset {offset - 1} was not read within {timeout:g} s; the next offset to read is "
            f"{positions.get(partition, 0)}.{self._last_error_text()}",
            topic=partition.topic,
            partition=partition.partition,
            offset=offset - 1,
        )

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records that were sent are acknowledged or have failed; does nothing for a read-only log.

        Args:
            timeout: Seconds; ``None`` waits for ``delivery.timeout.ms`` at most.

        Raises:
            BrokerTimeoutError: The timeout expired.
            IllegalLogStateError: The log is not started or stopped.
        """
        self.require_started("flush()")
        if self._producer is not None:
            self._producer.flush(timeout)

    @property
    def partition_count(self) -> int:
        """The number of partitions that are read; 0 before the start."""
        return len(self._worker.positions)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to read of each partition; all records before it were delivered."""
        return dict(self._worker.positions)

    @property
    def current_as_of(self) -> float | None:
        """Seconds since 1970: each record that was acknowledged before was delivered.

        The time advances with each read to the end. ``None`` while the log is read again after records were lost.
        """
        return self._worker.current_as_of

    def _start_thread(self) -> None:
        self._running, self._thread_ended = True, False
        try:
            self._system.start_thread(self._run, f"pyspark-kafka-direct-log-{self.topic}")
        except BaseException:
            self._running, self._thread_ended = False, True
            raise

    def _run(self) -> None:
        self._thread_id = self._system.thread_id()
        try:
            self._worker.run()
        except BaseException as error:
            _log.exception("the thread of log %s failed", self.topic)
            self._thread_error = error
        finally:
            self._running = False  # later reads fail at once
            self._fail_pending()
            self._thread_id = None
            with self._state_changed:
                self._thread_ended = True
                self._state_changed.notify_all()

    def _stop(self, timeout: float) -> None:
        deadline = Deadline.after(timeout, "timeout", system=self._system)
        with self._state_changed:
            self._state = "stopped"
        self._worker.stop()
        try:
            if self._producer is not None and self._producer.in_callback:
                self._producer.close_without_waiting()  # the producer ends after the callback that called ``stop``
            elif self._producer is not None:
                self._producer.close(deadline.remaining())
        finally:
            if not self._in_worker_thread():  # else the thread ends after the callback that called ``stop``
                self._join_thread(deadline)

    def _join_thread(self, deadline: Deadline) -> None:
        with self._state_changed:
            while not self._thread_ended and not deadline.expired:
                self._system.wait(self._state_changed, deadline.remaining())
            thread_ended = self._thread_ended
        if self._worker.has_unfinished_reads:  # in a thread of its own, because callbacks may hang
            callback_seconds = max(deadline.remaining(), _CALLBACK_SECONDS)
            self._system.run_with_timeout(
                self._fail_pending, f"pyspark-kafka-direct-log-{self.topic}-end", callback_seconds
            )
        if not thread_ended:
            _log.warning(
                "the thread of log %s did not stop within the timeout; it ends when its current call returns",
                self.topic,
            )

    def _fail_pending(self) -> None:
        self._worker.fail_all(IllegalLogStateError("The log was stopped.", topic=self.topic))

    def _wake_worker(self) -> None:
        if not self._running:  # the thread has ended in the meantime
            self._fail_pending()
        self._worker.wake()

    def _open_producer(self) -> tuple[AsyncProducer, SentRecords]:
        # Called for each record, so this is not always a call.
        if self._state != "started" or self._thread_error is not None or self._process_id != os.getpid():
            self.require_started("send()")
        if self._producer is None or self._sent_records is None:
            raise IllegalLogStateError(
                "The log is read-only (read_only=True, or it has no producer) and cannot send.", topic=self.topic
            )
        return self._producer, self._sent_records

    def _in_worker_thread(self) -> bool:
        return self._system.thread_id() == self._thread_id

    def _in_callback_thread(self) -> bool:
        """Return whether this is the log's thread or one that runs callbacks of ``send``."""
        return self._in_worker_thread() or (self._producer is not None and self._producer.in_callback)

    def _wait_for_future(self, future: LogFuture, deadline: Deadline | None) -> bool:
        """Wait for a future; return whether it is done."""

        def notify(_: object) -> None:
            with self._state_changed:
                self._state_changed.notify_all()

        future.add_done_callback(notify)
        with self._state_changed:
            while not future.done() and (deadline is None or not deadline.expired):
                self._system.wait(self._state_changed, None if deadline is None else deadline.remaining())
        return future.done()

    def _start_timeout_error(self) -> BrokerTimeoutError:
        missing = self._pending_reads.missing_offsets(self._worker.positions)
        message = f"The log was not read within {self._start_timeout:g} s (start_timeout)"
        if not missing:
            return BrokerTimeoutError(f"{message}.{self._last_error_text()}", topic=self.topic)
        partition, end = next(iter(missing.items()))
        position = self._worker.positions.get(partition, 0)
        last_stable_offset = self._last_stable_offset(partition)
        message += f": the next offset to read is {position}, the end offset {end}"
        if last_stable_offset is not None:
            message += f", the last stable offset {last_stable_offset}"
        if (
            self._clients.fetch.isolation_level == "read_committed"
            and last_stable_offset is not None
            and last_stable_offset < end
        ):
            message += ". The log waits for an open transaction there to end"
        return BrokerTimeoutError(
            f"{message}.{self._last_error_text()}",
            topic=partition.topic,
            partition=partition.partition,
            offset=position,
        )

    def _last_stable_offset(self, partition: TopicPartition) -> int | None:
        try:
            deadline = Deadline.after(_DIAGNOSIS_SECONDS, "start_timeout", system=self._system)
            offsets = self._cluster.offsets({partition: LATEST}, isolation_level="read_committed", deadline=deadline)
        except KafkaDirectError:
            return None
        return offsets[partition]

    def _last_error_text(self) -> str:
        last_error = self._worker.last_error
        return "" if last_error is None else f" Last error: {last_error}"

    def check_thread(self) -> None:
        """Raise an error if the thread that reads the log has failed, so that nothing follows.

        Raises:
            IllegalLogStateError: The thread has failed, which is a bug of this package or a lack of memory.
        """
        if self._thread_error is not None:
            raise IllegalLogStateError(
                f"The thread that reads the log has failed ({self._thread_error!r}), so the log is out of date. Stop "
                "it, and create another one.",
                topic=self.topic,
            ) from self._thread_error

    def require_started(self, operation: str) -> None:
        """Raise an error unless the log runs in this process."""
        self._check_process()
        self.check_thread()
        if self._state == "started" or (self._state == "starting" and self._in_worker_thread()):
            return
        state = "stopped" if self._state == "stopped" else "not started"
        raise IllegalLogStateError(f"The log is {state}; {operation} needs a running log.", topic=self.topic)

    def _check_process(self) -> None:
        if self._process_id != os.getpid():
            raise IllegalLogStateError(
                "The log belongs to the parent process; its thread does not run here. Create a log in this process.",
                topic=self.topic,
            )


def _target_offsets(
    topic: str, target: RecordMetadata | Mapping[int, int] | Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if not isinstance(target, Mapping):
        if not isinstance(target, RecordMetadata):
            type_name = type(target).__name__
            raise TypeError(
                f"{type_name} is not a RecordMetadata: pass the result() of the future of send_with_receipt() or put()"
            )
        if target.offset < 0:
            raise ValueError("the record metadata has no offset to wait for (acks=0)")
        if target.topic != topic:
            raise ValueError(f"the record metadata is of topic {target.topic}, not of {topic}")
        return {TopicPartition(target.topic, target.partition): target.offset + 1}
    return {
        key if isinstance(key, TopicPartition) else TopicPartition(topic, key): offset + 1
        for key, offset in target.items()
    }


def not_picklable_message(log: object, topic: str) -> str:
    """Return why a log or a table cannot be pickled."""
    name = type(log).__name__
    return (
        f"The {name} of topic {topic} cannot be pickled: its thread and connections belong to this process. Open one "
        "in each process, such as an executor's Python worker, or pass a snapshot."
    )
