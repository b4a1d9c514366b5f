"""The access of a stream planner to a cluster, also if its brokers disagree."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import SparkFiles
from tests.simulation.cluster.groups import CommittedOffset, GroupCoordinator
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.client.fake_broker import PARTITION, TOPIC, FakeBroker

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.errors import AuthorizationError, BrokerUnreachableError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.planning.loss_errors import DataLossCause, SkippedLoss
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME
from pyspark_kafka_direct.spark.loss_counts import MalformedTotal, load_totals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

import pytest

LOG = logging.getLogger("pyspark_kafka_direct.datasource")


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    with FakeBroker() as one, FakeBroker() as two:
        one.leaders = two.leaders = [(1, one), (2, two)]
        yield [one, two]
    POOL.clear()


def test_a_retry_uses_another_broker(brokers: list[FakeBroker]) -> None:
    """A broker with stale metadata would return the same response each time, and three of them count as confirmed."""
    settings = brokers[0].settings
    servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    options = parse_stream_options(
        {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "fetchoffset.retryintervalms": "0"}
    )
    offset_reader = KafkaOffsetReader(replace(options, connection=settings), LOG)
    offset_reader.assigned(strict=False)
    before = [broker.request_counts["Metadata"] for broker in brokers]
    for _ in range(2):
        offset_reader.assigned(strict=False)
        offset_reader.wait()
    assert [broker.request_counts["Metadata"] for broker in brokers] == [count + 1 for count in before]


def test_end_offsets_follow_the_isolation_level(brokers: list[FakeBroker]) -> None:
    broker = brokers[0]
    broker.leaders, broker.stable = [(1, broker)], 40
    options = parse_stream_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
    fetch = FetchSettings(isolation_level="read_committed")
    offset_reader = KafkaOffsetReader(replace(options, connection=broker.settings, fetch=fetch), LOG)
    assert offset_reader.offsets({PARTITION: LATEST}) == {PARTITION: 40}
    assert offset_reader.high_watermarks([PARTITION]) == {PARTITION: 42}
    assert broker.connections == 1


def pattern_reader(broker: FakeBroker, pattern: str) -> KafkaOffsetReader:
    options = parse_stream_options(
        {"kafka.bootstrap.servers": "broker:9092", "subscribePattern": pattern, "fetchoffset.numretries": "3"}
    )
    return KafkaOffsetReader(replace(options, connection=broker.settings), LOG)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        999,
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_an_error_of_a_topic_that_the_pattern_does_not_select_is_ignored(
    brokers: list[FakeBroker], code: int, strict: bool
) -> None:
    for broker in brokers:
        broker.failing_topics = [("orders", code, False), ("__flights", code, True)]
    offset_reader = pattern_reader(brokers[0], "flights")
    assert offset_reader.assigned(strict=strict).partitions == {PARTITION}
    assert sum(broker.request_counts["Metadata"] for broker in brokers) == 1, "nothing is retried"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.LEADER_NOT_AVAILABLE, BrokerUnreachableError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    ],
)
def test_an_error_of_a_selected_topic_is_not_taken_for_its_absence(
    brokers: list[FakeBroker], code: int, error: type[Exception]
) -> None:
    brokers[0].failing_topics = brokers[1].failing_topics = [("flights-2", code, False)]
    with pytest.raises(error, match="flights-2"):
        pattern_reader(brokers[0], "flights").assigned(strict=False)
    brokers[0].failing_topics = brokers[1].failing_topics = []
    assert pattern_reader(brokers[0], "flights").assigned(strict=False).partitions == {PARTITION}


def test_an_error_of_a_named_topic_is_not_taken_for_its_absence(brokers: list[FakeBroker]) -> None:
    """A topic is created between two responses: the first does not contain it, the second has no leader of it."""
    for broker in brokers:
        broker.failing_topics = [("new", ErrorCode.LEADER_NOT_AVAILABLE, False)]
    options = parse_stream_options(
        {"kafka.bootstrap.servers": "broker:9092", "subscribe": f"{TOPIC},new", "fetchoffset.numretries": "3"}
    )
    offset_reader = KafkaOffsetReader(replace(options, connection=brokers[0].settings), LOG)
    with pytest.raises(BrokerUnreachableError, match="new"):
        offset_reader.assigned(strict=True)


def test_equal_losses_are_logged_once_and_each_is_counted(
    brokers: list[FakeBroker], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may be truncated between the same offsets again; the planner reports each loss once."""
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    folder = tmp_path / SHARED_FOLDER_NAME
    folder.mkdir()
    options = parse_stream_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
    offset_reader = KafkaOffsetReader(replace(options, connection=brokers[0].settings), LOG)
    for partitions in ([0], [0], [0, 1]):
        offsets = {TopicPartition(TOPIC, partition): 5 for partition in partitions}
        offset_reader.report_loss(SkippedLoss("lost", DataLossCause.AGED_OUT, offsets))
    assert caplog.messages == ["lost"]
    assert [(loss.partition, loss.offsets) for loss in load_totals(folder).losses] == [(0, 15), (1, 5)]


