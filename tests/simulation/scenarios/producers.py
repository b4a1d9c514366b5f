"""The producers under faults: acknowledged records once and in order, transactions as a whole, and fencing."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.coordinator_events import draw_coordinator_event
from tests.simulation.drawing import (
    MAX_REPEATS,
    READ_APIS,
    draw_aimed_crash,
    draw_events,
    draw_late_request,
    draw_spread_faults,
    draw_transactional_cluster,
)
from tests.simulation.environment import Environment
from tests.simulation.errors import ViolationError
from tests.simulation.faults import CRASHES, PAUSES
from tests.simulation.history import Event, Plan
from tests.simulation.oracle import READ_UNCOMMITTED
from tests.simulation.record_attributes import attributes_of
from tests.simulation.scenarios.producer_checks import (
    LARGE_BYTES,
    NO_ATTRIBUTES,
    QUIET_SECONDS,
    TOPICS,
    check_attributes,
    java_partition,
    settings,
    topic_configs,
    visible_records,
)
from tests.simulation.scenarios.several_topics import (
    all_places,
    draw_place,
    draw_topics,
    partition_at,
    partition_counts,
)
from tests.simulation.scenarios.transactional_producers import TransactionalRun

from pyspark_kafka_direct.client.producer_ids import request_producer_id
from pyspark_kafka_direct.client.producer_state import IdempotentProducerState, PartitionSequence
from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, RecordTooLargeError, TopicNotFoundError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.async_producer import AsyncProducer

if TYPE_CHECKING:
    import random
    from concurrent.futures import Future

    from tests.simulation.history import Size
    from tests.simulation.scheduler import World

    from pyspark_kafka_direct.producer.async_producer import RecordMetadata

NAME = "producers"
SHRINKABLE = {
    "sends": 1,
    "transactions": 1,
    "topics": 1,
    "missing": (),
    "reopened": (),
    "next_sequence": 0,
    "large": (),
    "large_transactions": (),
}
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
_MISSING_PARTITION = 100
_CLOSE_SECONDS = 10.0
# Errors that end the tries of a request: MESSAGE_TOO_LARGE, TOPIC_AUTHORIZATION_FAILED, INVALID_RECORD,
# CONCURRENT_TRANSACTIONS (which is retried) and TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
_REJECTIONS = {"Produce": (10, 10, 29, 87), "EndTxn": (51, 53)}
_CLOSE_SLACK = 1.0  # seconds for the callbacks of records that it fails
_SLACK = 5.0  # seconds by which a result may come late: connects and responses on the way


def draw(rng: random.Random, size: Size) -> Plan:
    long = size == "long"
    scale = 15 if long else 1
    topics = draw_topics(rng)
    counts = partition_counts(TOPICS, topics)
    seconds = rng.choice((0.3, 3.0, 20.0)) * (30 if long else 1)
    mode = rng.choice(("idempotent", "idempotent", "transactional", "transactional", "fencing"))
    sends = rng.randint(3, 20) * scale
    transactions = rng.randint(1, 5) * scale
    cluster = draw_transactional_cluster(rng)
    if rng.random() < 0.3:
        cluster["cluster"]["transaction_version"] = 0  # has more requests
    missing_share = rng.choice((0.0, 0.0, 0.1, 0.5)) if mode == "idempotent" else 0.0
    offsets_share = rng.choice((0.0, 0.7, 1.0)) if mode != "idempotent" else 0.0
    threads = rng.randint(1, 2)
    reopened_share = rng.choice((0.0, 0.3)) if mode == "idempotent" and threads == 1 else 0.0
    is_burst = rng.random() < 0.3  # many records of one partition share a batch, which the topic's limit splits
    unassigned_share = rng.choice((0.0, 0.3, 1.0)) if mode == "idempotent" else 0.0
    flush_share = rng.choice((0.0, 0.0, 0.2))
    large_share = rng.choice((0.0, 0.0, 0.1))
    parameters = {
        **cluster,
        "mode": mode,
        **topics,
        "attributes": rng.random() < 0.5,
        "threads": threads,
        "sends": sends,
        "send_list": [
            [draw_place(rng, counts), round(rng.choice((0.0, 0.0, seconds / sends, 1.0)) * rng.random(), 3)]
            for _ in range(sends)
        ],
        "missing": [number for number in range(sends) if rng.random() < missing_share],
        "reopened": [number for number in range(1, sends) if rng.random() < reopened_share],
        "unassigned": [number for number in range(sends) if rng.random() < unassigned_share],
        "flushes": [number for number in range(sends) if rng.random() < flush_share],
        "buffer_bytes": rng.choice((3_000, 32 << 20, 32 << 20)),  # of a few records, or of all
        "next_sequence": rng.choice((0, 0, (1 << 31) - rng.randint(1, 20))) if mode == "idempotent" else 0,
        "transactions": transactions,
        "transaction_list": [
            [
                [draw_place(rng, counts) for _ in range(rng.randint(1, 3))],
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
        "batch_bytes": 16_384 if is_burst else rng.choice((150, 16_384)),
        "max_message_bytes": rng.choice((120, 150, 250)) if is_burst or rng.random() < 0.2 else None,
        "large": [number for number in range(sends) if rng.random() < large_share],
        "large_transactions": [number for number in range(transactions) if rng.random() < large_share],
        "append_time": rng.random() < 0.15,
        "codec": rng.choice(("none", "none", "none", "lz4", "zstd")),
        "close_seconds": rng.choice((0.0, 0.05, 0.5, _CLOSE_SECONDS)),
        "max_in_flight": rng.choice((1, 5, 5)),
        "request_timeout_ms": rng.choice((1_000, 30_000)),
        "api_timeout_ms": rng.choice((2_000, 10_000, 60_000)),
        "delivery_timeout_ms": rng.choice((2_000, 10_000, 120_000)),
        "transaction_timeout_ms": rng.choice((20_000, 60_000)),
    }
    if is_burst:
        for send in parameters["send_list"]:
            send[:] = [
                parameters["send_list"][0][0] if rng.random() < 0.8 else send[0],
                rng.choice((0.0, 0.0, send[1])),
            ]
        for rows, *_ in parameters["transaction_list"]:
            rows += [rows[0]] * rng.randint(1, 6)
    requests = 300 if long else 30
    apis = _requests(mode, cluster["cluster"]["transaction_version"], has_offsets=bool(parameters["with_offsets"]))
    events = draw_events(rng, counts, seconds=seconds, requests=requests, long=long, kinds=_SAFE_EVENTS, apis=apis)
    count, occurrences = (rng.randint(40, 120), 60) if long else (rng.choice((0, 4, 8, 12)), 4)
    own_apis = [each for each in apis if each not in READ_APIS]
    # More at requests that fewer histories have.
    own_apis += 2 * [each for each in apis if "Offset" in each] + [each for each in apis if each.startswith("Add")]
    events += tuple(draw_spread_faults(rng, own_apis, count=count, occurrences=occurrences))
    if mode != "idempotent" and rng.random() < 0.4:
        # Requests of one transaction that arrive in the next one.
        late_apis = [each for each in own_apis if each in ("EndTxn", "TxnOffsetCommit")]
        before = [*own_apis, "EndTxn", "EndTxn", "EndTxn"]
        late = [
            draw_late_request(rng, late_apis, before, occurrences=4 * scale) for _ in range(rng.randint(1, 3) * scale)
        ]
        events += tuple(late)
    events += tuple(_draw_open_outcome(rng, mode) for _ in range(rng.choice((0, 0, 1, 2)) * scale))
    for _ in range(1 if is_burst and not long else rng.choice((0, 0, 1)) * scale):
        events += tuple(_draw_rejection(rng, mode, long=long, splits=is_burst))
    if is_burst and not long:
        seconds = max(seconds, 30.0)  # until the faults end: longer than a delivery timeout and its repetition
        parameters |= {"delivery_timeout_ms": rng.choice((10_000, 10_000, 120_000)), "request_timeout_ms": 1_000}
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
    if mode == "idempotent" and not long and rng.random() < 0.06:
        events, seconds = _draw_metadata_errors(rng, parameters), 20.0
    # Many faults take time, and the last ones happen too.
    return Plan(NAME, parameters, events, quiet_after=max(seconds, 5.0 * count))


def _draw_metadata_errors(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a topic without metadata for a while, beside another one whose records expire one after the other.

    Each of these records limits the time for a request, so that the records of the first topic are tried again.
    """
    sends = 45
    parameters |= {
        "brokers": 3,
        "topics": 2,
        "partitions": 1,
        "threads": 1,
        "sends": sends,
        # The first topic has records before and between those of the second one.
        "send_list": [[0 if number < 20 or number % 3 == 0 else 3, 0.15] for number in range(sends)],
        "missing": [],
        "reopened": [],
        "flushes": [],
        "large": [],
        "buffer_bytes": 32 << 20,
        "linger": 0.0,
        "max_message_bytes": None,
        "delivery_timeout_ms": 5_000,
        "api_timeout_ms": 10_000,
        "request_timeout_ms": 30_000,
        "max_in_flight": 5,
    }
    stalled = {"api": "Produce", "occurrence": 1, "repeats": 1}
    metadata = {"api": "Metadata", "occurrence": 1, "repeats": rng.randint(8, 40), "draw": 0, "of_topics": True}
    return Event("stall_request", args=stalled), Event("error", args=metadata)


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


