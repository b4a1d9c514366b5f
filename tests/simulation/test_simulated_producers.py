"""The package's producers and consumer groups work with the simulated coordinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.simulation.environment import Environment
from tests.simulation.history import Plan
from tests.simulation.scheduler import World

from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.errors import ProducerFencedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.records import RecordEncoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.records import EncodedBatch

TOPIC = "topic"


def run(seed: int, body: Callable[[Environment, Any], None], **settings: Any) -> Environment:
    """Run a function in a simulated process, with a topic of two partitions."""
    world = World(seed)
    plan = Plan("producers", {"brokers": 3, "cluster": settings}, (), quiet_after=100_000.0)
    environment = Environment(world, plan)
    environment.cluster.create_topic(TOPIC, 2)
    process = environment.process("driver")
    task = process.spawn("writer", lambda: body(environment, process))
    world.run([task])
    environment.raise_errors()
    return environment


def batch_of(*values: bytes, partition: int) -> EncodedBatch:
    columns = {
        "value": pa.array(values, pa.binary()),
        "partition": pa.array([partition] * len(values), pa.int32()),
        "timestamp": pa.array([1_700_000_000_000] * len(values), pa.int64()),
    }
    encoder = RecordEncoder(topic=TOPIC, partitions=2, batch_bytes=64 << 20, max_record_bytes=64 << 20)
    (batch,) = (*encoder.add(pa.record_batch(columns)), *encoder.flush())
    return batch


def new_producer(environment: Environment, process: Any) -> TransactionalProducer:
    return TransactionalProducer(environment.client(process), "id", 60_000, ProducerSettings())


def committed(environment: Environment) -> list[list[bytes | None]]:
    """Return the values that read_committed readers must get, by partition."""
    now = environment.world.now
    return [
        [value for _, value in environment.oracle.records((TOPIC, index), 0, 1_000, 1, at=now)] for index in range(2)
    ]


@pytest.mark.parametrize("transaction_version", [2, 0])
@pytest.mark.parametrize("seed", range(5))
def test_transactions_are_committed_or_aborted(seed: int, transaction_version: int) -> None:
    def body(environment: Environment, process: Any) -> None:
        with new_producer(environment, process) as producer:
            producer.init_transactions()
            for number in range(6):
                for index in range(2):
                    producer.send(TOPIC, batch_of(b"%d-%d" % (number, index), partition=index))
                if number % 3 == 2:
                    producer.flush()
                    producer.abort()
                    if transaction_version == 0:
                        producer.init_transactions()  # before KIP-890, an abort ends the use of the epoch
                else:
                    producer.commit()

    environment = run(seed, body, transaction_version=transaction_version, replication_delay=0.05)
    environment.world.run_for(1)
    assert committed(environment) == [[b"%d-%d" % (number, index) for number in (0, 1, 3, 4)] for index in range(2)]


@pytest.mark.parametrize("transaction_version", [2, 0])
def test_a_second_producer_fences_the_first_one(transaction_version: int) -> None:
    def body(environment: Environment, process: Any) -> None:
        first, second = new_producer(environment, process), new_producer(environment, process)
        first.init_transactions()
        first.send(TOPIC, batch_of(b"first", partition=0))
        first.flush()
        second.init_transactions()
        with pytest.raises(ProducerFencedError):
            first.commit()
        second.send(TOPIC, batch_of(b"second", partition=0))
        second.commit()
        first.close()
        second.close()

    environment = run(1, body, transaction_version=transaction_version)
    environment.world.run_for(1)
    assert committed(environment) == [[b"second"], []]


@pytest.mark.parametrize("transaction_version", [2, 0])
def test_offsets_are_committed_with_a_transaction(transaction_version: int) -> None:
    found = []

    def body(environment: Environment, process: Any) -> None:
        group = ConsumerGroup(environment.client(process), "group")
        partition = TopicPartition(TOPIC, 0)
        group.commit({partition: 3})
        found.append(group.committed([partition]))
        with new_producer(environment, process) as producer:
            producer.init_transactions()
            producer.send_offsets_to_transaction(group, {partition: CommittedOffset(5)})
            producer.commit()
        found.append(group.committed([partition]))

    run(1, body, transaction_version=transaction_version)
    assert [list(each.values()) for each in found] == [[3], [5]]
