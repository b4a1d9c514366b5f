"""Single records on their way to a producer: which partition, which record batch, and what became of each.

Records wait here by partition, as they came. A partition's next record batch is made when the producer has none of it
left to send: so what comes while requests are under way shares batches, and nothing waits for company otherwise.

Used by the thread of an ``Outbox`` only.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import BrokerTimeoutError, KafkaDirectError, TopicNotFoundError, TransientBrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.hints import did_you_mean
from pyspark_kafka_direct.records import create_encoder, partition_of
from pyspark_kafka_direct.wire._retry import DENIALS_TO_BELIEVE
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.produce import NO_TIME
from pyspark_kafka_direct.writing._verdicts import outcome
from pyspark_kafka_direct.writing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from concurrent.futures import Future

    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.wire.cluster import Cluster

_log = logging.getLogger("pyspark_kafka_direct.writing")

_DELIVERY: Final = "kafka.delivery.timeout.ms"
_IDLE: Final = 60.0  # seconds after which the loop turns without a reason
_SPREAD: Final = 1.0  # a record batch expires with its oldest record, so none in it is so many seconds younger


class Receipt(NamedTuple):
    """Where a record was written.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        offset: Its offset; -1 if the broker did not tell, as with ``acks=0``.
        timestamp: Its timestamp, in milliseconds since 1970: the broker's where the topic is so, else its own.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class Outgoing:
    """A record that nobody has acknowledged yet.

    Attributes:
        topic: Its topic.
        key: Its key.
        value: Its value.
        headers: Its headers.
        partition: Its partition; ``None`` until one is chosen.
        timestamp: Its timestamp, in milliseconds since 1970.
        since: When it was sent, by the system's monotonic clock.
        size: Most bytes that it takes in a record batch.
        future: Gets the receipt.
        claimed: Whether somebody gives the future its outcome already.
        handed_over: Whether a producer has it, or had it.
    """

    __slots__ = (
        "claimed",
        "future",
        "handed_over",
        "headers",
        "key",
        "partition",
        "since",
        "size",
        "timestamp",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
        timestamp: int,
        since: float,
        size: int,
        future: Future[Receipt],
    ) -> None:
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.partition = partition
        self.timestamp = timestamp
        self.since = since
        self.size = size
        self.future = future
        self.claimed = False
        self.handed_over = False


class Settled(NamedTuple):
    """What became of records that were together.

    Attributes:
        records: The records.
        offset: Offset of the first one, the others follow; -1 if unknown.
        append_time: The broker's timestamp of them; -1: they have their own.
        error: Why they failed, if they did.
    """

    records: Sequence[Outgoing]
    offset: int = -1
    append_time: int = -1
    error: BaseException | None = None


