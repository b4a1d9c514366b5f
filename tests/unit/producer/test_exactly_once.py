"""The commit step against a fake Kafka: interleaved drivers, kills, unknown outcomes and stale leaders."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest
from tests.unit.producer.fake_transactions import (
    FakeSinkStateStore,
    FakeTransactionalProducer,
    FakeTransactionLog,
    fake_cluster,
    interleaved,
    single_record_batch,
)

from pyspark_kafka_direct.config.client_settings import ProducerSettings
from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    KafkaDirectError,
    OptionError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionStateError,
)
from pyspark_kafka_direct.planning.commit_decision import BatchAttempt, Ticket
from pyspark_kafka_direct.producer import exactly_once
from pyspark_kafka_direct.producer.exactly_once import CommitResult, ExactlyOnceOptions, commit_batch
from pyspark_kafka_direct.protocol.error_codes import ErrorCode, error_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.records import EncodedBatch

BATCHES = 4


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FakeTransactionLog:
    log = FakeTransactionLog()
    monkeypatch.setattr(
        exactly_once,
        "TransactionalProducer",
        lambda cluster, _, timeout_ms, *__: FakeTransactionalProducer(log, cluster.pool.system, timeout_ms),
    )
    return log


TICKETS = itertools.count()


def plan(batch: int, run: str = "run-1", query: str = "query") -> BatchAttempt:
    """Plan a batch: the attempt has a newer ticket than all earlier ones."""
    return BatchAttempt("stream", query, run, batch, Ticket("id", next(TICKETS)), f"offsets of {batch}")


def commit(log: FakeTransactionLog, batch: int, run: str = "run-1") -> CommitResult:
    return commit_planned(log, plan(batch, run))


def commit_planned(log: FakeTransactionLog, attempt: BatchAttempt) -> CommitResult:
    batches = [("t", single_record_batch(b"%d-%d" % (attempt.batch, part))) for part in range(2)]
    return commit_batch(
        fake_cluster(), ProducerSettings(), FakeSinkStateStore(log), ExactlyOnceOptions("p"), attempt, lambda: batches
    )


def records_of(batches: int) -> list[str]:
    return [f"{batch}-{part}" for batch in range(batches) for part in range(2)]


def in_turn(*values: object) -> Callable[[], object]:
    """Return a function that returns these values in turn, then always the last one."""
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_each_batch_is_sent_once(log: FakeTransactionLog) -> None:
    for batch in range(3):
        assert commit(log, batch).newly_committed
    assert not commit(log, 2, "run-2").newly_committed
    assert log.data == records_of(3)


@pytest.mark.parametrize("committed", [True, False])
def test_the_sink_state_resolves_an_unknown_outcome(log: FakeTransactionLog, committed: bool) -> None:
    log.outcome_unknown = in_turn(committed, None)  # type: ignore[assignment]
    assert commit(log, 0).newly_committed
    assert log.data == records_of(1)


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
def test_a_sink_state_record_missing_on_a_stale_leader_is_detected(log: FakeTransactionLog, missing: int) -> None:
    """The stale leader lacks the newest record, or the control record that commits it."""
    commit(log, 0)
    commit(log, 1)
    log.lag = lambda: missing
    with pytest.raises(KafkaDirectError):
        commit(log, 1, "run-2")  # the sink state record of batch 0 alone would allow it
    with pytest.raises(KafkaDirectError):
        commit(log, 0, "run-2")
    log.lag = lambda: 0
    assert not commit(log, 1, "run-2").newly_committed
    assert log.data == records_of(2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_two_drivers_and_their_successors(log: FakeTransactionLog, seed: int) -> None:
    """With a shared checkpoint, each batch in it is in Kafka exactly once and in order."""
    chance = random.Random(seed)
    log.outcome_unknown = lambda: chance.choice([None, None, None, True, False])
    log.lag = lambda: chance.choice([0, 0, 0, 0, 1, 2, 3])
    checkpoint: set[int] = set()
    runs = iter(range(1_000))

    def drive() -> None:
        while len(checkpoint) < BATCHES:
            run = f"run-{next(runs)}"
            try:
                for batch in range(len(checkpoint), BATCHES):
                    commit(log, batch, run)
                    log.step("checkpoint")
                    checkpoint.add(batch)
            except KafkaDirectError:
                log.step("restart")

    drivers = interleaved(log, [drive, drive, drive])
    for _ in range(5_000):
        alive = [driver for driver in drivers if not driver.done]
        if not alive:
            break
        kill = len(alive) > 1 and chance.random() < 0.01
        chance.choice(alive).step_once(kill=kill)
        assert log.data == records_of(len(log.data) // 2)
        assert len(checkpoint) <= len(log.data) // 2
    assert log.data == records_of(BATCHES)


def test_a_zombie_that_never_wrote_does_not_end_its_successor(log: FakeTransactionLog) -> None:
    commit(log, 0, "run-a")
    hanging = plan(1, "run-a")
    commit(log, 1, "run-b")
    with pytest.raises(TransactionStateError, match="run run-b, which planned later, has superseded this run"):
        commit_planned(log, hanging)
    assert commit(log, 2, "run-b").newly_committed
    assert log.data == records_of(3)


def test_a_query_with_a_copied_prefix_is_rejected_before_it_fences(log: FakeTransactionLog) -> None:
    commit(log, 0)
    steps: list[str] = []
    log.step = steps.append
    with pytest.raises(TransactionStateError, match="Another query uses this transactionalIdPrefix"):
        commit_planned(log, plan(1, "run-9", "another query"))
    assert "init_transactions" not in steps


def test_a_rejected_zombie_fences_nobody(log: FakeTransactionLog) -> None:
    hanging = plan(0, "run-a")
    commit(log, 0, "run-b")
    steps: list[str] = []
    log.step = steps.append
    with pytest.raises(TransactionStateError):
        commit_planned(log, hanging)
    assert "init_transactions" not in steps


@pytest.mark.parametrize("fenced", [1, 2, 3])
def test_a_fenced_writer_starts_again_at_most_three_times(log: FakeTransactionLog, fenced: int) -> None:
    fencings = 0

    def step(name: str) -> None:
        nonlocal fencings
        if name == "flush" and fencings < fenced:
            fencings += 1
            log.acquire()
            raise ProducerFencedError("fenced")

    log.step = step
    if fenced == 3:
        with pytest.raises(ProducerFencedError):
            commit(log, 0)
        return
    assert commit(log, 0).newly_committed
    assert log.data == records_of(1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    ],
)
def test_a_batch_is_sent_again_after_an_error_that_a_new_transaction_resolves(
    log: FakeTransactionLog, code: ErrorCode
) -> None:
    failed: list[str] = []

    def step(name: str) -> None:
        if name == "flush" and not failed:
            failed.append(name)
            raise error_for(code, "writing records")

    log.step = step
    assert commit(log, 0).newly_committed
    assert failed
    assert log.data == records_of(1)


def test_other_errors_are_not_retried(log: FakeTransactionLog) -> None:
    steps: list[str] = []

    def step(name: str) -> None:
        steps.append(name)
        if name == "flush":
            raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "writing records")

    log.step = step
    with pytest.raises(BrokerError):
        commit(log, 0)
    assert steps.count("init_transactions") == 1


@pytest.mark.parametrize("later", ["init_transactions", "read"])
def test_an_outcome_that_stays_unknown_is_not_reported_as_a_failure(log: FakeTransactionLog, later: str) -> None:
    """After a failure, users may send the batch again."""
    log.outcome_unknown = lambda: True
    steps: list[str] = []

    def step(name: str) -> None:
        if name == later and "outcome_unknown" in steps:
            raise BrokerUnreachableError("unreachable")
        steps.append(name)

    log.step = step
    with pytest.raises(OutcomeUnknownError, match="unreachable"):
        commit(log, 0)
    assert log.data == records_of(1)


def test_an_error_after_the_outcome_was_resolved_is_a_failure(log: FakeTransactionLog) -> None:
    log.outcome_unknown = in_turn(False, None)  # type: ignore[assignment]
    steps: list[str] = []

    def step(name: str) -> None:
        if name == "send" and "outcome_unknown" in steps:
            raise BrokerUnreachableError("unreachable")
        steps.append(name)

    log.step = step
    with pytest.raises(BrokerUnreachableError):
        commit(log, 0)
    assert log.data == []


def test_fencing_while_the_outcome_is_unknown_is_not_reported_as_a_failure(log: FakeTransactionLog) -> None:
    log.outcome_unknown = lambda: True
    steps: list[str] = []

    def step(name: str) -> None:
        if name == "init_transactions" and "outcome_unknown" in steps:
            raise ProducerFencedError("fenced")
        steps.append(name)

    log.step = step
    with pytest.raises(OutcomeUnknownError, match="fenced"):
        commit(log, 0)


@pytest.mark.parametrize("committed", [False, True])
def test_a_transaction_that_times_out_before_its_end_is_not_taken_for_another_writers(
    log: FakeTransactionLog, committed: bool
) -> None:
    """The response is that of a fenced writer, because the broker increments the epoch when it aborts."""
    cluster = fake_cluster()
    steps: list[str] = []

    def step(name: str) -> None:
        steps.append(name)
        if name == "commit":
            cluster.pool.system.now += 59.9
            if committed:  # the response was lost, and then another writer came
                log.end(1, commit=True)
            log.acquire()

    log.step = step
    options, store = ExactlyOnceOptions("p", timeout_ms=60_000), FakeSinkStateStore(log)
    batches = [("t", single_record_batch(b"0-%d" % part)) for part in range(2)]

    def commit_slowly() -> CommitResult:
        return commit_batch(cluster, ProducerSettings(), store, options, plan(0), lambda: batches)

    if committed:
        assert commit_slowly().newly_committed
    else:
        with pytest.raises(BrokerTimeoutError, match=r"of the 60 s that kafka\.transaction.* Nothing was committed"):
            commit_slowly()
    assert log.data == records_of(1 if committed else 0)
    assert steps.count("commit") == 1


def test_records_of_the_sink_state_topic_are_rejected(log: FakeTransactionLog) -> None:
    """Rows that name it could replace the sink state of any query."""
    batches = [("t", single_record_batch(b"0-0")), ("m", single_record_batch(b"forged"))]
    with pytest.raises(OptionError, match=r"sink state topic.*sinkStateTopic"):
        commit_batch(
            fake_cluster(),
            ProducerSettings(),
            FakeSinkStateStore(log),
            ExactlyOnceOptions("p"),
            plan(0),
            lambda: batches,
        )
    assert log.data == []
    assert not any(value == b"forged" for value, _ in log.log)


def test_a_query_with_a_copied_prefix_is_rejected_while_the_healthy_one_commits(log: FakeTransactionLog) -> None:
    """The newest record of the healthy query has no control record yet."""
    commit(log, 0)
    rejections: list[str] = []

    def step(name: str) -> None:
        if name == "commit":
            log.step = steps.append
            with pytest.raises(TransactionStateError, match="Another query uses this transactionalIdPrefix") as caught:
                commit_planned(log, plan(2, "run-9", "another query"))
            rejections.append(str(caught.value))

    steps: list[str] = []
    log.step = step
    assert commit(log, 1).newly_committed
    assert rejections
    assert "init_transactions" not in steps
    assert log.data == records_of(2)


def test_a_transaction_is_aborted_after_an_error(log: FakeTransactionLog) -> None:
    """Until it ends, readers of committed records wait."""

    def batches() -> Iterator[tuple[str, EncodedBatch]]:
        yield "t", single_record_batch(b"0-0")
        raise ValueError("the second batch cannot be read")

    steps: list[str] = []
    log.step = steps.append
    with pytest.raises(ValueError, match="cannot be read"):
        commit_batch(
            fake_cluster(), ProducerSettings(), FakeSinkStateStore(log), ExactlyOnceOptions("p"), plan(0), batches
        )
    assert steps[-2:] == ["send", "abort"]


def test_a_transaction_that_times_out_while_it_sends_is_not_taken_for_another_writers(log: FakeTransactionLog) -> None:
    cluster = fake_cluster()
    steps: list[str] = []

    def step(name: str) -> None:
        steps.append(name)
        if name == "flush":
            cluster.pool.system.now += 59.9
            log.acquire()
            raise ProducerFencedError("fenced")

    log.step = step
    options, store = ExactlyOnceOptions("p", timeout_ms=60_000), FakeSinkStateStore(log)
    with pytest.raises(BrokerTimeoutError, match=r"of the 60 s that kafka\.transaction.* Nothing was committed"):
        commit_batch(cluster, ProducerSettings(), store, options, plan(0), list)
    assert steps.count("init_transactions") == 1


def test_a_fenced_writer_lets_the_other_one_finish(log: FakeTransactionLog) -> None:
    """Otherwise both would fence each other: it waits longer than its own attempt took."""
    cluster = fake_cluster()
    times: list[float] = []

    def step(name: str) -> None:
        if name == "init_transactions":
            times.append(cluster.pool.system.now)
        if name == "flush" and len(times) == 1:
            cluster.pool.system.now += 10
            log.acquire()
            raise ProducerFencedError("fenced")

    log.step = step
    store, options = FakeSinkStateStore(log), ExactlyOnceOptions("p")
    assert commit_batch(cluster, ProducerSettings(), store, options, plan(0), list).newly_committed
    first, second = times
    assert 20.2 <= second - first <= 10 + 3 * 10.2
