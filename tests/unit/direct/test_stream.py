"""What ``createDirectStream`` refuses before it asks Spark or Kafka for anything."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies, PerPartitionConfig
from pyspark_kafka_direct.errors import OptionError

NO_CONTEXT: Any = None  # is not looked at
STRATEGY = ConsumerStrategies.Subscribe(["flights"], {"bootstrap.servers": "localhost:1"})


@pytest.mark.parametrize("given", ["host", None, {"flights": "host"}])
def test_other_location_strategies_are_refused(given: Any) -> None:
    with pytest.raises(OptionError, match="the location strategy must be"):
        KafkaUtils.createDirectStream(NO_CONTEXT, given, STRATEGY)


@pytest.mark.parametrize("given", [["flights"], None, {"bootstrap.servers": "localhost:1"}])
def test_other_consumer_strategies_are_refused(given: Any) -> None:
    with pytest.raises(OptionError, match=r"the consumer strategy must be ConsumerStrategies\.Subscribe"):
        KafkaUtils.createDirectStream(NO_CONTEXT, LocationStrategies.PreferConsistent, given)


def test_threads_that_are_not_pinned_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them a restart would wait for ever: Spark's lock is held by the JVM's thread that calls us."""
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(OptionError, match="PYSPARK_PIN_THREAD=true"):
        KafkaUtils.createDirectStream(NO_CONTEXT, LocationStrategies.PreferConsistent, STRATEGY)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"perPartitionConfig": 100}, "perPartitionConfig must be an object"),
        ({"perPartitionConfig": PerPartitionConfig}, "perPartitionConfig must be an object"),
        ({"valueDecoder": "utf-8"}, "valueDecoder must be a function"),
    ],
)
def test_what_would_fail_each_batch_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        KafkaUtils.createDirectStream(NO_CONTEXT, LocationStrategies.PreferConsistent, STRATEGY, **arguments)
