"""KafkaBasedLog on a real broker: the cases of Kafka Connect's ``KafkaBasedLogTest``, and other uses."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.integration.groups import commit
from tests.integration.log.log_helpers import (
    FETCH,
    LIST_OFFSETS,
    TIMEOUT,
    Recorder,
    new_log,
    params,
    started_log,
    threads_of,
    tp,
    wait_for_no_thread,
    wait_result,
)
from tests.integration.transactional_batches import wait_for_markers
from tests.integration.waiting import wait_until
from tests.proxy import Fault, Network

from pyspark_kafka_direct.errors import IllegalLogStateError, OptionError, RecordTooLargeError, TopicNotFoundError
from pyspark_kafka_direct.log import KafkaBasedLog

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.log import LogRecord
    from pyspark_kafka_direct.producer.async_producer import RecordMetadata


def test_start_and_stop(bench: Workbench) -> None:
    """Committed offsets of a group do not change where it starts (KAFKA-7873); its thread ends."""
    topic = bench.make_topic(2)
    bench.write(topic, [b"a", b"b"], partition=0)
    bench.write(topic, [b"c"], partition=1)
    commit(bench.bootstrap_servers, topic, topic, 2)
    seen = Recorder()
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen)
    log.start()
    assert (seen.values(0), seen.values(1)) == ([b"a", b"b"], [b"c"])
    assert log.partition_count == 2
    assert len(threads_of(topic)) >= 1
    log.stop()
    wait_for_no_thread(topic)
    log.stop()  # has no effect
    with pytest.raises(IllegalLogStateError, match="stopped"):
        log.read_to_end()
    with pytest.raises(IllegalLogStateError, match="started only once"):
        log.start()


def test_existing_records_are_read_at_the_start(bench: Workbench) -> None:
    """Records lie between aborted ones, so many fetch responses contain nothing to deliver."""
    topic = bench.make_topic(2)
    producer = bench.producer(transactional_id=topic, transaction_timeout_ms=60_000)
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(300) == 0
        producer.commit_transaction(600) if number % 5 == 0 else producer.abort_transaction(600)
    # A start does not wait for a control record that is written after it has fetched the end offsets.
    wait_for_markers(bench.bootstrap_servers, [tp(topic, 0), tp(topic, 1)])
    seen = Recorder()
    properties = params(bench.bootstrap_servers, isolation_level="read_committed", max_partition_fetch_bytes=1)
    with KafkaBasedLog(topic, properties, on_record=seen) as log:
        assert (seen.values(0), seen.values(1)) == ([b"0", b"5"], [b"0", b"5"])
        assert log.positions == {tp(topic, 0): 20, tp(topic, 1): 20}  # includes control records and aborted records


def test_a_log_that_starts_at_its_end_has_nothing_to_read(bench: Workbench) -> None:
    topic = bench.make_topic(2)
    for partition in (0, 1):
        bench.write(topic, [b"x"] * 7, partition=partition)
        bench.delete_records(topic, 7, partition)
    seen = Recorder()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen) as log:
        assert log.positions == {tp(topic, 0): 7, tp(topic, 1): 7}
        assert seen.records == []
        bench.write(topic, [b"new"])
        wait_result(log.read_to_end())
        assert seen.offsets() == [7]


def test_send_and_read_to_end(bench: Workbench) -> None:
    topic = bench.make_topic(2)
    seen = Recorder()
    results: list[tuple[str, RecordMetadata | None, BaseException | None]] = []
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen) as log:
        for number in range(20):
            key = b"k%d" % number
            log.send(key, b"%d" % number, lambda *result, key=key: results.append((key, *result)))
        log.send(b"last", b"")
        read_results: list[BaseException | None] = []
        end = log.read_to_end(read_results.append)
        assert wait_result(end) is None
        wait_until(lambda: read_results == [None], "the callback")
        assert len(results) == len({key for key, _, _ in results}) == 20
        assert all(error is None for _, _, error in results)
        assert sum(log.positions.values()) == 21
        assert len(seen.records) == 21
        for partition in (0, 1):
            assert seen.offsets(partition) == list(range(len(seen.offsets(partition))))
            offsets = [metadata.offset for _, metadata, _ in results if metadata and metadata.partition == partition]
            assert offsets == sorted(offsets)
        assert {record.key: record.value for record in seen.records}[b"k7"] == b"7"


def test_reading_to_the_end_interrupts_a_long_poll(bench: Workbench) -> None:
    """Brokers may delay a fetch response for a minute."""
    topic = bench.make_topic()
    seen = Recorder()
    properties = params(bench.bootstrap_servers, fetch_max_wait_ms=600_000, request_timeout_ms=700_000)
    with KafkaBasedLog(topic, properties, on_record=seen) as log:
        for number in range(3):
            log.send(b"k", b"%d" % number)
            log.read_to_end().result(120)
        assert seen.values() == [b"0", b"1", b"2"]
        log.stop(120)
    wait_for_no_thread(topic)


def test_a_record_has_its_fields(bench: Workbench) -> None:
    topic = bench.make_topic()
    producer = Producer({"bootstrap.servers": bench.bootstrap_servers})
    producer.produce(topic, b"v", b"k", 0, timestamp=1_700_000_000_123, headers=[("a", b"1"), ("a", None)])
    producer.produce(topic, None, b"k", 0, timestamp=1_700_000_000_124)
    assert producer.flush(300) == 0
    seen = Recorder()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen, read_only=True):
        pass
    first, second = seen.records
    assert (first.key, second.value, second.offset, first.topic) == (b"k", None, 1, topic)
    assert tuple(first) == (b"k", b"v", 0, 0, 1_700_000_000_123, (("a", b"1"), ("a", None)), topic)
    assert tuple(second) == (b"k", None, 0, 1, 1_700_000_000_124, (), topic)


def test_failed_fetches_during_the_start_are_retried(bench: Workbench) -> None:
    topic = bench.make_topic(2)
    bench.write(topic, [b"a", b"b"])
    remaining = 6

    def fault(api_key: int) -> Fault:
        nonlocal remaining
        if api_key != FETCH or remaining == 0:
            return Fault.PASS
        remaining -= 1
        return (Fault.HALF_REQUEST, Fault.NO_RESPONSE, Fault.HALF_RESPONSE)[remaining % 3]

    seen = Recorder()
    errors: list[Any] = []
    with (
        Network(fault) as network,
        started_log(network, bench.bootstrap_servers, topic, on_record=seen, on_error=errors.append) as log,
    ):
        assert seen.values() == [b"a", b"b"]
        assert remaining == 0
        bench.write(topic, [b"c"], partition=1)
        wait_result(log.read_to_end())
        assert seen.values(1) == [b"c"]
    assert errors == []


def test_end_offset_requests_that_time_out_are_retried(bench: Workbench) -> None:
    """The fault lasts longer than the timeout of one request, so the thread retries in its next iterations."""
    topic = bench.make_topic()
    unresponsive = threading.Event()

    def fault(api_key: int) -> Fault:
        return Fault.NO_RESPONSE if api_key == LIST_OFFSETS and unresponsive.is_set() else Fault.PASS

    seen = Recorder()
    with Network(fault) as network, started_log(network, bench.bootstrap_servers, topic, on_record=seen) as log:
        unresponsive.set()
        log.send(b"k", b"v")
        results: list[BaseException | None] = []
        end = log.read_to_end(results.append)
        with pytest.raises(TimeoutError):
            end.result(7)  # the first request times out after five seconds
        wait_until(lambda: seen.values() == [b"v"], "the record: reading continues")
        unresponsive.clear()
        wait_result(end)
        wait_until(lambda: results == [None], "the callback")


def test_a_record_that_brokers_reject(bench: Workbench) -> None:
    """The callback gets the error once, later records are written, and the log can be stopped."""
    topic = bench.make_topic(max_message_bytes=1000)
    results: list[tuple[RecordMetadata | None, BaseException | None]] = []
    with KafkaBasedLog(topic, params(bench.bootstrap_servers)) as log:
        log.send(b"k", b"x" * 2000, lambda *result: results.append(result))
        log.flush(TIMEOUT)
        wait_until(lambda: len(results) == 1, "the callback")
        assert isinstance(results[0][1], RecordTooLargeError)
        wait_result(log.send_with_receipt(b"k", b"small"))
        log.send(b"k", b"x" * 2000)
    assert len(results) == 1
    wait_for_no_thread(topic)


def test_each_read_to_the_end_fetches_end_offsets(bench: Workbench) -> None:
    """That one request is enough is checked by the unit tests: here the consumer sends such requests too."""
    topic = bench.make_topic(3)
    requests: Counter[int] = Counter()

    def fault(api_key: int) -> Fault:
        requests[api_key] += 1
        return Fault.PASS

    with Network(fault) as network, started_log(network, bench.bootstrap_servers, topic) as log:
        assert requests[LIST_OFFSETS] >= 2  # start offsets and end offsets
        for _ in range(3):
            before = requests[LIST_OFFSETS]
            wait_result(log.read_to_end())
            assert requests[LIST_OFFSETS] > before


def test_existing_clients_are_used_and_closed(bench: Workbench) -> None:
    topic = bench.make_topic()
    with Network(lambda _: Fault.PASS) as network:
        log = new_log(network, bench.bootstrap_servers, topic)
        clients = log._clients
        assert clients.producer is not None
        log.start()
        wait_result(log.send_with_receipt(b"k", b"v"))
        log.stop()
        wait_for_no_thread(topic)
        with pytest.raises(Exception, match="closed"):
            clients.producer.send(topic, b"k", b"v")


def test_existing_clients_are_closed_if_the_log_never_started(bench: Workbench) -> None:
    with Network(lambda _: Fault.PASS) as network:
        log = new_log(network, bench.bootstrap_servers, "never")
        clients = log._clients
        assert clients.producer is not None
        log.stop()
        with pytest.raises(Exception, match="closed"):
            clients.producer.send("never", b"k", b"v")


def test_the_topic_is_created_compacted(bench: Workbench) -> None:
    topic = f"{bench.make_topic()}-created"
    create = {"partitions": 3, "replication_factor": 1, "configs": {"segment.ms": 1_000_000}}
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), create=create) as log:
        assert log.partition_count == 3
    configs = bench.admin.describe_configs([_resource(topic)])
    found = next(iter(configs.values())).result(600)
    assert found["cleanup.policy"].value == "compact"
    assert found["segment.ms"].value == "1000000"
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), create={"partitions": 5}) as log:
        assert log.partition_count == 3  # it already existed


def _resource(topic: str) -> Any:
    from confluent_kafka.admin import ConfigResource, ResourceType

    return ConfigResource(ResourceType.TOPIC, topic)


def test_many_logs_may_create_the_topic_at_once(bench: Workbench) -> None:
    topic = f"{bench.make_topic()}-together"
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with KafkaBasedLog(topic, params(bench.bootstrap_servers), create={"replication_factor": 1}) as log:
                wait_result(log.send_with_receipt(b"k", b"v"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert failures == []
    assert bench.end(topic) == 4


@pytest.mark.parametrize(
    ("create", "message"),
    [
        ({"partition": 1}, "no field 'partition'"),
        ({"partitions": 0}, "partitions in create"),
        ({"replication_factor": "3"}, "replication_factor in create"),
        ({"configs": "compact"}, "configs in create"),
    ],
    ids=["unknown", "partitions", "replication", "configs"],
)
def test_an_invalid_create_argument_is_rejected(create: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        KafkaBasedLog("t", params("127.0.0.1:1"), create=create)


def test_start_waits_for_a_missing_topic(bench: Workbench) -> None:
    topic = f"{bench.make_topic()}-late"
    timer = threading.Timer(2, lambda: bench.admin.create_topics([_new_topic(topic)]))
    timer.start()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers)) as log:
        assert log.partition_count == 2
    timer.join()


def _new_topic(topic: str) -> Any:
    from confluent_kafka.admin import NewTopic

    return NewTopic(topic, 2, 1)


def test_a_topic_that_never_appears_is_an_error(bench: Workbench) -> None:
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
        with pytest.raises(ValueError, match="not read by this log"):
            log.wait_for({0: 0}, 1)
    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), partitions=lambda _: False)
    with pytest.raises(OptionError, match="none of the topic's 4"):
        log.start()


def test_a_read_only_log_cannot_send(bench: Workbench) -> None:
    topic = bench.make_topic()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), read_only=True) as log:
        with pytest.raises(IllegalLogStateError, match="read-only"):
            log.send_with_receipt(b"k", b"v")
        with pytest.raises(IllegalLogStateError, match="read-only"):
            log.send(b"k", b"v")
        log.flush()
        wait_result(log.read_to_end())


def test_a_log_that_is_not_started_rejects_every_call() -> None:
    log = KafkaBasedLog("t", params("127.0.0.1:1"))
    for call in (log.read_to_end, log.flush, lambda: log.send(b"k", b"v"), lambda: log.wait_for({0: 1})):
        with pytest.raises(IllegalLogStateError, match="not started"):
            call()
    assert (log.partition_count, log.positions) == (0, {})
    log.stop()


def test_two_logs_deliver_each_others_records(bench: Workbench) -> None:
    topic = bench.make_topic(3)
    first, second = Recorder(), Recorder()
    properties = params(bench.bootstrap_servers)
    with (
        KafkaBasedLog(topic, properties, on_record=first) as one,
        KafkaBasedLog(topic, properties, on_record=second) as other,
    ):
        for number in range(50):
            (one if number % 2 else other).send(b"k%d" % number, b"%d" % number)
        one.flush(TIMEOUT)
        other.flush(TIMEOUT)
        wait_result(one.read_to_end())
        wait_result(other.read_to_end())
        assert sorted(first.records) == sorted(second.records)
        assert len(first.records) == 50


def test_waiting_for_records(bench: Workbench) -> None:
    topic = bench.make_topic(2)
    seen = Recorder()
    with KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=seen) as log:
        sent = wait_result(log.send_with_receipt(b"k", b"v"))
        log.wait_for(sent, TIMEOUT)
        assert [record.value for record in seen.records] == [b"v"]
        bench.write(topic, [b"x"] * 3, partition=1 - sent.partition)
        log.wait_for({1 - sent.partition: 2, sent.partition: 0}, TIMEOUT)
        assert seen.offsets(1 - sent.partition) == [0, 1, 2]
        log.wait_for({tp(topic, sent.partition): 0}, TIMEOUT)
        with pytest.raises(TimeoutError, match=r"Offset 9 was not read within 0\.2 s; the next offset to read is 1"):
            log.wait_for({sent.partition: 9}, 0.2)
        with pytest.raises(TypeError, match=r"is not a RecordMetadata: pass the result\(\) of the future"):
            log.wait_for(log.send_with_receipt(b"k", b"v"), 0.2)  # type: ignore[arg-type]  # a common mistake
        assert not log._worker.pending_reads.has_pending


def test_a_callback_that_waits_for_its_own_log_gets_an_error(bench: Workbench) -> None:
    topic = bench.make_topic()
    raised: list[BaseException] = []

    def apply(record: LogRecord) -> None:
        end = log.read_to_end()
        for wait in (end.result, end.exception, lambda: log.wait_for({0: 99})):
            try:
                wait()
            except IllegalLogStateError as error:
                raised.append(error)

    log = KafkaBasedLog(topic, params(bench.bootstrap_servers), on_record=apply)
    bench.write(topic, [b"before"])
    with log:
        assert len(raised) == 3
        log.send(b"k", b"v")
        wait_result(log.read_to_end())
        assert len(raised) == 6
        assert "cannot continue before the callback returns" in str(raised[0])
        # A future that is done may be read.
        ends: list[None] = []
        first = log.read_to_end()
        first.add_done_callback(lambda future: ends.append(future.result()))
        wait_result(first)
        wait_until(lambda: ends == [None], "the callback")


def test_on_batch_gets_arrow_batches(bench: Workbench) -> None:
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
        of_partition = [rows for key, rows in batches if key == tp(topic, partition)]
        assert [offset for rows in of_partition for offset in rows.column("offset").to_pylist()] == list(range(100))
    with pytest.raises(ValueError, match="not both"):
        KafkaBasedLog(topic, params("127.0.0.1:1"), on_record=print, on_batch=print)
