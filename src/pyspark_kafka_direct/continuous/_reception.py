"""Lets the tasks of one run in, and nobody else.

Whoever connects is asked to prove that it knows the secret of the run. Who cannot is sent away and costs the run
nothing: anybody may reach the port.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.continuous._control import (
    Challenge,
    Hello,
    Refused,
    Welcome,
    driver_proof,
    from_line,
    same_proof,
    task_proof,
    to_line,
)
from pyspark_kafka_direct.continuous._lines import MOST_BYTES, Lines

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterator

    from pyspark_kafka_direct.settings.secret import Secret
    from pyspark_kafka_direct.wire.system import System

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_MOST_BYTES_OF_A_GUEST = 4096
_MOST_GUESTS = 256  # beside the tasks


class Arrival(NamedTuple):
    """A task that has proved itself.

    Attributes:
        hello: Who it is.
        lines: Its connection. It was not welcomed yet.
        welcome: What to welcome it with.
    """

    hello: Hello
    lines: Lines
    welcome: Welcome


@dataclass(frozen=True, slots=True)
class _Guest:
    lines: Lines
    nonce: str
    address: str
    until: float


class Reception:
    """Listens, and asks who is there.

    Args:
        listener: A socket that listens, and does not block. It belongs to this object from now on.
        run: The id of the run.
        secret: The secret of the run.
        tasks: How many tasks there are.
        seconds: How long who connects has for its hello.
        system: Whose clock and chance.

    Attributes:
        last_refusal: Why somebody was sent away last; ``None`` if nobody was.
    """

    def __init__(
        self, listener: socket.socket, run: str, secret: Secret, tasks: int, seconds: float, system: System
    ) -> None:
        self._listener = listener
        self._run = run
        self._secret = secret
        self._most_guests = tasks + _MOST_GUESTS
        self._seconds = seconds
        self._system = system
        self._guests: dict[int, _Guest] = {}  # by descriptor, the oldest first
        self.last_refusal: str | None = None

    def descriptors(self) -> list[int]:
        """Return what to wait for, to read."""
        return [self._listener.fileno(), *self._guests]

    def next_time(self) -> float | None:
        """Return when ``turn`` is due although nothing is ready."""
        return next((guest.until for guest in self._guests.values()), None)

    def turn(self, ready: Collection[int]) -> Iterator[Arrival]:
        """Let in whoever knocks, and yield the tasks that have just proved themselves.

        A connection is the caller's once it is yielded: where one of them ends the run, the others are closed here.
        """
        for descriptor in [each for each in self._guests if each in ready]:
            arrival = self._hear(self._guests[descriptor])
            if arrival is not None:
                del self._guests[descriptor]
                yield arrival
        if self._listener.fileno() in ready:
            self._accept()
        now = self._system.monotonic()
        for guest in [each for each in self._guests.values() if each.until <= now]:
            self._send_away(guest, f"it said no hello within {self._seconds:g} s")

    def close(self) -> None:
        """Listen no more, and hang up on who has not proved itself."""
        self._listener.close()
        for guest in self._guests.values():
            guest.lines.close()
        self._guests.clear()

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            if len(self._guests) >= self._most_guests:
                self._send_away(next(iter(self._guests.values())), "too many others came after it")
            until = self._system.monotonic() + self._seconds
            guest = _Guest(Lines(sock, _MOST_BYTES_OF_A_GUEST), self._system.nonce(), str(address[0]), until)
            self._guests[guest.lines.fileno()] = guest
            guest.lines.send(to_line(Challenge(guest.nonce)))

    def _hear(self, guest: _Guest) -> Arrival | None:
        try:
            lines = guest.lines.receive()
            if not lines and not guest.lines.ended:
                return None
            if not lines:
                raise ValueError("it hung up")
            if len(lines) > 1:
                raise ValueError("it did not wait to be welcomed")
            hello = from_line(lines[0])
            if not isinstance(hello, Hello):
                raise ValueError("it said something else than hello")
        except ValueError as error:
            self._send_away(guest, str(error))
            return None
        if hello.run != self._run:
            self._send_away(guest, "it belongs to another run of the query, which is over")
            return None
        if not same_proof(hello.proof, task_proof(self._secret, guest.nonce, hello)):
            self._send_away(guest, "it does not know the secret of the run")
            return None
        guest.lines.limit = MOST_BYTES
        return Arrival(hello, guest.lines, Welcome(driver_proof(self._secret, guest.nonce, hello)))

    def _send_away(self, guest: _Guest, reason: str) -> None:
        self._guests.pop(guest.lines.fileno(), None)
        self.last_refusal = f"{guest.address}: {reason}"
        _log.warning("A connection to the control port from %s was refused: %s.", guest.address, reason)
        guest.lines.send(to_line(Refused(reason)))
        guest.lines.close()
