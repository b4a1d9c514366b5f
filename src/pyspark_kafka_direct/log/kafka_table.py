"""A compacted topic as a dictionary: the latest value of each key."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from pyspark_kafka_direct.errors import IllegalLogStateError, OptionError
from pyspark_kafka_direct.log.kafka_based_log import START_TIMEOUT, STOP_TIMEOUT, KafkaBasedLog, not_picklable_message
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.log.record_callbacks import LogView
from pyspark_kafka_direct.log.table_contents import TableContents

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterator, ValuesView
    from concurrent.futures import Future
    from types import TracebackType

    import pyarrow as pa

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.log.log_topic import LogTopic
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.producer.async_producer import RecordMetadata

_log = logging.getLogger("pyspark_kafka_direct.log")

_ISOLATION_LEVEL: Final = "isolation.level"


class KafkaTable(Mapping[bytes, bytes]):
    """The latest value of each key of a topic, updated by a background thread.

    ::

        with KafkaTable("settings", {"bootstrap.servers": "broker1:9092"}, create={"replication_factor": 3}) as table:
            metadata = table.put(b"job-1", b'{"rate": 100}').result()
            table.wait_for(metadata)
            assert table[b"job-1"] == b'{"rate": 100}'

    A record without a value deletes its key; records without a key are ignored. Writes of this and of other processes
    become visible shortly afterwards; ``read_to_end`` and ``wait_for`` wait for them.

    Kafka orders the records of one partition only, so all records of a key have to be in one partition. The table
    writes a key to the partition that Java's default partitioner (murmur2) chooses, and warns of a key that it reads in
    two partitions. If the topic gets more partitions, that choice changes: all methods then raise an error. With one
    partition, as by default, other programs may use any partitioner.

    If records that were read are lost (the log was truncated, or the topic recreated), or if records could not be
    applied, pending reads fail with the error and the table is read again. Until then it has its earlier contents.

    The whole table is in memory, twice while it is read again. It is thread-safe. A forked child has the contents as of
    the fork, and cannot use the other methods.

    Args:
        topic: The topic.
        params: Client properties under their Java names; docs/log-settings.md lists them. ``isolation.level`` is
            ``read_committed`` by default.
        on_error: Called with read errors, which are retried; by default they are only logged.
        create: How to create the compacted topic if it does not exist: ``partitions`` (1), ``replication_factor`` (the
            cluster's default) and ``configs``. By default the topic has to exist. If ``partitions`` is given, an
            existing topic needs this number of partitions.
        partitions: Returns whether to read the partition with this number; by default all are read.
        read_only: If true, the table has no producer and cannot be changed.
        start_timeout: Seconds within which ``start`` has to read the table.

    Raises:
        OptionError: A parameter or ``create`` is invalid.
    """

    def __init__(
        self,
        topic: str,
        params: Mapping[str, object] | LogClients,
        *,
        on_error: Callable[[KafkaDirectError], None] | None = None,
        create: Mapping[str, Any] | None = None,
        partitions: Callable[[int], bool] | None = None,
        read_only: bool = False,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        if isinstance(params, LogClients):
            clients = params
        else:
            if isinstance(params, Mapping):
                params = {_ISOLATION_LEVEL: "read_committed", **params}
            clients = LogClients.from_params(params, read_only=read_only)
        if clients.produce is not None and clients.produce.ignore_keys:
            raise OptionError(
                "partitioner.ignore.keys=true is not possible with a table: the records of a key would be in several "
                "partitions, in no order. Remove it."
            )
        self._contents = TableContents()
        self._reloaded: TableContents | None = None  # while the table is read again
        self._required_count = create.get("partitions") if isinstance(create, Mapping) else None
        self._partition_error: IllegalLogStateError | None = None
        self._has_warned = False
        self._log = KafkaBasedLog(
            topic,
            clients,
            on_batch=self._apply,
            columns=("key", "value"),
            on_error=on_error,
            create=create,
            partitions=partitions,
            read_only=read_only,
            start_timeout=start_timeout,
            view=_View(self),
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(not_picklable_message(self, self._log.topic))

    def start(self) -> None:
        """Read the table to the current end of the topic; raises the errors of ``KafkaBasedLog.start``."""
        self._log.start()

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop reading and sending; the contents remain. See ``KafkaBasedLog.stop``."""
        self._log.stop(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, key: bytes) -> bytes:
        value = self._current().find(key)
        if value is None:
            raise KeyError(key)
        return value

    def __len__(self) -> int:
        return len(self._current())

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.snapshot())

    def __contains__(self, key: object) -> bool:
        return self._current().find(key) is not None

    def items(self) -> ItemsView[bytes, bytes]:
        """Return a copy of the current keys and values."""
        return self.snapshot().items()

    def values(self) -> ValuesView[bytes]:
        """Return a copy of the current values."""
        return self.snapshot().values()

    def __repr__(self) -> str:
        return f"KafkaTable({self._log.topic!r}, {len(self._contents)} keys)"

    def snapshot(self) -> dict[bytes, bytes]:
        """Return a copy of the current contents."""
        return self._current().copy()

    def put(self, key: bytes, value: bytes) -> Future[RecordMetadata]:
        """Write a value. The table contains it when it was read back from the topic, for which ``wait_for`` waits.

        Returns:
            A future of the record metadata, which is done when the brokers have acknowledged the record.

        Raises:
            IllegalLogStateError: The table is read-only, not started or stopped, or its topic has got more partitions.
        """
        self._check_partitions()
        return self._log.send_with_receipt(key, value)

    def delete(self, key: bytes) -> Future[RecordMetadata]:
        """Delete a key by writing a record without a value; otherwise like ``put``."""
        self._check_partitions()
        return self._log.send_with_receipt(key, None)

    def read_to_end(self) -> Future[None]:
        """Read all records that were written before; see ``KafkaBasedLog.read_to_end``."""
        self._check_partitions()
        return self._log.read_to_end()

    def wait_for(
        self, target: RecordMetadata | Mapping[int, int] | Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Wait until the table contains a record, or an offset of each partition; see ``KafkaBasedLog.wait_for``."""
        self._check_partitions()
        self._log.wait_for(target, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records that were sent are acknowledged or failed; see ``KafkaBasedLog.flush``."""
        self._log.flush(timeout)

    @property
    def current_as_of(self) -> float | None:
        """Seconds since 1970: the table has each record that was acknowledged before; see ``KafkaBasedLog``."""
        return self._log.current_as_of

    @property
    def log(self) -> KafkaBasedLog:
        """The underlying log."""
        return self._log

    def _current(self) -> TableContents:
        """Return the contents, unless they are no longer updated."""
        self._check_partitions()
        self._log.check_thread()
        return self._contents

    def _check_partitions(self) -> None:
        if self._partition_error is not None:
            raise self._partition_error.with_traceback(None)

    def _apply(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        contents = self._contents if self._reloaded is None else self._reloaded
        key = contents.apply(partition.partition, *rows.columns)
        if key is not None and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "topic %s has records of a key in several partitions (%s is one of them). Their order is unknown: the "
                "table may have an old value of the key, and a deleted key may come back. Programs that write to the "
                "topic need the same partitioner (Java's default, murmur2), and the number of partitions must never "
                "change. Copy the table to a new topic, preferably with one partition.",
                partition.topic,
                partition,
            )


class _View(LogView):
    """The table for its log."""

    def __init__(self, table: KafkaTable) -> None:
        self._table = table
        self._known: LogTopic | None = None  # as it was found first

    def cleanup_policy_error(self, cleanup_policy: str) -> IllegalLogStateError:
        return IllegalLogStateError(
            f"The topic of a table needs cleanup.policy=compact, and this one has cleanup.policy={cleanup_policy}: "
            "keys that are not written for long would disappear. Alter the topic's configuration (kafka-configs.sh "
            "--alter --add-config cleanup.policy=compact), or use KafkaBasedLog.",
            topic=self._table.log.topic,
        )

    def check_partition_count(self, topic: LogTopic) -> None:
        """Raise an error if the topic has another number of partitions than before."""
        table, count = self._table, topic.partition_count
        if table._required_count is None and (self._known is None or topic.topic_id != self._known.topic_id):
            self._known = topic
        required = table._required_count or (count if self._known is None else self._known.partition_count)
        if count == required:
            table._partition_error = None
            return
        table._partition_error = IllegalLogStateError(
            f"The topic has {count} partitions, and the table was made for {required}. Kafka's clients choose the "
            "partition of a key by the number of partitions, so a key may have records in several partitions now, and "
            "their order is unknown: values may be old, and deleted keys may come back. Copy the table to a new topic, "
            "whose number of partitions never changes.",
            topic=table.log.topic,
        )
        raise table._partition_error

    def begin_reload(self) -> None:
        """Load the records that follow aside: they are those of the log's beginning."""
        self._table._reloaded = TableContents()

    def end_reload(self) -> None:
        table = self._table
        if table._reloaded is not None:
            table._contents, table._reloaded = table._reloaded, None
