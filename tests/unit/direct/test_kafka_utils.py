"""The arguments that ``createRDD`` rejects before it sends any request, and topics that seem to be missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from pyspark import SparkConf
from tests.unit.client.fake_broker import PARTITION, TOPIC, TOPIC_ID, FakeBroker

from pyspark_kafka_direct import OptionError, TopicNotFoundError
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.direct import KafkaUtils, LocationStrategies, OffsetRange, kafka_utils
from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pyspark_kafka_direct.offsets import TopicPartition

RANGE = OffsetRange.create("t", 0, 0, 10)
RANGE_0 = OffsetRange.create(TOPIC, 0, 0, 10)
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


def test_a_topic_that_one_broker_does_not_know_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOL, "rotation", 0.0)  # the broker that lags is asked first
    with FakeBroker() as lagging, FakeBroker() as broker:
        for each in (lagging, broker):
            each.leaders = [(1, lagging), (2, broker)]
        lagging.topic_error = lambda: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        params = {"bootstrap.servers": lagging.settings.bootstrap_string}
        context: Any = NoContext()
        try:
            with pytest.raises(_RequestsSentError):
                KafkaUtils.createRDD(context, params, [OffsetRange.create(TOPIC, 0, 0, 10)])
        finally:
            POOL.clear()
        assert lagging.request_counts["Metadata"] >= 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_missing_partition_is_an_error_or_skipped_by_tasks(caplog: pytest.LogCaptureFixture, fails: bool) -> None:
    with FakeBroker() as broker:
        params = {"bootstrap.servers": broker.settings.bootstrap_string, "failOnDataLoss": str(fails).lower()}
        context: Any = NoContext()
        try:
            with pytest.raises(TopicNotFoundError if fails else _RequestsSentError):
                KafkaUtils.createRDD(context, params, [RANGE_0, OffsetRange.create(TOPIC, 9, 0, 10)])
        finally:
            POOL.clear()
        assert ("Its tasks skip it" in caplog.text) is not fails
        assert f"{TOPIC}-9" in caplog.text or fails


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
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], argument: bool | None, expected: bool
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
    with FakeBroker() as broker:
        hosts = LocationStrategies.PreferFixed({PARTITION: "node-7"})
        params = {"bootstrap.servers": broker.settings.bootstrap_string}
        rdd: Any = KafkaUtils.createRDD(
            sc, lambda: params, [RANGE_0], hosts, valueDecoder=str, assumeConsecutiveOffsets=argument
        )
    POOL.clear()
    assert rdd == "the RDD"
    (arguments,) = created
    assert arguments["ranges"] == [RANGE_0]
    assert arguments["topic_ids"] == {TOPIC: TOPIC_ID}
    assert arguments["leaders"].keys() == {PARTITION}
    assert arguments["hosts"][PARTITION] == "node-7"
    assert (arguments["key_decoder"], arguments["value_decoder"]) == (None, str)
    assert arguments["assume_consecutive"] is expected


def test_brokers_that_contradict_each_other_end_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them does not know a topic, and the others do not confirm it."""
    confirmed: list[object] = []

    def confirm_missing(_: object, suspects: object) -> set[TopicPartition]:
        confirmed.append(suspects)
        return set()

    monkeypatch.setattr(ClusterClient, "confirm_missing", confirm_missing)
    context: Any = NoContext()
    with FakeBroker() as broker:
        broker.topic_error = lambda: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        params = {"bootstrap.servers": broker.settings.bootstrap_string}
        with pytest.raises(KafkaDirectError, match=TOPIC) as raised:
            KafkaUtils.createRDD(context, params, [RANGE_0])
    POOL.clear()
    assert type(raised.value) is not TopicNotFoundError
    assert len(confirmed) > 1
