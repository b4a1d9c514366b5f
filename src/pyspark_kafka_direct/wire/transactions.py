"""Transactions of one transactional id, as its coordinator is asked for them.

There are two sequences of requests. Which one holds depends on the feature ``transaction.version`` of the cluster
(KIP-890), which an administrator may raise while clients run; the versions of requests do not tell it.

    below 2    InitProducerId, AddPartitionsToTxn 3 before the first write to a partition, Produce up to 11, EndTxn
               up to 4. The epoch stays the same, and sequence numbers go on.
    2          InitProducerId, Produce 12, which adds the partition, EndTxn 5. Its answer has the epoch of the next
               transaction, whose sequence numbers begin at 0; or another producer id, when the epochs have run out.

Offsets of a consumer group can be a part of a transaction (``groups.py`` commits them). They are written to a partition
of the brokers' own, which is added likewise: below 2 by AddOffsetsToTxn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.errors import (
    BrokerError,
    FencedError,
    OutcomeUnknownError,
    ProtocolError,
    UnsupportedBrokerError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire._versions import release
from pyspark_kafka_direct.wire.codes import ErrorCode, lookup
from pyspark_kafka_direct.wire.coordinator import Coordinator, check
from pyspark_kafka_direct.wire.messages import ADD_OFFSETS_TO_TXN, ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from pyspark_kafka_direct.wire.producer_ids import init_producer_id

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.coordinator import Brokers
    from pyspark_kafka_direct.wire.deadline import Deadline

_FEATURE = "transaction.version"
_EPOCHS_BUMPED_FROM: Final = 2  # transaction.version
_END_BEFORE = 4
_END_TXN_BEFORE: Final = END_TXN.up_to(_END_BEFORE)

# A client that was fenced can be told so, and not only by the epoch, since Kafka 2.5 (KIP-360); brokers check that a
# write belongs to an open transaction since Kafka 3.6 (KIP-890). Before that a write that comes late can be left
# hanging in the log, and holds back everybody who reads committed records.
_OLDEST_INIT_PRODUCER_ID = 3
_CHECKED_ADD_PARTITIONS = 4

# Answers to EndTxn by a coordinator that has not done it. Others may mean that it has begun, and not finished.
_NOT_ENDED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class Started(NamedTuple):
    """What a coordinator says when a transactional id is taken over.

    Attributes:
        producer: The producer id and its epoch.
        bumps_epochs: Whether ``transaction.version`` is 2 (see the module).
    """

    producer: ProducerId
    bumps_epochs: bool


class Transactions:
    """Asks the coordinator of one transactional id. Every question is asked again until its deadline.

    Args:
        cluster: The cluster.
        transactional_id: The id.
    """

    def __init__(self, cluster: Brokers, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._coordinator = Coordinator(cluster, "transaction", transactional_id)

    def init(self, timeout_ms: int, deadline: Deadline | None = None) -> Started:
        """Take the transactional id over: fence whoever had it, and wait until what was left open is aborted.

        Args:
            timeout_ms: After how long the broker aborts a transaction that is open.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            UnsupportedBrokerError: The broker is too old.
            AuthorizationError: The principal may not use the transactional id.
            BrokerError: The coordinator could not be asked, or does not allow such a time-out.
        """

        def ask(connection: Connection, limit: Deadline) -> Started:
            check_release(connection)
            bumps_epochs = _bumps_epochs(connection, limit)
            producer = init_producer_id(
                connection, limit, transactional_id=self.transactional_id, timeout_ms=timeout_ms
            )
            return Started(producer, bumps_epochs)

        return self._coordinator.ask(ask, (), deadline)

    def bumps_epochs(self, deadline: Deadline | None = None) -> bool:
        """Return whether ``transaction.version`` is 2 now.

        Args:
            deadline: End of the wait instead of ``default.api.timeout.ms``.
        """
        return self._coordinator.ask(_bumps_epochs, (), deadline)

    def add(
        self, producer: ProducerId, partitions: Collection[TopicPartition], deadline: Deadline | None = None
    ) -> None:
        """Add partitions to the transaction, before the first write to them; only below ``transaction.version`` 2.

        Args:
            producer: Who writes.
            partitions: The partitions.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            FencedError: Another writer has taken over.
            AuthorizationError: The principal may not write to a topic.
            TopicNotFoundError: There is no such partition.
            BrokerError: The coordinator could not be asked.
        """
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        wanted = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": producer.id,
            "v3_and_below_producer_epoch": producer.epoch,
            "v3_and_below_topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()],
        }

        def ask(connection: Connection, limit: Deadline) -> None:
            response = connection.call(ADD_PARTITIONS_TO_TXN, wanted, limit)
            codes = {
                TopicPartition(topic.name, each.partition_index): each.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            # One that fails makes the coordinator refuse them all: the others say OPERATION_NOT_ATTEMPTED.
            doing = f"adding a partition to a transaction of {self.transactional_id!r}"
            for partition, code in sorted(
                codes.items(), key=lambda entry: entry[1] == ErrorCode.OPERATION_NOT_ATTEMPTED
            ):
                check(code, doing, connection.broker, partition)
            if not codes.keys() >= set(partitions):
                connection.close()
                raise ProtocolError("The answer to AddPartitionsToTxn lacks a partition.", broker=connection.broker)

        self._coordinator.ask(ask, topics, deadline)

    def add_offsets(self, producer: ProducerId, group_id: str, deadline: Deadline | None = None) -> None:
        """Add a group to the transaction, before its offsets are committed in it; only below ``transaction.version`` 2.

        Args:
            producer: Who writes.
            group_id: The group.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Raises:
            FencedError: Another writer has taken over.
            AuthorizationError: The principal may not read the group.
            BrokerError: The coordinator could not be asked.
        """
        wanted = {
            "transactional_id": self.transactional_id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "group_id": group_id,
        }
        doing = f"adding the group {group_id!r} to a transaction of {self.transactional_id!r}"

        def ask(connection: Connection, limit: Deadline) -> None:
            response = connection.call(ADD_OFFSETS_TO_TXN, wanted, limit)
            check(response.error_code, doing, connection.broker)

        self._coordinator.ask(ask, (), deadline)

    def end(
        self, producer: ProducerId, *, commit: bool, bumps_epochs: bool, deadline: Deadline | None = None
    ) -> ProducerId:
        """Commit or abort the transaction.

        Args:
            producer: Who wrote.
            commit: Whether to commit.
            bumps_epochs: Whether the transaction was written the way of ``transaction.version`` 2.
            deadline: End of the wait instead of ``default.api.timeout.ms``.

        Returns:
            Who may write the next transaction.

        Raises:
            FencedError: Another writer has taken over; the message says whether it may have been committed before.
            OutcomeUnknownError: Nobody knows whether it was committed.
            BrokerError: It was not committed.
        """
        request = _Ending(self.transactional_id, producer, commit, bumps_epochs)
        try:
            return self._coordinator.ask(request.ask, (), deadline)
        except BrokerError as error:
            if request.unclear is None or isinstance(error, OutcomeUnknownError | FencedError):
                raise
            raise request.unknown(str(error), error.broker) from error


def check_release(connection: Connection) -> str | None:
    """Refuse a broker that is too old for transactions; return what to warn of where it is old.

    Raises:
        UnsupportedBrokerError: It is older than Kafka 2.5.
    """
    versions = connection.api_versions
    looks_like = f"it looks like Kafka {release(versions)}"
    if versions.get(INIT_PRODUCER_ID.key, (0, -1))[1] < _OLDEST_INIT_PRODUCER_ID:
        raise UnsupportedBrokerError(
            f"The broker is too old for transactions ({looks_like}): exactly-once delivery needs Kafka 2.5 or newer.",
            broker=connection.broker,
        )
    if versions.get(ADD_PARTITIONS_TO_TXN.key, (0, -1))[1] >= _CHECKED_ADD_PARTITIONS:
        return None
    return (
        f"The broker {connection.broker} is older than Kafka 3.6 ({looks_like}): a write that comes late can be left "
        "hanging in its log, and then holds back everybody who reads committed records. Upgrade the brokers."
    )


class _Ending:
    """One EndTxn, asked once or several times, and whether an earlier try may have been heard.

    Repeated by the same writer it is harmless: a coordinator that has done it says so again.
    """

    def __init__(self, transactional_id: str, producer: ProducerId, commit: bool, bumps_epochs: bool) -> None:
        self._doing = f"{'committing' if commit else 'aborting'} a transaction of {transactional_id!r}"
        self._producer = producer
        self._api = END_TXN if bumps_epochs else _END_TXN_BEFORE
        self._wanted: dict[str, Any] = {
            "transactional_id": transactional_id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "committed": commit,
        }
        self.unclear: str | None = None

    def ask(self, connection: Connection, limit: Deadline) -> ProducerId:
        before = self.unclear
        self.unclear = "no answer came"
        response = connection.call(self._api, self._wanted, limit)
        code = response.error_code
        if code in _NOT_ENDED:
            self.unclear = before
            if before is not None and not lookup(code).retriable:
                # Told to a writer that was fenced after its commit, and to one whose transaction was aborted, alike.
                raise self.unknown(lookup(code).name, connection.broker, fenced=code in _FENCED)
        elif code != ErrorCode.NONE:
            self.unclear = f"the coordinator answered {lookup(code).name}"
        check(code, self._doing, connection.broker)
        self.unclear = None
        return _next_producer(self._producer, response)

    def unknown(self, reason: str, broker: str | None, *, fenced: bool = False) -> BrokerError:
        """Return the error for an outcome that nobody knows."""
        message = f"{self._doing[0].upper()}{self._doing[1:]} was not confirmed ({self.unclear}; then: {reason})."
        if fenced:
            return FencedError(f"{message} Another writer has taken over the transactional id.", broker=broker)
        return OutcomeUnknownError(message, broker=broker)


def _next_producer(producer: ProducerId, response: Any) -> ProducerId:
    """Return who writes next: as the answer says, which before version 5 says nothing."""
    if response.producer_id < 0:
        return producer
    return ProducerId(response.producer_id, response.producer_epoch)


def _bumps_epochs(connection: Connection, deadline: Deadline) -> bool:
    return connection.features(deadline).get(_FEATURE, 0) >= _EPOCHS_BUMPED_FROM
