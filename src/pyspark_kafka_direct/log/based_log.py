"""A compacted topic as a log that processes share: what Kafka Connect's ``KafkaBasedLog`` is in Java.

Whoever has it open has read the log from its beginning and reads on. Whoever wants to know that they have seen all that
was there asks to read to the end.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, LogStateError
from pyspark_kafka_direct.log._clients import Clients
from pyspark_kafka_direct.log._future import LogFuture
from pyspark_kafka_direct.log._handlers import Handlers
from pyspark_kafka_direct.log._requests import Requests, Sends, are_there
from pyspark_kafka_direct.log._topic import ensure_topic, parse_creation
from pyspark_kafka_direct.log._work import Work
from pyspark_kafka_direct.log.record import COLUMNS
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.writing.outbox import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from types import TracebackType

    import pyarrow as pa

    from pyspark_kafka_direct.log.record import LogRecord
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.writing.outbox import Outbox

_logger = logging.getLogger("pyspark_kafka_direct.log")

START_TIMEOUT: Final = 300.0
"""Seconds within which a log has to be read when it starts, unless told otherwise."""

STOP_TIMEOUT: Final = 30.0
"""Seconds that a stop takes at most, unless told otherwise."""

_LAST_WORDS: Final = 0.2  # seconds that callbacks of those who still wait may take after the time of a stop
_FAILED_START: Final = 2.0  # seconds that cleaning up after a failed start may take
_EXPLANATION: Final = 2.0  # seconds that may be spent on finding out why a start took too long


class KafkaBasedLog:
    """A topic as a shared log, read from its beginning and on.

    ::

        with KafkaBasedLog("settings", {"bootstrap.servers": "broker1:9092"}, on_record=apply, create={}) as log:
            log.send(b"job-1", b'{"rate": 100}')
            log.read_to_end().result(timeout=10)  # all that was there when asked has been applied

    The functions that are given are called in the log's own thread; records of a partition come in their order, each
    once. If one raises, the error is logged, those who are just reading to the end (``start`` too) get it, and the next
    record follows.

    Records that went before they were read (by retention, compaction, or somebody who deleted them) are passed over.
    Where records were taken back (the log was cut back by an unclean leader election, or the topic was deleted and
    created anew), those who wait get the error, and ``on_reset`` is called before reading goes on.

    Args:
        topic: The topic.
        params: Client settings under their Java names; docs/log-settings.md has them all.
        on_record: Is given each record.
        on_batch: Is given the records of a partition as Arrow batches instead, which is much faster.
        columns: The columns of these batches.
        on_error: Is told of errors of reading, which are tried again; without it they are only logged.
        on_reset: Is told by its error that records were taken back. Reading goes on where the log was cut. If it
            returns true, everything is read from the beginning again, as a new topic always is.
        create: How to create the topic, compacted, if it is not there: ``partitions`` (1), ``replication_factor`` (the
            cluster's default) and ``configs``. Without it the topic has to be there.
        partitions: Tells by its number whether a partition is read; by default all are.
        read_only: Whether nothing will be sent; then no producer is made.
        start_timeout: Seconds within which ``start`` has to have read the log.
        initializer: Called by ``start`` after the topic was created, before it is read.

    Raises:
        OptionError: A parameter, or what was given as ``create``, cannot be used.
    """

    def __init__(
        self,
        topic: str,
        params: Mapping[str, object] | Clients,
        *,
        on_record: Callable[[LogRecord], None] | None = None,
        on_batch: Callable[[TopicPartition, pa.RecordBatch], None] | None = None,
        columns: Sequence[str] = COLUMNS,
        on_error: Callable[[KafkaDirectError], None] | None = None,
        on_reset: Callable[[KafkaDirectError], bool | None] | None = None,
        create: Mapping[str, Any] | None = None,
        partitions: Callable[[int], bool] | None = None,
        read_only: bool = False,
        start_timeout: float = START_TIMEOUT,
        initializer: Callable[[Cluster], None] | None = None,
    ) -> None:
        clients = params if isinstance(params, Clients) else Clients.of(params, read_only=read_only)
        handlers = Handlers(
            on_record=on_record, on_batch=on_batch, on_error=on_error, on_reset=on_reset, columns=tuple(columns)
        )
        self.topic = topic
        self._clients = clients
        self._cluster = clients.cluster
        self._system = clients.cluster.pool.system
        self._outbox = clients.outbox
        self._creation = None if create is None else parse_creation(create)
        self._start_timeout = start_timeout
        self._initializer = initializer
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._state = "new"
        self._thread: int | None = None
        self._running = False
        self._ended = True
        self._requests = Requests()
        self._sends = Sends()
        self._telling: list[int] = []  # the threads that tell senders what became of their records
        self._work = Work(
            topic,
            self._cluster,
            partitions,
            lambda starts: clients.open_reader(starts, handlers.columns),
            handlers,
            self._requests,
            lambda: self._sends.settled,
        )

    @classmethod
    def with_clients(
        cls, topic: str, *, cluster: Cluster, fetch: FetchSettings, outbox: Outbox | None, **options: Any
    ) -> Self:
        """Make a log of clients that are there. They are the log's now: ``stop`` closes them, if it never started too.

        Args:
            topic: The topic.
            cluster: Where it is.
            fetch: How to fetch.
            outbox: Sends; ``None`` for a log that is only read.
            options: As when the class is called, but for ``params`` and ``read_only``.
        """
        return cls(topic, Clients(cluster, fetch, outbox=outbox), **options)

    def start(self) -> None:
        """Create the topic if that was asked for, and read it to its end.

        Raises:
            TopicNotFoundError: The topic is not there, and did not appear within half a minute.
            BrokerTimeoutError: It was not read in time; the message names what is missing, and why.
            LogStateError: It was started before; a log starts once.
            Exception: What else went wrong, or what ``on_record`` raised. The log is stopped then.
        """
        self._refuse_child()
        with self._changed:
            if self._state != "new":
                raise LogStateError("A log starts once; make another one.", topic=self.topic)
            self._state = "starting"
        deadline = Deadline.after(self._start_timeout, "start_timeout", system=self._system)
        loaded = LogFuture(self._is_own_thread)
        try:
            if self._creation is not None:
                ensure_topic(self._cluster, self.topic, self._creation, deadline)
            if self._initializer is not None:
                self._initializer(self._cluster)
            self._outbox = self._clients.open_outbox()
            self._requests.to_end(loaded)
            self._begin()
            if not self._wait(loaded, deadline):
                raise self._late()
            loaded.result()
        except BaseException:
            self._stop(_FAILED_START)
            raise
        with self._changed:
            if self._state == "starting":
                self._state = "started"

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop reading and sending. What was sent is still delivered, if that is in time; those who wait get an error.

        Returns in time whatever the brokers and the callbacks do. A callback that does not return is left behind; the
        log's thread ends when it does.

        Args:
            timeout: Seconds that it takes at most.
        """
        self._refuse_child()
        self._stop(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        callback: Callable[[Receipt | None, BaseException | None], None] | None = None,
    ) -> None:
        """Send a record and forget it.

        Args:
            key: Its key.
            value: Its value; ``None`` deletes the key when the log is compacted.
            callback: Is told once what became of it, in the thread that sends: a receipt, or an error.

        Raises:
            LogStateError: The log is only read, not started, or stopped.
        """
        self._send(key, value, None if callback is None else lambda done: _tell(callback, done))

    def send_with_receipt(self, key: bytes | None, value: bytes | None) -> Future[Receipt]:
        """Send a record; return its receipt, which is there when brokers have acknowledged the record.

        Raises:
            LogStateError: The log is only read, not started, or stopped.
        """
        return self._send(key, value, None)

    def read_to_end(self, callback: Callable[[BaseException | None], None] | None = None) -> Future[None]:
        """Read all that is in the log now, and what this log has sent before.

        Args:
            callback: Is told when that was handed out, or by an error why not, in the log's thread.

        Returns:
            Is done then. Records that are written meanwhile may have been handed out, or not.

        Raises:
            LogStateError: The log is not started, or stopped.
        """
        self._require_started("reading to the end")
        waiter = LogFuture(self._is_callback)
        if callback is not None:
            waiter.add_done_callback(lambda done: callback(done.exception()))
        self._requests.to_end(waiter, self._sends.sent)
        self._asked()
        return waiter

    def wait_for(
        self, target: Receipt | Mapping[int, int] | Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Wait until records were handed out, or passed over.

        Args:
            target: A receipt, or an offset for each of some partitions.
            timeout: Seconds; ``None``: without an end.

        Raises:
            BrokerTimeoutError: It took longer.
            LogStateError: The log is not started, or stopped; or this is a callback of its own.
            TypeError: Something else, as the future that ``send_with_receipt`` returns; its ``result()`` is a receipt.
            ValueError: A partition that is not read, or a receipt without an offset (``acks=0``).
        """
        self._require_started("waiting for records")
        offsets = _next_offsets(self.topic, target)
        positions = self._work.positions
        for partition in offsets:
            if positions and partition not in positions:
                raise ValueError(f"{partition} is not read here; these are: {', '.join(map(str, sorted(positions)))}")
        if are_there(offsets, positions) and not self._work.in_doubt:
            return
        waiter = LogFuture(self._is_own_thread)
        if self._is_own_thread():
            waiter.result()  # raises
        self._requests.past(waiter, offsets)
        self._asked()
        deadline = None if timeout is None else Deadline.after(timeout, "timeout", system=self._system)
        if self._wait(waiter, deadline):
            waiter.result()
            return
        self._requests.forget(waiter)
        missing = {each: offset for each, offset in offsets.items() if self._work.positions.get(each, 0) < offset}
        partition, offset = next(iter(missing.items() or offsets.items()))
        raise BrokerTimeoutError(
            f"Offset {offset - 1} was not read within {timeout:g} s; the next one to be read is "
            f"{self._work.positions.get(partition, 0)}.{self._trouble_text()}",
            topic=partition.topic,
            partition=partition.partition,
            offset=offset - 1,
        )

    def flush(self, timeout: float | None = None) -> None:
        """Wait until it is known of all that was sent whether it was written; nothing to do if the log is only read.

        Args:
            timeout: Seconds; ``None``: as long as the delivery of records may take.

        Raises:
            BrokerTimeoutError: It took longer.
            LogStateError: The log is not started, or stopped.
        """
        self._require_started("flushing")
        if self._outbox is not None:
            self._outbox.flush(timeout)

    @property
    def partition_count(self) -> int:
        """How many partitions are read; 0 before the start."""
        return len(self._work.positions)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to read of each partition; all that is before it was handed out."""
        return dict(self._work.positions)

    def _begin(self) -> None:
        self._running, self._ended = True, False
        try:
            self._system.start(self._run, f"pyspark-kafka-direct-log-{self.topic}")
        except BaseException:
            self._running, self._ended = False, True
            raise

    def _run(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._work.run()
        except BaseException:
            _logger.exception("the thread of the log %s ended", self.topic)
        finally:
            self._running = False  # whoever asks from now on is told at once
            self._abandon()
            self._thread = None
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _stop(self, timeout: float) -> None:
        deadline = Deadline.after(timeout, "timeout", system=self._system)
        with self._changed:
            self._state = "stopped"
        self._work.stop()
        try:
            if self._outbox is not None and self._outbox.in_callback:
                self._outbox.finish()  # its thread goes on when the callback has returned
            elif self._outbox is not None:
                self._outbox.close(deadline.remaining())
        finally:
            if not self._is_own_thread():  # it ends when the callback has returned
                self._join(deadline)

    def _join(self, deadline: Deadline) -> None:
        with self._changed:
            while not self._ended and not deadline.expired:
                self._system.wait(self._changed, deadline.remaining())
            ended = self._ended
        if self._work.held_up:  # told by a thread of its own, as their callbacks may hang
            patience = max(deadline.remaining(), _LAST_WORDS)
            self._system.run(self._abandon, f"pyspark-kafka-direct-log-{self.topic}-end", patience)
        if not ended:
            _logger.warning(
                "the thread of the log %s has not ended in time; it is left behind, and ends when what it does returns",
                self.topic,
            )

    def _abandon(self) -> None:
        self._work.abandon(LogStateError("The log was stopped.", topic=self.topic))

    def _asked(self) -> None:
        if not self._running:  # the thread has ended meanwhile, and looks no more
            self._abandon()
        self._work.wake()

    def _send(
        self, key: bytes | None, value: bytes | None, tell: Callable[[Future[Receipt]], None] | None
    ) -> Future[Receipt]:
        self._require_started("sending")
        if self._outbox is None:
            raise LogStateError("The log is only read (read_only, or no outbox); it sends nothing.", topic=self.topic)
        incarnation, positions = self._work.incarnation, self._work.positions  # in this order

        def check(receipt: Receipt) -> None:
            partition = TopicPartition(receipt.topic, receipt.partition)
            if 0 <= receipt.offset < positions.get(partition, 0):
                self._work.doubt(partition, receipt.offset, incarnation)

        def tell_sender(done: Future[Receipt]) -> None:
            assert tell is not None
            self._telling.append(threading.get_ident())
            try:
                tell(done)
            finally:
                self._telling.remove(threading.get_ident())

        receipt = self._outbox.send(self.topic, key, value, on_receipt=check)
        self._sends.send(receipt, self._send_settled, None if tell is None else tell_sender)
        return receipt

    def _send_settled(self, settled: int) -> None:
        if self._requests.may_be_counted(settled):
            self._work.wake()

    def _is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def _is_callback(self) -> bool:
        """Tell whether the caller is one of the threads that the end of the log waits for: it reads, or it sends.

        Where a record fails at once, its sender's own thread is told so, and the record is not settled before that.
        """
        sends = self._outbox is not None and self._outbox.in_callback
        return self._is_own_thread() or sends or threading.get_ident() in self._telling

    def _wait(self, waiter: LogFuture, deadline: Deadline | None) -> bool:
        """Wait for the end of something; return whether it came in time."""

        def notify(_: object) -> None:
            with self._changed:
                self._changed.notify_all()

        waiter.add_done_callback(notify)
        with self._changed:
            while not waiter.done() and (deadline is None or not deadline.expired):
                self._system.wait(self._changed, None if deadline is None else deadline.remaining())
        return waiter.done()

    def _late(self) -> BrokerTimeoutError:
        """Return the error of a start that took too long; it says what is missing, and why."""
        missing = self._requests.behind(self._work.positions)
        within = f"The log was not read within {self._start_timeout:g} s (start_timeout)"
        if not missing:
            return BrokerTimeoutError(f"{within}.{self._trouble_text()}", topic=self.topic)
        partition, end = next(iter(missing.items()))
        position = self._work.positions.get(partition, 0)
        stable = self._last_stable_offset(partition)
        text = f"{within}: the next offset to read is {position}, the end {end}"
        if stable is not None:
            text += f", the last stable offset {stable}"
        if self._clients.fetch.isolation_level == "read_committed" and stable is not None and stable < end:
            text += ". A transaction is open there; its end is waited for"
        return BrokerTimeoutError(
            f"{text}.{self._trouble_text()}", topic=partition.topic, partition=partition.partition, offset=position
        )

    def _last_stable_offset(self, partition: TopicPartition) -> int | None:
        try:
            deadline = Deadline.after(_EXPLANATION, "start_timeout", system=self._system)
            found = self._cluster.offsets({partition: LATEST}, isolation_level="read_committed", deadline=deadline)
        except KafkaDirectError:
            return None
        return found[partition]

    def _trouble_text(self) -> str:
        trouble = self._work.trouble
        return "" if trouble is None else f" The last trouble: {trouble}"

    def _require_started(self, doing: str) -> None:
        self._refuse_child()
        if self._state == "started" or (self._state == "starting" and self._is_own_thread()):
            return
        state = "stopped" if self._state == "stopped" else "not started"
        raise LogStateError(f"The log is {state}; {doing} is possible while it runs.", topic=self.topic)

    def _refuse_child(self) -> None:
        if self._process != os.getpid():
            raise LogStateError(
                "The log belongs to the parent process; its thread is not here. Make a log in this process.",
                topic=self.topic,
            )


def _tell(callback: Callable[[Receipt | None, BaseException | None], None], done: Future[Receipt]) -> None:
    error = done.exception()
    callback(None if error is not None else done.result(), error)


def _next_offsets(
    topic: str, target: Receipt | Mapping[int, int] | Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the next offsets to read once what is waited for was read."""
    if not isinstance(target, Mapping):
        if not isinstance(target, Receipt):
            kind = type(target).__name__
            raise TypeError(f"{kind} is no receipt: send_with_receipt() and put() return a future of a receipt")
        if target.offset < 0:
            raise ValueError("a receipt without an offset (acks=0) cannot be waited for")
        if target.topic != topic:
            raise ValueError(f"the receipt is one of topic {target.topic}, not of {topic}")
        return {TopicPartition(target.topic, target.partition): target.offset + 1}
    return {
        place if isinstance(place, TopicPartition) else TopicPartition(topic, place): offset + 1
        for place, offset in target.items()
    }
