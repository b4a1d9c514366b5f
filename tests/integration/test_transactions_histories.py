"""Sequences of events that could lose, duplicate or block a batch, with a real broker; read back by librdkafka."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.transactional_batches import batch_of, cluster_of, committed
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.client.deadline import Retry
from pyspark_kafka_direct.client.produce_channel import ProduceChannel
from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    InvalidRecordError,
    OptionError,
    ProducerFencedError,
    TransactionStateError,
)
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.planning.commit_decision import BatchAttempt, SinkState
from pyspark_kafka_direct.producer.exactly_once import (
    CommitResult,
    ExactlyOnceOptions,
    check_exactly_once,
    commit_batch,
)
from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore
from pyspark_kafka_direct.producer.transactional_producer import TransactionalProducer
from pyspark_kafka_direct.protocol.messages import END_TXN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.client.connection import Connection
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.records import EncodedBatch


@dataclass(frozen=True)
class BatchCommitter:
    """Commits batches as the driver of one run does."""

    servers: str
    topic: str
    sink_state_topic: str
    prefix: str
    run: str = "run-1"
    query: str = "query-1"
    timeout_ms: int = 60_000
    token: str | None = None

    def batches(self, batch: int) -> list[tuple[str, EncodedBatch]]:
        return [(self.topic, batch_of([b"%d-%d" % (batch, part)], part)) for part in range(2)]

    def commit(
        self, batch: int, batches: Callable[[], Iterable[tuple[str, EncodedBatch]]] | None = None, **more: Any
    ) -> CommitResult:
        kind, digest = more.get("kind", "stream"), more.get("digest", f"offsets of {batch}")
        return self.commit_attempt(
            BatchAttempt(kind, self.query, self.run, batch, digest), batches or (lambda: self.batches(batch))
        )

    def commit_attempt(
        self, attempt: BatchAttempt, batches: Callable[[], Iterable[tuple[str, EncodedBatch]]] | None = None
    ) -> CommitResult:
        cluster = cluster_of(self.servers)
        return commit_batch(
            cluster,
            ProducerSettings(),
            SinkStateStore(cluster, self.sink_state_topic),
            self.options,
            attempt,
            batches or (lambda: self.batches(attempt.batch)),
        )

    @property
    def options(self) -> ExactlyOnceOptions:
        return ExactlyOnceOptions(self.prefix, self.timeout_ms, self.token)

    def sink_state(self) -> SinkState | None:
        found = (
            SinkStateStore(cluster_of(self.servers), self.sink_state_topic)
            .read_newest(self.options.transactional_id)
            .value
        )
        return None if found is None else SinkState.from_json(found)

    def restarted(self, run: str) -> BatchCommitter:
        return replace(self, run=run)

    def committed_values(self) -> list[str]:
        """Return the values read with read_committed, sorted."""
        return sorted(value.decode() for value in committed(self.servers, self.topic, 2))


def records_of(*batches: int) -> list[str]:
    """Return the values of these batches, sorted."""
    return sorted(f"{batch}-{part}" for batch in batches for part in range(2))


@pytest.fixture(params=["4.3", "3.9"])
def first(request: pytest.FixtureRequest, topics_on: Callable[[str], MakeTopic]) -> BatchCommitter:
    """Return the first run of a query, with and without transaction.version 2."""
    kafka = request.getfixturevalue("kafka" if request.param == "4.3" else "kafka39")
    assert isinstance(kafka, EmbeddedKafka)
    return new_query(kafka.bootstrap_servers, topics_on)


def new_query(servers: str, topics_on: Callable[[str], MakeTopic], **more: Any) -> BatchCommitter:
    name = uuid.uuid4().hex[:8]
    topic = more.pop("topic", None) or topics_on(servers)(2)
    committer = BatchCommitter(servers, topic, f"sink-state-{name}", f"prefix-{name}", **more)
    cluster = cluster_of(servers)
    check_exactly_once(cluster, SinkStateStore(cluster, committer.sink_state_topic), committer.options)
    return committer


def test_batches_are_committed_in_order(first: BatchCommitter) -> None:
    for batch in range(4):
        result = first.commit(batch)
        assert result.newly_committed
        assert {tp.partition: written.records for tp, written in result.written.items()} == {0: 1, 1: 1}
    assert first.committed_values() == records_of(0, 1, 2, 3)
    assert first.sink_state() == SinkState("stream", "query-1", 3, ("run-1",), "offsets of 3")


def test_written_offsets_are_reported(first: BatchCommitter) -> None:
    first.commit(0)
    result = first.commit(1)
    # Each batch has a record and a control record per partition.
    assert {tp: written.first_offset for tp, written in result.written.items()} == {
        TopicPartition(first.topic, 0): 2,
        TopicPartition(first.topic, 1): 2,
    }


def test_a_small_batch_and_its_sink_state_share_a_request(
    first: BatchCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each request, a broker verifies the transaction with the coordinator, which takes most of the time."""
    requests: list[set[TopicPartition]] = []
    send = ProduceChannel.request

    def counted(channel: ProduceChannel, batches: Mapping[TopicPartition, bytearray], deadline: Deadline) -> None:
        requests.append(set(batches))
        send(channel, batches, deadline)

    monkeypatch.setattr(ProduceChannel, "request", counted)
    assert first.commit(0).newly_committed
    partitions = {
        TopicPartition(first.topic, 0),
        TopicPartition(first.topic, 1),
        TopicPartition(first.sink_state_topic, 0),
    }
    assert requests == [partitions]


