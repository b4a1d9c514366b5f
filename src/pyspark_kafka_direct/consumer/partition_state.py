"""The state of one partition of a ``PartitionConsumer``, with the leader epochs that it has read (KIP-101, KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.consumer.fetch_channel import UNKNOWN_EPOCH
from pyspark_kafka_direct.consumer.partition_reader import PartitionReader
from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.records import AbortedTransaction, RecordDecoder, scan_batches, scan_leader_epoch

if TYPE_CHECKING:
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.consumer.fetch_channel import FetchResponsePartition
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition


class EpochStart(NamedTuple):
    """A leader epoch, and the offset of its first record."""

    epoch: int
    offset: int


class EpochHistory:
    """The leader epochs of the records that were read; both epochs and offsets grow. Java: ``LeaderEpochFileCache``."""

    def __init__(self) -> None:
        self._starts: list[EpochStart] = []
        self._known_from = 0  # epochs that ended before this offset are unknown

    @property
    def last(self) -> int:
        """The epoch of the last record."""
        return self._starts[-1].epoch if self._starts else UNKNOWN_EPOCH

    def add(self, start: EpochStart) -> None:
        if start.epoch > self.last:
            self._starts.append(start)

    def resume_at(self, offset: int, epoch: int) -> None:
        """Forget the records before an offset, except the epoch of the last one if it is known."""
        self._starts.clear()
        self.add(EpochStart(epoch, 0))  # where it began is unknown
        self._known_from = offset

    def add_batches(self, records: memoryview | bytearray | bytes, position: int) -> None:
        """Add the batches of a response to a fetch from ``position``, which may begin before it."""
        for batch in scan_batches(records, position).batches:
            self.add(EpochStart(batch.leader_epoch, max(batch.base_offset, position)))

    def last_before(self, offset: int) -> int:
        """Return the epoch of the last record before an offset."""
        return next((start.epoch for start in reversed(self._starts) if start.offset < offset), UNKNOWN_EPOCH)

    def truncate(self, offset: int) -> None:
        """Forget the records from an offset on."""
        if offset < self._known_from:  # the epoch of the record before it is unknown
            self._starts.clear()
            self._known_from = 0
        while self._starts and self._starts[-1].offset >= offset:
            self._starts.pop()

    def diverges_at(self, epoch: int, end_offset: int) -> int:
        """Return the first offset where the records may differ from a log; in it, their common epoch ends at an offset.

        All records of later epochs differ, also those before ``end_offset``.
        """
        first_later = next((start.offset for start in self._starts if start.epoch > epoch), end_offset)
        return min(first_later, end_offset)


class DecodeOptions(NamedTuple):
    """The options of a partition's decoder."""

    columns: tuple[str, ...]
    check_crcs: bool
    max_rows: int  # of an Arrow batch
    max_bytes: int  # of an Arrow batch
    max_batch_bytes: int  # of a decompressed record batch
    # Of a response: after a larger one the decoder is replaced, because its memory does not shrink.
    max_retained_bytes: int

    @property
    def decoded_columns(self) -> tuple[str, ...]:
        """The selected columns and the offset, from which the position follows."""
        return self.columns if "offset" in self.columns else (*self.columns, "offset")


