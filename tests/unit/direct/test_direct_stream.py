"""The arguments that ``createDirectStream`` rejects before it calls Spark or Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies, PerPartitionConfig
from pyspark_kafka_direct.errors import OptionError

NO_CONTEXT: Any = None  # not used
STRATEGY = ConsumerStrategies.Subscribe(["flights"], {"bootstrap.servers": "localhost:1"})


@pytest.mark.parametrize("strategy", ["host", None, {"flights": "host"}])
def test_invalid_location_strategies_are_rejected(strategy: Any) -> None:
    with pytest.raises(OptionError, match="the location strategy must be"):
        KafkaUtils.createDirectStream(NO_CONTEXT, strategy, STRATEGY)


@pytest.mark.parametrize("strategy", [["flights"], None, {"bootstrap.servers": "localhost:1"}])
def test_invalid_consumer_strategies_are_rejected(strategy: Any) -> None:
    with pytest.raises(OptionError, match=r"the consumer strategy must be ConsumerStrategies\.Subscribe"):
        KafkaUtils.createDirectStream(NO_CONTEXT, LocationStrategies.PreferConsistent, strategy)


def test_threads_that_are_not_pinned_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pinned threads a restart would deadlock: the JVM thread that calls Python holds Spark's lock."""
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(OptionError, match="PYSPARK_PIN_THREAD=true"):
        KafkaUtils.createDirectStream(NO_CONTEXT, LocationStrategies.PreferConsistent, STRATEGY)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"perPartitionConfig": 100}, "perPartitionConfig must be an instance"),
        ({"perPartitionConfig": PerPartitionConfig}, "perPartitionConfig must be an instance"),
        ({"valueDecoder": "utf-8"}, "valueDecoder must be a function"),
    ],
)
def test_arguments_that_would_fail_each_batch_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        KafkaUtils.createDirectStream(NO_CONTEXT, LocationStrategies.PreferConsistent, STRATEGY, **arguments)
