"""Run by test_offset_store_kills: python store_steps.py SERVERS TOPIC open|save STEP; it kills itself at the step."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.log import KafkaOffsetStore
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.writing.compacted import CompactedPartition
from pyspark_kafka_direct.writing.session import TransactionalSession

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS: dict[str, tuple[type, str, bool]] = {
    "init": (TransactionalSession, "init", True),
    "read": (CompactedPartition, "stable_end", True),
    "send": (TransactionalSession, "send", True),
    "flush": (TransactionalSession, "flush", True),
    "before-commit": (TransactionalSession, "commit", False),
    "after-commit": (TransactionalSession, "commit", True),
}
"""A method, and whether death comes after it."""


def die_at(step: str) -> None:
    owner, name, after = STEPS[step]
    original: Callable[..., Any] = getattr(owner, name)

    def fatal(*given: Any, **named: Any) -> Any:
        if after:
            original(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, fatal)


def main(servers: str, topic: str, doing: str, step: str) -> None:
    store = KafkaOffsetStore(topic, "q", {"bootstrap.servers": servers}, transaction_timeout_ms=300_000)
    if doing == "open":
        die_at(step)
    store.open()
    die_at(step)
    store.save({TopicPartition("t", 0): 2})
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
