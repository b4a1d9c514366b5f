"""The poll timeout with quotas, slow callers and unreachable brokers."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.errors import BrokerTimeoutError

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench


def limit_consumer(bench: Workbench, client_id: str, bytes_per_second: float) -> None:
    """Sets a quota, as ``kafka-configs.sh --add-config consumer_byte_rate=...`` does."""
    from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest as Request

    entry = Request.EntryData(
        entity=[Request.EntryData.EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[Request.EntryData.OpData(key="consumer_byte_rate", value=bytes_per_second, remove=False)],
    )
    response = bench.ask(Request, entries=[entry], validate_only=False)
    assert [result.error_code for result in response.entries] == [0]


def test_quota_only_slows_down_the_read(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, *([b"%d" % number + b"." * 10_000] * 10 for number in range(10)))
    client = f"slow-{uuid.uuid4().hex}"
    limit_consumer(bench, client, 500_000)  # exceeded by five reads in ten seconds
    settings = {"client.id": client, "max.partition.fetch.bytes": 100_000}

    def throttled() -> bool:
        read = bench.read(topic, 0, 100, kafka=settings)
        assert read.offsets == list(range(100))
        assert (read.counts.retries, read.counts.lost) == (0, 0)
        return read.counts.throttled > 0  # the broker may learn of the quota a moment later

    bench.wait_until(throttled, "throttled")


def test_too_small_quota_is_reported(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, *([b"." * 100_000] for _ in range(10)))
    client = f"stuck-{uuid.uuid4().hex}"
    limit_consumer(bench, client, 10)
    settings = {"client.id": client, "max.partition.fetch.bytes": 100_000}

    def read_again() -> bool:
        bench.read(topic, 0, 10, kafka=settings, poll_timeout=5)
        return False

    with pytest.raises(BrokerTimeoutError, match=r"pollTimeoutMs.*quota"):
        bench.wait_until(read_again, "the quota is known to the broker")


def test_slow_caller_does_not_use_up_the_poll_timeout(bench: Workbench) -> None:
    topic = bench.make_topic()
    bench.write(topic, *([b"v"] * 10 for _ in range(10)))
    request = bench.request(topic, 0, 100, poll_timeout=3)
    batches = bench.open(request, max_partition_fetch_bytes=1)
    offsets = next(batches).column("offset").to_pylist()
    time.sleep(3.5)  # longer than the poll timeout
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    assert offsets == list(range(100))


def test_unreachable_cluster(bench: Workbench) -> None:
    request = bench.request(bench.make_topic(), 0, 1, poll_timeout=3)
    started = time.monotonic()
    with pytest.raises(BrokerTimeoutError, match=r"3 s \(option kafkaConsumer.pollTimeoutMs\).*refused") as caught:
        bench.run(request, bootstrap_servers="127.0.0.1:1")
    assert caught.value.broker == "127.0.0.1:1"
    assert time.monotonic() - started > 2.9
