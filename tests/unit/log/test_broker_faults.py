"""Logs whose broker is down or does not respond, and whose records are lost, on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.log.log_cluster import LogCluster

from pyspark_kafka_direct.errors import IllegalLogStateError, TruncatedError
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


def test_a_stop_ends_a_request_that_gets_no_response() -> None:
    hour_ms = 3_600_000
    timeouts = dict.fromkeys(("request_timeout_ms", "default_api_timeout_ms", "connect_timeout_ms"), hour_ms)
    errors, outcome = list[BaseException](), list[BaseException]()
    with UnitCluster({TOPIC: 1}, connection=timeouts) as cluster:
        cluster.event("pause_broker", broker=0, seconds=hour_ms)
        log = open_log(cluster, on_error=errors.append)

        def start() -> None:
            with pytest.raises(IllegalLogStateError, match="stopped") as caught:
                log.start()
            outcome.append(caught.value)

        cluster.process.spawn("start", start)
        cluster.sleep(5)
        assert (cluster.open_connections, outcome) == (1, [])
        began = cluster.now
        log.stop(60)
        cluster.sleep(0.1)
        assert len(outcome) == 1
        assert cluster.now - began < 1
        assert errors == []
        pool = cluster.pool
        assert pool.last_failure_time(("broker-1", 9092)) == 0, "the broker had no time to respond"


def test_a_wait_that_is_interrupted_is_no_longer_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with LogCluster(1) as cluster, cluster.log_of() as log:
        with monkeypatch.context() as patch:
            patch.setattr(log._thread, "wait_until_done", interrupt)
            with pytest.raises(KeyboardInterrupt):
                log.wait_for({0: 5})
        assert not log._worker.pending_reads.has_pending
