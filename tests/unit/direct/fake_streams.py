"""A fake stream and a fake consumer group, for tests of stops."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.direct.commit_queue import CommitQueue
from pyspark_kafka_direct.direct.stop_hooks import StopSignal
from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.client.deadline import Deadline


class FakeGroup(ConsumerGroup):
    """Accepts commits, or does not respond until the deadline."""

    def __init__(self, *, unresponsive: bool = False) -> None:
        self.commits: list[dict[TopicPartition, int]] = []
        self.requested = threading.Event()
        self._unresponsive = unresponsive

    def commit(self, offsets: Mapping[TopicPartition, int], *, deadline: Deadline | None = None) -> None:
        self.requested.set()
        if self._unresponsive:
            assert not threading.Event().wait(60 if deadline is None else deadline.remaining())
            raise BrokerTimeoutError("no response")
        self.commits.append(dict(offsets))


def do_nothing() -> None:
    """The ``on_stopped`` callback of a test that needs none."""


class FakeStream:
    """A stream with a queued commit."""

    def __init__(self, group: FakeGroup) -> None:
        self.stop_signal = StopSignal()
        self.commit_queue = CommitQueue(group)
        self.commit_queue.add([OffsetRange("t", 0, 0, 5)])
