"""Runs of one query on a simulated cluster: they overlap and die, with unknown outcomes and stale leaders."""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.log.store_cluster import (
    OTHER_TOPIC,
    PARTITION,
    QUERY,
    STORE_PARTITION,
    StoreCluster,
    save,
    saved_offset,
)

from pyspark_kafka_direct.errors import (
    BrokerError,
    KafkaDirectError,
    OutcomeUnknownError,
    ProducerFencedError,
)
from pyspark_kafka_direct.log.offset_store_records import StoredOffset, offset_key, read_stored_state, run_key
from pyspark_kafka_direct.offsets import LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.process import SimulatedProcess

LAST_OFFSET = 6


@pytest.fixture
def cluster() -> Iterator[StoreCluster]:
    with StoreCluster() as cluster:
        yield cluster


def test_a_run_reads_the_offsets_of_the_previous_run(cluster: StoreCluster) -> None:
    first = cluster.run("1")
    first.acquire()
    save(first, 1)
    save(first, 2)
    second = cluster.run("2")
    second.acquire()
    assert saved_offset(second) == 2
    with pytest.raises(ProducerFencedError, match=r"acquired by run 2, process 1 on host host, at 2023-11-14T22:13:20"):
        save(first, 3)
    save(second, 4)
    assert cluster.committed_offsets() == [1, 2, 4]
    second.close()


@pytest.mark.parametrize("expired", [False, True], ids=["fenced", "expired"])
def test_the_error_names_the_newest_of_several_runs(cluster: StoreCluster, expired: bool) -> None:
    """The runs between the two are fenced, too, and may have ended."""
    first, *successors = (cluster.run(name) for name in "1234")
    for run in (first, *successors):
        run.acquire()
    if expired:
        cluster.expire_transactional_id()
    for fenced in (first, successors[0]):
        with pytest.raises(ProducerFencedError, match="acquired by run 4"):
            save(fenced, 1)
    save(successors[-1], 2)
    assert cluster.committed_offsets() == [2]
    for run in successors[1:]:
        run.close()


def test_the_search_for_the_newest_run_has_a_short_timeout(cluster: StoreCluster) -> None:
    first, second = cluster.run("1"), cluster.run("2")
    first.acquire()
    second.acquire()
    cluster.every("ListOffsets", "stall_request")
    start = cluster.now
    with pytest.raises(ProducerFencedError):
        save(first, 1)
    assert 5 <= cluster.now - start < 10
    second.close()


def test_a_fenced_run_retains_nothing_of_the_batches_that_fail(cluster: StoreCluster) -> None:
    """A direct stream continues after a failed batch, so it may call a fenced store for weeks."""
    first, second = cluster.run("1"), cluster.run("2")
    first.acquire()
    second.acquire()
    second.close()

    class Batch:
        pass

    batches: list[weakref.ref[Batch]] = []

    def process() -> None:
        batch = Batch()
        batches.append(weakref.ref(batch))
        with contextlib.suppress(ProducerFencedError):
            save(first, 1)

    for _ in range(20):
        process()
    gc.collect()
    assert len([batch for batch in batches if batch() is not None]) <= 2  # the first and the last one


