"""The record batches of one partition on their way: what may be sent next, what is under way, in which order.

Nothing here talks to a broker. The rules that keep the order and let no record in twice:

- One batch is under way until a first one was acknowledged; then several, whose sequence numbers follow one another.
  (A broker that knows nothing of a producer id takes any sequence number, so of two it might refuse the first and take
  the second.) Without sequence numbers it is always one.
- After any trouble nothing is sent until everything under way has its answer. Then the same bytes are sent again,
  oldest first, one at a time until one is acknowledged.
- No batch is sent that is more than so many behind the oldest that is not acknowledged, whatever was acknowledged in
  between: a broker recognises a batch that comes again only while it is one of the last that it has taken.
- A producer id is replaced only while nothing is under way. The numbers then begin at 0.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire._idle_producers import Place
    from pyspark_kafka_direct.wire.metadata import Node

_NONE = -1
_SEQUENCES = 1 << 31


class Recipient(Protocol):
    """Is told what became of the records of a batch: of each record once, in parts where the batch had to be split."""

    def acknowledged(self, first: int, records: int, offset: int, append_time: int) -> None:
        """Take note that records were written.

        Args:
            first: Where they begin in the batch.
            records: How many.
            offset: Offset of the first; -1 if the broker did not tell.
            append_time: The timestamp that the broker gave them, where the topic is so; else -1.
        """

    def failed(self, first: int, records: int, error: BaseException) -> None:
        """Take note that records were given up.

        Args:
            first: Where they begin in the batch.
            records: How many.
            error: Why.
        """


class Pending:
    """A record batch that is not acknowledged yet.

    Args:
        number: Its place among the batches of its partition; halves of one have the numbers of the whole and one more.
        records: How many there are.
        data: The whole batch.
        first: Where its records begin in the batch that was given, of which it may be a part.
        recipient: Who is told what became of it.
        since: Since when it waits, if that is what its time is counted from.

    Attributes:
        sequence: Sequence number of its first record; -1 before it is first sent, and without sequence numbers.
        stamped: Whether the producer id and the sequence number are in ``data``.
        tried_at: When its time began: when it was first sent, or first could not be, unless it was given.
        in_doubt: Whether it was sent, and no answer told that it was not written.
    """

    __slots__ = ("data", "first", "in_doubt", "number", "recipient", "records", "sequence", "stamped", "tried_at")

    def __init__(
        self,
        number: tuple[int, ...],
        records: int,
        data: bytearray,
        first: int = 0,
        recipient: Recipient | None = None,
        since: float | None = None,
    ) -> None:
        self.number = number
        self.records = records
        self.data = data
        self.first = first
        self.recipient = recipient
        self.sequence = _NONE
        self.stamped = False
        self.tried_at = since
        self.in_doubt = False


class Partition:
    """One partition's record batches, and what is known of the partition.

    Args:
        name: Which one.
        window: Most batches under way; 1 without sequence numbers.
        numbered: Whether batches have sequence numbers.

    Attributes:
        leader: Where to send; ``None`` if it has to be looked up.
        not_before: When something may be sent again, or looked up.
        tries: Failures since the last acknowledgement.
        trouble: The last of them.
        denials: How often in a row the cluster said that there is no such partition.
        renew: Whether a producer id, or another one, is needed before anything is sent.
        place: The producer id, and the next sequence number; ``None`` while there is none.
    """

    def __init__(self, name: TopicPartition, window: int, *, numbered: bool) -> None:
        self.name = name
        self.leader: Node | None = None
        self.not_before = 0.0
        self.tries = 0
        self.trouble: KafkaDirectError | None = None
        self.denials = 0
        self.renew = numbered
        self.place: Place | None = None
        self._window = window
        self._waiting: deque[Pending] = deque()
        self._under_way: deque[Pending] = deque()
        # What was sent, from the oldest batch on that is not acknowledged.
        self._sent: list[Pending] = []
        self._number = 0
        self._proven = False
        self._draining = False

    @property
    def head(self) -> Pending | None:
        """The batch to send next, if any waits."""
        return self._waiting[0] if self._waiting else None

    @property
    def waiting(self) -> int:
        """How many batches wait to be sent."""
        return len(self._waiting)

    @property
    def settled(self) -> bool:
        """Whether no batch waits or is under way."""
        return not self._waiting and not self._under_way

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    def add(
        self,
        records: int,
        data: bytearray,
        first: int = 0,
        recipient: Recipient | None = None,
        since: float | None = None,
    ) -> None:
        """Let a batch follow; the arguments are those of ``Pending``."""
        self._number += 1
        self._waiting.append(Pending((self._number,), records, data, first, recipient, since))

    def may_send(self, now: float) -> bool:
        """Tell whether the head may be sent now."""
        if not self._waiting or now < self.not_before:
            return False
        if len(self._under_way) >= (self._window if self._proven else 1):
            return False
        return len(self._sent) < self._window or self._waiting[0] in self._sent

    def send(self, now: float) -> Pending:
        """Return the head, which is under way now; where there are sequence numbers, it has its own."""
        batch = self._waiting.popleft()
        self._under_way.append(batch)
        if batch not in self._sent:
            self._sent.append(batch)
        if batch.tried_at is None:
            batch.tried_at = now
        if self.place is not None and batch.sequence == _NONE:
            batch.sequence = self.place.sequence
            self.place = self.place._replace(sequence=after(batch.sequence, batch.records))
        return batch

    def is_first(self, batch: Pending) -> bool:
        """Tell whether no older batch is unacknowledged."""
        return batch.number == self._oldest

    def acknowledged(self, batch: Pending) -> None:
        """Take note that a batch is written."""
        self._under_way.remove(batch)
        oldest = self._oldest
        self._sent = [each for each in self._sent if oldest is not None and each.number >= oldest]
        if self._draining:  # an older one has failed
            self._draining = bool(self._under_way)
            return
        self._proven = True
        self.tries = self.denials = 0
        self.trouble = None

    def returned(self, batch: Pending) -> None:
        """Take back a batch that has to be sent again."""
        self._under_way.remove(batch)
        self._put_back(batch)

    def split(self, batch: Pending, halves: tuple[bytearray, bytearray]) -> None:
        """Take back a batch that is too large, as two. Together they have its sequence numbers."""
        self._under_way.remove(batch)
        # It was not taken, so what came behind it was not either.
        self._sent = [each for each in self._sent if each.number < batch.number]
        first = (batch.records + 1) // 2
        for place, (records, data) in enumerate(zip((first, batch.records - first), halves, strict=True)):
            start = batch.first + place * first
            half = Pending((*batch.number, place), records, data, start, batch.recipient, batch.tried_at)
            half.in_doubt = batch.in_doubt
            self._put_back(half)
            half.sequence = _NONE if batch.sequence == _NONE else after(batch.sequence, place * first)

    def dropped(self, batch: Pending) -> None:
        """Give a batch up. Its sequence numbers are missing now, so those behind it need another producer id.

        What is behind it and was sent keeps its numbers, as it may have been written: the broker that misses some says
        so, and only then is there another producer id.
        """
        (self._under_way if batch in self._under_way else self._waiting).remove(batch)
        oldest = self._oldest
        self._sent = [each for each in self._sent if oldest is not None and each.number >= oldest]
        self._proven = False
        self._draining = bool(self._under_way)
        if batch.sequence != _NONE and not self._sent:
            self.renew = True

    def abandon(self) -> list[Pending]:
        """Return all that is not acknowledged, as nothing is sent any more and no answer is awaited."""
        for batch in self._under_way:
            batch.in_doubt = True
        return [*self._under_way, *self._waiting]

    def begin_anew(self, place: Place) -> None:
        """Take another producer id: all that waits is numbered again."""
        assert not self._under_way
        self.place = place
        self.renew = False
        self._sent.clear()
        for batch in self._waiting:
            batch.sequence = _NONE
            batch.stamped = False

    def failed(self, error: KafkaDirectError, now: float, pause: float) -> None:
        """Take note of trouble, and wait before the next try."""
        self.tries += 1
        self.trouble = error
        self.not_before = max(self.not_before, now + pause)
        if self._waiting and self._waiting[0].tried_at is None:
            self._waiting[0].tried_at = now

    @property
    def _oldest(self) -> tuple[int, ...] | None:
        """The number of the oldest batch that is not acknowledged."""
        return min((each[0].number for each in (self._waiting, self._under_way) if each), default=None)

    def _put_back(self, batch: Pending) -> None:
        place = sum(each.number < batch.number for each in self._waiting)
        self._waiting.insert(place, batch)
        self._proven = False
        self._draining = bool(self._under_way)


def after(sequence: int, records: int) -> int:
    """Return the sequence number that many records further on; it wraps as Kafka's does."""
    return (sequence + records) % _SEQUENCES
