"""The task's side of the control channel."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from pyspark_kafka_direct.continuous._control import (
    VERSION,
    Challenge,
    Failure,
    Hello,
    Mark,
    Refused,
    Start,
    Welcome,
    driver_proof,
    from_line,
    same_proof,
    task_proof,
    to_line,
)
from pyspark_kafka_direct.continuous._lines import Lines
from pyspark_kafka_direct.errors import RunFailedError

if TYPE_CHECKING:
    from pyspark_kafka_direct.continuous._control import Message, Report
    from pyspark_kafka_direct.settings.secret import Secret
    from pyspark_kafka_direct.wire.deadline import Deadline

_MOST_SECONDS_TO_FAIL: Final = 5.0  # for telling the driver of a failure that ends the task anyway


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """Where the driver of a run listens, and how it knows its tasks. It travels in Spark's task.

    Attributes:
        host: The driver's name or address, as executors reach it.
        port: Its port.
        run: The id of the run.
        secret: The secret of the run.
    """

    host: str
    port: int
    run: str
    secret: Secret


class TaskChannel:
    """Hears marks and sends reports. Made by ``connect``; used by one thread.

    Wait for ``fileno`` beside other descriptors, then ``receive``.
    """

    def __init__(self, lines: Lines, driver: str) -> None:
        self._lines = lines
        self._driver = driver
        self._waiting: list[Message] = []

    @classmethod
    def connect(cls, address: ControlAddress, task: int, attempt: int, deadline: Deadline) -> TaskChannel:
        """Connect with the driver; both sides prove that they know the secret of the run.

        Args:
            address: Where the driver is.
            task: The number of this task.
            attempt: Spark's number of its attempt.
            deadline: End of all waits.

        Raises:
            RunFailedError: The driver cannot be reached, does not take this task, or is another one.
        """
        driver = f"the query's driver at {address.host}:{address.port}"
        channel = cls(Lines(_dial(address, driver, deadline)), driver)
        try:
            channel._introduce(address, task, attempt, deadline)
        except BaseException:
            channel.close()
            raise
        return channel

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is something to receive."""
        return self._lines.fileno()

    def wait_for_start(self, deadline: Deadline) -> Start:
        """Return where to begin; wait until all other tasks are there.

        Raises:
            RunFailedError: The driver has ended the run, or the deadline passed.
        """
        message = self._next(deadline)
        if not isinstance(message, Start):
            raise self._unexpected(message)
        return message

    def receive(self) -> list[Mark]:
        """Return the marks that have come; does not wait.

        Raises:
            RunFailedError: The driver has hung up: it is gone, or has ended the run.
        """
        self._take()
        marks = []
        while self._waiting:
            message = self._waiting.pop(0)
            if not isinstance(message, Mark):
                raise self._unexpected(message)
            marks.append(message)
        if not marks and self._lines.ended:
            raise self._gone()
        return marks

    def report(self, report: Report, deadline: Deadline) -> None:
        """Tell the driver that an epoch is flushed.

        Raises:
            RunFailedError: The driver does not take it before the deadline.
        """
        self._lines.send(to_line(report))
        while self._lines.unsent:
            if deadline.expired:
                raise self._silent(deadline)
            deadline.system.wait_ready((), (self.fileno(),), deadline.remaining())
            self._lines.flush()

    def fail(self, error: BaseException, deadline: Deadline) -> None:
        """Tell the driver that this task has failed, if it still listens."""
        until = deadline.sooner(_MOST_SECONDS_TO_FAIL)
        self._lines.send(to_line(Failure.of(error)))
        while self._lines.unsent and not until.expired:
            until.system.wait_ready((), (self.fileno(),), until.remaining())
            self._lines.flush()

    def close(self) -> None:
        """Hang up."""
        self._lines.close()

    def _introduce(self, address: ControlAddress, task: int, attempt: int, deadline: Deadline) -> None:
        challenge = self._next(deadline)
        if not isinstance(challenge, Challenge):
            raise self._unexpected(challenge)
        if challenge.version != VERSION:
            raise RunFailedError(
                f"{self._driver} speaks version {challenge.version} of the control channel, and this worker version "
                f"{VERSION}: install the same version of pyspark-kafka-direct on the driver and on all executors."
            )
        nonce = deadline.system.nonce()
        hello = Hello(address.run, task, attempt, socket.gethostname(), os.getpid(), nonce)
        hello = replace(hello, proof=task_proof(address.secret, challenge.nonce, hello))
        self._lines.send(to_line(hello))
        answer = self._next(deadline)
        if isinstance(answer, Refused):
            raise RunFailedError(f"{self._driver} did not take task {task}: {answer.reason}.")
        if not isinstance(answer, Welcome):
            raise self._unexpected(answer)
        if not same_proof(answer.proof, driver_proof(address.secret, challenge.nonce, hello)):
            raise RunFailedError(
                f"What answers as {self._driver} does not know the secret of the run: something else listens there. "
                "Give the query a port of its own (controlPort)."
            )

    def _next(self, deadline: Deadline) -> Message:
        while not self._waiting:
            if self._lines.ended:
                raise self._gone()
            if deadline.expired:
                raise self._silent(deadline)
            deadline.system.wait_ready((self.fileno(),), (), deadline.remaining())
            self._take()
        return self._waiting.pop(0)

    def _take(self) -> None:
        try:
            self._waiting += map(from_line, self._lines.receive())
        except ValueError as error:
            raise RunFailedError(
                f"What {self._driver} sends is no message ({error}): another program may listen there."
            ) from error

    def _gone(self) -> RunFailedError:
        return RunFailedError(f"{self._driver} has hung up: it has ended this run, or has died.")

    def _silent(self, deadline: Deadline) -> RunFailedError:
        return RunFailedError(f"{self._driver} was silent for too long; raise {deadline.setting} if it is only slow.")

    def _unexpected(self, message: Message) -> RunFailedError:
        return RunFailedError(f"{self._driver} sent a {type(message).__name__.lower()} that nobody waited for.")


def _dial(address: ControlAddress, driver: str, deadline: Deadline) -> socket.socket:
    """Connect with the first of the driver's addresses that answers."""
    system, failure = deadline.system, "the name has no address"
    try:
        addresses = system.look_up(address.host, address.port, socket.AF_UNSPEC, 0)
    except OSError as error:
        addresses, failure = [], str(error)
    for index, each in enumerate(addresses):
        try:
            return system.dial(each, max(deadline.remaining() / (len(addresses) - index), 0.001), 0, 0)
        except OSError as error:
            failure = str(error)
    raise RunFailedError(
        f"Cannot connect with {driver}: {failure}. Executors must reach this port: see controlPort and "
        "spark.driver.host. If the run is over, this task just came too late."
    )
