"""What stands in for a stream and its coordinator when streams are stopped."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_kafka_direct.direct._commits import CommitQueue
from pyspark_kafka_direct.direct._stopping import StopSignal
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.wire.deadline import Deadline


class Coordinator:
    """Takes commits, or answers nothing until the deadline."""

    def __init__(self, *, silent: bool = False) -> None:
        self.commits: list[dict[TopicPartition, int]] = []
        self.asked = threading.Event()
        self._silent = silent

    def commit(self, offsets: Mapping[TopicPartition, int], *, deadline: Deadline | None = None) -> None:
        self.asked.set()
        if self._silent:
            assert not threading.Event().wait(60 if deadline is None else deadline.remaining())
            raise BrokerTimeoutError("no answer")
        self.commits.append(dict(offsets))


def nothing() -> None:
    """Do nothing when a stream has ended."""


class Stream:
    """One with a commit that waits to be sent."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.stopping = StopSignal()
        self.queued_commits = CommitQueue(coordinator)
        self.queued_commits.add([OffsetRange("t", 0, 0, 5)])
