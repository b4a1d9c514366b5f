"""The offsets of streaming jobs in a compacted topic: a job resumes without a checkpoint or a shared file system."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError, TopicNotFoundError, TopicRecreatedError
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.log.log_topic import parse_topic_spec
from pyspark_kafka_direct.log.offset_store_log import OffsetStoreLog
from pyspark_kafka_direct.log.offset_store_records import StoredOffset, StoreRun
from pyspark_kafka_direct.offsets import (
    EARLIEST,
    MAX_OFFSET,
    MAX_PARTITION,
    TopicPartition,
    partition_offsets_to_json,
)
from pyspark_kafka_direct.options.positions import parse_position
from pyspark_kafka_direct.planning.data_loss import find_lost_partitions
from pyspark_kafka_direct.planning.offset_reader import confirmed_starts
from pyspark_kafka_direct.producer.compacted_partition import (
    COMPACTED_TOPIC_CONFIGS,
    CompactedPartition,
    TopicErrorText,
)
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pyspark.sql import DataFrame

_log = logging.getLogger("pyspark_kafka_direct.log")

_TOPIC_ERROR_TEXT: Final = TopicErrorText(
    topic="topic of the offset store",
    loss="the offsets of a query that saves nothing for a while",
    content="The content of the offset store",
    isolation_advice="Give the query a store topic of its own to isolate it from others.",
    error_type=OptionError,
)

CREATE: Final[Mapping[str, Any]] = {}
"""Create the topic if it does not exist, with the cluster's default replication factor."""


