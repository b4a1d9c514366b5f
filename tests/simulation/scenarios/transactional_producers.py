"""Transactional producers under faults: transactions as a whole, fencing, and offsets of a group."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED
from tests.simulation.record_attributes import attributes_of
from tests.simulation.scenarios.producer_checks import (
    LARGE_BYTES,
    NO_ATTRIBUTES,
    QUIET_SECONDS,
    TOPICS,
    LoggedWarnings,
    check_attributes,
    settings,
    visible_records,
)
from tests.simulation.scenarios.producer_traffic import ProducerTraffic
from tests.simulation.scenarios.several_topics import all_places, partition_at, partition_counts

from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.errors import KafkaDirectError, OutcomeUnknownError, ProducerFencedError
from pyspark_kafka_direct.payloads.write_rows import HEADERS
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.records import RecordEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.simulation.environment import Environment
    from tests.simulation.process import SimulatedProcess

    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.producer.produce_channel import WrittenRange
    from pyspark_kafka_direct.records import EncodedBatch

_TRANSACTIONAL_ID = "id"
_GROUP = "planes"
_LAST_TRANSACTIONS = 2  # after the faults have stopped
_REORDERING = {"late_request", "late_stalled_request", "throttle", "pause_broker", "throttle_broker", "isolate_broker"}


class _Transaction:
    """One transaction and how it ended for its producer."""

    __slots__ = ("end_began_at", "identity", "offset", "outcome", "producer", "rows", "written")

    def __init__(
        self, producer: int, rows: list[tuple[bytes, TopicPartition]], offset: int | None, identity: tuple[int, int]
    ) -> None:
        self.producer = producer
        self.rows = rows
        self.offset = offset  # that it commits for the group and its partitions, if any
        self.written: Mapping[TopicPartition, WrittenRange] = {}  # what its producer reported
        self.identity = identity  # the producer id and epoch
        self.end_began_at = 0.0
        self.outcome = "open"  # committed, aborted, fenced or unknown


class TransactionalRun:
    """Producers of one transactional id; the second one starts later and fences the first one.

    A producer whose process dies is restarted, as another producer.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._parameters = environment.plan.parameters
        self._counts = partition_counts(TOPICS, self._parameters)
        self._transactions: list[_Transaction] = []
        self._producer_count = 0
        self._processes: list[SimulatedProcess] = []
        self._initializations: list[tuple[float, int, tuple[int, int]]] = []  # times, producers, ids and epochs
        self._initializing: set[int] = set()  # producers
        self._traffic = ProducerTraffic(environment)

    def run(self) -> None:
        with LoggedWarnings() as log:
            self._run_all()
        allowed = ("still retrying",) if self._environment.plan.events else ()
        if needless := [each for each in log.messages if not each.startswith(allowed)]:
            raise ViolationError(f"the package logs a warning: {needless[0]}")

    def _run_all(self) -> None:
        environment, world = self._environment, self._environment.world
        transactions = self._parameters["transaction_list"][: self._parameters["transactions"]]
        last = (all_places(self._counts), True, -1.0)
        for number in range(self._parameters["producers"]):
            steps = iter(enumerate([*transactions, *[last] * _LAST_TRANSACTIONS]))
            self._start(steps, number * self._parameters["second_at"])
        world.run()
        environment.raise_errors()
        environment.check_released([process for process in self._processes if not process.dead])
        environment.heal()
        world.run_for(100.0 + self._parameters["transaction_timeout_ms"] / 1000)  # open transactions end
        self._check()
        self._traffic.check()

    def _start(self, steps: Iterator[tuple[int, Any]], delay: float) -> None:
        """Start a producer that writes the transactions that are left."""
        number = self._producer_count
        self._producer_count += 1
        process = self._environment.process(f"producer-{number}")
        self._processes.append(process)

        def run() -> None:
            try:
                process.sleep(delay)
                self._run(number, process, steps)
            finally:
                if process.dead:
                    self._start(steps, self._parameters["restart_seconds"])

        process.spawn("run", run)

    def _run(self, number: int, process: SimulatedProcess, steps: Iterator[tuple[int, Any]]) -> None:
        client = self._environment.client(
            process,
            request_timeout_ms=self._parameters["request_timeout_ms"],
            default_api_timeout_ms=self._parameters["api_timeout_ms"],
        )
        group = ConsumerGroup(client, _GROUP)
        producer = self._new_producer(client)
        is_closed, last_failures = False, 0
        # The last two must succeed, unless a producer that started later has fenced this one. Before KIP-890 a late
        # request of an earlier transaction may fail the first of them (OUT_OF_ORDER_SEQUENCE_NUMBER).
        most_failures = 0 if self._environment.cluster.settings.transaction_version >= 2 else 1
        for index, (rows, commits, pause) in steps:
            if pause < 0:
                process.sleep(max(0.0, self._environment.quiet_at - self._environment.world.now) + 100.0)
            started_at = self._environment.world.now
            has_offset = index in self._parameters["with_offsets"]
            is_large = pause >= 0 and index in self._parameters.get("large_transactions", ())
            try:
                if is_closed:
                    producer, is_closed = self._new_producer(client), False
                with self._environment.world.operation():
                    if producer.producer_id_and_epoch is None:
                        self._initialize(number, producer)
                    transaction = self._begin(number, rows, has_offset, is_large, _identity(producer))
                    self._write(producer, group, transaction, process, commits, max(pause, 0.0))
                passed = self._environment.world.now - started_at
                if pause < 0 and passed > QUIET_SECONDS and not self._has_other_initialized(number, started_at):
                    raise ViolationError(f"a transaction takes {passed:.1f} s though no fault is left")
            except ProducerFencedError as error:
                if not (producer.may_have_timed_out or self._may_be_superseded):
                    raise ViolationError(f"a producer is fenced, although there is no other: {error}") from error
                break
            except KafkaDirectError as error:
                if self._parameters.get("mild"):
                    raise ViolationError(f"a transaction fails though faults are short: {error!r}") from error
                may_have_ended = producer.may_have_timed_out or self._may_be_superseded
                if "INVALID_TXN_STATE" in str(error) and not (may_have_ended or self._has_elected_since(started_at)):
                    raise ViolationError(f"a transaction is not the one that the coordinator has: {error}") from error
                last_failures += pause < 0 and not self._has_other_initialized(number, started_at)
                if last_failures > most_failures:
                    raise ViolationError(f"a transaction fails though no fault is left: {error!r}") from error
                producer.close()
                is_closed = True
        producer.close()

    def _initialize(self, number: int, producer: TransactionalProducer) -> None:
        self._initializing.add(number)
        try:
            producer.init_transactions()
        finally:
            self._initializing.remove(number)
        self._initializations.append((self._environment.world.now, number, _identity(producer)))

    @property
    def _may_be_superseded(self) -> bool:
        """Whether another producer, or a late request of this one, may have acquired the transactional id."""
        return self._producer_count > 1 or any(each.kind in _REORDERING for each in self._environment.plan.events)

    def _has_elected_since(self, since: float) -> bool:
        """Return whether a leader was elected, which lacks the verification of a request that it handles."""
        began = since - self._environment.started_at
        return any(line[1] == "elected" and line[0] >= began for line in self._environment.world.trace_lines)

    def _has_other_initialized(self, number: int, since: float) -> bool:
        """Return whether another producer has ended this one's transaction, or may have."""
        ended = any(at >= since for at, producer, _ in self._initializations if producer != number)
        return ended or bool(self._initializing - {number})

    def _new_producer(self, client: Any) -> TransactionalProducer:
        timeout_ms = self._parameters["transaction_timeout_ms"]
        return TransactionalProducer(client, _TRANSACTIONAL_ID, timeout_ms, settings(self._parameters))

    def _begin(
        self, producer: int, rows: Sequence[int], has_offset: bool, is_large: bool, identity: tuple[int, int]
    ) -> _Transaction:
        number = len(self._transactions)
        large = b"." * LARGE_BYTES if is_large else b""  # of the last row
        values = [
            (b"t-%d-%d" % (number, row) + (large if row == len(rows) - 1 else b""), partition_at(self._counts, place))
            for row, place in enumerate(rows)
        ]
        transaction = _Transaction(producer, values, number + 1 if has_offset else None, identity)
        self._transactions.append(transaction)
        return transaction

    def _write(
        self,
        producer: TransactionalProducer,
        group: ConsumerGroup,
        transaction: _Transaction,
        process: SimulatedProcess,
        commits: bool,
        pause: float,
    ) -> None:
        world = self._environment.world
        try:
            acknowledged_since = len(self._traffic.batches)
            rows: dict[TopicPartition, list[bytes]] = {}
            for value, partition in transaction.rows:
                rows.setdefault(partition, []).append(value)
            for partition, values in rows.items():
                # One batch, which the producer splits if the topic's limit is smaller, or one for each row.
                is_joined = self._parameters.get("max_message_bytes") is not None
                for joined in [values] if is_joined else [[value] for value in values]:
                    producer.send(partition.topic, self._encoded(joined, partition))
            if transaction.offset is not None:
                committed = CommittedOffset(transaction.offset, f"of {transaction.offset}", transaction.offset)
                producer.send_offsets_to_transaction(group, {tp: committed for _, tp in transaction.rows})
            transaction.written = producer.flush()
            if producer._producer is not None and (size := producer._producer.unacknowledged_bytes):
                raise ViolationError(f"{size} bytes are unacknowledged after a flush")
            self._check_bytes(transaction, acknowledged_since)
            process.sleep(pause)
            transaction.end_began_at = world.now
            if commits:
                producer.commit()
                transaction.outcome = "committed"
            else:
                producer.abort()
                transaction.outcome = "aborted"
        except ProducerFencedError as error:
            # The response to an earlier try of EndTxn may be lost.
            transaction.outcome = "unknown" if "not confirmed" in str(error) else "fenced"
            raise
        except OutcomeUnknownError:
            transaction.outcome = "unknown" if commits else "aborted"
            raise
        except KafkaDirectError:
            if transaction.outcome == "open":
                transaction.outcome = "aborted"
                with contextlib.suppress(KafkaDirectError):
                    producer.abort()
            raise

    def _check_bytes(self, transaction: _Transaction, first: int) -> None:
        """Check the reported bytes, unless a batch of the transaction was rejected."""
        sent = [each for each in self._traffic.batches[first:] if each.partition in transaction.written]
        if self._producer_count == 1 and all(each.code == 0 and not each.fault for each in sent):
            for tp, written in transaction.written.items():
                size = sum(map(len, {each.data for each in sent if each.partition == tp}))  # some are sent again
                if written.bytes != size:
                    raise ViolationError(f"{written.bytes} bytes are reported for {tp}, but {size} were written")

    def _encoded(self, values: Sequence[bytes], partition: TopicPartition) -> EncodedBatch:
        attributes = [attributes_of(value) if self._parameters["attributes"] else NO_ATTRIBUTES for value in values]
        columns = {
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([partition.partition] * len(values), pa.int32()),
            "timestamp": pa.array([each.timestamp for each in attributes], pa.int64()),
            "key": pa.array([each.key for each in attributes], pa.binary()),
            "headers": pa.array(
                [[{"key": name.decode(), "value": each} for name, each in row.headers] for row in attributes], HEADERS
            ),
        }
        encoder = RecordEncoder(
            topic=partition.topic,
            partitions=partition.partition + 1,
            codec=self._parameters.get("codec", "none"),
            batch_bytes=16_384,
            max_record_bytes=16_384,
        )
        (batch,) = (*encoder.add(pa.record_batch(columns)), *encoder.flush())
        return batch

    def _check(self) -> None:
        visible = visible_records(self._environment, READ_COMMITTED)
        partitions = {tp: [value for _, value in records] for tp, records in visible.items()}
        for transaction in self._transactions:
            self._check_transaction(transaction, partitions)
            if transaction.outcome == "committed":
                self._check_written(transaction, visible)
        for tp in partitions:
            self._check_offset(tp, partitions)
        order = [
            value for each in sorted(self._transactions, key=lambda each: each.end_began_at) for value, _ in each.rows
        ]
        for tp, values in partitions.items():
            ranks = [order.index(value) for value in values if value in order]
            if self._parameters["producers"] == 1 and ranks != sorted(ranks):
                raise ViolationError(f"the records of {tp} are in another order: {values}")
        if TransactionCoordinator.of(self._environment.cluster).ongoing:
            raise ViolationError("a transaction is open at the end")
        for tp in partitions:
            truth = self._environment.oracle.truth(tp)
            if truth.end_offset(READ_COMMITTED) < truth.high_watermark():
                raise ViolationError(f"a hanging transaction blocks readers of {tp}")

    def _check_transaction(
        self, transaction: _Transaction, partitions: Mapping[TopicPartition, Sequence[bytes | None]]
    ) -> None:
        counts = [partitions[tp].count(value) for value, tp in transaction.rows]
        described = f"{transaction.rows[0][0]!r} of producer {transaction.producer}, {transaction.outcome}: {counts}"
        if max(counts) > 1:
            raise ViolationError(f"records of a transaction are duplicated: {described}")
        if len(set(counts)) > 1:
            raise ViolationError(f"a transaction is visible in part: {described}")
        if transaction.outcome == "committed" and 0 in counts:
            raise ViolationError(f"a committed transaction is lost: {described}")
        if transaction.outcome in ("aborted", "fenced") and 1 in counts:
            raise ViolationError(f"a transaction that was not committed is visible: {described}")
        if 1 in counts and any(
            at < transaction.end_began_at and identity > transaction.identity
            for at, producer, identity in self._initializations
            if producer != transaction.producer
        ):
            raise ViolationError(f"a fenced producer has committed: {described}")

    def _check_written(
        self, transaction: _Transaction, visible: Mapping[TopicPartition, Sequence[tuple[int, bytes | None]]]
    ) -> None:
        """Check where the producer reports that the records are, and that they have their attributes."""
        for value, tp in transaction.rows:
            check_attributes(self._environment, tp, value)
        for tp in {tp for _, tp in transaction.rows}:
            values = {value for value, partition in transaction.rows if partition == tp}
            offsets = [offset for offset, value in visible[tp] if value in values]
            written = transaction.written.get(tp)
            expected = (min(offsets), max(offsets) + 1)
            # A broker may not return the offset of a batch that it had already.
            if (
                written is None
                or written.records != len(values)
                or (written.first_offset, written.next_offset) not in (expected, (-1, -1))
            ):
                raise ViolationError(f"{len(values)} records of {tp} are at {expected}, and reported are {written}")

    def _check_offset(
        self, partition: TopicPartition, partitions: Mapping[TopicPartition, Sequence[bytes | None]]
    ) -> None:
        """Check that the group has the offset of the last transaction that is visible and has one for the partition."""
        visible = [
            each
            for each in self._transactions
            if each.offset is not None
            and any(tp == partition for _, tp in each.rows)
            and all(value in partitions[tp] for value, tp in each.rows)
        ]
        last = max(visible, key=lambda each: (each.identity, each.end_began_at), default=None)
        found = GroupCoordinator.of(self._environment.cluster).committed(_GROUP).get(partition)
        expected = None if last is None else (last.offset, f"of {last.offset}", last.offset)
        committed = None if found is None else (found.offset, found.metadata, found.leader_epoch)
        if committed != expected:
            raise ViolationError(
                f"transactions have committed {expected} for {partition}, but the group has {committed}"
            )


def _identity(producer: TransactionalProducer) -> tuple[int, int]:
    identity = producer.producer_id_and_epoch
    assert identity is not None
    return identity.id, identity.epoch
