"""Over real sockets: a broker that returns no records while it fetches old ones from slow storage."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from tests.settings import task_settings
from tests.unit.client.fake_broker import TOPIC, TOPIC_ID, FakeBroker
from tests.unit.records.batches import Batch, Rec

from pyspark_kafka_direct.consumer.fetcher import read_range
from pyspark_kafka_direct.consumer.range_task import RangeTask, ReadCounts
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.settings import FetchSettings

if TYPE_CHECKING:
    import socket

Topic = FetchResponse.FetchableTopicResponse
RECORDS = Batch(tuple(Rec(b"%d" % number) for number in range(10))).encode()


class SlowBroker(FakeBroker):
    """Has ten records, and returns them after some empty responses."""

    def __init__(self, empty_responses: int) -> None:
        super().__init__()
        self.offsets = lambda _: (0, 0)  # its local log start does not show tiered storage
        self._empty_responses = empty_responses

    def _serve(self, sock: socket.socket) -> None:
        with sock.makefile("rb") as requests:
            while prefix := requests.read(4):
                body = requests.read(struct.unpack(">i", prefix)[0])
                api_key, version, correlation_id = struct.unpack_from(">hhi", body)
                handlers = {1: self._fetch, 2: self._list_offsets, 3: self._metadata, 18: self._versions}
                response = handlers[api_key](version, body)
                response.with_header(correlation_id=correlation_id)
                sock.sendall(response.encode(header=True, framed=True))

    def _fetch(self, version: int, body: bytes) -> Any:
        (requested,) = FetchRequest.decode(body, version=version, header=True).topics[0].partitions
        assert requested.fetch_offset == 0
        self._empty_responses -= 1
        partition = Topic.PartitionData(
            version=version,
            partition_index=0,
            error_code=0,
            high_watermark=10,
            last_stable_offset=10,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=b"" if self._empty_responses >= 0 else RECORDS,
        )
        topic = Topic(version=version, topic=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
        return FetchResponse(version=version, throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])


@pytest.mark.parametrize("empty_responses", [0, 2, 5])
def test_late_records_are_read(empty_responses: int) -> None:
    counts = ReadCounts()
    with SlowBroker(empty_responses) as broker:
        config, task = (
            task_settings(broker.settings, FetchSettings()),
            RangeTask(OffsetRange(TOPIC, 0, 0, 10), TOPIC_ID),
        )
        batches = read_range(*config, task, ("value",), counts)
        rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{"value": b"%d" % number} for number in range(10)]
    assert (counts.gaps, counts.retries, counts.lost) == (0, empty_responses, 0)
