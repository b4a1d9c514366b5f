"""KafkaBasedLog on a real broker: the cases of Kafka Connect's ``KafkaBasedLogTest``, and what else users do."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from tests.integration.log.logs import (
    FETCH,
    LIST_OFFSETS,
    PATIENCE,
    Recorder,
    behind,
    done,
    params,
    threads_of,
    through,
    tp,
    wait_for_no_thread,
)
from tests.integration.waiting import wait_until
from tests.proxy import Fate, Network

from pyspark_kafka_direct.errors import LogStateError, OptionError, RecordTooLargeError, TopicNotFoundError
from pyspark_kafka_direct.log import KafkaBasedLog

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.log import LogRecord
    from pyspark_kafka_direct.writing.outbox import Receipt


def test_start_and_stop(bench: Workbench) -> None:
    """A group's committed offsets have no say in where it begins (KAFKA-7873); its thread ends."""
    topic = bench.make_topic(2)
    bench.write(topic, [b"a", b"b"], partition=0)
    bench.write(topic, [b"c"], partition=1)
    consumer = Consumer({"bootstrap.servers": bench.bootstrap_servers, "group.id": topic})
    consumer.commit(offsets=[ClientPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    seen = Recorder()
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen)
    log.start()
    assert (seen.values(0), seen.values(1)) == ([b"a", b"b"], [b"c"])
    assert log.partition_count == 2
    assert len(threads_of(topic)) >= 1
    log.stop()
    wait_for_no_thread(topic)
    log.stop()  # once more does no harm
    with pytest.raises(LogStateError, match="stopped"):
        log.read_to_end()
    with pytest.raises(LogStateError, match="starts once"):
        log.start()


def test_what_is_there_is_reloaded_at_the_start(bench: Workbench) -> None:
    """Records lie between aborted ones, so that many answers bring nothing."""
    topic = bench.make_topic(2)
    producer = bench.producer(transactional_id=topic, transaction_timeout_ms=60_000)
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if number % 5 == 0 else producer.abort_transaction(30)
    seen = Recorder()
    given = params(bench.bootstrap_servers, isolation_level="read_committed", max_partition_fetch_bytes=1)
    with KafkaBasedLog(topic, given, on_record=seen) as log:
        assert (seen.values(0), seen.values(1)) == ([b"0", b"5"], [b"0", b"5"])
        assert log.positions == {tp(topic, 0): 20, tp(topic, 1): 20}  # markers and aborted records count too


def test_a_log_that_begins_at_its_end_has_nothing_to_read(bench: Workbench) -> None:
    topic = bench.make_topic(2)
    for partition in (0, 1):
        bench.write(topic, [b"x"] * 7, partition=partition)
        bench.delete_records(topic, 7, partition)
    seen = Recorder()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen) as log:
        assert log.positions == {tp(topic, 0): 7, tp(topic, 1): 7}
        assert seen.records == []
        bench.write(topic, [b"new"])
        done(log.read_to_end())
        assert seen.offsets() == [7]


def test_send_and_read_to_end(bench: Workbench) -> None:
    topic = bench.make_topic(2)
    seen = Recorder()
    settled: list[tuple[str, Receipt | None, BaseException | None]] = []
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen) as log:
        for number in range(20):
            key = b"k%d" % number
            log.send(key, b"%d" % number, lambda *how, key=key: settled.append((key, *how)))
        log.send(b"last", b"")
        told: list[BaseException | None] = []
        end = log.read_to_end(told.append)
        assert done(end) is None
        wait_until(lambda: told == [None], "the callback")
        assert len(settled) == len({key for key, _, _ in settled}) == 20
        assert all(error is None for _, _, error in settled)
        assert sum(log.positions.values()) == 21
        assert len(seen.records) == 21
        for partition in (0, 1):
            assert seen.offsets(partition) == list(range(len(seen.offsets(partition))))
            receipts = [receipt.offset for _, receipt, _ in settled if receipt and receipt.partition == partition]
            assert receipts == sorted(receipts)
        assert {record.key: record.value for record in seen.records}[b"k7"] == b"7"


