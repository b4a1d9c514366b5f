"""A compacted topic as a dictionary: the latest value of each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pyspark_kafka_direct.log.kafka_based_log import START_TIMEOUT, STOP_TIMEOUT, KafkaBasedLog
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.records.columns import binary_values

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterator, ValuesView
    from concurrent.futures import Future
    from types import TracebackType

    import pyarrow as pa

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.producer.async_producer import RecordMetadata


class KafkaTable(Mapping[bytes, bytes]):
    """The latest value of each key of a topic, updated by a background thread.

    ::

        with KafkaTable("settings", {"bootstrap.servers": "broker1:9092"}, create={"replication_factor": 3}) as table:
            metadata = table.put(b"job-1", b'{"rate": 100}').result()
            table.wait_for(metadata)
            assert table[b"job-1"] == b'{"rate": 100}'

    A record without a value deletes its key; records without a key are ignored. Writes of this and of other processes
    become visible shortly afterwards; ``read_to_end`` and ``wait_for`` wait for them.

    If records that were read are lost (the log was truncated, or the topic recreated), the table is cleared and read
    from the beginning, and pending reads fail with the error. Until ``read_to_end`` completes, the table is incomplete.

    The whole table is in memory. It is thread-safe.

    Args:
        topic: The topic.
        params: Client properties under their Java names; docs/log-settings.md lists them.
        on_error: Called with read errors, which are retried; by default they are only logged.
        create: How to create the compacted topic if it does not exist: ``partitions`` (1), ``replication_factor`` (the
            cluster's default) and ``configs``. By default the topic has to exist.
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
        clients = params if isinstance(params, LogClients) else LogClients.from_params(params, read_only=read_only)
        self._lock = clients.cluster.pool.system.lock()
        self._values: dict[bytes, bytes] = {}
        self._log = KafkaBasedLog(
            topic,
            clients,
            on_batch=self._apply,
            columns=("key", "value"),
            on_error=on_error,
            on_reset=self._clear,
            create=create,
            partitions=partitions,
            read_only=read_only,
            start_timeout=start_timeout,
        )

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
        with self._lock:
            return self._values[key]

    def __len__(self) -> int:
        with self._lock:
            return len(self._values)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.snapshot())

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._values

    def items(self) -> ItemsView[bytes, bytes]:
        """Return a copy of the current keys and values."""
        return self.snapshot().items()

    def values(self) -> ValuesView[bytes]:
        """Return a copy of the current values."""
        return self.snapshot().values()

    def __repr__(self) -> str:
        return f"KafkaTable({self._log.topic!r}, {len(self)} keys)"

    def snapshot(self) -> dict[bytes, bytes]:
        """Return a copy of the current contents."""
        with self._lock:
            return self._values.copy()

    def put(self, key: bytes, value: bytes) -> Future[RecordMetadata]:
        """Write a value. The table contains it when it was read back from the topic, for which ``wait_for`` waits.

        Returns:
            A future of the record metadata, which is done when the brokers have acknowledged the record.

        Raises:
            IllegalLogStateError: The table is read-only, not started or stopped.
        """
        return self._log.send_with_receipt(key, value)

    def delete(self, key: bytes) -> Future[RecordMetadata]:
        """Delete a key by writing a record without a value; otherwise like ``put``."""
        return self._log.send_with_receipt(key, None)

    def read_to_end(self) -> Future[None]:
        """Read all records that were written before; see ``KafkaBasedLog.read_to_end``."""
        return self._log.read_to_end()

    def wait_for(
        self, target: RecordMetadata | Mapping[int, int] | Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Wait until the table contains a record, or an offset of each partition; see ``KafkaBasedLog.wait_for``."""
        self._log.wait_for(target, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records that were sent are acknowledged or failed; see ``KafkaBasedLog.flush``."""
        self._log.flush(timeout)

    @property
    def log(self) -> KafkaBasedLog:
        """The underlying log."""
        return self._log

    def _apply(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        keys, values = rows.columns
        latest: dict[Any, Any] = dict(zip(binary_values(keys), binary_values(values), strict=True))
        deleted = [key for key, value in latest.items() if value is None] if values.null_count else []
        if keys.null_count:
            latest.pop(None, None)
        with self._lock:
            self._values.update(latest)
            for key in deleted:
                self._values.pop(key, None)

    def _clear(self, error: KafkaDirectError) -> bool:
        with self._lock:
            self._values = {}
        return True
