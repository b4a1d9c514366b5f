"""Every history that lost, doubled or blocked a batch, against a real broker; read back by librdkafka.

A deliverer is what the commit step of one run of one query does.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.deliveries import batch_of, cluster_of, committed
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    DeliveryRefusedError,
    FencedError,
    OptionError,
    RecordRefusedError,
)
from pyspark_kafka_direct.offsets import LATEST, TopicPartition
from pyspark_kafka_direct.planning.delivery import Attempt, Marker
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire._retry import Retry
from pyspark_kafka_direct.wire.messages import END_TXN
from pyspark_kafka_direct.wire.produce import ProduceChannel
from pyspark_kafka_direct.writing.exactly_once import Delivered, Delivery, deliver, prepare
from pyspark_kafka_direct.writing.markers import MarkerStore
from pyspark_kafka_direct.writing.session import TransactionalSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tests.conftest import MakeTopic
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.records import EncodedBatch
    from pyspark_kafka_direct.wire.connection import Connection
    from pyspark_kafka_direct.wire.deadline import Deadline


@dataclass(frozen=True)
class Deliverer:
    """The commit steps of one run.

    Attributes:
        servers: The cluster.
        topic: Where to.
        markers: The topic of markers.
        prefix: Prefix of the transactional id.
        run: The run.
        query: The query.
        timeout_ms: Of a transaction.
        token: ``resetDelivery``.
    """

    servers: str
    topic: str
    markers: str
    prefix: str
    run: str = "run-1"
    query: str = "query-1"
    timeout_ms: int = 60_000
    token: str | None = None

    def batches(self, batch: int) -> list[tuple[str, EncodedBatch]]:
        return [(self.topic, batch_of([b"%d-%d" % (batch, part)], part)) for part in range(2)]

    def commit(
        self, batch: int, batches: Callable[[], Iterable[tuple[str, EncodedBatch]]] | None = None, **more: Any
    ) -> Delivered:
        kind, digest = more.get("kind", "stream"), more.get("digest", f"offsets of {batch}")
        return self.deliver(
            Attempt(kind, self.query, self.run, batch, digest), batches or (lambda: self.batches(batch))
        )

    def deliver(
        self, attempt: Attempt, batches: Callable[[], Iterable[tuple[str, EncodedBatch]]] | None = None
    ) -> Delivered:
        cluster = cluster_of(self.servers)
        return deliver(
            cluster,
            ProduceSettings(),
            MarkerStore(cluster, self.markers),
            self.delivery,
            attempt,
            batches or (lambda: self.batches(attempt.batch)),
        )

    @property
    def delivery(self) -> Delivery:
        return Delivery(self.prefix, self.timeout_ms, self.token)

    def marker(self) -> Marker | None:
        found = MarkerStore(cluster_of(self.servers), self.markers).find(self.delivery.transactional_id).value
        return None if found is None else Marker.from_json(found)

    def restarted(self, run: str) -> Deliverer:
        return replace(self, run=run)

    def seen(self) -> list[str]:
        """What a reader of committed records finds."""
        return sorted(value.decode() for value in committed(self.servers, self.topic, 2))


def whole(*batches: int) -> list[str]:
    """Each of the batches once."""
    return sorted(f"{batch}-{part}" for batch in batches for part in range(2))


@pytest.fixture(params=["4.3", "3.9"])
def first(request: pytest.FixtureRequest, topics_on: Callable[[str], MakeTopic]) -> Deliverer:
    """The first run of a query; with transaction.version 2, and without."""
    kafka = request.getfixturevalue("kafka" if request.param == "4.3" else "kafka39")
    assert isinstance(kafka, EmbeddedKafka)
    return new_query(kafka.bootstrap_servers, topics_on)


def new_query(servers: str, topics_on: Callable[[str], MakeTopic], **more: Any) -> Deliverer:
    name = uuid.uuid4().hex[:8]
    topic = more.pop("topic", None) or topics_on(servers)(2)
    made = Deliverer(servers, topic, f"markers-{name}", f"prefix-{name}", **more)
    cluster = cluster_of(servers)
    prepare(cluster, MarkerStore(cluster, made.markers), made.delivery)
    return made


def test_batches_are_delivered_one_after_the_other(first: Deliverer) -> None:
    for batch in range(4):
        delivered = first.commit(batch)
        assert delivered.sent
        assert {tp.partition: written.records for tp, written in delivered.written.items()} == {0: 1, 1: 1}
    assert first.seen() == whole(0, 1, 2, 3)
    assert first.marker() == Marker("stream", "query-1", 3, ("run-1",), "offsets of 3")


def test_offsets_that_were_written_are_told(first: Deliverer) -> None:
    first.commit(0)
    delivered = first.commit(1)
    # A record and the end of its transaction for each batch.
    assert {tp: written.first_offset for tp, written in delivered.written.items()} == {
        TopicPartition(first.topic, 0): 2,
        TopicPartition(first.topic, 1): 2,
    }


def test_a_small_batch_and_its_marker_share_a_request(first: Deliverer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each request a broker asks the coordinator anew, which takes longer than all else."""
    requests: list[set[TopicPartition]] = []
    send = ProduceChannel.request

    def counted(channel: ProduceChannel, batches: Mapping[TopicPartition, bytearray], deadline: Deadline) -> None:
        requests.append(set(batches))
        send(channel, batches, deadline)

    monkeypatch.setattr(ProduceChannel, "request", counted)
    assert first.commit(0).sent
    places = {TopicPartition(first.topic, 0), TopicPartition(first.topic, 1), TopicPartition(first.markers, 0)}
    assert requests == [places]