def test_earlier_runs_are_fenced_before_offsets_are_read(cluster: StoreCluster) -> None:
    """Otherwise offsets that the previous run commits in between are missed."""
    store = cluster.run("1")
    store.acquire()
    store.close()
    names = [request.api for request in cluster.requests if request.api in ("InitProducerId", "ListOffsets", "Fetch")]
    assert names[0] == "InitProducerId"
    assert "ListOffsets" in names


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_overlapping_runs(cluster: StoreCluster, seed: int) -> None:
    """Offsets are saved only after their work was done, and no saved offset is lost."""
    rng = random.Random(seed)
    done: set[int] = set()
    saved: list[int] = [0]  # acknowledged
    runs = iter(range(10_000))

    def drive(process: SimulatedProcess) -> None:
        while saved[-1] < LAST_OFFSET:
            store = cluster.run(f"run-{next(runs)}", process)
            try:
                known = saved[-1]
                store.acquire()
                assert saved_offset(store) >= known
                for number in range(saved_offset(store), LAST_OFFSET):
                    process.sleep(rng.uniform(0, 0.05))  # the work
                    done.add(number)
                    save(store, number + 1)
                    saved.append(number + 1)
            except KafkaDirectError:
                process.sleep(rng.uniform(0, 1))
            finally:
                store.close()

    processes = [cluster.environment.process(f"driver {number}") for number in range(3)]
    for process in processes:
        process.spawn("drive", lambda process=process: drive(process))  # type: ignore[misc]
    for api in ("EndTxn", "Produce", "InitProducerId", "FindCoordinator", "ListOffsets", "Fetch"):
        for _ in range(rng.randint(0, 4)):
            kind = rng.choice(("lose_request", "lose_response", "late_request", "delay_response"))
            arguments: dict[str, Any] = (
                {"seconds": rng.choice((0.2, 5.0))} if kind in ("late_request", "delay_response") else {}
            )
            cluster.fault(api, kind, number=rng.randrange(30), **arguments)
    for _ in range(rng.randint(0, 2)):
        cluster.after(rng.uniform(0, 2), lambda: cluster.event("isolate_broker", broker=0, seconds=2.0))
    for process in processes[:2]:
        if rng.random() < 0.5:
            cluster.after(rng.uniform(0.1, 2), process.kill)
    cluster.sleep(600)
    assert saved[-1] == LAST_OFFSET
    cluster.environment.raise_errors()
    offsets = cluster.committed_offsets()
    assert offsets == sorted(offsets)
    assert offsets[-1] == LAST_OFFSET
    assert done >= set(range(LAST_OFFSET))


@pytest.mark.parametrize("kind", ["stall_response", "stall_request"], ids=["received", "not-received"])
def test_a_run_with_an_unknown_outcome_does_not_fence_its_successor(cluster: StoreCluster, kind: str) -> None:
    """It looks for a newer run before it sends InitProducerId again."""
    first, second = cluster.run("1"), cluster.run("2", cluster.other)
    first.acquire()
    save(first, 1)
    cluster.every("EndTxn", kind)
    cluster.in_other_process(5, second.acquire)
    with pytest.raises(ProducerFencedError, match="acquired by run 2"):
        save(first, 2)
    found = saved_offset(second)
    assert found == (2 if kind == "stall_response" else 1)
    cluster.in_other_process(0, lambda: save(second, found + 1))
    cluster.sleep(5)
    assert cluster.committed_offsets()[-1] == found + 1


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
def test_records_that_a_stale_leader_lacks_are_not_skipped(cluster: StoreCluster, missing: int) -> None:
    """A deposed leader returns an earlier end; the last record is a control record."""
    first = cluster.run("1")
    first.acquire()
    save(first, 1)
    save(first, 2)
    first.close()

    def with_earlier_end(_: int, response: dict[str, Any]) -> dict[str, Any]:
        if cluster.received("ListOffsets")[-1].topics[0].partitions[0].timestamp == LATEST:
            response["topics"][0]["partitions"][0]["offset"] -= missing
        return response

    cluster.change("ListOffsets", with_earlier_end)
    second = cluster.run("2")
    if missing > 1:
        with pytest.raises(KafkaDirectError):
            second.acquire()
    else:
        second.acquire()
        assert saved_offset(second) == 2
        second.close()
    cluster.change("ListOffsets", None)
    third = cluster.run("3")
    third.acquire()
    assert saved_offset(third) == 2
    third.close()


def test_records_of_other_queries_are_ignored(cluster: StoreCluster) -> None:
    """They may lie between the end that was read and the first record of this run."""
    others = [(b'["r"]', b"{}"), (b'["r","t",0]', b'{"offset":3}')]
    store = cluster.run("1")
    cluster.network.on_request = lambda request: (
        cluster.append_records(others) if request.api == "Produce" and cluster.log(STORE_PARTITION).end < 2 else None
    )
    store.acquire()
    save(store, 1)
    assert cluster.committed_offsets() == [1]
    store.close()