def _draw_rejection(rng: random.Random, mode: str, *, long: bool, splits: bool) -> list[Event]:
    """Draw a request whose tries have no response, or errors, before a try is rejected, and later ones fail.

    So a rejection follows a try that may have been handled, or comes shortly before ``delivery.timeout.ms``.
    """
    api = "Produce" if mode == "idempotent" or splits else rng.choice(("Produce", "EndTxn", "EndTxn"))
    place = rng.choice((1, 1, 2)) if splits else rng.choice((0, 0, 1, 2, rng.randrange(200 if long else 12)))
    codes = (10,) if splits else rng.sample(_REJECTIONS[api], rng.randint(1, len(_REJECTIONS[api])))
    kinds = ("lose_response", "lose_response", "stall_response", "late_request", "error", "error", "error")
    steps: list[tuple[str, int, dict[str, Any]]] = []
    match rng.choice(kinds):
        case "error":
            tries = rng.choice((1, 10, 11, 12) if splits else (1, 2, 8, 12))
            steps.append(("error", tries, {"draw": rng.randrange(1_000_000), "is_handled": rng.random() < 0.5}))
        case kind:
            steps.append((kind, 1, {"seconds": round(20 * rng.random(), 3)} if kind == "late_request" else {}))
    steps += [("error", 1, {"draw": 0, "code": code}) for code in codes]
    if rng.random() < 0.6:
        steps.append(("error", rng.choice((1, MAX_REPEATS, MAX_REPEATS)), {"draw": rng.randrange(1_000_000)}))
    events = []
    for kind, repeats, args in steps:
        events.append(Event(kind, args={**args, "api": api, "occurrence": place, "repeats": repeats}))
        place += repeats
    return events


