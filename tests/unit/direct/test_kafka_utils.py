"""The arguments that ``createRDD`` rejects before it sends any request, and topics that seem to be missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from pyspark import SparkConf
from tests.unit.planning.planner_cluster import PlannerCluster

from pyspark_kafka_direct import OptionError, TopicNotFoundError
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.direct import KafkaUtils, LocationStrategies, OffsetRange, kafka_utils
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

T0 = TopicPartition("t", 0)
RANGE = OffsetRange.create("t", 0, 0, 10)
NO_BROKER = {"bootstrap.servers": "127.0.0.1:1"}  # a request would raise BrokerError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kafkaParams": None}, "kafkaParams must be a dict"),
        ({"kafkaParams": lambda: 7}, "kafkaParams must be a dict"),
        ({"kafkaParams": dict}, "bootstrap.servers"),
        ({"offsetRanges": None}, "offsetRanges takes OffsetRange objects, got None"),
        ({"offsetRanges": RANGE}, "offsetRanges takes a list"),
        ({"offsetRanges": [("t", 0, 0, 10)]}, "offsetRanges takes OffsetRange objects"),
        ({"offsetRanges": [RANGE, ("t", 1, 0, 10)]}, "offsetRanges takes OffsetRange objects"),
        ({"locationStrategy": None}, "PreferConsistent"),
        ({"keyDecoder": "utf-8"}, "keyDecoder must be a function"),
        ({"valueDecoder": 1}, "valueDecoder must be a function"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        KafkaUtils.createRDD(**{"sc": None, "kafkaParams": NO_BROKER, "offsetRanges": [RANGE], **arguments})


class _RequestsSentError(Exception):
    """The tasks would be created next."""


class NoContext:
    def getConf(self) -> NoReturn:
        raise _RequestsSentError


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlannerCluster]:
    """A cluster that is used by the pool of the process."""
    with PlannerCluster() as brokers:
        pool = brokers.pool
        monkeypatch.setattr("pyspark_kafka_direct.client.cluster_client.POOL", pool)
        yield brokers


PARAMS = {"bootstrap.servers": "broker-1:9092"}
NO_CONTEXT: Any = NoContext()


def test_a_topic_that_one_broker_does_not_know_is_read(brokers: PlannerCluster) -> None:
    brokers.hide(T0, 10)
    with pytest.raises(_RequestsSentError):
        KafkaUtils.createRDD(NO_CONTEXT, PARAMS, [RANGE])
    assert {each.broker for each in brokers.arrivals("Metadata")} == {1, 2}


@pytest.mark.parametrize("fails", [True, False])
def test_a_missing_partition_is_an_error_or_skipped_by_tasks(
    brokers: PlannerCluster, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    brokers.grow(T0, 10)
    params = {**PARAMS, "failOnDataLoss": str(fails).lower()}
    missing = [OffsetRange.create(topic, 9, 0, 10) for topic in ("t", "absent")]
    with pytest.raises(TopicNotFoundError if fails else _RequestsSentError):
        KafkaUtils.createRDD(NO_CONTEXT, params, [RANGE, *missing])
    warnings = [each.split(":")[0] for each in caplog.messages if "Its tasks skip it" in each]
    assert warnings == ([] if fails else ["absent-9", "t-9"])


@pytest.mark.parametrize(
    ("settings", "argument", "expected"),
    [
        ({}, None, False),
        ({"spark.streaming.kafka.assumeConsecutiveOffsets": "true"}, None, True),
        ({"spark.streaming.kafka.assumeConsecutiveOffsets": "true"}, False, False),
        ({}, True, True),
    ],
)
def test_an_rdd_is_created_with_what_the_brokers_say(
    brokers: PlannerCluster,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    argument: bool | None,
    expected: bool,
) -> None:
    created: list[dict[str, Any]] = []

    def create(sc: object, parameters: object, ranges: object, **arguments: Any) -> str:
        created.append({**arguments, "ranges": ranges})
        return "the RDD"

    monkeypatch.setattr(kafka_utils, "create_kafka_rdd", create)
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    sc: Any = SimpleNamespace(getConf=lambda: conf)
    u0 = TopicPartition("u", 0)
    ranges = [RANGE, OffsetRange.create("u", 0, 0, 7)]
    for tp in (T0, u0):
        brokers.grow(tp, 10)
    hosts = LocationStrategies.PreferFixed({T0: "node-7", u0: "node-8"})
    calls: list[bool] = []

    def kafka_params() -> dict[str, str]:
        calls.append(True)
        return PARAMS

    rdd: Any = KafkaUtils.createRDD(
        sc, kafka_params, ranges, hosts, valueDecoder=str, assumeConsecutiveOffsets=argument
    )
    assert rdd == "the RDD"
    assert calls == [True], "the function may request a secret"
    (arguments,) = created
    assert arguments["ranges"] == ranges
    assert arguments["topic_ids"] == {topic: brokers.topic_id(topic) for topic in ("t", "u")}
    assert arguments["leaders"].keys() == {T0, u0}
    assert [arguments["hosts"][tp] for tp in (T0, u0)] == ["node-7", "node-8"]
    assert (arguments["key_decoder"], arguments["value_decoder"]) == (None, str)
    assert arguments["assume_consecutive"] is expected


def test_brokers_that_contradict_each_other_end_the_call(
    brokers: PlannerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them does not know a topic, and the others do not confirm it."""
    monkeypatch.setattr(ClusterClient, "confirm_missing", lambda *_: set())
    began = brokers.now
    with pytest.raises(KafkaDirectError, match="t-0") as raised:
        KafkaUtils.createRDD(NO_CONTEXT, PARAMS, [RANGE])
    assert type(raised.value) is not TopicNotFoundError
    assert brokers.now - began > 9, "they are asked several times, with pauses"
