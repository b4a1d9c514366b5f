"""A read to the end never completes early: random writers, transactions, aborts and compaction."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.log.log_helpers import TIMEOUT, params
from tests.integration.open_transactions import new_transactional_producer

from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.log import LogRecord

SECONDS = 8.0
PARTITIONS, KEYS = 3, 5


class LatestNumbers:
    """The latest number that was written for each key; numbers only increase."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[bytes, int] = {}

    def update(self, numbers: dict[bytes, int]) -> None:
        with self._lock:
            self._latest.update(numbers)

    def copy(self) -> dict[bytes, int]:
        with self._lock:
            return self._latest.copy()


class Writer(threading.Thread):
    """Writes increasing numbers under its own keys, each key to one partition."""

    def __init__(self, bench: Workbench, topic: str, name: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.transactional = name.startswith("t")
        self.acknowledged = LatestNumbers()
        self.committed = LatestNumbers()
        self.aborted: set[tuple[bytes, int]] = set()
        self.failure: BaseException | None = None
        self._chance = random.Random(seed)
        self._stop_it = stop
        self._topic = topic
        self._producer = (
            new_transactional_producer(bench, topic) if self.transactional else bench.producer(enable_idempotence=True)
        )

    def run(self) -> None:
        try:
            number = 0
            while not self._stop_it.is_set():
                numbers: dict[bytes, int] = {}
                if self.transactional:
                    self._producer.begin_transaction()
                for _ in range(self._chance.randint(1, 20)):
                    key_number = self._chance.randrange(KEYS)
                    key = f"{self.name}-{key_number}".encode()
                    self._producer.produce(self._topic, b"%d" % number, key, partition=key_number % PARTITIONS)
                    numbers[key] = number
                    if self.transactional:
                        self.aborted.add((key, number))
                    number += 1
                assert self._producer.flush(300) == 0
                self.acknowledged.update(numbers)
                if self.transactional:
                    time.sleep(self._chance.random() * 0.3)
                    if self._chance.random() < 0.4:
                        self._producer.abort_transaction(600)
                        continue
                    self._producer.commit_transaction(600)
                    self.aborted.difference_update([each for each in self.aborted if each[1] >= min(numbers.values())])
                self.committed.update(numbers)
                time.sleep(self._chance.random() * 0.05)
        except BaseException as error:
            self.failure = error


@pytest.mark.parametrize("seed", range(3))
def test_a_read_to_the_end_never_completes_early(bench: Workbench, seed: int) -> None:
    topic = bench.make_topic(
        PARTITIONS, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, segment_ms=100, delete_retention_ms=100
    )
    stop = threading.Event()
    names = ("plain-1", "plain-2", "t-1", "t-2")
    writers = [Writer(bench, topic, name, seed * 10 + index, stop) for index, name in enumerate(names)]
    delivered: dict[bytes, int] = {}

    def apply(record: LogRecord) -> None:
        assert record.key is not None
        assert record.value is not None
        delivered[record.key] = int(record.value)

    servers = bench.bootstrap_servers
    rng = random.Random(seed)
    checks = 0
    with (
        KafkaBasedLog(topic, params(servers), on_record=apply, read_only=True) as log,
        KafkaTable(topic, params(servers, isolation_level="read_committed"), read_only=True) as table,
    ):
        for writer in writers:
            writer.start()
        end = time.monotonic() + SECONDS
        try:
            while time.monotonic() < end:
                acknowledged = [writer.acknowledged.copy() for writer in writers]
                read = log.read_to_end()
                committed = [writer.committed.copy() for writer in writers]
                read_committed = table.read_to_end()
                read.result(TIMEOUT)
                seen = delivered.copy()
                for newest in acknowledged:
                    assert {key for key, number in newest.items() if seen.get(key, -1) < number} == set()
                read_committed.result(TIMEOUT)
                rows = table.snapshot()
                for newest in committed:
                    assert {key for key, number in newest.items() if int(rows.get(key, b"-1")) < number} == set()
                checks += 1
                if rng.random() < 0.2:
                    with KafkaTable(topic, params(servers, isolation_level="read_committed")) as late:
                        started = late.snapshot()
                    for newest in committed:
                        assert {k for k, number in newest.items() if int(started.get(k, b"-1")) < number} == set()
        finally:
            stop.set()
            for writer in writers:
                writer.join(TIMEOUT)
        assert [writer.failure for writer in writers] == [None] * len(writers)
        table.read_to_end().result(TIMEOUT)
        newest = {key: number for writer in writers for key, number in writer.committed.copy().items()}
        assert {key: int(value) for key, value in table.items()} == newest
        for writer in writers:
            assert writer.aborted.isdisjoint((key, int(value)) for key, value in table.items())
    assert checks > 5
