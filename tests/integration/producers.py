"""Producers of three families (Apache Kafka's own in Java, librdkafka, kafka-python), told what to write in one way."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from tests.integration.java_process import JavaProcess

from pyspark_kafka_direct.broker._jars import kafka_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

Family: TypeAlias = Literal["java", "librdkafka", "kafka-python"]
FAMILIES: tuple[Family, ...] = ("java", "librdkafka", "kafka-python")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Codecs by name, with their numbers in a record batch's attributes."""

LARGEST_REQUEST = 16 << 20
_LINGER_MS = 20  # so that batches hold several records
_BATCH_BYTES = 64 << 10
_DEADLINE = 60.0
_TRANSACTION_MS = 600_000  # by default Kafka aborts what has been open for a minute, and a busy machine may need that


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write; without a timestamp (ms) the producer takes the time of day."""

    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0


class Written(NamedTuple):
    """A record that the broker has acknowledged, with the offset and the timestamp it was given."""

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
    """Opens producers against one cluster; they and the Java process end with ``close``."""

    bootstrap_servers: str
    version: str
    _writers: list[Writer] = field(default_factory=list)
    _java: JavaProcess | None = None

    def open(
        self, family: Family, *, codec: str = "none", transactional_id: str | None = None, idempotent: bool = True
    ) -> Writer:
        plan = _Plan(self.bootstrap_servers, codec, transactional_id, idempotent)
        writer: Writer
        if family == "java":
            if self._java is None:
                self._java = JavaProcess("Produce.java", kafka_jars(self.version))
            writer = _JavaWriter(plan, self._java, f"producer-{len(self._writers)}")
        elif family == "librdkafka":
            writer = _LibrdkafkaWriter(plan)
        else:
            writer = _KafkaPythonWriter(plan)
        self._writers.append(writer)
        return writer

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        if self._java is not None:
            self._java.close()


def can_write(family: Family, record: Record) -> bool:
    """Some records are beyond what a client lets one write."""
    if family == "java":
        return all(_is_text(name) for name, _ in record.headers)
    if family == "librdkafka":
        # Its timestamp 0 means the time of day.
        return all(_is_text(name) for name, _ in record.headers) and record.timestamp != 0
    nulls = record.key is None and record.value is None
    return not nulls and all(value is not None for _, value in record.headers)


@dataclass(frozen=True, slots=True)
class _Plan:
    bootstrap_servers: str
    codec: str
    transactional_id: str | None
    idempotent: bool


class _JavaWriter:
    def __init__(self, plan: _Plan, process: JavaProcess, name: str) -> None:
        self._process, self._name = process, name
        config = {
            "bootstrap.servers": plan.bootstrap_servers,
            "compression.type": plan.codec,
            "enable.idempotence": str(plan.idempotent).lower(),
            "linger.ms": str(_LINGER_MS),
            "batch.size": str(_BATCH_BYTES),
            "max.request.size": str(LARGEST_REQUEST),
            "buffer.memory": str(4 * LARGEST_REQUEST),
        }
        if plan.transactional_id is not None:
            config |= {"transactional.id": plan.transactional_id, "transaction.timeout.ms": str(_TRANSACTION_MS)}
        self._order("open", config=config)

    def send(self, topic: str, records: Sequence[Record]) -> list[Written]:
        orders = [
            {
                "partition": record.partition,
                "timestamp": record.timestamp,
                "key": _base64(record.key),
                "value": _base64(record.value),
                "headers": [[name.decode(), _base64(value)] for name, value in record.headers],
            }
            for record in records
        ]
        written = self._order("send", topic=topic, records=orders)["written"]
        return [Written(record, *numbers) for record, numbers in zip(records, written, strict=True)]

    def begin(self) -> None:
        self._order("begin")

    def commit(self) -> None:
        self._order("commit")

    def abort(self) -> None:
        self._order("abort")

    def close(self) -> None:
        self._order("close")

    def _order(self, what: str, **more: object) -> dict[str, Any]:
        return self._process.order(do=what, producer=self._name, **more)


class _LibrdkafkaWriter:
    def __init__(self, plan: _Plan) -> None:
        from confluent_kafka import Producer

        config: dict[str, object] = {
            "bootstrap.servers": plan.bootstrap_servers,
            "compression.type": plan.codec,
            "enable.idempotence": plan.idempotent,
            "linger.ms": _LINGER_MS,
            "batch.size": _BATCH_BYTES,
            "message.max.bytes": LARGEST_REQUEST,
        }
        if plan.transactional_id is not None:
            config |= {"transactional.id": plan.transactional_id, "transaction.timeout.ms": _TRANSACTION_MS}
        self._producer = Producer(config)
        if plan.transactional_id is not None:
            self._producer.init_transactions(_DEADLINE)

    def send(self, topic: str, records: Sequence[Record]) -> list[Written]:
        written: dict[int, Written] = {}

        def remember(number: int) -> Any:
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
                on_delivery=remember(number),
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
        del self._producer  # which ends its threads, before they miss the broker


class _KafkaPythonWriter:
    def __init__(self, plan: _Plan) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=plan.bootstrap_servers,
            compression_type=None if plan.codec == "none" else plan.codec,
            enable_idempotence=plan.idempotent,
            transactional_id=plan.transactional_id,
            transaction_timeout_ms=_TRANSACTION_MS,
            linger_ms=_LINGER_MS,
            batch_size=_BATCH_BYTES,
            max_request_size=LARGEST_REQUEST,
        )
        if plan.transactional_id is not None:
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
    """A header's name that is written as any bytes: the client only takes text and encodes it."""

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
