"""The timeout of a read, and its error."""

from __future__ import annotations

import pytest
from tests.settings import parse_client_params, task_settings
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.consumer.polling import THREE

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.consumer.fetcher import FetchRetry
from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError


@pytest.fixture
def retry() -> FetchRetry:
    config = task_settings(*parse_client_params({"bootstrap.servers": "broker:9092"}), poll_timeout=30.0)
    return FetchRetry(*config, THREE)


def test_last_error_before_the_timeout_is_reported(retry: FetchRetry) -> None:
    retry.set_last_error(BrokerUnreachableError("the broker is down.", broker="other:9092"))
    retry.raise_if_expired("broker:9092")
    retry.deadline = Deadline.after(0)
    retry.set_last_error(BrokerTimeoutError("the deadline has passed."))
    retry.back_off()  # not beyond the deadline
    with pytest.raises(BrokerTimeoutError, match=r"30 s \(option kafkaConsumer.*the broker is down") as caught:
        retry.raise_if_expired("broker:9092")
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == ("flights", 2, "other:9092")


def test_reset_restarts_the_timeout(retry: FetchRetry) -> None:
    retry.set_last_error(BrokerUnreachableError("the broker is down."))
    retry.deadline = Deadline.after(0)
    with pytest.raises(BrokerTimeoutError, match="the broker is down"):
        retry.raise_if_expired(None)
    retry.reset()
    retry.raise_if_expired(None)


def test_pauses_grow_until_records_arrive() -> None:
    system = FakeTimeSystem()
    config = task_settings(*parse_client_params({"bootstrap.servers": "broker:9092"}), poll_timeout=30.0)
    retry = FetchRetry(*config, THREE, system)

    def pause() -> float:
        start = system.now
        retry.back_off()
        return system.now - start

    first, *_, fourth = [pause() for _ in range(4)]
    assert fourth > 4 * first
    retry.reset()
    assert pause() < 2 * first


def test_a_long_retry_is_logged_once_until_records_arrive(caplog: pytest.LogCaptureFixture) -> None:
    system = FakeTimeSystem()
    config = task_settings(*parse_client_params({"bootstrap.servers": "broker:9092"}), poll_timeout=30.0)
    retry = FetchRetry(*config, THREE, system)

    def fail_for(seconds: float) -> None:
        until = system.now + seconds
        while system.now < until:
            retry.set_last_error(BrokerUnreachableError("the broker is down.", broker="b:1"))
            retry.back_off()

    fail_for(4)
    retry.reset()
    fail_for(4)
    assert caplog.messages == []
    fail_for(10)
    assert len(caplog.messages) == 1
    assert "kafkaConsumer.pollTimeoutMs): the broker is down. [broker b:1]" in caplog.messages[0]
    retry.reset()
    for _ in range(20):
        retry.back_off()  # no records, but no error either
    assert len(caplog.messages) == 1
