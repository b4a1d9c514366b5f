"""Reads several partitions on past their ends, for as long as somebody asks for what is new.

One fetch request to each leader names all its partitions there, and waits at the broker for the first record. Its
answer is taken when all that the last one brought is handed out. The next request is sent before the records are
decoded.

Everything happens in the caller's thread but what may take long: looking for leaders, connecting with them and asking
for the state of their logs are errands (``_errands``). So nothing is waited for but sockets, and ``wake`` is noticed at
any time.

What an answer means is decided in ``_answers`` and ``_tail_verdicts``; ``_tail_leaders`` finds who leads.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import MAX_OFFSET, TopicPartition
from pyspark_kafka_direct.reading._answers import (
    Asked,
    AskLeader,
    Cut,
    GoTo,
    Hole,
    TryAgain,
    after_error,
    after_nothing_yet,
    is_quiet,
)
from pyspark_kafka_direct.reading._errands import Errands
from pyspark_kafka_direct.reading._tail_leaders import Leaders
from pyspark_kafka_direct.reading._tail_logs import Logs
from pyspark_kafka_direct.reading._tail_partition import Decoding, TailPartition
from pyspark_kafka_direct.reading._tail_verdicts import cut
from pyspark_kafka_direct.records import COLUMNS
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.reading._tail_link import Question, TailLink
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.fetch import FetchedPartition

__all__ = ["Polled", "Tail"]

_log = logging.getLogger("pyspark_kafka_direct.reading")

# For so many seconds a leader must send nothing, although its log goes on, before that is taken for a hole of
# compaction at the log's end: as with ranges, nothing proves it, and others may be slow to read old records.
_SILENCE_TO_BELIEVE = 60.0


class Polled(NamedTuple):
    """Rows of one partition, in the order of their offsets.

    Attributes:
        partition: The partition.
        rows: At least one.
    """

    partition: TopicPartition
    rows: pa.RecordBatch


class Tail:
    """Reads partitions from given offsets on, without an end.

    Trouble that may pass (a moved leader, a broken connection, a restarted broker, a quota) is tried again for as long
    as it lasts, and told by ``trouble``. What does not pass is raised by ``poll``, once each time it is found, and what
    came of the other partitions is handed out by the next call. The owner goes on with ``seek``, or ``pause``; else the
    same is tried, and raised, again.

    Used by one thread; others interrupt it through ``wake``.

    Args:
        cluster: The cluster.
        fetch: How to fetch. Records come from leaders only, whatever the rack.
        starts: The first offset to read of each partition.
        columns: Wanted columns, see ``records.COLUMNS``.
        max_rows: Most rows of one Arrow batch.
        max_bytes: Bytes after which an Arrow batch is closed, and about what one ``poll`` hands out.
        max_batch_bytes: Most bytes that a record batch may decompress to, and that a record may take.
        topic_ids: The ids of the topics that the offsets are of, where they are known; else any topic of that name will
            do at first.

    Raises:
        ValueError: An offset is negative, or an argument is out of its range.
    """

    def __init__(
        self,
        cluster: Cluster,
        fetch: FetchSettings,
        starts: Mapping[TopicPartition, int],
        *,
        columns: Sequence[str] = COLUMNS,
        max_rows: int = 32_768,
        max_bytes: int = 4 << 20,
        max_batch_bytes: int = 1 << 30,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
    ) -> None:
        self._system = cluster.pool.system
        self._process = os.getpid()
        self._read_committed = fetch.isolation_level == "read_committed"
        self._max_bytes = max_bytes
        kept = max(fetch.fetch_max_bytes // max(len(starts), 1), 1 << 16)
        decoding = Decoding(tuple(columns), fetch.check_crcs, max_rows, max_bytes, max_batch_bytes, kept)
        self._partitions = {
            name: TailPartition(name, _checked(name, offset), decoding, (topic_ids or {}).get(name))
            for name, offset in starts.items()
        }
        self._errands = Errands(self._system)
        self._leaders = Leaders(cluster, fetch, self._errands, self._partitions.values(), self._fail)
        self._logs = Logs(cluster, self._errands, self._leaders, self._fail)
        self._ready: deque[TailPartition] = deque()  # with something to decode
        self._failures: dict[TailPartition | None, KafkaDirectError] = {}
        self._moved = False
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset after what ``poll`` has handed out, or passed over, of each partition."""
        return {name: each.position for name, each in self._partitions.items()}

    @property
    def trouble(self) -> Mapping[TopicPartition, KafkaDirectError]:
        """What is in the way of partitions now, and may pass."""
        return {name: each.trouble for name, each in self._partitions.items() if each.trouble is not None}

    def poll(self, seconds: float, wake: Collection[int] = ()) -> list[Polled]:
        """Return what is new; wait for it if there is nothing.

        Returns with nothing when a position moved all the same (over control records, aborted ones, holes), when a
        descriptor of ``wake`` is readable, and when the time is over.

        Args:
            seconds: How long to wait.
            wake: Descriptors that end the wait when they are readable.

        Raises:
            DataLossError: The position lies before the log's start or beyond its end.
            TruncatedError: The log was cut back.
            TopicRecreatedError: The topic has another id.
            TopicNotFoundError: The topic or the partition is gone.
            BrokerError: The cluster refuses (authentication, authorization, protocol).
            RecordError: Bytes that are not valid records.
        """
        self._check_usable()
        self._raise_failure()
        limit = self._system.monotonic() + seconds
        while True:
            self._turn()
            polled, moved = self._hand_out()
            if polled or moved:
                return polled
            self._raise_failure()
            if self._system.monotonic() >= limit or any(self._system.readable(each) for each in wake):
                return []
            self._leaders.wait(limit, wake)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions, and fetch nothing."""
        for name in partitions:
            self._named(name).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with paused partitions; when they are fetched again, the request under way has been answered."""
        for name in partitions:
            self._named(name).paused = False

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at another offset. After ``TopicRecreatedError`` it is one of the new topic."""
        each = self._named(partition)
        each.seek(_checked(partition, offset))
        self._failures.pop(each, None)

    def close(self) -> None:
        """Give the connections back. Waits for nothing."""
        if not self._closed:
            self._closed = True
            self._ready.clear()
            if self._process == os.getpid():
                self._errands.close()
                self._leaders.close()
            else:
                self._errands.abandon()
                self._leaders.abandon()

    def _named(self, name: TopicPartition) -> TailPartition:
        try:
            return self._partitions[name]
        except KeyError:
            raise ValueError(f"{name} is not read by this tail") from None

    def _check_usable(self) -> None:
        if self._closed:
            raise RuntimeError("the tail is closed")
        if self._process != os.getpid():
            raise RuntimeError("the tail belongs to the parent process")

    def _raise_failure(self) -> None:
        for partition in self._failures:
            raise self._failures.pop(partition)

    def _fail(self, partition: TailPartition | None, error: KafkaDirectError) -> None:
        """Have an error raised that does not pass by itself; what was not handed out is asked for again."""
        if partition is not None:
            partition.rewind()
            self._leaders.delay(partition)
        self._failures[partition] = error

    def _turn(self) -> None:
        """Take what came, and ask for more."""
        self._errands.take()
        for link in self._leaders.answered():
            self._take_answer(link)
        self._logs.ask()
        self._leaders.ask()

    def _hand_out(self) -> tuple[list[Polled], bool]:
        """Return rows of about ``max_bytes``, in turns from each partition, and whether a position moved."""
        polled: list[Polled] = []
        held: list[TailPartition] = []
        size = 0
        moved, self._moved = self._moved, False
        while self._ready and size < self._max_bytes:
            partition = self._ready.popleft()
            if partition.drained:
                continue  # sought meanwhile
            if partition.paused:
                held.append(partition)
                continue
            before = partition.position
            try:
                rows = partition.read()
            except KafkaDirectError as error:
                self._fail(partition, error)
                continue
            moved = moved or partition.position > before
            if rows is not None:
                polled.append(Polled(partition.name, rows))
                size += rows.get_total_buffer_size()
                self._ready.append(partition)
        self._ready.extend(held)
        return polled, moved

    def _take_answer(self, link: TailLink) -> None:
        try:
            questions, answer = link.take()
        except KafkaDirectError as error:
            self._leaders.lose(link, error)
            return
        room = True  # a broker sends the first of the partitions that have records at least one batch (KIP-74)
        for question in questions:
            partition = question.partition
            fetched = answer.of(partition.name)
            had_room, room = room, room and not fetched.records
            if question.stale or not link.leads(partition):
                continue
            if is_quiet(question.offset, fetched, read_committed=self._read_committed):
                partition.well()
                continue
            try:
                if not fetched.error_code and partition.feed(fetched):
                    partition.well()
                    link.serve_last(partition)
                    self._ready.append(partition)
                else:
                    self._act(link, question, fetched, had_room=had_room)
            except KafkaDirectError as error:
                self._fail(partition, error)

    def _act(self, link: TailLink, question: Question, fetched: FetchedPartition, *, had_room: bool) -> None:
        """Do with a partition that nothing came of what the answer means."""
        partition = question.partition
        asked = Asked(
            partition.name,
            question.offset,
            str(link.node),
            on_leader=True,
            read_committed=self._read_committed,
            compared=question.compared,
        )
        code = fetched.error_code
        match after_error(asked, code) if code else after_nothing_yet(asked, fetched):
            case None:
                partition.well()
            case TryAgain(error, throttled=True):
                partition.trouble = error
            case TryAgain(error, look_up=True):
                self._leaders.moved(partition, error, fetched.current_leader)
            case TryAgain(error):
                self._leaders.delay(partition, error)
            case GoTo():
                self._leaders.delay(partition, error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fetching", **asked.place))
            case AskLeader(error):
                self._logs.after_refusal(partition, error, end_may_lag=link.end_may_lag)
            case Hole() as hole if had_room:
                self._wait_or_believe(partition, hole)
            case Hole():
                partition.well()  # others' records filled the answer
            case Cut(offset):
                raise cut(partition.name, partition.position, offset)

    def _wait_or_believe(self, partition: TailPartition, hole: Hole) -> None:
        now = self._system.monotonic()
        if partition.silent_since is None:
            partition.silent_since = now
        silence = now - partition.silent_since
        if silence < _SILENCE_TO_BELIEVE:
            self._leaders.delay(partition, hole.error)
            return

        def believe() -> None:
            _log.warning(
                "offsets [%d, %d) of %s are taken for a hole of compaction at the log's end: for %.1f s its leader "
                "sent no records, although the log goes on",
                *(partition.position, hole.end, partition.name, silence),
            )
            partition.skip_to(hole.end)
            self._moved = True

        self._logs.after_silence(partition, hole.error, believe)


def _checked(partition: TopicPartition, offset: int) -> int:
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"{partition} cannot be read from offset {offset}: it must be from 0 to {MAX_OFFSET}")
    return offset