def test_a_batch_replayed_after_a_restart_is_skipped(first: Deliverer) -> None:
    """The driver died after EndTxn and before Spark's own commit."""
    first.commit(0)
    second = first.restarted("run-2")
    assert second.commit(0) == Delivered(False, {}, superseded=("run-1",))
    marker = first.marker()
    assert marker is not None
    assert marker.runs == ("run-1", "run-2")
    second.commit(1)
    assert first.seen() == whole(0, 1)


def test_a_batch_without_records_has_a_marker_too(first: Deliverer) -> None:
    assert first.commit(0, lambda: ()).sent
    assert not first.restarted("run-2").commit(0, lambda: ()).sent
    first.restarted("run-2").commit(1)
    assert first.seen() == whole(1)


def at_once(batches: Iterable[tuple[str, EncodedBatch]]) -> list[tuple[str, EncodedBatch]]:
    """The same batches, taken for large ones, which wait for no company before they are sent."""
    return [(topic, each._replace(raw_bytes=1 << 20)) for topic, each in batches]


def dying_after(batches: Iterable[tuple[str, EncodedBatch]], number: int) -> Iterator[tuple[str, EncodedBatch]]:
    for index, each in enumerate(at_once(batches)):
        if index == number:
            time.sleep(0.5)  # what was sent has arrived
            raise KeyboardInterrupt
        yield each


def left_open(deliverer: Deliverer, batch: int, *, with_marker: bool) -> None:
    """What a driver leaves behind that is killed before EndTxn."""
    cluster = cluster_of(deliverer.servers)
    delivery = deliverer.delivery
    with TransactionalSession(cluster, delivery.transactional_id, delivery.timeout_ms, ProduceSettings()) as session:
        session.init()
        for topic, each in deliverer.batches(batch):
            session.send(topic, each)
        if with_marker:
            store = MarkerStore(cluster, deliverer.markers)
            marker = Marker("stream", deliverer.query, batch, (deliverer.run,), f"offsets of {batch}")
            session.send(deliverer.markers, store.encode(delivery.transactional_id, marker.to_json().encode()))
        session.flush()


@pytest.mark.parametrize("with_marker", [False, True])
def test_a_driver_killed_before_the_end_leaves_nothing(first: Deliverer, with_marker: bool) -> None:
    first.commit(0)
    left_open(first, 1, with_marker=with_marker)
    second = first.restarted("run-2")
    assert second.commit(1).sent
    assert first.seen() == whole(0, 1)


def test_an_attempt_that_fails_half_way_ends_its_own_transaction(first: Deliverer) -> None:
    first.commit(0)
    with pytest.raises(KeyboardInterrupt):
        first.commit(1, lambda: dying_after(first.batches(1), 1))
    # Nobody had to take over: a reader is not held back by the record that was sent, as its transaction is ended.
    cluster, partition = cluster_of(first.servers), TopicPartition(first.topic, 0)
    wanted = {partition: LATEST}

    def is_ended() -> bool:
        return cluster.offsets(wanted, isolation_level="read_committed") == {partition: 4}

    wait_until(is_ended, "nothing is open", 20)
    assert first.commit(1).sent
    assert first.seen() == whole(0, 1)


