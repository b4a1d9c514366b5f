"""Past 32,767 epochs: the producer id of a continuous query's task runs out of epochs, and it goes on with another.

python -m tests.soak.producer_epochs        # half a minute
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.continuous.by_hand import Driver, published
from tests.integration.deliveries import cluster_of

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.wire.transactions import Transactions

_NEARLY_OUT = 32_760
_EPOCHS = 12


def main() -> None:
    """See the top of the file."""
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        servers = kafka.bootstrap_servers
        topics = [NewTopic(name, 2, 1) for name in ("source", "output")]
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics(topics).values():
            made.result(60)

        def driver() -> Driver:
            return Driver(servers, Path(folder), "source", "output", prefix="soak").start()

        first = driver()
        first.run_epoch(1)
        session = first.sinks[0]._session
        before = session.producer
        assert before is not None
        producer = before
        transactions = Transactions(cluster_of(servers), session.transactional_id)
        while producer.epoch < _NEARLY_OUT:
            producer = transactions.end(producer, commit=False, bumps_epochs=True)
        session.adopt(producer, begun=False)
        for _ in range(_EPOCHS):
            first.run_epoch(1)
        assert session.producer is not None
        assert session.producer.id != before.id
        assert session.producer.epoch < _EPOCHS
        assert published(servers, "output") == [1 + _EPOCHS] * 2
        first.write(0, 4)
        first.end(0)
        second = driver()
        assert list(second.positions.values()) == [5 + _EPOCHS, 1 + _EPOCHS]
        second.run_epoch(1)
        assert published(servers, "output") == [6 + _EPOCHS, 2 + _EPOCHS]
        print(f"producer id {before.id} ran out of epochs, {session.producer.id} goes on: all once")
        first.close()
        second.close()


if __name__ == "__main__":
    main()
