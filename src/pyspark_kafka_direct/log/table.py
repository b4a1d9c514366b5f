"""A topic as a dictionary: the latest value of each key."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pyspark_kafka_direct.log.based_log import START_TIMEOUT, STOP_TIMEOUT, KafkaBasedLog
from pyspark_kafka_direct.records.values import binary_values

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterator, ValuesView
    from concurrent.futures import Future
    from types import TracebackType

    import pyarrow as pa

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.log._clients import Clients
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.writing.outbox import Receipt


class KafkaTable(Mapping[bytes, bytes]):
    """The latest value of each key of a topic, kept up to date by a thread.

    ::

        with KafkaTable("settings", {"bootstrap.servers": "broker1:9092"}, create={"replication_factor": 3}) as table:
            receipt = table.put(b"job-1", b'{"rate": 100}').result()
            table.wait_for(receipt)
            assert table[b"job-1"] == b'{"rate": 100}'

    A record without a value deletes its key; records without a key have no place in a table and are passed over. What
    this or another process writes is seen a moment later; ``read_to_end`` and ``wait_for`` wait for it.

    If records are taken back (the log was cut back, the topic was created anew) the table is emptied and read from the
    beginning; those who wait get the error. Until that is done it holds what was read so far: ``read_to_end`` waits for
    the rest.

    All of the table is in memory. Several threads may use it.

    Args:
        topic: The topic.
        params: Client settings under their Java names; docs/log-settings.md has them all.
        on_error: As of ``KafkaBasedLog``.
        create: As of ``KafkaBasedLog``.
        partitions: As of ``KafkaBasedLog``.
        read_only: As of ``KafkaBasedLog``.
        start_timeout: As of ``KafkaBasedLog``.

    Raises:
        OptionError: A parameter, or what was given as ``create``, cannot be used.
    """

    def __init__(
        self,
        topic: str,
        params: Mapping[str, object] | Clients,
        *,
        on_error: Callable[[KafkaDirectError], None] | None = None,
        create: Mapping[str, Any] | None = None,
        partitions: Callable[[int], bool] | None = None,
        read_only: bool = False,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        self._lock = threading.Lock()
        self._values: dict[bytes, bytes] = {}
        self._log = KafkaBasedLog(
            topic,
            params,
            on_batch=self._apply,
            columns=("key", "value"),
            on_error=on_error,
            on_reset=self._empty,
            create=create,
            partitions=partitions,
            read_only=read_only,
            start_timeout=start_timeout,
        )

    def start(self) -> None:
        """Read the table; returns when all that is there now was read. Raises as ``KafkaBasedLog.start``."""
        self._log.start()

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop reading and sending, as ``KafkaBasedLog.stop``; what was read stays."""
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
        """Return keys and values as they are now."""
        return self.snapshot().items()

    def values(self) -> ValuesView[bytes]:
        """Return the values as they are now."""
        return self.snapshot().values()

    def __repr__(self) -> str:
        return f"KafkaTable({self._log.topic!r}, {len(self)} keys)"

    def snapshot(self) -> dict[bytes, bytes]:
        """Return a copy of the table as it is now."""
        with self._lock:
            return self._values.copy()

    def put(self, key: bytes, value: bytes) -> Future[Receipt]:
        """Write a value; the table has it when it was read back (``wait_for``).

        Returns:
            The receipt, which is there when brokers have acknowledged the record.

        Raises:
            LogStateError: The table is only read, not started, or stopped.
        """
        return self._log.send_with_receipt(key, value)

    def delete(self, key: bytes) -> Future[Receipt]:
        """Delete a key, by a record without a value; else as ``put``."""
        return self._log.send_with_receipt(key, None)

    def read_to_end(self) -> Future[None]:
        """Read all that was written before; see ``KafkaBasedLog.read_to_end``."""
        return self._log.read_to_end()

    def wait_for(
        self, target: Receipt | Mapping[int, int] | Mapping[TopicPartition, int], timeout: float | None = None
    ) -> None:
        """Wait until the table has what a receipt, or an offset of each partition, stands for; as ``KafkaBasedLog``."""
        self._log.wait_for(target, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until it is known of all that was sent whether it was written; see ``KafkaBasedLog.flush``."""
        self._log.flush(timeout)

    @property
    def log(self) -> KafkaBasedLog:
        """The log below."""
        return self._log

    def _apply(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        keys, values = rows.columns
        some: dict[Any, Any] = dict(zip(binary_values(keys), binary_values(values), strict=True))
        deleted = [name for name, value in some.items() if value is None] if values.null_count else []
        if keys.null_count:
            some.pop(None, None)
        with self._lock:
            self._values.update(some)
            for name in deleted:
                self._values.pop(name, None)

    def _empty(self, error: KafkaDirectError) -> bool:
        with self._lock:
            self._values = {}
        return True