class KafkaOffsetStore:
    """An ``OffsetStore`` that keeps the next offsets to read of a query in a compacted topic.

        with KafkaOffsetStore("offsets", "delays", {"bootstrap.servers": "broker:9092"}) as store:
            starting_offsets = store.load()  # {} at the first start
            ...  # read, write results, and then
            store.save({TopicPartition("flights", 0): 123})

    Open it once for each run of the query: ``open``, ``with``, ``load`` and the methods that return a function for
    Spark do so. Opening fences earlier runs with the same topic and query: their saves fail with
    ``ProducerFencedError``. Each save is one transaction, durable when ``save`` returns.

    The topic has one partition and serves many queries. The store is thread-safe; saves run one at a time. It stays on
    the driver: it can be neither pickled nor sent to executors.

    Args:
        topic: The topic of the store.
        query: The name of the query: the same at every start, and unique in this topic.
        params: Client properties under their Java names (docs/options.md).
        create: How to create the topic if it does not exist: ``replication_factor``, and ``configs`` that override the
            defaults. With ``None`` the topic has to exist.
        on_topic_recreated: What to do with offsets of a topic that was deleted and recreated since they were saved:
            ``error`` raises, ``discard`` drops them, so that the topic counts as unknown.
        transaction_timeout_ms: The time after which the broker aborts an unfinished save. If a run dies during a save,
            other queries of the topic wait this long when they start.

    Raises:
        OptionError: An argument is invalid.
    """

    def __init__(
        self,
        topic: str,
        query: str,
        params: Mapping[str, object] | LogClients,
        *,
        create: Mapping[str, Any] | None = CREATE,
        on_topic_recreated: Literal["error", "discard"] = "error",
        transaction_timeout_ms: int = 30_000,
    ) -> None:
        for name, value in (("topic", topic), ("query", query)):
            if not isinstance(value, str) or not value.strip():
                raise OptionError(f"{name} must be a non-empty string, got {value!r}")
        if on_topic_recreated not in ("error", "discard"):
            raise OptionError(f"on_topic_recreated must be error or discard, got {on_topic_recreated!r}")
        if type(transaction_timeout_ms) is not int or transaction_timeout_ms < 1:
            raise OptionError(
                f"transaction_timeout_ms must be a positive number of milliseconds, got {transaction_timeout_ms!r}"
            )
        self._topic_spec = None if create is None else parse_topic_spec(create)
        if self._topic_spec is not None and self._topic_spec.partitions != 1:
            raise OptionError(
                f"the topic of an offset store must have one partition, not {self._topic_spec.partitions}"
            )
        clients = params if isinstance(params, LogClients) else LogClients.from_params(params, read_only=False)
        produce = clients.produce
        assert produce is not None
        self.topic = topic
        self.query = query
        self._discards_recreated_topics = on_topic_recreated == "discard"
        self._cluster = clients.cluster
        self._partition = CompactedPartition(self._cluster, topic, _TOPIC_ERROR_TEXT)
        system = self._cluster.pool.system
        run = StoreRun(system.nonce(), socket.gethostname(), os.getpid(), int(system.wall_time() * 1000))
        transactional_id = f"{topic}:{query}.store"  # topic names have no colon, so this is unique
        self._store = OffsetStoreLog(
            self._cluster,
            self._partition,
            lambda: TransactionalProducer(self._cluster, transactional_id, transaction_timeout_ms, produce),
            query=query,
            run=run,
            transaction_timeout=transaction_timeout_ms / 1000,
        )
        self._run_id = run.id
        self._lock = system.reentrant_lock()
        self._state: Literal["new", "open", "closed"] = "new"
        self._topic_ids: dict[str, UUID | None] = {}
        self._saved_offsets: dict[TopicPartition, int] = {}

    def open(self) -> Self:
        """Fence earlier runs of the query and read its offsets; does nothing if the store is open.

        Raises:
            ProducerFencedError: Another run opened the store at the same time.
            OptionError: The topic deletes records by time or size.
            TopicNotFoundError: The topic does not exist and ``create`` is ``None``.
            AuthorizationError: The principal lacks a permission; the message names it.
            TopicRecreatedError: A topic was recreated since its offsets were saved.
            BrokerTimeoutError: Another writer's transaction stayed open in the topic.
            KafkaDirectError: Any other failure.
        """
        with self._lock:
            if self._state == "closed":
                raise RuntimeError("the offset store is closed; create another one")
            if self._state == "new":
                self._ensure_topic()
                try:
                    self._store.acquire()
                    self._saved_offsets = self._offsets_of_same_topics()
                except BaseException:
                    self._store.close()  # if ``__enter__`` raises, ``__exit__`` is not called
                    raise
                self._state = "open"
        return self

    def load(self, topics: Collection[str] | None = None) -> dict[TopicPartition, int]:
        """Return the saved next offset to read of each partition; empty at the first start.

        Args:
            topics: Return only these topics, and add the start offsets of partitions that were created since, because
                no run has read them. The result does not contain a topic without saved offsets. With ``None``, return
                all offsets that the query has ever saved.

        Raises:
            KafkaDirectError: As ``open``.
        """
        with self._lock:
            self.open()
            saved = {tp: offset for tp, offset in self._saved_offsets.items() if topics is None or tp.topic in topics}
            added = {} if topics is None else self._added_partition_offsets(saved)
            return dict(sorted((saved | added).items()))

    def save(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Save the next offsets to read in one transaction; they are durable when this returns.

        Other partitions keep their offsets. Offsets that are already saved are not written again.

        Args:
            offsets: The offsets.

        Raises:
            ProducerFencedError: Another run has opened the store. All later saves fail as well.
            OutcomeUnknownError: It is unknown whether the offsets were saved; the next save or run resolves that.
            InvalidOffsetsError: A key is not a partition, or a value not an offset.
            KafkaDirectError: The offsets were not saved.
        """
        valid_offsets = _validated_offsets(offsets)
        with self._lock:
            self._check_open()
            topic_ids = self._fetch_topic_ids({tp.topic for tp in valid_offsets})
            self._store.write(
                {tp: StoredOffset(offset, topic_ids[tp.topic], self._run_id) for tp, offset in valid_offsets.items()}
            )
            self._saved_offsets.update(valid_offsets)

    def delete(self, partitions: Collection[TopicPartition]) -> None:
        """Delete offsets, for example of a topic that the query no longer reads.

        Args:
            partitions: The partitions.

        Raises:
            KafkaDirectError: The offsets were not deleted.
        """
        with self._lock:
            self._check_open()
            self._store.write(dict.fromkeys(partitions))
            for tp in partitions:
                self._saved_offsets.pop(tp, None)

    def starting_offsets_json(self, topics: str | Collection[str], default: str = "earliest") -> str:
        """Return the value of the option ``startingOffsets`` for a structured query.

        A partition without a saved offset starts at ``default``. If other partitions of its topic have saved offsets,
        it starts at its first record, because it was created while no run was reading.

        Args:
            topics: The topics that the query subscribes to: their names, or the value of the option ``subscribe``.
            default: ``earliest``, ``latest``, or another position such as ``-1h``, which Spark's own source rejects.

        Raises:
            OptionError: An argument is invalid.
            TopicNotFoundError: A topic does not exist.
            KafkaDirectError: As ``open``.
        """
        try:
            position = parse_position(default)
        except ValueError as error:
            raise OptionError(f"default must be earliest or latest, got {default!r}: {error}") from None
        default_start = position if isinstance(position, int) else default  # the query resolves the others
        requested = topics.split(",") if isinstance(topics, str) else topics
        names = [name for name in map(str.strip, requested) if name]  # as Spark parses the option
        if not names:
            raise OptionError(f"topics must name the topics that the query subscribes to, got {topics!r}")
        with self._lock:
            saved = self.open()._saved_offsets
            topic_metadata = self._cluster.topics(names)
        if missing := sorted(set(names) - topic_metadata.keys()):
            raise TopicNotFoundError("The topic does not exist or is not visible.", topic=missing[0])
        previously_read_topics = {tp.topic for tp in saved}
        return partition_offsets_to_json(
            {
                tp: saved.get(tp, EARLIEST if name in previously_read_topics else default_start)
                for name, topic in topic_metadata.items()
                for tp in (TopicPartition(name, number) for number in topic.partitions)
            }
        )

    def foreach_batch(
        self, function: Callable[[DataFrame, int], None], checkpoint: str
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for ``DataStreamWriter.foreachBatch`` that saves the end offsets of each finished batch.

        Args:
            function: Writes the results of a batch. Spark may call it again for a batch that has finished.
            checkpoint: The query's ``checkpointLocation``.

        Raises:
            KafkaDirectError: As ``open``.
        """
        from pyspark_kafka_direct.log.offset_store_batches import OffsetSavingBatchFunction

        return OffsetSavingBatchFunction(self.open(), function, checkpoint).run

    def foreach_rdd(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a function for ``foreachRDD`` of a direct stream that saves the end offsets of each finished batch.

        A batch that does not start at the saved offsets is rejected, because the batch before it has failed. The start
        offsets of the first batch are saved before it is processed.

        Args:
            function: Processes the ``KafkaRDD`` of a batch.

        Raises:
            KafkaDirectError: As ``open``.
        """
        from pyspark_kafka_direct.log.offset_store_batches import process_and_save

        self.open()

        def handle(rdd: Any) -> None:  # Spark checks the number of its parameters
            process_and_save(self, function, rdd)

        return handle

    def close(self) -> None:
        """Close the connections; later saves fail. No other run is fenced."""
        with self._lock:
            self._state = "closed"
            self._store.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KafkaOffsetStore({self.topic!r}, {self.query!r}, {self._state})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an offset store belongs to one run of one driver and cannot be pickled: use it only on the driver, and do "
            "not enable checkpointing (ssc.checkpoint) for a direct stream that uses one"
        )

    def _ensure_topic(self) -> None:
        deadline, topic_spec = self._cluster.deadline(), self._topic_spec
        if topic_spec is not None:
            self._partition.ensure_topic(
                deadline, {**COMPACTED_TOPIC_CONFIGS, **topic_spec.configs}, replicas=topic_spec.replicas
            )
            return
        if self.topic not in self._cluster.topics([self.topic], deadline=deadline):
            raise TopicNotFoundError(
                "The topic of the offset store does not exist or is not visible.", topic=self.topic
            )
        self._partition.ensure_topic(deadline)

    def _offsets_of_same_topics(self) -> dict[TopicPartition, int]:
        """Return the saved offsets, without those of recreated topics if these are discarded."""
        stored = self._store.offsets
        recreated = self._recreated_partitions(stored)
        for name in sorted({tp.topic for tp in recreated}):
            offsets_json = partition_offsets_to_json({tp: stored[tp].offset for tp in stored if tp.topic == name})
            message = f"The topic was deleted and recreated since its offsets were saved: {offsets_json}."
            if not self._discards_recreated_topics:
                error = TopicRecreatedError(
                    f'{message} They do not apply to the new topic. Set on_topic_recreated="discard" to drop them.',
                    topic=name,
                )
                error.topic_id = self._topic_ids[name]
                raise error
            _log.warning("%s They are discarded.", message)
        if recreated:  # a new topic with fewer partitions would be reported at each start
            self._store.write(dict.fromkeys(recreated))
        return {tp: saved.offset for tp, saved in stored.items() if tp not in recreated}

    def _recreated_partitions(self, stored: Mapping[TopicPartition, StoredOffset]) -> set[TopicPartition]:
        """Return the partitions whose topics have another id than when their offsets were saved, if confirmed."""
        stored_ids = {tp: saved.topic_id for tp, saved in stored.items() if saved.topic_id is not None}
        found_ids = self._fetch_topic_ids({tp.topic for tp in stored})
        existing_ids = {name: topic_id for name, topic_id in found_ids.items() if topic_id is not None}
        # Deleted partitions do not matter here, so all are passed as found.
        lost = find_lost_partitions(known=stored, known_ids=stored_ids, found=stored, found_ids=existing_ids)
        suspects = lost.recreated
        confirmed = self._cluster.confirm_missing({tp: stored_ids[tp] for tp in suspects}) if suspects else set()
        # The other ids came from brokers that lag behind: the stored ones are right.
        self._topic_ids.update({tp.topic: stored_ids[tp] for tp in suspects.keys() - confirmed})
        return confirmed

    def _added_partition_offsets(self, saved: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the start offsets, as several brokers confirm them, of partitions without a saved offset."""
        topics = self._cluster.topics({tp.topic for tp in saved}) if saved else {}
        existing = {TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions}
        requested_starts = dict.fromkeys(existing - saved.keys(), EARLIEST)
        if not requested_starts:
            return {}
        return dict(confirmed_starts(lambda: self._cluster.offsets(requested_starts), self._cluster.raise_epoch_floors))

    def _fetch_topic_ids(self, topics: Collection[str]) -> dict[str, UUID | None]:
        """Return the topic ids from the first metadata response of this run."""
        if missing := set(topics) - self._topic_ids.keys():
            metadata = self._cluster.topics(missing)
            self._topic_ids |= {name: topic.topic_id for name, topic in metadata.items()}
        return {name: self._topic_ids.get(name) for name in topics}

    def _check_open(self) -> None:
        if self._state != "open":
            raise RuntimeError(f"the offset store is {self._state}: open it when the query starts, before it reads")


def _validated_offsets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    if not isinstance(offsets, Mapping):
        raise InvalidOffsetsError(f"offsets must map topic-partitions to offsets, got {type(offsets).__name__}")
    valid_offsets: dict[TopicPartition, int] = {}
    for key, offset in offsets.items():
        match key:
            case (str(topic), int(number)) if topic and not isinstance(number, bool) and 0 <= number <= MAX_PARTITION:
                partition = TopicPartition(topic, number)
            case _:
                raise InvalidOffsetsError(f"keys must be TopicPartition(topic, partition), got {key!r}")
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= MAX_OFFSET:
            raise InvalidOffsetsError(
                f"an offset must be a non-negative integer, got {offset!r}", topic=topic, partition=number
            )
        valid_offsets[partition] = offset
    return valid_offsets
