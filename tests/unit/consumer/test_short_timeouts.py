"""Reads whose timeouts are shorter than the time in which brokers confirm a data loss, on a simulated cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.consumer.polling import ONE, ConsumerCluster
from tests.unit.consumer.reading import Read

from pyspark_kafka_direct.errors import BrokerTimeoutError, DataLossError
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_TIMEOUT = 0.512  # seconds, as in many configurations of Spark 2


def short_read(cluster: ConsumerCluster, *, poll_timeout: float = POLL_TIMEOUT, **fetch: Any) -> Read:
    """Return a read of the offsets [0, 20)."""
    return Read(cluster, poll_timeout=poll_timeout, **fetch)


def delete(cluster: ConsumerCluster) -> None:
    cluster.event("delete_topic", topic=ONE.topic)


def recreate(cluster: ConsumerCluster) -> None:
    cluster.event("recreate_topic", topic=ONE.topic, partitions=3)


def recreate_with_a_longer_log(cluster: ConsumerCluster) -> None:
    recreate(cluster)
    cluster.append(ONE, 30)


def recreate_while_the_loss_is_confirmed(cluster: ConsumerCluster) -> None:
    cluster.event("recreate_topic", topic=ONE.topic, partitions=3, seconds=4.5)


def recreate_with_fewer_partitions(cluster: ConsumerCluster) -> None:
    cluster.event("recreate_topic", topic=ONE.topic, partitions=0)


def expire(cluster: ConsumerCluster) -> None:
    cluster.delete_records(ONE, 20)


def truncate(cluster: ConsumerCluster) -> None:
    cluster.truncate(ONE, 10)


LOSSES: dict[Callable[[ConsumerCluster], None], DataLossCause] = {
    delete: DataLossCause.DELETED,
    recreate: DataLossCause.RECREATED,
    recreate_with_a_longer_log: DataLossCause.RECREATED,
    recreate_while_the_loss_is_confirmed: DataLossCause.RECREATED,
    recreate_with_fewer_partitions: DataLossCause.RECREATED,
    expire: DataLossCause.AGED_OUT,
    truncate: DataLossCause.BEYOND_END,
}
# Other settings of a user that could make the time too short for all the requests of a confirmation.
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "long pauses": {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000},
    "short pauses": {"retry_backoff_ms": 50, "retry_backoff_max_ms": 50},
    "short API timeout": {"default_api_timeout_ms": 400, "request_timeout_ms": 300},
    "short request timeout": {"request_timeout_ms": 100, "connect_timeout_ms": 100},
    "short age of metadata": {"metadata_max_age_ms": 0},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
@pytest.mark.parametrize("is_planned", [True, False])
def test_a_short_poll_timeout_neither_hides_a_loss_nor_fails_a_tolerant_read(
    lose: Callable[[ConsumerCluster], None], settings: dict[str, Any], is_planned: bool
) -> None:
    for fail in (False, True):
        with ConsumerCluster(brokers=3, connection=settings, replication_factor=3) as cluster:
            cluster.append(ONE, 10)
            cluster.append(ONE, 10)
            read = short_read(cluster)
            if is_planned:
                read.plan_leader()
            lose(cluster)
            if fail:
                with pytest.raises(DataLossError, match=LOSSES[lose].value):
                    read.run(fail=True)
            else:
                assert read.run(fail=False) == (list(range(10)) if lose is truncate else [])
                assert Counter(read.counts.skipped) == {LOSSES[lose]: 10 if lose is truncate else 20}
            assert read.seconds < 16


@pytest.mark.parametrize(("fetch_max_wait_ms", "missing"), [(500, 10), (60_000, 10), (500, 15)])
@pytest.mark.parametrize(("earliest_local", "seconds"), [(True, 5), (False, 60)])
def test_an_offset_gap_is_confirmed_after_a_short_poll_timeout(
    earliest_local: bool, seconds: float, fetch_max_wait_ms: int, missing: int
) -> None:
    """Also if the gap is longer than the range: another range has the rest."""
    for fail in (False, True):
        with ConsumerCluster(earliest_local=earliest_local) as cluster:
            cluster.append(ONE, 10)
            cluster.append_gap(ONE, missing)
            read = short_read(cluster, fetch_max_wait_ms=fetch_max_wait_ms)
            if fail and not earliest_local:
                with pytest.raises(DataLossError, match=r"records not returned.*for 6\d s"):
                    read.run(fail=True)
            else:
                assert read.run(fail=fail) == list(range(10))
                assert read.counts.gaps == 10
                assert read.counts.unproven_gaps == (0 if earliest_local else 10)
                assert Counter(read.counts.skipped) == ({} if earliest_local else {DataLossCause.UNPROVEN_GAP: 10})
            assert seconds <= read.seconds < seconds * 1.2 + 6


def test_a_truncation_is_confirmed_after_a_short_poll_timeout() -> None:
    for fail in (False, True):
        with ConsumerCluster(brokers=3, replication_factor=3) as cluster:
            cluster.append(ONE, 10)
            cluster.append(ONE, 10)
            read = short_read(cluster, max_partition_fetch_bytes=100)

            def truncate_and_append() -> None:
                cluster.truncate(ONE, 0, leader=2)
                cluster.append(ONE, 20)
                cluster.every("Metadata", "delay_response", seconds=0.2)  # each of several requests

            cluster.before("Fetch", lambda: None, truncate_and_append)
            if fail:
                with pytest.raises(DataLossError, match="log truncated"):
                    read.run(fail=True)
            else:
                assert read.run(fail=False) == list(range(20))
                assert Counter(read.counts.skipped) == {DataLossCause.TRUNCATED: 0}


def test_a_short_poll_timeout_finds_the_leader_that_replaced_a_deposed_one() -> None:
    with ConsumerCluster(brokers=3, replication_factor=3) as cluster:
        cluster.append(ONE, 10)
        cluster.event("isolate_broker", broker=0, seconds=60.0)
        cluster.sleep(2.0)
        cluster.append(ONE, 10)
        cluster.every("ListOffsets", "delay_response", seconds=0.3)
        assert short_read(cluster).run(fail=True) == list(range(20))


def test_lost_epochs_are_confirmed_after_a_short_poll_timeout() -> None:
    with ConsumerCluster(brokers=3, replication_factor=3) as cluster:
        cluster.append(ONE, 20)
        read = short_read(cluster)
        read.plan_leader(epoch=50)
        assert read.run(fail=True) == list(range(20))
        assert 30 <= read.seconds < 36


def test_the_end_of_an_old_broker_is_confirmed_after_a_short_poll_timeout() -> None:
    """Brokers before Kafka 2.2 have to report it five times."""
    for fail in (False, True):
        with ConsumerCluster(newest_versions={"ListOffsets": 4}) as cluster:
            cluster.append(ONE, 10)
            cluster.append(ONE, 10)
            read = short_read(cluster)
            cluster.truncate(ONE, 10)
            if fail:
                with pytest.raises(DataLossError, match="beyond the end of the log"):
                    read.run(fail=True)
            else:
                assert read.run(fail=False) == list(range(10))
            assert 1 < read.seconds < 6


@pytest.mark.parametrize("poll_timeout", [POLL_TIMEOUT, 120.0])
@pytest.mark.parametrize("lose", [delete, expire, truncate], ids=lambda lose: lose.__name__)
def test_a_broker_that_does_not_respond_delays_a_confirmation_by_the_request_timeout(
    lose: Callable[[ConsumerCluster], None], poll_timeout: float
) -> None:
    with ConsumerCluster(brokers=3, replication_factor=3, connection={"request_timeout_ms": 10_000}) as cluster:
        cluster.append(ONE, 10)
        cluster.append(ONE, 10)
        read = short_read(cluster, poll_timeout=poll_timeout)
        cluster.event("pause_broker", broker=2, seconds=100.0)
        lose(cluster)
        assert read.run(fail=False) == (list(range(10)) if lose is truncate else [])
        assert 10 < read.seconds < 30


def test_the_error_of_a_confirmation_that_does_not_end_has_both_times() -> None:
    with ConsumerCluster() as cluster:
        cluster.append(ONE, 20)
        cluster.every("Fetch", "error", code=ErrorCode.OFFSET_OUT_OF_RANGE)
        read = short_read(cluster)
        both = (
            r"0.512 s \(option kafkaConsumer.pollTimeoutMs\); .*OUT_OF_RANGE.* The brokers had 10 s to confirm .* 5 s\."
        )
        with pytest.raises(BrokerTimeoutError, match=both):
            read.run(fail=False)
        assert 10 <= read.seconds < 11


def test_an_error_that_is_no_evidence_of_a_loss_ends_after_the_poll_timeout() -> None:
    with ConsumerCluster() as cluster:
        cluster.append(ONE, 20)
        cluster.every("Fetch", "error", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        read = short_read(cluster)
        with pytest.raises(
            BrokerTimeoutError, match=r"for 0.512 s \(option kafkaConsumer.pollTimeoutMs\); .*moved"
        ) as caught:
            read.run(fail=False)
        assert "data loss" not in str(caught.value)
        assert read.seconds < 0.6


def test_records_in_tiered_storage_are_no_evidence_of_a_loss() -> None:
    with ConsumerCluster() as cluster:
        cluster.append(ONE, 10)
        cluster.append(ONE, 10)
        cluster.event("tier_log", **ONE._asdict(), fraction=1.0)
        cluster.event("lose_tiered_storage", **ONE._asdict(), seconds=60.0)
        read = short_read(cluster)
        with pytest.raises(BrokerTimeoutError) as caught:
            read.run(fail=False)
        assert "data loss" not in str(caught.value)
        assert read.seconds < 6
