"""Finds the newest record of a key in a partition, and whether its transaction was committed, aborted or is open.

A read with ``read_committed`` ends at the first open transaction of any writer. This reads all records, and decides
each one by the next control record of the producer id that wrote it. So transactions of other writers do not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.consumer.fetch_channel import ReadReplica
from pyspark_kafka_direct.consumer.fetcher import Fetcher
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.options.settings import DEFAULT_MAX_RECORD_BATCH_BYTES
from pyspark_kafka_direct.records import RecordDecoder, is_abort_marker, is_valid_batch, scan_batches
from pyspark_kafka_direct.records.columns import binary_values
from pyspark_kafka_direct.records.record_errors import record_error
from pyspark_kafka_direct.records.scanned_batches import BadRecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.consumer.fetcher import RecordHandler
    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.options.settings import FetchSettings
    from pyspark_kafka_direct.records import AbortedTransaction
    from pyspark_kafka_direct.records.scanned_batches import ScannedBatch


def read_key(
    cluster: ClusterClient, fetch: FetchSettings, key: bytes, offsets: OffsetRange, *, from_earliest: bool = False
) -> TransactionalRecords:
    """Read a range to its end, and return the records of a key."""
    found = TransactionalRecords(key, offsets, fetch.max_record_batch_bytes)
    _read_batches(cluster, fetch, found, offsets, from_earliest=from_earliest)
    return found


def has_transactions(cluster: ClusterClient, fetch: FetchSettings, offsets: OffsetRange) -> bool:
    """Read a range to its end, and return whether it has records that were written in transactions."""
    found = _TransactionFinder(offsets)
    _read_batches(cluster, fetch, found, offsets)
    return found.has_transactions


def _read_batches(
    cluster: ClusterClient,
    fetch: FetchSettings,
    handler: RecordHandler,
    offsets: OffsetRange,
    *,
    from_earliest: bool = False,
) -> None:
    partition = offsets.topic_partition
    # With the known leader and topic id, no metadata is requested.
    leader = cluster.known_leaders([partition]).get(partition)
    topic_id = cluster.known_topic_ids([partition.topic]).get(partition.topic)
    task = RangeTask(offsets, topic_id, leader, from_earliest=from_earliest)
    replica = ReadReplica(cluster.settings, fetch, partition, topic_id, planned_leader=leader, pool=cluster.pool)
    fetcher = Fetcher(task, replica, handler, ReadCounts(), system=cluster.pool.system)
    try:
        for _ in fetcher.run():
            pass  # the handler receives the batches
    finally:
        replica.release()


class _TransactionFinder:
    """Handles the record batches of a range (a ``RecordHandler`` of the fetcher) by their headers."""

    def __init__(self, offsets: OffsetRange) -> None:
        self.has_transactions = False
        self.next_offset = offsets.from_offset
        self._until = offsets.until_offset

    def skip_to(self, offset: int) -> None:
        """Resume at a later offset, because there are no records before it."""
        self.next_offset = offset

    def feed(self, records: memoryview, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Handle one fetch response, and update ``next_offset``."""
        scanned = scan_batches(records, self.next_offset, self._until)
        self.has_transactions |= any(batch.is_transactional and not batch.is_control for batch in scanned.batches)
        self.next_offset = scanned.next_offset


class KeyRecord(NamedTuple):
    """A record of the key."""

    offset: int
    value: bytes | None  # None: a tombstone


class TransactionalRecords:
    """Handles the record batches of a range (a ``RecordHandler`` of the fetcher) for one key."""

    def __init__(self, key: bytes, offsets: OffsetRange, max_batch_bytes: int = DEFAULT_MAX_RECORD_BATCH_BYTES) -> None:
        self.newest: KeyRecord | None = None  # that was committed, or written without a transaction
        self.next_offset = offsets.from_offset
        self._key = key
        self._offsets = offsets
        self._max_batch_bytes = max_batch_bytes
        self._open: dict[int, KeyRecord] = {}  # the newest record of each producer id whose outcome is not known yet

    @property
    def undecided(self) -> KeyRecord | None:
        """The newest record, if it is newer than ``newest`` and its transaction has no control record."""
        last = max(self._open.values(), default=None, key=lambda record: record.offset)
        return None if last is None or (self.newest is not None and self.newest.offset > last.offset) else last

    def skip_to(self, offset: int) -> None:
        """Resume at a later offset, because there are no records before it."""
        self.next_offset = offset

    def feed(self, records: memoryview, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Handle one fetch response, and update ``next_offset``."""
        scanned = scan_batches(records, self.next_offset, self._offsets.until_offset)
        # The start of a decoder is fixed, and `skip_to` may have moved `next_offset` since the last response.
        decoder = self._create_decoder()
        try:
            for batch in scanned.batches:
                self._handle(batch, records[batch.start : batch.end], decoder)
            if scanned.error is not None:
                raise scanned.error
        except BadRecordError as error:
            topic, partition = self._offsets.topic_partition
            offset = self.next_offset if error.offset is None else error.offset
            raise record_error(error.kind, error.message, topic=topic, partition=partition, offset=offset) from None
        self.next_offset = scanned.next_offset

    def _handle(self, batch: ScannedBatch, data: memoryview, decoder: RecordDecoder) -> None:
        if batch.is_control:
            if not is_valid_batch(data):  # the decoder checks the other batches
                raise BadRecordError("the CRC of the control batch does not match its bytes", offset=batch.base_offset)
            if batch.records:  # compaction may have removed the control record
                self._end_transaction(batch.producer_id, data)
            return
        record = self._last_record(data, decoder)
        if record is None:
            return
        if batch.is_transactional:
            self._open[batch.producer_id] = record
        else:
            self._add(record)

    def _end_transaction(self, producer_id: int, control_batch: memoryview) -> None:
        record = self._open.pop(producer_id, None)
        if record is not None and not is_abort_marker(control_batch, self._max_batch_bytes):
            self._add(record)

    def _add(self, record: KeyRecord) -> None:
        if self.newest is None or record.offset > self.newest.offset:
            self.newest = record

    def _create_decoder(self) -> RecordDecoder:
        return RecordDecoder(
            topic=self._offsets.topic,
            partition=self._offsets.partition,
            from_offset=self.next_offset,
            until_offset=self._offsets.until_offset,
            columns=("key", "value", "offset"),
            max_batch_bytes=self._max_batch_bytes,
        )

    def _last_record(self, batch: memoryview, decoder: RecordDecoder) -> KeyRecord | None:
        """Return the last record of the key in a batch."""
        decoder.feed(batch)
        last = None
        while (rows := decoder.read()) is not None:
            keys = binary_values(rows.column("key"))
            if self._key in keys:
                row = len(keys) - 1 - keys[::-1].index(self._key)  # the last row with the key
                last = KeyRecord(rows.column("offset")[row].as_py(), rows.column("value")[row].as_py())
        return last
