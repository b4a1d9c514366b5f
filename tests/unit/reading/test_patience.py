"""When a read gives up, and what it then says."""

from __future__ import annotations

import pytest
from tests.unit.reading.scripted import OFFSETS

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.reading._patience import Patience
from pyspark_kafka_direct.reading.request import RangeRequest
from pyspark_kafka_direct.settings.client import connection_settings
from pyspark_kafka_direct.wire.deadline import Deadline


@pytest.fixture
def patience() -> Patience:
    settings = connection_settings({"bootstrap.servers": "broker:9092"}).connection
    return Patience(settings, RangeRequest(OFFSETS, ("value",), poll_timeout=30.0))


def test_the_last_trouble_before_the_end_is_told(patience: Patience) -> None:
    patience.note(BrokerUnreachableError("nobody is at home.", broker="other:9092"))
    patience.check("broker:9092")
    patience.deadline = Deadline.after(0)
    patience.note(BrokerTimeoutError("the time is up."))
    patience.pause()  # not beyond the end
    with pytest.raises(BrokerTimeoutError, match=r"30 s \(option kafkaConsumer.*nobody is at home") as caught:
        patience.check("broker:9092")
    assert (caught.value.topic, caught.value.partition, caught.value.broker) == ("flights", 3, "other:9092")


def test_progress_makes_patience_new(patience: Patience) -> None:
    patience.note(BrokerUnreachableError("nobody is at home."))
    patience.deadline = Deadline.after(0)
    with pytest.raises(BrokerTimeoutError, match="nobody is at home"):
        patience.check(None)
    patience.renew()
    patience.check(None)
