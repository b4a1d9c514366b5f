"""Sequences of events that could lose, duplicate or block a batch, with a real broker; read back by librdkafka."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.transactional_batches import batch_of, cluster_of, committed
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.client.deadline import Retry
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    InvalidRecordError,
    OptionError,
    TransactionStateError,
)
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.planning.commit_decision import BatchAttempt, SinkState, Ticket
from pyspark_kafka_direct.producer.exactly_once import (
    CommitResult,
    ExactlyOnceOptions,
    check_exactly_once,
    commit_batch,
)
from pyspark_kafka_direct.producer.produce_channel import ProduceChannel
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
    settings: ProducerSettings = field(default_factory=ProducerSettings)

    def batches(self, batch: int) -> list[tuple[str, EncodedBatch]]:
        return [(self.topic, batch_of([b"%d-%d" % (batch, part)], part)) for part in range(2)]

    def plan(self, batch: int, **more: Any) -> BatchAttempt:
        """Plan a batch, with a new ticket."""
        kind, digest = more.get("kind", "stream"), more.get("digest", f"offsets of {batch}")
        return BatchAttempt(kind, self.query, self.run, batch, self.ticket(), digest)

    def ticket(self) -> Ticket:
        store = SinkStateStore(cluster_of(self.servers), self.sink_state_topic)
        return store.append_ticket(self.options.query_transactional_id)

    def commit(
        self, batch: int, batches: Callable[[], Iterable[tuple[str, EncodedBatch]]] | None = None, **more: Any
    ) -> CommitResult:
        return self.commit_attempt(self.plan(batch, **more), batches)

    def commit_attempt(
        self, attempt: BatchAttempt, batches: Callable[[], Iterable[tuple[str, EncodedBatch]]] | None = None
    ) -> CommitResult:
        cluster = cluster_of(self.servers)
        return commit_batch(
            cluster,
            self.settings,
            SinkStateStore(cluster, self.sink_state_topic),
            self.options,
            attempt,
            batches=batches or (lambda: self.batches(attempt.batch)),
        )

    @property
    def options(self) -> ExactlyOnceOptions:
        return ExactlyOnceOptions(self.prefix, self.timeout_ms, self.token)

    def sink_state(self) -> SinkState | None:
        store = SinkStateStore(cluster_of(self.servers), self.sink_state_topic)
        transactional_id = self.options.query_transactional_id
        wait_until(lambda: store.read(transactional_id).undecided is None, "the last transaction has ended")
        found = store.read(transactional_id).value
        return None if found is None else SinkState.from_json(found)

    def restarted(self, run: str) -> BatchCommitter:
        return replace(self, run=run)

    def committed_values(self) -> list[str]:
        """Return the values read with read_committed, sorted."""
        return sorted(value.decode() for value in committed(self.servers, self.topic, 2))


def records_of(*batches: int) -> list[str]:
    """Return the values of these batches, sorted."""
    return sorted(f"{batch}-{part}" for batch in batches for part in range(2))


@pytest.fixture(params=["4.4", "3.9"])
def first(request: pytest.FixtureRequest, topics_on: Callable[[str], MakeTopic]) -> BatchCommitter:
    """Return the first run of a query, with and without transaction.version 2."""
    kafka = request.getfixturevalue("kafka" if request.param == "4.4" else "kafka39")
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
    sink_state = first.sink_state()
    assert sink_state is not None
    assert sink_state == SinkState("stream", "query-1", "run-1", 3, sink_state.ticket, "offsets of 3")


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
    planned = first.plan(0)
    requests: list[set[TopicPartition]] = []
    send = ProduceChannel.request

    def counted(channel: ProduceChannel, batches: Mapping[TopicPartition, bytearray], deadline: Deadline) -> None:
        requests.append(set(batches))
        send(channel, batches, deadline)

    monkeypatch.setattr(ProduceChannel, "request", counted)
    assert first.commit_attempt(planned).newly_committed
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
    assert second.commit(0) == CommitResult(False, {})
    sink_state = first.sink_state()
    assert sink_state is not None
    assert sink_state.run == "run-1"  # a skipped batch does not renew it
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
    transactional_id, timeout_ms = committer.options.query_transactional_id, committer.options.timeout_ms
    attempt = committer.plan(batch)
    with TransactionalProducer(cluster, transactional_id, timeout_ms, ProducerSettings()) as producer:
        producer.init_transactions()
        for topic, each in committer.batches(batch):
            producer.send(topic, each)
        if with_sink_state:
            store = SinkStateStore(cluster, committer.sink_state_topic)
            value = attempt.state().to_json().encode()
            producer.send(committer.sink_state_topic, store.encode(transactional_id, value))
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

    wait_until(is_ended, "nothing is open")
    assert first.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


def overtaken_by(
    committer: BatchCommitter, batch: int, overtake: Callable[[], object]
) -> Callable[[], Iterator[tuple[str, EncodedBatch]]]:
    """Return the batches of a committer, with a call of ``overtake`` in the middle of the first transaction."""
    overtaken: list[int] = []

    def batches() -> Iterator[tuple[str, EncodedBatch]]:
        for number, each in enumerate(as_large_batches(committer.batches(batch))):
            if number == 1 and not overtaken:
                overtaken.append(batch)
                overtake()
            yield each

    return batches


def test_two_committers_of_one_batch_fence_each_other(first: BatchCommitter) -> None:
    """The second one acquires the id while the first one sends."""
    second = first.restarted("run-2")
    planned = first.plan(0)
    overtake = overtaken_by(first, 0, lambda: second.commit(0))
    with pytest.raises(TransactionStateError, match="run run-2, which planned later, has superseded this run"):
        first.commit_attempt(planned, overtake)
    assert first.committed_values() == records_of(0)
    # The fenced one cannot continue, although its Spark may try.
    with pytest.raises(TransactionStateError, match=r"batch 2 of query query-1 .* batch 0"):
        first.commit(2)
    assert second.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


def test_a_writer_that_planned_last_starts_again_when_it_is_fenced(first: BatchCommitter) -> None:
    zombie = first.plan(0)
    second = first.restarted("run-2")
    overtake = overtaken_by(second, 0, lambda: first.commit_attempt(zombie))
    assert not second.commit(0, overtake).newly_committed  # the zombie has sent it
    assert second.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


def test_a_zombie_that_never_wrote_does_not_end_its_successor(first: BatchCommitter) -> None:
    """It hung before InitProducerId in its first batch, and its successor has sent that batch."""
    first.commit(0)
    zombie = first.restarted("run-a")
    planned = zombie.plan(1)
    second = first.restarted("run-b")
    second.commit(1)
    overtake = overtaken_by(second, 2, lambda: rejected(zombie, planned))
    assert second.commit(2, overtake).newly_committed  # it was not even fenced
    assert first.committed_values() == records_of(0, 1, 2)


def rejected(committer: BatchCommitter, planned: BatchAttempt) -> None:
    with pytest.raises(TransactionStateError):
        committer.commit_attempt(planned)


def test_a_query_with_a_copied_prefix_does_not_fence_the_healthy_one(first: BatchCommitter) -> None:
    first.commit(0)
    other = replace(first, query="query-2", run="run-9")
    overtake = overtaken_by(first, 1, lambda: rejected(other, other.plan(0)))
    assert first.commit(1, overtake).newly_committed
    assert first.committed_values() == records_of(0, 1)


def test_a_zombie_is_superseded_permanently(first: BatchCommitter) -> None:
    """It was stalled while another driver replayed its batch and continued."""
    first.commit(0)
    planned = [first.plan(1), first.plan(2)]
    second = first.restarted("run-2")
    second.commit(0)
    second.commit(1)
    for attempt in planned:
        with pytest.raises(TransactionStateError, match="run run-2, which planned later, has superseded this run"):
            first.commit_attempt(attempt)
    assert second.commit(2).newly_committed
    assert first.committed_values() == records_of(0, 1, 2)


def test_another_query_does_not_wait_for_a_transaction_that_was_left_open(
    first: BatchCommitter, topics_on: Callable[[str], MakeTopic]
) -> None:
    """A driver that was killed between its record and EndTxn blocked all queries of the sink state topic."""
    other = replace(first, topic=topics_on(first.servers)(2), prefix=f"{first.prefix}-b", query="query-2")
    other.commit(0)
    leave_transaction_open(replace(first, timeout_ms=600_000), 0, with_sink_state=True)
    started_at = time.monotonic()
    assert other.commit(1).newly_committed
    assert time.monotonic() - started_at < 120
    assert other.committed_values() == records_of(0, 1)


@pytest.mark.parametrize("code", [120, 45, 59, 47, 90, -1])
def test_an_abortable_error_is_resolved_in_another_transaction(
    first: BatchCommitter, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    first.commit(0)
    planned = first.plan(1)
    response = ProduceChannel.response
    failed: list[TopicPartition] = []

    def failing(channel: ProduceChannel, deadline: Deadline) -> Any:
        partitions, throttle = response(channel, deadline)
        partition = next((each for each in partitions if each.topic == first.topic), None)
        if partition is not None and not failed:
            failed.append(partition)
            partitions[partition] = partitions[partition]._replace(error_code=code, base_offset=-1)
        return partitions, throttle

    monkeypatch.setattr(ProduceChannel, "response", failing)
    assert first.commit_attempt(planned).newly_committed
    assert failed
    assert first.commit(2).newly_committed
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
    with pytest.raises(TransactionStateError, match="there is no sink state record of an earlier batch"):
        first.commit(5)
    assert first.committed_values() == []


def test_another_query_with_the_prefix_is_rejected(first: BatchCommitter) -> None:
    first.commit(0)
    with pytest.raises(TransactionStateError, match="needs its own"):
        replace(first, query="query-2", run="run-2").commit(0)
    assert first.commit(1).newly_committed
    assert first.committed_values() == records_of(0, 1)


def test_batch_jobs_are_sent_once_each(first: BatchCommitter) -> None:
    """However many other jobs were sent in between."""

    def submit(job: str, batch: int) -> bool:
        attempt = BatchAttempt.of_job(job, first.ticket())
        return first.commit_attempt(attempt, lambda: first.batches(batch)).newly_committed

    assert submit("monday", 1)
    assert not submit("monday", 1)
    for number in range(60):
        assert submit(f"job {number}/x", 2 + number)
    assert not submit("monday", 1)
    first.commit(0)  # a query may have the same prefix
    assert first.committed_values() == records_of(0, 1, *range(2, 62))


def test_jobs_without_a_name_leave_no_record(first: BatchCommitter, lose_end_txn: Callable[..., list[str]]) -> None:
    attempts = [BatchAttempt.of_job(name, first.ticket(), named=False) for name in ("random-1", "random-2")]
    assert first.commit_attempt(attempts[0], lambda: first.batches(0)).newly_committed
    store = SinkStateStore(cluster_of(first.servers), first.sink_state_topic)
    transactional_id = first.options.transactional_id(attempts[0])
    wait_until(lambda: store.read(transactional_id).newest is not None, "the control record is written")
    assert store.read(transactional_id).value is None  # a tombstone, which compaction deletes
    lost = lose_end_txn(1, received=True)
    assert first.commit_attempt(attempts[1], lambda: first.batches(1)).newly_committed
    assert lost
    assert first.committed_values() == records_of(0, 1)


def test_foreach_batch_is_replayed_once_and_written_once(first: BatchCommitter) -> None:
    first.commit(0, kind="foreach")
    with pytest.raises(TransactionStateError, match="once per transactionalIdPrefix"):
        first.commit(0, kind="foreach")
    assert not first.restarted("run-2").commit(0, kind="foreach").newly_committed
    assert first.restarted("run-2").commit(7, kind="foreach").newly_committed
    assert first.committed_values() == records_of(0, 7)


@pytest.mark.parametrize("change", ["sink_state_topic", "prefix"])
def test_a_foreach_batch_without_a_record_is_rejected(first: BatchCommitter, change: str) -> None:
    """With another state topic or prefix, the replayed batch was written again."""
    for batch in range(3):
        first.commit(batch, kind="foreach")
    changed = replace(first.restarted("run-2"), **{change: f"{getattr(first, change)}-b"})  # type: ignore[arg-type]
    check_exactly_once(
        cluster_of(first.servers),
        SinkStateStore(cluster_of(first.servers), changed.sink_state_topic),
        changed.options,
    )
    with pytest.raises(TransactionStateError, match=r"batch 2 .* there is no sink state record") as caught:
        changed.commit(2, kind="foreach")
    assert first.committed_values() == records_of(0, 1, 2)
    token = str(caught.value).split("resetTransactionState to ")[1].split(";")[0]
    assert replace(changed, token=token).commit(2, kind="foreach").newly_committed


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
