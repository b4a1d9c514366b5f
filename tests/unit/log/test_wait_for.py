"""Waiting for a record of another topic, or of another leader, than was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.log.fake_cluster import TOPIC, FakeCluster, WorkerHarness, read_five, tp

from pyspark_kafka_direct.log import KafkaBasedLog, RecordMetadata

if TYPE_CHECKING:
    from pyspark_kafka_direct.log.pending_reads import LogFuture

PARAMS = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("topic_id", "epoch", "expected"),
    [(1, 2, False), (1, 1, False), (1, -1, False), (None, 2, False), (2, 0, True), (1, 3, True)],
    ids=["same", "earlier-leader", "unknown-leader", "unknown-topic", "other-topic", "later-leader"],
)
def test_a_record_may_not_be_in_the_log_that_was_read(
    cluster: FakeCluster, harness: WorkerHarness, topic_id: int | None, epoch: int, expected: bool
) -> None:
    """The consumer has read batches of leader epoch 2."""
    read_five(cluster, harness)
    found = harness.worker.may_lack(tp(0), None if topic_id is None else UUID(int=topic_id), epoch)
    assert found is expected


@pytest.mark.parametrize("lacks", [False, True])
def test_a_log_is_read_to_its_end_for_a_record_that_it_may_lack(monkeypatch: pytest.MonkeyPatch, lacks: bool) -> None:
    """Such as one of a topic that was deleted since: the new topic may have more records."""
    log = KafkaBasedLog(TOPIC, PARAMS, read_only=True)
    log._thread.state, log._thread._is_running = "started", True
    asked: list[Any] = []

    def may_lack(*record: object) -> bool:
        asked.append(record)
        return lacks

    log._worker.positions = {tp(0): 9}
    monkeypatch.setattr(log._worker, "may_lack", may_lack)
    waits: list[LogFuture] = []

    def run_worker(future: LogFuture, _: object) -> bool:
        waits.append(future)
        pending_reads = log._worker.pending_reads
        assert pending_reads.activate(0), "a read to the end"
        pending_reads.ends = {}
        pending_reads.complete_reached({})
        return future.done()

    monkeypatch.setattr(log._thread, "wait_until_done", run_worker)
    log.wait_for(RecordMetadata(TOPIC, 0, 5, 0, UUID(int=2), 3))
    assert asked == [(tp(0), UUID(int=2), 3)]
    assert len(waits) == lacks
    log.wait_for({0: 5})
    assert len(waits) == lacks, "an offset has no topic id"
