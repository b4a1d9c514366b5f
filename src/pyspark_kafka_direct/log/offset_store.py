"""Offsets of jobs in a compacted topic: where a job was, without a checkpoint and without a shared file system."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self

from pyspark_kafka_direct.errors import OffsetPlanError, OptionError, TopicNotFoundError, TopicRecreatedError
from pyspark_kafka_direct.log._store_log import StoreLog
from pyspark_kafka_direct.log._stored_offsets import Run, StoredOffset
from pyspark_kafka_direct.log._topic import parse_creation
from pyspark_kafka_direct.offsets import (
    EARLIEST,
    LATEST,
    MAX_OFFSET,
    MAX_PARTITION,
    TopicPartition,
    partition_offsets_to_json,
)
from pyspark_kafka_direct.settings.log import parse_log_params, warn_once
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.writing.compacted import CONFIGS, CompactedPartition, Wording
from pyspark_kafka_direct.writing.session import TransactionalSession

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pyspark.sql import DataFrame

_log = logging.getLogger("pyspark_kafka_direct.log")

_WORDING: Final = Wording(
    topic="topic of the offset store",
    loss="the offsets of a query that is quiet for a while",
    content="What the offset store has",
    apart="A store topic of its own keeps a query out of the way of others.",
    refusal=OptionError,
)

CREATE: Final[Mapping[str, Any]] = {}
"""Create the topic where it is not there, with as many replicas as the cluster's default says."""


