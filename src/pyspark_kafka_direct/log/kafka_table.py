"""A compacted topic as a dictionary: the latest value of each key."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias, TypeVar, cast, overload

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import IllegalLogStateError, OptionError
from pyspark_kafka_direct.log.kafka_based_log import START_TIMEOUT, STOP_TIMEOUT, KafkaBasedLog, not_picklable_message
from pyspark_kafka_direct.log.log_clients import LogClients
from pyspark_kafka_direct.log.serde import TableSerdes
from pyspark_kafka_direct.log.single_writer import SingleWriter
from pyspark_kafka_direct.log.table_state import TableState
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterable, Iterator, ValuesView
    from typing import TypedDict, Unpack

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.log.serde import Serde
    from pyspark_kafka_direct.log.table_state import TableContents
    from pyspark_kafka_direct.producer.async_producer import RecordMetadata

    _Params: TypeAlias = Mapping[str, object] | LogClients

    class _Options(TypedDict, total=False):
        on_change: Callable[[Any, Any], None] | None
        on_error: Callable[[KafkaDirectError], None] | None
        create: Mapping[str, Any] | None
        partitions: Callable[[int], bool] | None
        read_only: bool
        transactional_id: str | None
        start_timeout: float


K = TypeVar("K")
V = TypeVar("V")

_ISOLATION_LEVEL: Final = "isolation.level"
_CLEANUP_SECONDS: Final = 2.0  # timeout of the stop after a failed start


class KafkaTable(Mapping[K, V]):
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

    The whole table is in memory, twice while it is read again. It is thread-safe. It can be read and written from its
    start to its stop. A forked child has the contents as of the fork, and cannot use the other methods.

    Keys and values are bytes, or what a ``Serde`` makes of them. The table keeps bytes: if a program wrote some that
    cannot be deserialized, reading this key raises a ``RecordError``, and all others are there. ``raw_snapshot`` has
    all of them.

    With ``transactional_id`` the table is a single writer: its start fences earlier tables with the same id, whose
    later writes raise ``ProducerFencedError``, and reads what they wrote. Each write is then a transaction, which is
    committed when the method returns. After any error of a write the table can only be read: start another one.
    Writers without the id are not fenced.

    Args:
        topic: The topic.
        params: Client properties under their Java names; docs/options.md lists them. ``isolation.level`` is
            ``read_committed`` by default.
        key_serde: Converts keys; by default they are bytes.
        value_serde: Converts values; by default they are bytes.
        on_change: Called in the thread that reads the log with each key whose value has changed, and its new value
            (``None`` if it was deleted), also during the start. The table has the change already, and ``wait_for``
            returns afterwards. Changes of a key that are read together are reported as one. An error is logged, and
            the next change follows. It should be quick, and may write, but not wait for the table.
        on_error: Called with read errors, which are retried; by default they are only logged.
        create: How to create the compacted topic if it does not exist: ``partitions`` (1), ``replication_factor`` (the
            cluster's default) and ``configs``. By default the topic has to exist. If ``partitions`` is given, an
            existing topic needs this number of partitions.
        partitions: Returns whether to read the partition with this number; by default all are read.
        read_only: If true, the table has no producer and cannot be changed.
        transactional_id: Makes the table the single writer with this id, which needs ACLs as any transactional id.
        start_timeout: Seconds within which ``start`` has to read the table.

    Raises:
        OptionError: A parameter or ``create`` is invalid.
    """

    @overload
    def __init__(self: KafkaTable[bytes, bytes], topic: str, params: _Params, **options: Unpack[_Options]) -> None: ...

    @overload
    def __init__(
        self: KafkaTable[K, bytes], topic: str, params: _Params, *, key_serde: Serde[K], **options: Unpack[_Options]
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaTable[bytes, V], topic: str, params: _Params, *, value_serde: Serde[V], **options: Unpack[_Options]
    ) -> None: ...

    @overload
    def __init__(
        self, topic: str, params: _Params, *, key_serde: Serde[K], value_serde: Serde[V], **options: Unpack[_Options]
    ) -> None: ...

    def __init__(
        self,
        topic: str,
        params: _Params,
        *,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        on_change: Callable[[K, V | None], None] | None = None,
        on_error: Callable[[KafkaDirectError], None] | None = None,
        create: Mapping[str, Any] | None = None,
        partitions: Callable[[int], bool] | None = None,
        read_only: bool = False,
        transactional_id: str | None = None,
        start_timeout: float = START_TIMEOUT,
    ) -> None:
        clients = _clients_of(params, read_only=read_only)
        self._serdes = TableSerdes(topic, key_serde, value_serde)
        self._start_timeout = start_timeout
        self._system = clients.cluster.pool.system
        required_partitions = create.get("partitions") if isinstance(create, Mapping) else None  # else `log` rejects it
        on_change_of_bytes = None if on_change is None else self._serdes.on_change_of_bytes(on_change)
        self._state = TableState(topic, required_partitions, on_change_of_bytes)
        self._log = KafkaBasedLog(
            topic,
            clients if transactional_id is None else replace(clients, produce=None),  # then `SingleWriter` writes
            on_batch=self._state.apply,
            columns=("key", "value"),
            on_error=on_error,
            create=create,
            partitions=partitions,
            read_only=read_only,
            start_timeout=start_timeout,
            view=self._state,
        )
        self._writer: SingleWriter | None = None
        if transactional_id is not None:
            if clients.produce is None or not transactional_id or not isinstance(transactional_id, str):
                raise OptionError(
                    f"transactional_id must be a non-empty string, and needs read_only=False, got {transactional_id!r}"
                )
            self._writer = SingleWriter(topic, clients.cluster, clients.produce, transactional_id, self._log._worker)

    def __reduce__(self) -> NoReturn:
        raise TypeError(not_picklable_message(self, self._log.topic))

    def start(self) -> None:
        """Read the table to the current end of the topic; raises the errors of ``KafkaBasedLog.start``.

        With a ``transactional_id`` it then fences earlier tables, and reads what they had written until then.
        """
        deadline = Deadline.after(self._start_timeout, "start_timeout", system=self._system)
        worker = self._log._worker
        # The claim aborts a transaction that an earlier table left open; until then, reads would wait for its timeout.
        worker.waits_for_transactions = self._writer is None
        self._log.start()
        if self._writer is None:
            return
        try:
            self._writer.claim(deadline)  # after what may fail without it, because it fences an earlier table
            worker.waits_for_transactions = True
            self._log._reads.read_at_start(deadline, self._start_timeout)
            self._writer.begin(self._log.positions)
        except BaseException:
            self.stop(_CLEANUP_SECONDS)
            raise

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop reading and sending; a stopped table cannot be read. See ``KafkaBasedLog.stop``."""
        deadline = Deadline.after(timeout, "timeout", system=self._system)
        self._log.stop(timeout)
        if self._writer is not None:
            self._writer.close(deadline.remaining())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __getitem__(self, key: K) -> V:
        value = self._current().find(self._serdes.serialize_key(key))
        if value is None:
            raise KeyError(key)
        return self._serdes.value(value, key)

    def __len__(self) -> int:
        return len(self._current())

    def __iter__(self) -> Iterator[K]:
        return map(self._serdes.key, self.raw_snapshot())

    def __contains__(self, key: object) -> bool:
        return self._current().find(self._serdes.serialize_key(cast("K", key))) is not None

    def items(self) -> ItemsView[K, V]:
        """Return a copy of the current keys and values."""
        return self.snapshot().items()

    def values(self) -> ValuesView[V]:
        """Return a copy of the current values."""
        return self.snapshot().values()

    def __repr__(self) -> str:
        status = self._log._thread.status
        return (
            f"KafkaTable({self._log.topic!r}, {f'{len(self._state.contents)} keys' if status == 'started' else status})"
        )

    def snapshot(self) -> Mapping[K, V]:
        """Return a copy of the current contents: a ``dict``, unless keys are not hashable, such as lists of JSON."""
        return self._serdes.deserialize(self.raw_snapshot())

    def raw_snapshot(self) -> dict[bytes, bytes]:
        """Return a copy of the current contents as bytes, which needs no serde."""
        return self._current().copy()

    def put(self, key: K, value: V) -> Future[RecordMetadata]:
        """Write a value. The table contains it when it was read back from the topic, for which ``wait_for`` waits.

        Returns:
            A future of the record metadata, which is done when the brokers have acknowledged the record. With a
            ``transactional_id`` it is done when this returns.

        Raises:
            IllegalLogStateError: The table is read-only, not started or stopped, its topic has got more partitions, or
                an error has ended its claim of the ``transactional_id``.
            ProducerFencedError: Another table has claimed the ``transactional_id``. The message says if it is unknown
                whether the record was written.
            KafkaDirectError: The transaction failed; ``OutcomeUnknownError`` if it may have been committed.
        """
        return self._send(self._serdes.serialize_key(key), self._serdes.serialize_value(value))

    def delete(self, key: K) -> Future[RecordMetadata]:
        """Delete a key by writing a record without a value; otherwise like ``put``."""
        return self._send(self._serdes.serialize_key(key), None)

    def write(self, values: Mapping[K, V], *, delete: Iterable[K] = ()) -> dict[TopicPartition, int]:
        """Write values and delete keys in one transaction: all of it, or nothing, becomes visible.

        Returns:
            The last offset in each partition, for ``wait_for``.

        Raises:
            IllegalLogStateError: The table has no ``transactional_id``, or as ``put``.
            ProducerFencedError, KafkaDirectError: As ``put``.
        """
        serdes = self._serdes
        records: list[tuple[bytes, bytes | None]] = [(serdes.serialize_key(key), None) for key in delete]
        records += [(serdes.serialize_key(key), serdes.serialize_value(value)) for key, value in values.items()]
        self._check_partitions()
        if self._writer is None:
            raise IllegalLogStateError("write() needs a table with a transactional_id.", topic=self._log.topic)
        self._log._thread.check_started("write()")
        written = self._writer.write(records)
        return {TopicPartition(last.topic, last.partition): last.offset for last in written}

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

    def _send(self, key: bytes, value: bytes | None) -> Future[RecordMetadata]:
        if self._state.partition_error is not None:
            self._check_partitions()
        if self._writer is None:
            return self._log.send_with_receipt(key, value)
        self._log._thread.check_started("put()")
        future: Future[RecordMetadata] = Future()
        future.set_result(self._writer.write([(key, value)])[0])
        return future

    def _current(self) -> TableContents:
        """Return the contents, unless they are not read yet or no longer updated."""
        self._check_partitions()
        self._log._thread.check_state("reading the table")
        return self._state.contents

    def _check_partitions(self) -> None:
        if self._state.partition_error is not None:
            raise self._state.partition_error.with_traceback(None)


def _clients_of(params: _Params, *, read_only: bool) -> LogClients:
    """Return the clients of a table, which reads committed records unless the properties have another level."""
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
    return clients
