"""Threads that send records with an ``AsyncProducer``: each is completed once, and written once and in order."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.errors import ViolationError
from tests.simulation.faults import PAUSES
from tests.simulation.oracle import READ_UNCOMMITTED
from tests.simulation.record_attributes import attributes_of
from tests.simulation.scenarios.producer_checks import (
    LARGE_BYTES,
    NO_ATTRIBUTES,
    PASSING_TOPIC,
    QUIET_SECONDS,
    TOPICS,
    LoggedWarnings,
    check_attributes,
    java_partition,
    settings,
    visible_records,
)
from tests.simulation.scenarios.producer_traffic import ProducerTraffic, writers_of
from tests.simulation.scenarios.several_topics import all_places, partition_at, partition_counts

from pyspark_kafka_direct.client.producer_ids import request_producer_id
from pyspark_kafka_direct.client.producer_state import IdempotentProducerState, PartitionSequence
from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    InvalidRecordError,
    KafkaDirectError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer.async_producer import AsyncProducer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tests.simulation.environment import Environment

    from pyspark_kafka_direct.producer.async_producer import RecordMetadata

_MISSING_PARTITION = 100
_CLOSE_SECONDS = 10.0
_CLOSE_SLACK = 1.0  # seconds for the callbacks of records that it fails
_MILD_SECONDS = 12.0
_RECORD_BYTES = 61 + 21 + 1024  # of a record in the buffer, beside its contents
_REJECTED = (32, 87)  # INVALID_TIMESTAMP, INVALID_RECORD
_CODES_OF_ERRORS = {
    InvalidRecordError: {*_REJECTED},
    RecordTooLargeError: {10, 18},  # MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE
}
_NOT_ACKNOWLEDGED = "Records were not acknowledged within"
_SLACK = 5.0  # seconds by which a result may come late: connects and responses on the way


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


class IdempotentRun:
    """Threads that send records with an ``AsyncProducer``."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._parameters = environment.plan.parameters
        self._counts = partition_counts(TOPICS, self._parameters)
        self._process = environment.process("writer")
        self._sends: list[_Send] = []
        self._session = 0
        self._traffic = ProducerTraffic(environment)
        self._may_reject = any("code" in each.args for each in environment.plan.events)
        self._paused = sum(each.args["seconds"] for each in environment.plan.events if each.kind in PAUSES)

    def run(self) -> None:
        with LoggedWarnings() as log:
            self._run()
        allowed = ("still retrying",) if self._environment.plan.events else ()
        needless = [each for each in log.messages if not each.startswith(allowed)]
        if needless and not self._process.dead:
            raise ViolationError(f"the package logs a warning: {needless[0]}")

    def _run(self) -> None:
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
        ids = writers_of(self._traffic.batches)
        most_ids = 1 + (self._parameters.get("next_epoch", 0) > 0)
        if len(ids) > most_ids and not self._parameters.get("reopened"):
            raise ViolationError(f"the producer ids {sorted(ids)} are used, although one is enough")
        is_replaced = self._parameters.get("reopened") or any(send.error is not None for send in self._sends)
        self._traffic.check(obeys_quotas=not is_replaced)

    def _age(self) -> None:
        """Let the process have a producer id that was used for long: its sequence numbers are about to start again."""
        with contextlib.suppress(KafkaDirectError):
            deadline = self._client.deadline()
            self._client.refresh_brokers(deadline=deadline)
            producer = request_producer_id(self._client, deadline)
            aged = producer._replace(epoch=self._parameters.get("next_epoch", producer.epoch))
            sequence = PartitionSequence(aged, self._parameters["next_sequence"])
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
                if number in self._parameters.get("passing", ()):
                    self._send(TopicPartition(PASSING_TOPIC, number % 2), thread, is_assigned=is_assigned)
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
        incomplete = [send for send in sends if not send.completions or send.completed_at > self._environment.world.now]
        try:
            self._producer.flush(1.0)
        except BrokerTimeoutError as error:
            count = int(str(error).split()[0])
            fewest = sum(not send.completions for send in sends)
            if not fewest <= count <= len(incomplete) + self._parameters["threads"] - 1:
                raise ViolationError(f"flush() waits for {len(incomplete)} records: {error}") from error
        else:
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
        send.sent_at = world.now  # the wait for memory does not count
        future.add_done_callback(partial(self._completed, send, operation))
        send.is_accepted = True
        self._check_memory()
        return send

    def _check_memory(self) -> None:
        """Check that records wait while others fill the buffer."""
        incomplete = [each for each in self._sends if each.is_accepted and not each.completions]
        size = sum(len(each.value) + _RECORD_BYTES for each in incomplete)
        if len(incomplete) > 1 and size > self._parameters.get("buffer_bytes", 32 << 20):
            raise ViolationError(f"{len(incomplete)} records of {size} bytes are incomplete, more than buffer.memory")

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
        self._check_effort()
        self._close(_CLOSE_SECONDS)

    def _check_effort(self) -> None:
        """Check that records need only one request each, without a pause, once all leaders are known."""
        world, before = self._environment.world, self._traffic.counts()
        sends = [self._send(partition_at(self._counts, place), 0) for place in all_places(self._counts)]
        self._producer.flush(300.0)
        delay = self._environment.cluster.settings.replication_delay
        for send in sends:
            seconds = send.completed_at - send.sent_at
            if seconds > self._parameters["linger"] + 2 * delay + 0.2:
                raise ViolationError(f"a send takes {seconds:.2f} s though all leaders are known")
        needed = {"Produce": len(sends), "Metadata": 1 + len(self._counts)}
        for api, count in (self._traffic.counts() - before).items():
            if count > needed.get(api, 0):
                raise ViolationError(f"{len(sends)} sends need {count} requests {api}, at {world.now:.3f}")
        if self._producer._buffered_bytes:
            raise ViolationError(f"{self._producer._buffered_bytes} bytes are buffered although nothing is incomplete")

    def _close(self, seconds: float) -> None:
        """Close the producer in time; afterwards each record is completed."""
        began = self._environment.world.now
        self._producer.close(seconds)
        passed = self._environment.world.now - began
        if passed > seconds + _CLOSE_SLACK + self._paused:
            raise ViolationError(f"close({seconds:g}) takes {passed:.2f} s")
        is_early = passed < seconds - 0.001
        if is_early and any(_is_closed(send) and send.completed_at >= began for send in self._sends):
            raise ViolationError(f"close({seconds:g}) fails records after {passed:.2f} s")
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
            if not send.is_assigned and send.partition.topic != PASSING_TOPIC:
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

    def _check_passing(self, send: _Send) -> None:
        """Check a record of the topic that is deleted, recreated or forbidden in the history."""
        error = send.error
        kinds = {event.kind for event in self._environment.plan.events if event.args.get("topic") == PASSING_TOPIC}
        may_be_missing = bool(kinds & {"delete_topic", "recreate_topic"})
        if isinstance(error, TopicNotFoundError) and not may_be_missing:
            raise ViolationError(f"a record fails because of a topic that exists: {error}")
        if isinstance(error, AuthorizationError) and "deny_topic" not in kinds and not self._may_reject:
            raise ViolationError(f"a record fails because of a topic that is not forbidden: {error}")

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
        if self._parameters.get("mild") and send.partition.topic != PASSING_TOPIC:
            self._check_mild(send, passed)
        if send.partition.topic == PASSING_TOPIC:
            self._check_passing(send)
            return
        if isinstance(send.error, AuthorizationError) and not self._may_reject:
            raise ViolationError(f"a record fails because of a topic that is not forbidden: {send.error}")
        is_missing = send.partition.partition == _MISSING_PARTITION
        if isinstance(send.error, KafkaDirectError):
            self._check_error(send, send.error)
            self._check_outcome(send, send.error)
        if isinstance(send.error, TopicNotFoundError) and not is_missing:
            raise ViolationError(f"a record fails because of another partition that is missing: {name}: {send.error}")
        if send.metadata is not None:
            self._check_metadata(send, send.metadata, found)
        elif found and "were not written" in str(send.error):
            raise ViolationError(f"a record was written although its error denies it: {name}: {send.error}")

    def _check_mild(self, send: _Send, passed: float) -> None:
        """Check that a record survives the few short faults of a mild history."""
        others = any("change" not in event.args for event in self._environment.plan.events)
        if others and self._was_forgotten(send.partition):
            return  # an earlier try may have been written, so a record that the leader rejects then is not sent again
        name = send.value.decode()
        if send.error is not None:
            raise ViolationError(
                f"a record fails although the faults are short: {name}: {send.error!r}"
            ) from send.error
        if passed > _MILD_SECONDS and not self._parameters.get("passing"):  # a missing topic delays the others
            raise ViolationError(f"a record takes {passed:.2f} s although the faults are short: {name}")

    def _check_outcome(self, send: _Send, error: KafkaDirectError) -> None:
        """Check that an error says whether the record may have been written, and is not raised too early."""
        name, text = send.value.decode(), str(error)
        batches = self._traffic.batches_with(send.partition, send.value)
        if "were not written" in text and any(each.outcome_is_open for each in batches):
            raise ViolationError(f"a record may have been written, which its error denies: {name}: {text}")
        # On a connection that was reset, a part of a request may have been sent.
        was_reset = any(line[1] == "reset" for line in self._environment.world.trace_lines)
        if "may have been written" in text and not (batches or was_reset or _is_closed(send)):
            raise ViolationError(f"a record was never sent, but its error says that it may be written: {name}: {text}")
        codes = {each.code for each in batches}
        for kind, possible in _CODES_OF_ERRORS.items():
            is_possible = bool(codes & possible) or (kind is RecordTooLargeError and len(send.value) > LARGE_BYTES)
            if isinstance(error, kind) and not is_possible:
                raise ViolationError(f"a record fails without a reason, after {codes}: {name}: {text}")
        final = next((each.code for each in reversed(batches)), None)
        if final in _REJECTED and not isinstance(error, InvalidRecordError | BrokerTimeoutError):
            raise ViolationError(f"a rejected record fails with {error!r}")
        if "The last error: " in text and error.__cause__ is None:
            raise ViolationError(f"an error has no cause: {error!r}")
        least = self._parameters["delivery_timeout_ms"] / 1000 - 1.0 - self._parameters["linger"]
        if _NOT_ACKNOWLEDGED in text and send.completed_at - send.sent_at < least - 0.01:
            raise ViolationError(f"a record expires after {send.completed_at - send.sent_at:.2f} s: {name}: {text}")

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
        if (
            metadata.offset >= 0
            and metadata.timestamp != self._environment.oracle.attributes[*send.partition, send.value].timestamp
        ):
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
        if self._was_forgotten(send.partition, send.sent_at):
            return True
        if environment.cluster.settings.leader_epochs:  # the producer does not return to a deposed leader
            return False
        return environment.oracle.was_deposed(send.partition.topic, send.sent_at, environment.world.now)

    def _was_forgotten(self, partition: TopicPartition, since: float = 0.0) -> bool:
        """Return whether a leader has forgotten the producer id, or it may change: late requests count as new then."""
        if self._parameters.get("next_epoch") and self._parameters.get("next_sequence"):
            return True  # after the last epoch there is another id, which does not fence the one before
        forgotten = self._environment.cluster.state("forgotten producers", list)
        return any(at >= since and (topic, index) == partition for at, topic, index in forgotten)

    def _check_order(self, partition: TopicPartition, values: list[bytes | None]) -> None:
        sent = [send for send in self._sends if send.partition == partition and send.value in values]
        for thread in sorted({send.thread for send in sent}):
            of_thread = [send for send in sent if send.thread == thread]
            acknowledged = [values.index(send.value) for send in of_thread if send.completions and not send.error]
            if acknowledged != sorted(acknowledged):
                raise ViolationError(f"acknowledged records of {partition} are in another order: {values}")
            everything = [values.index(send.value) for send in of_thread]
            if everything != sorted(everything) and not self._was_forgotten(partition):
                raise ViolationError(f"a record that was reported as failed follows a newer one: {partition}, {values}")


def _is_closed(send: _Send) -> bool:
    """Return whether ``close`` has failed a record."""
    return send.error is not None and "closed" in str(send.error)
