"""Kafka Connect's KafkaBasedLog in Java and ours on one topic: each reads what the other wrote, in the same order."""

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
from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION
from pyspark_kafka_direct.broker.maven import kafka_jars
from pyspark_kafka_direct.log import KafkaBasedLog, LogRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka

Pair: TypeAlias = tuple[bytes | None, bytes | None]

CONNECT = tuple(f"org.apache.kafka:connect-{part}:{DEFAULT_VERSION}" for part in ("runtime", "api"))
"""Jars of the class that the broker does not have: 1 MB."""

_DEADLINE = 600.0


class Seen(NamedTuple):
    """A record that a log delivered."""

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
        sent = self._order("send", records=orders)["sent"]
        return [
            Seen(partition, offset, timestamp, key, value)
            for (partition, offset, timestamp), (key, value) in zip(sent, records, strict=True)
        ]

    def read_to_end(self) -> None:
        self._order("readToEnd")

    def request_read(self) -> Callable[[], bool]:
        """Request a read to the end; the function that is returned checks whether it is done."""
        self._order("requestRead")
        return lambda: bool(self._order("readDone")["done"])

    def seen(self) -> list[Seen]:
        """Return the delivered records in order."""
        records = self._order("seen")["records"]
        return [
            Seen(partition, offset, timestamp, _bytes(key), _bytes(value))
            for partition, offset, timestamp, key, value in records
        ]

    def only_compacts(self) -> bool:
        """Return whether Connect accepts the topic's cleanup policy."""
        return bool(self._order("onlyCompacts")["accepted"])

    def close(self) -> None:
        self._order("stop")

    def _order(self, command: str, **more: object) -> dict[str, Any]:
        return self._process.order(do=command, log=self._name, **more)


class OurLog:
    """A KafkaBasedLog of this package with the same interface."""

    def __init__(self, topic: str, servers: str, isolation: str, create: int | None) -> None:
        params = {"bootstrap.servers": servers, "isolation.level": isolation}
        topic_spec = None if create is None else {"partitions": create, "replication_factor": 1}
        self._seen: list[Seen] = []
        self.log = KafkaBasedLog(topic, params, on_record=self._take, create=topic_spec)
        self.log.start()
        self.partition_count = self.log.partition_count

    def send(self, records: Sequence[Pair]) -> list[Seen]:
        sent = [self.log.send_with_receipt(key, value) for key, value in records]
        acknowledged = [each.result(_DEADLINE) for each in sent]
        return [
            Seen(metadata.partition, metadata.offset, metadata.timestamp, key, value)
            for metadata, (key, value) in zip(acknowledged, records, strict=True)
        ]

    def read_to_end(self) -> None:
        self.log.read_to_end().result(_DEADLINE)

    def request_read(self) -> Callable[[], bool]:
        future: Future[None] = self.log.read_to_end()
        return future.done

    def seen(self) -> list[Seen]:
        return list(self._seen)

    def close(self) -> None:
        self.log.stop()

    def _take(self, record: LogRecord) -> None:
        self._seen.append(Seen(record.partition, record.offset, record.timestamp, record.key, record.value))


class LogFactory:
    """Opens logs of both kinds, which are closed at the end, the newest first."""

    def __init__(self, process: JavaProcess, servers: str, stack: ExitStack) -> None:
        self._process, self._servers, self._stack = process, servers, stack

    def java(self, topic: str, *, isolation: str = "read_uncommitted", create: int | None = None) -> JavaLog:
        return self._stack.enter_context(closing(JavaLog(self._process, topic, self._servers, isolation, create)))

    def ours(self, topic: str, *, isolation: str = "read_uncommitted", create: int | None = None) -> OurLog:
        return self._stack.enter_context(closing(OurLog(topic, self._servers, isolation, create)))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProcess]:
    classpath = [*kafka_jars(DEFAULT_VERSION), *jars(CONNECT, transitive=False)]
    with closing(JavaProcess("Log.java", classpath)) as process:
        yield process


