"""Produce requests: what is sent without a copy, which version, and answers that do not fit."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.producer import ProduceRequest
from tests.unit.wire.message_values import plain

from pyspark_kafka_direct.errors import ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire import messages
from pyspark_kafka_direct.wire._versions import intersect
from pyspark_kafka_direct.wire.connection import _joined
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.messages import PRODUCE
from pyspark_kafka_direct.wire.messages._writing import writer
from pyspark_kafka_direct.wire.produce import ProduceChannel, ProducedPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

SOON = Deadline.after(3600)  # counted from the start of all tests
ONE, TWO, OTHER = TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 1)


class Line:
    """A connection that keeps what it is given, and answers what it is told."""

    broker = "there:9092"

    def __init__(self, highest: int = 20) -> None:
        self.api_versions = {0: (0, highest)}
        self.sent: list[tuple[int, bool, list[bytes | bytearray]]] = []
        self.answers: deque[dict[str, Any]] = deque()
        self.closed = False

    def version(self, api: messages.Api) -> int:
        return intersect(api.key, api.name, api.versions, self.api_versions, self.broker)

    def submit(
        self, api: messages.Api, values: Mapping[str, Any], deadline: Deadline, *, version: int, answered: bool
    ) -> None:
        self.sent.append((version, answered, messages.encode_parts(api, version, 7, b"me", values)))

    def complete(self, api: messages.Api, deadline: Deadline, *, version: int) -> Any:
        body = bytearray()
        writer(api.response, version, flexible=version >= 9)(body, self.answers.popleft())
        return messages.decode(api, version, (b"\0" if version >= 9 else b"") + bytes(body))

    def close(self) -> None:
        self.closed = True


def channel(line: Line, **more: Any) -> ProduceChannel:
    return ProduceChannel(line, **{"acks": -1, "timeout_ms": 1000, **more})  # type: ignore[arg-type]


def said(partition: int = 1, **more: Any) -> dict[str, Any]:
    return {"index": partition, "error_code": 0, "base_offset": 5, **more}


def test_records_are_sent_from_where_they_are() -> None:
    line, records = Line(), bytearray(b"x" * 50_000)
    channel(line).request({ONE: records, OTHER: b"small", TWO: b"second"}, SOON)
    ((version, answered, parts),) = line.sent
    assert (version, answered) == (12, True)
    assert parts[1] is records
    assert any(part is records for part in _joined(parts))
    assert len(list(_joined(parts))) == 3
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    theirs = ProduceRequest.decode(frame[4:], version=12, header=True)
    assert [
        (each.name, [(one.index, bytes(one.records)) for one in each.partition_data]) for each in theirs.topic_data
    ] == [
        ("a", [(1, bytes(records)), (2, b"second")]),
        ("b", [(1, b"small")]),
    ]
    assert (theirs.acks, theirs.timeout_ms, theirs.transactional_id) == (-1, 1000, None)


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
    assert channel(Line(highest), **more).version == version


def test_old_brokers_take_no_zstd() -> None:
    with pytest.raises(UnsupportedBrokerError, match=r"2\.1.*compression\.type"):
        channel(Line(6), zstd=True)


def test_without_acknowledgement_there_is_no_answer() -> None:
    line = Line()
    sender = channel(line, acks=0)
    sender.request({ONE: b"x"}, SOON)
    assert line.sent[0][1] is False
    assert sender.under_way == 0


def test_the_answer_is_told_by_partition() -> None:
    line = Line()
    sender = channel(line)
    sender.request({ONE: b"x", TWO: b"y", OTHER: b"z"}, SOON)
    refused = said(
        2,
        error_code=87,
        record_errors=[{"batch_index": 3, "batch_index_error_message": "no key"}],
        error_message="one record",
    )
    moved = said(1, error_code=6, current_leader={"leader_id": 4, "leader_epoch": 9})
    line.answers.append(
        {
            "responses": [
                {"name": "a", "partition_responses": [said(1, log_append_time_ms=8, log_start_offset=2), refused]},
                {"name": "b", "partition_responses": [moved]},
            ],
            "throttle_time_ms": 30,
        }
    )
    assert sender.under_way == 1
    assert sender.response(SOON) == (
        {
            ONE: ProducedPartition(0, 5, 8, 2),
            TWO: ProducedPartition(87, -1, -1, -1, ((3, "no key"),), "one record"),
            OTHER: ProducedPartition(6, -1, -1, -1, (), None, 4, 9),
        },
        30,
    )
    assert sender.under_way == 0


@pytest.mark.parametrize("answered", [[], [1, 2], [2]])
def test_an_answer_about_other_partitions_is_none(answered: list[int]) -> None:
    line = Line()
    sender = channel(line)
    sender.request({ONE: b"x"}, SOON)
    topics = [{"name": "a", "partition_responses": [said(number) for number in answered]}]
    line.answers.append({"responses": topics if answered else []})
    with pytest.raises(ProtocolError, match="not about the partitions") as caught:
        sender.response(SOON)
    assert caught.value.topic == "a"
    assert line.closed


@pytest.mark.parametrize(("version", "sent"), [(9, False), (10, True)])
def test_the_leader_is_told_from_version_10_on(version: int, sent: bool) -> None:
    body = bytearray()
    answer = said(error_code=6, current_leader={"leader_id": 4, "leader_epoch": 9})
    writer(PRODUCE.response, version, flexible=True)(
        body, {"responses": [{"name": "a", "partition_responses": [answer]}]}
    )
    decoded = messages.decode(PRODUCE, version, b"\0" + bytes(body))
    leader = plain(decoded.responses[0].partition_responses[0].current_leader)
    assert leader == ({"leader_id": 4, "leader_epoch": 9} if sent else {"leader_id": -1, "leader_epoch": -1})
