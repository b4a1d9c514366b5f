"""A query with a new checkpoint, which uses the transactional ids of a query that has ended."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.errors import ViolationError
from tests.simulation.scenarios.checkpoint_store import CheckpointStore

from pyspark_kafka_direct.errors import TransactionStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.environment import Environment
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scenarios.continuous_checks import OutputChecker
    from tests.simulation.scenarios.continuous_stand_in import ContinuousDriver

_TOKEN: Final = re.compile(r"set resetTransactionState to (\w+),")
_SECONDS: Final = 60.0  # until the query has ended, or has copied a few records
_POLL_SECONDS: Final = 0.2
_MARKER_SECONDS: Final = 3.0  # until the coordinator of the group shows what the last transactions have committed

FIRST_DRIVER: Final = 500
"""The number of the first driver of the other query."""


class OtherQuery:
    """Begins at the latest offsets, and may write only after its user has confirmed that."""

    def __init__(
        self,
        environment: Environment,
        checker: OutputChecker,
        prefix: str,
        topics: list[str],
        create: Callable[[int, CheckpointStore, str], ContinuousDriver],  # number, store and token
    ) -> None:
        self._environment = environment
        self._checker = checker
        self._group = f"{prefix}.cont"
        self._topics = topics
        self._create = create
        self._store = CheckpointStore(environment, {})

    def run(self, supervisor: SimulatedProcess, append: Callable[[], None], token: str = "") -> None:
        """Start the query without a token, or with a wrong one, then with the right one, and stop it."""
        supervisor.sleep(_MARKER_SECONDS)
        before, written = self._committed(), self._checker.written()
        if not before:
            return
        rejected = self._start(FIRST_DRIVER, token)
        self._wait(supervisor, lambda: rejected.is_over, "is not rejected")
        rejected.end()
        match = _TOKEN.search(str(rejected.error))
        if not isinstance(rejected.error, TransactionStateError) or match is None:
            raise ViolationError(f"a query uses the prefix of another one, and ends with {rejected.error!r}")
        if self._committed() != before or any(name != "metadata" for name in self._store.files):
            raise ViolationError(f"a query was rejected, and has written {sorted(self._store.files)}: {before}")
        confirmed = self._start(FIRST_DRIVER + 1, match[1])
        self._wait(supervisor, lambda: confirmed.is_steady, f"does not start: {confirmed.error!r}")
        append()
        self._wait(supervisor, self._has_copied_all, "does not copy new records")
        confirmed.stop()
        self._wait(supervisor, lambda: confirmed.is_over, "does not end")
        confirmed.end()
        if confirmed.error is not None:
            raise ViolationError(f"the query fails while it is stopped: {confirmed.error!r}") from confirmed.error
        supervisor.sleep(_MARKER_SECONDS)
        now = self._checker.written()
        if repeated := sorted(value for value, count in written.items() if now[value] != count):
            raise ViolationError(f"the query begins at the latest offsets, and has copied {repeated}")
        query = json.loads(self._store.files["metadata"])["id"]
        if others := {tp: each for tp, each in self._committed().items() if json.loads(each[1])["query"] != query}:
            raise ViolationError(f"the group of query {query} has offsets of another one: {others}")

    def _has_copied_all(self) -> bool:
        return self._checker.is_complete(self._topics) and not self._checker.missing(self._topics)

    def _start(self, number: int, token: str) -> ContinuousDriver:
        driver = self._create(number, self._store, token)
        self._environment.world.trace("driver of another query", number, token)
        driver.start()
        return driver

    def _committed(self) -> dict[tuple[str, int], tuple[int, str]]:
        committed: Any = GroupCoordinator.of(self._environment.cluster).committed(self._group)
        return {tp: (each.offset, each.metadata) for tp, each in committed.items()}

    def _wait(self, supervisor: SimulatedProcess, condition: Callable[[], bool], problem: str) -> None:
        end = self._environment.world.now + _SECONDS
        while not condition():
            supervisor.sleep(_POLL_SECONDS)
            if self._environment.world.now > end:
                raise ViolationError(f"a query with the prefix of another one {problem}")