def test_a_planner_remembers_a_limited_number_of_warnings(
    brokers: list[FakeBroker], caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of losses contain offsets. A query that skips losses for weeks logs millions of them."""
    options = parse_stream_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
    offset_reader = KafkaOffsetReader(replace(options, connection=brokers[0].settings), LOG)
    messages = [f"offsets [{number}, {number + 1}) were removed" for number in range(1001)]
    for message in [*messages, *messages[1:], messages[0]]:
        offset_reader.warn(message)
    assert caplog.messages == [*messages, messages[0]]


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({"t": 3, "u": 1}, brokers=2) as cluster:
        yield cluster


def reader_of(cluster: UnitCluster, **options: str) -> KafkaOffsetReader:
    parsed = parse_stream_options({"kafka.bootstrap.servers": "broker-1:9092", "subscribe": "t", **options})
    return KafkaOffsetReader(parsed, LOG, cluster.environment.pool(cluster.process))


def test_the_size_of_records_is_sampled_as_far_as_brokers_respond(
    cluster: UnitCluster, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = [TopicPartition("t", number) for number in range(3)]
    for tp in partitions[:2]:
        cluster.append(tp, 10, size=1000)
    cluster.append(partitions[2], 10)
    reader = reader_of(cluster)
    reader.assigned(strict=True)
    assert reader.leaders(partitions).keys() == set(partitions)
    before = cluster.sent("Metadata")
    found = reader.samples({partitions[0]: 0, partitions[1]: 10, partitions[2]: 0})
    assert list(found) == [partitions[0], partitions[2]], "there is nothing at the end"
    assert [(each.offsets, each.size > 10_000) for each in found.values()] == [(10, True), (10, False)]
    assert cluster.sent("Metadata") == before, "the leaders are known"
    caplog.set_level(logging.INFO)
    cluster.every("Fetch", "stall_request")
    assert reader.samples({partitions[0]: 0}) == {}
    assert "cannot sample the record size of t-0" in caplog.text


def test_the_start_is_read_from_the_group(cluster: UnitCluster) -> None:
    first, other = TopicPartition("t", 0), TopicPartition("t", 1)
    assert reader_of(cluster).committed([first]) == {}
    assert cluster.sent("FindCoordinator") == 0
    group = GroupCoordinator.of(cluster.cluster)
    group.set_members("g", False)  # creates the group
    group.commit("g", first, CommittedOffset(5, -1, "", cluster.topic_id("t"), 0))
    reader = reader_of(cluster, startingOffsets="committed", **{"kafka.group.id": "g"})
    assert reader.committed([first, other]) == {first: 5}


def test_partitions_that_exist_and_are_no_longer_selected(
    cluster: UnitCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It only decides which message a data loss has, so an error is no reason to fail."""
    left, deleted = TopicPartition("u", 0), TopicPartition("t", 7)
    options = {"fetchOffset.numRetries": "1", "kafka.default.api.timeout.ms": "3000"}
    reader = reader_of(cluster, **options)
    assert reader.not_selected([left, deleted, TopicPartition("t", 0)]) == {left}
    caplog.set_level(logging.INFO)
    cluster.every("Metadata", "stall_request")
    assert reader.not_selected([left]) == set()
    assert "cannot check whether missing partitions still exist" in caplog.text


def test_malformed_records_are_counted(
    brokers: list[FakeBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    folder = tmp_path / SHARED_FOLDER_NAME
    folder.mkdir()
    options = parse_stream_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": TOPIC})
    offset_reader = KafkaOffsetReader(replace(options, connection=brokers[0].settings), LOG)
    for _ in range(2):
        offset_reader.count_malformed("PERMISSIVE", {PARTITION: 3}, {PARTITION: 2})
    assert load_totals(folder).malformed == (MalformedTotal(TOPIC, 0, "PERMISSIVE", 6, 4),)


def test_a_pattern_that_matches_no_topic_is_logged_once(
    brokers: list[FakeBroker], caplog: pytest.LogCaptureFixture
) -> None:
    offset_reader = pattern_reader(brokers[0], "nothing.*")
    for _ in range(2):
        assert offset_reader.assigned(strict=False).partitions == frozenset()
    assert caplog.messages == ["subscribePattern='nothing.*' matches none of 1 topics"]
