"""A broker that responds by a script, on its own port: responses that a real broker sends only at rare moments."""

from __future__ import annotations

import socketserver
import struct
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Self
from uuid import UUID

from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataRequest, MetadataResponse

from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.options.settings import ConnectionSettings

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
TOPIC_ID = UUID(int=7)
VERSIONS = {1: (4, 17), 2: (1, 11), 3: (0, 13), 8: (2, 9), 9: (1, 7), 10: (0, 3), 18: (0, 4)}


class FakeBroker:
    """Listens on its own port, returns leaders and offsets, and counts its requests."""

    def __init__(self) -> None:
        self.replicas = [1, 2]
        self.request_counts: Counter[str] = Counter()
        self.connections = 0
        self.leaders: list[tuple[int, FakeBroker]] = [(1, self)]
        self.epoch = 5
        self.partition_count = 1
        self.failing_topics: list[tuple[str, int, bool]] = []  # among all topics: name, error code, is internal
        self.topic_id = TOPIC_ID
        self.topic_error: Callable[[], int] = lambda: 0
        self.error: Callable[[], int] = lambda: 0
        self.offsets: Callable[[int], tuple[int, int]] = lambda _: (0, 42)
        self.committed = 7
        self.committed_epoch = -1
        self.start: int | None = None  # log start offset, by default the end
        self.stable: int | None = None  # last stable offset, by default the end
        self.commit_error: Callable[[], int] = lambda: 0
        self.omits_partitions = False
        self.frozen = False  # if set, it accepts requests without a response, as a stopped process
        # Replaces the socket of a new connection, for example by TLS, or ends it.
        self.on_connect: Callable[[socket.socket], socket.socket] = lambda sock: sock
        broker = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                broker.connections += 1
                with broker.on_connect(self.request) as sock:  # a TLS socket replaces the plain one
                    broker._serve(sock)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_: object) -> None:
                """Ignore clients that close the connection."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.frozen = False
        self._server.shutdown()
        self._server.server_close()

    @property
    def settings(self) -> ConnectionSettings:
        return ConnectionSettings(
            (("127.0.0.1", self.port),), retry_backoff_ms=1, retry_backoff_max_ms=5, default_api_timeout_ms=120_000
        )

    def _serve(self, sock: socket.socket) -> None:
        while prefix := sock.recv(4):
            size = struct.unpack(">i", prefix)[0]
            body = b""
            while len(body) < size:
                body += sock.recv(size - len(body))
            while self.frozen:
                time.sleep(0.01)
            api_key, version, correlation_id = struct.unpack_from(">hhi", body)
            response = {
                2: self._list_offsets,
                3: self._metadata,
                8: self._commit,
                9: self._committed,
                10: self._coordinator,
                18: self._versions,
            }[api_key](version, body)
            response.with_header(correlation_id=correlation_id)
            sock.sendall(response.encode(header=True, framed=True))

    def _versions(self, version: int, _: bytes) -> ApiVersionsResponse:
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=a, max_version=b)
            for key, (a, b) in VERSIONS.items()
        ]
        return ApiVersionsResponse(version=version, error_code=0, api_keys=keys, throttle_time_ms=0)

    def _metadata(self, version: int, body: bytes) -> MetadataResponse:
        self.request_counts["Metadata"] += 1
        request = MetadataRequest.decode(body, version=version, header=True)
        assert request.allow_auto_topic_creation is False
        leader, _ = self.leaders[0]
        partitions = [
            MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=leader,
                leader_epoch=self.epoch,
                replica_nodes=self.replicas,
                isr_nodes=[1],
                offline_replicas=[],
            )
            for index in range(self.partition_count)
        ]
        topic = MetadataResponse.MetadataResponseTopic(
            error_code=self.topic_error(), name=TOPIC, topic_id=self.topic_id, is_internal=False, partitions=partitions
        )
        failing_topics = [
            MetadataResponse.MetadataResponseTopic(
                error_code=code, name=name, topic_id=UUID(int=0), is_internal=internal, partitions=[]
            )
            for name, code, internal in self.failing_topics
            if request.topics is None
        ]
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
            topics=[topic, *failing_topics],
            error_code=self.error(),
        )

    def _list_offsets(self, version: int, body: bytes) -> ListOffsetsResponse:
        self.request_counts["ListOffsets"] += 1
        request = ListOffsetsRequest.decode(body, version=version, header=True)
        (requested,) = request.topics[0].partitions
        code, offset = self.offsets(requested.current_leader_epoch)
        if requested.timestamp == EARLIEST and self.start is not None:
            offset = self.start
        if request.isolation_level == 1 and requested.timestamp == LATEST and self.stable is not None:
            offset = self.stable
        topic_class = ListOffsetsResponse.ListOffsetsTopicResponse
        partition_response = topic_class.ListOffsetsPartitionResponse(
            partition_index=0, error_code=code, timestamp=-1, offset=offset, leader_epoch=self.epoch
        )
        topics = [] if self.omits_partitions else [topic_class(name=TOPIC, partitions=[partition_response])]
        return ListOffsetsResponse(version=version, throttle_time_ms=0, topics=topics)

    def _coordinator(self, version: int, _: bytes) -> FindCoordinatorResponse:
        self.request_counts["FindCoordinator"] += 1
        number, broker = self.leaders[0]
        return FindCoordinatorResponse(
            version=version, error_code=0, node_id=number, host="127.0.0.1", port=broker.port, throttle_time_ms=0
        )

    def _committed(self, version: int, _: bytes) -> OffsetFetchResponse:
        self.request_counts["OffsetFetch"] += 1
        topic = OffsetFetchResponse.OffsetFetchResponseTopic
        partition_response = topic.OffsetFetchResponsePartition(
            partition_index=0,
            committed_offset=self.committed,
            committed_leader_epoch=self.committed_epoch,
            metadata="",
            error_code=0,
        )
        topics = [] if self.omits_partitions else [topic(name=TOPIC, partitions=[partition_response])]
        return OffsetFetchResponse(version=version, error_code=0, topics=topics)

    def _commit(self, version: int, body: bytes) -> OffsetCommitResponse:
        self.request_counts["OffsetCommit"] += 1
        request = OffsetCommitRequest.decode(body, version=version, header=True)
        self.committed_epoch = request.topics[0].partitions[0].committed_leader_epoch
        topic = OffsetCommitResponse.OffsetCommitResponseTopic
        partition_response = topic.OffsetCommitResponsePartition(partition_index=0, error_code=self.commit_error())
        topics = [] if self.omits_partitions else [topic(name=TOPIC, partitions=[partition_response])]
        return OffsetCommitResponse(version=version, topics=topics)


def error_sequence(*codes: int, finally_: int = 0) -> Callable[[], int]:
    """Return these codes one after the other, then the last one forever."""
    remaining = list(codes)
    return lambda: remaining.pop(0) if remaining else finally_
