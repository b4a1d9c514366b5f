"""``Fetcher`` on a simulated cluster: what it requests, and how it follows the decisions on responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.consumer.polling import ONE, OTHER, ConsumerCluster
from tests.unit.consumer.reading import Read

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.consumer.range_counter import count_range
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.errors import AuthorizationError, CorruptRecordError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.settings import FetchSettings
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.offsets import TopicPartition

RECORDS = list(range(20))


def replicated(**fields: Any) -> ConsumerCluster:
    """Return three brokers with all partitions; records 0 to 19 are in two batches."""
    cluster = ConsumerCluster(brokers=3, replication_factor=3, **fields)
    append_records(cluster)
    return cluster


def append_records(cluster: ConsumerCluster) -> None:
    for _ in range(2):
        cluster.append(ONE, 10, size=1000)


def last_epochs(cluster: ConsumerCluster) -> list[tuple[int, int]]:
    """Return offset and last fetched epoch of each fetch that a broker has handled."""
    partitions = [request.topics[0].partitions[0] for request in cluster.received("Fetch")]
    return [(each.fetch_offset, each.last_fetched_epoch) for each in partitions]


def test_next_fetch_is_sent_before_records_are_decoded(cluster: ConsumerCluster) -> None:
    append_records(cluster)
    cluster.append(ONE, 10)
    read = Read(cluster, fetch_max_bytes=100)
    parts = read.parts()
    assert next(parts) == RECORDS[:10]
    assert cluster.sent("Fetch") == 2
    assert next(parts) == RECORDS[10:]
    assert list(parts) == []
    assert cluster.fetched() == [(ONE, 0), (ONE, 10)]  # and nothing beyond the range
    assert (read.counts.fetches, read.counts.retries) == (2, 0)


@pytest.mark.parametrize(
    ("settings", "first", "following"),
    [
        ({}, 256 << 10, 4 << 20),
        ({"max_partition_fetch_bytes": 1000}, 1000, 1000),
        ({"fetch_min_bytes": 1_000_000, "fetch_max_wait_ms": 1}, 1_000_000, 4 << 20),
        ({"fetch_min_bytes": 9_000_000, "fetch_max_wait_ms": 1}, 4 << 20, 4 << 20),
    ],
    ids=["defaults", "small-fetches", "large-minimum", "minimum-above-the-most"],
)
def test_first_fetch_is_small_until_records_arrive(
    cluster: ConsumerCluster, settings: dict[str, Any], first: int, following: int
) -> None:
    append_records(cluster)
    cluster.fault("Fetch", "lose_response")
    assert Read(cluster, fetch_max_bytes=100, **settings).run() == RECORDS
    sizes = [request.topics[0].partitions[0].partition_max_bytes for request in cluster.received("Fetch")]
    assert sizes == [first, first, following]


def test_transient_errors_are_retried_after_a_metadata_refresh(cluster: ConsumerCluster) -> None:
    append_records(cluster)
    cluster.fault("Fetch", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.fault("Fetch", "lose_response", number=1)
    read = Read(cluster)
    assert read.run() == RECORDS
    assert (read.counts.retries, cluster.sent("Metadata")) == (2, 3)


def test_a_later_leader_epoch_in_a_response_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-951; the epoch of one broker is no evidence."""
    noted: list[int] = []
    note_later_epochs = ClusterClient.note_later_epochs

    def note(client: ClusterClient, epochs: dict[TopicPartition, int], deadline: Deadline) -> None:
        noted.extend(epochs.values())
        note_later_epochs(client, epochs, deadline)

    monkeypatch.setattr(ClusterClient, "note_later_epochs", note)
    with replicated() as cluster:
        read = Read(cluster)
        read.plan_leader()
        cluster.elect(ONE, 3)
        assert read.run() == RECORDS
        assert noted == [cluster.partition(ONE).epoch]
        assert [each.broker for each in cluster.arrivals("Fetch")] == [1, 3]


