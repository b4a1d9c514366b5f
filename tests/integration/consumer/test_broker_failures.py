"""A broker that stops, fails or restarts while its records are read, and damage on its disk."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.waiting import suspend
from tests.logins import jaas_text

from pyspark_kafka_direct.client.cluster_client import Node, PartitionLeader
from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.errors import AuthorizationError, BrokerTimeoutError, CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka

BATCHES, BATCH_SIZE = 10, 10
COUNT = BATCHES * BATCH_SIZE
ONE_BATCH: dict[str, Any] = {"max_partition_fetch_bytes": 1}


@pytest.fixture(scope="module")
def bench(stoppable_kafka: EmbeddedKafka, workbench_for: Callable[[EmbeddedKafka], Workbench]) -> Workbench:
    return workbench_for(stoppable_kafka)


@pytest.fixture
def topic(bench: Workbench) -> str:
    return new_topic(bench)


def new_topic(bench: Workbench) -> str:
    """Create a topic of ten batches of ten records."""
    topic = bench.make_topic()
    starts = range(0, COUNT, BATCH_SIZE)
    bench.write(topic, *([b"value-%d" % offset for offset in range(start, start + BATCH_SIZE)] for start in starts))
    return topic


def rest_of(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.fixture(scope="module")
def secured(stoppable_kafka: EmbeddedKafka, bench: Workbench) -> dict[str, Any]:
    """Settings for TLS with SASL; the user may read topics whose name starts with ``test``."""
    user = stoppable_kafka.users[0]
    permission = (
        ResourceType.TOPIC,
        "test",
        ResourcePatternType.PREFIXED,
        f"User:{user.username}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    acl = AclBinding(*permission)
    bench.admin.create_acls([acl])[acl].result(600)
    # The broker learns of it a moment after the controller.
    bench.wait_until(lambda: bench.admin.describe_acls(AclBindingFilter(*permission)).result(600) == [acl], "the ACL")
    return {
        "bootstrap_servers": stoppable_kafka.listener("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": jaas_text("PLAIN", user),
        "ssl_truststore_location": stoppable_kafka.certificates.ca,
    }


def test_unauthorized_topic(bench: Workbench, secured: dict[str, Any]) -> None:
    topic = bench.make_topic(prefix="secret")
    bench.write(topic, [b"secret"])
    with pytest.raises(AuthorizationError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        bench.run(bench.request(topic, 0, 1), **secured)
    assert caught.value.topic == topic


def test_permission_revoked_after_planning(bench: Workbench, secured: dict[str, Any]) -> None:
    """The task sends no metadata request: the fetch itself is rejected."""
    topic = bench.make_topic(prefix="secret")
    bench.write(topic, [b"secret"])
    host, port = secured["bootstrap_servers"].split(":")
    leader = PartitionLeader(Node(1, host, int(port)), 0)
    with pytest.raises(AuthorizationError, match=r"TOPIC_AUTHORIZATION_FAILED.*fetching") as caught:
        bench.run(bench.request(topic, 0, 1, leader=leader), **secured)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 0)


def test_read_that_outlives_its_authentication(bench: Workbench, topic: str, secured: dict[str, Any]) -> None:
    counts = ReadCounts()
    batches = bench.open(bench.request(topic, 0, COUNT), counts, **ONE_BATCH, **secured)
    offsets = []
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
        time.sleep(1)  # ten batches: three authentications
    assert offsets == list(range(COUNT))
    undisturbed = ReadCounts()  # the writer may have split a batch
    assert rest_of(bench.open(bench.request(topic, 0, COUNT), undisturbed, **ONE_BATCH)) == offsets
    assert (counts.retries, counts.fetches) == (0, undisturbed.fetches)  # reauthenticated in time, without a retry


class Outage(NamedTuple):
    """What the reads of one topic returned while the broker was down, and topics that were changed meanwhile."""

    read_before: list[int]
    error: BrokerTimeoutError  # of a read with a short timeout
    read_after: list[list[int]]  # by the other reads
    topic: str
    gap_at_the_end: str  # a topic whose segments were changed on the disk


@pytest.fixture(scope="module")
def outage(stoppable_kafka: EmbeddedKafka, bench: Workbench, secured: dict[str, Any]) -> Outage:
    """The only restart of the broker in this module."""
    gap = bench.make_topic()
    bench.write(gap, *([b"value-%d" % offset for offset in range(start, start + 10)] for start in (0, 10, 20)))
    topic = new_topic(bench)
    # On a busy machine, a broker restarts for minutes.
    secure = bench.open(bench.request(topic, 0, COUNT, poll_timeout=900), **ONE_BATCH, **secured)
    long_timeout = bench.open(bench.request(topic, 0, COUNT, poll_timeout=900), **ONE_BATCH)
    short_timeout = bench.open(bench.request(topic, 0, COUNT, poll_timeout=5.0), **ONE_BATCH)
    offsets = next(long_timeout).column("offset").to_pylist()
    assert next(short_timeout).column("offset").to_pylist() == offsets
    assert next(secure).column("offset").to_pylist() == offsets
    stoppable_kafka.stop_broker(1)
    with pytest.raises(BrokerTimeoutError) as caught:
        rest_of(short_timeout)
    # An empty segment that starts at 50: offsets 30 to 49 have no records, and none follow.
    segment(stoppable_kafka, gap, 50).touch()
    read_after = read_rest_during_restart(stoppable_kafka, [long_timeout, secure])
    return Outage(offsets, caught.value, read_after, topic, gap)


def test_broker_failure(bench: Workbench, outage: Outage) -> None:
    """Of three reads, one times out with the reason, and the others continue after the restart."""
    error = outage.error
    assert "5 s (option kafkaConsumer.pollTimeoutMs)" in str(error)
    assert (error.topic, error.partition) == (outage.topic, 0)
    assert error.broker == bench.bootstrap_servers
    assert "refused" in error.message
    assert outage.read_after == [list(range(len(outage.read_before), COUNT))] * 2


def test_unresponsive_broker(stoppable_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    """Its process is stopped, so connections stay open without responses."""
    long_timeout = bench.open(bench.request(topic, 0, COUNT), **ONE_BATCH)
    offsets = next(long_timeout).column("offset").to_pylist()
    short_timeout = bench.request(topic, 0, COUNT, poll_timeout=3)
    suspend(stoppable_kafka.pids[1])
    try:
        with pytest.raises(BrokerTimeoutError, match=r"3 s.*stuck.*the limit is kafkaConsumer\.pollTimeoutMs"):
            bench.run(short_timeout)
    finally:
        os.kill(stoppable_kafka.pids[1], signal.SIGCONT)
    assert offsets + rest_of(long_timeout) == list(range(COUNT))


def read_rest_during_restart(kafka: EmbeddedKafka, reads: list[Iterator[pa.RecordBatch]]) -> list[list[int]]:
    start = threading.Thread(target=kafka.start_broker, args=(1,))
    start.start()
    try:
        return [rest_of(batches) for batches in reads]
    finally:
        start.join(600)


# Damage on the broker's disk.


def segment(kafka: EmbeddedKafka, topic: str, offset: int = 0) -> Path:
    return kafka.log_file().parent / "broker-1" / f"{topic}-0" / f"{offset:020}.log"


def test_a_wrong_checksum(stoppable_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    path = segment(stoppable_kafka, topic)
    position = path.read_bytes().index(b"value-15")
    with path.open("r+b") as file:
        file.seek(position)
        file.write(b"V")
    batches = bench.open(bench.request(topic, 3, 30))
    assert next(batches).column("offset").to_pylist() == list(range(3, 10))
    with pytest.raises(CorruptRecordError, match="CRC") as caught:
        next(batches)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 10)
    # Other batches are read, and without the CRC check all of them.
    assert bench.read(topic, 0, 10).offsets == list(range(10))
    assert bench.read(topic, 20, 30).offsets == list(range(20, 30))
    assert bench.read(topic, 0, 30, kafka={"check.crcs": "false"}).offsets == list(range(30))


def test_unreadable_segment_on_the_broker(stoppable_kafka: EmbeddedKafka, bench: Workbench, topic: str) -> None:
    path = segment(stoppable_kafka, topic)
    content = path.read_bytes()
    # The first batch claims to be shorter than its header.
    path.write_bytes(content[:8] + struct.pack(">i", 5) + content[12:])
    try:
        with pytest.raises(CorruptRecordError, match=r"CORRUPT_MESSAGE.*broker's disk") as caught:
            bench.read(topic, 0, 30)
    finally:
        path.write_bytes(content)  # else the broker would not start again
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 0)


def test_log_that_ends_with_a_gap(bench: Workbench, outage: Outage) -> None:
    topic = outage.gap_at_the_end
    assert bench.end(topic) == 50
    read = bench.read(topic, 0, 50, poll_timeout=600)
    counts = read.counts
    assert (read.offsets, counts.gaps) == (list(range(30)), 20)
    # The broker reports that its local log has the offsets, and returns no records for five seconds.
    assert (counts.unproven_gaps, counts.lost) == (0, 0)
    assert counts.total_seconds >= 5
