"""Produce requests: records sent without a copy, version negotiation, and responses that do not match."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.producer import ProduceRequest
from tests.unit.protocol.message_values import plain

from pyspark_kafka_direct.client.api_versions import negotiate_version
from pyspark_kafka_direct.client.connection import _coalesce
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.produce_channel import PartitionProduceResponse, ProduceChannel
from pyspark_kafka_direct.protocol import messages
from pyspark_kafka_direct.protocol.codec import compile_writer
from pyspark_kafka_direct.protocol.messages import PRODUCE

if TYPE_CHECKING:
    from collections.abc import Mapping

SOON = Deadline.after(3600)  # counted from the start of all tests
ONE, TWO, OTHER = TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 1)


class FakeConnection:
    """A connection that records requests and returns given responses."""

    broker = "there:9092"

    def __init__(self, highest: int = 20) -> None:
        self.api_versions = {0: (0, highest)}
        self.sent: list[tuple[int, bool, list[bytes | bytearray | memoryview]]] = []
        self.responses: deque[dict[str, Any]] = deque()
        self.closed = False

    def version(self, api: messages.ApiMessageType) -> int:
        return negotiate_version(api.key, api.name, api.versions, self.api_versions, self.broker)

    def submit(
        self,
        api: messages.ApiMessageType,
        values: Mapping[str, Any],
        deadline: Deadline,
        *,
        version: int,
        expects_response: bool,
    ) -> None:
        self.sent.append((version, expects_response, messages.encode_parts(api, version, 7, b"me", values)))

    def complete(self, api: messages.ApiMessageType, deadline: Deadline, *, version: int) -> Any:
        body = bytearray()
        compile_writer(api.response, version, flexible=version >= 9)(body, self.responses.popleft())
        return messages.decode(api, version, (b"\0" if version >= 9 else b"") + bytes(body))

    def close(self) -> None:
        self.closed = True


def channel(connection: FakeConnection, **more: Any) -> ProduceChannel:
    return ProduceChannel(connection, **{"acks": -1, "timeout_ms": 1000, **more})  # type: ignore[arg-type]


def partition_response(partition: int = 1, **more: Any) -> dict[str, Any]:
    return {"index": partition, "error_code": 0, "base_offset": 5, **more}


def test_records_are_sent_without_copy() -> None:
    connection, records = FakeConnection(), bytearray(b"x" * 50_000)
    channel(connection).request({ONE: records, OTHER: b"small", TWO: b"second"}, SOON)
    ((version, expects_response, parts),) = connection.sent
    assert (version, expects_response) == (12, True)
    assert parts[1] is records
    assert any(part is records for part in _coalesce(parts))
    assert len(list(_coalesce(parts))) == 3
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    decoded_request = ProduceRequest.decode(frame[4:], version=12, header=True)
    assert [
        (each.name, [(partition.index, bytes(partition.records)) for partition in each.partition_data])
        for each in decoded_request.topic_data
    ] == [
        ("a", [(1, bytes(records)), (2, b"second")]),
        ("b", [(1, b"small")]),
    ]
    assert (decoded_request.acks, decoded_request.timeout_ms, decoded_request.transactional_id) == (-1, 1000, None)


@pytest.mark.parametrize(
    ("highest", "more", "version"),
    [
        (20, {}, 12),
        (9, {}, 9),
        (20, {"transactional_id": "t"}, 12),
        (20, {"transactional_id": "t", "adds_partitions": False}, 11),
        (20, {"adds_partitions": False}, 12),
        (8, {"transactional_id": "t", "adds_partitions": False}, 8),
        (7, {"zstd": True}, 7),
    ],
)
def test_version(highest: int, more: dict[str, Any], version: int) -> None:
    assert channel(FakeConnection(highest), **more).version == version


def test_zstd_is_rejected_for_old_brokers() -> None:
    with pytest.raises(UnsupportedBrokerError, match=r"2\.1.*compression\.type"):
        channel(FakeConnection(6), zstd=True)


def test_acks_0_expects_no_response() -> None:
    connection = FakeConnection()
    produce_channel = channel(connection, acks=0)
    produce_channel.request({ONE: b"x"}, SOON)
    assert connection.sent[0][1] is False
    assert produce_channel.in_flight == 0


def test_response_is_returned_by_partition() -> None:
    connection = FakeConnection()
    produce_channel = channel(connection)
    produce_channel.request({ONE: b"x", TWO: b"y", OTHER: b"z"}, SOON)
    rejected = partition_response(
        2,
        error_code=87,
        record_errors=[{"batch_index": 3, "batch_index_error_message": "no key"}],
        error_message="one record",
    )
    moved = partition_response(1, error_code=6, current_leader={"leader_id": 4, "leader_epoch": 9})
    connection.responses.append(
        {
            "responses": [
                {
                    "name": "a",
                    "partition_responses": [partition_response(1, log_append_time_ms=8, log_start_offset=2), rejected],
                },
                {"name": "b", "partition_responses": [moved]},
            ],
            "throttle_time_ms": 30,
        }
    )
    assert produce_channel.in_flight == 1
    assert produce_channel.response(SOON) == (
        {
            ONE: PartitionProduceResponse(0, 5, 8, 2),
            TWO: PartitionProduceResponse(87, -1, -1, -1, ((3, "no key"),), "one record"),
            OTHER: PartitionProduceResponse(6, -1, -1, -1, (), None, 4, 9),
        },
        30,
    )
    assert produce_channel.in_flight == 0


@pytest.mark.parametrize("partitions", [[], [1, 2], [2]])
def test_response_for_other_partitions_raises(partitions: list[int]) -> None:
    connection = FakeConnection()
    produce_channel = channel(connection)
    produce_channel.request({ONE: b"x"}, SOON)
    topics = [{"name": "a", "partition_responses": [partition_response(number) for number in partitions]}]
    connection.responses.append({"responses": topics if partitions else []})
    with pytest.raises(ProtocolError, match="does not have the partitions of the request") as caught:
        produce_channel.response(SOON)
    assert caught.value.topic == "a"
    assert connection.closed


@pytest.mark.parametrize(("version", "sent"), [(9, False), (10, True)])
def test_leader_is_returned_from_version_10_on(version: int, sent: bool) -> None:
    body = bytearray()
    response = partition_response(error_code=6, current_leader={"leader_id": 4, "leader_epoch": 9})
    compile_writer(PRODUCE.response, version, flexible=True)(
        body, {"responses": [{"name": "a", "partition_responses": [response]}]}
    )
    decoded = messages.decode(PRODUCE, version, b"\0" + bytes(body))
    leader = plain(decoded.responses[0].partition_responses[0].current_leader)
    assert leader == ({"leader_id": 4, "leader_epoch": 9} if sent else {"leader_id": -1, "leader_epoch": -1})


def test_the_error_names_the_partition_without_a_response() -> None:
    for requested, missing in (([ONE, TWO, OTHER], OTHER), ([OTHER, ONE, TWO], OTHER), ([ONE, OTHER, TWO], TWO)):
        connection = FakeConnection()
        produce_channel = channel(connection)
        produce_channel.request(dict.fromkeys(requested, b"x"), SOON)
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, partition in requested:
            if (topic, partition) != missing:
                topics.setdefault(topic, []).append(partition_response(partition))
        responses = [{"name": topic, "partition_responses": each} for topic, each in topics.items()]
        connection.responses.append({"responses": responses})
        with pytest.raises(ProtocolError) as caught:
            produce_channel.response(SOON)
        assert (caught.value.topic, caught.value.partition) == missing
        assert caught.value.broker == connection.broker