class KafkaOffsetStore:
    """Keeps the next offsets to read of a query in a compacted topic; an ``OffsetStore``.

        with KafkaOffsetStore("offsets", "delays", {"bootstrap.servers": "broker:9092"}) as store:
            begin = store.load()    # {} at the first start
            ...                     # read, write results, and then
            store.save({TopicPartition("flights", 0): 123})

    It is opened once for each run of the query, by ``open``, ``with``, ``load`` or what makes a function for Spark.
    From then on any earlier run under the same topic and query is fenced: nothing that it saves counts, and it is told
    so by ``FencedError``. Each save is one transaction, durable when ``save`` returns.

    The topic has one partition, and serves many queries. May be used by several threads; one saves at a time. It stays
    on the driver: it can be neither pickled nor sent to executors.

    Args:
        topic: The topic of the store.
        query: The name of the query, the same at every start and no other query's in this topic.
        params: Client settings under their Java names (docs/log-settings.md).
        create: How to create the topic where it is not there: ``replication_factor``, and ``configs`` over the usual
            ones; ``None``: it must be there.
        recreated: What to do where a topic was deleted and created anew since its offsets were saved: ``error``, or
            ``forget`` them, so that it counts as unknown.
        transaction_timeout_ms: After how long the broker ends a save that did not come to its end. A run that dies
            within a save makes other queries of the topic wait for so long when they start.

    Raises:
        OptionError: An argument or a parameter cannot be used.
    """

    def __init__(
        self,
        topic: str,
        query: str,
        params: Mapping[str, object],
        *,
        create: Mapping[str, Any] | None = CREATE,
        recreated: Literal["error", "forget"] = "error",
        transaction_timeout_ms: int = 30_000,
    ) -> None:
        for name, text in (("topic", topic), ("query", query)):
            if not isinstance(text, str) or not text.strip():
                raise OptionError(f"{name} must be a name, got {text!r}")
        if recreated not in ("error", "forget"):
            raise OptionError(f"recreated must be error or forget, got {recreated!r}")
        if type(transaction_timeout_ms) is not int or transaction_timeout_ms < 1:
            raise OptionError(
                f"transaction_timeout_ms must be a whole number of milliseconds from 1, got {transaction_timeout_ms!r}"
            )
        self._creation = None if create is None else parse_creation(create)
        if self._creation is not None and self._creation.partitions != 1:
            raise OptionError(f"the topic of an offset store has one partition, not {self._creation.partitions}")
        settings = parse_log_params(params)
        for warning in settings.warnings:
            warn_once(warning)
        self.topic = topic
        self.query = query
        self._forgets = recreated == "forget"
        self._cluster = Cluster(settings.connection)
        self._partition = CompactedPartition(self._cluster, topic, _WORDING)
        system = self._cluster.pool.system
        run = Run(system.nonce(), socket.gethostname(), os.getpid(), int(system.wall_time() * 1000))
        transactional_id = f"{topic}:{query}.store"  # no topic has a colon in its name, so no two stores have the same
        self._store = StoreLog(
            self._cluster,
            self._partition,
            lambda: TransactionalSession(self._cluster, transactional_id, transaction_timeout_ms, settings.produce),
            query,
            run,
            transaction_timeout_ms / 1000,
        )
        self._run = run.id
        self._lock = threading.RLock()
        self._state: Literal["new", "open", "closed"] = "new"
        self._topic_ids: dict[str, UUID | None] = {}
        self._known: dict[TopicPartition, int] = {}

    def open(self) -> Self:
        """Take the query over from earlier runs, and read where it was; once. Nothing happens if it is open.

        Raises:
            FencedError: Another run has taken over at the same time.
            OptionError: The topic loses records by time or size.
            TopicNotFoundError: The topic is not there, and is not to be created.
            AuthorizationError: The principal may not do it; the message says what is needed.
            TopicRecreatedError: A topic was created anew since its offsets were saved.
            BrokerTimeoutError: A transaction of another writer stayed open in the topic.
            KafkaDirectError: It was not possible.
        """
        with self._lock:
            if self._state == "closed":
                raise RuntimeError("the offset store is closed; make another one")
            if self._state == "new":
                self._ensure_topic()
                try:
                    self._store.take_over()
                    self._known = self._checked_topics()
                except BaseException:
                    self._store.close()  # a ``with`` that does not begin does not end either
                    raise
                self._state = "open"
        return self

    def load(self, topics: Collection[str] | None = None) -> dict[TopicPartition, int]:
        """Return the next offset to read of each partition that was saved; empty at the first start.

        Args:
            topics: Of which topics. Partitions that were added to one since it was read are there, too, with where
                they begin: they were added while nobody read. ``None``: of all that the query has ever saved.

        Raises:
            KafkaDirectError: As ``open``.
        """
        with self._lock:
            self.open()
            known = {tp: offset for tp, offset in sorted(self._known.items()) if topics is None or tp.topic in topics}
            return known if topics is None else dict(sorted((known | self._added(known)).items()))

    def save(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Save the next offsets to read, in one transaction; they are durable when it returns.

        Partitions that are not named stay as they are. What is saved already is not written again.

        Args:
            offsets: The offsets.

        Raises:
            FencedError: Another run has taken the query over; final.
            OutcomeUnknownError: Nobody knows whether they were saved; the next save, or the next run, finds out.
            OffsetPlanError: Something is no partition, or no offset.
            KafkaDirectError: They were not saved.
        """
        checked = _checked(offsets)
        with self._lock:
            self._check_open()
            ids = self._ids({tp.topic for tp in checked})
            self._store.write({tp: StoredOffset(new, ids[tp.topic], self._run) for tp, new in checked.items()})
            self._known.update(checked)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Take offsets away, as those of a topic that the query does not read any more.

        Args:
            partitions: The partitions.

        Raises:
            KafkaDirectError: As ``save``.
        """
        with self._lock:
            self._check_open()
            self._store.write(dict.fromkeys(partitions))
            for tp in partitions:
                self._known.pop(tp, None)

    def starting_offsets_json(
        self, topics: str | Collection[str], unknown: Literal["earliest", "latest"] = "earliest"
    ) -> str:
        """Return where a structured query begins, for the option ``startingOffsets``.

        A partition that the store does not know begins as ``unknown`` says; but at its first record where the store
        knows other partitions of the topic, for then it was added while nobody read.

        Args:
            topics: The topics that the query subscribes to: their names, or the text of the option ``subscribe``.
            unknown: ``earliest`` or ``latest``.

        Raises:
            TopicNotFoundError: There is no such topic.
            KafkaDirectError: As ``open``.
        """
        if unknown not in ("earliest", "latest"):
            raise OptionError(f"unknown must be earliest or latest, got {unknown!r}")
        given = topics.split(",") if isinstance(topics, str) else topics
        names = [name for name in map(str.strip, given) if name]  # as Spark reads the option
        if not names:
            raise OptionError(f"topics must name the topics that the query subscribes to, got {topics!r}")
        with self._lock:
            known = self.open()._known
            found = self._cluster.topics(names)
        if missing := sorted(set(names) - found.keys()):
            raise TopicNotFoundError("The topic does not exist, or may not be seen.", topic=missing[0])
        read_before = {tp.topic for tp in known}
        return partition_offsets_to_json(
            {
                tp: known.get(tp, EARLIEST if name in read_before or unknown == "earliest" else LATEST)
                for name, topic in found.items()
                for tp in (TopicPartition(name, number) for number in topic.partitions)
            }
        )

    def foreach_batch(
        self, function: Callable[[DataFrame, int], None], checkpoint: str
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for ``DataStreamWriter.foreachBatch`` that saves where each batch ends, when it is done.

        Args:
            function: Writes the results of a batch. It may be called again for a batch that was done.
            checkpoint: The query's ``checkpointLocation``.

        Raises:
            KafkaDirectError: As ``open``.
        """
        from pyspark_kafka_direct.log._batches import SavedBatches

        return SavedBatches(self.open(), function, checkpoint).run

    def foreach_rdd(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a function for ``foreachRDD`` of a direct stream that saves where each batch ends, when it is done.

        A batch that does not begin where the last one was saved is refused: the one before it has failed. Where the
        stream begins to read a partition is saved before its first batch is worked on.

        Args:
            function: Works on the ``KafkaRDD`` of a batch.

        Raises:
            KafkaDirectError: As ``open``.
        """
        from pyspark_kafka_direct.log._batches import run_and_save

        self.open()

        def handle(rdd: Any) -> None:  # Spark counts its arguments
            run_and_save(self, function, rdd)

        return handle

    def close(self) -> None:
        """Give the connections back; nothing can be saved any more. Nobody is fenced by it."""
        with self._lock:
            self._state = "closed"
            self._store.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KafkaOffsetStore({self.topic!r}, {self.query!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an offset store belongs to one run of one driver, and cannot be pickled: use it on the driver only, and "
            "no Spark checkpoint (ssc.checkpoint) with a direct stream that has one"
        )

    def _ensure_topic(self) -> None:
        deadline, creation = self._cluster.deadline(), self._creation
        if creation is not None:
            self._partition.ensure(deadline, {**CONFIGS, **creation.configs}, replicas=creation.replicas)
            return
        if self.topic not in self._cluster.topics([self.topic], deadline=deadline):
            raise TopicNotFoundError(
                "The topic of the offset store does not exist, or may not be seen.", topic=self.topic
            )
        self._partition.ensure(deadline)

    def _checked_topics(self) -> dict[TopicPartition, int]:
        """Return the offsets that are those of the topics as they are now."""
        stored = self._store.offsets
        ids = self._ids({tp.topic for tp in stored})
        known = {tp: stored[tp].offset for tp in stored if ids[tp.topic] in (None, stored[tp].topic_id)}
        known |= {tp: stored[tp].offset for tp in stored if stored[tp].topic_id is None}
        for name in sorted({tp.topic for tp in stored.keys() - known.keys()}):
            text = partition_offsets_to_json({tp: stored[tp].offset for tp in stored if tp.topic == name})
            what = f"The topic was deleted and created anew since its offsets were saved: {text}."
            if not self._forgets:
                error = TopicRecreatedError(
                    f'{what} They mean nothing in it. With recreated="forget" the topic is read as an unknown one.',
                    topic=name,
                )
                error.topic_id = ids[name]
                raise error
            _log.warning("%s They are forgotten.", what)
        return known

    def _added(self, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where partitions begin that topics were given since they were read."""
        found = self._cluster.topics({tp.topic for tp in known}) if known else {}
        there = {TopicPartition(name, number) for name, topic in found.items() for number in topic.partitions}
        added = dict.fromkeys(there - known.keys(), EARLIEST)
        return dict(self._cluster.offsets(added)) if added else {}

    def _ids(self, topics: Collection[str]) -> dict[str, UUID | None]:
        """Return the ids of topics as this run has seen them first; ``None`` where there is none."""
        if missing := set(topics) - self._topic_ids.keys():
            found = self._cluster.topics(missing)
            self._topic_ids |= {name: found[name].topic_id for name in found}
        return {name: self._topic_ids.get(name) for name in topics}

    def _check_open(self) -> None:
        if self._state != "open":
            raise RuntimeError(f"the offset store is {self._state}: open it when the query starts, before it reads")


def _checked(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    if not isinstance(offsets, Mapping):
        raise OffsetPlanError(f"offsets must map topic-partitions to offsets, got {type(offsets).__name__}")
    checked: dict[TopicPartition, int] = {}
    for key, offset in offsets.items():
        match key:
            case (str(topic), int(number)) if topic and not isinstance(number, bool) and 0 <= number <= MAX_PARTITION:
                partition = TopicPartition(topic, number)
            case _:
                raise OffsetPlanError(f"a topic-partition is TopicPartition(topic, partition), got {key!r}")
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= MAX_OFFSET:
            raise OffsetPlanError(
                f"the next offset to read is a whole number from 0 on, got {offset!r}", topic=topic, partition=number
            )
        checked[partition] = offset
    return checked
