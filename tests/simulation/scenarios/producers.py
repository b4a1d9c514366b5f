"""The producers under faults: acknowledged records once and in order, transactions as a whole, and fencing."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.simulation.cluster.coordinator_events import draw_coordinator_event
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.drawing import (
    MAX_REPEATS,
    READ_APIS,
    draw_aimed_crash,
    draw_events,
    draw_spread_faults,
    draw_transactional_cluster,
)
from tests.simulation.environment import Environment
from tests.simulation.errors import ViolationError
from tests.simulation.faults import CRASHES, PAUSES
from tests.simulation.history import Event, Plan
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED

from pyspark_kafka_direct.client.consumer_group import CommittedOffset, ConsumerGroup
from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import KafkaDirectError, OutcomeUnknownError, ProducerFencedError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.async_producer import AsyncProducer
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.records import create_encoder

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

    from tests.simulation.history import Size
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.scheduler import World

    from pyspark_kafka_direct.producer.async_producer import RecordMetadata
    from pyspark_kafka_direct.records import EncodedBatch

NAME = "producers"
SHRINKABLE = {"sends": 1, "transactions": 1}
_TOPIC = "flights"
_TRANSACTIONAL_ID = "id"
_GROUP = "planes"
_SAFE_EVENTS = (
    "expand_topic",
    "elect_leader",
    "lose_leader",
    "stick_follower",
    "stop_broker",
    "isolate_broker",
    "stick_image",
    "pause_broker",
)
_LAST_TRANSACTIONS = (((0,), True, -1.0), ((0,), True, -1.0))  # after the faults have stopped
_SLACK = 5.0  # seconds by which a result may come late: connects and responses on the way


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    scale = 15 if long else 1
    partitions = rng.randint(1, 3)
    seconds = rng.choice((0.3, 3.0, 20.0)) * (30 if long else 1)
    mode = rng.choice(("idempotent", "idempotent", "transactional", "transactional", "fencing"))
    sends = rng.randint(3, 20) * scale
    transactions = rng.randint(1, 5) * scale
    cluster = draw_transactional_cluster(rng)
    if rng.random() < 0.3:
        cluster["cluster"]["transaction_version"] = 0  # has more requests
    offsets_share = rng.choice((0.0, 0.7, 1.0)) if mode != "idempotent" else 0.0
    parameters = {
        **cluster,
        "mode": mode,
        "partitions": partitions,
        "threads": rng.randint(1, 2),
        "sends": sends,
        "send_list": [
            [rng.randrange(partitions), round(rng.choice((0.0, 0.0, seconds / sends, 1.0)) * rng.random(), 3)]
            for _ in range(sends)
        ],
        "transactions": transactions,
        "transaction_list": [
            [
                [rng.randrange(partitions) for _ in range(rng.randint(1, 3))],
                rng.random() < 0.75,
                round(rng.choice((0.0, 0.0, 0.01, seconds / transactions)) * rng.random(), 3),
            ]
            for _ in range(transactions)
        ],
        "with_offsets": [number for number in range(transactions + 2) if rng.random() < offsets_share],
        "producers": 2 if mode == "fencing" else 1,
        "restart_seconds": rng.choice((0.01, 0.5, 5.0)),
        "second_at": round(seconds * rng.random() * rng.choice((0.02, 1.0)), 3),
        "linger": rng.choice((0.0, 0.0, 0.02)),
        "batch_bytes": rng.choice((150, 16_384)),
        "max_in_flight": rng.choice((1, 5, 5)),
        "request_timeout_ms": rng.choice((1_000, 30_000)),
        "api_timeout_ms": rng.choice((2_000, 10_000, 60_000)),
        "delivery_timeout_ms": rng.choice((2_000, 10_000, 120_000)),
        "transaction_timeout_ms": rng.choice((20_000, 60_000)),
    }
    requests = 300 if long else 30
    topics = {_TOPIC: partitions}
    apis = _requests(mode, cluster["cluster"]["transaction_version"], has_offsets=bool(parameters["with_offsets"]))
    events = draw_events(rng, topics, seconds=seconds, requests=requests, long=long, kinds=_SAFE_EVENTS, apis=apis)
    count, occurrences = (rng.randint(40, 120), 60) if long else (rng.choice((0, 4, 8, 12)), 4)
    own_apis = [each for each in apis if each not in READ_APIS]
    # More at requests that fewer histories have.
    own_apis += 2 * [each for each in apis if "Offset" in each] + [each for each in apis if each.startswith("Add")]
    events += tuple(draw_spread_faults(rng, own_apis, count=count, occurrences=occurrences))
    events += tuple(_draw_open_outcome(rng, mode) for _ in range(rng.choice((0, 0, 1, 2)) * scale))
    if rng.random() < 0.25:
        kind = "move_transaction_coordinators"
        events += (Event(kind, rng.random() * seconds, args=draw_coordinator_event(rng, kind, "", seconds)),)
    for _ in range(rng.choice((0, 0, 1, 1)) * scale):
        if rng.random() < 0.7:
            events += (draw_aimed_crash(rng, own_apis, long=long),)
        else:
            events += (Event(rng.choice(CRASHES), request=rng.randrange(requests)),)
    for _ in range(rng.choice((0, 0, 1)) * scale):
        events += (Event(PAUSES[0], request=rng.randrange(requests), args={"seconds": rng.choice((0.02, 1.0, 30.0))}),)
    # Many faults take time, and the last ones happen too.
    return Plan(NAME, parameters, events, quiet_after=max(seconds, 5.0 * count))


def _requests(mode: str, transaction_version: int, *, has_offsets: bool) -> list[str]:
    """Return the requests that the producers send, at which faults are aimed."""
    apis = ["ApiVersions", "Metadata", "InitProducerId", "Produce"]
    if mode != "idempotent":
        apis += ["FindCoordinator", "EndTxn"]
        apis += ["AddPartitionsToTxn"] if transaction_version < 2 else []
    if has_offsets:
        apis += ["TxnOffsetCommit"] + (["AddOffsetsToTxn"] if transaction_version < 2 else [])
    return apis


def _draw_open_outcome(rng: random.Random, mode: str) -> Event:
    """Draw requests that are handled, although the broker responds with an error that leaves this open."""
    args = {
        "draw": rng.randrange(1_000_000),
        "is_handled": True,
        "api": "Produce" if mode == "idempotent" else rng.choice(("Produce", "EndTxn")),
        "occurrence": rng.choice((0, 1, 2, rng.randrange(20))),
        "repeats": rng.choice((1, 3, MAX_REPEATS)),
    }
    return Event("error", args=args)


def run(world: World, plan: Plan) -> None:
    environment = Environment(world, plan)
    environment.cluster.create_topic(_TOPIC, plan.parameters["partitions"])
    if plan.parameters["mode"] == "idempotent":
        _IdempotentRun(environment).run()
    else:
        _TransactionalRun(environment).run()


def _visible(environment: Environment, isolation: int) -> list[list[tuple[int, bytes | None]]]:
    """Return offsets and values of the records in each partition at the end."""
    count = len(environment.cluster.topics[_TOPIC].partitions)
    return [environment.oracle.records((_TOPIC, index), 0, 1 << 60, isolation) for index in range(count)]


def _settings(parameters: Mapping[str, Any]) -> ProducerSettings:
    return ProducerSettings(
        batch_bytes=parameters["batch_bytes"],
        max_in_flight=parameters["max_in_flight"],
        delivery_timeout_ms=parameters["delivery_timeout_ms"],
    )


class _Send:
    """One record and what its future returned."""

    __slots__ = ("completed_at", "completions", "future", "partition", "sent_at", "thread", "value")

    def __init__(self, value: bytes, partition: int, thread: int, sent_at: float) -> None:
        self.value = value
        self.partition = partition
        self.thread = thread
        self.sent_at = sent_at
        self.completed_at = 0.0
        self.completions = 0
        self.future: Future[RecordMetadata] | None = None

    @property
    def error(self) -> BaseException | None:
        assert self.future is not None
        return Future.exception(self.future, 0)  # the future's own method waits, which only tasks can


class _IdempotentRun:
    """Threads that send records with an ``AsyncProducer``."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._parameters = environment.plan.parameters
        self._process = environment.process("writer")
        self._sends: list[_Send] = []
        self._paused = sum(each.args["seconds"] for each in environment.plan.events if each.kind in PAUSES)

    def run(self) -> None:
        environment = self._environment
        client = environment.client(self._process, request_timeout_ms=self._parameters["request_timeout_ms"])
        producer = AsyncProducer(client, _settings(self._parameters), linger=self._parameters["linger"])
        threads = [
            self._process.spawn(f"thread {number}", partial(self._send_all, producer, number))
            for number in range(self._parameters["threads"])
        ]
        environment.world.run(threads)
        if not self._process.dead:
            environment.world.run([self._process.spawn("close", partial(self._finish, producer))])
        environment.raise_errors()
        environment.heal()
        environment.world.run_for(100.0)  # late requests arrive
        self._check()

    def _send_all(self, producer: AsyncProducer, thread: int) -> None:
        threads = self._parameters["threads"]
        for number, (index, pause) in enumerate(self._parameters["send_list"][: self._parameters["sends"]]):
            if number % threads == thread:
                self._process.sleep(pause)
                self._send(producer, index, thread)

    def _send(self, producer: AsyncProducer, index: int, thread: int) -> _Send:
        world = self._environment.world
        send = _Send(b"r-%d" % len(self._sends), index, thread, world.now)
        self._sends.append(send)
        operation = world.start_operation(self._process)  # until the outcome is known
        send.future = producer.send(_TOPIC, None, send.value, partition=index)
        send.future.add_done_callback(partial(self._completed, send, operation))
        return send

    def _completed(self, send: _Send, operation: int, _: Future[RecordMetadata]) -> None:
        send.completions += 1
        send.completed_at = self._environment.world.now
        self._environment.world.end_operation(operation, "completed" if send.error is None else "failed")

    def _finish(self, producer: AsyncProducer) -> None:
        environment = self._environment
        self._process.sleep(max(0.0, environment.quiet_at - environment.world.now) + 100.0)
        send = self._send(producer, 0, 0)
        producer.flush(300.0)
        if send.error is not None:
            raise ViolationError(f"a send fails though no fault is left: {send.error!r}") from send.error
        producer.close(10.0)

    def _check(self) -> None:
        partitions = _visible(self._environment, READ_UNCOMMITTED)
        positions: dict[bytes | None, list[tuple[int, int]]] = {}
        for index, records in enumerate(partitions):
            for offset, value in records:
                positions.setdefault(value, []).append((index, offset))
        for send in self._sends:
            self._check_send(send, positions.get(send.value, []))
        for index, records in enumerate(partitions):
            self._check_order(index, [value for _, value in records])

    def _check_send(self, send: _Send, found: list[tuple[int, int]]) -> None:
        name = send.value.decode()
        if len(found) > 1:
            raise ViolationError(f"a record was written {len(found)} times: {name} at {found}")
        if self._process.dead and not send.completions:
            return
        if send.completions != 1:
            raise ViolationError(f"the future of a record was completed {send.completions} times: {name}")
        assert send.future is not None
        limit = (self._parameters["delivery_timeout_ms"] + self._parameters["request_timeout_ms"]) / 1000
        passed = send.completed_at - send.sent_at
        if passed > limit + _SLACK + self._paused:
            raise ViolationError(f"a record is completed late: {name} after {passed:.2f} s, not {limit:.2f} s")
        if send.error is None:
            metadata = Future.result(send.future, 0)
            if found != [(metadata.partition, metadata.offset)] and not (found and metadata.offset == -1):
                raise ViolationError(f"an acknowledged record is not at its offset: {name}, {metadata}, {found}")
        elif found and "were not written" in str(send.error):
            raise ViolationError(f"a record was written although its error denies it: {name}: {send.error}")

    def _check_order(self, index: int, values: list[bytes | None]) -> None:
        sent = [send for send in self._sends if send.partition == index and send.value in values]
        for thread in range(self._parameters["threads"]):
            of_thread = [send for send in sent if send.thread == thread]
            acknowledged = [values.index(send.value) for send in of_thread if send.completions and not send.error]
            if acknowledged != sorted(acknowledged):
                raise ViolationError(f"acknowledged records of partition {index} are in another order: {values}")
            everything = [values.index(send.value) for send in of_thread]
            if everything != sorted(everything):
                raise ViolationError(f"a record that was reported as failed follows a newer one: {index}, {values}")