def test_two_deliverers_of_one_batch_fence_each_other(first: Deliverer) -> None:
    """The second one takes over while the first one sends."""
    second = first.restarted("run-2")

    def overtaken() -> Iterator[tuple[str, EncodedBatch]]:
        for number, each in enumerate(at_once(first.batches(0))):
            if number == 1:
                assert second.commit(0).sent
            yield each

    with pytest.raises(FencedError):
        first.commit(0, overtaken)
    assert first.seen() == whole(0)
    # And the overtaken one does not come back, though its Spark may try.
    with pytest.raises(DeliveryRefusedError, match=r"batch 2 of query query-1 .* batch 0"):
        first.commit(2)
    assert second.commit(1).sent
    assert first.seen() == whole(0, 1)


def test_a_zombie_is_superseded_for_good(first: Deliverer) -> None:
    """It slept while another driver replayed its batch and went on."""
    first.commit(0)
    second = first.restarted("run-2")
    second.commit(0)
    second.commit(1)
    for batch in (1, 2):
        with pytest.raises(DeliveryRefusedError, match="run run-2 has taken over"):
            first.commit(batch)
    # Its attempt has fenced nobody for good: the one that goes on takes over with its next batch.
    assert second.commit(2).sent
    assert first.seen() == whole(0, 1, 2)


def test_a_copied_checkpoint_is_refused(first: Deliverer) -> None:
    """Two queries go on from batch 1 with different offsets."""
    first.commit(0)
    copy = first.restarted("run-2")
    first.commit(1, digest="these")
    with pytest.raises(DeliveryRefusedError, match=r"batch 1 of query query-1 was sent already \(run run-1\)"):
        copy.commit(1, digest="those")
    assert first.seen() == whole(0, 1)


def test_a_backup_that_was_restored_is_refused_until_it_is_confirmed(first: Deliverer) -> None:
    for batch in range(4):
        first.commit(batch)
    restored = first.restarted("run-2")
    with pytest.raises(DeliveryRefusedError, match=r"batch 1 of query .* batch 3") as caught:
        restored.commit(1)
    token = str(caught.value).split("resetDelivery to ")[1].split(";")[0]
    confirmed = replace(restored, token=token)
    assert confirmed.commit(1).sent
    assert confirmed.commit(2).sent
    # It stays in the code, and is of no use to anybody else.
    with pytest.raises(DeliveryRefusedError):
        replace(confirmed, run="run-3").commit(1)
    assert first.seen() == sorted([*whole(0, 1, 2, 3), *whole(1, 2)])


def test_a_query_that_was_at_least_once_is_refused(first: Deliverer) -> None:
    with pytest.raises(DeliveryRefusedError, match="there is no marker of batch 4"):
        first.commit(5)
    assert first.seen() == []


def test_another_query_under_the_prefix_is_refused(first: Deliverer) -> None:
    first.commit(0)
    with pytest.raises(DeliveryRefusedError, match="needs one of its own"):
        replace(first, query="query-2", run="run-2").commit(0)
    assert first.commit(1).sent
    assert first.seen() == whole(0, 1)


def test_batch_jobs_are_sent_once_each(first: Deliverer) -> None:
    monday, tuesday = Attempt.of_job("monday"), Attempt.of_job("tuesday")
    assert first.deliver(monday, lambda: first.batches(1)).sent
    assert not first.deliver(monday, lambda: first.batches(1)).sent
    assert first.deliver(tuesday, lambda: first.batches(2)).sent
    assert first.seen() == whole(1, 2)


def test_foreach_batch_is_replayed_once_and_written_once(first: Deliverer) -> None:
    first.commit(3, kind="foreach")
    with pytest.raises(DeliveryRefusedError, match="once under one transactionalIdPrefix"):
        first.commit(3, kind="foreach")
    assert not first.restarted("run-2").commit(3, kind="foreach").sent
    assert first.restarted("run-2").commit(7, kind="foreach").sent
    assert first.seen() == whole(3, 7)