class Dispatcher:
    """Sorts records by partition, makes record batches of them and has a producer send these.

    After an error that concerns more than a partition, all that the producer has is told it, and another one follows.

    Args:
        cluster: Where to.
        settings: How.
        settle: Is told what became of records: of each once.
        claim: Returns those of some records that are still to be sent, as they are handed to a producer.
        linger: For how many seconds records wait for company.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProduceSettings,
        settle: Callable[[Settled], None],
        claim: Callable[[Sequence[Outgoing]], list[Outgoing]],
        linger: float = 0.0,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._system = cluster.pool.system
        self._settle = settle
        self._claim = claim
        self._linger = linger
        self._spread = _SPREAD + linger
        self._hurry = False
        self._delivery = settings.delivery_timeout_ms / 1000
        self._topics: dict[str, _Topic] = {}
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._outcomes: list[Settled] = []
        self._producer = Producer(cluster, settings)

    def take(self, records: Iterable[Outgoing], *, hurry: bool = False) -> None:
        """Let records wait for their turn.

        Args:
            records: The records.
            hurry: Whether somebody waits for what there is, so that nothing lingers.
        """
        self._hurry = hurry
        refused: dict[str, Exception] = {}
        for record in records:
            error = refused.get(record.topic)
            if error is None:
                try:
                    name = self._place(record)
                except Exception as failure:
                    error = failure
                    if not isinstance(error, TopicNotFoundError) or error.partition is None:
                        refused[record.topic] = error
                else:
                    lane = self._lanes.get(name)
                    if lane is None:
                        lane = self._lanes[name] = _Lane(name)
                    lane.add(record)
                    continue
            self._outcomes.append(Settled([record], error=outcome(error, in_doubt=False)))

    def work(self, wake: Collection[int] = ()) -> None:
        """Do what can be done; wait until there is something to do, or a descriptor can be read."""
        try:
            self._expire()
            self._hand_over()
            if not self._outcomes:
                self._producer.work(self._patience(), wake)
        except Exception as error:
            # Who is concerned was told. Of the producer nothing more is to be had.
            level = logging.DEBUG if isinstance(error, KafkaDirectError) else logging.ERROR
            _log.log(level, "Another producer follows: %s", error, exc_info=level == logging.ERROR)
            self._producer.close()
            self._producer = Producer(self._cluster, self._settings)
        finally:
            self._tell()

    def close(self) -> None:
        """Give back the connections; waits for nothing."""
        self._producer.close()

    def _place(self, record: Outgoing) -> TopicPartition:
        """Choose a record's partition."""
        topic = self._topic(record.topic)
        if record.partition is None:
            if topic.partitions == 1:
                record.partition = 0
            elif record.key is not None and not self._settings.ignore_keys:
                record.partition = partition_of(record.key, topic.partitions)
            else:
                record.partition = topic.stick(record.size, self._settings.batch_bytes)
        elif record.partition >= topic.partitions:
            topic = self._look_up(record.topic)  # it may have been added
            if record.partition >= topic.partitions:
                raise TopicNotFoundError(
                    f"The topic has no such partition; it has {topic.partitions}.",
                    topic=record.topic,
                    partition=record.partition,
                )
        return TopicPartition(record.topic, record.partition)

    def _topic(self, name: str) -> _Topic:
        known = self._topics.get(name)
        if known is None:
            return self._look_up(name)
        if known.looked_up_at + self._cluster.settings.metadata_max_age_ms / 1000 <= self._system.monotonic():
            try:
                return self._look_up(name)
            except TransientBrokerError:
                known.looked_up_at = self._system.monotonic()  # it has at least the partitions that it had
        return known

    def _look_up(self, name: str) -> _Topic:
        settings = self._cluster.settings
        seconds = min(self._delivery, settings.default_api_timeout_ms / 1000)
        deadline = Deadline.after(seconds, system=self._system)
        for denial in range(DENIALS_TO_BELIEVE):
            found = self._cluster.topics([name], deadline=deadline).get(name)
            if found is not None:
                topic = self._topics.setdefault(name, _Topic())
                topic.partitions = len(found.partitions)
                topic.looked_up_at = self._system.monotonic()
                return topic
            self._cluster.ask_another()
            if denial + 1 < DENIALS_TO_BELIEVE:
                self._system.sleep(settings.retry_backoff_ms / 1000)
        hint = did_you_mean(name, self._cluster.all_topics(deadline=deadline))
        raise TopicNotFoundError(
            f"topic {name!r} does not exist, and writing creates no topics: create it first{hint}.", topic=name
        )

    def _hand_over(self) -> None:
        """Give the producer record batches of the partitions that it has none of to send."""
        now = self._system.monotonic()
        ready = [lane for lane in self._lanes.values() if self._is_ripe(lane, now)]
        while ready:
            for lane in ready:
                self._send(self._claim(lane.take(self._settings.batch_bytes, self._spread)))
            ready = [lane for lane in ready if self._is_ripe(lane, now)]

    def _is_ripe(self, lane: _Lane, now: float) -> bool:
        if not lane.records or self._producer.waiting(lane.name):
            return False
        return self._hurry or lane.records[0].since + self._linger <= now or lane.size >= self._settings.batch_bytes

    def _send(self, records: Sequence[Outgoing]) -> None:
        """Encode records of one partition, and send them."""
        batches: list[_Batch] = []
        first = 0
        try:
            for encoded in self._encode(records):
                batches.append(_Batch(records[first : first + encoded.records], encoded, self._outcomes))
                first += encoded.records
            for batch in batches:
                topic, since = batch.records[0].topic, batch.records[0].since
                self._producer.send(topic, batch.encoded, batch, since=since)
        except BaseException as error:
            # The producer has told those that it had.
            rest = [*(record for batch in batches if not batch.told for record in batch.records), *records[first:]]
            if rest:
                self._outcomes.append(Settled(rest, error=outcome(error, in_doubt=False)))
            raise

    def _encode(self, records: Sequence[Outgoing]) -> list[EncodedBatch]:
        import pyarrow as pa

        if not records:
            return []
        settings, topic, partition = self._settings, records[0].topic, records[0].partition
        assert partition is not None
        columns = {
            "key": pa.array([each.key for each in records], pa.binary()),
            "value": pa.array([each.value for each in records], pa.binary()),
            "timestamp": pa.array([each.timestamp for each in records], pa.int64()),
            "partition": pa.array([partition] * len(records), pa.int32()),
        }
        if any(each.headers for each in records):
            kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            headers = [[{"key": key, "value": value} for key, value in each.headers] for each in records]
            columns["headers"] = pa.array(headers, kind)
        encoder = create_encoder(
            topic=topic,
            partitions=partition + 1,
            codec=settings.codec,
            level=settings.level,
            batch_bytes=settings.batch_bytes,
            max_record_bytes=settings.max_request_bytes,
        )
        return [*encoder.add(pa.record_batch(columns)), *encoder.flush()]

    def _expire(self) -> None:
        """Give up what has waited for too long behind others of its partition."""
        now = self._system.monotonic()
        for lane in self._lanes.values():
            expired = lane.expired(now, self._delivery)
            if expired:
                error = BrokerTimeoutError(
                    f"Records waited {self._delivery:g} s ({_DELIVERY}) for those before them in their partition.",
                    topic=lane.name.topic,
                    partition=lane.name.partition,
                )
                self._outcomes.append(Settled(expired, error=outcome(error, in_doubt=False)))

    def _patience(self) -> float:
        """Return for how long nothing is to be done unless something happens."""
        now = self._system.monotonic()
        times = [now + _IDLE]
        for lane in self._lanes.values():
            if lane.records:
                since = lane.records[0].since
                times.append(since + self._delivery)
                if not self._producer.waiting(lane.name):
                    times.append(since + self._linger)
        return max(0.0, min(times) - now)

    def _tell(self) -> None:
        while self._outcomes:
            outcomes = self._outcomes[:]
            self._outcomes.clear()
            for each in outcomes:
                self._settle(each)


