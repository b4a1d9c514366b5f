"""Run by test_offset_store_kills: python store_steps.py SERVERS TOPIC open|save STEP; it kills itself at this step."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.log import KafkaOffsetStore
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS: dict[str, tuple[type, str, bool]] = {
    "init": (TransactionalProducer, "init_transactions", True),
    "read": (CompactedPartition, "wait_for_stable_end", True),
    "send": (TransactionalProducer, "send", True),
    "flush": (TransactionalProducer, "flush", True),
    "before-commit": (TransactionalProducer, "commit", False),
    "after-commit": (TransactionalProducer, "commit", True),
}
"""A method, and whether the process is killed after it or before."""


def kill_at(step: str) -> None:
    owner, name, after = STEPS[step]
    original: Callable[..., Any] = getattr(owner, name)

    def call_and_kill(*args: Any, **kwargs: Any) -> Any:
        if after:
            original(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, call_and_kill)


def main(servers: str, topic: str, operation: str, step: str) -> None:
    store = KafkaOffsetStore(topic, "q", {"bootstrap.servers": servers}, transaction_timeout_ms=300_000)
    if operation == "open":
        kill_at(step)
    store.open()
    kill_at(step)
    store.save({TopicPartition("t", 0): 2})
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
