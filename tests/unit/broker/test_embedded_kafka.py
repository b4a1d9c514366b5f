"""Options that are rejected before anything starts."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import BrokerError, OptionError


def test_one_broker_or_three() -> None:
    with pytest.raises(OptionError, match="brokers is 2"):
        EmbeddedKafka(2)


def test_a_version_without_checksums_needs_consent() -> None:
    with pytest.raises(OptionError, match=r"only the jars of 3\.9\.2 and 4\.4\.0 can be verified.*verify_jars=False"):
        EmbeddedKafka(version="3.8.0")
    EmbeddedKafka(version="3.8.0", verify_jars=False)


def test_a_cluster_that_was_not_started_has_no_servers() -> None:
    with pytest.raises(BrokerError, match="not running"):
        _ = EmbeddedKafka().bootstrap_servers


def test_the_environment_names_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable may name a production cluster, and a test would write to it."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "production:9092")
    kafka = EmbeddedKafka()
    with pytest.raises(BrokerError, match="not running"):
        _ = kafka.bootstrap_servers


def test_an_external_cluster_is_used() -> None:
    with EmbeddedKafka(external="somewhere:9092") as kafka:
        assert kafka.bootstrap_servers == "somewhere:9092"
        assert kafka.listener("PLAINTEXT") == "somewhere:9092"
        with pytest.raises(BrokerError, match="needs an embedded cluster, but external is 'somewhere:9092'"):
            kafka.kill_broker(1)


def test_an_external_cluster_cannot_be_configured() -> None:
    with pytest.raises(OptionError, match="brokers, security cannot be set for the external cluster 'somewhere:9092'"):
        EmbeddedKafka(3, security=["SSL"], external="somewhere:9092")
