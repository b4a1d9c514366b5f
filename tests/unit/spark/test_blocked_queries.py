"""Every kind of ``read_committed`` query says why it does not read the records behind an open transaction."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.consumer.batch_query import plan_batch_query
from pyspark_kafka_direct.datasource.legacy_micro_batch_stream import LegacyKafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.direct import ConsumerStrategies, LocationStrategies
from pyspark_kafka_direct.direct.checkpoint_data import StreamSpec
from pyspark_kafka_direct.direct.rate_controller import PerPartitionConfig
from pyspark_kafka_direct.direct.stream_client import StreamClusterView, create_stream_client
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.read_options import parse_batch_options
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
WHY = "by producer id 7 (epoch 0): 501 offsets from 10 on cannot be read yet"


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    """Two topics: ten records, a transaction that stays open, and 500 more; and one with five records."""
    with UnitCluster({"t": 1, "u": 1}) as cluster:
        cluster.append(T0, 10)
        cluster.append(T0, 1, producer_id=7)
        cluster.append(T0, 500)
        cluster.append(U0, 5)
        yield cluster


def source_options(cluster: UnitCluster, level: str, **options: Any) -> dict[str, str]:
    broker = cluster.cluster.brokers[1]
    others = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    servers = f"{broker.host}:{broker.port}"
    return {"kafka.bootstrap.servers": servers, "subscribe": "t,u", "kafka.isolation.level": level, **others}


def pool_of(cluster: UnitCluster) -> ConnectionPool:
    return cluster.client().pool


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 15),
        ({"startingoffsets": {"t": {"0": 10}, "u": {"0": 5}}}, 0),
        ({"endingoffsets": {"t": {"0": -1}, "u": {"0": 3}}}, 13),
        ({"endingtimestamp": "9000000000000"}, 15),
    ],
)
def test_a_batch_that_ends_before_an_open_transaction(cluster: UnitCluster, options: Any, count: int) -> None:
    parsed = parse_batch_options(source_options(cluster, "read_committed", **options))
    planned = plan_batch_query(parsed, pool=pool_of(cluster)).plan
    assert sum(each.count() for each in planned.ranges) == count
    (warning,) = planned.warnings
    assert "t-0 is blocked since 20" in warning
    assert WHY in warning
    assert "u-0" not in warning


@pytest.mark.parametrize(
    ("level", "options"),
    [
        ("read_uncommitted", {}),
        ("read_committed", {"subscribe": "u"}),
        ("read_committed", {"endingoffsets": {"t": {"0": 10}, "u": {"0": -1}}}),
        ("read_committed", {"endingoffsets": {"t": {"0": 3}, "u": {"0": 4}}}),
        ("read_committed", {"endingtimestamp": "0"}),
    ],
)
def test_other_batches_have_no_warning(cluster: UnitCluster, level: str, options: Any) -> None:
    parsed = parse_batch_options(source_options(cluster, level, **options))
    assert plan_batch_query(parsed, pool=pool_of(cluster)).plan.warnings == ()
    assert cluster.sent("DescribeProducers") == 0


def test_available_now_says_why_it_reads_nothing(cluster: UnitCluster, caplog: pytest.LogCaptureFixture) -> None:
    stream = new_stream(KafkaMicroBatchStream, cluster)
    start = {"t": {"0": 10}, "u": {"0": 5}}
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == start
    assert stream.reportLatestOffset() == start, "the last stable offsets, as with the JVM connector"
    (message,) = messages(caplog)
    assert WHY in message


def test_a_stream_of_spark_4_0_says_why_it_reads_nothing(
    cluster: UnitCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """These versions run ``Trigger.AvailableNow`` as one batch that looks like any other."""
    stream = new_stream(LegacyKafkaMicroBatchStream, cluster)
    start = {"t": {"0": 10}, "u": {"0": 5}}
    stream.partitions(start, start)
    assert stream.latestOffset() == start
    (message,) = messages(caplog)
    assert WHY in message


def test_a_stream_says_it_once_for_each_transaction(cluster: UnitCluster, caplog: pytest.LogCaptureFixture) -> None:
    stream = new_stream(KafkaMicroBatchStream, cluster)
    offset = stream.initialOffset()

    def run_for(seconds: float) -> None:
        nonlocal offset
        until = cluster.now + seconds
        while cluster.now < until:
            offset = stream.latestOffset(offset, stream.getDefaultReadLimit())
            cluster.append(U0, 1)
            cluster.sleep(0.5)

    run_for(30)
    assert offset["t"] == {"0": 10}
    assert offset["u"]["0"] > 50, "the other topic is read"
    assert len(messages(caplog)) == 1
    cluster.end_transaction(T0, 7, commit=False)
    run_for(30)
    assert offset["t"] == {"0": 512}
    cluster.append(T0, 1, producer_id=8)
    run_for(30)
    first, second = messages(caplog)
    assert WHY in first
    assert "by producer id 8 (epoch 0): 1 offsets from 512 on" in second


def test_read_uncommitted_requests_nothing_more(cluster: UnitCluster, caplog: pytest.LogCaptureFixture) -> None:
    options = KafkaSourceProvider(source_options(cluster, "read_uncommitted"))
    stream = cast("KafkaMicroBatchStream", options.streamReader(options.schema()))
    reader = KafkaOffsetReader(stream._settings, logging.getLogger("planner"), pool_of(cluster))
    assert reader.offsets({T0: -1, U0: -1}) == {T0: 511, U0: 5}
    assert len(cluster.received("ListOffsets")) == 1
    assert messages(caplog) == []


class NoLimits(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: TopicPartition) -> float:  # noqa: N803
        return 0


def test_a_direct_stream_says_it_once(cluster: UnitCluster, caplog: pytest.LogCaptureFixture) -> None:
    broker = cluster.cluster.brokers[1]
    params = {"bootstrap.servers": f"{broker.host}:{broker.port}", "isolation.level": "read_committed"}
    strategy = ConsumerStrategies.Subscribe(["t", "u"], params)
    client = create_stream_client(strategy, pool_of(cluster))
    spec = StreamSpec(strategy, LocationStrategies.PreferConsistent, NoLimits(), 1.0)
    for _ in range(60):  # there is a view for each batch
        assert StreamClusterView(client, spec, None).latest([T0, U0]) == {T0: 10, U0: 5}
        cluster.sleep(1)
    (message,) = messages(caplog)
    assert WHY in message


def new_stream(kind: type[Any], cluster: UnitCluster) -> Any:
    options = source_options(cluster, "read_committed", startingoffsets="earliest")
    source = KafkaSourceProvider(options)
    stream = cast("KafkaMicroBatchStream", source.streamReader(source.schema()))
    return kind(stream._settings, stream._schema, pool_of(cluster))


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "is blocked since" in record.getMessage()]
