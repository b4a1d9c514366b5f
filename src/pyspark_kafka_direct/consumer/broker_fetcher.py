"""The connection of a ``PartitionConsumer`` to one broker, and the fetch request in flight on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.client.deadline import Backoff, Deadline
from pyspark_kafka_direct.consumer.fetch_channel import UNKNOWN_EPOCH, FetchChannel, FetchRequestPartition
from pyspark_kafka_direct.errors import BrokerTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.metadata import Node
    from pyspark_kafka_direct.consumer.fetch_channel import FetchResponseData
    from pyspark_kafka_direct.consumer.partition_state import TopicPartitionState
    from pyspark_kafka_direct.options.settings import FetchSettings

_REQUEST_TIMEOUT_OPTION = "kafka.request.timeout.ms"

# A response that arrives within this share of fetch.max.wait.ms did not wait for records. After several such responses
# without records, fetches back off. Kafka responds at once while an offset lies between the last stable offset and the
# high watermark.
_IMMEDIATE_SHARE = 0.1
_BACKOFF = Backoff(0.01, 0.5)


class InFlightFetch(NamedTuple):
    """One partition of the fetch request in flight."""

    partition: TopicPartitionState
    offset: int
    seek_count: int  # of the partition when the request was sent, as the offset and the leader epoch
    leader_epoch: int
    sent_last_epoch: bool  # whether the request contains the last fetched epoch (KIP-320)
    sent_at: float  # monotonic

    @property
    def is_stale(self) -> bool:
        """Whether the response is useless: the position moved, or earlier records are still to be returned.

        Or metadata have another leader epoch meanwhile: the next fetch has to ask whether its log has what was read.
        """
        partition = self.partition
        return (
            partition.seek_count != self.seek_count
            or partition.leader_epoch != self.leader_epoch
            or partition.reader.fetch_offset != self.offset
            or not partition.drained
        )


class BrokerFetcher:
    """Fetches the partitions that one broker leads."""

    def __init__(self, cluster: ClusterClient, node: Node, fetch: FetchSettings) -> None:
        self.node = node
        # An ordered set: a broker fills its response in this order, so the partitions that waited longest come first.
        self.partitions: dict[TopicPartitionState, None] = {}
        self.connecting = False  # whether a background task is connecting
        self.next_fetch_at = 0.0  # later than now after empty responses in a row
        self._cluster = cluster
        self._system = cluster.pool.system
        # The broker must wait for at least one byte, or fetches would busy-loop.
        self._fetch = replace(fetch, fetch_min_bytes=max(fetch.fetch_min_bytes, 1))
        self._request_timeout = cluster.settings.request_timeout_ms / 1000
        self._throttled_until = 0.0  # the quota delays the response until then, so its deadline is extended
        self._empty_responses = 0  # in a row, without a wait at the broker
        self._sent_at = 0.0
        self._last_activity = 0.0  # when bytes were last sent or received
        self.received_at = 0.0  # when the last response was complete
        self._channel: FetchChannel | None = None
        self._in_flight: list[InFlightFetch] = []

    @property
    def connected(self) -> bool:
        return self._channel is not None

    @property
    def idle(self) -> bool:
        """Whether no fetch is in flight."""
        return not self._in_flight

    @property
    def connection(self) -> Connection:
        assert self._channel is not None
        return self._channel.connection

    @property
    def has_undelivered_rows(self) -> bool:
        """Whether ``poll`` still has to return rows of the last response."""
        return any(not partition.drained for partition in self.partitions)

    @property
    def response_deadline(self) -> float:
        """The time at which the fetch in flight times out, unless more bytes of the response arrive."""
        return max(self._last_activity, self._throttled_until) + self._request_timeout

    def attach(self, connection: Connection) -> None:
        """Use this connection; raises UnsupportedBrokerError if the broker has no common Fetch version."""
        self._channel = FetchChannel(connection, self._fetch)

    def send_fetches(self, partitions: Sequence[TopicPartitionState]) -> None:
        """Send one fetch request for these partitions."""
        assert self._channel is not None
        max_bytes = self._fetch.max_partition_fetch_bytes
        requested = [
            FetchRequestPartition(
                partition.tp.topic,
                partition.topic_id,
                partition.tp.partition,
                partition.reader.fetch_offset,
                max_bytes,
                partition.leader_epoch,
                partition.reader.last_fetched_epoch if partition.needs_validation else UNKNOWN_EPOCH,
            )
            for partition in partitions
        ]
        self._sent_at = self._last_activity = now = self._system.monotonic()
        self._in_flight = [
            InFlightFetch(
                partition,
                offset=sent.offset,
                seek_count=partition.seek_count,
                leader_epoch=partition.leader_epoch,
                sent_last_epoch=sent.last_fetched_epoch >= 0,
                sent_at=now,
            )
            for partition, sent in zip(partitions, requested, strict=True)
        ]
        self._channel.request(requested, Deadline(now + self._request_timeout, _REQUEST_TIMEOUT_OPTION, self._system))

    @property
    def end_may_be_stale(self) -> bool:
        assert self._channel is not None
        return self._channel.end_may_be_stale

    def read_available(self) -> bool:
        """Read the available bytes of the response without blocking; return whether it is complete."""
        connection = self.connection
        received_before = connection.received_bytes
        if connection.read_available():
            return True
        now = self._system.monotonic()
        if connection.received_bytes != received_before:
            self._last_activity = now
        elif self.response_deadline <= now:
            raise BrokerTimeoutError(
                f"The broker did not respond to Fetch within {_REQUEST_TIMEOUT_OPTION}. It is overloaded or "
                "stuck, or the network drops packets.",
                broker=str(self.node),
            )
        return False

    def collect_response(self) -> tuple[list[InFlightFetch], FetchResponseData]:
        """Return the response that has arrived, and what was requested."""
        assert self._channel is not None
        response = self._channel.response(Deadline(self.response_deadline, _REQUEST_TIMEOUT_OPTION, self._system))
        in_flight, self._in_flight = self._in_flight, []
        self.received_at = self._system.monotonic()
        # Limited, so that a broker with a wrong throttle time does not stop the timeouts.
        self._throttled_until = self.received_at + min(response.throttle_ms / 1000, self._request_timeout)
        self._back_off_if_empty(response)
        return in_flight, response

    def move_to_end(self, partition: TopicPartitionState) -> None:
        """Order a partition that got records after the others, which then have space in the next response."""
        del self.partitions[partition]
        self.partitions[partition] = None

    def release(self) -> None:
        """Release the connection; the pool closes it if a fetch is in flight."""
        channel, self._channel = self._channel, None
        self._in_flight = []
        if channel is not None:
            self._cluster.release(channel.connection)

    def close_after_fork(self) -> None:
        """Close the child's copy of the parent's connection."""
        if self._channel is not None:
            self._channel.connection.close()

    def _back_off_if_empty(self, response: FetchResponseData) -> None:
        """Delay the next fetch if the broker keeps responding at once without records."""
        immediate = self.received_at - self._sent_at < self._fetch.fetch_max_wait_ms / 1000 * _IMMEDIATE_SHARE
        has_content = any(partition.records or partition.error_code for partition in response.partitions.values())
        self._empty_responses = (
            self._empty_responses + 1 if immediate and not has_content and response.throttle_ms <= 0 else 0
        )
        if self._empty_responses > 1:  # a single one is usual
            self.next_fetch_at = self.received_at + _BACKOFF.pause(self._empty_responses - 2, self._system)