class TopicPartitionState:
    """The fetch state of one partition of a consumer."""

    def __init__(
        self,
        tp: TopicPartition,
        offset: int,
        decode_options: DecodeOptions,
        *,
        read_committed: bool,
        topic_id: UUID | None = None,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.position = offset  # after the last returned record
        self.reader = PartitionReader(tp, offset, read_committed=read_committed, in_planned_range=False)
        self.served_by_leader = False  # then a log that ends before the position was truncated
        self.leader_epoch = UNKNOWN_EPOCH
        self.needs_validation = False  # whether the next fetch sends ``last_fetched_epoch`` (KIP-320)
        self.seek_count = 0  # a response to a request from before a seek is ignored
        self.check_in_flight = False  # requests in the background decide how to continue
        self.transient_error: KafkaDirectError | None = None
        self.failed_attempts = 0  # in a row
        self.next_fetch_at = 0.0
        self.new_topic_id: UUID | None = None  # of the recreated topic, after ``TopicRecreatedError``
        self.epochs = EpochHistory()  # of the records that were read
        self.truncated_to: int | None = None  # of the last truncation that was raised, until the next seek
        self._decode_options = decode_options
        self._decoder: RecordDecoder | None = None
        self._has_undecoded = False  # whether the decoder still has to return rows of the last response
        self._max_fed_bytes = 0
        self._make_decoder()  # validates the options and does the slow imports before any records arrive

    def set_last_epoch(self, epoch: int) -> None:
        """Set the epoch of the last batch before the position, which another consumer has read."""
        self.reader.last_fetched_epoch = epoch
        self.epochs.resume_at(self.position, epoch)

    def seek(self, offset: int) -> None:
        """Resume at an offset that the user chose; responses to earlier requests are ignored."""
        # Records before an offset behind a truncation differ, for example those before the log start. They are not
        # compared again, because the leader would report the same truncation.
        is_behind_truncation = self.truncated_to is not None and self.truncated_to < offset
        self.truncated_to = None
        if offset > self.reader.fetch_offset:  # the records in between were not read
            self.epochs.resume_at(offset, UNKNOWN_EPOCH)
        else:
            self.epochs.truncate(0 if is_behind_truncation or self.new_topic_id is not None else offset)
        self._resume_at(offset, self.epochs.last)
        self.seek_count += 1
        # Checks, errors and the backoff concerned the old position.
        self.check_in_flight = False
        self.needs_validation = False
        self.transient_error = None
        self.failed_attempts = 0
        self.next_fetch_at = 0.0
        if self.new_topic_id is not None:  # the offset is one of the new topic
            self.topic_id, self.new_topic_id = self.new_topic_id, None

    def skip_to(self, offset: int) -> None:
        """Resume at a later offset, because there are no records before it."""
        self._resume_at(offset, UNKNOWN_EPOCH)
        self.on_fetch_success()

    def discard_fetched(self) -> None:
        """Discard the records that were fetched but not returned; they are fetched again."""
        # What is known about the log at the position remains.
        self.reader.last_fetched_epoch = self.last_returned_epoch
        self.reader.fetch_offset = self.position
        self.epochs.truncate(self.position)
        self._discard_decoder()

    @property
    def last_returned_epoch(self) -> int:
        """The leader epoch of the last batch before the position, if it is known."""
        is_last_fetched = self.reader.fetch_offset == self.position
        return self.reader.last_fetched_epoch if is_last_fetched else self.epochs.last_before(self.position)

    @property
    def confirmed_epoch(self) -> int:
        """The epoch of the last leader whose log has the records before the position; -1 if that is unknown."""
        if not self.served_by_leader or self.needs_validation:
            return self.last_returned_epoch
        # A leader may be elected again before the response, which then has records of the later epoch.
        return UNKNOWN_EPOCH if self.leader_epoch < 0 else max(self.leader_epoch, self.last_returned_epoch)

    @property
    def drained(self) -> bool:
        """Whether all fetched records were returned."""
        return not self._has_undecoded

    def feed(self, fetched: FetchResponsePartition) -> bool:
        """Add the records of a response; return whether they contain a complete record batch."""
        records = fetched.records
        decoder = self._decoder or self._make_decoder()
        decoder.feed(records, [AbortedTransaction(*entry) for entry in fetched.aborted])
        self._decoder, self._has_undecoded = decoder, True
        self._max_fed_bytes = max(self._max_fed_bytes, len(records))
        if decoder.next_offset <= self.reader.fetch_offset:  # no complete record batch
            self._finish_decoding()
            return False
        last_epoch = scan_leader_epoch(records)
        # Epochs only grow within a log: if that of the last batch is known, no other batch begins a new one.
        if last_epoch != self.epochs.last:
            self.epochs.add_batches(records, self.reader.fetch_offset)
        self.reader.resume_at(decoder.next_offset, last_epoch)
        self.on_fetch_success()
        return True

    def read(self) -> pa.RecordBatch | None:
        """Return the next rows and advance the position; None if all fetched records were returned."""
        assert self._decoder is not None
        while (rows := self._decoder.read()) is not None:
            if rows.num_rows:
                columns = self._decode_options.columns
                selected = rows if "offset" in columns else rows.select(list(columns))
                # Only after select, which may raise: rows that are not returned are fetched again.
                self.position = rows.column("offset")[-1].as_py() + 1
                return selected
        self._finish_decoding()
        self.position = self.reader.fetch_offset
        return None

    def on_fetch_success(self) -> None:
        """Reset all error state: the leader served the partition."""
        self.served_by_leader = True
        self.needs_validation = False
        self.transient_error = None
        self.failed_attempts = 0
        self.reader.reset_evidence()

    def _resume_at(self, offset: int, last_epoch: int) -> None:
        self.position = offset
        self.reader.resume_at(offset, last_epoch)
        self.served_by_leader = False
        self._discard_decoder()

    def _discard_decoder(self) -> None:
        self._decoder, self._has_undecoded, self._max_fed_bytes = None, False, 0

    def _finish_decoding(self) -> None:
        """Mark the fetched records as returned, and release the decoder if a large response has filled its memory."""
        self._has_undecoded = False
        if self._max_fed_bytes > self._decode_options.max_retained_bytes:
            self._decoder, self._max_fed_bytes = None, 0

    def _make_decoder(self) -> RecordDecoder:
        options = self._decode_options
        return RecordDecoder(
            topic=self.tp.topic,
            partition=self.tp.partition,
            from_offset=self.reader.fetch_offset,
            until_offset=MAX_OFFSET,
            columns=options.decoded_columns,
            check_crcs=options.check_crcs,
            max_rows=options.max_rows,
            max_bytes=options.max_bytes,
            max_batch_bytes=options.max_batch_bytes,
        )
