"""A table that is the single writer of its topic, and typed keys and values, on a real broker."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.log.log_helpers import TIMEOUT, params, tp, wait_for_no_thread, wait_result

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    IllegalLogStateError,
    OutcomeUnknownError,
    ProducerFencedError,
    RecordTooLargeError,
)
from pyspark_kafka_direct.log import KafkaTable, Serde, single_writer
from pyspark_kafka_direct.log.pending_reads import LogFuture
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench


def new_table(bench: Workbench, topic: str, **more: Any) -> KafkaTable[bytes, bytes]:
    return KafkaTable(topic, params(bench.bootstrap_servers), **more)


def test_a_later_writer_fences_the_earlier_one(bench: Workbench) -> None:
    topic = bench.make_topic(3, cleanup_policy="compact")
    with (
        new_table(bench, topic, transactional_id=topic) as first,
        new_table(bench, topic, read_only=True) as reader,
    ):
        written = wait_result(first.put(b"a", b"1"))
        first.wait_for(written, TIMEOUT)
        reader.wait_for(written, TIMEOUT)
        assert first[b"a"] == reader[b"a"] == b"1"
        with new_table(bench, topic, transactional_id=topic) as second:
            assert second.snapshot() == {b"a": b"1"}  # what the earlier writer has written
            for _ in range(2):
                with pytest.raises(ProducerFencedError, match="another table has claimed transactional_id"):
                    first.put(b"a", b"zombie")
            second.wait_for(second.write({b"a": b"2", b"b": b"2"}, delete=[b"c"]), TIMEOUT)
            assert second.snapshot() == {b"a": b"2", b"b": b"2"}
            wait_result(first.read_to_end())
            assert first.snapshot() == {b"a": b"2", b"b": b"2"}  # it still reads
            with new_table(bench, topic, transactional_id=f"{topic}-other") as other:
                wait_result(other.put(b"d", b"3"))  # another id, which fences nobody
            second.wait_for(wait_result(second.delete(b"d")), TIMEOUT)
            assert b"d" not in second


def test_a_claim_aborts_an_open_transaction(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a writer that died during a write. Only the claim can abort it before the start's timeout."""
    monkeypatch.setattr(single_writer, "_TRANSACTION_TIMEOUT_MS", 600_000)
    topic = bench.make_topic(cleanup_policy="compact")
    with new_table(bench, topic, transactional_id=topic) as first:
        with monkeypatch.context() as patch:
            patch.setattr(TransactionalProducer, "commit", lambda self: (self.flush(), 1 / 0)[0])
            patch.setattr(TransactionalProducer, "abort", lambda self, deadline: None)
            with pytest.raises(ZeroDivisionError):
                first.write({b"a": b"1", b"b": b"1"})
        with pytest.raises(IllegalLogStateError, match=r"cannot write.*ZeroDivisionError|division by zero"):
            first.put(b"a", b"1")
        with new_table(bench, topic, transactional_id=topic, start_timeout=300) as second:
            assert second.snapshot() == {}
            second.wait_for(wait_result(second.put(b"a", b"2")), TIMEOUT)
            assert second.snapshot() == {b"a": b"2"}


def test_a_failed_write_is_aborted_and_ends_the_claim(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that claims its id again by itself could fence a successor."""
    topic = bench.make_topic(cleanup_policy="compact")
    with new_table(bench, topic, transactional_id=topic) as table:
        with pytest.raises(RecordTooLargeError):  # nothing was sent, so the claim holds
            table.write({b"a": b"1", b"large": b"x" * (2 << 20)})
        with pytest.raises(TypeError, match="value must be bytes, got str"):
            table.put(b"a", "1")  # type: ignore[arg-type]
        wait_result(table.put(b"a", b"1"))

        def fail(_: TransactionalProducer) -> None:
            raise OutcomeUnknownError("the response was lost")

        with monkeypatch.context() as patch:
            patch.setattr(TransactionalProducer, "commit", fail)
            with pytest.raises(OutcomeUnknownError):
                table.put(b"a", b"2")
        with pytest.raises(IllegalLogStateError, match=r"the response was lost.*Start another table"):
            table.put(b"a", b"3")
        wait_result(table.read_to_end())  # no transaction is left open
        assert table.snapshot() == {b"a": b"1"}
    with pytest.raises(IllegalLogStateError, match="is stopped"):
        table.write({b"a": b"4"})


def test_writes_of_several_threads_run_one_at_a_time(bench: Workbench) -> None:
    topic = bench.make_topic(3, cleanup_policy="compact")
    with new_table(bench, topic, transactional_id=topic) as table:
        threads = [
            threading.Thread(target=lambda number=number: [table.put(b"%d-%d" % (number, n), b"v") for n in range(10)])
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
        wait_result(table.read_to_end())
        assert len(table) == 40


def test_only_a_single_writer_writes_transactions(bench: Workbench) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    with (
        new_table(bench, topic) as table,
        pytest.raises(IllegalLogStateError, match=r"write\(\) needs a table with a transactional_id"),
    ):
        table.write({b"a": b"1"})


def test_a_start_that_cannot_read_after_its_claim_fails(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    table = new_table(bench, topic, transactional_id=topic)
    table._start_timeout = 3.0
    first_read = table.log._reads.read_to_end
    reads = iter((first_read, lambda **_: LogFuture(lambda: False, SYSTEM)))
    monkeypatch.setattr(table.log._reads, "read_to_end", lambda **arguments: next(reads)(**arguments))
    with pytest.raises(BrokerTimeoutError, match=r"was not read within 3 s \(start_timeout\)"):
        table.start()
    wait_for_no_thread(topic)


def test_typed_keys_and_values(bench: Workbench) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    changes: list[tuple[str, Any]] = []
    threads: set[str] = set()

    def on_change(job: str, settings: Any) -> None:
        changes.append((job, settings))
        threads.add(threading.current_thread().name)
        if job == "bad":
            raise ValueError(job)

    with KafkaTable(
        *(topic, params(bench.bootstrap_servers)),
        key_serde=Serde.string(),
        value_serde=Serde.json(),
        on_change=on_change,
    ) as table:
        table.put("job-1", {"rate": 100})
        table.put("bad", None)
        table.wait_for(wait_result(table.put("job-2", [1])), TIMEOUT)
        assert dict(table) == table.snapshot() == {"job-1": {"rate": 100}, "bad": None, "job-2": [1]}
        table.wait_for(wait_result(table.delete("job-1")), TIMEOUT)
        assert changes == [("job-1", {"rate": 100}), ("bad", None), ("job-2", [1]), ("job-1", None)]
        assert len(threads) == 1
        assert f"log-{topic}" in next(iter(threads))
        wait_result(table.read_to_end())  # an error of on_change fails nobody
    with new_table(bench, topic, read_only=True) as raw:
        assert raw.snapshot() == {b"bad": b"null", b"job-2": b"[1]"}
        assert raw.log.positions == {tp(topic): 4}
