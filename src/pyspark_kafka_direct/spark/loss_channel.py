"""Reports of tasks to the driver about what they skip: datagrams to a UDP port, because Spark has no channel for them.

    task     HMAC-SHA256(key, report) + report                the report is JSON
    driver   HMAC-SHA256(key, HMAC of the report)             the acknowledgement

``enable(spark)`` opens the port and saves its address with a random key in the shared folder (``listener_files``),
where planners find it. A thread of the task's process sends the report when the task ends, and again until it is
acknowledged. Each report has a nonce, and the driver counts equal reports once. It does not respond to other datagrams.
Nothing is encrypted: who controls the network between driver and executors can read topic names and counts, but cannot
forge them.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.atomic_file import write_atomically
from pyspark_kafka_direct.client.system import SYSTEM, wait_until
from pyspark_kafka_direct.spark.listener_files import find_shared_folder
from pyspark_kafka_direct.spark.loss_counts import LossCounter, ReportedTotals, sum_totals

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.client.system import System

_log = logging.getLogger("pyspark_kafka_direct.spark")

_FILE_NAME: Final = "loss-channel"
_DIGEST: Final = "sha256"
_DIGEST_SIZE: Final = 32
_MAX_DATAGRAM: Final = 65_535
_ATTEMPT_SECONDS: Final = (0.2, 0.4, 0.8)  # how long each attempt waits for the acknowledgement
_REMEMBERED_REPORTS: Final = 10_000
_MAX_TASK_DELAY: Final = 0.1  # seconds; the driver responds much earlier, before a worker without reuse exits


@dataclass(frozen=True, slots=True)
class LossChannel:
    """The driver's port for reports of tasks."""

    host: str
    port: int
    key: str = field(repr=False)

    def report(self, totals: ReportedTotals, system: System) -> bool:
        """Send what a task has skipped until it is acknowledged; return whether the driver has received it."""
        report = json.dumps([system.nonce(), totals.to_json()]).encode()
        digest = self.digest(report)
        try:
            with system.connect_udp(self.host, self.port) as sender:
                for seconds in _ATTEMPT_SECONDS:
                    sender.settimeout(seconds)
                    sender.send(digest + report)  # the same bytes, which the driver counts once
                    with contextlib.suppress(TimeoutError):
                        if hmac.compare_digest(sender.recv(_MAX_DATAGRAM), self.digest(digest)):
                            return True
        except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
            _log.info("cannot report skipped offsets to %s:%d: %s", self.host, self.port, error)
        return False

    def digest(self, content: bytes) -> bytes:
        """Return the authentication code of a datagram."""
        return hmac.digest(self.key.encode(), content, _DIGEST)


class LossReporter:
    """Reports in a thread, which ends when all reports are sent, so that a task hardly waits for the driver."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._condition = system.condition()
        self._unsent: dict[LossChannel, ReportedTotals] = {}
        self._sending: LossChannel | None = None  # whose report is in flight
        self._has_thread = False
        self._unresponsive: set[LossChannel] = set()  # did not confirm the last report: tasks do not wait for them

    def report(self, channel: LossChannel, totals: ReportedTotals) -> None:
        """Report what a task has skipped; what cannot be reported is logged."""
        with self._condition:
            self._unsent[channel] = sum_totals([self._unsent.get(channel, ReportedTotals()), totals])
            if not self._has_thread:
                try:
                    self._system.start_thread(self._run, "pyspark-kafka-direct-report")
                except RuntimeError as error:  # no thread can be started
                    _log.info("cannot report skipped offsets: %s", error)
                    return
                self._has_thread = True
            if channel not in self._unresponsive:
                wait_until(self._system, self._condition, lambda: self._is_done(channel), _MAX_TASK_DELAY)

    def _is_done(self, channel: LossChannel) -> bool:
        return channel not in self._unsent and channel != self._sending

    def _run(self) -> None:
        while True:
            with self._condition:
                self._sending = None
                self._condition.notify_all()
                if not self._unsent:
                    self._has_thread = False
                    return
                channel, totals = self._unsent.popitem()  # in any order: each driver has one entry
                self._sending = channel
            is_confirmed = channel.report(totals, self._system)
            with self._condition:
                if is_confirmed:
                    self._unresponsive.discard(channel)
                    continue
                self._unresponsive.add(channel)
            partitions = sorted({f"{total.topic}-{total.partition}" for each in totals for total in each})
            _log.warning(
                "%s: the driver did not confirm what was skipped, so its metrics do not count it. It listens on UDP "
                "port %d of %s",
                ", ".join(partitions),
                channel.port,
                channel.host,
            )


REPORTER: Final = LossReporter(SYSTEM)


class LossReceiver:
    """Receives the reports of tasks on the driver, in a thread of its own, and counts them."""

    def __init__(self, folder: Path, bind_host: str, host: str, system: System) -> None:
        """Listen on ``bind_host``, an address of this machine that tasks reach as ``host``."""
        self._system = system
        self._socket = system.bind_udp(bind_host)
        try:
            self.channel = LossChannel(host, self._socket.getsockname()[1], system.nonce() + system.nonce())
            write_atomically(folder / _FILE_NAME, json.dumps(asdict(self.channel)))
        except BaseException:
            self._socket.close()
            raise
        self._counter = LossCounter(system, find_folder=lambda: folder)
        self._received: OrderedDict[bytes, None] = OrderedDict()  # digests of the last reports
        self._closed = False
        system.start_thread(self._run, "pyspark-kafka-direct-losses")

    def close(self) -> None:
        """End the thread, which closes the port."""
        self._closed = True
        with contextlib.suppress(OSError), self._system.connect_udp(*self._socket.getsockname()[:2]) as sender:
            sender.send(b"")  # wakes the thread

    def _run(self) -> None:
        with self._socket:
            while not self._closed:
                try:
                    datagram, sender = self._socket.recvfrom(_MAX_DATAGRAM)
                    acknowledgement = self._handle(datagram)
                    if acknowledgement is not None:
                        self._socket.sendto(acknowledgement, sender)
                except OSError as error:  # such as a task that has ended
                    _log.info("cannot receive reports of skipped offsets: %s", error)

    def _handle(self, datagram: bytes) -> bytes | None:
        """Count a report, and return its acknowledgement; ``None`` for a datagram of another sender."""
        digest, report = datagram[:_DIGEST_SIZE], datagram[_DIGEST_SIZE:]
        if not hmac.compare_digest(digest, self.channel.digest(report)):
            return None
        if digest not in self._received:
            _, totals = json.loads(report)
            self._counter.add_totals(ReportedTotals.from_json(totals))
            self._received[digest] = None
            if len(self._received) > _REMEMBERED_REPORTS:
                self._received.popitem(last=False)  # the oldest one, which is not sent again any more
        return self.channel.digest(digest)


def find_loss_channel() -> LossChannel | None:
    """Return the driver's port, or ``None`` if ``enable(spark)`` was not called before."""
    try:
        folder = find_shared_folder()
        return None if folder is None else LossChannel(**json.loads((folder / _FILE_NAME).read_text()))
    except Exception as error:  # counting never fails a query
        _log.debug("tasks report no skipped offsets: %r", error)
        return None
