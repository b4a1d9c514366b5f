"""The access of a stream planner to a cluster, also if its brokers disagree."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark import SparkFiles
from tests.simulation.cluster.groups import CommittedOffset, GroupCoordinator
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.consumer.query_metadata import fetch_end_offsets
from pyspark_kafka_direct.errors import AuthorizationError, BrokerUnreachableError
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options.read_options import parse_stream_options
from pyspark_kafka_direct.planning.loss_errors import DataLossCause, SkippedLoss
from pyspark_kafka_direct.protocol.error_codes import ErrorCode
from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader
from pyspark_kafka_direct.spark.listener_files import SHARED_FOLDER_NAME
from pyspark_kafka_direct.spark.loss_counts import MalformedTotal, load_totals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

import pytest

T0 = TopicPartition("t", 0)
LOG = logging.getLogger("pyspark_kafka_direct.datasource")


@pytest.fixture
def cluster() -> Iterator[UnitCluster]:
    with UnitCluster({"t": 3, "u": 1, "v": 1}, brokers=2) as cluster:
        yield cluster


def reader_of(cluster: UnitCluster, **options: str) -> KafkaOffsetReader:
    subscribed = {} if "subscribePattern" in options else {"subscribe": "t"}
    parsed = parse_stream_options({"kafka.bootstrap.servers": "broker-1:9092", **subscribed, **options})
    return KafkaOffsetReader(parsed, LOG, cluster.pool)


def pattern_reader(cluster: UnitCluster, pattern: str) -> KafkaOffsetReader:
    return reader_of(cluster, subscribePattern=pattern, **{"fetchoffset.numretries": "3"})


def test_a_retry_uses_another_broker(cluster: UnitCluster) -> None:
    """A broker with stale metadata would return the same response each time, and three of them count as confirmed."""
    reader = reader_of(cluster, **{"fetchoffset.retryintervalms": "0"})
    reader.assigned(strict=False)
    before = len(cluster.arrivals("Metadata"))
    for _ in range(2):
        reader.assigned(strict=False)
        reader.wait()
    assert sorted(each.broker for each in cluster.arrivals("Metadata")[before:]) == [1, 2]


def test_end_offsets_follow_the_isolation_level(cluster: UnitCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.append(T0, 40)
    cluster.append(T0, 2, producer_id=7)
    for level, end in (("read_committed", 40), ("read_uncommitted", 42)):
        options = {"kafka.isolation.level": level}
        reader = reader_of(cluster, **options)
        assert reader.offsets({T0: LATEST}) == {T0: end}
        assert reader.high_watermarks([T0]) == {T0: 42}
        pool = cluster.pool
        monkeypatch.setattr("pyspark_kafka_direct.client.cluster_client.POOL", pool)
        options |= {"kafka.bootstrap.servers": "broker-1:9092", "subscribe": "t"}
        assert fetch_end_offsets(options, [T0]) == {T0: 42}, "where the log ends, for the listener"


@pytest.mark.parametrize("code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_TOPIC_EXCEPTION, 999])
@pytest.mark.parametrize("strict", [True, False])
def test_an_error_of_a_topic_that_the_pattern_does_not_select_is_ignored(
    cluster: UnitCluster, code: int, strict: bool
) -> None:
    cluster.event("deny_topic", topic="u", seconds=1000, error_code=code)
    reader = pattern_reader(cluster, "t")
    assert reader.assigned(strict=strict).partitions == {TopicPartition("t", number) for number in range(3)}
    assert cluster.sent("Metadata") == 1, "nothing is retried"


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        ({"subscribePattern": "[tu]"}, ErrorCode.LEADER_NOT_AVAILABLE, BrokerUnreachableError),
        ({"subscribePattern": "[tu]"}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, AuthorizationError),
        ({"subscribe": "t,u"}, ErrorCode.LEADER_NOT_AVAILABLE, BrokerUnreachableError),
        ({"subscribe": "t,u"}, ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    ],
)
def test_an_error_of_a_selected_topic_is_not_taken_for_its_absence(
    cluster: UnitCluster, options: dict[str, str], code: int, error: type[Exception]
) -> None:
    cluster.event("deny_topic", topic="u", seconds=1000, error_code=code)
    reader = reader_of(cluster, **options, **{"fetchoffset.numretries": "3"})
    with pytest.raises(error, match="u"):
        reader.assigned(strict=False)
    cluster.heal()
    assigned = reader.assigned(strict=False)
    assert TopicPartition("u", 0) in assigned.partitions
    assert assigned.described_partitions >= 4


def test_offsets_of_missing_partitions_are_left_out(cluster: UnitCluster) -> None:
    """A topic may be deleted after its metadata was requested."""
    u0, missing = TopicPartition("u", 0), (TopicPartition("t", 9), TopicPartition("deleted", 0))
    reader = reader_of(cluster, **{"fetchoffset.numretries": "1"})
    assert reader.offsets(dict.fromkeys((T0, u0, *missing), LATEST)) == {T0: 0, u0: 0}
    assert reader.offsets(dict.fromkeys(missing, LATEST)) == {}
    counts = []
    for partitions in (1, 9):
        before = cluster.sent("Metadata")
        deleted = [TopicPartition("deleted", number) for number in range(partitions)]
        assert reader.offsets(dict.fromkeys((T0, *deleted), LATEST)) == {T0: 0}
        counts.append(cluster.sent("Metadata") - before)
    assert counts[0] == counts[1], "all partitions of a topic are left out at once"


def test_equal_losses_are_logged_once_and_each_is_counted(
    cluster: UnitCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may be truncated between the same offsets again; the planner reports each loss once."""
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    folder = tmp_path / SHARED_FOLDER_NAME
    folder.mkdir()
    offset_reader = reader_of(cluster)
    for partitions in ([0], [0], [0, 1]):
        offsets = {TopicPartition("t", partition): 5 for partition in partitions}
        offset_reader.report_loss(SkippedLoss("lost", DataLossCause.AGED_OUT, offsets))
    assert caplog.messages == ["lost"]
    assert [(loss.partition, loss.offsets) for loss in load_totals(folder).losses] == [(0, 15), (1, 5)]