def test_reading_to_the_end_wakes_a_poll_that_waits(bench: Workbench) -> None:
    """Brokers hold an answer back for a minute; nobody has to wait for that."""
    topic = bench.make_topic()
    seen = Recorder()
    given = params(bench.bootstrap_servers, fetch_max_wait_ms=60_000, request_timeout_ms=90_000)
    with KafkaBasedLog(topic, given, on_record=seen) as log:
        for number in range(3):
            log.send(b"k", b"%d" % number)
            log.read_to_end().result(20)
        assert seen.values() == [b"0", b"1", b"2"]
        log.stop(20)
    wait_for_no_thread(topic)


def test_a_record_has_its_fields(bench: Workbench) -> None:
    topic = bench.make_topic()
    producer = Producer({"bootstrap.servers": bench.bootstrap_servers})
    producer.produce(topic, b"v", b"k", 0, timestamp=1_700_000_000_123, headers=[("a", b"1"), ("a", None)])
    producer.produce(topic, None, b"k", 0, timestamp=1_700_000_000_124)
    assert producer.flush(30) == 0
    seen = Recorder()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen, read_only=True):
        pass
    first, second = seen.records
    assert (first.key, second.value, second.offset, first.topic) == (b"k", None, 1, topic)
    assert tuple(first) == (b"k", b"v", 0, 0, 1_700_000_000_123, (("a", b"1"), ("a", None)), topic)
    assert tuple(second) == (b"k", None, 0, 1, 1_700_000_000_124, (), topic)


def test_trouble_with_a_poll_during_the_start_is_survived(bench: Workbench) -> None:
    topic = bench.make_topic(2)
    bench.write(topic, [b"a", b"b"])
    left = 6

    def fate(api_key: int) -> Fate:
        nonlocal left
        if api_key != FETCH or left == 0:
            return Fate.PASS
        left -= 1
        return (Fate.HALF_REQUEST, Fate.NO_ANSWER, Fate.HALF_ANSWER)[left % 3]

    seen = Recorder()
    errors: list[Any] = []
    with (
        Network(fate) as network,
        through(network, bench.bootstrap_servers, topic, on_record=seen, on_error=errors.append) as log,
    ):
        assert seen.values() == [b"a", b"b"]
        assert left == 0
        bench.write(topic, [b"c"], partition=1)
        done(log.read_to_end())
        assert seen.values(1) == [b"c"]
    assert errors == []


def test_ends_that_cannot_be_looked_up_in_time_are_looked_up_again(bench: Workbench) -> None:
    """Longer than one look-up takes: it is the thread that asks again, in its next rounds."""
    topic = bench.make_topic()
    bad = threading.Event()

    def fate(api_key: int) -> Fate:
        return Fate.NO_ANSWER if api_key == LIST_OFFSETS and bad.is_set() else Fate.PASS

    seen = Recorder()
    with Network(fate) as network, through(network, bench.bootstrap_servers, topic, on_record=seen) as log:
        bad.set()
        log.send(b"k", b"v")
        told: list[BaseException | None] = []
        end = log.read_to_end(told.append)
        with pytest.raises(TimeoutError):
            end.result(7)  # a look-up takes five seconds at most
        assert seen.values() == [b"v"]  # reading goes on meanwhile
        bad.clear()
        done(end)
        wait_until(lambda: told == [None], "the callback")


def test_a_record_that_brokers_refuse(bench: Workbench) -> None:
    """The failure reaches the callback once, later records are written, and the log can be stopped."""
    topic = bench.make_topic(max_message_bytes=1000)
    told: list[tuple[Receipt | None, BaseException | None]] = []
    with KafkaBasedLog(topic, params(bench.bootstrap_servers)) as log:
        log.send(b"k", b"x" * 2000, lambda *how: told.append(how))
        log.flush(PATIENCE)
        wait_until(lambda: len(told) == 1, "the callback")
        assert isinstance(told[0][1], RecordTooLargeError)
        done(log.send_with_receipt(b"k", b"small"))
        log.send(b"k", b"x" * 2000)
    assert len(told) == 1
    wait_for_no_thread(topic)


def test_the_ends_are_looked_up_for_each_who_asks(bench: Workbench) -> None:
    """At the start by retries (TopicAdmin's, in Java), later plainly.

    That it is one question each is shown turn by turn in the unit tests: brokers may have one asked again, and the tail
    asks for itself.
    """
    topic = bench.make_topic(3)
    asked: Counter[int] = Counter()

    def fate(api_key: int) -> Fate:
        asked[api_key] += 1
        return Fate.PASS

    with Network(fate) as network, through(network, bench.bootstrap_servers, topic) as log:
        assert asked[LIST_OFFSETS] >= 2  # where the partitions begin, and where they end
        for _ in range(3):
            before = asked[LIST_OFFSETS]
            done(log.read_to_end())
            assert asked[LIST_OFFSETS] > before


