"""Commit offsets for a consumer group without holding up those who plan and run batches.

They add the offsets to commit and go on. A thread that lives as long as there is something to do takes all that waits.
It asks a pure function (the step) what of it is to be committed, and sends that. Only one request is under way at a
time, so none overtakes an older one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.system import System

    Offsets: TypeAlias = Mapping[TopicPartition, int]
    """The next offset to read of each partition."""

_Item = TypeVar("_Item")
_Commit = TypeVar("_Commit")


class OffsetCommitter(Protocol):
    """Commits the next offset to read of each partition; ``wire.groups.Group`` does."""

    def commit(self, offsets: Offsets, *, deadline: Deadline | None = None) -> None:
        """Commit until the deadline, or one of its own; raise what went wrong."""


class Committer(Generic[_Item, _Commit]):
    """Sends to one group what is added, of this process only; for several threads.

    Args:
        step: Says what to commit of the items that wait, oldest first.
        send: Commits it until the deadline, or one of its own; raises what went wrong.
        told: Is told of the items that were taken together, what was sent, and what went wrong, if anything.
        system: Has the clock and the threads.
    """

    def __init__(
        self,
        step: Callable[[Sequence[_Item]], _Commit],
        send: Callable[[_Commit, Deadline | None], None],
        told: Callable[[Sequence[_Item], _Commit, Exception | None], None],
        system: System = SYSTEM,
    ) -> None:
        self._step = step
        self._send = send
        self._told = told
        self._system = system
        self._changed = threading.Condition()
        self._added: list[_Item] = []
        self._due: list[_Item] = []
        self._running = False
        self._commits_now = 0  # calls of commit_now that are under way, with what they have taken along
        self._deadline: Deadline | None = None
        self._committing = threading.Lock()  # one request at a time

    def add(self, item: _Item) -> None:
        """Keep an item until the next ``send``."""
        with self._changed:
            self._added.append(item)

    def send(self, deadline: Deadline | None = None) -> None:
        """Begin to commit what was added; returns at once.

        Args:
            deadline: Until when to try, that and what follows; ``None``: ``default.api.timeout.ms`` for each try.
        """
        with self._changed:
            self._deadline = deadline
            self._due += self._added
            self._added.clear()
            if not self._due or self._running:
                return
            self._running = True
            try:
                self._system.start(self._run, "pyspark-kafka-direct-commits")
                return
            except RuntimeError:  # the interpreter is ending, and starts no threads any more (Python 3.12)
                pass
        self._run()

    def wait(self, seconds: float) -> bool:
        """Wait so long until all that is under way is sent and told; returns whether that came in time."""
        end = self._system.monotonic() + seconds
        with self._changed:
            while self._running or self._commits_now:
                left = end - self._system.monotonic()
                if left <= 0:
                    return False
                self._system.wait(self._changed, left)
        return True

    def commit_now(self, item: _Item) -> None:
        """Commit an item together with all that waits, and wait for the answer; who added the others is told.

        Raises:
            Exception: What went wrong.
        """
        with self._changed:
            self._commits_now += 1
        try:
            with self._committing:
                with self._changed:
                    # What is older must not be sent after this.
                    earlier = [*self._due, *self._added]
                    self._due, self._added = [], []
                commit, error = self._commit([*earlier, item], None)
            self._told(earlier, commit, error)
        finally:
            with self._changed:
                self._commits_now -= 1
                self._changed.notify_all()
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            with self._committing:
                with self._changed:
                    due, self._due = self._due, []
                    deadline = self._deadline
                    if not due:
                        self._running = False
                        self._changed.notify_all()
                        return
                commit, error = self._commit(due, deadline)
            self._told(due, commit, error)

    def _commit(self, items: Sequence[_Item], deadline: Deadline | None) -> tuple[_Commit, Exception | None]:
        commit = self._step(items)
        try:
            self._send(commit, deadline)
        except Exception as error:
            return commit, error
        return commit, None
