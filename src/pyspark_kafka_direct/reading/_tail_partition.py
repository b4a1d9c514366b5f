"""One partition of a tail: how far it was read, what lies decoded, and what is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.offsets import MAX_OFFSET
from pyspark_kafka_direct.records import AbortedTransaction, create_decoder, scan_leader_epoch

if TYPE_CHECKING:
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.records import RecordDecoder
    from pyspark_kafka_direct.wire.fetch import FetchedPartition

UNKNOWN_EPOCH = -1


class Decoding(NamedTuple):
    """How records become rows.

    Attributes:
        columns: Wanted columns.
        check_crcs: Whether checksums are checked.
        max_rows: Most rows of one Arrow batch.
        max_bytes: Bytes after which an Arrow batch is closed.
        max_batch_bytes: Most bytes that a record batch may decompress to.
        kept_bytes: A decoder that was fed more is not kept, as its memory stays as large as that.
    """

    columns: tuple[str, ...]
    check_crcs: bool
    max_rows: int
    max_bytes: int
    max_batch_bytes: int
    kept_bytes: int

    @property
    def decoded(self) -> tuple[str, ...]:
        """The wanted columns and the offset, which tells the position."""
        return self.columns if "offset" in self.columns else (*self.columns, "offset")


class TailPartition:
    """A partition.

    Args:
        name: Which one.
        offset: Where to begin.
        decoding: How records become rows.
        topic_id: The id of its topic, if it is known.

    Raises:
        ValueError: What is in ``decoding`` is out of its range.

    Attributes:
        name: Which one.
        topic_id: The id of its topic; ``None`` while it is not known.
        position: The next offset after what was handed out.
        fetch_from: The next offset to ask for; later than the position while decoded records wait.
        paused: Whether its owner wants nothing of it now.
        leader_epoch: Counts the leaders.
        last_epoch: Leader epoch of the last batch before ``fetch_from``.
        compare: Whether the broker has to look whether its log has that batch.
        confirmed: Whether a leader has served an offset of this read: a log that ends before it was cut back.
        version: Counts the seeks: what was asked before one says nothing after it.
        asking: Whether an errand concerns it.
        trouble: What is in the way, while it is.
        tries: How often in a row it could not be read.
        not_before: When to try again.
        recreated_as: The id of another topic of that name, once the owner was told of it.
        denials: How often in a row brokers said that it does not exist.
        refusals: How often in a row the leader refused an offset that its log has.
        short_ends: How often in a row an old leader said that its log ends before the position.
        silent_since: Since when the leader sends nothing, although its log goes on.
    """

    def __init__(self, name: TopicPartition, offset: int, decoding: Decoding, topic_id: UUID | None = None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.paused = False
        self.leader_epoch = UNKNOWN_EPOCH
        self.compare = False
        self.version = 0
        self.asking = False
        self.trouble: KafkaDirectError | None = None
        self.tries = 0
        self.not_before = 0.0
        self.denials = 0
        self.recreated_as: UUID | None = None
        self._decoding = decoding
        self.go_to(offset)
        self._make_decoder()  # finds what is out of range, and imports what is heavy, before records wait for it

    def go_to(self, offset: int) -> None:
        """Go on at another offset, and forget what was read."""
        self.position = self.fetch_from = offset
        self.last_epoch = UNKNOWN_EPOCH
        self.confirmed = False
        self.refusals = 0
        self.short_ends = 0
        self.silent_since: float | None = None
        self._decoder: RecordDecoder | None = None
        self._undecoded = False
        self._most_fed = 0

    def seek(self, offset: int) -> None:
        """Go on where the owner wants; what was asked before says nothing any more."""
        self.go_to(offset)
        self.version += 1
        self.asking = False
        self.compare = False
        self.trouble = None
        self.tries = 0
        self.not_before = 0.0
        if self.recreated_as is not None:
            self.topic_id, self.recreated_as = self.recreated_as, None

    def skip_to(self, offset: int) -> None:
        """Go on at a later offset; what lies between holds nothing to read."""
        self.go_to(offset)
        self.well()

    def rewind(self) -> None:
        """Forget what was fetched and not handed out."""
        epoch = self.last_epoch if self.fetch_from == self.position else UNKNOWN_EPOCH
        confirmed, refusals = self.confirmed, self.refusals
        self.go_to(self.position)
        self.last_epoch, self.confirmed, self.refusals = epoch, confirmed, refusals

    @property
    def drained(self) -> bool:
        """Whether all that was fetched is handed out."""
        return not self._undecoded

    def feed(self, fetched: FetchedPartition) -> bool:
        """Take what came; return whether it holds a whole record batch.

        Raises:
            RecordError: Bytes that are not valid records.
        """
        records = fetched.records
        if not records:
            return False
        decoder = self._decoder or self._make_decoder()
        decoder.feed(records, [AbortedTransaction(*entry) for entry in fetched.aborted])
        self._decoder, self._undecoded = decoder, True
        self._most_fed = max(self._most_fed, len(records))
        if decoder.next_offset <= self.fetch_from:
            self._finish()
            return False
        self.fetch_from = decoder.next_offset
        self.last_epoch = scan_leader_epoch(records)
        return True

    def read(self) -> pa.RecordBatch | None:
        """Return the next rows and move the position behind them; ``None`` when what came is handed out.

        Raises:
            RecordError: Bytes that are not valid records.
        """
        assert self._decoder is not None
        while (rows := self._decoder.read()) is not None:
            if rows.num_rows:
                self.position = rows.column("offset")[-1].as_py() + 1
                return rows if "offset" in self._decoding.columns else rows.select(list(self._decoding.columns))
        self._finish()
        self.position = self.fetch_from
        return None

    def well(self) -> None:
        """Note that the leader served it."""
        self.confirmed = True
        self.compare = False
        self.trouble = None
        self.tries = 0
        self.denials = 0
        self.refusals = 0
        self.short_ends = 0
        self.silent_since = None

    def _finish(self) -> None:
        self._undecoded = False
        if self._most_fed > self._decoding.kept_bytes:
            self._decoder, self._most_fed = None, 0

    def _make_decoder(self) -> RecordDecoder:
        decoding = self._decoding
        return create_decoder(
            topic=self.name.topic,
            partition=self.name.partition,
            from_offset=self.fetch_from,
            until_offset=MAX_OFFSET,
            columns=decoding.decoded,
            check_crcs=decoding.check_crcs,
            max_rows=decoding.max_rows,
            max_bytes=decoding.max_bytes,
            max_batch_bytes=decoding.max_batch_bytes,
        )
