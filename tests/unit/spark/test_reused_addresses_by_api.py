"""Each API stays in the cluster that it reached first: a broker of another one at its address is no data loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.producer.encoded_batches import encoded

from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer
from pyspark_kafka_direct.datasource.legacy_micro_batch_stream import LegacyKafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.direct_stream_planner import StreamPosition, plan_direct_batch
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig
from pyspark_kafka_direct.direct.stream_client import StreamClusterView, create_stream_client
from pyspark_kafka_direct.errors import BrokerError
from pyspark_kafka_direct.log import KafkaBasedLog
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import FetchSettings, ProducerSettings
from pyspark_kafka_direct.producer.batch_producer import BatchProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Api = Callable[["ReusedCluster"], Callable[[], object]]

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
BOTH = "belongs to the cluster another-cluster, and this client to simulated-cluster"
BEFORE_KAFKA_4_4: dict[str, Any] = {"newest_versions": {"ApiVersions": 4}}
TIMEOUTS = {"default.api.timeout.ms": "30000", "request.timeout.ms": "4000"}
CONNECTION = {"default_api_timeout_ms": 30_000, "request_timeout_ms": 4_000}


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0


class ReusedCluster(UnitCluster):
    """One broker with two topics; ``close`` ends what an API has open."""

    close: Callable[[], object] | None = None

    def __exit__(self, error: object, *more: object) -> None:
        if self.close is not None:
            self.close()
        super().__exit__(error, *more)


def micro_batches(cluster: ReusedCluster, kind: Any) -> Callable[[], object]:
    source = KafkaSourceProvider(
        {
            "kafka.bootstrap.servers": "broker-1:9092",
            "subscribe": "t,u",
            "startingoffsets": "earliest",
            "failondataloss": "false",
            **{f"kafka.{name}": value for name, value in TIMEOUTS.items()},
        }
    )
    reader = cast("KafkaMicroBatchStream", source.streamReader(source.schema()))
    stream = kind(reader._settings, reader._schema, cluster.client().pool)
    start = stream.initialOffset()
    if kind is LegacyKafkaMicroBatchStream:
        stream.partitions(start, start)
        return lambda: stream.latestOffset()

    def plan() -> object:
        offset = stream.latestOffset(start, stream.getDefaultReadLimit())
        return {topic: offset[topic] for topic in ("t", "u")}

    return plan


def micro_batch_stream(cluster: ReusedCluster) -> Callable[[], object]:
    return micro_batches(cluster, KafkaMicroBatchStream)


def legacy_micro_batch_stream(cluster: ReusedCluster) -> Callable[[], object]:
    return micro_batches(cluster, LegacyKafkaMicroBatchStream)


def direct_stream(cluster: ReusedCluster) -> Callable[[], object]:
    params = {"bootstrap.servers": "broker-1:9092", "failOnDataLoss": "false", **TIMEOUTS}
    strategy = ConsumerStrategies.Subscribe(["t", "u"], params)
    client = create_stream_client(strategy, cluster.client().pool)
    view = StreamClusterView(client, StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0), None)
    ids = {topic: cluster.topic_id(topic) for topic in ("t", "u")}
    return lambda: plan_direct_batch(StreamPosition({T0: 1, U0: 1}, ids), view)


def continuous_query(cluster: ReusedCluster) -> Callable[[], object]:
    starts, ids = {T0: 0, U0: 0}, {tp: cluster.topic_id(tp.topic) for tp in (T0, U0)}
    consumer = PartitionConsumer(cluster.client(), FetchSettings(), starts, topic_ids=ids)
    cluster.close = consumer.close

    def poll() -> object:
        """Write one record, and return the next position of each partition."""
        cluster.append(T0, 1)
        until = cluster.now + 40
        while cluster.now < until:
            consumer.poll(1)
        ends = {tp: cluster.log(tp).end for tp in starts}
        return {tp: ends[tp] - offset for tp, offset in consumer.positions.items()}

    return poll


def sink(cluster: ReusedCluster) -> Callable[[], object]:
    producer = BatchProducer(cluster.client(), ProducerSettings(delivery_timeout_ms=30_000))
    cluster.close = producer.close

    def write() -> object:
        producer.send("t", encoded(0, 0, 3))
        written = sum(each.records for each in producer.flush().values())
        return written % 3

    return write


def log(cluster: ReusedCluster) -> Callable[[], object]:
    cluster.cluster.topics["t"].configs["cleanup.policy"] = "compact"
    offsets: list[int] = []
    opened = KafkaBasedLog(
        "t",
        LogClients(cluster.client(), FetchSettings(), produce=ProducerSettings()),
        on_record=lambda record: offsets.append(record.offset),
    )
    opened.start()
    cluster.close = opened.stop

    def read() -> object:
        opened.read_to_end().result(60)
        return offsets

    return read


ALL = (micro_batch_stream, legacy_micro_batch_stream, direct_stream, continuous_query, sink, log)
WITH_TIMEOUT = (micro_batch_stream, legacy_micro_batch_stream, direct_stream, sink)


@pytest.fixture(params=[{}, BEFORE_KAFKA_4_4], ids=["kafka-4.4", "before"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ReusedCluster]:
    with ReusedCluster({"t": 1, "u": 1}, connection=CONNECTION, **request.param) as cluster:
        for tp, count in ((T0, 5), (U0, 3)):
            cluster.append(tp, count)
        yield cluster


@pytest.mark.parametrize("api", WITH_TIMEOUT)
def test_the_error_names_both_clusters(cluster: ReusedCluster, api: Api) -> None:
    call = api(cluster)
    call()
    cluster.event("reuse_address", broker=0, seconds=1000)
    with pytest.raises(BrokerError, match=BOTH):
        call()
    cluster.heal()


@pytest.mark.parametrize("api", ALL)
def test_nothing_is_lost_when_the_broker_returns(cluster: ReusedCluster, api: Api) -> None:
    call = api(cluster)
    expected = repr(call())
    cluster.event("reuse_address", broker=0, seconds=20)
    assert repr(call()) == expected
