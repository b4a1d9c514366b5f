"""Run past 32,767 epochs: when the epochs of a task's producer id are used up, the query continues with another id.

python -m tests.soak.producer_epochs        # half a minute
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.continuous.exactly_once_driver import ExactlyOnceDriver, committed_counts
from tests.integration.transactional_batches import cluster_of

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient

_NEARLY_EXHAUSTED = 32_760
_EPOCHS = 12


def main() -> None:
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        servers = kafka.bootstrap_servers
        topics = [NewTopic(name, 2, 1) for name in ("source", "output")]
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics(topics).values():
            created.result(60)

        def driver() -> ExactlyOnceDriver:
            return ExactlyOnceDriver(servers, Path(folder), "source", "output", prefix="soak").start()

        first = driver()
        first.run_epoch(1)
        writer_producer = first.sinks[0]._producer
        before = writer_producer.producer_id_and_epoch
        assert before is not None
        producer = before
        coordinator = TransactionCoordinatorClient(cluster_of(servers), writer_producer.transactional_id)
        while producer.epoch < _NEARLY_EXHAUSTED:
            producer = coordinator.end_transaction(producer, commit=False, transaction_v2=True).producer
        writer_producer.resume_transaction(producer, in_progress=False)
        for _ in range(_EPOCHS):
            first.run_epoch(1)
        assert writer_producer.producer_id_and_epoch is not None
        assert writer_producer.producer_id_and_epoch.id != before.id
        assert writer_producer.producer_id_and_epoch.epoch < _EPOCHS
        assert committed_counts(servers, "output") == [1 + _EPOCHS] * 2
        first.write(0, 4)
        first.end(0)
        second = driver()
        assert list(second.positions.values()) == [5 + _EPOCHS, 1 + _EPOCHS]
        second.run_epoch(1)
        assert committed_counts(servers, "output") == [6 + _EPOCHS, 2 + _EPOCHS]
        print(
            f"producer id {before.id} ran out of epochs, {writer_producer.producer_id_and_epoch.id} continues: "
            "each record once"
        )
        first.close()
        second.close()


if __name__ == "__main__":
    main()