def test_existing_clients_are_used_and_closed(bench: Workbench) -> None:
    topic = bench.make_topic()
    with Network(lambda _: Fate.PASS) as network:
        initialized: list[Any] = []
        log = behind(network, bench.bootstrap_servers, topic, initializer=initialized.append)
        clients = log._clients
        assert clients.outbox is not None
        log.start()
        assert initialized == [clients.cluster]
        done(log.send_with_receipt(b"k", b"v"))
        log.stop()
        wait_for_no_thread(topic)
        with pytest.raises(Exception, match="closed"):
            clients.outbox.send(topic, b"k", b"v")


def test_existing_clients_are_closed_even_if_the_log_never_started(bench: Workbench) -> None:
    with Network(lambda _: Fate.PASS) as network:
        log = behind(network, bench.bootstrap_servers, "never")
        clients = log._clients
        assert clients.outbox is not None
        log.stop()
        with pytest.raises(Exception, match="closed"):
            clients.outbox.send("never", b"k", b"v")


def test_the_topic_is_created_compacted(bench: Workbench) -> None:
    topic = f"{bench.make_topic()}-created"
    create = {"partitions": 3, "replication_factor": 1, "configs": {"segment.ms": 1_000_000}}
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), create=create) as log:
        assert log.partition_count == 3
    configs = bench.admin.describe_configs([_resource(topic)])
    found = next(iter(configs.values())).result(30)
    assert found["cleanup.policy"].value == "compact"
    assert found["segment.ms"].value == "1000000"
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), create={"partitions": 5}) as log:
        assert log.partition_count == 3  # it was there


def _resource(topic: str) -> Any:
    from confluent_kafka.admin import ConfigResource, ResourceType

    return ConfigResource(ResourceType.TOPIC, topic)


def test_many_logs_may_create_the_topic_at_once(bench: Workbench) -> None:
    topic = f"{bench.make_topic()}-together"
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with KafkaBasedLog(topic, params(bench.bootstrap_servers), create={"replication_factor": 1}) as log:
                done(log.send_with_receipt(b"k", b"v"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    assert bench.end(topic) == 4


@pytest.mark.parametrize(
    ("create", "message"),
    [
        ({"partition": 1}, "no 'partition'"),
        ({"partitions": 0}, "partitions in create"),
        ({"replication_factor": "3"}, "replication_factor in create"),
        ({"configs": "compact"}, "configs in create"),
    ],
    ids=["word", "partitions", "replication", "configs"],
)
def test_what_cannot_be_created_is_refused(create: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        KafkaBasedLog("t", params("127.0.0.1:1"), create=create)


def test_a_topic_that_is_not_there_is_waited_for(bench: Workbench) -> None:
    topic = f"{bench.make_topic()}-late"
    timer = threading.Timer(2, lambda: bench.admin.create_topics([_new(topic)]))
    timer.start()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers)) as log:
        assert log.partition_count == 2
    timer.join()


def _new(topic: str) -> Any:
    from confluent_kafka.admin import NewTopic

    return NewTopic(topic, 2, 1)


def test_a_topic_that_does_not_come_is_an_error(bench: Workbench) -> None:
    log = KafkaBasedLog(f"{bench.make_topic()}-never", params(bench.bootstrap_servers))
    with pytest.raises(TopicNotFoundError, match="Create it"):
        log.start()
    assert threads_of(log.topic) == []


def test_some_partitions_only(bench: Workbench) -> None:
    topic = bench.make_topic(4)
    for partition in range(4):
        bench.write(topic, [b"%d" % partition], partition=partition)
    seen = Recorder()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen, partitions=lambda n: n % 2 == 1) as log:
        assert log.partition_count == 2
        assert sorted(record.value or b"" for record in seen.records) == [b"1", b"3"]
        with pytest.raises(ValueError, match="not read here"):
            log.wait_for({0: 0}, 1)
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), partitions=lambda _: False)
    with pytest.raises(OptionError, match="none of the topic's 4"):
        log.start()


