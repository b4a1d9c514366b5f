"""Reading to the end is never done early: writers by chance, transactions open, aborted and committed, compaction."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.log.logs import PATIENCE, params
from tests.integration.transactions import transactional

from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.log import LogRecord

SECONDS = 8.0
PARTITIONS, KEYS = 3, 5


class Book:
    """What is known to be written: of each key of each writer the newest number, which only grows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[bytes, int] = {}

    def note(self, numbers: dict[bytes, int]) -> None:
        with self._lock:
            self._newest.update(numbers)

    def copy(self) -> dict[bytes, int]:
        with self._lock:
            return self._newest.copy()


class Writer(threading.Thread):
    """Writes numbers that grow, under keys of its own, each always to one partition."""

    def __init__(self, bench: Workbench, topic: str, name: str, seed: int, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.transactional = name.startswith("t")
        self.acknowledged = Book()
        self.committed = Book()
        self.aborted: set[tuple[bytes, int]] = set()
        self.failure: BaseException | None = None
        self._chance = random.Random(seed)
        self._stop_it = stop
        self._topic = topic
        self._producer = transactional(bench, topic) if self.transactional else bench.producer(enable_idempotence=True)

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
                assert self._producer.flush(60) == 0
                self.acknowledged.note(numbers)
                if self.transactional:
                    time.sleep(self._chance.random() * 0.3)
                    if self._chance.random() < 0.4:
                        self._producer.abort_transaction(60)
                        continue
                    self._producer.commit_transaction(60)
                    self.aborted.difference_update([each for each in self.aborted if each[1] >= min(numbers.values())])
                self.committed.note(numbers)
                time.sleep(self._chance.random() * 0.05)
        except BaseException as error:
            self.failure = error


@pytest.mark.parametrize("seed", range(3))
def test_the_end_is_never_told_early(bench: Workbench, seed: int) -> None:
    topic = bench.make_topic(
        PARTITIONS, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, segment_ms=100, delete_retention_ms=100
    )
    stop = threading.Event()
    names = ("plain-1", "plain-2", "t-1", "t-2")
    writers = [Writer(bench, topic, name, seed * 10 + place, stop) for place, name in enumerate(names)]
    everything: dict[bytes, int] = {}

    def apply(record: LogRecord) -> None:
        assert record.key is not None
        assert record.value is not None
        everything[record.key] = int(record.value)

    servers = bench.bootstrap_servers
    chance = random.Random(seed)
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
                read.result(PATIENCE)
                seen = everything.copy()
                for newest in acknowledged:
                    assert {key for key, number in newest.items() if seen.get(key, -1) < number} == set()
                read_committed.result(PATIENCE)
                rows = table.snapshot()
                for newest in committed:
                    assert {key for key, number in newest.items() if int(rows.get(key, b"-1")) < number} == set()
                checks += 1
                if chance.random() < 0.2:
                    with KafkaTable(topic, params(servers, isolation_level="read_committed")) as late:
                        started = late.snapshot()
                    for newest in committed:
                        assert {k for k, number in newest.items() if int(started.get(k, b"-1")) < number} == set()
        finally:
            stop.set()
            for writer in writers:
                writer.join(PATIENCE)
        assert [writer.failure for writer in writers] == [None] * len(writers)
        table.read_to_end().result(PATIENCE)
        newest = {key: number for writer in writers for key, number in writer.committed.copy().items()}
        assert {key: int(value) for key, value in table.items()} == newest
        for writer in writers:
            assert writer.aborted.isdisjoint((key, int(value)) for key, value in table.items())
    assert checks > 5
