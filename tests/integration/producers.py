"""Producers of three client families (Apache Kafka's in Java, librdkafka, kafka-python), behind one interface."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from tests.integration.java_process import JavaProcess

from pyspark_kafka_direct.broker.maven import kafka_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

Family: TypeAlias = Literal["java", "librdkafka", "kafka-python"]
FAMILIES: tuple[Family, ...] = ("java", "librdkafka", "kafka-python")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Codecs by name, with their numbers in a record batch's attributes."""

MAX_REQUEST_BYTES = 16 << 20
_LINGER_MS = 20  # so that batches hold several records
_BATCH_BYTES = 64 << 10
_DEADLINE = 600.0
_TRANSACTION_MS = 600_000  # Kafka's default of a minute may be too short on a busy machine


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write; without a timestamp (ms) the producer uses the current time."""

    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0


class Written(NamedTuple):
    """An acknowledged record, with its offset and timestamp."""

    record: Record
    offset: int
    timestamp: int


class Writer(Protocol):
    """A producer."""

    def send(self, topic: str, records: Sequence[Record]) -> list[Written]:
        """Writes records and waits until all of them are acknowledged."""

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Producers:
    """Opens producers of one cluster; ``close`` ends them and the Java process."""

    bootstrap_servers: str
    version: str
    _writers: list[Writer] = field(default_factory=list)
    _java: JavaProcess | None = None

    def open(
        self, family: Family, *, codec: str = "none", transactional_id: str | None = None, idempotent: bool = True
    ) -> Writer:
        settings = _Settings(self.bootstrap_servers, codec, transactional_id, idempotent)
        writer: Writer
        if family == "java":
            if self._java is None:
                self._java = JavaProcess("Produce.java", kafka_jars(self.version))
            writer = _JavaWriter(settings, self._java, f"producer-{len(self._writers)}")
        elif family == "librdkafka":
            writer = _LibrdkafkaWriter(settings)
        else:
            writer = _KafkaPythonWriter(settings)
        self._writers.append(writer)
        return writer

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        if self._java is not None:
            self._java.close()


def can_write(family: Family, record: Record) -> bool:
    """Whether the client's API can write a record."""
    if family == "java":
        return all(_is_text(name) for name, _ in record.headers)
    if family == "librdkafka":
        # Its timestamp 0 means the current time.
        return all(_is_text(name) for name, _ in record.headers) and record.timestamp != 0
    nulls = record.key is None and record.value is None
    return not nulls and all(value is not None for _, value in record.headers)


@dataclass(frozen=True, slots=True)
class _Settings:
    bootstrap_servers: str
    codec: str
    transactional_id: str | None
    idempotent: bool


class _JavaWriter:
    def __init__(self, settings: _Settings, process: JavaProcess, name: str) -> None:
        self._process, self._name = process, name
        config = {
            "bootstrap.servers": settings.bootstrap_servers,
            "compression.type": settings.codec,
            "enable.idempotence": str(settings.idempotent).lower(),
            "linger.ms": str(_LINGER_MS),
            "batch.size": str(_BATCH_BYTES),
            "max.request.size": str(MAX_REQUEST_BYTES),
            "buffer.memory": str(4 * MAX_REQUEST_BYTES),
        }
        if settings.transactional_id is not None:
            config |= {"transactional.id": settings.transactional_id, "transaction.timeout.ms": str(_TRANSACTION_MS)}
        self._command("open", config=config)

    def send(self, topic: str, records: Sequence[Record]) -> list[Written]:
        encoded_records = [
            {
                "partition": record.partition,
                "timestamp": record.timestamp,
                "key": _base64(record.key),
                "value": _base64(record.value),
                "headers": [[name.decode(), _base64(value)] for name, value in record.headers],
            }
            for record in records
        ]
        written = self._command("send", topic=topic, records=encoded_records)["written"]
        return [Written(record, *numbers) for record, numbers in zip(records, written, strict=True)]

    def begin(self) -> None:
        self._command("begin")

    def commit(self) -> None:
        self._command("commit")

    def abort(self) -> None:
        self._command("abort")

    def close(self) -> None:
        self._command("close")

    def _command(self, command: str, **arguments: object) -> dict[str, Any]:
        return self._process.order(do=command, producer=self._name, **arguments)


class _LibrdkafkaWriter:
    def __init__(self, settings: _Settings) -> None:
        from confluent_kafka import Producer

        config: dict[str, object] = {
            "bootstrap.servers": settings.bootstrap_servers,
            "compression.type": settings.codec,
            "enable.idempotence": settings.idempotent,
            "linger.ms": _LINGER_MS,
            "batch.size": _BATCH_BYTES,
            "message.max.bytes": MAX_REQUEST_BYTES,
        }
        if settings.transactional_id is not None:
            config |= {"transactional.id": settings.transactional_id, "transaction.timeout.ms": _TRANSACTION_MS}
        self._producer = Producer(config)
        if settings.transactional_id is not None:
            self._producer.init_transactions(_DEADLINE)

    def send(self, topic: str, records: Sequence[Record]) -> list[Written]:
        written: dict[int, Written] = {}

        def on_delivery(number: int) -> Any:
            def delivered(error: object, message: Any) -> None:
                assert error is None, error
                written[number] = Written(records[number], message.offset(), message.timestamp()[1])

            return delivered

        for number, record in enumerate(records):
            self._producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp or 0,
                headers=[(name.decode(), value) for name, value in record.headers],
                on_delivery=on_delivery(number),
            )
        assert self._producer.flush(_DEADLINE) == 0
        return [written[number] for number in range(len(records))]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction(_DEADLINE)

    def abort(self) -> None:
        self._producer.abort_transaction(_DEADLINE)

    def close(self) -> None:
        assert self._producer.flush(_DEADLINE) == 0
        del self._producer  # ends its threads before the broker stops


class _KafkaPythonWriter:
    def __init__(self, settings: _Settings) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=settings.bootstrap_servers,
            compression_type=None if settings.codec == "none" else settings.codec,
            enable_idempotence=settings.idempotent,
            transactional_id=settings.transactional_id,
            transaction_timeout_ms=_TRANSACTION_MS,
            linger_ms=_LINGER_MS,
            batch_size=_BATCH_BYTES,
            max_request_size=MAX_REQUEST_BYTES,
        )
        if settings.transactional_id is not None:
            self._producer.init_transactions()

    def send(self, topic: str, records: Sequence[Record]) -> list[Written]:
        futures = [
            self._producer.send(
                topic,
                record.value,
                record.key,
                [(_Name.of(name), value) for name, value in record.headers],
                record.partition,
                record.timestamp,
            )
            for record in records
        ]
        self._producer.flush(_DEADLINE)
        metadata = [future.get(_DEADLINE) for future in futures]
        return [Written(record, each.offset, each.timestamp) for record, each in zip(records, metadata, strict=True)]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(_DEADLINE)


class _Name(str):
    """A header name of any bytes: the client only accepts strings, which it encodes."""

    __slots__ = ("raw",)
    raw: bytes

    @classmethod
    def of(cls, raw: bytes) -> _Name:
        name = cls(raw.decode("utf-8", "replace"))
        name.raw = raw
        return name

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self.raw


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