def test_an_outcome_that_stays_unknown_is_an_error(cluster: StoreCluster, caplog: pytest.LogCaptureFixture) -> None:
    store = cluster.run("1")
    store.acquire()
    cluster.every("EndTxn", "stall_response")
    cluster.every("InitProducerId", "stall_request")
    with pytest.raises(OutcomeUnknownError, match="InitProducerId"):
        save(store, 1)
    assert caplog.text.count("Reading the outcome from the topic.") == 1
    cluster.every("EndTxn", None)
    cluster.every("InitProducerId", None)
    before = len(cluster.committed_offsets())
    save(store, 1)  # the commit was received, so nothing is written
    assert len(cluster.committed_offsets()) == before == 1
    cluster.remove_records_of(PARTITION)  # since its outcome is known, its loss counts
    cluster.expire_transactional_id()
    with pytest.raises(BrokerError, match=r"The offset 1 of t-0, which this run saved, is missing"):
        store.write({OTHER_TOPIC: StoredOffset(3, None, "run")})
    store.close()


def test_a_failed_save_is_aborted_and_the_next_one_succeeds(cluster: StoreCluster) -> None:
    store = cluster.run("1")
    store.acquire()
    save(store, 1)
    cluster.every("Produce", "lose_request")
    with pytest.raises(KafkaDirectError):
        save(store, 2)
    cluster.every("Produce", None)
    save(store, 3)
    assert cluster.committed_offsets() == [1, 3]
    store.close()


def test_every_save_after_a_truncation_fails(cluster: StoreCluster) -> None:
    """The log was truncated between two saves."""
    store = cluster.run("1")
    store.acquire()
    store.write({TopicPartition("t", 1): StoredOffset(7, None, "run")})
    save(store, 1)
    cluster.sleep(1)
    cluster.truncate(STORE_PARTITION, 2, leader=2)
    for message in ("had reached offset 5 before", *["offset 7 of t-1.* is missing"] * 2):
        with pytest.raises(BrokerError, match=message):
            save(store, 2)
    assert cluster.committed_offsets() == []
    store.close()


def test_the_first_save_after_a_truncation_fails(cluster: StoreCluster) -> None:
    """The log was truncated after this run had read the offsets of the one before."""
    for name in "12":
        store = cluster.run(name)
        store.acquire()
        store.write({TopicPartition("t", 1): StoredOffset(7, None, "run")})
        if name == "1":
            store.close()
    cluster.sleep(1)
    cluster.truncate(STORE_PARTITION, 1, leader=2)
    with pytest.raises(BrokerError, match="had reached offset 5 before, and this save was written at 1"):
        save(store, 1)
    store.close()


def test_lost_offsets_are_detected_when_the_query_is_acquired_again(cluster: StoreCluster) -> None:
    store = cluster.run("1")
    store.acquire()
    store.write({OTHER_TOPIC: StoredOffset(3, None, "run")})
    store.write({TopicPartition("t", 1): StoredOffset(7, None, "run")})
    cluster.sleep(1)
    cluster.every("EndTxn", "stall_request")
    cluster.after(5, lambda: cluster.remove_records_of(TopicPartition("t", 1)))
    cluster.after(100, lambda: cluster.every("EndTxn", None))
    with pytest.raises(BrokerError, match=r"The offset 7 of t-1, which this run saved, is missing"):
        save(store, 2)
    store.close()


def test_offsets_are_deleted(cluster: StoreCluster) -> None:
    store = cluster.run("1")
    store.acquire()
    save(store, 1)
    deleted: dict[TopicPartition, StoredOffset | None] = {PARTITION: None, OTHER_TOPIC: None}
    store.write({OTHER_TOPIC: StoredOffset(7, None, "run")})
    store.write(deleted)
    store.write(deleted)
    assert store.offsets == {}
    written = [key for batch in cluster.log(STORE_PARTITION).batches if not batch.is_control for key in batch.keys]
    assert written.count(offset_key(QUERY, PARTITION)) == 2
    second = cluster.run("2")
    second.acquire()
    assert second.offsets == {}
    store.close()
    second.close()


def test_records_whose_earlier_values_were_compacted(cluster: StoreCluster) -> None:
    """Tombstones may be the only records of their keys. A value that a user wrote has no run."""
    keys = [offset_key(QUERY, PARTITION), run_key(QUERY), offset_key(QUERY, TopicPartition("t", 1))]
    cluster.append_records([*((key, None) for key in keys), (offset_key(QUERY, OTHER_TOPIC), b'{"offset":3}')])
    store = cluster.run("1")
    store.acquire()
    assert store.offsets == {OTHER_TOPIC: StoredOffset(3, None, "")}
    save(store, 1)
    store.close()