def test_a_planner_remembers_a_limited_number_of_warnings(
    cluster: UnitCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of losses contain offsets. A query that skips losses for weeks logs millions of them."""
    offset_reader = reader_of(cluster)
    messages = [f"offsets [{number}, {number + 1}) were removed" for number in range(1001)]
    for message in [*messages, *messages[1:], messages[0]]:
        offset_reader.warn(message)
    assert caplog.messages == [*messages, messages[0]]


def test_the_size_of_records_is_sampled_as_far_as_brokers_respond(
    cluster: UnitCluster, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = [T0, TopicPartition("t", 1), TopicPartition("u", 0)]
    for tp in partitions[:2]:
        cluster.append(tp, 10, size=1000)
    cluster.append(partitions[2], 10)
    reader = reader_of(cluster, subscribe="t,u")
    reader.assigned(strict=True)
    assert reader.leaders(partitions).keys() == set(partitions)
    before = cluster.sent("Metadata")
    found = reader.samples({partitions[0]: 0, partitions[1]: 10, partitions[2]: 0})
    assert list(found) == [partitions[0], partitions[2]], "there is nothing at the end"
    assert [(each.offsets, each.size > 10_000) for each in found.values()] == [(10, True), (10, False)]
    assert cluster.sent("Metadata") == before, "the leaders are known"
    ids = {topic.topic_id for request in cluster.received("Fetch") for topic in request.topics}
    assert ids == {cluster.topic_id("t"), cluster.topic_id("u")}
    caplog.set_level(logging.INFO)
    cluster.fault("Fetch", "garble_response")
    assert list(reader.samples({partitions[0]: 0, partitions[2]: 0})) == [partitions[2]]
    caplog.clear()
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
    left, other, deleted = TopicPartition("u", 0), TopicPartition("v", 0), TopicPartition("t", 7)
    options = {"fetchOffset.numRetries": "1", "kafka.default.api.timeout.ms": "3000"}
    reader = reader_of(cluster, **options)
    assert reader.not_selected([left, other, deleted, TopicPartition("t", 0)]) == {left, other}
    caplog.set_level(logging.INFO)
    cluster.every("Metadata", "stall_request")
    assert reader.not_selected([left]) == set()
    assert "cannot check whether missing partitions still exist" in caplog.text


def test_malformed_records_are_counted(cluster: UnitCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    folder = tmp_path / SHARED_FOLDER_NAME
    folder.mkdir()
    offset_reader = reader_of(cluster)
    for _ in range(2):
        offset_reader.count_malformed("PERMISSIVE", {T0: 3}, {T0: 2})
    assert load_totals(folder).malformed == (MalformedTotal("t", 0, "PERMISSIVE", 6, 4),)


def test_a_pattern_that_matches_no_topic_is_logged_once(cluster: UnitCluster, caplog: pytest.LogCaptureFixture) -> None:
    offset_reader = pattern_reader(cluster, "nothing.*")
    for _ in range(2):
        assert offset_reader.assigned(strict=False).partitions == frozenset()
    assert caplog.messages == ["subscribePattern='nothing.*' matches none of 3 topics"]
