"""Options that are rejected before anything starts."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import BrokerError, OptionError

RUNNING = "KAFKA_BOOTSTRAP_SERVERS"


def test_one_broker_or_three() -> None:
    with pytest.raises(OptionError, match="brokers is 2"):
        EmbeddedKafka(2)


def test_a_cluster_that_was_not_started_has_no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUNNING, raising=False)
    with pytest.raises(BrokerError, match="not running"):
        _ = EmbeddedKafka().bootstrap_servers


def test_a_running_cluster_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNNING, "somewhere:9092")
    with EmbeddedKafka() as kafka:
        assert kafka.bootstrap_servers == "somewhere:9092"
        assert kafka.listener("PLAINTEXT") == "somewhere:9092"
        with pytest.raises(BrokerError, match="kill_broker needs an embedded cluster"):
            kafka.kill_broker(1)


def test_a_running_cluster_cannot_be_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNNING, "somewhere:9092")
    with pytest.raises(OptionError, match="brokers, security cannot be set for the running cluster"):
        EmbeddedKafka(3, security=["SSL"])
    EmbeddedKafka(3, security=["SSL"], reuse_running=False)
