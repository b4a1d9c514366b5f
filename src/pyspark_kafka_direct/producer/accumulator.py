"""Queues the single records of an ``AsyncProducer`` by partition, batches them, and reports the outcome of each.

A partition's next record batch is created when the producer has none of that partition left to send. So records that
arrive while requests are in flight share batches, and otherwise records are sent at once (unless ``linger`` is set).
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.hints import did_you_mean
from pyspark_kafka_direct.producer.batch_producer import MIN_STEP_SECONDS, BatchProducer
from pyspark_kafka_direct.producer.produce_errors import with_outcome
from pyspark_kafka_direct.records import RecordEncoder, partition_for_key
from pyspark_kafka_direct.records.columns import binary_column, header_column, integer_column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.client.cluster_client import ClusterClient, TopicMetadata
    from pyspark_kafka_direct.options.settings import ProducerSettings
    from pyspark_kafka_direct.producer.record_future import RecordFuture, RecordMetadata
    from pyspark_kafka_direct.records import EncodedBatch

_log = logging.getLogger("pyspark_kafka_direct.producer")

_DELIVERY_TIMEOUT: Final = "kafka.delivery.timeout.ms"
_IDLE_POLL_SECONDS: Final = 60.0  # longest poll without anything to do
# Seconds between the oldest and the newest record of a batch, because the batch expires with its oldest one.
_MAX_BATCH_AGE_SPREAD: Final = 1.0


class DeliveryListener(Protocol):
    """Follows the records that were sent with it."""

    def on_acknowledged(self, report: DeliveryReport) -> None:
        """Called before the futures and callbacks of the records; the report may have records of other listeners."""

    def on_completed(self) -> None:
        """Called when futures and callbacks of records have completed, and the records count as completed."""


class PendingRecord:
    """A record that was passed to ``AsyncProducer.send`` and is not acknowledged yet."""

    __slots__ = (
        "callback",
        "completion_claimed",
        "context",
        "created_at",
        "future",
        "headers",
        "key",
        "listener",
        "partition",
        "sent_to_producer",
        "sequence",
        "size_bound",
        "timestamp",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,  # None until one is chosen
        timestamp: int,  # milliseconds since 1970
        created_at: float,  # by the monotonic clock
        size_bound: int,  # upper bound of its bytes in a record batch
        future: RecordFuture | None = None,
        callback: Callable[[RecordMetadata | None, BaseException | None], None] | None = None,
        listener: DeliveryListener | None = None,
        context: Any = None,  # the listener's
    ) -> None:
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.partition = partition
        self.timestamp = timestamp
        self.created_at = created_at
        self.size_bound = size_bound
        self.future = future
        self.callback = callback
        self.listener = listener
        self.context = context
        self.sequence = -1  # among the records of the producer, once it has accepted the record
        self.completion_claimed = False  # whether a thread has started to complete the record
        self.sent_to_producer = False


class DeliveryReport(NamedTuple):
    """The outcome of consecutive records of a batch."""

    records: Sequence[PendingRecord]
    base_offset: int = -1  # of the first record; -1 if unknown
    append_time: int = -1  # log append time in milliseconds; -1 if the records have their own timestamps
    error: BaseException | None = None
    topic_id: UUID | None = None
    leader_epoch: int = -1

    def with_offsets(self) -> Iterator[tuple[int, PendingRecord]]:
        """Return each record with its offset; -1 if unknown."""
        offsets: Iterable[int] = repeat(-1) if self.base_offset == -1 else count(self.base_offset)
        return zip(offsets, self.records, strict=False)


class RecordAccumulator:
    """Queues records by partition, and sends them in record batches; used by the thread of an ``AsyncProducer`` only.

    An error that concerns more than one partition fails all records of the current ``BatchProducer``, and replaces it.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: ProducerSettings,
        on_delivery: Callable[[DeliveryReport], None],  # each record is in exactly one report
        # Marks and returns records just before they are encoded, without those that `AsyncProducer.close` has failed.
        mark_incomplete_as_sent: Callable[[Sequence[PendingRecord]], list[PendingRecord]],
        linger: float = 0.0,  # seconds
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._system = cluster.pool.system
        self._on_delivery = on_delivery
        self._mark_incomplete_as_sent = mark_incomplete_as_sent
        self._linger = linger
        self._max_batch_age_spread = _MAX_BATCH_AGE_SPREAD + linger  # records that linger differ by so much anyway
        self._flush_now = False  # whether records do not linger; each `append` sets it
        self._delivery_timeout = settings.delivery_timeout_ms / 1000
        self._metadata_timeout = min(self._delivery_timeout, cluster.settings.default_api_timeout_ms / 1000)
        self._metadata_max_age = cluster.settings.metadata_max_age_ms / 1000
        self._topics: dict[str, _TopicInfo] = {}
        self._queues: list[_RecordQueue] = []
        self._unassigned: list[PendingRecord] = []  # whose topic's metadata could not be fetched yet
        self._unreachable: TransientBrokerError | None = None  # set when no broker has responded during this `append`
        self._reports: list[DeliveryReport] = []  # to be passed to `on_delivery`; shared with the callbacks of batches
        self._producer = BatchProducer(cluster, settings)

    def append(self, records: Iterable[PendingRecord], *, flush_now: bool = False) -> None:
        """Queue records; with ``flush_now`` they do not linger, because a caller waits for them."""
        self._flush_now = flush_now
        self._unreachable = None
        records, self._unassigned = [*self._unassigned, *records], []
        topic_errors: dict[str, Exception] = {}
        topics: dict[str, _TopicInfo] = {}
        for record in records:
            error = topic_errors.get(record.topic)
            if error is None:
                try:
                    topic = topics.get(record.topic)
                    if topic is None:
                        topic = topics[record.topic] = self._topic_info(record)
                    queue = self._choose_queue(record, topic)
                except Exception as failure:
                    error = failure
                    concerns_only_partition = isinstance(error, TopicNotFoundError) and error.partition is not None
                    if not concerns_only_partition:
                        topic_errors[record.topic] = error  # applies to its other records, without another request
                else:
                    queue.records.append(record)
                    queue.size_bound += record.size_bound
                    continue
            self._postpone_or_fail(record, error)

    def poll(self, wakeup_fds: Collection[int] = ()) -> None:
        """Send ready records, and wait until there is something to do or a descriptor is readable."""
        self._expire_records()
        has_reported = self._report_deliveries()  # before sending, which may take long
        try:
            self._send_ready_records()
            if not self._reports:  # new reports are passed on below, without a wait
                # After the report of the last record, `AsyncProducer.close` waits for the end of this call.
                self._producer.poll(0.0 if has_reported else self._seconds_until_due(), wakeup_fds)
        except Exception as error:
            level = logging.DEBUG if isinstance(error, KafkaDirectError) else logging.ERROR
            _log.log(level, "The producer failed and is replaced: %s", error, exc_info=level == logging.ERROR)
            self._producer = self._producer.replacement(error)
        finally:
            self._report_deliveries()

    def close(self) -> None:
        """Release the connections without waiting."""
        self._producer.close()

    def _postpone_or_fail(self, record: PendingRecord, error: Exception) -> None:
        """After a transient error, let the next ``append`` try a record again until its timeout; else report it."""
        is_expired = record.created_at + self._metadata_timeout <= self._system.monotonic()
        was_reached = bool(self._cluster.nodes)  # if not, the address may be wrong, which waiting does not correct
        if isinstance(error, TransientBrokerError) and was_reached and not is_expired:
            self._unassigned.append(record)
        else:
            self._report_unsent([record], error)

    def _choose_queue(self, record: PendingRecord, topic: _TopicInfo) -> _RecordQueue:
        if record.partition is None:
            if topic.partitions == 1:
                record.partition = 0
            elif record.key is not None and not self._settings.ignore_keys:
                record.partition = partition_for_key(record.key, topic.partitions)
            else:
                record.partition = topic.sticky_partition(record.size_bound, self._settings.batch_bytes)
        elif record.partition >= topic.partitions:
            topic = self._refresh_topic(record)  # partitions may have been added
            if record.partition >= topic.partitions:
                raise TopicNotFoundError(
                    f"The topic has no such partition; it has {topic.partitions}.",
                    topic=record.topic,
                    partition=record.partition,
                )
        queue = topic.queues.get(record.partition)
        if queue is None:
            queue = topic.queues[record.partition] = _RecordQueue(TopicPartition(record.topic, record.partition))
            self._queues.append(queue)
        return queue

    def _topic_info(self, record: PendingRecord) -> _TopicInfo:
        topic_info = self._topics.get(record.topic)
        if topic_info is None:
            return self._refresh_topic(record)
        if topic_info.expires_at <= self._system.monotonic():
            try:
                return self._refresh_topic(record)
            except TransientBrokerError:
                # Use the old metadata for the same time again: the number of partitions never decreases.
                topic_info.expires_at = self._system.monotonic() + self._metadata_max_age
        return topic_info

    def _refresh_topic(self, record: PendingRecord) -> _TopicInfo:
        """Fetch the metadata of a record's topic, and raise if several brokers confirm that it does not exist."""
        self._report_deliveries()  # a request may take long, and futures must not wait for it
        name = record.topic
        deadline = self._metadata_deadline(record)
        while (metadata := self._request_topic(name, deadline)) is None:
            if self._cluster.confirm_missing({TopicPartition(name, 0): None}, deadline=deadline):
                hint = did_you_mean(name, self._cluster.all_topics(deadline=deadline))
                raise TopicNotFoundError(
                    f"Topic {name!r} does not exist, and writing does not create topics: create it first{hint or '.'}",
                    topic=name,
                )
            self._system.sleep(self._cluster.settings.retry_backoff_max_ms / 1000)  # another broker has the topic
        topic = self._topics.setdefault(name, _TopicInfo())
        topic.partitions = len(metadata.partitions)
        topic.expires_at = self._system.monotonic() + self._metadata_max_age
        return topic

    def _metadata_deadline(self, record: PendingRecord) -> Deadline:
        """Return when the first record that a request would delay has to be reported as failed."""
        created_without_queue = [record.created_at, *(each.created_at for each in self._unassigned[:1])]
        created_in_queues = [queue.records[0].created_at for queue in self._queues if queue.records]
        until = min(
            min(created_without_queue) + self._metadata_timeout,
            min(created_in_queues, default=record.created_at) + self._delivery_timeout,
            self._producer.expires_at,
        )
        now = self._system.monotonic()
        if self._unreachable is None:
            until = max(until, now + MIN_STEP_SECONDS)
        elif until <= now:  # of many topics, only the first one delays the failures of all
            raise self._unreachable
        return Deadline(until, _DELIVERY_TIMEOUT, self._system)

    def _request_topic(self, name: str, deadline: Deadline) -> TopicMetadata | None:
        try:
            return self._cluster.topics([name], deadline=deadline).get(name)
        except TransientBrokerError as error:
            if error.topic is None:  # no broker has responded, so a request for another topic would fail, too
                self._unreachable = error
            raise

    def _send_ready_records(self) -> None:
        """Send the records of all partitions that are due, unless the producer has queued batches of the partition."""
        while ready := self._ready_queues():
            for queue in ready:
                self._encode_and_enqueue(queue.take_batch(self._settings.batch_bytes, self._max_batch_age_spread))
            self._producer.poll(0.0)  # a batch that it sends leaves its queue, so the partition may be ready again
            self._expire_records()
            if self._reports:
                break  # the next poll continues: connecting may take long, and futures must not wait for it

    def _ready_queues(self) -> list[_RecordQueue]:
        now = self._system.monotonic()
        return [queue for queue in self._queues if self._is_ready(queue, now)]

    def _is_ready(self, queue: _RecordQueue, now: float) -> bool:
        if not queue.records or self._producer.queued_batches(queue.partition):
            return False
        return (
            self._flush_now
            or queue.records[0].created_at + self._linger <= now
            or queue.size_bound >= self._settings.batch_bytes
        )

    def _encode_and_enqueue(self, records: Sequence[PendingRecord]) -> None:
        """Mark records of one partition as sent, encode them, and pass them to the producer."""
        batches: list[_BatchCallback] = []
        encoded_count = 0
        try:
            records = self._mark_incomplete_as_sent(records)
            for encoded in self._encode(records):
                until = encoded_count + encoded.records
                batches.append(_BatchCallback(records[encoded_count:until], encoded, self._reports, self._cluster))
                encoded_count = until
        except Exception as error:  # concerns only these records: the producer does not have them
            self._report_unsent(records, error)
            return
        try:
            for batch in batches:
                oldest = batch.records[0]
                self._producer.enqueue(oldest.topic, batch.encoded, batch, oldest.created_at)
        except BaseException as error:
            # The producer reported the error for the batches, or the first parts of one, that it received.
            self._report_unsent([record for batch in batches for record in batch.records[batch.failed_count :]], error)
            raise

    def _report_unsent(self, records: Sequence[PendingRecord], error: BaseException) -> None:
        """Report records as failed that the producer never had."""
        if records:
            self._reports.append(DeliveryReport(records, error=with_outcome(error, outcome_unknown=False)))

    def _encode(self, records: Sequence[PendingRecord]) -> list[EncodedBatch]:
        import pyarrow as pa

        if not records:
            return []
        settings = self._settings
        topic = records[0].topic
        partition = records[0].partition
        assert partition is not None  # `_choose_queue` has set it
        columns = {
            "key": binary_column([record.key for record in records]),
            "value": binary_column([record.value for record in records]),
            "timestamp": integer_column(array("q", [record.timestamp for record in records])),
            "partition": integer_column(array("i", [partition]) * len(records)),
        }
        if any(record.headers for record in records):
            columns["headers"] = header_column([record.headers for record in records])
        encoder = RecordEncoder(
            topic=topic,
            partitions=partition + 1,  # the smallest number with this partition, which the rows name
            codec=settings.codec,
            level=settings.level,
            batch_bytes=settings.batch_bytes,
            max_record_bytes=settings.max_request_bytes,
        )
        return [*encoder.add(pa.record_batch(columns)), *encoder.flush()]

    def _expire_records(self) -> None:
        """Fail the queued records whose delivery timeout has passed."""
        now = self._system.monotonic()
        for queue in self._queues:
            expired_records = queue.remove_expired(now, self._delivery_timeout)
            if expired_records:
                error = BrokerTimeoutError(
                    f"Records waited {self._delivery_timeout:g} s ({_DELIVERY_TIMEOUT}) for earlier records of their "
                    "partition.",
                    topic=queue.partition.topic,
                    partition=queue.partition.partition,
                )
                self._report_unsent(expired_records, error)

    def _seconds_until_due(self) -> float:
        """Return the seconds until the first queued record expires or stops lingering."""
        now = self._system.monotonic()
        times = [now + _IDLE_POLL_SECONDS]
        if self._unassigned:
            times.append(now + self._cluster.settings.retry_backoff_ms / 1000)
        for queue in self._queues:
            if queue.records:
                created_at = queue.records[0].created_at
                times.append(created_at + self._delivery_timeout)
                if not self._producer.queued_batches(queue.partition):  # else a response makes the queue ready
                    times.append(created_at + self._linger)
        return max(0.0, min(times) - now)

    def _report_deliveries(self) -> bool:
        """Report the outcomes that are known, and return whether there were any."""
        has_reports = bool(self._reports)
        while self._reports:  # `_fail_queued` adds some
            reports = self._reports[:]
            self._reports.clear()
            for report in reports:
                if isinstance(report.error, TopicNotFoundError):
                    self._fail_queued(report.error)
                self._on_delivery(report)
        return has_reports

    def _fail_queued(self, error: TopicNotFoundError) -> None:
        """Fail the other records of a missing topic or partition, which would take as long to be found missing."""
        topic = self._topics.get(error.topic or "")
        if topic is None:
            return
        topic.expires_at = 0.0  # a recreated topic may have fewer partitions
        for partition, queue in topic.queues.items():
            if queue.records and error.partition in (None, partition):
                message = "The topic, or its partition, does not exist: earlier records could not be written either."
                error_of_queue = TopicNotFoundError(message, topic=error.topic, partition=partition)
                self._report_unsent(queue.remove_all(), error_of_queue)