def test_a_batch_replayed_after_a_restart_is_skipped(first: BatchCommitter) -> None:
    """The driver was killed after EndTxn and before Spark's own commit."""
    first.commit(0)
    second = first.restarted("run-2")
    assert second.commit(0) == CommitResult(False, {}, superseded_runs=("run-1",))
    sink_state = first.sink_state()
    assert sink_state is not None
    assert sink_state.runs == ("run-1", "run-2")
    second.commit(1)
    assert first.committed_values() == records_of(0, 1)


def test_a_batch_without_records_has_a_sink_state(first: BatchCommitter) -> None:
    assert first.commit(0, lambda: ()).newly_committed
    assert not first.restarted("run-2").commit(0, lambda: ()).newly_committed
    first.restarted("run-2").commit(1)
    assert first.committed_values() == records_of(1)


def as_large_batches(batches: Iterable[tuple[str, EncodedBatch]]) -> list[tuple[str, EncodedBatch]]:
    """Return the batches marked as large, so that they are sent at once."""
    return [(topic, each._replace(uncompressed_bytes=1 << 20)) for topic, each in batches]


def interrupted_after(batches: Iterable[tuple[str, EncodedBatch]], number: int) -> Iterator[tuple[str, EncodedBatch]]:
    for index, each in enumerate(as_large_batches(batches)):
        if index == number:
            time.sleep(0.5)  # what was sent has arrived
            raise KeyboardInterrupt
        yield each


def leave_transaction_open(committer: BatchCommitter, batch: int, *, with_sink_state: bool) -> None:
    """Leave a transaction open, as a driver does that is killed before EndTxn."""
    cluster = cluster_of(committer.servers)
    options = committer.options
    with TransactionalProducer(cluster, options.transactional_id, options.timeout_ms, ProducerSettings()) as producer:
        producer.init_transactions()
        for topic, each in committer.batches(batch):
            producer.send(topic, each)
        if with_sink_state:
            store = SinkStateStore(cluster, committer.sink_state_topic)
            sink_state = SinkState("stream", committer.query, batch, (committer.run,), f"offsets of {batch}")
            producer.send(
                committer.sink_state_topic, store.encode(options.transactional_id, sink_state.to_json().encode())
            )
        producer.flush()


@pytest.mark.parametrize("with_sink_state", [False, True])
def test_a_driver_killed_before_the_commit_leaves_nothing(first: BatchCommitter, with_sink_state: bool) -> None:
    first.commit(0)
    leave_transaction_open(first, 1, with_sink_state=with_sink_state)
    second = first.restarted("run-2")
    assert second.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


def test_a_failed_attempt_aborts_its_transaction(first: BatchCommitter) -> None:
    first.commit(0)
    with pytest.raises(KeyboardInterrupt):
        first.commit(1, lambda: interrupted_after(first.batches(1), 1))
    # The transaction is aborted without another producer, so the record does not block readers.
    cluster, partition = cluster_of(first.servers), TopicPartition(first.topic, 0)
    requested = {partition: LATEST}

    def is_ended() -> bool:
        return cluster.offsets(requested, isolation_level="read_committed") == {partition: 4}

    wait_until(is_ended, "nothing is open", 20)
    assert first.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


