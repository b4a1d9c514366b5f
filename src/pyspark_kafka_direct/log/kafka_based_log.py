"""A compacted topic as a log that several processes share, like Kafka Connect's ``KafkaBasedLog`` in Java."""

from __future__ import annotations

import os
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import IllegalLogStateError
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.log.log_reads import LogReads
from pyspark_kafka_direct.log.log_thread import LogThread
from pyspark_kafka_direct.log.log_topic import create_topic_if_missing, parse_topic_spec
from pyspark_kafka_direct.log.log_worker import LogWorker
from pyspark_kafka_direct.log.record_callbacks import LOG_COLUMNS, LogCallbacks
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.accumulator import DeliveryListener
from pyspark_kafka_direct.spark.loss_counts import LossCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from pyspark_kafka_direct.client.system import Finalizer
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.log.log_state import LogState
    from pyspark_kafka_direct.log.record_callbacks import LogRecord
    from pyspark_kafka_direct.log.table_state import TableState
    from pyspark_kafka_direct.producer.accumulator import DeliveryReport
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer, RecordMetadata

START_TIMEOUT: Final = 300.0
"""Default of ``start_timeout``, in seconds."""

STOP_TIMEOUT: Final = 30.0
"""Default timeout of ``stop``, in seconds."""

_CLEANUP_SECONDS: Final = 2.0  # timeout of the stop after a failed start


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
        params: Client properties under their Java names; docs/options.md lists them.
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
        self._view = view
        self._clients = clients
        self._system = clients.cluster.pool.system
        self._producer = clients.producer  # `start` opens one otherwise, unless the log is read-only
        self._topic_spec = None if create is None else parse_topic_spec(create)
        self._start_timeout = start_timeout
        self._reads_partition: Callable[[int], bool] = (lambda _: True) if partitions is None else partitions
        self._sent_records: SentRecords | None = None  # None: the log cannot send
        self._finalizer: Finalizer | None = None  # None: not started
        # The thread refers to the worker, which must not refer to this log: an abandoned log is collected, and stops.
        self._worker = LogWorker(
            topic,
            clients.cluster,
            partition_filter=partitions,
            open_consumer=lambda start: clients.open_consumer(start, callbacks.columns),
            callbacks=callbacks,
            count_loss=LossCounter(self._system).add,
            read_committed=clients.fetch.isolation_level == "read_committed",
        )
        self._thread = LogThread(topic, self._worker, self._system)
        self._reads = LogReads(topic, clients, self._reads_partition, self._worker, self._thread)

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
        self._thread.begin_start()
        deadline = Deadline.after(self._start_timeout, "start_timeout", system=self._system)
        try:
            if self._topic_spec is not None:
                create_topic_if_missing(self._clients.cluster, self.topic, self._topic_spec, deadline)
            self._producer = self._worker.producer = self._clients.open_producer()
            if self._producer is not None:
                self._sent_records = SentRecords(self._producer, self._worker, self._reads_partition)
            self._thread.start_thread()
            description = f"The {'KafkaBasedLog' if self._view is None else 'KafkaTable'} of topic {self.topic}"
            self._finalizer = self._system.finalize(
                self, _stop_abandoned, weakref.ref(self), description, self._thread, self._producer
            )
            self._reads.read_at_start(deadline, self._start_timeout)
        except BaseException:
            self._stop(_CLEANUP_SECONDS)
            raise
        self._thread.end_start()

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop reading and sending; records that were sent are delivered if time allows, and pending reads fail.

        Returns in time even if a broker or a callback hangs. The log's thread then ends when the callback returns.

        Args:
            timeout: Maximum seconds to wait.
        """
        self._thread.check_process()
        self._stop(timeout)

    def __repr__(self) -> str:
        return f"KafkaBasedLog({self.topic!r}, {self._thread.status})"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
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
        producer.send_with_callback(self.topic, key, value, callback, listener=sent_records, context=self._worker.state)

    def send_with_receipt(self, key: bytes | None, value: bytes | None) -> Future[RecordMetadata]:
        """Send a record and return a future of its metadata, which is done when the brokers have acknowledged it.

        Raises:
            IllegalLogStateError: The log is read-only, not started or stopped.
        """
        producer, sent_records = self._open_producer()
        return producer.send(self.topic, key, value, listener=sent_records, context=self._worker.state)

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
        self._thread.check_started("read_to_end()")
        return self._reads.read_to_end(self._producer, callback)

    def wait_for(
        self, target: RecordMetadata | Mapping[int, int] | Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Wait until records were delivered or skipped.

        If the metadata has another topic id or a later leader epoch than what was read, this waits until the log was
        read to its end, and until that leader or a later one has confirmed what was read. The log then has the record,
        or the record was deleted.

        Args:
            target: The metadata of a record, or an offset for each of some partitions.
            timeout: Seconds; ``None`` waits without a limit.

        Raises:
            BrokerTimeoutError: The timeout expired.
            IllegalLogStateError: The log is not started or stopped, or this is called in one of its own callbacks.
            TypeError: The target is something else, such as the future that ``send_with_receipt`` returns.
            ValueError: The log does not read the partition, or the metadata has no offset (``acks=0``). If brokers lack
                the partition, this is raised after they have reported so for five seconds.
        """
        self._thread.check_started("wait_for()")
        self._reads.read_past(target, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records that were sent are acknowledged or have failed; does nothing for a read-only log.

        Args:
            timeout: Seconds; ``None`` waits for ``delivery.timeout.ms`` at most.

        Raises:
            BrokerTimeoutError: The timeout expired.
            IllegalLogStateError: The log is not started or stopped.
        """
        self._thread.check_started("flush()")
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
        return self._worker.state.current_as_of

    def _stop(self, timeout: float) -> None:
        deadline = Deadline.after(timeout, "timeout", system=self._system)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._thread.stop()
        try:
            if self._producer is not None and self._producer.in_callback:
                self._producer.close_without_waiting()  # the producer ends after the callback that called ``stop``
            elif self._producer is not None:
                self._producer.close(deadline.remaining())
        finally:
            self._thread.join(deadline)

    def _open_producer(self) -> tuple[AsyncProducer, SentRecords]:
        # `check_started` raises the error; to call it for each record would take longer.
        thread = self._thread
        if thread.state != "started" or thread.error is not None or thread.process_id != os.getpid():
            thread.check_started("send()")
        if self._producer is None or self._sent_records is None:
            raise IllegalLogStateError(
                "The log is read-only (read_only=True, or it has no producer) and cannot send.", topic=self.topic
            )
        return self._producer, self._sent_records


def _stop_abandoned(
    log: weakref.ref[KafkaBasedLog], description: str, thread: LogThread, producer: AsyncProducer | None
) -> None:
    """Stop a log that was collected, or still runs at the exit of the process, and warn of it."""
    if not thread.runs_here:
        return
    thread.stop()
    if producer is not None:
        producer.close_without_waiting()
    if log() is not None:  # the process ends. A collection may run in any thread, which must not wait
        thread.wait_for_callback()
    warnings.warn(
        f"{description} was not stopped. Call stop(), or use it in a with statement.", ResourceWarning, stacklevel=2
    )


def not_picklable_message(log: object, topic: str) -> str:
    """Return why a log or a table cannot be pickled."""
    name = type(log).__name__
    return (
        f"The {name} of topic {topic} cannot be pickled: its thread and connections belong to this process. Open one "
        "in each process, such as an executor's Python worker, or pass a snapshot."
    )


class SentRecords(DeliveryListener):
    """Follows the sent records of one log: where they were written, and when reads to the end may follow them.

    If a record is written below the position that was reached before the send, the topic was truncated or recreated.
    Other logs may share the producer.
    """

    def __init__(self, producer: AsyncProducer, worker: LogWorker, reads_partition: Callable[[int], bool]) -> None:
        self._producer = producer
        self._worker = worker
        self._reads_partition = reads_partition

    def on_acknowledged(self, report: DeliveryReport) -> None:
        """Report to the worker where records were written."""
        first = report.records[0]
        assert first.partition is not None
        if not self._reads_partition(first.partition):
            return
        partition = TopicPartition(first.topic, first.partition)
        previous: LogState | None = None
        for offset, record in report.with_offsets():
            before: LogState = record.context
            # Of records that were sent in the same state, the first one has the lowest offset. If it is not below the
            # position, no other one is.
            if record.listener is self and before is not previous:
                previous = before
                self._worker.on_written(partition, offset, before)

    def on_completed(self) -> None:
        """Wake the worker if a read waited for these records."""
        pending_reads = self._worker.pending_reads
        if pending_reads.has_queued and pending_reads.can_activate(self._producer.completed_count):
            self._worker.wake()
