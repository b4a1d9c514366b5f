"""The only writer of a table: each write is a transaction, and a later writer fences the earlier one.

Kafka Connect's ``KafkaConfigBackingStore`` does the same for a leader with exactly-once support.
"""

from __future__ import annotations

from array import array
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import (
    BrokerError,
    IllegalLogStateError,
    KafkaDirectError,
    ProducerFencedError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import LATEST, OffsetRange, TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.producer.async_producer import RecordMetadata
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.records.columns import binary_column, integer_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.log.log_worker import LogWorker
    from pyspark_kafka_direct.options.settings import ProducerSettings
    from pyspark_kafka_direct.records import EncodedBatch

_TRANSACTION_TIMEOUT_MS: Final = 30_000
_ABORT_SECONDS: Final = 5.0
_STOPPED: Final = "The table was stopped."


class SingleWriter:
    """Writes to a topic in transactions of one transactional id. Any thread may call it; writes run one at a time.

    An error of a write ends the claim. To claim again after an unknown outcome could fence a writer that has claimed
    the id meanwhile, and only the user knows which of them should write. An expired id is the exception: the
    coordinator returns it if it has no other owner. If the id of a later owner has expired, too, its transactions show
    that there was one.
    """

    def __init__(
        self, topic: str, cluster: ClusterClient, settings: ProducerSettings, transactional_id: str, worker: LogWorker
    ) -> None:
        self._topic = topic
        self._cluster = cluster
        self._settings = settings
        self._transactional_id = transactional_id
        self._worker = worker
        self._lock = cluster.pool.system.lock()
        self._partition_count = 0
        self._own_ends: dict[TopicPartition, int] = {}  # after the start, and after the last write to each partition
        self._producer: TransactionalProducer | None = None
        self._end_of_claim: BaseException | str = "The table was not started."  # why there is no producer
        self._is_closed = False

    def claim(self, deadline: Deadline) -> None:
        """Fence earlier writers with the transactional id, and abort their open transaction."""
        deadline = deadline.limited_to(self._cluster.settings.default_api_timeout_ms / 1000)
        with self._locked():
            topic = self._cluster.topics([self._topic], deadline=deadline).get(self._topic)
            if topic is None:
                raise TopicNotFoundError("The topic of the table was deleted.", topic=self._topic)
            self._partition_count = len(topic.partitions)
            producer = TransactionalProducer(
                self._cluster, self._transactional_id, _TRANSACTION_TIMEOUT_MS, self._settings
            )
            producer.init_transactions(deadline)
            self._producer = producer

    def begin(self, positions: Mapping[TopicPartition, int]) -> None:
        """Remember the ends that were read after the claim: what follows is by this writer, or by a later one."""
        self._own_ends = {**positions, **self._own_ends}

    def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> list[RecordMetadata]:
        """Write records in one transaction; return the metadata of the last one in each partition."""
        now = int(self._cluster.pool.system.wall_time() * 1000)
        batches = self._encode(records, now)
        with self._locked():
            if self._producer is None:
                raise self._end_of_claim_error()
            try:
                return self._write_after_idle_time(self._producer, batches, now)
            except BaseException as error:
                self._end_claim(error)
                if isinstance(error, ProducerFencedError):
                    raise self._end_of_claim_error() from error
                raise

    def close(self, seconds: float) -> None:
        """Reject later writes, and wait for a call that runs; if it takes longer, it ends the claim."""
        self._is_closed = True
        if self._cluster.pool.system.acquire(self._lock, seconds):
            try:
                self._end_claim(_STOPPED)
            finally:
                self._lock.release()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        finally:
            if self._is_closed:  # `close` did not get the lock in time
                self.close(0.0)

    def _encode(self, records: Sequence[tuple[bytes, bytes | None]], now: int) -> list[EncodedBatch]:
        """Encode all records before any is sent, so that an invalid one ends no claim."""
        import pyarrow as pa

        from pyspark_kafka_direct.records import RecordEncoder

        for key, value in records:
            for name, content in (("key", key), ("value", value)):
                if not isinstance(content, bytes) and (name == "key" or content is not None):
                    raise TypeError(f"{name} must be bytes, got {type(content).__name__}")
            if len(key) + len(value or b"") > self._settings.max_request_bytes:
                raise RecordTooLargeError(
                    f"A record is larger than max.request.size ({self._settings.max_request_bytes}).", topic=self._topic
                )
        settings = self._settings
        encoder = RecordEncoder(
            topic=self._topic,
            partitions=max(self._partition_count, 1),  # 0 before the claim: `write` then raises an error afterwards
            codec=settings.codec,
            level=settings.level,
            batch_bytes=settings.batch_bytes,
            max_record_bytes=settings.max_request_bytes,
        )
        columns = {
            "key": binary_column([key for key, _ in records]),
            "value": binary_column([value for _, value in records]),
            "timestamp": integer_column(array("q", [now]) * len(records)),
        }
        return [*encoder.add(pa.record_batch(columns)), *encoder.flush()]

    def _write_after_idle_time(
        self, producer: TransactionalProducer, batches: Sequence[EncodedBatch], now: int
    ) -> list[RecordMetadata]:
        """Write the batches; if brokers have deleted the state of the idle producer, claim the id again before."""
        try:
            return self._write(producer, batches, now)
        except BrokerError as error:
            if not error.may_be_expired or self._others_have_written():
                raise
        producer.reacquire()
        return self._write(producer, batches, now)

    def _write(
        self, producer: TransactionalProducer, batches: Sequence[EncodedBatch], now: int
    ) -> list[RecordMetadata]:
        """Commit the batches in one transaction, and report their offsets to the worker, which finds truncations."""
        worker = self._worker
        before = worker.state
        partitions = {TopicPartition(self._topic, batch.partition) for batch in batches}
        topic_id = self._cluster.known_topic_ids([self._topic]).get(self._topic)
        leaders = self._cluster.known_leaders(partitions)
        for batch in batches:
            producer.send(self._topic, batch)
        metadata = []
        for tp, written in producer.commit().items():
            if tp in before.positions:
                worker.on_written(tp, written.first_offset, before)
            self._own_ends[tp] = written.next_offset + 1  # after the control record
            metadata.append(
                RecordMetadata(
                    *tp,
                    offset=max(written.next_offset - 1, -1),
                    timestamp=now,
                    topic_id=topic_id,
                    leader_epoch=leaders[tp].epoch if tp in leaders else -1,
                )
            )
        return metadata

    def _others_have_written(self) -> bool:
        """Return whether a transaction of another writer follows the claim and the writes of this one."""
        from pyspark_kafka_direct.producer.transactional_records import has_transactions

        deadline = self._cluster.deadline()
        fetch = FetchSettings("read_uncommitted", poll_timeout_ms=self._cluster.settings.default_api_timeout_ms)
        ends = self._cluster.offsets(dict.fromkeys(self._own_ends, LATEST), deadline=deadline)
        return any(
            has_transactions(self._cluster, fetch, OffsetRange(*tp, own_end, ends[tp]))
            for tp, own_end in self._own_ends.items()
            if own_end < ends[tp]
        )

    def _end_claim(self, reason: BaseException | str) -> None:
        """Abort the transaction, and let later writes raise the reason; only the first reason counts."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        self._end_of_claim = reason
        with suppress(KafkaDirectError):
            producer.abort(self._cluster.deadline(_ABORT_SECONDS))
        producer.close()

    def _end_of_claim_error(self) -> KafkaDirectError:
        reason = self._end_of_claim
        if isinstance(reason, ProducerFencedError):
            return ProducerFencedError(
                f"This table can only read: another table has claimed transactional_id={self._transactional_id!r}, or "
                f"a write took longer than {_TRANSACTION_TIMEOUT_MS // 1000} s. Start another table to claim the id "
                f"again. {reason.message}",
                topic=self._topic,
            )
        return IllegalLogStateError(
            f"The table cannot write. {reason} Its claim of transactional_id={self._transactional_id!r} has ended. "
            "Start another table, which claims it again.",
            topic=self._topic,
        )
