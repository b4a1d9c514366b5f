"""Produce requests and their responses: versions, bytes that are not copied, and what a response must contain."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest
from tests.unit.producer.encoded_batches import encoded
from tests.unit.producer.producer_cluster import PARTITION, ProducerCluster, batch

from pyspark_kafka_direct.client.connection import _coalesce
from pyspark_kafka_direct.errors import InvalidRecordError, ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.protocol import messages


def test_records_are_sent_without_copy() -> None:
    records = bytearray(b"x" * 50_000)
    partitions = [{"index": 1, "records": records}, {"index": 2, "records": b"second"}]
    topics = [{"name": "a", "partition_data": partitions}]
    values = {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": topics}
    parts = messages.encode_parts(messages.PRODUCE, 12, 7, b"me", values)
    assert parts[1] is records
    assert any(part is records for part in _coalesce(parts))
    assert len(list(_coalesce(parts))) == 3
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    decoded = ProduceRequest.decode(frame[4:], version=12, header=True)
    assert [(each.index, bytes(each.records)) for each in decoded.topic_data[0].partition_data] == [
        (1, bytes(records)),
        (2, b"second"),
    ]


@pytest.mark.parametrize(
    ("newest", "transaction_version", "version"), [(20, None, 12), (9, None, 9), (20, 2, 12), (20, 0, 11), (8, 0, 8)]
)
def test_the_version_of_requests(newest: int, transaction_version: int | None, version: int) -> None:
    """With version 12, a broker adds partitions to a transaction itself."""
    settings: dict[str, Any] = {} if transaction_version is None else {"transaction_version": transaction_version}
    with ProducerCluster(newest_versions={"Produce": newest}, **settings) as cluster:
        assigned_id = None if transaction_version is None else cluster.transactional_id()
        producer = cluster.producer(assigned_id, add_partitions=None if transaction_version else lambda _: None)
        producer.send("t", batch())
        cluster.sleep(1)
        (request,) = (each for each in cluster.requests if each.api == "Produce")
        assert request.version == version
        transactional_id = assigned_id and assigned_id.transactional_id
        values = request.values
        assert (values.acks, values.timeout_ms, values.transactional_id) == (-1, 30_000, transactional_id)
        producer.close()


@pytest.mark.parametrize(("newest", "is_supported"), [(6, False), (7, True)])
def test_zstd_is_rejected_for_old_brokers(newest: int, is_supported: bool) -> None:
    with ProducerCluster(newest_versions={"Produce": newest}) as cluster:
        if is_supported:
            assert cluster.write(codec="zstd")
            return
        for connects in (2, 2):  # one finds the brokers; the other is released, and used again
            with pytest.raises(UnsupportedBrokerError, match=r"zstd, which requires Kafka 2\.1.*compression\.type"):
                cluster.write(codec="zstd")
            assert cluster.network.connect_count == connects


@pytest.mark.parametrize("acks", [-1, 0])
def test_the_connection_of_a_closed_producer_is_used_again(cluster: ProducerCluster, acks: int) -> None:
    """If no response is due."""
    cluster.write(acks=acks)
    connects = cluster.network.connect_count
    for _ in range(2):
        cluster.write(acks=acks)
    assert cluster.network.connect_count == connects


def test_the_error_of_a_rejected_batch_names_the_record(cluster: ProducerCluster) -> None:
    def reject(_: int, response: dict[str, Any]) -> dict[str, Any]:
        response["responses"][0]["partition_responses"][0] |= {
            "error_code": 87,
            "record_errors": [{"batch_index": 3, "batch_index_error_message": None}],
            "error_message": "no key",
        }
        return response

    cluster.change("Produce", reject)
    with pytest.raises(InvalidRecordError, match="record 4 of a batch of 10, which has no key: INVALID_RECORD: no key"):
        cluster.write()


@pytest.mark.parametrize(
    ("answered", "missing"),
    [((0, 1), 2), ((0, 2), 1), ((1, 2), 0), ((), 0), ((0, 1, 2, 3), 0)],
    ids=["last", "middle", "first", "all", "none"],
)
def test_a_response_for_other_partitions_is_an_error_that_names_one(
    cluster: ProducerCluster, answered: tuple[int, ...], missing: int
) -> None:
    def leave_out(_: int, response: dict[str, Any]) -> dict[str, Any]:
        (topic,) = response["responses"]
        template = topic["partition_responses"][0]
        topic["partition_responses"] = [{**template, "index": number} for number in answered]
        return response if answered else {**response, "responses": []}

    cluster.change("Produce", leave_out)
    producer = cluster.producer()
    for number in range(3):
        producer.send("t", encoded(number, 0, 1), more_follows=True)
    with pytest.raises(ProtocolError, match="does not have the partitions of the request") as caught:
        producer.flush()
    assert TopicPartition(*PARTITION)._replace(partition=missing) == (caught.value.topic, caught.value.partition)
    assert caught.value.broker == "broker-1:9092"
    assert cluster.open_connections == 1, "the one that found the brokers"
