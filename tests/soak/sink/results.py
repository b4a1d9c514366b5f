"""What the sink left in a topic, read by a client that is not ours, and whether it is what it must be."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from confluent_kafka import Consumer, IsolationLevel, KafkaError
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.soak.writer import Logged, quiet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.soak.sink.plan import Delivery

Isolation = Literal["read_committed", "read_uncommitted"]

_TIMEOUT = 60.0


def read_topic(servers: str, topic: str, partitions: int, isolation: Isolation = "read_committed") -> list[Logged]:
    """All records of a topic in the order of their partitions, read with librdkafka; control records are none.

    Raises:
        AssertionError: They could not be read in time.
    """
    settings = {
        "bootstrap.servers": servers,
        "group.id": "soak",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings, logger=quiet())
    read: list[Logged] = []
    open_ones = set(range(partitions))
    try:
        consumer.assign([Place(topic, partition, 0) for partition in range(partitions)])
        while open_ones:
            messages = consumer.consume(1000, timeout=2)
            if not messages:
                messages = consumer.consume(1, timeout=_TIMEOUT)
            assert messages, f"{len(read)} records of {topic}, and no end of partitions {sorted(open_ones)}"
            for message in messages:
                if (error := message.error()) is None:
                    read.append(_logged(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(message.partition())
                else:
                    assert error.retriable() or not error.fatal(), error  # a broker may be on its way back
    finally:
        consumer.close()
    return sorted(read, key=lambda each: (each.partition, each.offset))


def open_transactions(servers: str, topic: str, partitions: int) -> list[str]:
    """What holds a read_committed reader back, if anything does."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=quiet())
    places = [Place(topic, partition) for partition in range(partitions)]
    stable, ends = (
        {
            place.partition: future.result(_TIMEOUT).offset
            for place, future in admin.list_offsets(
                {place: OffsetSpec.latest() for place in places}, isolation_level=isolation, request_timeout=30
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
    copied: Sequence[Logged], originals: Iterable[Logged], delivery: Delivery, *, ordered: bool
) -> list[str]:
    """What is wrong with a copy; nothing if all records are there, once, or as often as the delivery allows.

    Args:
        copied: The records of the sink's topic, in the order of each partition.
        originals: The records of the source's topic.
        delivery: What the sink promises.
        ordered: Whether records of a key must come in order, for the first time each.
    """
    wanted = {(each.key, each.value) for each in originals}
    counts = Counter((each.key, each.value) for each in copied)
    kinds = {"missing": sorted(wanted - counts.keys()), "that nobody wrote": sorted(counts.keys() - wanted)}
    if delivery == "exactly-once":
        kinds["more than once"] = sorted(each for each, count in counts.items() if count > 1)
    if ordered:
        kinds["out of order"] = _disordered(copied)
    kinds["of a key that is in two partitions"] = _scattered(copied)
    return [f"{len(found)} records {kind}: {found[:5]}" for kind, found in kinds.items() if found]


def _disordered(copied: Iterable[Logged]) -> list[tuple[bytes, bytes]]:
    """Records that came for the first time after a later one of their key; values are numbers."""
    newest: dict[bytes, int] = {}
    seen: set[tuple[bytes, bytes]] = set()
    late: list[tuple[bytes, bytes]] = []
    for each in copied:
        record, number = (each.key, each.value), int(each.value)
        if record not in seen and number < newest.get(each.key, -1):
            late.append(record)
        seen.add(record)
        newest[each.key] = max(number, newest.get(each.key, -1))
    return late


def _scattered(copied: Iterable[Logged]) -> list[tuple[bytes, bytes]]:
    home: dict[bytes, int] = {}
    return [(each.key, each.value) for each in copied if home.setdefault(each.key, each.partition) != each.partition]


def _logged(message: object) -> Logged:
    from confluent_kafka import Message

    assert isinstance(message, Message)
    return Logged(
        message.topic(), message.partition(), message.offset(), message.key(), message.value(), message.timestamp()[1]
    )