def run(world: World, plan: Plan) -> None:
    environment = Environment(world, plan)
    for topic, partitions in partition_counts(TOPICS, plan.parameters).items():
        environment.cluster.create_topic(topic, partitions, configs=topic_configs(plan.parameters))
    for broker in environment.cluster.brokers.values():
        broker.apply_image(environment.cluster.image)  # a broker that lacked a topic would say that it does not exist
    if plan.parameters["mode"] == "idempotent":
        _IdempotentRun(environment).run()
    else:
        TransactionalRun(environment).run()


class _Send:
    """One record and what its future returned."""

    __slots__ = (
        "completed_at",
        "completions",
        "error",
        "is_accepted",
        "is_assigned",
        "metadata",
        "partition",
        "sent_at",
        "thread",
        "value",
    )

    def __init__(self, value: bytes, partition: TopicPartition, thread: tuple[int, int], sent_at: float) -> None:
        self.value = value
        self.partition = partition
        self.is_accepted = False  # by the producer
        self.is_assigned = True  # to a partition, by the caller
        self.thread = thread
        self.sent_at = sent_at
        self.completed_at = 0.0
        self.completions = 0
        self.error: BaseException | None = None
        self.metadata: RecordMetadata | None = None


class _IdempotentRun:
    """Threads that send records with an ``AsyncProducer``."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._parameters = environment.plan.parameters
        self._counts = partition_counts(TOPICS, self._parameters)
        self._process = environment.process("writer")
        self._sends: list[_Send] = []
        self._session = 0
        self._may_reject = any("code" in each.args for each in environment.plan.events)
        self._paused = sum(each.args["seconds"] for each in environment.plan.events if each.kind in PAUSES)

    def run(self) -> None:
        environment = self._environment
        self._client = environment.client(self._process, request_timeout_ms=self._parameters["request_timeout_ms"])
        self._producer = self._new_producer()
        threads = [
            self._process.spawn(f"thread {number}", partial(self._send_all, number))
            for number in range(self._parameters["threads"])
        ]
        if self._parameters.get("next_sequence"):
            environment.world.run([self._process.spawn("age", self._age)])
        environment.world.run(threads)
        if not self._process.dead:
            environment.world.run([self._process.spawn("close", self._finish)])
        environment.raise_errors()
        if not self._process.dead:
            environment.check_released([self._process])
        environment.heal()
        environment.world.run_for(100.0)  # late requests arrive
        environment.check_threads([self._process])
        self._check()

    def _age(self) -> None:
        """Let the process have a producer id that was used for long: its sequence numbers are about to start again."""
        with contextlib.suppress(KafkaDirectError):
            deadline = self._client.deadline()
            self._client.refresh_brokers(deadline=deadline)
            producer = request_producer_id(self._client, deadline)
            sequence = PartitionSequence(producer, self._parameters["next_sequence"])
            partitions = [partition_at(self._counts, place) for place in all_places(self._counts)]
            state = IdempotentProducerState(producer, dict.fromkeys(partitions, sequence))
            self._client.pool.idle_producers.release((self._client.settings, self._client.cluster_id), state)

    def _new_producer(self) -> AsyncProducer:
        return AsyncProducer(self._client, settings(self._parameters), linger=self._parameters["linger"])

    def _send_all(self, thread: int) -> None:
        threads = self._parameters["threads"]
        for number, (place, pause) in enumerate(self._parameters["send_list"][: self._parameters["sends"]]):
            if number % threads == thread:
                self._process.sleep(pause)
                if number in self._parameters.get("reopened", ()):
                    self._reopen()
                partition = partition_at(self._counts, place)
                is_large = number in self._parameters.get("large", ())
                is_assigned = number not in self._parameters.get("unassigned", ())
                self._send(partition, thread, is_large=is_large, is_assigned=is_assigned)
                if number in self._parameters.get("flushes", ()):
                    self._flush()
                if number in self._parameters.get("missing", ()):
                    self._send(partition._replace(partition=_MISSING_PARTITION), thread)

    def _reopen(self) -> None:
        began, seconds = self._environment.world.now, self._parameters.get("close_seconds", _CLOSE_SECONDS)
        self._close(seconds)
        if self._environment.world.now > began + seconds - 0.1:
            self._session += 1  # the next one may have another producer id, so that no order is defined
        self._process.sleep(0.1)
        self._producer = self._new_producer()

    def _flush(self) -> None:
        """Wait for all records that were sent before."""
        sends = [send for send in self._sends if send.is_accepted]
        with contextlib.suppress(BrokerTimeoutError):
            self._producer.flush(1.0)
            if pending := [send.value for send in sends if not send.completions]:
                raise ViolationError(f"flush() returns before records are completed: {pending}")

    def _send(
        self, partition: TopicPartition, thread: int, *, is_large: bool = False, is_assigned: bool = True
    ) -> _Send:
        world = self._environment.world
        value = b"r-%d" % len(self._sends) + b"." * (LARGE_BYTES if is_large else 0)
        send = _Send(value, partition, (self._session, thread), world.now)
        send.is_assigned = is_assigned
        self._sends.append(send)
        operation = world.start_operation(self._process)  # until the outcome is known
        attributes = attributes_of(send.value) if self._parameters["attributes"] else NO_ATTRIBUTES
        future = self._producer.send(
            partition.topic,
            attributes.key,
            send.value,
            headers=[(name.decode(), value) for name, value in attributes.headers],
            partition=partition.partition if is_assigned else None,
            timestamp=attributes.timestamp if self._parameters["attributes"] else None,
        )
        send.is_accepted = True
        send.sent_at = world.now  # the wait for memory does not count
        future.add_done_callback(partial(self._completed, send, operation))
        return send

    def _completed(self, send: _Send, operation: int, future: Future[RecordMetadata]) -> None:
        send.completions += 1
        send.error = future.exception()
        send.metadata = None if send.error is not None else future.result()
        send.completed_at = self._environment.world.now
        self._environment.world.end_operation(operation, "completed" if send.error is None else "failed")

    def _finish(self) -> None:
        environment = self._environment
        self._process.sleep(max(0.0, environment.quiet_at - environment.world.now) + 100.0)
        sends = [self._send(partition_at(self._counts, place), 0) for place in all_places(self._counts)]
        self._producer.flush(300.0)
        for send in sends:
            if send.completed_at - send.sent_at > QUIET_SECONDS:
                raise ViolationError(f"a send takes {send.completed_at - send.sent_at:.1f} s though no fault is left")
            if send.error is not None:
                raise ViolationError(f"a send fails though no fault is left: {send.error!r}") from send.error
        self._close(_CLOSE_SECONDS)

    def _close(self, seconds: float) -> None:
        """Close the producer in time; afterwards each record is completed."""
        began = self._environment.world.now
        self._producer.close(seconds)
        passed = self._environment.world.now - began
        if passed > seconds + _CLOSE_SLACK + self._paused:
            raise ViolationError(f"close({seconds:g}) takes {passed:.2f} s")
        self._process.sleep(0.1)  # the thread may be about to complete records
        if pending := [send.value for send in self._sends if send.is_accepted and not send.completions]:
            raise ViolationError(f"close() returns before records are completed: {pending}")

    def _check(self) -> None:
        partitions = visible_records(self._environment, READ_UNCOMMITTED)
        positions: dict[bytes | None, list[tuple[TopicPartition, int]]] = {}
        for tp, records in partitions.items():
            for offset, value in records:
                positions.setdefault(value, []).append((tp, offset))
        for send in self._sends:
            if not send.is_assigned:
                self._find_partition(send, positions.get(send.value, []))
        for send in self._sends:
            self._check_send(send, positions.get(send.value, []))
        for tp, records in partitions.items():
            self._check_order(tp, [value for _, value in records])

    def _find_partition(self, send: _Send, found: list[tuple[TopicPartition, int]]) -> None:
        """Set the partition of a record that the producer has assigned, which has to follow from its key."""
        topic = send.partition.topic
        places = [tp for tp, _ in found]
        if isinstance(send.error, KafkaDirectError) and send.error.partition is not None:
            places.append(TopicPartition(topic, send.error.partition))
        if send.metadata is not None:
            places.append(TopicPartition(topic, send.metadata.partition))
        send.partition = next(iter(places), send.partition)
        key = attributes_of(send.value).key if self._parameters["attributes"] else None
        counts = range(self._counts[topic], len(self._environment.cluster.topics[topic].partitions) + 1)
        if key is not None and any(
            tp.partition not in {java_partition(key, count) for count in counts} for tp in places
        ):
            raise ViolationError(f"a record with the key {key!r} was assigned to {places}")

    def _check_send(self, send: _Send, found: list[tuple[TopicPartition, int]]) -> None:
        name = send.value.decode()
        if len(found) > 1 and not self._may_be_written_twice(send):
            raise ViolationError(f"a record was written {len(found)} times: {name} at {found}")
        for tp, _ in found:
            if tp != send.partition:
                raise ViolationError(f"a record for {send.partition} was written to {tp}: {name}")
            check_attributes(self._environment, tp, send.value)
        if self._process.dead and not send.completions:
            return
        if send.completions != 1:
            raise ViolationError(f"the future of a record was completed {send.completions} times: {name}")
        limit = (self._parameters["delivery_timeout_ms"] + self._parameters["request_timeout_ms"]) / 1000
        passed = send.completed_at - send.sent_at
        if passed > limit + _SLACK + self._paused:
            raise ViolationError(f"a record is completed late: {name} after {passed:.2f} s, not {limit:.2f} s")
        is_missing = send.partition.partition == _MISSING_PARTITION
        if isinstance(send.error, KafkaDirectError):
            self._check_error(send, send.error)
        if isinstance(send.error, TopicNotFoundError) and not is_missing:
            raise ViolationError(f"a record fails because of another partition that is missing: {name}: {send.error}")
        if send.metadata is not None:
            self._check_metadata(send, send.metadata, found)
        elif found and "were not written" in str(send.error):
            raise ViolationError(f"a record was written although its error denies it: {name}: {send.error}")

    def _check_error(self, send: _Send, error: KafkaDirectError) -> None:
        """Check that an error is that of the record's partition, and that only large records are too large."""
        place = (send.partition.topic, send.partition.partition)
        if error.topic not in (None, place[0]) or error.partition not in (None, place[1]):
            raise ViolationError(f"a record for {send.partition} fails with the error of another one: {error!r}")
        may_be_too_large = len(send.value) > LARGE_BYTES or self._may_reject
        if isinstance(error, RecordTooLargeError) and not may_be_too_large:
            raise ViolationError(f"a small record is too large: {send.value!r}: {error}")

    def _check_metadata(self, send: _Send, metadata: RecordMetadata, found: list[tuple[TopicPartition, int]]) -> None:
        name = send.value.decode()
        written_to = TopicPartition(metadata.topic, metadata.partition)
        if (written_to, metadata.offset) not in found and not (found and metadata.offset == -1):
            raise ViolationError(f"an acknowledged record is not at its offset: {name}, {metadata}, {found}")
        if metadata.timestamp != self._environment.oracle.attributes[*send.partition, send.value].timestamp:
            raise ViolationError(f"an acknowledged record has another timestamp: {name}, {metadata}")
        topic_id = self._environment.cluster.topics[metadata.topic].topic_id
        if metadata.topic_id not in (None, topic_id):
            raise ViolationError(f"an acknowledged record has the id of another topic: {name}, {metadata}")
        truth = self._environment.oracle.truth(send.partition)
        entry = max(
            (each for each in truth.path(truth.epoch()) if each.value == send.value), key=lambda each: each.epoch
        )
        if metadata.leader_epoch > entry.epoch:
            raise ViolationError(f"an acknowledged record has the epoch of a later leader: {name}, {metadata}, {entry}")

    def _may_be_written_twice(self, send: _Send) -> bool:
        """Return whether a deposed leader, which lacks the batch, may have responded instead of the leader."""
        environment = self._environment
        if environment.cluster.settings.leader_epochs:  # the producer does not return to a deposed leader
            return False
        return environment.oracle.was_deposed(send.partition.topic, send.sent_at, environment.world.now)

    def _check_order(self, partition: TopicPartition, values: list[bytes | None]) -> None:
        sent = [send for send in self._sends if send.partition == partition and send.value in values]
        for thread in sorted({send.thread for send in sent}):
            of_thread = [send for send in sent if send.thread == thread]
            acknowledged = [values.index(send.value) for send in of_thread if send.completions and not send.error]
            if acknowledged != sorted(acknowledged):
                raise ViolationError(f"acknowledged records of {partition} are in another order: {values}")
            everything = [values.index(send.value) for send in of_thread]
            if everything != sorted(everything):
                raise ViolationError(f"a record that was reported as failed follows a newer one: {partition}, {values}")