def test_two_committers_of_one_batch_fence_each_other(first: BatchCommitter) -> None:
    """The second one acquires the id while the first one sends."""
    second = first.restarted("run-2")

    def fenced_batches() -> Iterator[tuple[str, EncodedBatch]]:
        for number, each in enumerate(as_large_batches(first.batches(0))):
            if number == 1:
                assert second.commit(0).newly_committed
            yield each

    with pytest.raises(ProducerFencedError):
        first.commit(0, fenced_batches)
    assert first.committed_values() == records_of(0)
    # The fenced one cannot continue, although its Spark may try.
    with pytest.raises(TransactionStateError, match=r"batch 2 of query query-1 .* batch 0"):
        first.commit(2)
    assert second.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


def test_a_zombie_is_superseded_permanently(first: BatchCommitter) -> None:
    """It was stalled while another driver replayed its batch and continued."""
    first.commit(0)
    second = first.restarted("run-2")
    second.commit(0)
    second.commit(1)
    for batch in (1, 2):
        with pytest.raises(TransactionStateError, match="because run run-2 fenced it"):
            first.commit(batch)
    # Its attempt fenced the second run only temporarily: that acquires the id again for its next batch.
    assert second.commit(2).newly_committed
    assert first.committed_values() == records_of(0, 1, 2)


def test_a_copied_checkpoint_is_rejected(first: BatchCommitter) -> None:
    """Two queries continue from batch 1 with different offsets."""
    first.commit(0)
    copy = first.restarted("run-2")
    first.commit(1, digest="these")
    with pytest.raises(TransactionStateError, match=r"batch 1 of query query-1 was already sent \(run run-1\)"):
        copy.commit(1, digest="those")
    assert first.committed_values() == records_of(0, 1)


def test_a_restored_backup_is_rejected_until_it_is_confirmed(first: BatchCommitter) -> None:
    for batch in range(4):
        first.commit(batch)
    restored = first.restarted("run-2")
    with pytest.raises(TransactionStateError, match=r"batch 1 of query .* batch 3") as caught:
        restored.commit(1)
    token = str(caught.value).split("resetTransactionState to ")[1].split(";")[0]
    confirmed = replace(restored, token=token)
    assert confirmed.commit(1).newly_committed
    assert confirmed.commit(2).newly_committed
    # The token has no effect on other batches.
    with pytest.raises(TransactionStateError):
        replace(confirmed, run="run-3").commit(1)
    assert first.committed_values() == sorted([*records_of(0, 1, 2, 3), *records_of(1, 2)])


def test_a_query_that_was_at_least_once_is_rejected(first: BatchCommitter) -> None:
    with pytest.raises(TransactionStateError, match="there is no sink state record of batch 4"):
        first.commit(5)
    assert first.committed_values() == []


def test_another_query_with_the_prefix_is_rejected(first: BatchCommitter) -> None:
    first.commit(0)
    with pytest.raises(TransactionStateError, match="needs its own"):
        replace(first, query="query-2", run="run-2").commit(0)
    assert first.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


def test_batch_jobs_are_sent_once_each(first: BatchCommitter) -> None:
    monday, tuesday = BatchAttempt.of_job("monday"), BatchAttempt.of_job("tuesday")
    assert first.commit_attempt(monday, lambda: first.batches(1)).newly_committed
    assert not first.commit_attempt(monday, lambda: first.batches(1)).newly_committed
    assert first.commit_attempt(tuesday, lambda: first.batches(2)).newly_committed
    assert first.committed_values() == records_of(1, 2)


def test_foreach_batch_is_replayed_once_and_written_once(first: BatchCommitter) -> None:
    first.commit(3, kind="foreach")
    with pytest.raises(TransactionStateError, match="once per transactionalIdPrefix"):
        first.commit(3, kind="foreach")
    assert not first.restarted("run-2").commit(3, kind="foreach").newly_committed
    assert first.restarted("run-2").commit(7, kind="foreach").newly_committed
    assert first.committed_values() == records_of(3, 7)