def test_a_save_may_need_more_than_one_batch(cluster: StoreCluster) -> None:
    first = cluster.run("1")
    first.acquire()
    offsets = {TopicPartition("t" * 249, number): StoredOffset(number, None, "run") for number in range(4000)}
    first.write(offsets)
    assert first.offsets == offsets
    written = [batch for batch in cluster.log(STORE_PARTITION).batches if not batch.is_control and len(batch.keys) > 1]
    assert len(written) > 1
    end = cluster.log(STORE_PARTITION).end
    first.write(offsets)
    assert cluster.log(STORE_PARTITION).end == end, "all are stored already"
    first.close()
    second = cluster.run("2")
    second.acquire()
    assert second.offsets == offsets
    second.close()


def test_an_empty_topic_has_no_offsets() -> None:
    assert read_stored_state("q", [], STORE_PARTITION.topic) == ({}, [])


def test_a_run_that_fences_its_successor_keeps_the_successors_offsets(cluster: StoreCluster) -> None:
    """The successor starts between the search for a newer run and InitProducerId."""
    first, second = cluster.run("1"), cluster.run("2", cluster.other)
    first.acquire()
    save(first, 1)
    cluster.every("EndTxn", "stall_request")
    started: list[bool] = []

    def follow() -> None:
        second.acquire()
        save(second, 5)

    def pause(process: SimulatedProcess) -> None:
        if not started:
            started.append(True)
            cluster.every("EndTxn", None)
            cluster.in_other_process(0, follow)

    cluster.network.on_pause = pause
    cluster.fault("InitProducerId", "pause_before_request", seconds=10)
    with pytest.raises(ProducerFencedError, match="acquired by run 2"):
        save(first, 2)
    assert started

    def save_again() -> None:
        with pytest.raises(ProducerFencedError):
            save(second, 6)

    cluster.in_other_process(0, save_again)
    cluster.sleep(30)
    assert cluster.committed_offsets() == [1, 5]


def test_an_ended_transaction_leads_to_the_search_for_a_successor(cluster: StoreCluster) -> None:
    first, second = cluster.run("1"), cluster.run("2", cluster.other)
    first.acquire()
    cluster.fault("EndTxn", "pause_before_request", seconds=10)
    cluster.in_other_process(2, second.acquire)
    for _ in range(2):
        with pytest.raises(ProducerFencedError, match="acquired by run 2"):
            save(first, 1)
    cluster.in_other_process(0, lambda: save(second, 1))
    cluster.sleep(5)
    assert cluster.committed_offsets() == [1]


def test_any_error_of_a_fenced_run_leads_to_the_search_for_a_successor(cluster: StoreCluster) -> None:
    first, second = cluster.run("1"), cluster.run("2", cluster.other)
    first.acquire()
    cluster.in_other_process(0, second.acquire)
    cluster.sleep(2)
    cluster.fault("Produce", "error", code=48)  # INVALID_TXN_STATE
    with pytest.raises(ProducerFencedError, match="acquired by run 2"):
        save(first, 1)
    cluster.in_other_process(0, second.close)
    cluster.sleep(1)


def test_a_save_that_outlives_its_transaction_is_repeated(cluster: StoreCluster) -> None:
    """The broker aborts the transaction after 30 seconds."""
    store = cluster.run("1")
    store.acquire()
    save(store, 1)
    cluster.fault("EndTxn", "pause_before_request", seconds=45)
    save(store, 2)
    assert cluster.committed_offsets() == [1, 2]
    store.close()


def test_a_run_continues_after_its_transactional_id_expired(cluster: StoreCluster) -> None:
    """Brokers respond as if another run had fenced it."""
    first = cluster.run("1")
    first.acquire()
    save(first, 1)
    for offset in (2, 3):
        cluster.expire_transactional_id()
        save(first, offset)
    assert cluster.committed_offsets() == [1, 2, 3]
    first.close()


@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
def test_a_run_whose_transactional_id_expired_does_not_fence_its_successor(cluster: StoreCluster, both: bool) -> None:
    first, second = cluster.run("1"), cluster.run("2")
    first.acquire()
    save(first, 1)
    cluster.expire_transactional_id()
    second.acquire()
    save(second, 5)
    if both:
        cluster.expire_transactional_id()
    with pytest.raises(ProducerFencedError, match="acquired by run 2"):
        save(first, 2)
    save(second, 6)
    assert cluster.committed_offsets() == [1, 5, 6]
    second.close()
