"""Something for each of many partitions, sent to the partitions' leaders: one request to each, again for what moved.

Listing offsets works so, and so does writing records. What is asked, and what an answer means, is a ``LeaderRequest``.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from pyspark_kafka_direct.errors import TransientBrokerError
from pyspark_kafka_direct.wire._any_broker import patience
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for, lookup

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.wire._retry import Retry
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.metadata import Node, PartitionLeader

_V = TypeVar("_V")
_R = TypeVar("_R")


class Entry(NamedTuple, Generic[_V]):
    """What a request says of one partition.

    Attributes:
        partition: The topic-partition.
        value: What to ask, or to send.
        leader_epoch: Epoch of the leader we believe in; the broker refuses if it knows another (KIP-320). -1: any.
    """

    partition: TopicPartition
    value: _V
    leader_epoch: int


class Answer(NamedTuple, Generic[_R]):
    """What a leader said; each partition of the request is in one of the two.

    Attributes:
        found: What was wanted.
        codes: Error codes of the others.
    """

    found: dict[TopicPartition, _R]
    codes: dict[TopicPartition, int]


class LeaderRequest(Protocol[_V, _R]):
    """A kind of request that partitions' leaders answer."""

    @property
    def doing(self) -> str:
        """What goes on, for errors: "listing offsets"."""

    def is_slow(self, values: Iterable[_V]) -> bool:
        """Tell whether a leader that is well may take long; else the first tries are short."""

    def submit(self, connection: Connection, entries: Sequence[Entry[_V]], deadline: Deadline) -> None:
        """Send the request for partitions that the connection's broker leads."""

    def complete(self, connection: Connection, entries: Sequence[Entry[_V]], deadline: Deadline) -> Answer[_R]:
        """Wait for its answer."""


class Leaders(Protocol):
    """Knows the leaders of partitions, and connects with them; ``Cluster`` does."""

    settings: ConnectionSettings

    def leaders(
        self, partitions: Collection[TopicPartition], deadline: Deadline, *, fresh: Retry | None = None
    ) -> Mapping[TopicPartition, PartitionLeader | None]:
        """Return the leader of each partition, ``None`` where there is none; with ``fresh`` ask the cluster anew."""

    def connect(self, node: Node, deadline: Deadline) -> Connection:
        """Borrow a connection to a broker."""

    def give_back(self, connection: Connection) -> None:
        """Take a borrowed connection back."""


def ask_leaders(
    cluster: Leaders, request: LeaderRequest[_V, _R], wanted: Mapping[TopicPartition, _V], retry: Retry
) -> dict[TopicPartition, _R]:
    """Ask all leaders, and again, with fresh metadata, for the partitions that moved, until the deadline.

    Args:
        cluster: Knows the leaders.
        request: What is asked.
        wanted: What to ask of each partition.
        retry: Counts and paces the tries; has the deadline.

    Returns:
        What was found, in the order of ``wanted``.

    Raises:
        TopicNotFoundError: A topic or partition does not exist.
        AuthorizationError: The principal may not do this with a topic.
        BrokerError: A leader could not be asked, or none was elected in time.
    """
    deadline = retry.deadline
    found: dict[TopicPartition, _R] = {}
    missing = dict(wanted)
    leaders = cluster.leaders(missing, deadline)
    while missing:
        # A leader that does not answer may be replaced, so the first tries are short.
        slow = retry.last or request.is_slow(missing.values())
        longest = math.inf if slow else patience(cluster.settings, retry.tries)
        answered, failures = _ask_each(cluster, request, missing, leaders, deadline, longest)
        found.update(answered)
        missing = {partition: value for partition, value in missing.items() if partition not in answered}
        if missing:
            retry.after(next(iter(failures.values())))
            leaders = cluster.leaders(missing, deadline, fresh=retry)
    return {partition: found[partition] for partition in wanted}


def _ask_each(
    cluster: Leaders,
    request: LeaderRequest[_V, _R],
    wanted: Mapping[TopicPartition, _V],
    leaders: Mapping[TopicPartition, PartitionLeader | None],
    deadline: Deadline,
    longest: float,
) -> tuple[dict[TopicPartition, _R], dict[TopicPartition, KafkaDirectError]]:
    """Ask every leader once: all requests are sent before the first answer is awaited.

    None is waited for longer than ``longest`` seconds.
    """
    found: dict[TopicPartition, _R] = {}
    failures: dict[TopicPartition, KafkaDirectError] = {}
    by_leader: dict[Node, list[Entry[_V]]] = {}
    for partition, value in wanted.items():
        leader = leaders[partition]
        if leader is None:
            failures[partition] = _failure(ErrorCode.LEADER_NOT_AVAILABLE, request.doing, partition, None)
        else:
            by_leader.setdefault(leader.node, []).append(Entry(partition, value, leader.epoch))
    with contextlib.ExitStack() as lent:
        under_way: list[tuple[Connection, list[Entry[_V]]]] = []
        for node, entries in by_leader.items():
            try:
                connection = cluster.connect(node, deadline.sooner(longest))
                lent.callback(cluster.give_back, connection)
                request.submit(connection, entries, deadline.sooner(longest))
            except TransientBrokerError as error:
                failures.update({entry.partition: error for entry in entries})
            else:
                under_way.append((connection, entries))
        for connection, entries in under_way:
            try:
                answer = request.complete(connection, entries, deadline.sooner(longest))
            except TransientBrokerError as error:
                failures.update({entry.partition: error for entry in entries})
                continue
            found.update(answer.found)
            for partition, code in answer.codes.items():
                failures[partition] = _failure(code, request.doing, partition, connection.broker)
                if not lookup(code).retriable:
                    raise failures[partition]
    return found, failures


def _failure(code: int, doing: str, partition: TopicPartition, broker: str | None) -> KafkaDirectError:
    return error_for(code, doing, topic=partition.topic, partition=partition.partition, broker=broker)
