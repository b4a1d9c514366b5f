"""The commit step on a simulated cluster: several drivers, kills, unknown outcomes and stale leaders."""

from __future__ import annotations

import itertools
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.cluster.transactions import TransactionCoordinator
from tests.simulation.oracle import READ_COMMITTED, READ_UNCOMMITTED
from tests.simulation.unit_cluster import UnitCluster
from tests.unit.producer.encoded_batches import encoded

from pyspark_kafka_direct.errors import (
    BrokerError,
    BrokerTimeoutError,
    KafkaDirectError,
    OptionError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionStateError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.settings import ProducerSettings
from pyspark_kafka_direct.planning.commit_decision import BatchAttempt, Ticket
from pyspark_kafka_direct.producer.exactly_once import CommitResult, ExactlyOnceOptions, commit_batch
from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore
from pyspark_kafka_direct.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.simulation.process import SimulatedProcess
    from tests.simulation.wire import ReceivedRequest

    from pyspark_kafka_direct.records import EncodedBatch

BATCHES = 4
STATES = TopicPartition("m", 0)
UNKNOWN, DENIED = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.TOPIC_AUTHORIZATION_FAILED
TICKETS = itertools.count()


def plan(batch: int, run: str = "run-1", query: str = "query") -> BatchAttempt:
    """Plan a batch: the attempt has a newer ticket than all earlier ones."""
    return BatchAttempt("stream", query, run, batch, Ticket("id", next(TICKETS)), f"offsets of {batch}")


class SinkCluster(UnitCluster):
    """The topics ``t``, to which batches of two records are written, and ``m`` with the sink state."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"topics": {"t": 1, "m": 1}, **settings})
        self.lag: Callable[[], int] = lambda: 0  # how many records the leader lacks when it is read from

    def commit(
        self,
        batch: int,
        run: str = "run-1",
        *,
        attempt: BatchAttempt | None = None,
        batches: Callable[[], Iterable[tuple[str, EncodedBatch]]] | None = None,
        process: SimulatedProcess | None = None,
        timeout_ms: int = 300_000,
    ) -> CommitResult:
        client = self.environment.client(process or self.process)
        options = ExactlyOnceOptions("p", timeout_ms)
        attempt = attempt or plan(batch, run)
        records = batches or (lambda: [("t", encoded(0, 2 * batch + part, 1)) for part in range(2)])
        return commit_batch(client, ProducerSettings(), SinkStateStore(client, "m"), options, attempt, batches=records)

    @property
    def data(self) -> list[int]:
        """The committed records."""
        self.sleep(1)  # control records are written after the response to EndTxn
        return [int(value or b"") for _, value in self.environment.oracle.records(("t", 0), 0, 1 << 60, READ_COMMITTED)]

    def fence(self) -> None:
        """Let another writer acquire the transactional id."""
        TransactionCoordinator.of(self.cluster).init_producer_id("p.sink", 60_000)

    def _on_request(self, request: ReceivedRequest) -> None:
        log = self.log(STATES)
        log.high_watermark = max(0, log.end - (self.lag() if request.api in ("Fetch", "ListOffsets") else 0))
        super()._on_request(request)


@pytest.fixture
def cluster() -> Iterator[SinkCluster]:
    with SinkCluster() as cluster:
        yield cluster


def records_of(batches: int) -> list[int]:
    return list(range(2 * batches))


def test_each_batch_is_sent_once(cluster: SinkCluster) -> None:
    for batch in range(3):
        assert cluster.commit(batch).newly_committed
    assert not cluster.commit(2, "run-2").newly_committed
    assert cluster.data == records_of(3)


@pytest.mark.parametrize("committed", [True, False])
def test_the_sink_state_resolves_an_unknown_outcome(cluster: SinkCluster, committed: bool) -> None:
    cluster.fault("EndTxn", "error", code=UNKNOWN, is_handled=committed)
    assert cluster.commit(0).newly_committed
    assert cluster.data == records_of(1)
    assert cluster.sent("EndTxn") == (1 if committed else 2)


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
def test_a_sink_state_record_missing_on_a_stale_leader_is_detected(cluster: SinkCluster, missing: int) -> None:
    """The stale leader lacks the newest record, or the control record that commits it."""
    for batch in range(2):
        cluster.commit(batch)
    assert cluster.data == records_of(2)
    cluster.lag = lambda: missing
    with pytest.raises(KafkaDirectError):
        cluster.commit(1, "run-2")  # the sink state record of batch 0 alone would allow it
    with pytest.raises(KafkaDirectError):
        cluster.commit(0, "run-2")
    cluster.lag = lambda: 0
    cluster.sleep(1)
    assert not cluster.commit(1, "run-2").newly_committed
    assert cluster.data == records_of(2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_drivers_and_their_successors(cluster: SinkCluster, seed: int) -> None:
    """With a shared checkpoint, each batch in it is in Kafka exactly once and in order."""
    chance = random.Random(seed)
    cluster.lag = lambda: chance.choice([0, 0, 0, 0, 1, 2, 3])
    for number in range(100):
        if chance.random() < 0.4:
            cluster.fault("EndTxn", "error", number=number, code=UNKNOWN, is_handled=chance.random() < 0.5)
        if chance.random() < 0.2:
            cluster.fault("Produce", "pause_before_request", number=number, seconds=chance.random())
    checkpoint: set[int] = set()
    runs = itertools.count()

    def drive(process: SimulatedProcess) -> None:
        while len(checkpoint) < BATCHES:
            run = f"run-{next(runs)}"
            try:
                for batch in range(len(checkpoint), BATCHES):
                    cluster.commit(batch, run, process=process)
                    process.sleep(chance.random() * 0.05)
                    checkpoint.add(batch)
            except KafkaDirectError:
                process.sleep(chance.random())

    processes = [cluster.environment.process(f"driver-{number}") for number in range(3)]
    for process in processes:
        process.spawn("driver", partial(drive, process))
    for process in processes[:2]:
        cluster.after(chance.random() * 4, process.kill)
    for _ in range(600):
        assert len(checkpoint) <= len(cluster.data) // 2
        if len(checkpoint) == BATCHES:
            break
    cluster.sleep(60)
    assert cluster.data == records_of(BATCHES)
    for process in processes:
        process.kill()


def test_a_zombie_that_never_wrote_does_not_end_its_successor(cluster: SinkCluster) -> None:
    cluster.commit(0, "run-a")
    hanging = plan(1, "run-a")
    cluster.commit(1, "run-b")
    with pytest.raises(TransactionStateError, match="run run-b, which planned later, has superseded this run"):
        cluster.commit(1, attempt=hanging)
    assert cluster.commit(2, "run-b").newly_committed
    assert cluster.data == records_of(3)


def test_a_query_with_a_copied_prefix_is_rejected_before_it_fences(cluster: SinkCluster) -> None:
    cluster.commit(0)
    assert cluster.data == records_of(1)
    with pytest.raises(TransactionStateError, match="Another query uses this transactionalIdPrefix"):
        cluster.commit(1, attempt=plan(1, "run-9", "another query"))
    assert cluster.sent("InitProducerId") == 1


def test_a_rejected_zombie_fences_nobody(cluster: SinkCluster) -> None:
    hanging = plan(0, "run-a")
    cluster.commit(0, "run-b")
    assert cluster.data == records_of(1)
    with pytest.raises(TransactionStateError):
        cluster.commit(0, attempt=hanging)
    assert cluster.sent("InitProducerId") == 1


@pytest.mark.parametrize("fenced", [1, 2, 3])
def test_a_fenced_writer_starts_again_at_most_three_times(cluster: SinkCluster, fenced: int) -> None:
    cluster.before("Produce", *[cluster.fence] * fenced)
    if fenced == 3:
        with pytest.raises(ProducerFencedError):
            cluster.commit(0)
        return
    assert cluster.commit(0).newly_committed
    assert cluster.data == records_of(1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    ],
)
def test_a_batch_is_sent_again_after_an_error_that_a_new_transaction_resolves(
    cluster: SinkCluster, code: ErrorCode
) -> None:
    cluster.fault("Produce", "error", code=code)
    assert cluster.commit(0).newly_committed
    assert cluster.sent("InitProducerId") >= 2
    assert cluster.data == records_of(1)


def test_other_errors_are_not_retried(cluster: SinkCluster) -> None:
    cluster.fault("Produce", "error", code=DENIED)
    with pytest.raises(BrokerError):
        cluster.commit(0)
    assert cluster.sent("InitProducerId") == 1


@pytest.mark.parametrize(
    ("later", "code"),
    [
        ("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("InitProducerId", ErrorCode.PRODUCER_FENCED),
        ("ListOffsets", DENIED),
    ],
)
def test_an_outcome_that_stays_unknown_is_not_reported_as_a_failure(
    cluster: SinkCluster, later: str, code: ErrorCode
) -> None:
    """After a failure, users may send the batch again."""
    cluster.fault("EndTxn", "error", code=UNKNOWN, is_handled=True)
    cluster.before("EndTxn", lambda: cluster.fault(later, "error", code=code, repeats=9))
    with pytest.raises(OutcomeUnknownError, match=code.name):
        cluster.commit(0)
    assert cluster.data == records_of(1)


def test_an_error_after_the_outcome_was_resolved_is_a_failure(cluster: SinkCluster) -> None:
    cluster.fault("EndTxn", "error", code=UNKNOWN)
    cluster.before("EndTxn", lambda: cluster.fault("Produce", "error", code=DENIED))
    with pytest.raises(BrokerError, match=DENIED.name) as caught:
        cluster.commit(0)
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert cluster.data == []


@pytest.mark.parametrize("committed", [False, True])
def test_a_transaction_that_times_out_before_its_end_is_not_taken_for_another_writers(committed: bool) -> None:
    """The response is that of a fenced writer, because the broker increments the epoch when it aborts."""
    with SinkCluster(transaction_version=0) as cluster:
        if committed:  # the response was lost, and then another writer came
            cluster.fault("EndTxn", "lose_response")
            cluster.before("EndTxn", lambda: None)
        cluster.fault("EndTxn", "pause_before_request", number=int(committed), seconds=1.85)
        cluster.before("EndTxn", cluster.fence)
        if committed:
            assert cluster.commit(0, timeout_ms=2_000).newly_committed
        else:
            with pytest.raises(BrokerTimeoutError, match=r"of the 2 s that kafka\.transaction.* Nothing was committed"):
                cluster.commit(0, timeout_ms=2_000)
        assert cluster.data == records_of(1 if committed else 0)
        assert len({request.producer_epoch for request in cluster.received("EndTxn")}) == 1


def test_records_of_the_sink_state_topic_are_rejected(cluster: SinkCluster) -> None:
    """Rows that name it could replace the sink state of any query."""
    with pytest.raises(OptionError, match=r"sink state topic.*sinkStateTopic"):
        cluster.commit(0, batches=lambda: [("t", encoded(0, 0, 1)), ("m", encoded(0, 1, 1))])
    assert cluster.data == []
    assert cluster.environment.oracle.records(STATES, 0, 1 << 60, READ_UNCOMMITTED) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [("another query", "Another query uses this transactionalIdPrefix"), ("query", "has superseded this run")],
    ids=["copied-prefix", "zombie"],
)
def test_others_are_rejected_before_they_fence_a_query_that_commits(
    cluster: SinkCluster, query: str, message: str
) -> None:
    """The newest record of the query that commits has no control record yet."""
    zombie = plan(1, "run-0")
    cluster.commit(0)
    assert cluster.data == records_of(1)
    cluster.fault("EndTxn", "pause_before_request", seconds=1)
    results: list[CommitResult] = []
    cluster.process.spawn("query", lambda: results.append(cluster.commit(1)))
    cluster.sleep(0.5)
    with pytest.raises(TransactionStateError, match=message):
        cluster.commit(1, attempt=zombie if query == "query" else plan(1, "run-9", query))
    assert (results, cluster.sent("InitProducerId")) == ([], 2)
    cluster.sleep(5)
    assert results[0].newly_committed
    assert cluster.data == records_of(2)


@pytest.mark.parametrize("is_denied", [False, True])
def test_a_transaction_is_aborted_after_an_error(cluster: SinkCluster, is_denied: bool) -> None:
    """Until it ends, readers of committed records wait. An error of the abort does not replace the first one."""
    if is_denied:
        cluster.fault("EndTxn", "error", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def batches() -> Iterator[tuple[str, EncodedBatch]]:
        yield "t", encoded(0, 0, 1)
        raise ValueError("the second batch cannot be read")

    with pytest.raises(ValueError, match="cannot be read"):
        cluster.commit(0, batches=batches)
    assert [request.committed for request in cluster.received("EndTxn")] == [False]


def test_a_transaction_that_times_out_while_it_sends_is_not_taken_for_another_writers(cluster: SinkCluster) -> None:
    cluster.fault("Produce", "pause_before_request", seconds=1.85)
    cluster.before("Produce", cluster.fence)
    with pytest.raises(BrokerTimeoutError, match=r"of the 2 s that kafka\.transaction.* Nothing was committed"):
        cluster.commit(0, timeout_ms=2_000)
    assert cluster.sent("InitProducerId") == 1


def test_a_slow_transaction_is_warned_of_once(cluster: SinkCluster, caplog: pytest.LogCaptureFixture) -> None:
    sizes: list[int] = []

    def batches() -> Iterator[tuple[str, EncodedBatch]]:
        for number in range(9):
            batch = encoded(0, number, 1 + number)
            sizes.append(len(batch.data))
            yield "t", batch
            cluster.sleep(10)

    assert cluster.commit(0, batches=batches, timeout_ms=100_000).newly_committed
    (message,) = [each for each in caplog.messages if "has been open for" in each]
    assert "open for 50.0 s of the 100 s" in message.replace("50.1", "50.0")
    assert f"has sent {sum(sizes[:5])} bytes" in message


def test_a_fenced_writer_lets_the_other_one_finish(cluster: SinkCluster) -> None:
    """Otherwise both would fence each other: it waits longer than its own attempt took."""
    cluster.fault("Produce", "pause_before_request", seconds=10)
    cluster.before("Produce", cluster.fence)
    assert cluster.commit(0).newly_committed
    first, second = (request.at for request in cluster.arrivals("InitProducerId"))
    assert 20.2 <= second - first <= 10 + 3 * 10.3


def test_the_report_and_the_transaction_have_all_topics() -> None:
    with SinkCluster(topics={"t": 2, "u": 1, "m": 1}) as cluster:
        batches = [("t", encoded(0, 0, 1)), ("u", encoded(0, 1, 1)), ("t", encoded(1, 2, 2))]
        result = cluster.commit(0, batches=lambda: batches)
        written = {tp: (each.first_offset, each.next_offset, each.records) for tp, each in result.written.items()}
        assert written == {
            TopicPartition("t", 0): (0, 1, 1),
            TopicPartition("t", 1): (0, 2, 2),
            TopicPartition("u", 0): (0, 1, 1),
        }
        cluster.sleep(1)
        cluster.fault("EndTxn", "error", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, repeats=9)
        with pytest.raises(KafkaDirectError):
            cluster.commit(1, batches=lambda: batches)
        cluster.sleep(1)
        oracle = cluster.environment.oracle
        for tp in written:
            assert len(oracle.records(tp, 0, 1 << 60, READ_COMMITTED)) == written[tp][2], f"{tp} is outside"