@pytest.fixture
def lose_end_txn(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Makes EndTxn's answers get lost, after or before the broker has heard of it."""
    from pyspark_kafka_direct.wire.connection import Connection

    def lose(times: int, *, heard: bool) -> list[str]:
        call = Connection.call
        lost: list[str] = []

        def losing(connection: Connection, api: Any, values: Any, deadline: Any) -> Any:
            if api.key == END_TXN.key and len(lost) < times:
                if heard:
                    call(connection, api, values, deadline)
                lost.append(connection.broker)
                connection.close()
                raise BrokerUnreachableError("The connection broke.", broker=connection.broker)
            return call(connection, api, values, deadline)

        monkeypatch.setattr(Connection, "call", losing)
        return lost

    return lose


@pytest.mark.parametrize("heard", [True, False])
def test_an_answer_of_the_end_that_is_lost_is_asked_for_again(
    first: Deliverer, lose_end_txn: Callable[..., list[str]], heard: bool
) -> None:
    lost = lose_end_txn(2, heard=heard)
    assert first.commit(0).sent
    assert len(lost) == 2
    assert first.commit(1).sent
    assert first.seen() == whole(0, 1)


@pytest.mark.parametrize("heard", [True, False])
def test_where_the_end_stays_unclear_the_marker_decides(
    first: Deliverer, lose_end_txn: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """Until the time of the question is up; what was not committed is sent again, what was is not."""
    lost = lose_end_txn(1, heard=heard)
    after = Retry.after

    def give_up(retry: Any, error: Any) -> None:
        if lost and "given up" not in lost:
            lost.append("given up")
            raise error
        after(retry, error)

    monkeypatch.setattr(Retry, "after", give_up)
    made: list[int] = []

    def batches() -> list[tuple[str, EncodedBatch]]:
        made.append(1)
        return first.batches(0)

    assert first.commit(0, batches).sent
    assert "given up" in lost
    assert len(made) == (1 if heard else 2)
    assert first.commit(1).sent
    assert first.seen() == whole(0, 1)


def test_a_transaction_that_takes_too_long_is_an_error_with_the_numbers(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], caplog: pytest.LogCaptureFixture
) -> None:
    slow = new_query(kafka.bootstrap_servers, topics_on, timeout_ms=2000)

    def batches(pause: float) -> Iterator[tuple[str, EncodedBatch]]:
        for each in at_once(slow.batches(0) + slow.batches(0)):
            yield each
            time.sleep(pause)

    with pytest.raises(BrokerTimeoutError, match=r"open for \d+\.\d s of the 2 s that kafka.transaction.timeout.ms"):
        slow.commit(0, lambda: batches(1.1))
    assert "has been open for 1." in caplog.text
    assert slow.seen() == []
    assert slow.commit(0).sent
    assert slow.seen() == whole(0)


def test_a_time_out_above_the_brokers_is_refused_at_the_start(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic]
) -> None:
    with pytest.raises(OptionError, match=r"kafka\.transaction\.timeout\.ms is 900001, and the brokers allow 900000"):
        new_query(kafka.bootstrap_servers, topics_on, timeout_ms=900_001)


def test_a_record_without_a_key_for_a_compacted_topic_ends_the_batch(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], bench: Workbench
) -> None:
    topic = bench.make_topic(2, cleanup_policy="compact")
    query = new_query(kafka.bootstrap_servers, topics_on, topic=topic)
    with pytest.raises(RecordRefusedError):
        query.commit(0)
    assert query.commit(0, lambda: ()).sent


def test_a_batch_above_what_the_topic_takes_is_split(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], bench: Workbench
) -> None:
    topic = bench.make_topic(2, max_message_bytes=2000)
    query = new_query(kafka.bootstrap_servers, topics_on, topic=topic)
    values = [b"%03d" % number * 10 for number in range(300)]
    assert query.commit(0, lambda: [(topic, batch_of(values, 1))]).sent
    assert committed(kafka.bootstrap_servers, topic, 2) == values


def test_retention_takes_nothing_that_matters(
    kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], bench: Workbench
) -> None:
    """All records gone, as by a retention of a minute; and the marker's topic keeps its newest."""
    query = new_query(kafka.bootstrap_servers, topics_on)
    query.commit(0)
    for partition in range(2):
        bench.delete_records(query.topic, -1, partition)
    assert not query.restarted("run-2").commit(0).sent
    assert query.restarted("run-2").commit(1).sent
    assert query.seen() == whole(1)
