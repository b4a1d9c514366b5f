"""What the threads of a history do within each operation, and what holds for every operation."""

from __future__ import annotations

import logging
import re
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.simulation.errors import ViolationError

from pyspark_kafka_direct.errors import BrokerError, TransientBrokerError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.simulation.environment import Environment
    from tests.simulation.scheduler import Task
    from tests.simulation.wire import ReceivedRequest

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.errors import KafkaDirectError

_LOGGER: Final = logging.getLogger("pyspark_kafka_direct")

# Requests and connects of an operation that retries with pauses; without them there are hundreds each second.
_MAX_REQUESTS: Final = 60
_MAX_REQUESTS_PER_SECOND: Final = 30

_QUIET_SECONDS: Final = 5.0  # of retries before the log says why
_MAX_TRIES_WITHOUT_WARNING: Final = 12  # their pauses take longer than that
_LONGEST_PAUSE: Final = 1.2 * 1.0  # retry.backoff.max.ms with jitter
_SLACK: Final = 0.3  # seconds

# Events after which brokers may return lower leader epochs than before.
_LOWERS_EPOCHS: Final = frozenset(("isolate_broker", "stick_image", "recreate_topic", "delete_topic", "create_topic"))


class Operation:
    """The requests, connects and warnings of one thread within a call."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.requests: Counter[str] = Counter()  # by API
        self.brokers: dict[int, None] = {}  # that were sent requests, in order
        self.connects = 0
        self.warnings: list[tuple[float, logging.LogRecord]] = []


class Operations(logging.Handler):
    """Records the operations of all threads; while it is open, it receives the package's log."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(logging.WARNING)
        self._environment = environment
        self._running: dict[Task, Operation] = {}
        self.requested_offsets = 0  # partitions of all ListOffsets requests
        environment.network.on_send = self._sent
        environment.network.on_connect = self._connected

    @contextmanager
    def opened(self) -> Iterator[None]:
        _LOGGER.addHandler(self)
        try:
            yield
        finally:
            _LOGGER.removeHandler(self)

    @contextmanager
    def operation(self) -> Iterator[Operation]:
        """Record what the current thread does."""
        world = self._environment.world
        task = world.current
        self._running[task] = operation = Operation(world.now)
        try:
            with world.operation():
                yield operation
        finally:
            del self._running[task]

    def emit(self, record: logging.LogRecord) -> None:
        if (operation := self._current()) is not None:
            operation.warnings.append((self._environment.world.now, record))

    def note(self, request: ReceivedRequest) -> None:
        """Count the partitions of requests for offsets."""
        if request.api == "ListOffsets":
            self.requested_offsets += sum(len(topic.partitions) for topic in request.values.topics)

    def check(
        self,
        operation: Operation,
        client: ClusterClient,
        error: KafkaDirectError | None,
        *,
        name: str,
        retries: int | None,
        min_seconds: float,  # that pass before a transient error is raised
        topics: Collection[str],
    ) -> None:
        """Check what holds for every operation, with any faults."""
        seconds = self._environment.world.now - operation.started_at
        count = operation.requests.total() + operation.connects
        # With `retries`, the user may want no pauses.
        # A broker that returns no metadata costs a connect, and so does each other one that is tried after it.
        brokers = self._environment.cluster.brokers.values()
        most = _MAX_REQUESTS_PER_SECOND * (2 if any(each.rebootstrap_until for each in brokers) else 1)
        if retries is None and count > _MAX_REQUESTS + most * seconds:
            raise ViolationError(f"{name} sends {count} requests in {seconds:.1f} s: {dict(operation.requests)}")
        self._check_warnings(operation, name)
        if error is None:
            return
        self._check_error(operation, client, error, name, seconds, topics)
        tries = _noted_tries(error)
        is_confirming = any(note.startswith("The brokers had") for note in _notes(error))
        if (
            tries is not None
            and retries is not None
            and tries[0] != retries + 1
            and "numRetries" in tries[2]
            and not is_confirming
        ):
            raise ViolationError(f"{name} has {retries} retries, and: {error!r} {_notes(error)}") from error
        is_transient = isinstance(error, TransientBrokerError)
        if is_transient and retries is None and seconds < min_seconds - _LONGEST_PAUSE - _SLACK:
            message = f"{name} fails after {seconds:.2f} s, though it has {min_seconds:.2f} s: {error!r}"
            raise ViolationError(message) from error
        if (
            tries is not None
            and retries is None
            and tries[0] >= _MAX_TRIES_WITHOUT_WARNING
            and "numRetries" not in tries[2]
            and not operation.warnings
            and "LOAD_IN_PROGRESS" not in error.message  # whose pauses are shorter
        ):
            raise ViolationError(f"{name} retries for {seconds:.0f} s without a warning: {error!r}") from error

    def _check_error(
        self,
        operation: Operation,
        client: ClusterClient,
        error: KafkaDirectError,
        name: str,
        seconds: float,
        topics: Collection[str],
    ) -> None:
        """Check the numbers and names of an error."""
        brokers = {f"{each.host}:{each.port}" for each in self._environment.cluster.brokers.values()}
        if error.broker is not None and not set(error.broker.split("; ")) <= brokers:
            raise ViolationError(f"{name} reports a broker that does not exist: {error!r}") from error
        if error.topic is not None and error.topic not in topics:
            raise ViolationError(f"{name} reports another topic: {error!r}") from error
        servers = {host for host, _ in client.settings.bootstrap_servers}
        for node_id in re.findall(r"Broker (\d+) advertises", error.message):
            if f"broker-{node_id}" in servers:
                raise ViolationError(f"{name} gives advice about a bootstrap server: {error!r}") from error
        kinds = {event.kind for event in self._environment.plan.events}
        if "throttles this client" in error.message and not kinds & {"throttle", "throttle_broker"}:
            raise ViolationError(f"no broker throttles the client, and {name} fails: {error!r}") from error
        if error.message.startswith("No broker responded in time") and "refused" in error.message:
            raise ViolationError(f"a connect was refused, and {name} fails: {error!r}") from error
        if isinstance(error, BrokerError) and not error.message:
            raise ViolationError(f"{name} fails without a message: {error!r}") from error
        tries = _noted_tries(error)
        if tries is None:
            return
        count = operation.requests.total() + operation.connects
        if tries[1] > seconds + 1 or tries[0] < 2 or (tries[0] > count + 8 and "numRetries" not in tries[2]):
            raise ViolationError(
                f"{name} took {seconds:.1f} s with {count} requests, and: {_notes(error)}: {error!r}"
            ) from error

    def _check_warnings(self, operation: Operation, name: str) -> None:
        """Check that a warning has a reason, and is not repeated."""
        plan = self._environment.plan
        waits = 0
        for at, record in operation.warnings:
            message = record.getMessage()
            if message.startswith("still retrying"):
                waits += 1
                waited = record.args[0] if isinstance(record.args, tuple) else 0.0
                passed = at - operation.started_at
                if not isinstance(waited, float) or not _QUIET_SECONDS <= waited <= passed + 0.1:
                    raise ViolationError(f"{name} has taken {passed:.1f} s, and warns: {message}")
            elif "earlier leader epoch" in message:
                has_lag = plan.parameters["cluster"].get("metadata_lag", 0.0) > 0
                if not has_lag and not _LOWERS_EPOCHS & {event.kind for event in plan.events}:
                    raise ViolationError(f"no broker has lost epochs, and {name} warns: {message}")
        seconds = self._environment.world.now - operation.started_at
        if waits > 2 + seconds / _QUIET_SECONDS:  # a connect, a request, and the operation warn once each
            raise ViolationError(f"{name} warns {waits} times in {seconds:.1f} s that it still retries")

    def _current(self) -> Operation | None:
        task = self._environment.world._current
        return None if task is None else self._running.get(task)

    def _sent(self, _number: int, _connection: int, broker: int, api: str, _frame: bytes) -> None:
        if (operation := self._current()) is not None:
            operation.requests[api] += 1
            operation.brokers[broker] = None

    def _connected(self, _: float) -> None:
        if (operation := self._current()) is not None:
            operation.connects += 1


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def _noted_tries(error: BaseException) -> tuple[int, int, str] | None:
    """Return the number of tries, the seconds and the limit that the last note names."""
    for note in reversed(_notes(error)):
        if found := re.match(r"Tried (\d+) times in (\d+) s \((.*)\)", note):
            return int(found[1]), int(found[2]), found[3]
    return None