class _TopicInfo:
    """The queues and the number of a topic's partitions, and the sticky partition for records without a key."""

    def __init__(self) -> None:
        self.partitions = 0
        self.expires_at = 0.0
        self.queues: dict[int, _RecordQueue] = {}  # by partition
        self._sticky_index = 0
        self._sticky_bytes = 0

    def sticky_partition(self, size: int, batch_bytes: int) -> int:
        """Return the partition for a record without a key; it changes after about one record batch."""
        if self._sticky_bytes >= batch_bytes:
            self._sticky_index += 1
            self._sticky_bytes = 0
        self._sticky_bytes += size
        self._sticky_index %= self.partitions  # at every call: a recreated topic may have fewer partitions
        return self._sticky_index


class _RecordQueue:
    """The queued records of one partition, in the order in which they were sent."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.records: deque[PendingRecord] = deque()
        self.size_bound = 0  # of all records

    def take_batch(self, max_bytes: int, max_age_spread: float) -> list[PendingRecord]:
        """Remove and return the records of the next batch, at least one."""
        records = self.records
        max_created_at = records[0].created_at + max_age_spread
        record_count = batch_size = 0
        for record in records:
            if record_count and (batch_size + record.size_bound > max_bytes or record.created_at > max_created_at):
                break
            record_count += 1
            batch_size += record.size_bound
        self.size_bound -= batch_size
        return [records.popleft() for _ in range(record_count)]

    def remove_expired(self, now: float, timeout: float) -> list[PendingRecord]:
        """Remove and return the records whose timeout has passed."""
        expired_records = []
        while self.records and self.records[0].created_at + timeout <= now:
            record = self.records.popleft()
            expired_records.append(record)
            self.size_bound -= record.size_bound
        return expired_records

    def remove_all(self) -> list[PendingRecord]:
        """Remove and return all records."""
        records = list(self.records)
        self.records.clear()
        self.size_bound = 0
        return records


class _BatchCallback:
    """The ``DeliveryCallback`` of one record batch: adds delivery reports of its records."""

    def __init__(
        self,
        records: Sequence[PendingRecord],
        encoded: EncodedBatch,
        reports: list[DeliveryReport],
        cluster: ClusterClient,
    ) -> None:
        self.records = records
        self.encoded = encoded
        self.failed_count = 0  # of the first records: `_encode_and_enqueue` reports the others if `enqueue` fails
        self._reports = reports
        self._cluster = cluster
        self._partition = TopicPartition(records[0].topic, encoded.partition)
        self._topic_id = self._known_topic_id()  # before the records are sent
        leader = cluster.known_leaders([self._partition]).get(self._partition)
        self._leader_epoch = -1 if leader is None else leader.epoch

    def on_acknowledged(self, first_index: int, record_count: int, base_offset: int, append_time: int) -> None:
        records = self.records[first_index : first_index + record_count]
        if self._topic_id == self._known_topic_id():
            report = DeliveryReport(
                records, base_offset, append_time, topic_id=self._topic_id, leader_epoch=self._leader_epoch
            )
        else:  # the topic was recreated before or after the records were written, so their topic's id is not known
            report = DeliveryReport(records, base_offset, append_time)
        self._reports.append(report)

    def on_failed(self, first_index: int, record_count: int, error: BaseException) -> None:
        self.failed_count += record_count
        self._reports.append(DeliveryReport(self.records[first_index : first_index + record_count], error=error))

    def _known_topic_id(self) -> UUID | None:
        # Produce requests below version 13 have no topic id, so the response does not prove it.
        return self._cluster.known_topic_ids([self._partition.topic]).get(self._partition.topic)
