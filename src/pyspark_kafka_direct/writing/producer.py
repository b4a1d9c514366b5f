"""Sends record batches to the leaders of their partitions, until all are acknowledged.

Everything happens in the caller's thread: ``send`` and ``flush`` take the answers that are there, send what may be
sent, and wait only where they must. Brokers work at the same time, as each has several requests under way.

Which batch may be sent when is decided in ``_partition.py``, what an answer means in ``_verdicts.py``.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    KafkaDirectError,
    TopicNotFoundError,
    TransientBrokerError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.records import split, stamp
from pyspark_kafka_direct.wire._retry import DENIALS_TO_BELIEVE, Retry, growing
from pyspark_kafka_direct.wire.codes import ErrorCode, error_for
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.produce import NO_OFFSET, NO_TIME, ProducedPartition
from pyspark_kafka_direct.wire.system import jittered
from pyspark_kafka_direct.writing._identity import Identities, Identity
from pyspark_kafka_direct.writing._link import Link
from pyspark_kafka_direct.writing._partition import Partition, Pending
from pyspark_kafka_direct.writing._verdicts import Verdict, failure, judge, may_be_written, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.metadata import Node
    from pyspark_kafka_direct.writing._link import Sent
    from pyspark_kafka_direct.writing._partition import Recipient

__all__ = ["Identity", "Producer", "Written"]

_DELIVERY: Final = "kafka.delivery.timeout.ms"

# A broker knows the last five batches of a producer in a partition: of more under way, it might not see that one comes
# again.
_MOST_UNDER_WAY: Final = 5

# Just after a transaction has ended, a broker may ask for patience; it is a matter of milliseconds.
_BRIEF_PAUSE: Final = 0.01
_BRIEF: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS})


class Written(NamedTuple):
    """What was written to a partition.

    Attributes:
        first_offset: Offset of the first record; -1 if the broker did not tell it of every batch.
        next_offset: Offset after the last record; -1 likewise. Others may have written in between.
        records: How many records.
        bytes: Their size as they were sent.
    """

    first_offset: int
    next_offset: int
    records: int
    bytes: int


class Producer:
    """Writes record batches; those of one partition in their order.

    It is idempotent unless the settings say otherwise: what is sent twice is written once. Without sequence numbers
    one request of a partition is under way at a time, so that the order is kept there too.

    After an error it is of no more use, and what was not acknowledged may have been written, or not. A batch fails when
    ``delivery.timeout.ms`` have passed since it was first sent, or could not be; its time in the queue does not count.

    A batch with a recipient fails alone, where it, its partition or its topic is all that is wrong: the recipient is
    told, the producer goes on, and later batches of the partition are written without it. After any other error the
    recipients of all batches are told.

    Used by one thread.

    Args:
        cluster: The cluster.
        settings: How.
        identity: Who writes; by default an idempotent producer that the process keeps for as long as it can be used.
        before_first: Called with partitions before they are first written to, where the broker does not add them to the
            transaction by itself (``transaction.version`` below 2).

    Raises:
        ValueError: Records of a transaction would not wait for all replicas in sync, and could be lost in it.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProduceSettings,
        identity: Identity | None = None,
        *,
        before_first: Callable[[Collection[TopicPartition]], None] | None = None,
    ) -> None:
        if identity is not None and settings.acks != -1:
            raise ValueError(f"a producer id of a transaction needs acks=-1, not {settings.acks}")
        self._cluster = cluster
        self._settings = settings
        self._system = cluster.pool.system
        self._process = os.getpid()
        self._before_first = before_first
        self._identities = Identities(cluster, settings, identity)
        self._partitions: dict[TopicPartition, Partition] = {}
        self._unsettled: dict[Partition, None] = {}
        self._troubled: dict[Partition, None] = {}
        self._homeless: dict[Partition, None] = {}
        self._links: dict[Node, Link] = {}
        self._announced: set[TopicPartition] = set()
        self._too_large: dict[str, int] = {}
        self._held = 0
        self._gathered = 0
        self._written: dict[TopicPartition, Written] = {}
        self._failure: KafkaDirectError | None = None
        self._closed = False

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes of the record batches that wait or are under way."""
        return self._held

    def waiting(self, partition: TopicPartition) -> int:
        """Return how many record batches of a partition wait to be sent."""
        found = self._partitions.get(partition)
        return 0 if found is None else found.waiting

    @property
    def has_waiting(self) -> bool:
        """Whether any record batch waits to be sent."""
        return bool(self._homeless) or any(link.ready for link in self._links.values())

    def descriptors(self) -> list[int]:
        """Return what to wait for: when one of them is readable, ``work(0)`` has an answer to take."""
        return [link.descriptor for link in self._links.values() if not link.idle]

    def send(
        self,
        topic: str,
        batch: EncodedBatch,
        recipient: Recipient | None = None,
        *,
        since: float | None = None,
        more: bool = False,
    ) -> None:
        """Take a record batch; wait only while more than ``buffer.memory`` is not acknowledged.

        Args:
            topic: Its topic.
            batch: The batch; it is changed, and not to be used again.
            recipient: Is told what became of it, in this call or a later one; it must not call the producer.
            since: When ``delivery.timeout.ms`` began for it, by the system's monotonic clock.
            more: Whether others follow at once, or ``flush``: a small batch waits for them, to share their request.

        Raises:
            TopicNotFoundError: There is no such topic or partition.
            AuthorizationError: The principal may not write to it.
            RecordTooLargeError: A record is larger than the topic allows.
            RecordRefusedError: The broker does not take a record.
            BrokerTimeoutError: A batch was not acknowledged in time.
            BrokerError: Something else went wrong.
        """
        with self._failing():
            size = len(batch.data)
            self._add(TopicPartition(topic, batch.partition), batch.records, batch.data, 0, recipient, since)
            if more and self._gathers(batch):
                return
            self._turn()
            while self._held > max(self._settings.buffer_bytes, size):
                self._wait()
                self._turn()

    def work(self, seconds: float, wake: Collection[int] = ()) -> None:
        """Wait until something can be done, and do it; so long at most.

        Args:
            seconds: How long.
            wake: Descriptors of other things to wait for.

        Raises:
            KafkaDirectError: As ``send``.
        """
        with self._failing():
            if seconds > 0:
                self._wait(seconds, wake)
            self._turn()

    def flush(self) -> dict[TopicPartition, Written]:
        """Wait until everything is acknowledged; return what was written since the last time.

        Raises:
            KafkaDirectError: As ``send``.
        """
        with self._failing():
            self._turn()
            while self._unsettled:
                self._wait()
                self._turn()
        written, self._written = self._written, {}
        return written

    def begin(self, identity: Identity | None = None) -> None:
        """Begin another transaction, after ``flush``: every partition is announced to ``before_first`` again.

        Args:
            identity: Who writes from now on, such as in the next epoch; sequence numbers begin at 0.
        """
        assert not self._unsettled, "flush comes first"
        self._announced.clear()
        if identity is not None:
            self._identities = Identities(self._cluster, self._settings, identity)
            self._partitions.clear()

    def close(self) -> None:
        """Give back the connections and, if all that was sent is acknowledged, the producer id. Waits for nothing."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        if not self._closed and not self._unsettled and self._process == os.getpid():
            self._identities.keep(self._partitions.values())
        self._closed = True

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Remember a failure: nobody knows what became of what was under way, so nothing more is sent."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise RuntimeError("the producer is closed")
        if self._process != os.getpid():
            # With the same sequence numbers of both, brokers would take the records of one for those of the other.
            raise RuntimeError("the producer belongs to the parent process")
        try:
            yield
        except BaseException as error:
            self._failure = error if isinstance(error, KafkaDirectError) else None
            self._closed = True
            for partition in self._unsettled:
                for batch in partition.abandon():
                    if batch.recipient is not None:
                        batch.recipient.failed(batch.first, batch.records, outcome(error, in_doubt=batch.in_doubt))
            raise

    def _gathers(self, batch: EncodedBatch) -> bool:
        """Tell whether a batch is to wait for company, and count it if so."""
        self._gathered += len(batch.data)
        small = batch.raw_bytes < self._settings.batch_bytes // 2 and self._held <= self._settings.buffer_bytes
        if small and self._gathered < self._settings.max_request_bytes:
            return True
        self._gathered = 0
        return False

    def _add(
        self,
        name: TopicPartition,
        records: int,
        data: bytearray,
        first: int,
        recipient: Recipient | None,
        since: float | None,
    ) -> None:
        if records > 1 and len(data) >= self._too_large.get(name.topic, len(data) + 1):
            half = (records + 1) // 2
            one, other = split(data)
            self._add(name, half, one, first, recipient, since)
            self._add(name, records - half, other, first + half, recipient, since)
            return
        partition = self._partitions.get(name)
        if partition is None:
            numbered = self._identities.numbered
            window = min(self._settings.max_in_flight, _MOST_UNDER_WAY) if numbered else 1
            partition = self._partitions[name] = Partition(name, window, numbered=numbered)
        partition.add(records, data, first, recipient, since)
        self._held += len(data)
        self._unsettled[partition] = None
        self._place(partition)

    def _place(self, partition: Partition) -> None:
        """Put a partition with something to send where it is looked for."""
        if partition.head is None:
            return
        if partition.leader is None:
            self._homeless[partition] = None
            return
        link = self._links.get(partition.leader)
        if link is None:
            link = self._links[partition.leader] = Link(
                self._cluster,
                partition.leader,
                self._settings,
                self._identities.transactional_id,
                adds_partitions=self._before_first is None,
            )
        link.ready[partition] = None

    def _turn(self) -> None:
        """Do all that can be done now."""
        for link in list(self._links.values()):
            while link.has_answer or link.overdue:
                self._take_answer(link)
        self._find_leaders()
        for link in list(self._links.values()):
            while link.has_room and (batches := self._choose(link)):
                self._send(link, batches)
        self._check_deadlines()

    def _wait(self, seconds: float | None = None, wake: Collection[int] = ()) -> None:
        """Wait until there is something to do, or so long, or until a descriptor can be read."""
        waiting = [link for link in self._links.values() if not link.idle]
        if any(link.has_answer for link in waiting):
            return
        now = self._system.monotonic()
        times = [link.answer_due for link in waiting]
        times += [link.throttled_until for link in self._links.values() if link.ready and link.throttled_until > now]
        for partition in self._troubled:
            times += [at for at in (partition.not_before, self._expiry(partition)) if at > now]
        if seconds is not None:
            times.append(now + seconds)
        until = min(times, default=now)
        self._system.wait_readable([*(link.descriptor for link in waiting), *wake], max(until - now, 0.0))

    def _find_leaders(self) -> None:
        now = self._system.monotonic()
        due = [partition for partition in self._homeless if partition.not_before <= now]
        if not due:
            return
        deadline = self._deadline()
        fresh = Retry(deadline, 0, 0.0, 0.0) if any(partition.tries for partition in due) else None
        try:
            leaders = self._cluster.leaders([partition.name for partition in due], deadline, fresh=fresh)
        except TopicNotFoundError as error:
            self._cluster.ask_another()
            for partition in due:
                if partition.name.topic == error.topic and error.partition in (None, partition.name.partition):
                    partition.denials += 1
                    if partition.denials >= DENIALS_TO_BELIEVE:
                        self._give_up(partition, error)
                        continue
                self._trouble(partition, error)
        except AuthorizationError as error:
            if error.topic is None:
                raise
            for partition in due:
                if partition.name.topic == error.topic:
                    self._give_up(partition, error)
        except TransientBrokerError as error:
            if not self._cluster.nodes and not self._links:
                raise  # it was never reached: a wrong address does not get better by waiting
            for partition in due:
                self._trouble(partition, error)
        else:
            for partition in due:
                partition.denials = 0
                leader = leaders[partition.name]
                if leader is None:
                    topic, number = partition.name
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                    self._trouble(partition, error_for(code, "writing records", topic=topic, partition=number))
                else:
                    partition.leader = leader.node
                    del self._homeless[partition]
                    self._place(partition)

    def _choose(self, link: Link) -> Sent:
        """Return the batches of the next request: of each partition one at most, up to ``max.request.size``."""
        now = self._system.monotonic()
        batches: Sent = {}
        size = 0
        for partition in list(link.ready):
            if not partition.may_send(now) or partition.head is None:
                continue
            size += len(partition.head.data)
            if batches and size > self._settings.max_request_bytes:
                break
            if partition.renew:
                partition.begin_anew(self._identities.place(partition.name, partition.place, self._deadline()))
            batch = batches[partition] = partition.send(now)
            if partition.place is not None and not batch.stamped:
                producer_id, epoch = partition.place.producer
                transactional = self._identities.transactional_id is not None
                stamp(batch.data, producer_id, epoch, batch.sequence, transactional=transactional)
                batch.stamped = True
            del link.ready[partition]
            self._place(partition)  # behind the others
        return batches

    def _send(self, link: Link, batches: Sent) -> None:
        if self._before_first is not None:
            first = [each.name for each in batches if each.name not in self._announced]
            if first:
                self._before_first(first)
                self._announced.update(first)
        try:
            link.connect()
        except TransientBrokerError as error:
            self._lose(link, error, link.lose(), unsent=batches)
            return
        try:
            link.send(batches)
        except TransientBrokerError as error:
            self._lose(link, error, [*link.lose(), *batches.items()])
            return
        if self._settings.acks == 0:
            for partition, batch in batches.items():
                self._acknowledge(partition, batch, NO_OFFSET)

    def _take_answer(self, link: Link) -> None:
        try:
            answers = link.receive()
        except TransientBrokerError as error:
            self._lose(link, error, link.lose())
            return
        for partition, batch, answer in answers:
            self._settle(link, partition, batch, answer)

    def _settle(self, link: Link, partition: Partition, batch: Pending, answer: ProducedPartition) -> None:
        """Do with a batch what the broker's answer means."""
        first = partition.is_first(batch)
        verdict = judge(
            answer.error_code,
            records=batch.records,
            first=first,
            numbered=self._identities.numbered,
            renewable=self._identities.renewable,
        )
        if verdict is Verdict.WRITTEN:
            self._acknowledge(partition, batch, answer.base_offset, answer.log_append_time_ms)
            return
        batch.in_doubt |= may_be_written(answer.error_code)
        if verdict is Verdict.FAIL and (first or batch.recipient is None):
            error = failure(answer, partition.name, str(link.node), records=batch.records, data=batch.data)
            self._drop(partition, batch, error)
            self._place(partition)
            return
        if verdict is Verdict.SPLIT:
            topic = partition.name.topic
            self._too_large[topic] = min(len(batch.data), self._too_large.get(topic, len(batch.data)))
            halves = split(batch.data)
            self._held += len(halves[0]) + len(halves[1]) - len(batch.data)
            partition.split(batch, halves)
        else:
            partition.returned(batch)
        if verdict is Verdict.RENEW:
            partition.renew = True
        if verdict is Verdict.MOVED:
            self._forget_leader(partition, link.node, self._cluster.nodes.get(answer.leader))
        if first and verdict is not Verdict.SPLIT:
            topic, number = partition.name
            code = answer.error_code
            error = error_for(
                code, "writing records", topic=topic, partition=number, broker=str(link.node), detail=answer.message
            )
            brief = code in _BRIEF and self._identities.transactional_id is not None
            self._trouble(partition, error, brief=brief)
        self._place(partition)

    def _drop(self, partition: Partition, batch: Pending, error: KafkaDirectError) -> None:
        """Go on without a batch; where nobody wants to be told of it alone, everything fails."""
        if batch.recipient is None:
            raise error
        partition.dropped(batch)
        self._held -= len(batch.data)
        if partition.settled:
            del self._unsettled[partition]  # it stays among the troubled: what comes next waits for its pause too
        batch.recipient.failed(batch.first, batch.records, outcome(error, in_doubt=batch.in_doubt))

    def _give_up(self, partition: Partition, error: KafkaDirectError) -> None:
        """Go on without all that waits for a partition whose leader cannot be asked for; nothing of it is under way."""
        while partition.head is not None:
            self._drop(partition, partition.head, error)
        partition.denials = 0
        self._homeless.pop(partition, None)

    def _acknowledge(self, partition: Partition, batch: Pending, offset: int, append_time: int = NO_TIME) -> None:
        partition.acknowledged(batch)
        self._held -= len(batch.data)
        if batch.recipient is not None:
            batch.recipient.acknowledged(batch.first, batch.records, offset, append_time)
        if partition.trouble is None:
            self._troubled.pop(partition, None)
        if partition.settled:
            del self._unsettled[partition]
        following = NO_OFFSET if offset == NO_OFFSET else offset + batch.records
        before = self._written.get(partition.name, Written(offset, following, 0, 0))
        # A batch that comes again is told its old offset, which may lie before those that were told meanwhile.
        self._written[partition.name] = Written(
            min(before.first_offset, offset),
            NO_OFFSET if NO_OFFSET in (before.next_offset, following) else max(before.next_offset, following),
            before.records + batch.records,
            before.bytes + len(batch.data),
        )

    def _lose(
        self, link: Link, error: KafkaDirectError, lost: list[tuple[Partition, Pending]], unsent: Sent | None = None
    ) -> None:
        """Take back what was under way on a connection that broke, and what could not be sent at all."""
        unsent = unsent or {}
        for _, batch in lost:
            batch.in_doubt = True
        for partition, batch in [*lost, *unsent.items()]:
            partition.returned(batch)
        for partition in {**link.ready, **dict.fromkeys(partition for partition, _ in lost), **unsent}:
            self._forget_leader(partition, link.node)
            self._trouble(partition, error)
            self._place(partition)

    def _forget_leader(self, partition: Partition, node: Node, told: Node | None = None) -> None:
        """Believe no longer that a broker leads a partition, but that the one does that was told, if any."""
        if partition.leader == node:
            self._links[node].ready.pop(partition, None)
            partition.leader = told

    def _trouble(self, partition: Partition, error: KafkaDirectError, *, brief: bool = False) -> None:
        settings = self._cluster.settings
        shortest = _BRIEF_PAUSE if brief else settings.retry_backoff_ms / 1000
        pause = growing(shortest, partition.tries, settings.retry_backoff_max_ms / 1000)
        partition.failed(error, self._system.monotonic(), jittered(pause, self._system))
        self._troubled[partition] = None

    def _check_deadlines(self) -> None:
        now = self._system.monotonic()
        for partition in list(self._troubled):
            while partition.head is not None and self._expiry(partition) <= now and partition.quiet:
                last = partition.trouble
                assert last is not None
                topic, number = partition.name
                some = "; some may have been written" if partition.head.recipient is None else ""
                error = BrokerTimeoutError(
                    f"Records were not acknowledged within {self._settings.delivery_timeout_ms / 1000:g} s "
                    f"({_DELIVERY}){some}. The last try: {last.message}",
                    topic=topic,
                    partition=number,
                    broker=last.broker,
                )
                error.__cause__ = last
                self._drop(partition, partition.head, error)

    def _expiry(self, partition: Partition) -> float:
        head = partition.head
        tried_at = self._system.monotonic() if head is None or head.tried_at is None else head.tried_at
        return tried_at + self._settings.delivery_timeout_ms / 1000

    def _deadline(self) -> Deadline:
        return Deadline.after(self._settings.delivery_timeout_ms / 1000, _DELIVERY, system=self._system)