class _Transaction:
    """One transaction and how it ended for its producer."""

    __slots__ = ("end_began_at", "identity", "offset", "outcome", "producer", "rows")

    def __init__(
        self, producer: int, rows: list[tuple[bytes, int]], offset: int | None, identity: tuple[int, int]
    ) -> None:
        self.producer = producer
        self.rows = rows
        self.offset = offset  # that it commits for the group, if any
        self.identity = identity  # the producer id and epoch
        self.end_began_at = 0.0
        self.outcome = "open"  # committed, aborted, fenced or unknown


class _TransactionalRun:
    """Producers of one transactional id; the second one starts later and fences the first one.

    A producer whose process dies is restarted, as another producer.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._parameters = environment.plan.parameters
        self._transactions: list[_Transaction] = []
        self._producer_count = 0
        self._initializations: list[tuple[float, int, tuple[int, int]]] = []  # times, producers, ids and epochs
        self._initializing: set[int] = set()  # producers

    def run(self) -> None:
        environment, world = self._environment, self._environment.world
        transactions = self._parameters["transaction_list"][: self._parameters["transactions"]]
        for number in range(self._parameters["producers"]):
            steps = iter(enumerate([*transactions, *_LAST_TRANSACTIONS]))
            self._start(steps, number * self._parameters["second_at"])
        world.run()
        environment.raise_errors()
        environment.heal()
        world.run_for(100.0 + self._parameters["transaction_timeout_ms"] / 1000)  # open transactions end
        self._check()

    def _start(self, steps: Iterator[tuple[int, Any]], delay: float) -> None:
        """Start a producer that writes the transactions that are left."""
        number = self._producer_count
        self._producer_count += 1
        process = self._environment.process(f"producer-{number}")

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
            try:
                if is_closed:
                    producer, is_closed = self._new_producer(client), False
                with self._environment.world.operation():
                    if producer.producer_id_and_epoch is None:
                        self._initialize(number, producer)
                    transaction = self._begin(number, rows, has_offset, _identity(producer))
                    self._write(producer, group, transaction, process, commits, max(pause, 0.0))
            except ProducerFencedError:
                break
            except KafkaDirectError as error:
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

    def _has_other_initialized(self, number: int, since: float) -> bool:
        """Return whether another producer has ended this one's transaction, or may have."""
        ended = any(at >= since for at, producer, _ in self._initializations if producer != number)
        return ended or bool(self._initializing - {number})

    def _new_producer(self, client: Any) -> TransactionalProducer:
        timeout_ms = self._parameters["transaction_timeout_ms"]
        return TransactionalProducer(client, _TRANSACTIONAL_ID, timeout_ms, _settings(self._parameters))

    def _begin(self, producer: int, rows: list[int], has_offset: bool, identity: tuple[int, int]) -> _Transaction:
        number = len(self._transactions)
        values = [(b"t-%d-%d" % (number, row), index) for row, index in enumerate(rows)]
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
            for value, index in transaction.rows:
                producer.send(_TOPIC, _encoded(value, index))
            if transaction.offset is not None:
                offsets = {TopicPartition(_TOPIC, 0): CommittedOffset(transaction.offset)}
                producer.send_offsets_to_transaction(group, offsets)
            producer.flush()
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

    def _check(self) -> None:
        partitions = [[value for _, value in each] for each in _visible(self._environment, READ_COMMITTED)]
        for transaction in self._transactions:
            self._check_transaction(transaction, partitions)
        self._check_offset(partitions)
        order = [
            value for each in sorted(self._transactions, key=lambda each: each.end_began_at) for value, _ in each.rows
        ]
        for index, values in enumerate(partitions):
            ranks = [order.index(value) for value in values if value in order]
            if self._parameters["producers"] == 1 and ranks != sorted(ranks):
                raise ViolationError(f"the records of partition {index} are in another order: {values}")
        if TransactionCoordinator.of(self._environment.cluster).ongoing:
            raise ViolationError("a transaction is open at the end")
        for index in range(len(partitions)):
            truth = self._environment.oracle.truth((_TOPIC, index))
            if truth.end_offset(READ_COMMITTED) < truth.high_watermark():
                raise ViolationError(f"a hanging transaction blocks readers of partition {index}")

    def _check_transaction(self, transaction: _Transaction, partitions: list[list[bytes | None]]) -> None:
        counts = [partitions[index].count(value) for value, index in transaction.rows]
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

    def _check_offset(self, partitions: list[list[bytes | None]]) -> None:
        """Check that the group has the offset of the last transaction that is visible and has one."""
        visible = [
            each
            for each in self._transactions
            if each.offset is not None and all(value in partitions[index] for value, index in each.rows)
        ]
        last = max(visible, key=lambda each: (each.identity, each.end_began_at), default=None)
        found = GroupCoordinator.of(self._environment.cluster).committed(_GROUP).get((_TOPIC, 0))
        offsets = (None if last is None else last.offset, None if found is None else found.offset)
        if offsets[0] != offsets[1]:
            raise ViolationError(f"transactions have committed the offset {offsets[0]}, but the group has {offsets[1]}")


def _identity(producer: TransactionalProducer) -> tuple[int, int]:
    identity = producer.producer_id_and_epoch
    assert identity is not None
    return identity.id, identity.epoch


def _encoded(value: bytes, index: int) -> EncodedBatch:
    columns = {
        "value": pa.array([value], pa.binary()),
        "partition": pa.array([index], pa.int32()),
        "timestamp": pa.array([1_700_000_000_000], pa.int64()),
    }
    encoder = create_encoder(topic=_TOPIC, partitions=index + 1, batch_bytes=16_384, max_record_bytes=16_384)
    (batch,) = (*encoder.add(pa.record_batch(columns)), *encoder.flush())
    return batch