class _Topic:
    """What is known of a topic, and where records without a key stick.

    Attributes:
        partitions: How many it has.
        looked_up_at: When.
    """

    def __init__(self) -> None:
        self.partitions = 0
        self.looked_up_at = 0.0
        self._sticky = 0
        self._stuck = 0

    def stick(self, size: int, batch_bytes: int) -> int:
        """Return the partition for a record without a key: the same until about a record batch is full."""
        if self._stuck >= batch_bytes:
            self._sticky, self._stuck = self._sticky + 1, 0
        self._stuck += size
        self._sticky %= self.partitions
        return self._sticky


class _Lane:
    """Records of one partition that wait.

    Attributes:
        name: The partition.
        records: The records, as they came.
        size: Their size.
    """

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.records: deque[Outgoing] = deque()
        self.size = 0

    def add(self, record: Outgoing) -> None:
        """Let a record follow."""
        self.records.append(record)
        self.size += record.size

    def take(self, size: int, spread: float) -> list[Outgoing]:
        """Return the next ones, together up to so many bytes, none so many seconds younger; but one at least."""
        taken = [self.records.popleft()]
        room = size - taken[0].size
        youngest = taken[0].since + spread
        while self.records and self.records[0].size <= room and self.records[0].since <= youngest:
            taken.append(self.records.popleft())
            room -= taken[-1].size
        self.size -= size - room
        return taken

    def expired(self, now: float, seconds: float) -> list[Outgoing]:
        """Take out those that have waited for so long."""
        taken = []
        while self.records and self.records[0].since + seconds <= now:
            taken.append(self.records.popleft())
            self.size -= taken[-1].size
        return taken


class _Batch:
    """Records that are one record batch: the ``Recipient`` of what became of it.

    Attributes:
        records: The records.
        encoded: The record batch.
        told: Whether anything was told of it.
    """

    def __init__(self, records: Sequence[Outgoing], encoded: EncodedBatch, outcomes: list[Settled]) -> None:
        self.records = records
        self.encoded = encoded
        self.told = False
        self._outcomes = outcomes

    def acknowledged(self, first: int, records: int, offset: int, append_time: int) -> None:
        """See ``Recipient``."""
        self.told = True
        told = self.records[first : first + records]
        # Of a batch that it had already, a broker tells the latest timestamp as if it had given it to all
        # (UnifiedLog.append: LogAppendInfo.setLogAppendTime).
        if append_time == max(each.timestamp for each in told):
            append_time = NO_TIME
        self._outcomes.append(Settled(told, offset, append_time))

    def failed(self, first: int, records: int, error: BaseException) -> None:
        """See ``Recipient``."""
        self.told = True
        self._outcomes.append(Settled(self.records[first : first + records], error=error))