@pytest.fixture
def lose_end_txn(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Returns a function that loses EndTxn responses or requests."""
    from pyspark_kafka_direct.client.connection import Connection

    def lose(times: int, *, received: bool) -> list[str]:
        call = Connection.call
        lost: list[str] = []

        def losing(connection: Connection, api: Any, values: Any, deadline: Any) -> Any:
            if api.key == END_TXN.key and len(lost) < times:
                if received:
                    call(connection, api, values, deadline)
                lost.append(connection.broker)
                connection.close()
                raise BrokerUnreachableError("The connection broke.", broker=connection.broker)
            return call(connection, api, values, deadline)

        monkeypatch.setattr(Connection, "call", losing)
        return lost

    return lose


@pytest.mark.parametrize("received", [True, False])
def test_a_lost_end_txn_response_is_retried(
    first: BatchCommitter, lose_end_txn: Callable[..., list[str]], received: bool
) -> None:
    lost = lose_end_txn(2, received=received)
    assert first.commit(0).newly_committed
    assert len(lost) == 2
    assert first.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


@pytest.mark.parametrize("received", [True, False])
def test_the_sink_state_resolves_an_unknown_outcome(
    first: BatchCommitter, lose_end_txn: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, received: bool
) -> None:
    """EndTxn fails permanently; the batch is sent again only if it was not committed."""
    lost = lose_end_txn(1, received=received)
    after = Retry.wait_or_raise

    def give_up(retry: Any, error: Any) -> None:
        if lost and "given up" not in lost:
            lost.append("given up")
            raise error
        after(retry, error)

    monkeypatch.setattr(Retry, "wait_or_raise", give_up)
    committer: list[int] = []

    def batches() -> list[tuple[str, EncodedBatch]]:
        committer.append(1)
        return first.batches(0)

    assert first.commit(0, batches).newly_committed
    assert "given up" in lost
    assert len(committer) == (1 if received else 2)
    assert first.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


def test_a_transaction_timeout_error_has_the_numbers(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], caplog: pytest.LogCaptureFixture
) -> None:
    slow = new_query(kafka.bootstrap_servers, topics_on, timeout_ms=2000)

    def batches(pause: float) -> Iterator[tuple[str, EncodedBatch]]:
        for each in as_large_batches(slow.batches(0) + slow.batches(0)):
            yield each
            time.sleep(pause)

    with pytest.raises(BrokerTimeoutError, match=r"open for \d+\.\d s of the 2 s that kafka.transaction.timeout.ms"):
        slow.commit(0, lambda: batches(1.1))
    assert "has been open for 1." in caplog.text
    assert slow.committed_values() == []
    assert slow.commit(0).newly_committed
    assert slow.committed_values() == records_of(0)


def test_a_timeout_above_the_brokers_limit_is_rejected_at_the_start(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]
) -> None:
    with pytest.raises(
        OptionError, match=r"kafka\.transaction\.timeout\.ms is 900001, but the brokers allow at most 900000"
    ):
        new_query(kafka.bootstrap_servers, topics_on, timeout_ms=900_001)


def test_a_record_without_a_key_in_a_compacted_topic_fails_the_batch(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], bench: Workbench
) -> None:
    topic = bench.make_topic(2, cleanup_policy="compact")
    query = new_query(kafka.bootstrap_servers, topics_on, topic=topic)
    with pytest.raises(InvalidRecordError):
        query.commit(0)
    assert query.commit(0, lambda: ()).newly_committed


def test_a_batch_too_large_for_the_topic_is_split(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], bench: Workbench
) -> None:
    topic = bench.make_topic(2, max_message_bytes=2000)
    query = new_query(kafka.bootstrap_servers, topics_on, topic=topic)
    values = [b"%03d" % number * 10 for number in range(300)]
    assert query.commit(0, lambda: [(topic, batch_of(values, 1))]).newly_committed
    assert committed(kafka.bootstrap_servers, topic, 2) == values


def test_retention_does_not_affect_the_sink_state(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], bench: Workbench
) -> None:
    """All records of the target are deleted, but the sink state topic retains the newest record."""
    query = new_query(kafka.bootstrap_servers, topics_on)
    query.commit(0)
    for partition in range(2):
        bench.delete_records(query.topic, -1, partition)
    assert not query.restarted("run-2").commit(0).newly_committed
    assert query.restarted("run-2").commit(1).newly_committed
    assert query.committed_values() == records_of(1)
