"""Logs whose broker is down, and whose records are lost, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.errors import TruncatedError
from pyspark_kafka_direct.log import KafkaBasedLog
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings, ProducerSettings

if TYPE_CHECKING:
    from pyspark_kafka_direct.log import LogRecord

TOPIC = "settings"
PARTITION = TopicPartition(TOPIC, 0)


def open_log(cluster: UnitCluster, **options: Any) -> KafkaBasedLog:
    cluster.cluster.topics[TOPIC].configs["cleanup.policy"] = "compact"
    return KafkaBasedLog(TOPIC, LogClients(cluster.client(), FetchSettings(), produce=ProducerSettings()), **options)


def test_a_read_requested_while_the_broker_is_down_completes_later() -> None:
    values: list[bytes | None] = []
    with (
        UnitCluster({TOPIC: 1}) as cluster,
        open_log(cluster, on_record=lambda record: values.append(record.value)) as log,
    ):
        cluster.event("stop_broker", broker=0, seconds=10)
        start = cluster.now
        sent = log.send_with_receipt(b"k", b"v")
        end = log.read_to_end()
        with pytest.raises(TimeoutError):
            end.result(2)
        assert sent.result(20).offset == 0
        end.result(20)
        assert values == [b"v"]
        assert 10 < cluster.now - start < 15


def test_a_truncated_log_is_reset_once() -> None:
    records: list[LogRecord] = []
    resets: list[Any] = []
    with (
        UnitCluster({TOPIC: 1}, brokers=2) as cluster,
        open_log(cluster, on_record=records.append, on_reset=resets.append) as log,
    ):
        cluster.append(PARTITION, 10)
        cluster.append(PARTITION, 20)
        log.read_to_end().result(20)
        cluster.truncate(PARTITION, 10, leader=2)
        cluster.append(PARTITION, 5)
        failures = 0
        while not resets:
            with pytest.raises(TruncatedError):
                log.read_to_end().result(60)
            failures += 1
        assert failures <= 2
        log.read_to_end().result(60)
        assert [(each.topic, each.partition, each.truncated_to) for each in resets] == [(*PARTITION, 10)]
        epoch = cluster.partition(PARTITION).epoch
        lost, found = records[:30], records[30:]
        assert [record.offset for record in lost] == list(range(30))
        assert [(record.offset, record.value) for record in found] == [
            (offset, b"%d-%d" % (epoch, offset)) for offset in range(10, 15)
        ]
