"""Kafka Connect's KafkaBasedLog in Java, and ours, on one topic: what each writes both have, in the same order."""

from __future__ import annotations

import base64
import itertools
import threading
import uuid
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest
from tests.integration.java_process import JavaProcess

from pyspark_kafka_direct.broker import jars
from pyspark_kafka_direct.broker._jars import kafka_jars
from pyspark_kafka_direct.broker.embedded import DEFAULT_VERSION
from pyspark_kafka_direct.log import KafkaBasedLog, LogRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka

Pair: TypeAlias = tuple[bytes | None, bytes | None]

CONNECT = tuple(f"org.apache.kafka:connect-{part}:{DEFAULT_VERSION}" for part in ("runtime", "api"))
"""What the class needs beside the broker's jars: 1 MB."""

_DEADLINE = 120.0


class Seen(NamedTuple):
    """A record as a log has handed it out."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class JavaLog:
    """A KafkaBasedLog in the Java process."""

    def __init__(self, process: JavaProcess, topic: str, servers: str, isolation: str, create: int | None) -> None:
        self._process, self._name = process, uuid.uuid4().hex
        order = {"topic": topic, "servers": servers, "isolation": isolation, "create": create}
        self.partition_count = self._order("start", **order)["partitions"]

    def send(self, records: Sequence[Pair]) -> list[Seen]:
        """Send records and return them as acknowledged."""
        orders = [[_base64(key), _base64(value)] for key, value in records]
        receipts = self._order("send", records=orders)["receipts"]
        return [
            Seen(partition, offset, timestamp, key, value)
            for (partition, offset, timestamp), (key, value) in zip(receipts, records, strict=True)
        ]

    def read_to_end(self) -> None:
        self._order("readToEnd")

    def ask(self) -> Callable[[], bool]:
        """Ask to read to the end; the answer tells whether that is done."""
        self._order("ask")
        return lambda: bool(self._order("asked")["done"])

    def seen(self) -> list[Seen]:
        """Return the records that its callback was given, in their order."""
        found = self._order("seen")["records"]
        return [
            Seen(partition, offset, timestamp, _bytes(key), _bytes(value))
            for partition, offset, timestamp, key, value in found
        ]

    def only_compacts(self) -> bool:
        """Tell whether Connect finds the topic's configuration good."""
        return bool(self._order("onlyCompacts")["answer"])

    def close(self) -> None:
        self._order("stop")

    def _order(self, what: str, **more: object) -> dict[str, Any]:
        return self._process.order(do=what, log=self._name, **more)


class OurLog:
    """A KafkaBasedLog of this package, used in the same way."""

    def __init__(self, topic: str, servers: str, isolation: str, create: int | None) -> None:
        params = {"bootstrap.servers": servers, "isolation.level": isolation}
        creation = None if create is None else {"partitions": create, "replication_factor": 1}
        self._seen: list[Seen] = []
        self.log = KafkaBasedLog(topic, params, on_record=self._take, create=creation)
        self.log.start()
        self.partition_count = self.log.partition_count

    def send(self, records: Sequence[Pair]) -> list[Seen]:
        sent = [self.log.send_with_receipt(key, value) for key, value in records]
        receipts = [each.result(_DEADLINE) for each in sent]
        return [
            Seen(receipt.partition, receipt.offset, receipt.timestamp, key, value)
            for receipt, (key, value) in zip(receipts, records, strict=True)
        ]

    def read_to_end(self) -> None:
        self.log.read_to_end().result(_DEADLINE)

    def ask(self) -> Callable[[], bool]:
        asked: Future[None] = self.log.read_to_end()
        return asked.done

    def seen(self) -> list[Seen]:
        return list(self._seen)

    def close(self) -> None:
        self.log.stop()

    def _take(self, record: LogRecord) -> None:
        self._seen.append(Seen(record.partition, record.offset, record.timestamp, record.key, record.value))


class Lab:
    """Opens logs of both kinds; they are closed at its end, the newest first."""

    def __init__(self, process: JavaProcess, servers: str, stack: ExitStack) -> None:
        self._process, self._servers, self._stack = process, servers, stack

    def java(self, topic: str, *, isolation: str = "read_uncommitted", create: int | None = None) -> JavaLog:
        return self._stack.enter_context(closing(JavaLog(self._process, topic, self._servers, isolation, create)))

    def ours(self, topic: str, *, isolation: str = "read_uncommitted", create: int | None = None) -> OurLog:
        return self._stack.enter_context(closing(OurLog(topic, self._servers, isolation, create)))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProcess]:
    needed = [*kafka_jars(DEFAULT_VERSION), *jars(CONNECT, transitive=False)]
    with closing(JavaProcess("Log.java", needed)) as process:
        yield process


@pytest.fixture
def lab(java: JavaProcess, kafka: EmbeddedKafka) -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(java, kafka.bootstrap_servers, stack)


