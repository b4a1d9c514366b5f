"""The thread of a log: reads, hands out what it read, and tells those who wait for it.

Its rules are those of Kafka Connect's ``KafkaBasedLog``. Those who want to read to the end are counted before the ends
are looked up, and exactly they are told when the ends are reached. Trouble that may pass is tried again in the next
round. Any other failure is theirs, and the thread lives on.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import (
    DataLossError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientBrokerError,
    TruncatedError,
)
from pyspark_kafka_direct.log._requests import cut_back
from pyspark_kafka_direct.log._topic import look_at
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.wire._retry import DENIALS_TO_BELIEVE, growing
from pyspark_kafka_direct.wire.system import jittered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from uuid import UUID

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.log._clients import Reader
    from pyspark_kafka_direct.log._future import LogFuture
    from pyspark_kafka_direct.log._handlers import Handlers
    from pyspark_kafka_direct.log._requests import Requests
    from pyspark_kafka_direct.log._topic import Found
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.system import Signal

_logger = logging.getLogger("pyspark_kafka_direct.log")

# Whoever wants something wakes the thread, so these are no delays.
_LONGEST_POLL: Final = 30.0

# How long a question to the brokers may take before the thread looks around, the first time; doubled by each failure,
# up to default.api.timeout.ms, as there are slow clusters.
_QUESTION: Final = 5.0

# While somebody waits and nothing comes, the ends are looked up again: a log may have been cut back.
_STALLED: Final = 2.0

# After so long all is read anew if the reader does not find out where a log was cut back.
_CUT_UNNOTICED: Final = 10.0

# How long a new topic may stay unknown (Connect waits as long for its partitions).
_NEW_TOPIC: Final = 30.0


class Work:
    """What the thread of a log does.

    Args:
        topic: The topic.
        cluster: Where it is.
        wanted: Which partitions are read; ``None``: all.
        open_reader: Makes a reader that begins at offsets.
        handlers: The functions to call.
        requests: Who waits.
        settled: Tells of how many records that were sent it is known what became of them, from the first one on.

    Attributes:
        positions: The next offset to read of each partition: whatever is before it was handed out. Replaced, never
            changed.
        incarnation: How often records were taken back.
    """

    def __init__(
        self,
        topic: str,
        cluster: Cluster,
        wanted: Callable[[int], bool] | None,
        open_reader: Callable[[Mapping[TopicPartition, int]], Reader],
        handlers: Handlers,
        requests: Requests,
        settled: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._cluster = cluster
        self._system = cluster.pool.system
        self._wanted = wanted
        self._open_reader = open_reader
        self._handlers = handlers
        self._requests = requests
        self._settled = settled
        self._signal: Signal | None = None
        self._reader: Reader | None = None
        self._topic_id: UUID | None = None
        self._ends: dict[TopicPartition, int] = {}  # the largest ever seen
        self._stop = False
        self._asking = _Pace(cluster)
        self._reading = _Pace(cluster)
        self._denials = 0
        self._began_at = self._progress_at = self._system.monotonic()
        self._verdict: DataLossError | None = None
        self._doubt: _Doubt | None = None
        self.incarnation = 0
        self._telling: deque[tuple[LogFuture, BaseException | None]] = deque()
        self.positions: Mapping[TopicPartition, int] = {}

    def stop(self) -> None:
        """Let ``run`` end soon; from any thread."""
        self._stop = True
        self.wake()

    def wake(self) -> None:
        """Let the thread look at once whether there is something to do; from any thread."""
        if self._signal is not None:
            self._signal.give()

    def doubt(self, partition: TopicPartition, offset: int, incarnation: int) -> None:
        """Take note that a record was written before what was read when it was sent; from any thread.

        So the log is not the one that was read, and nobody is told that something is there before it is known why.

        Args:
            partition: Its partition.
            offset: Its offset.
            incarnation: What ``incarnation`` was before it was sent.
        """
        self._doubt = _Doubt(partition, offset, incarnation, self._system.monotonic())
        self.wake()

    @property
    def in_doubt(self) -> bool:
        """Whether the log may not be the one that was read."""
        doubt = self._doubt
        return doubt is not None and doubt.incarnation == self.incarnation

    def run(self) -> None:
        """Work until ``stop``."""
        self._signal = self._system.signal()
        try:
            while not self._stop:
                self._signal.take()
                self.turn()
        finally:
            self._signal.close()
            if self._reader is not None:
                self._reader.close()

    def abandon(self, error: BaseException) -> None:
        """Tell everybody who waits, where the thread has ended or is held up by what it calls; from any thread.

        Those who were to be told something get that. Where a callback hangs, another call goes on with those behind it.
        """
        self._tell(self._requests.all(), error)

    @property
    def held_up(self) -> bool:
        """Whether anybody is still to be told something."""
        return bool(self._telling) or self._requests.waiting

    @property
    def trouble(self) -> BaseException | None:
        """What is tried again at the moment."""
        if self._asking.trouble is not None or self._reading.trouble is not None:
            return self._asking.trouble or self._reading.trouble
        reader = self._reader
        return None if reader is None else next(iter(dict(reader.trouble).values()), None)

    def turn(self) -> None:
        """Do all that can be done now, then read for a while. Whatever goes wrong, the next turn comes."""
        if self._asking.due:
            self._try(self._ask, self._asking)
        self._tell_reached()
        if self._stop:
            return
        if self._reader is None or self._verdict is not None or not self._reading.due:
            self._system.wait_readable(self._wakers(), self._patience())
        else:
            self._try(self._read, self._reading)
            self._tell_reached()

    def _try(self, what: Callable[[], None], pace: _Pace) -> None:
        try:
            what()
        except (TransientBrokerError, TimeoutError) as error:
            pace.failed(error)
        except TopicNotFoundError as error:
            self._denied(error)
            pace.failed(error)
        except BaseException as error:
            self._handlers.failed(error)
            self._tell(self._requests.failed(), error)
            pace.failed(error)
        else:
            pace.succeeded()

    def _ask(self) -> None:
        """Ask the brokers what is to be known for going on."""
        counted = self._requests.count(self._settled())
        if self._verdict is not None:
            self._go_on_after(self._verdict)
        if self._reader is None:
            self._open()
        if self.in_doubt:
            self._resolve_doubt()
        if counted or self._stalled():
            self._look_up_ends(counted=counted)
            self._denials = 0

    def _open(self) -> None:
        """Begin to read, or go on where that was, if it is still the same topic."""
        deadline = self._deadline()
        found = look_at(self._cluster, self._topic, self._wanted, deadline)
        if self._topic_id not in (None, found.topic_id):
            self._told_anew(found)
        starts = dict(self.positions)
        if not starts:
            starts = self._cluster.offsets(dict.fromkeys(found.partitions, EARLIEST), deadline=deadline)
        self._reader = self._open_reader(starts)
        self._topic_id = found.topic_id
        self.positions = starts
        self._progress_at = self._system.monotonic()

    def _told_anew(self, found: Found) -> None:
        error = TopicRecreatedError(
            "The topic was deleted and created anew; it is read from its beginning.",
            topic=self._topic,
        )
        error.topic_id = self._topic_id = found.topic_id
        self._handlers.reset(error)
        self.positions = {}
        self._taken_back(error)

    def _look_up_ends(self, *, counted: bool) -> None:
        """Look up the ends: the high watermarks, with open transactions before them too.

        A log that only reads committed records thus waits for the ends of these transactions.
        """
        wanted = dict.fromkeys(self.positions, LATEST)
        deadline = self._deadline()
        ends = self._cluster.offsets(wanted, isolation_level="read_uncommitted", deadline=deadline)
        # Offsets are asked for by name. If the topic is still the same after that, they are not those of another one.
        if look_at(self._cluster, self._topic, self._wanted, deadline).topic_id != self._topic_id:
            self._close_reader()
            self._open()
            return
        self._progress_at = self._system.monotonic()
        shorter = cut_back(self._ends, ends)
        self._ends = {**self._ends, **ends}
        if shorter:  # what that means for what was read, the reader will find out
            self._tell(self._requests.failed(), _truncated(*next(iter(shorter.items()))))
        elif ahead := next((each for each in ends if self.positions[each] > ends[each]), None):
            raise TransientBrokerError(
                f"The log ends at {ends[ahead]}, before what was read; the reader will find out why.",
                topic=ahead.topic,
                partition=ahead.partition,
                offset=self.positions[ahead],
            )
        elif counted:
            self._requests.ends = ends

    def _stalled(self) -> bool:
        return self._requests.waiting and self._system.monotonic() >= self._progress_at + _STALLED

    def _resolve_doubt(self) -> None:
        """Find out what became of the log: it is another one, or was cut back, which the reader finds out."""
        doubt = self._doubt
        assert doubt is not None
        deadline = self._deadline()
        if look_at(self._cluster, self._topic, self._wanted, deadline).topic_id != self._topic_id:
            self._close_reader()
            self._open()
            return
        error = _truncated(doubt.partition, doubt.offset)
        if self._system.monotonic() < doubt.since + _CUT_UNNOTICED:
            raise TransientBrokerError(error.message, topic=error.topic, partition=error.partition, offset=error.offset)
        self._cut(error, self._cluster.offsets({doubt.partition: EARLIEST}, deadline=deadline)[doubt.partition])

    def _tell_reached(self) -> None:
        if self.in_doubt:
            return
        self._tell(self._requests.reached(self.positions), None)

    def _read(self) -> None:
        """Read what there is, or wait until there is something to do."""
        assert self._reader is not None
        try:
            polled = self._reader.poll(self._patience(), self._wakers())
        except TopicNotFoundError:
            self._close_reader()  # it may have been created anew, or will be
            raise
        except DataLossError as error:
            self._verdict = error
            return
        failures = [self._handlers.apply(partition, rows) for partition, rows in polled]
        positions = dict(self._reader.positions)
        if positions != self.positions:
            self.positions = positions
            self._progress_at = self._system.monotonic()
        for failure in failures:
            if failure is not None:
                self._tell(self._requests.failed(), failure)

    def _deadline(self) -> Deadline:
        longest = self._cluster.settings.default_api_timeout_ms / 1000
        return self._cluster.deadline(growing(_QUESTION, self._asking.tries, longest))

    def _wakers(self) -> list[int]:
        return [] if self._signal is None else [self._signal.fileno()]

    def _patience(self) -> float:
        """Return how long there is nothing to do unless records come, or somebody wakes the thread."""
        waits = [pace.left for pace in (self._asking, self._reading) if not pace.due]
        if self._requests.waiting:
            waits.append(_STALLED)
        return min(waits, default=_LONGEST_POLL)

    def _go_on_after(self, verdict: DataLossError) -> None:
        """Decide what a reader that can't go on means, and where it goes on."""
        assert self._reader is not None
        assert verdict.topic is not None
        assert verdict.partition is not None
        partition = TopicPartition(verdict.topic, verdict.partition)
        position = self._reader.positions[partition]
        if isinstance(verdict, TruncatedError) and verdict.cut_at is not None and verdict.cut_at < position:
            self._cut(verdict, verdict.cut_at)
            return
        deadline = self._deadline()
        start = self._cluster.offsets({partition: EARLIEST}, deadline=deadline)[partition]
        end = self._cluster.offsets({partition: LATEST}, deadline=deadline)[partition]
        if isinstance(verdict, TruncatedError) or position > end:
            self._cut(_truncated(partition, end), start)  # since where, nobody knows
            return
        if position < start:
            _logger.warning(
                "%s: records [%d, %d) went (by retention, or somebody deleted them) before they were read; reading "
                "goes on at %d",
                partition,
                position,
                start,
                start,
            )
        self._seek(partition, max(start, position))

    def _cut(self, error: TruncatedError, offset: int) -> None:
        """Go on at an offset after the log was cut back."""
        assert error.topic is not None
        assert error.partition is not None
        if self._handlers.reset(error):
            self._close_reader()
            self.positions = {}
        else:
            self._seek(TopicPartition(error.topic, error.partition), offset)
        self._taken_back(error)

    def _seek(self, partition: TopicPartition, offset: int) -> None:
        assert self._reader is not None
        self._verdict = None
        self._reader.seek(partition, offset)
        self.positions = {**self.positions, partition: offset}

    def _close_reader(self) -> None:
        self._verdict = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _taken_back(self, error: KafkaDirectError) -> None:
        """Tell those who wait that records were taken back, after the positions are no more those of before."""
        self._ends = {}
        self.incarnation += 1
        self._tell(self._requests.failed(), error)

    def _denied(self, error: TopicNotFoundError) -> None:
        """Brokers deny the topic. A new one, not every broker knows yet, and after a restart they learn again."""
        self._denials += 1
        new = self._topic_id is None and self._system.monotonic() < self._began_at + _NEW_TOPIC
        if self._denials >= DENIALS_TO_BELIEVE and not new:
            if self._denials == DENIALS_TO_BELIEVE:
                self._handlers.failed(error)
            self._tell(self._requests.failed(), error)

    def _tell(self, waiters: Sequence[LogFuture], error: BaseException | None) -> None:
        """Tell waiters how it ended. What they do then is their own; it may take long, and they may ask again."""
        self._telling.extend((waiter, error) for waiter in waiters)
        for waiter, outcome in self._take_telling():
            waiter.settle(outcome)

    def _take_telling(self) -> Iterator[tuple[LogFuture, BaseException | None]]:
        with suppress(IndexError):
            while True:
                yield self._telling.popleft()


