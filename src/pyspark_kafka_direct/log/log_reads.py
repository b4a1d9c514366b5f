"""The reads of a log that other threads request and wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError
from pyspark_kafka_direct.log.pending_reads import LogFuture
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.producer.async_producer import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.log.log_clients import LogClients
    from pyspark_kafka_direct.log.log_thread import LogThread
    from pyspark_kafka_direct.log.log_worker import LogWorker
    from pyspark_kafka_direct.producer.async_producer import AsyncProducer

    ReadTarget: TypeAlias = RecordMetadata | Mapping[int, int] | Mapping[TopicPartition, int]

_DIAGNOSIS_SECONDS: Final = 2.0  # timeout of the request that explains why a start timed out


class LogReads:
    """Adds pending reads of a log, wakes its thread and waits."""

    def __init__(
        self,
        topic: str,
        clients: LogClients,
        reads_partition: Callable[[int], bool],
        worker: LogWorker,
        thread: LogThread,
    ) -> None:
        self._topic = topic
        self._clients = clients
        self._system = clients.cluster.pool.system
        self._reads_partition = reads_partition
        self._worker = worker
        self._thread = thread

    def read_at_start(self, deadline: Deadline, start_timeout: float) -> None:
        """Read to the end that the log has now."""
        read = self.read_to_end(producer=None, callback=None)  # this log has sent no records yet
        if not self._thread.wait_until_done(read, deadline):
            raise self._start_timeout_error(start_timeout)
        read.result()

    def read_to_end(
        self, producer: AsyncProducer | None, callback: Callable[[BaseException | None], None] | None
    ) -> LogFuture:
        """Read to the end that the log has when all records that the producer has sent are completed."""

        def in_callback_thread() -> bool:
            return self._thread.is_current or (producer is not None and producer.in_callback)

        future = LogFuture(in_callback_thread, self._system)
        if callback is not None:
            future.add_done_callback(lambda done: callback(done.exception()))
        self._worker.pending_reads.add_read_to_end(future, 0 if producer is None else producer.sent_count)
        self._thread.wake()
        return future

    def read_past(self, target: ReadTarget, timeout: float | None) -> None:
        """Wait until records are delivered or skipped."""
        worker = self._worker
        offsets = _target_offsets(self._topic, target)
        for partition in offsets:
            if partition.topic != self._topic or not self._reads_partition(partition.partition):
                raise worker.not_read_error(partition)
        is_delivered = worker.has_delivered(offsets)
        to_end = self._may_lack(target)  # of a later state than `is_delivered`
        if is_delivered and not to_end:
            return
        deadline = None if timeout is None else Deadline.after(timeout, "timeout", system=self._system)
        reads, record = worker.pending_reads, target if isinstance(target, RecordMetadata) else None
        was_read = not to_end or self._wait_for(reads.add_read_to_end, deadline)
        # The log may have replaced what was read and have the same end, so the leader of the record has to confirm it.
        past = dict.fromkeys(offsets, 0) if to_end else offsets
        if was_read and self._wait_for(lambda future: reads.add_read_past(future, past, record), deadline):
            return
        positions = worker.positions
        missing = {tp: offset for tp, offset in offsets.items() if positions.get(tp, 0) < offset}
        # Without a missing one, the read has waited for the end of the log, a leader, or the check of a truncation.
        partition, offset = next(iter(missing.items() or offsets.items()))
        raise self._timeout_error(
            f"Offset {offset - 1} was not read within {timeout:g} s; the next offset to read is "
            f"{positions.get(partition, 0)}.",
            partition.partition,
            offset - 1,
        )

    def _may_lack(self, target: ReadTarget) -> bool:
        """Whether the target may be in another log than was read: then its offset does not show whether it was read."""
        return isinstance(target, RecordMetadata) and self._worker.state.may_lack(
            TopicPartition(target.topic, target.partition), target.topic_id, target.leader_epoch
        )

    def _wait_for(self, add: Callable[[LogFuture], None], deadline: Deadline | None) -> bool:
        """Add a pending read, and wait for it; return whether it ended in time."""
        worker = self._worker
        future = LogFuture(lambda: self._thread.is_current, self._system)
        if self._thread.is_current:
            future.result()  # raises IllegalLogStateError: a callback cannot wait for its own log
        add(future)
        try:
            self._thread.wake()
            if self._thread.wait_until_done(future, deadline):
                future.result()
                return True
            return False
        finally:
            worker.pending_reads.remove(future)  # after a timeout, or an interrupt

    def _start_timeout_error(self, start_timeout: float) -> BrokerTimeoutError:
        unreached = self._worker.pending_reads.unreached_offsets(self._worker.positions)
        message = f"The log was not read within {start_timeout:g} s (start_timeout)"
        if not unreached:
            return self._timeout_error(f"{message}.")
        partition, end = next(iter(unreached.items()))
        position = self._worker.positions.get(partition, 0)
        message += f": the next offset to read is {position}, the end offset {end}"
        last_stable_offset = self._last_stable_offset(partition)
        if last_stable_offset is not None:
            message += f", the last stable offset {last_stable_offset}"
            if self._clients.fetch.isolation_level == "read_committed" and last_stable_offset < end:
                message += ". The log waits for an open transaction there to end"
        return self._timeout_error(f"{message}.", partition.partition, position)

    def _last_stable_offset(self, partition: TopicPartition) -> int | None:
        cluster, deadline = self._clients.cluster, Deadline.after(_DIAGNOSIS_SECONDS, system=self._system)
        try:
            return cluster.offsets({partition: LATEST}, isolation_level="read_committed", deadline=deadline)[partition]
        except KafkaDirectError:
            return None

    def _timeout_error(
        self, message: str, partition: int | None = None, offset: int | None = None
    ) -> BrokerTimeoutError:
        """Return an error with the message and the broker of the last error, unless it concerns another partition."""
        last_error, broker = self._worker.last_error, None
        if isinstance(last_error, KafkaDirectError) and last_error.partition in (None, partition):
            message, broker = f"{message} Last error: {last_error.message}", last_error.broker
        elif last_error is not None:
            message += f" Last error: {last_error}"
        return BrokerTimeoutError(message, topic=self._topic, partition=partition, offset=offset, broker=broker)


def _target_offsets(topic: str, target: ReadTarget) -> dict[TopicPartition, int]:
    """Return the offsets after the records to wait for."""
    if isinstance(target, Mapping):
        return {
            key if isinstance(key, TopicPartition) else TopicPartition(topic, key): offset + 1
            for key, offset in target.items()
        }
    if not isinstance(target, RecordMetadata):
        raise TypeError(
            f"{type(target).__name__} is not a RecordMetadata: pass the result() of the future of send_with_receipt() "
            "or put()"
        )
    if target.offset < 0:
        raise ValueError("the record metadata has no offset to wait for (acks=0)")
    if target.topic != topic:
        raise ValueError(f"the record metadata is of topic {target.topic}, not of {topic}")
    return {TopicPartition(target.topic, target.partition): target.offset + 1}