AWKWARD: tuple[Pair, ...] = (
    (b"key", b"value"),
    (b"key", None),
    (b"", b"an empty key"),
    (b"an empty value", b""),
    ("schlüssel".encode(), "größer".encode()),
    (b"\x00\xff\x7f\x80", bytes(range(256))),
    (b"large", b"x" * 500_000),
    (b"k" * 1000, b"a long key"),
    (b"key", b"another value"),
    (b"never there", None),
)
NULL_KEYS: tuple[Pair, ...] = ((None, b"no key"), (None, None))  # a compacted topic refuses them


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_each_has_what_the_other_wrote(lab: Lab, make_topic: MakeTopic, policy: str) -> None:
    topic = make_topic(3, cleanup_policy=policy)
    awkward = AWKWARD + (NULL_KEYS if policy == "delete" else ())
    java, ours = lab.java(topic), lab.ours(topic)
    assert java.partition_count == ours.partition_count == 3

    by_java = java.send(awkward)
    ours.read_to_end()
    assert _by_partition(ours.seen()) == _by_partition(by_java)

    by_us = ours.send(awkward)
    java.read_to_end()
    assert _by_partition(java.seen()) == _by_partition([*by_java, *by_us])

    ours.read_to_end()
    assert _by_partition(ours.seen()) == _by_partition(java.seen())
    assert _homes(by_us) == _homes(by_java), "a key has one partition, whoever writes it"


def test_logs_that_start_later_see_the_same(lab: Lab, make_topic: MakeTopic) -> None:
    topic = make_topic(3, cleanup_policy="compact")
    written = lab.java(topic).send(AWKWARD) + lab.ours(topic).send(AWKWARD)
    for late in (lab.java(topic), lab.ours(topic)):
        assert _by_partition(late.seen()) == _by_partition(written), "a log has read to the end when it has started"


def test_both_write_at_once(lab: Lab, make_topic: MakeTopic) -> None:
    topic = make_topic(3, cleanup_policy="compact")
    java, ours = lab.java(topic), lab.ours(topic)
    by_us: list[Seen] = []

    def write() -> None:
        for number in range(20):
            by_us.extend(ours.send([(b"%d" % (each % 17), b"ours %d" % (50 * number + each)) for each in range(50)]))

    thread = threading.Thread(target=write)
    thread.start()
    by_java: list[Seen] = []
    numbers = itertools.count()
    while thread.is_alive() or len(by_java) < 500:
        by_java += java.send([(b"%d" % (next(numbers) % 17), b"java %d" % len(by_java)) for _ in range(50)])
        java.read_to_end()
        assert set(by_java) <= set(java.seen())
    thread.join()
    assert len(by_us) == 1000

    java.read_to_end()
    ours.read_to_end()
    everything = sorted(by_java + by_us)
    assert _flat(java.seen()) == everything
    assert _flat(ours.seen()) == everything


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_both_wait_for_an_open_transaction(lab: Lab, bench: Workbench, make_topic: MakeTopic, ending: str) -> None:
    topic = make_topic(1, cleanup_policy="compact")
    java, ours = (make(topic, isolation="read_committed") for make in (lab.java, lab.ours))
    before = java.send([(b"before", b"1")])
    producer = bench.producer(transactional_id=topic, transaction_timeout_ms=60_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"within", b"a transaction", partition=0)
    assert producer.flush(30) == 0
    after = ours.send([(b"after", b"2")])

    asked = [java.ask(), ours.ask()]
    threading.Event().wait(1.5)  # a time in which nothing is to happen
    assert [done() for done in asked] == [False, False]
    assert java.seen() == ours.seen() == before

    producer.commit_transaction(30) if ending == "commit" else producer.abort_transaction(30)
    for log in (java, ours):
        log.read_to_end()
    assert [done() for done in asked] == [True, True]
    assert java.seen() == ours.seen()
    assert [each.value for each in ours.seen()] == [b"1", *([b"within"] if ending == "commit" else []), b"2"]
    assert ours.seen()[-1:] == after


def test_either_creates_the_topic_for_the_other(lab: Lab) -> None:
    for makers in ((lab.java, lab.ours), (lab.ours, lab.java)):
        topic = f"created-{uuid.uuid4().hex[:8]}"
        first, second = (make(topic, create=4) for make in makers)
        assert (first.partition_count, second.partition_count) == (4, 4)
        checker = first if isinstance(first, JavaLog) else second
        assert isinstance(checker, JavaLog)
        assert checker.only_compacts(), "Connect refuses to start on a topic that loses records otherwise"
        assert _flat(second.seen()) == []
        written = first.send([(b"key", b"value")])
        second.read_to_end()
        assert second.seen() == written


def _by_partition(records: Sequence[Seen]) -> dict[int, list[Seen]]:
    """The records of each partition in the order in which they came."""
    found: dict[int, list[Seen]] = {}
    for each in records:
        found.setdefault(each.partition, []).append(each)
    return found


def _flat(records: Sequence[Seen]) -> list[Seen]:
    """All records, those of a partition in the order in which they came."""
    found = _by_partition(records)
    return [each for partition in sorted(found) for each in found[partition]]


def _homes(records: Sequence[Seen]) -> dict[bytes, int]:
    return {each.key: each.partition for each in records if each.key is not None}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
