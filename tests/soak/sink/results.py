"""Reads the output of the sink with librdkafka, and checks it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.soak.writer import Logged, quiet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.soak.sink.plan import Delivery

Isolation = Literal["read_committed", "read_uncommitted"]

_TIMEOUT = 60.0


def read_topic(servers: str, topic: str, partitions: int, isolation: Isolation = "read_committed") -> list[Logged]:
    """Return all records of a topic, ordered by partition and offset."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "soak",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings, logger=quiet())
    read: list[Logged] = []
    incomplete = set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        while incomplete:
            messages = consumer.consume(1000, timeout=2)
            if not messages:
                messages = consumer.consume(1, timeout=_TIMEOUT)
            assert messages, f"{len(read)} records of {topic}, but no end of partitions {sorted(incomplete)}"
            for message in messages:
                if (error := message.error()) is None:
                    read.append(_logged(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    incomplete.discard(message.partition())
                else:
                    assert error.retriable() or not error.fatal(), error  # a broker may be restarting
    finally:
        consumer.close()
    return sorted(read, key=lambda each: (each.partition, each.offset))


def open_transactions(servers: str, topic: str, partitions: int) -> list[str]:
    """Return a message for each partition with an open transaction, which blocks read_committed consumers."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=quiet())
    all_partitions = [TopicPartition(topic, partition) for partition in range(partitions)]
    stable, ends = (
        {
            each.partition: future.result(_TIMEOUT).offset
            for each, future in admin.list_offsets(
                {each: OffsetSpec.latest() for each in all_partitions}, isolation_level=isolation, request_timeout=30
            ).items()
        }
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return [
        f"a transaction is open in {topic}-{partition} from offset {stable[partition]} on, the end is {end}"
        for partition, end in ends.items()
        if stable[partition] != end
    ]


def sink_faults(
    copied: Sequence[Logged], originals: Sequence[Logged], delivery: Delivery, *, ordered: bool
) -> list[str]:
    """Compare a copy with the original records, and return the violations of the delivery guarantee.

    ``ordered``: the first occurrences of the records of a key must be in order, if one partition had them.
    """
    expected = {(each.key, each.value) for each in originals}
    counts = Counter((each.key, each.value) for each in copied)
    violations = {"missing": sorted(expected - counts.keys()), "unexpected": sorted(counts.keys() - expected)}
    if delivery == "exactly-once":
        violations["more than once"] = sorted(each for each, count in counts.items() if count > 1)
    if ordered:
        violations["out of order"] = _disordered(copied, {each.value: each.partition for each in originals})
    violations["of a key in two partitions"] = _scattered(copied)
    return [f"{len(found)} records {violation}: {found[:5]}" for violation, found in violations.items() if found]


def _disordered(copied: Iterable[Logged], sources: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Return the records whose first occurrence is after a later record of their key and source; values are numbers.

    A key moves to another partition of the source when partitions are added.
    """
    newest: dict[tuple[bytes, int | None], int] = {}
    seen: set[tuple[bytes, bytes]] = set()
    late: list[tuple[bytes, bytes]] = []
    for each in copied:
        record, number = (each.key, each.value), int(each.value)
        place = (each.key, sources.get(each.value))
        if record not in seen and number < newest.get(place, -1):
            late.append(record)
        seen.add(record)
        newest[place] = max(number, newest.get(place, -1))
    return late


def _scattered(copied: Iterable[Logged]) -> list[tuple[bytes, bytes]]:
    partitions: dict[bytes, int] = {}
    return [
        (each.key, each.value) for each in copied if partitions.setdefault(each.key, each.partition) != each.partition
    ]


def _logged(message: object) -> Logged:
    from confluent_kafka import Message

    assert isinstance(message, Message)
    return Logged(
        message.topic(), message.partition(), message.offset(), message.key(), message.value(), message.timestamp()[1]
    )
