"""A cluster that answers by a script: error codes and metadata that a real broker gives only at rare moments."""

from __future__ import annotations

import socketserver
import struct
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse

from pyspark_kafka_direct.errors import (
    BrokerUnreachableError,
    ProtocolError,
    TopicNotFoundError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.wire.metadata import PartitionMetadata, TopicMetadata, newest
from pyspark_kafka_direct.wire.pool import POOL
from pyspark_kafka_direct.wire.settings import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
TOPIC_ID = UUID(int=7)
VERSIONS = {1: (4, 17), 2: (1, 11), 3: (0, 13), 18: (0, 4)}


class Broker:
    """Listens on a port of its own; says who leads and where offsets are, and counts what it was asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.leaders: list[tuple[int, Broker]] = [(1, self)]
        self.epoch = 5
        self.topic_error: Callable[[], int] = lambda: 0
        self.error: Callable[[], int] = lambda: 0
        self.offsets: Callable[[int], tuple[int, int]] = lambda _: (0, 42)
        self.forgetful = False
        broker = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                broker._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_: object) -> None:
                """Nobody's concern: clients hang up."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def settings(self) -> ConnectionSettings:
        return ConnectionSettings(
            (("127.0.0.1", self.port),), retry_backoff_ms=1, retry_backoff_max_ms=5, default_api_timeout_ms=20_000
        )

    def _serve(self, sock: Any) -> None:
        while prefix := sock.recv(4):
            size = struct.unpack(">i", prefix)[0]
            body = b""
            while len(body) < size:
                body += sock.recv(size - len(body))
            api_key, version, correlation_id = struct.unpack_from(">hhi", body)
            response = {3: self._metadata, 2: self._list_offsets, 18: self._versions}[api_key](version, body)
            response.with_header(correlation_id=correlation_id)
            sock.sendall(response.encode(header=True, framed=True))

    def _versions(self, version: int, _: bytes) -> ApiVersionsResponse:
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=a, max_version=b)
            for key, (a, b) in VERSIONS.items()
        ]
        return ApiVersionsResponse(version=version, error_code=0, api_keys=keys, throttle_time_ms=0)

    def _metadata(self, version: int, body: bytes) -> MetadataResponse:
        self.asked["Metadata"] += 1
        request = MetadataRequest.decode(body, version=version, header=True)
        assert request.allow_auto_topic_creation is False
        leader, _ = self.leaders[0]
        partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=leader,
            leader_epoch=self.epoch,
            replica_nodes=[1, 2],
            isr_nodes=[1],
            offline_replicas=[],
        )
        topic = MetadataResponse.MetadataResponseTopic(
            error_code=self.topic_error(), name=TOPIC, topic_id=TOPIC_ID, is_internal=False, partitions=[partition]
        )
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=number, host="127.0.0.1", port=broker.port, rack=None)
            for number, broker in self.leaders
        ]
        return MetadataResponse(
            version=version,
            throttle_time_ms=0,
            brokers=brokers,
            cluster_id="c",
            controller_id=1,
            topics=[topic],
            error_code=self.error(),
        )

    def _list_offsets(self, version: int, body: bytes) -> ListOffsetsResponse:
        self.asked["ListOffsets"] += 1
        request = ListOffsetsRequest.decode(body, version=version, header=True)
        (asked,) = request.topics[0].partitions
        code, offset = self.offsets(asked.current_leader_epoch)
        topic_class = ListOffsetsResponse.ListOffsetsTopicResponse
        answer = topic_class.ListOffsetsPartitionResponse(
            partition_index=0, error_code=code, timestamp=-1, offset=offset, leader_epoch=self.epoch
        )
        topics = [] if self.forgetful else [topic_class(name=TOPIC, partitions=[answer])]
        return ListOffsetsResponse(version=version, throttle_time_ms=0, topics=topics)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
    POOL.close()


@pytest.fixture
def other() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def then(*codes: int, finally_: int = 0) -> Callable[[], int]:
    """Gives these codes one after the other, then the last for ever."""
    left = list(codes)
    return lambda: left.pop(0) if left else finally_


def latest(cluster: Cluster) -> int:
    return cluster.offsets({PARTITION: LATEST})[PARTITION]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_passing_errors_of_a_partition_are_retried_with_fresh_metadata(broker: Broker, code: int) -> None:
    codes = then(code, code)
    broker.offsets = lambda _: (codes(), 42)
    assert latest(Cluster(broker.settings)) == 42
    assert broker.asked == {"Metadata": 3, "ListOffsets": 3}


def test_lasting_errors_of_a_partition_are_not_retried(broker: Broker) -> None:
    broker.offsets = lambda _: (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1)
    with pytest.raises(UnsupportedBrokerError, match="read it by offsets") as caught:
        latest(Cluster(broker.settings))
    assert (caught.value.topic, caught.value.partition) == PARTITION
    assert caught.value.broker == f"127.0.0.1:{broker.port}"
    assert broker.asked["ListOffsets"] == 1


def test_passing_errors_that_last_are_given_up_after_the_retries(broker: Broker) -> None:
    broker.offsets = lambda _: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    with pytest.raises(BrokerUnreachableError, match="NOT_LEADER_OR_FOLLOWER while listing offsets"):
        latest(Cluster(broker.settings, retries=2))
    assert broker.asked["ListOffsets"] == 3


