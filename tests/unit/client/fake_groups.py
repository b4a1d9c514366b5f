"""A fake consumer group, for code that commits in real threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
from pyspark_kafka_direct.errors import BrokerTimeoutError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.offsets import TopicPartition


class FakeGroup(ConsumerGroup):
    """Accepts commits while ``open`` is set.

    Attributes:
        requested: Is released by each commit.
        unresponsive: Whether commits get no response until their deadline.
        errors: Each of the next commits raises one of them.
        deadlines: Those of all commits.
        commits: The offsets of those that succeeded.
        offsets: The committed offsets.
    """

    def __init__(self, *, unresponsive: bool = False) -> None:
        self.open = threading.Event()
        self.open.set()
        self.requested = threading.Semaphore(0)
        self.unresponsive = unresponsive
        self.errors: list[Exception] = []
        self.deadlines: list[Deadline | None] = []
        self.commits: list[Mapping[TopicPartition, int]] = []
        self.offsets: dict[TopicPartition, int] = {}

    def committed(
        self, partitions: Collection[TopicPartition], *, deadline: Deadline | None = None
    ) -> dict[TopicPartition, int]:
        return {tp: offset for tp, offset in self.offsets.items() if tp in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int], *, deadline: Deadline | None = None) -> None:
        self.deadlines.append(deadline)
        self.requested.release()
        if self.unresponsive:
            assert not threading.Event().wait(60 if deadline is None else deadline.remaining())
            raise BrokerTimeoutError("no response")
        assert self.open.wait(120)
        if self.errors:
            raise self.errors.pop(0)
        self.commits.append(dict(offsets))
        self.offsets.update(offsets)