class _Doubt(NamedTuple):
    partition: TopicPartition
    offset: int
    incarnation: int
    since: float


class _Pace:
    """When to try again: pauses double from ``retry.backoff.ms`` to ``retry.backoff.max.ms``.

    Attributes:
        trouble: The last failure; ``None`` after a success.
        tries: How many failed since the last success.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._settings = cluster.settings
        self._system = cluster.pool.system
        self.tries = 0
        self._not_before = 0.0
        self.trouble: BaseException | None = None

    @property
    def due(self) -> bool:
        """Whether it may be tried now."""
        return self.trouble is None or self._system.monotonic() >= self._not_before

    @property
    def left(self) -> float:
        """Seconds until then."""
        return max(0.0, self._not_before - self._system.monotonic())

    def failed(self, error: BaseException) -> None:
        """Try again later."""
        pause = growing(self._settings.retry_backoff_ms, self.tries, self._settings.retry_backoff_max_ms)
        self.trouble = error
        self.tries += 1
        self._not_before = self._system.monotonic() + jittered(pause / 1000, self._system)

    def succeeded(self) -> None:
        """Forget the trouble."""
        self.trouble = None
        self.tries = 0


def _truncated(partition: TopicPartition, end: int) -> TruncatedError:
    return TruncatedError(
        f"The log was cut back to {end}: records after that are gone, or others are in their place (an unclean leader "
        "election).",
        topic=partition.topic,
        partition=partition.partition,
        offset=end,
    )