def test_passing_errors_that_last_are_given_up_at_the_deadline(broker: Broker) -> None:
    broker.offsets = lambda _: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    started = time.monotonic()
    with pytest.raises(TopicNotFoundError):  # which takes a first answer within that time
        latest(Cluster(replace(broker.settings, default_api_timeout_ms=2000)))
    assert time.monotonic() - started < 30


def test_the_new_leader_is_asked_after_a_move(broker: Broker, other: Broker) -> None:
    other.offsets = lambda epoch: (0 if epoch == 6 else ErrorCode.UNKNOWN_LEADER_EPOCH, 99)
    cluster = Cluster(broker.settings)
    assert latest(cluster) == 42
    broker.leaders = [(2, other), (1, broker)]
    broker.offsets = lambda _: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    broker.epoch = 6
    assert latest(cluster) == 99


def test_a_dead_leader_is_replaced(broker: Broker) -> None:
    with Broker() as doomed:
        broker.leaders = [(2, doomed), (1, broker)]
        cluster = Cluster(broker.settings)
        assert latest(cluster) == 42
    POOL.close()
    elected = then(2, 2, finally_=1)
    seen: list[int] = []

    def error() -> int:
        seen.append(elected())
        broker.leaders.sort(key=lambda entry: entry[0] != seen[-1])
        return 0

    broker.error = error
    assert latest(cluster) == 42
    assert broker.asked["ListOffsets"] == 1


def test_a_leader_out_of_reach_is_explained_by_its_advertised_address(broker: Broker) -> None:
    with Broker() as gone:
        pass
    broker.leaders = [(2, gone), (1, broker)]
    with pytest.raises(BrokerUnreachableError, match=r"broker 2 advertises \(its advertised\.listeners\)") as caught:
        latest(Cluster(broker.settings, retries=0))
    assert caught.value.broker == f"127.0.0.1:{gone.port}"


def test_a_partition_left_out_of_the_answer_is_an_error(broker: Broker) -> None:
    broker.forgetful = True
    with pytest.raises(ProtocolError, match="lacks a partition") as caught:
        latest(Cluster(broker.settings))
    assert (caught.value.topic, caught.value.partition) == PARTITION


def test_a_topic_whose_leader_is_being_elected_is_asked_for_again(broker: Broker) -> None:
    broker.topic_error = then(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE)
    assert TOPIC in Cluster(broker.settings).topics([TOPIC])
    assert broker.asked["Metadata"] == 3


def test_brokers_that_belong_to_the_past_are_forgotten(broker: Broker, other: Broker) -> None:
    # The known broker says that it is history (KIP-1102): the bootstrap servers are asked instead.
    broker.leaders = [(2, other)]
    other.error = lambda: ErrorCode.REBOOTSTRAP_REQUIRED
    cluster = Cluster(broker.settings)
    cluster.topics([TOPIC])
    assert set(cluster.nodes) == {2}
    broker.leaders = [(1, broker)]
    cluster.topics([TOPIC])
    assert other.asked["Metadata"] == 1
    assert set(cluster.nodes) == {1}


def test_a_broker_that_lags_behind_is_not_believed(broker: Broker, other: Broker) -> None:
    cluster = Cluster(broker.settings)
    assert cluster.partition(PARTITION).leader_epoch == 5
    for each in (broker, other):
        each.epoch, each.leaders = 4, [(2, other), (1, broker)]
    assert cluster.topics([TOPIC])[TOPIC].partitions[0] == PartitionMetadata(0, 1, 5, (1, 2), (1,))
    assert cluster.leader(PARTITION).id == 1
    broker.epoch = other.epoch = 6
    assert cluster.topics([TOPIC])[TOPIC].partitions[0].leader == 2


def test_another_broker_answers_when_one_is_doubted(broker: Broker, other: Broker) -> None:
    broker.leaders = other.leaders = [(1, broker), (2, other)]
    cluster = Cluster(broker.settings)
    cluster.topics([TOPIC])
    answered = []
    for _ in range(4):
        before = broker.asked["Metadata"]
        cluster.topics([TOPIC])
        cluster.topics([TOPIC])
        answered.append(broker.asked["Metadata"] - before)
        cluster.ask_another()
    assert sorted(answered[:2]) == [0, 2], "the same broker, until it is doubted"
    assert answered[2:] == answered[:2], "and then in turn"


def test_of_each_partition_the_highest_epoch_counts() -> None:
    def topic(topic_id: UUID, *epochs: int) -> TopicMetadata:
        return TopicMetadata(
            TOPIC, topic_id, False, {number: PartitionMetadata(number, 1, epoch) for number, epoch in enumerate(epochs)}
        )

    def epochs(metadata: TopicMetadata) -> list[int]:
        return [partition.leader_epoch for partition in metadata.partitions.values()]

    assert epochs(newest(None, topic(TOPIC_ID, 1, 2))) == [1, 2]
    assert epochs(newest(topic(TOPIC_ID, 3, 1), topic(TOPIC_ID, 2, 2))) == [3, 2]
    assert epochs(newest(topic(TOPIC_ID, 3), topic(TOPIC_ID, 2, 2))) == [3, 2]
    assert epochs(newest(topic(TOPIC_ID, 3, 9), topic(TOPIC_ID, 4))) == [4]
    assert epochs(newest(topic(TOPIC_ID, 9), topic(UUID(int=8), 0))) == [0]  # created anew: epochs begin again