@pytest.mark.parametrize("partial", [False, True])
def test_fatal_error_is_raised(cluster: ConsumerCluster, partial: bool) -> None:
    append_records(cluster)
    read = Read(cluster)
    read.plan_leader()
    cluster.fault("Fetch", "error", code=ErrorCode.CORRUPT_MESSAGE if partial else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(CorruptRecordError if partial else AuthorizationError):
        read.run()
    assert read.counts.retries == 0


@pytest.mark.parametrize("failure", ["empty", "moved", "out of range"])
def test_failing_follower_is_replaced_by_the_leader(failure: str) -> None:
    """The log of the leader is not requested before it is fetched from."""
    with replicated(read_from_followers=True) as cluster:
        read = Read(cluster, client_rack="rack-0")
        if failure == "empty":
            cluster.partition(ONE).replicas[2].withheld_until = cluster.now + 1
        else:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if failure == "moved" else ErrorCode.OFFSET_OUT_OF_RANGE
            cluster.fault("Fetch", "error", number=1, code=code)
        assert read.run() == RECORDS
        assert read.counts.brokers[:2] == ["broker-1:9092", "broker-2:9092"]
        assert (cluster.sent("Fetch"), cluster.sent("ListOffsets"), read.counts.lost) == (3, 0, 0)
        assert cluster.received("Fetch")[-1].rack_id == ""


def test_throttled_fetch_is_repeated_without_backoff(cluster: ConsumerCluster) -> None:
    append_records(cluster)
    read = Read(cluster)
    read.plan_leader()
    cluster.event("throttle_broker", broker=0, seconds=0.12, ms=50)
    assert read.run() == RECORDS
    assert (read.counts.throttled, read.counts.retries) == (2, 0)
    assert read.seconds < 0.2


def test_out_of_range_offset_in_the_log_is_fetched_again(cluster: ConsumerCluster) -> None:
    append_records(cluster)
    cluster.fault("Fetch", "error", code=ErrorCode.OFFSET_OUT_OF_RANGE)
    read = Read(cluster)
    assert read.run() == RECORDS
    assert (read.counts.retries, read.counts.lost, cluster.sent("ListOffsets")) == (1, 0, 2)


def test_slow_leader_loses_no_records(cluster: ConsumerCluster) -> None:
    """Brokers with slow storage respond without records at first."""
    append_records(cluster)
    cluster.event("withhold_records", **ONE._asdict(), seconds=4.5)
    read = Read(cluster, fetch_max_bytes=100)
    assert read.run() == RECORDS
    assert (read.counts.gaps, read.counts.unproven_gaps, read.counts.lost) == (0, 0, 0)
    assert read.seconds > 4.5


@pytest.mark.parametrize("interruption", ["lose_response", "error"])
def test_time_without_data_restarts_after_a_metadata_refresh(cluster: ConsumerCluster, interruption: str) -> None:
    """The responses before the refresh may come from a deposed leader."""
    append_records(cluster)
    cluster.append_gap(ONE, 10)
    cluster.append(ONE, 1)
    cluster.log(ONE).withheld_until = cluster.now + 8
    for seconds in (4, 8):
        cluster.after(seconds, lambda: cluster.fault("Fetch", interruption, code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    read = Read(cluster)
    assert read.run() == RECORDS
    assert read.counts.gaps == 0


def test_a_gap_is_counted_up_to_the_end_of_the_range(cluster: ConsumerCluster) -> None:
    cluster.append(ONE, 10)
    cluster.append_gap(ONE, 10)
    read = Read(cluster)
    assert read.run(until=15) == RECORDS[:10]
    assert read.counts.gaps == 5


def test_a_deposed_leader_proves_no_gap() -> None:
    """It returns no records, and does not know that the controller has elected another leader."""
    with replicated() as cluster:
        read = Read(cluster)
        cluster.log(ONE).replace_batches(cluster.log(ONE).batches[:1])
        cluster.event("isolate_broker", broker=0, seconds=1000)
        assert read.run() == RECORDS
        assert 5 < read.seconds < 10
        assert read.counts.gaps == 0


def test_first_fetch_after_a_metadata_refresh_sends_the_last_fetched_epoch(cluster: ConsumerCluster) -> None:
    """So that the new leader can detect a divergence; a leader that just returned the batch need not."""
    for _ in range(3):
        cluster.elect(ONE, 1)
        cluster.append(ONE, 10, size=1000)
    second = cluster.log(ONE).batches[1].epoch
    cluster.fault("Fetch", "lose_response", number=2)
    assert Read(cluster, fetch_max_bytes=100).run(until=30) == list(range(30))
    assert last_epochs(cluster) == [(0, -1), (10, -1), (20, -1), (20, second)]


def test_skipped_offsets_reset_the_last_fetched_epoch(cluster: ConsumerCluster) -> None:
    """The last fetched epoch is not that of the skipped batch, and would look like a truncation."""
    append_records(cluster)
    cluster.append(ONE, 10)
    read = Read(cluster, fetch_max_bytes=100)
    cluster.before("Fetch", lambda: None, lambda: cluster.delete_records(ONE, 20))
    cluster.fault("Fetch", "lose_response", number=2)
    assert read.run(fail=False, until=30) == [*RECORDS[:10], *range(20, 30)]
    assert last_epochs(cluster) == [(0, -1), (10, -1), (20, -1), (20, -1)]
    assert read.counts.skipped == {DataLossCause.AGED_OUT: 10}


def test_a_truncation_reported_by_a_deposed_leader_is_not_accepted() -> None:
    """It lacks records, and a replica has a later leader epoch. A count with a limit sends the epoch in each fetch."""
    with replicated() as cluster:

        def depose() -> None:
            cluster.event("isolate_broker", broker=0, seconds=1000)
            deposed = cluster.log(ONE)
            cluster.elect(ONE, 2)
            deposed.truncate_to(10)

        cluster.append(ONE, 10)
        cluster.before("Fetch", lambda: None, lambda: None, depose)
        client, counts = cluster.client(), ReadCounts()
        task = RangeTask(OffsetRange(*ONE, 0, 30))
        fetch = FetchSettings(fetch_max_bytes=100)
        assert count_range(client.settings, fetch, task, limit=30, counts=counts, pool=client.pool) == 30
        assert counts.lost == 0
        assert [each.broker for each in cluster.arrivals("Fetch")] == [1, 1, 1, 2]


def test_skipped_offsets_restart_the_poll_timeout(cluster: ConsumerCluster) -> None:
    """The records after them are readable a little later than the timeout from the start, and after the first loss."""
    cluster.append(ONE, 10)
    cluster.append(ONE, 10, producer_id=7)
    cluster.delete_records(ONE, 10)
    cluster.every("Fetch", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.after(10, lambda: cluster.every("Fetch", None))
    cluster.after(21, lambda: cluster.end_transaction(ONE, 7, commit=True))
    read = Read(cluster, isolation_level="read_committed", poll_timeout=12)
    assert read.run(fail=False) == RECORDS[10:]


def test_the_time_of_the_caller_does_not_count(cluster: ConsumerCluster) -> None:
    append_records(cluster)
    cluster.append(ONE, 10)
    cluster.fault("Fetch", "lose_response", number=1)
    parts = Read(cluster, poll_timeout=10, fetch_max_bytes=100).parts(until=30)
    for first in (0, 10, 20):
        assert next(parts) == list(range(first, first + 10))
        cluster.sleep(60)
    assert list(parts) == []


def test_a_range_needs_no_connection_once_all_its_records_have_arrived(cluster: ConsumerCluster) -> None:
    append_records(cluster)
    parts = Read(cluster).parts(max_rows=10)
    assert next(parts) == RECORDS[:10]
    connects = cluster.network.connect_count
    assert Read(cluster).run() == RECORDS
    assert cluster.network.connect_count == connects
    assert list(parts) == [RECORDS[10:]]


def test_one_broker_that_lags_deletes_no_range() -> None:
    """Five responses of one broker did, within 1.5 s."""
    with ConsumerCluster(brokers=3, replication_factor=3) as cluster:
        cluster.event("stick_image", broker=1, seconds=20.0)
        cluster.event("create_topic", topic=OTHER.topic)
        cluster.elect(OTHER, 2)  # does not know that it leads the partition
        cluster.append(OTHER, 20)
        read = Read(cluster, tp=OTHER)
        assert read.run() == RECORDS
        assert read.counts.lost == 0
        assert read.seconds > 15


def test_a_missing_topic_is_confirmed_again_after_it_was_fetched(cluster: ConsumerCluster) -> None:
    """Brokers that restart omit topics for a moment; meanwhile an open transaction ends the readable log."""
    topic = cluster.cluster.topics[ONE.topic]
    cluster.append(ONE, 20, producer_id=7)

    def hide(is_hidden: bool) -> None:
        topic.deleted = is_hidden
        if is_hidden:
            del cluster.cluster.topics[ONE.topic]
        else:
            cluster.cluster.topics[ONE.topic] = topic
        cluster.cluster.publish()

    for seconds in (1, 11):
        cluster.after(seconds, lambda: hide(True))
        cluster.after(seconds + 2, lambda: hide(False))
    cluster.after(20, lambda: cluster.end_transaction(ONE, 7, commit=True))
    read = Read(cluster, isolation_level="read_committed", poll_timeout=60)
    assert read.run(fail=False) == RECORDS
    assert read.counts.lost == 0


def test_witnesses_that_do_not_respond_confirm_nothing(cluster: ConsumerCluster) -> None:
    """Metadata lacks the topic, and the requests to several brokers fail; later ones succeed."""
    append_records(cluster)
    read = Read(cluster)
    cluster.event("delete_topic", topic=ONE.topic)
    cluster.fault("Metadata", "lose_response", number=1, repeats=2)
    assert read.run(fail=False) == []
    assert (read.counts.lost, read.counts.skipped) == (20, {DataLossCause.DELETED: 20})
    assert read.seconds > 5