def test_a_log_that_is_only_read_sends_nothing(bench: Workbench) -> None:
    topic = bench.make_topic()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), read_only=True) as log:
        with pytest.raises(LogStateError, match="only read"):
            log.send_with_receipt(b"k", b"v")
        with pytest.raises(LogStateError, match="only read"):
            log.send(b"k", b"v")
        log.flush()
        done(log.read_to_end())


def test_nothing_is_asked_of_a_log_that_was_not_started() -> None:
    log = KafkaBasedLog("t", params("127.0.0.1:1"))
    for ask in (log.read_to_end, log.flush, lambda: log.send(b"k", b"v"), lambda: log.wait_for({0: 1})):
        with pytest.raises(LogStateError, match="not started"):
            ask()
    assert (log.partition_count, log.positions) == (0, {})
    log.stop()


def test_two_logs_see_what_each_other_wrote(bench: Workbench) -> None:
    topic = bench.make_topic(3)
    first, second = Recorder(), Recorder()
    given = params(bench.bootstrap_servers)
    with (
        KafkaBasedLog(topic, given, on_record=first) as one,
        KafkaBasedLog(topic, given, on_record=second) as other,
    ):
        for number in range(50):
            (one if number % 2 else other).send(b"k%d" % number, b"%d" % number)
        one.flush(PATIENCE)
        other.flush(PATIENCE)
        done(one.read_to_end())
        done(other.read_to_end())
        assert sorted(first.records) == sorted(second.records)
        assert len(first.records) == 50


def test_waiting_for_records(bench: Workbench) -> None:
    topic = bench.make_topic(2)
    seen = Recorder()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen) as log:
        receipt = done(log.send_with_receipt(b"k", b"v"))
        log.wait_for(receipt, PATIENCE)
        assert [record.value for record in seen.records] == [b"v"]
        bench.write(topic, [b"x"] * 3, partition=1 - receipt.partition)
        log.wait_for({1 - receipt.partition: 2, receipt.partition: 0}, PATIENCE)
        assert seen.offsets(1 - receipt.partition) == [0, 1, 2]
        log.wait_for({tp(topic, receipt.partition): 0}, PATIENCE)
        with pytest.raises(TimeoutError, match=r"Offset 9 was not read within 0\.2 s; the next one to be read is 1"):
            log.wait_for({receipt.partition: 9}, 0.2)
        with pytest.raises(TypeError, match=r"is no receipt: .* return a future of a receipt"):
            log.wait_for(log.send_with_receipt(b"k", b"v"), 0.2)  # type: ignore[arg-type]  # as one writes it at first
        assert not log._requests.waiting


def test_a_callback_that_waits_for_its_own_log_is_told_so(bench: Workbench) -> None:
    topic = bench.make_topic()
    raised: list[BaseException] = []

    def apply(record: LogRecord) -> None:
        end = log.read_to_end()
        for wait in (end.result, end.exception, lambda: log.wait_for({0: 99})):
            try:
                wait()
            except LogStateError as error:
                raised.append(error)

    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=apply)
    bench.write(topic, [b"before"])
    with log:
        assert len(raised) == 3
        log.send(b"k", b"v")
        done(log.read_to_end())
        assert len(raised) == 6
        assert "cannot go on before the callback returns" in str(raised[0])
        # One that is done already may be looked at.
        ends: list[None] = []
        first = log.read_to_end()
        first.add_done_callback(lambda future: ends.append(future.result()))
        done(first)
        wait_until(lambda: ends == [None], "the callback")


def test_batches_instead_of_records(bench: Workbench) -> None:
    topic = bench.make_topic(2)
    for partition in (0, 1):
        bench.write(topic, [b"%d" % number for number in range(100)], partition=partition)
    batches: list[Any] = []
    with KafkaBasedLog(
        topic,
        params(bench.bootstrap_servers),
        on_batch=lambda partition, rows: batches.append((partition, rows)),
        columns=("offset", "value"),
    ):
        pass
    assert {rows.schema.names == ["offset", "value"] for _, rows in batches} == {True}
    for partition in (0, 1):
        mine = [rows for place, rows in batches if place == tp(topic, partition)]
        assert [offset for rows in mine for offset in rows.column("offset").to_pylist()] == list(range(100))
    with pytest.raises(ValueError, match="not both"):
        KafkaBasedLog(topic, params("127.0.0.1:1"), on_record=print, on_batch=print)
