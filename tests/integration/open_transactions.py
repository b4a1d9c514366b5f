"""Transactions that tests leave open."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from tests.integration.workbench import Workbench

COMMITTED: dict[str, Any] = {"isolation.level": "read_committed"}


def new_transactional_producer(bench: Workbench, topic: str) -> Producer:
    producer = bench.producer(transactional_id=f"{topic}-{time.monotonic_ns()}", transaction_timeout_ms=900_000)
    producer.init_transactions(600)
    return producer


def write_open_transaction(producer: Producer, topic: str, values: list[bytes], key: bytes | None = None) -> None:
    """Write values in a transaction without ending it."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(300) == 0
