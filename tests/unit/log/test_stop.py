"""A log is stopped while a broker does not respond."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace

import pytest
from tests.unit.client.fake_broker import TOPIC, FakeBroker

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.errors import IllegalLogStateError, KafkaDirectError
from pyspark_kafka_direct.log import KafkaBasedLog
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.options.settings import FetchSettings

PARAMS = {"bootstrap.servers": "127.0.0.1:1"}

HOUR_MS = 3_600_000  # a request that the stop does not end takes longer than the test may


def test_a_stop_ends_a_request_that_gets_no_response() -> None:
    errors: list[KafkaDirectError] = []
    outcome: list[BaseException] = []
    with FakeBroker() as broker, contextlib.closing(ConnectionPool()) as pool:
        broker.frozen = True
        settings = replace(
            broker.settings, request_timeout_ms=HOUR_MS, default_api_timeout_ms=HOUR_MS, connect_timeout_ms=HOUR_MS
        )
        cluster = ClusterClient(settings, pool=pool)
        log = KafkaBasedLog(TOPIC, LogClients(cluster, FetchSettings()), on_error=errors.append)

        def start() -> None:
            with pytest.raises(IllegalLogStateError, match="stopped") as caught:
                log.start()
            outcome.append(caught.value)

        starter = threading.Thread(target=start)
        starter.start()
        ends_at = time.monotonic() + 120
        while not broker.connections and time.monotonic() < ends_at:
            time.sleep(0.01)
        log.stop()
        starter.join(120)
        assert len(outcome) == 1
        assert log._thread._end is not None
        assert log._thread._end.done()
        assert errors == []
        assert pool.last_failure_time(("127.0.0.1", broker.port)) == 0, "the broker had no time to respond"


def test_a_wait_that_is_interrupted_is_no_longer_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    log = KafkaBasedLog("t", PARAMS, read_only=True)
    log._thread.state, log._thread._is_running = "started", True

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(log._thread, "wait_until_done", interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.wait_for({0: 5})
    assert not log._worker.pending_reads.has_pending