@pytest.fixture
def logs(java: JavaProcess, kafka: EmbeddedKafka) -> Iterator[LogFactory]:
    with ExitStack() as stack:
        yield LogFactory(java, kafka.bootstrap_servers, stack)


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
NULL_KEYS: tuple[Pair, ...] = ((None, b"no key"), (None, None))  # a compacted topic rejects them


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_each_log_reads_what_the_other_wrote(logs: LogFactory, make_topic: MakeTopic, policy: str) -> None:
    topic = make_topic(3, cleanup_policy=policy)
    records = AWKWARD + (NULL_KEYS if policy == "delete" else ())
    java, ours = logs.java(topic), logs.ours(topic)
    assert java.partition_count == ours.partition_count == 3

    by_java = java.send(records)
    ours.read_to_end()
    assert _by_partition(ours.seen()) == _by_partition(by_java)

    by_us = ours.send(records)
    java.read_to_end()
    assert _by_partition(java.seen()) == _by_partition([*by_java, *by_us])

    ours.read_to_end()
    assert _by_partition(ours.seen()) == _by_partition(java.seen())
    assert _partition_of_keys(by_us) == _partition_of_keys(by_java), "both assign a key to the same partition"


def test_logs_that_start_later_see_the_same(logs: LogFactory, make_topic: MakeTopic) -> None:
    topic = make_topic(3, cleanup_policy="compact")
    written = logs.java(topic).send(AWKWARD) + logs.ours(topic).send(AWKWARD)
    for late in (logs.java(topic), logs.ours(topic)):
        assert _by_partition(late.seen()) == _by_partition(written), "a started log has read to the end"


def test_both_write_concurrently(logs: LogFactory, make_topic: MakeTopic) -> None:
    topic = make_topic(3, cleanup_policy="compact")
    java, ours = logs.java(topic), logs.ours(topic)
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
def test_both_wait_for_an_open_transaction(
    logs: LogFactory, bench: Workbench, make_topic: MakeTopic, ending: str
) -> None:
    topic = make_topic(1, cleanup_policy="compact")
    java, ours = (make(topic, isolation="read_committed") for make in (logs.java, logs.ours))
    before = java.send([(b"before", b"1")])
    producer = bench.producer(transactional_id=topic, transaction_timeout_ms=60_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"within", b"a transaction", partition=0)
    assert producer.flush(300) == 0
    after = ours.send([(b"after", b"2")])

    reads_done = [java.request_read(), ours.request_read()]
    threading.Event().wait(1.5)  # neither must complete
    assert [done() for done in reads_done] == [False, False]
    assert java.seen() == ours.seen() == before

    producer.commit_transaction(600) if ending == "commit" else producer.abort_transaction(600)
    for log in (java, ours):
        log.read_to_end()
    assert [done() for done in reads_done] == [True, True]
    assert java.seen() == ours.seen()
    assert [each.value for each in ours.seen()] == [b"1", *([b"within"] if ending == "commit" else []), b"2"]
    assert ours.seen()[-1:] == after


def test_either_creates_the_topic_for_the_other(logs: LogFactory) -> None:
    for makers in ((logs.java, logs.ours), (logs.ours, logs.java)):
        topic = f"created-{uuid.uuid4().hex[:8]}"
        first, second = (make(topic, create=4) for make in makers)
        assert (first.partition_count, second.partition_count) == (4, 4)
        checker = first if isinstance(first, JavaLog) else second
        assert isinstance(checker, JavaLog)
        assert checker.only_compacts(), "otherwise Connect rejects the topic, which could lose records"
        assert _flat(second.seen()) == []
        written = first.send([(b"key", b"value")])
        second.read_to_end()
        assert second.seen() == written


def _by_partition(records: Sequence[Seen]) -> dict[int, list[Seen]]:
    """Group records by partition, in order of delivery."""
    found: dict[int, list[Seen]] = {}
    for each in records:
        found.setdefault(each.partition, []).append(each)
    return found


def _flat(records: Sequence[Seen]) -> list[Seen]:
    """Sort records by partition, in order of delivery."""
    found = _by_partition(records)
    return [each for partition in sorted(found) for each in found[partition]]


def _partition_of_keys(records: Sequence[Seen]) -> dict[bytes, int]:
    return {each.key: each.partition for each in records if each.key is not None}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
