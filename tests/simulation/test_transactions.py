"""The transaction coordinator between a request and its effects: markers, timeouts, moves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.cluster.cluster import ClusterSettings, SimulatedCluster
from tests.simulation.cluster.coordinator_events import move_transaction_coordinators
from tests.simulation.cluster.coordinators import GROUP, TRANSACTION, Coordinators, coordinator_partition
from tests.simulation.cluster.transactions import TransactionCoordinator, TransactionState
from tests.simulation.coordinator_cases import producer_batch
from tests.simulation.direct_calls import DirectCalls
from tests.simulation.scheduler import World

from pyspark_kafka_direct.protocol import messages

ID = "transaction"


class Simulation:
    """A cluster with a topic of two partitions; requests go to the brokers that serve them."""

    def __init__(self, seed: int = 1, brokers: int = 1, **settings: Any) -> None:
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, brokers=brokers, settings=ClusterSettings(**settings))
        self.cluster.create_topic("topic", 2)
        self.transactions = TransactionCoordinator.of(self.cluster)
        self.coordinators = Coordinators.of(self.cluster)
        self.has_kip_890 = self.cluster.settings.transaction_version == 2

    def state(self) -> TransactionState:
        metadata = self.transactions.transaction(ID)
        assert metadata is not None
        return metadata.state

    def init(self, producer: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000) -> tuple[int, int, int]:
        values = {"transactional_id": ID, "transaction_timeout_ms": timeout_ms}
        values |= {"producer_id": producer[0], "producer_epoch": producer[1]}
        response = self.to_coordinator(messages.INIT_PRODUCER_ID, 5, values)
        return response.error_code, response.producer_id, response.producer_epoch

    def new_producer(self, timeout_ms: int = 60_000) -> tuple[int, int]:
        code, *producer = self.init(timeout_ms=timeout_ms)
        assert code == 0
        return producer[0], producer[1]

    def end(self, producer: tuple[int, int], *, commit: bool = True, broker_id: int | None = None) -> int:
        values = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}
        values["committed"] = commit
        response = self.to_coordinator(messages.END_TXN, 5 if self.has_kip_890 else 4, values, broker_id)
        return int(response.error_code)

    def end_with(self, version: int, producer: tuple[int, int], *, commit: bool) -> int:
        values = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1]}
        return int(self.to_coordinator(messages.END_TXN, version, {**values, "committed": commit}).error_code)

    def add(self, producer: tuple[int, int], partition: int = 0) -> int:
        values = {
            "v3_and_below_transactional_id": ID,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [{"name": "topic", "partitions": [partition]}],
        }
        response = self.to_coordinator(messages.ADD_PARTITIONS_TO_TXN, 3, values)
        return int(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce(
        self, producer: tuple[int, int], sequence: int, *, partition: int = 0, version: int | None = None
    ) -> tuple[int, str | None]:
        version = (12 if self.has_kip_890 else 11) if version is None else version
        records = producer_batch((b"v",), *producer, sequence)
        data = [{"name": "topic", "partition_data": [{"index": partition, "records": records}]}]
        values = {"transactional_id": ID, "acks": -1, "timeout_ms": 5_000, "topic_data": data}
        leader = self.cluster.topics["topic"].partitions[partition].leader
        response = DirectCalls(self.world, self.cluster, leader)(messages.PRODUCE, version, values)
        found = response.responses[0].partition_responses[0]
        return found.error_code, found.error_message

    def write(self, producer: tuple[int, int], *partitions: int) -> None:
        for partition in partitions or (0,):
            if not self.has_kip_890:
                assert self.add(producer, partition) == 0
            assert self.produce(producer, 0, partition=partition) == (0, None)

    def to_coordinator(self, api: Any, version: int, values: dict[str, Any], broker_id: int | None = None) -> Any:
        if broker_id is None:
            broker_id = self.coordinators.leader(TRANSACTION, ID)
            assert broker_id is not None
        return DirectCalls(self.world, self.cluster, broker_id)(api, version, values)

    def markers(self, partition: int = 0) -> list[bool | None]:
        log = self.cluster.topics["topic"].partitions[partition].leader_log
        assert log is not None
        return [batch.commit for batch in log.batches if batch.is_control]


def test_requests_directly_after_the_end_are_concurrent() -> None:
    simulation = Simulation()
    first = simulation.new_producer()
    simulation.write(first)
    assert simulation.end(first) == 0
    assert simulation.state() is TransactionState.PREPARE_COMMIT
    second = (first[0], 1)
    assert simulation.init()[0] == 51
    assert simulation.init((first[0] + 1, 0))[0] == 51
    assert simulation.add(second) == 51
    assert simulation.end(first) == 51
    assert simulation.end(first, commit=False) == 51
    assert simulation.end((first[0] + 1, 0)) == 51
    simulation.world.run_for(1)
    assert simulation.state() is TransactionState.COMPLETE_COMMIT
    assert simulation.markers() == [True]
    assert simulation.produce(second, 0) == (0, None)


# Seen with Kafka 4.3.0: the second of two requests in one packet, after EndTxn. By transaction.version; epochs are
# relative to the epoch in the EndTxn request.
_IN_TRANSITION: dict[int, dict[str, dict[int | str, int]]] = {
    2: {
        "EndTxn 4": {0: 90, 1: 51, 5: 90, "other id": 49},
        "EndTxn 5": {0: 51, 1: 51, 5: 51, "other id": 51},
        "AddPartitionsToTxn": {0: 51, 1: 51, 5: 51, "other id": 51},
        "InitProducerId": {0: 51, 1: 51, 5: 51, "other id": 51},
        "Produce 11": {0: 47, 1: 19, 5: 47, "other id": 49},
        "Produce 10": {0: 47, 1: 19, 5: 47},
    },
    0: {
        "EndTxn 4": {0: 51, 1: 90, 5: 90, "other id": 49},
        "EndTxn 5": {0: 51, 1: 51, 5: 51, "other id": 51},
        "AddPartitionsToTxn": {0: 51, 1: 51, 5: 51, "other id": 51},
        "InitProducerId": {0: 51, 1: 51, "other id": 51},
        "Produce 11": {0: 19, 1: 47, 5: 47, "other id": 49},
        "Produce 10": {0: 19, 1: 47, 5: 47},
    },
}


@pytest.mark.parametrize("transaction_version", [2, 0])
@pytest.mark.parametrize("commit", [True, False])
def test_responses_until_the_markers_are_written(
    monkeypatch: pytest.MonkeyPatch, transaction_version: int, commit: bool
) -> None:
    monkeypatch.setattr(TransactionCoordinator, "marker_seconds", (10.0, 10.0))
    simulation = Simulation(transaction_version=transaction_version)
    producer_id, epoch = simulation.new_producer()
    simulation.write((producer_id, epoch))
    assert simulation.end((producer_id, epoch), commit=commit) == 0

    def send(request: str, producer: tuple[int, int]) -> set[int]:
        match request.split():
            case ["EndTxn", version]:
                return {simulation.end_with(int(version), producer, commit=each) for each in (True, False)}
            case ["Produce", version]:
                return {simulation.produce(producer, 0, partition=1, version=int(version))[0]}
            case ["InitProducerId"]:
                return {simulation.init(producer)[0]}
        return {simulation.add(producer, 1)}

    for request, expected in _IN_TRANSITION[transaction_version].items():
        for change, code in expected.items():
            producer = (producer_id + 9, epoch) if isinstance(change, str) else (producer_id, epoch + change)
            assert send(request, producer) == {code}, (request, change)
    assert simulation.state() in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def test_a_leader_verifies_again_for_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionCoordinator, "marker_seconds", (0.05, 0.06))
    simulation = Simulation()
    first = simulation.new_producer()
    second = (first[0], 1)
    simulation.write(first)
    assert simulation.end(first) == 0
    # After 0.1 to 0.12 s there is one marker, and the transaction is complete.
    started = simulation.world.now
    code, _ = simulation.produce(second, 0, partition=1)
    assert code in (0, 51)
    assert 0.04 < simulation.world.now - started < 0.14
    monkeypatch.setattr(TransactionCoordinator, "marker_seconds", (0.5, 0.5))
    simulation.world.run_for(1)
    if code:
        assert simulation.produce(second, 0, partition=1) == (0, None)
    assert simulation.end(second) == 0
    started = simulation.world.now
    assert simulation.produce((first[0], 2), 0, partition=1) == (51, None)
    assert simulation.world.now - started == pytest.approx(0.1, abs=0.005)


def test_older_produce_requests_directly_after_the_end_are_not_verified() -> None:
    simulation = Simulation(transaction_version=0)
    producer = simulation.new_producer()
    simulation.write(producer)
    assert simulation.end(producer) == 0
    code, message = simulation.produce(producer, 0, partition=1)
    assert code == 19
    assert message == (
        "Unable to verify the partition has been added to the transaction. Underlying error: CONCURRENT_TRANSACTIONS"
    )


def test_writes_of_the_same_epoch_are_accepted_until_the_marker_is_written() -> None:
    simulation = Simulation()
    producer = simulation.new_producer()
    simulation.write(producer)
    assert simulation.end(producer) == 0
    assert simulation.produce(producer, 1) == (0, None)
    simulation.world.run_for(1)
    assert simulation.produce(producer, 2)[0] == 47


@pytest.mark.parametrize("commit", [True, False])
def test_markers_reach_partitions_one_after_the_other(commit: bool) -> None:
    simulation = Simulation()
    producer = simulation.new_producer()
    simulation.write(producer, 0, 1)
    assert simulation.end(producer, commit=commit) == 0
    seen = set()
    for _ in range(100):
        seen.add((len(simulation.markers(0)), len(simulation.markers(1))))
        simulation.world.run_for(0.001)
    assert sorted(seen) == [(0, 0), (1, 0), (1, 1)]
    assert simulation.markers(0) == simulation.markers(1) == [commit]


def test_a_marker_waits_for_a_leader() -> None:
    simulation = Simulation()
    producer = simulation.new_producer()
    simulation.write(producer, 0, 1)
    first, _ = simulation.cluster.topics["topic"].partitions
    simulation.cluster.elect(first, -1)
    assert simulation.end(producer) == 0
    simulation.world.run_for(5)
    assert simulation.state() is TransactionState.PREPARE_COMMIT
    simulation.cluster.elect(first, 1)
    simulation.world.run_for(1)
    assert simulation.state() is TransactionState.COMPLETE_COMMIT
    assert simulation.markers(0) == simulation.markers(1) == [True]


def test_a_deleted_topic_needs_no_marker() -> None:
    simulation = Simulation()
    producer = simulation.new_producer()
    simulation.write(producer)
    simulation.cluster.delete_topic("topic")
    assert simulation.end(producer) == 0
    simulation.world.run_for(1)
    assert simulation.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("transaction_version", [2, 0])
def test_a_new_producer_fences_the_former_one(transaction_version: int) -> None:
    simulation = Simulation(transaction_version=transaction_version)
    first = simulation.new_producer()
    simulation.write(first)
    assert simulation.init()[0] == 51
    assert simulation.state() is TransactionState.PREPARE_ABORT
    simulation.world.run_for(1)
    assert simulation.markers() == [False]
    second = simulation.new_producer()
    assert second == (first[0], 2)
    assert simulation.produce(first, 1)[0] == 47
    assert simulation.add(first) == 90
    assert simulation.end(first) == 90
    assert simulation.end(first, commit=False) == 90


def test_the_coordinator_looks_for_timeouts_every_ten_seconds() -> None:
    ages = []
    for seed in range(10):
        simulation = Simulation(seed)
        producer = simulation.new_producer(timeout_ms=3_000)
        simulation.write(producer)
        started = simulation.world.now
        while simulation.state() is TransactionState.ONGOING:
            simulation.world.run_for(0.1)
        ages.append(simulation.world.now - started)
        simulation.world.run_for(1)
        assert simulation.markers() == [False]
        assert simulation.produce(producer, 1)[0] == 47
        assert simulation.end(producer) == 48
    assert min(ages) > 3
    assert 8 < max(ages) < 13.2


def test_an_ended_transaction_does_not_time_out() -> None:
    simulation = Simulation()
    producer = simulation.new_producer(timeout_ms=3_000)
    simulation.write(producer)
    assert simulation.end(producer) == 0
    simulation.world.run_for(2)
    simulation.write((producer[0], 1))
    simulation.world.run_for(2)
    assert simulation.state() is TransactionState.ONGOING
    simulation.world.run_for(20)
    assert simulation.state() is TransactionState.COMPLETE_ABORT
    assert simulation.markers() == [True, False]


def test_a_coordinator_moves_with_its_state() -> None:
    simulation = Simulation(brokers=3)
    producer = simulation.new_producer()
    simulation.write(producer)
    former = simulation.coordinators.leader(TRANSACTION, ID)
    assert former is not None
    number = former % 3  # of the next broker: ids start with 1
    move_transaction_coordinators(simulation.cluster, number, 1.0, 2.0, coordinator_partition(ID))
    current = number + 1
    find = {"key": ID, "key_type": 1}

    def codes() -> tuple[int, int, int]:
        found = DirectCalls(simulation.world, simulation.cluster, 1)(messages.FIND_COORDINATOR, 3, find)
        return (
            found.error_code,
            simulation.end(producer, broker_id=former),
            simulation.end(producer, broker_id=current),
        )

    assert codes() == (15, 16, 16)
    simulation.world.run_for(1.5)
    assert codes() == (0, 16, 14)
    assert simulation.produce(producer, 0, partition=1)[0] == 19  # its coordinator still loads
    simulation.world.run_for(2)
    assert simulation.produce(producer, 0, partition=1)[0] == 0
    assert codes() == (0, 16, 0)


def test_a_new_coordinator_writes_the_remaining_markers() -> None:
    simulation = Simulation(brokers=3)
    producer = simulation.new_producer()
    simulation.write(producer, 0, 1)
    assert simulation.end(producer) == 0
    move_transaction_coordinators(simulation.cluster, 0, 1.0, 1.0)
    simulation.world.run_for(1.5)
    assert simulation.markers(0) == []
    simulation.world.run_for(2)
    assert simulation.markers(0) == simulation.markers(1) == [True]


def test_a_coordinator_that_is_down_is_replaced() -> None:
    simulation = Simulation(brokers=3)
    producer = simulation.new_producer()
    former = simulation.coordinators.leader(TRANSACTION, ID)
    assert former is not None
    simulation.cluster.brokers[former].down = True
    assert simulation.coordinators.leader(TRANSACTION, ID) is None
    simulation.cluster.fence(former)
    assert simulation.coordinators.leader(TRANSACTION, ID) not in (None, former)
    simulation.world.run_for(1)
    assert simulation.init(producer) == (0, producer[0], 1)


def test_a_transaction_is_stuck_if_a_request_of_version_2_meets_version_0() -> None:
    simulation = Simulation(transaction_version=0)
    producer = simulation.new_producer()
    assert simulation.produce(producer, 0, version=12)[0] == 35
    assert simulation.add(producer) == 51
    assert simulation.init()[0] == 51
    move_transaction_coordinators(simulation.cluster, 0, 0.0, 0.0)
    assert simulation.init() == (0, producer[0], 1)


def test_coordinators_are_found_by_javas_hash() -> None:
    assert [coordinator_partition(key) for key in ("", "a", "ab", "hello world", "ärger")] == [
        0,
        97 % 4,
        3105 % 4,
        1794106052 % 4,
        (_java_hash("ärger") & 0x7FFFFFFF) % 4,
    ]
    simulation = Simulation(brokers=3)
    leaders = {simulation.coordinators.leader(GROUP, str(number)) for number in range(20)}
    assert leaders == {1, 2, 3}


def _java_hash(text: str) -> int:
    hashed = 0
    for character in text:
        hashed = (hashed * 31 + ord(character)) % 2**32
    return hashed
