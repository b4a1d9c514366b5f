"""When the producer sends, waits, looks for leaders and gives up; against scripted brokers in a time of their own."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.writing.brokers import Answer, Brokers

from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    ProtocolError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.records import EncodedBatch
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.writing.producer import Identity, Producer, Written

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = TopicPartition("t", 0)
RECORDS = 10
SIZE = 61


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 200))
    monkeypatch.setattr("pyspark_kafka_direct.writing._identity.new_producer_id", lambda *_: ProducerId(next(ids), 0))


def batch(partition: int = 0, size: int = SIZE) -> EncodedBatch:
    data = bytearray(size)
    struct.pack_into(">i", data, 57, RECORDS)
    data[16] = 2
    return EncodedBatch(partition, RECORDS, 100, data)


def stamps(brokers: Brokers, partition: int = 0) -> list[tuple[int, int]]:
    """Producer id and sequence number of each batch that was sent, in order."""
    sent = [each.batches[partition] for each in brokers.sent if partition in each.batches]
    return [(struct.unpack_from(">q", each, 43)[0], struct.unpack_from(">i", each, 53)[0]) for each in sent]


def then(*answers: Answer) -> Callable[[int], Answer]:
    """These, then good ones."""
    return lambda number: answers[number] if number < len(answers) else Answer()


def write(brokers: Brokers, count: int = 1, **settings: Any) -> dict[TopicPartition, Written]:
    producer = Producer(brokers, ProduceSettings(**settings))  # type: ignore[arg-type]
    for _ in range(count):
        producer.send("t", batch())
    written = producer.flush()
    producer.close()
    return written


def test_one_is_acknowledged_before_five_are_under_way() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    start = brokers.world.now
    assert write(brokers, 11) == {NAME: Written(0, 110, 110, 11 * SIZE)}
    assert [each.at - start for each in brokers.sent] == [0, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6]
    assert [sequence for _, sequence in stamps(brokers)] == list(range(0, 110, 10))


def test_without_sequence_numbers_one_at_a_time() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    start = brokers.world.now
    write(brokers, 3, acks=1)
    assert [each.at - start for each in brokers.sent] == [0, 1, 2]
    assert stamps(brokers) == [(0, 0)] * 3  # as they were


def test_a_request_has_one_batch_of_each_partition_up_to_its_size() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    producer = Producer(brokers, ProduceSettings(max_request_bytes=3 * SIZE, max_in_flight=1))  # type: ignore[arg-type]
    for partition in (0, 1, 2, 3, 0, 1):
        producer.send("t", batch(partition))
    producer.send("t", batch(4, 10 * SIZE))
    producer.flush()
    assert [sorted(each.batches) for each in brokers.sent] == [[0], [1, 2, 3], [0], [4], [1]]


def test_small_batches_of_several_partitions_share_a_request() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    for partition in range(3):
        producer.send("t", batch(partition), more=True)
    assert not brokers.sent
    assert len(producer.flush()) == 3
    assert [sorted(each.batches) for each in brokers.sent] == [[0, 1, 2]]


def test_a_large_batch_waits_for_no_company_and_takes_the_others_along() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    producer = Producer(brokers, ProduceSettings(batch_bytes=202))  # type: ignore[arg-type]
    producer.send("t", batch(0), more=True)
    producer.send("t", batch(1)._replace(raw_bytes=101), more=True)
    producer.send("t", batch(2), more=True)
    assert [sorted(each.batches) for each in brokers.sent] == [[0, 1]]
    producer.flush()
    assert [sorted(each.batches) for each in brokers.sent] == [[0, 1], [2]]


def test_small_batches_wait_until_there_is_a_request_of_them() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    producer = Producer(brokers, ProduceSettings(max_request_bytes=3 * SIZE))  # type: ignore[arg-type]
    for partition in range(7):
        producer.send("t", batch(partition), more=True)
    assert [sorted(each.batches) for each in brokers.sent] == [[0, 1, 2], [3, 4, 5]]
    assert producer.unacknowledged_bytes == 7 * SIZE


def test_batches_that_wait_for_company_are_bounded_too() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    producer = Producer(brokers, ProduceSettings(buffer_bytes=3 * SIZE))  # type: ignore[arg-type]
    for _ in range(20):
        producer.send("t", batch(), more=True)
        assert producer.unacknowledged_bytes <= 3 * SIZE


def test_others_can_wait_for_its_answers() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    assert (producer.descriptors(), producer.has_waiting) == ([], False)
    producer.send("t", batch(), more=True)
    assert (producer.descriptors(), producer.has_waiting) == ([], True)
    start = brokers.world.now
    producer.work(0)
    (descriptor,) = producer.descriptors()
    assert not producer.has_waiting
    producer.send("t", batch())
    assert producer.has_waiting  # the first one must be acknowledged before
    brokers.world.wait_readable([descriptor], 60)
    assert brokers.world.now == start + 1
    producer.work(0)
    assert (len(brokers.sent), producer.has_waiting, producer.unacknowledged_bytes) == (2, False, SIZE)
    brokers.world.wait_readable(producer.descriptors(), 60)
    producer.work(0)
    assert (producer.descriptors(), producer.unacknowledged_bytes) == ([], 0)


def test_what_has_no_leader_waits() -> None:
    brokers = Brokers()
    brokers.leader = None
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    assert producer.has_waiting


def test_bytes_that_are_held_are_bounded() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    producer = Producer(brokers, ProduceSettings(buffer_bytes=3 * SIZE))  # type: ignore[arg-type]
    for _ in range(20):
        producer.send("t", batch())
        assert producer.unacknowledged_bytes <= 3 * SIZE
    producer.send("t", batch(0, 10 * SIZE))
    assert producer.unacknowledged_bytes == 10 * SIZE
    producer.flush()
    assert producer.unacknowledged_bytes == 0


def test_an_answer_that_is_there_counts_however_late_the_caller_is() -> None:
    brokers = Brokers()
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    brokers.world.now += 1_000
    producer.send("t", batch())
    assert producer.flush() == {NAME: Written(0, 20, 20, 2 * SIZE)}
    assert len(brokers.sent) == 2


def test_an_answer_that_does_not_come_is_awaited_for_the_request_timeout() -> None:
    brokers = Brokers(then(Answer(), Answer(None)))
    start = brokers.world.now
    write(brokers, 3)
    times = [each.at - start for each in brokers.sent]
    assert times[:3] == pytest.approx([0, 0.01, 0.01])
    assert 30 < times[3] < 31
    assert stamps(brokers) == [(100, 0), (100, 10), (100, 20), (100, 10), (100, 20)]
    assert brokers.lookups == 1


def test_a_broker_that_throttles_is_left_alone_for_that_time() -> None:
    brokers = Brokers(then(Answer(1.0, throttle_ms=40_000), Answer(25.0)))
    start = brokers.world.now
    write(brokers, 2)
    assert [each.at - start for each in brokers.sent] == [0, 41]


def test_a_broker_that_throttles_for_ever_is_not_waited_for_that_long() -> None:
    brokers = Brokers(then(Answer(throttle_ms=2**31 - 1)))
    start = brokers.world.now
    write(brokers, 2, delivery_timeout_ms=60_000)
    assert brokers.sent[1].at - start == pytest.approx(60.01)


def test_pauses_grow_and_sequence_numbers_stay() -> None:
    brokers = Brokers(then(*[Answer(0.0, ErrorCode.NOT_ENOUGH_REPLICAS)] * 6))
    start = brokers.world.now
    write(brokers)
    times = [each.at - start for each in brokers.sent]
    assert [round(after - before, 3) for before, after in itertools.pairwise(times)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.0,
        1.0,
    ]
    assert stamps(brokers) == [(100, 0)] * 7
    assert brokers.lookups == 0


def test_within_a_transaction_pauses_are_brief_where_the_broker_only_needs_a_moment() -> None:
    brokers = Brokers(then(*[Answer(0.0, ErrorCode.CONCURRENT_TRANSACTIONS)] * 3))
    start = brokers.world.now
    producer = Producer(brokers, ProduceSettings(), Identity(5, 1, "id"))  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    assert [round(each.at - start, 3) for each in brokers.sent] == [0, 0.01, 0.03, 0.07]


def test_a_leader_that_moved_is_looked_up() -> None:
    brokers = Brokers(then(Answer(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    brokers.leader = 2
    producer.flush()
    assert [each.node for each in brokers.sent] == [1, 2]
    assert brokers.lookups == 1


def test_a_leader_that_the_broker_tells_is_not_looked_up() -> None:
    told = {"current_leader": {"leader_id": 2, "leader_epoch": 3}}
    brokers = Brokers(then(Answer(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, more=told)))
    write(brokers)
    assert [each.node for each in brokers.sent] == [1, 2]
    assert brokers.lookups == 0


def test_a_broker_that_cannot_be_reached_may_lead_no_longer() -> None:
    brokers = Brokers()
    brokers.refuses = {1}
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    brokers.leader = 2
    producer.flush()
    assert [each.node for each in brokers.sent] == [2]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ({"leader": None}, "LEADER_NOT_AVAILABLE"),
        ({"refuses": {1}}, "refused"),
        ({"script": lambda _: Answer(code=ErrorCode.NOT_ENOUGH_REPLICAS)}, "NOT_ENOUGH_REPLICAS"),
        ({"script": lambda _: Answer(None)}, "no answer"),
    ],
)
def test_after_the_delivery_timeout_the_last_trouble_is_told(what: dict[str, Any], told: str) -> None:
    brokers = Brokers()
    vars(brokers).update(what)
    start = brokers.world.now
    with pytest.raises(BrokerTimeoutError, match=r"within 20 s \(kafka\.delivery\.timeout\.ms\)") as caught:
        write(brokers, 3, delivery_timeout_ms=20_000)
    assert told in caught.value.message
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    assert 20 <= brokers.world.now - start < 41
    assert brokers.pool.producers.take((brokers.settings, "c")) is None


def test_waiting_in_the_queue_is_no_trouble() -> None:
    brokers = Brokers(lambda _: Answer(15.0))
    assert write(brokers, 8, acks=1, delivery_timeout_ms=20_000)[NAME].records == 80


@pytest.mark.parametrize(("missing", "found"), [(4, True), (5, False)])
def test_a_topic_that_was_denied_five_times_is_not_there(missing: int, found: bool) -> None:
    brokers = Brokers()
    brokers.missing = missing
    start = brokers.world.now
    if found:
        write(brokers)
        return
    with pytest.raises(TopicNotFoundError):
        write(brokers)
    assert brokers.world.now - start < 3


def test_a_cluster_that_was_never_reached_is_given_up() -> None:
    brokers = Brokers()
    brokers.nodes = {}

    def unreachable(*_: object, **__: object) -> Any:
        raise BrokerUnreachableError("nobody there")

    brokers.leaders = unreachable  # type: ignore[method-assign]
    with pytest.raises(BrokerUnreachableError, match="nobody there"):
        write(brokers)


def test_a_cluster_that_names_no_brokers_for_a_moment_is_asked_again() -> None:
    brokers = Brokers(then(Answer(), Answer(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    nodes, brokers.nodes, find = brokers.nodes, {}, brokers.leaders

    def empty(*_: object, **__: object) -> Any:
        brokers.leaders = again  # type: ignore[method-assign]
        raise BrokerUnreachableError("it has just started")

    def again(*wanted: Any, **more: Any) -> Any:
        brokers.nodes = nodes
        return find(*wanted, **more)

    brokers.leaders = empty  # type: ignore[method-assign]
    producer.send("t", batch())
    assert producer.flush()[NAME].records == RECORDS


def test_the_producer_id_of_a_cluster_is_kept_for_that_cluster() -> None:
    brokers = Brokers()
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    brokers.cluster_id = "another"
    producer.close()
    assert brokers.pool.producers.take((brokers.settings, "another")) is None
    assert brokers.pool.producers.take((brokers.settings, "c")) is not None


def test_a_child_process_does_not_go_on_with_the_numbers_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(RuntimeError, match="parent"):
        producer.send("t", batch())
    producer.close()
    assert brokers.pool.producers.take((brokers.settings, "c")) is None
    assert len(brokers.sent) == 1


@pytest.mark.parametrize("acks", [0, 1])
def test_records_of_a_transaction_wait_for_all_replicas(acks: Any) -> None:
    with pytest.raises(ValueError, match="acks"):
        Producer(Brokers(), ProduceSettings(acks=acks), Identity(5, 1, "id"))  # type: ignore[arg-type]


def test_another_producer_id_where_the_broker_has_lost_ours() -> None:
    brokers = Brokers(lambda number: Answer(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if 1 <= number <= 3 else 0))
    write(brokers, 5)
    before = [(100, 0), (100, 10), (100, 20), (100, 30), (100, 40)]
    assert stamps(brokers) == [*before, (101, 0), (101, 10), (101, 20)]  # the last of them was written


def test_in_a_transaction_it_is_an_error() -> None:
    brokers = Brokers(then(Answer(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)))
    producer = Producer(brokers, ProduceSettings(), Identity(5, 1, "id"))  # type: ignore[arg-type]
    producer.send("t", batch())
    with pytest.raises(Exception, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        producer.flush()


def test_a_duplicate_is_written_where_nobody_tells() -> None:
    brokers = Brokers(then(Answer(code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)))
    assert write(brokers) == {NAME: Written(-1, -1, 10, SIZE)}


def test_offsets_are_the_first_and_the_last_in_whichever_order_they_are_told() -> None:
    """A batch was written, and its answer was that it took too long; the ones behind it were told sooner."""
    late = Answer(code=ErrorCode.REQUEST_TIMED_OUT)
    brokers = Brokers(then(Answer(), late, *[Answer(more={"base_offset": offset}) for offset in (20, 30, 10)]))
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    assert producer.flush() == {NAME: Written(0, 10, 10, SIZE)}
    for _ in range(3):
        producer.send("t", batch())
    assert producer.flush() == {NAME: Written(10, 40, 30, 3 * SIZE)}
    assert stamps(brokers) == [(100, 0), (100, 10), (100, 20), (100, 30), (100, 10)]


def test_an_offset_that_nobody_told_stays_unknown() -> None:
    brokers = Brokers(then(Answer(), Answer(code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER)))
    assert write(brokers, 3) == {NAME: Written(-1, -1, 30, 3 * SIZE)}


def test_partitions_are_announced_once_in_each_transaction() -> None:
    brokers = Brokers()
    announced: list[list[int]] = []
    producer = Producer(
        brokers,  # type: ignore[arg-type]
        ProduceSettings(),
        Identity(5, 1, "id"),
        before_first=lambda names: announced.append([each.partition for each in names]),
    )
    for partition in (0, 1, 0):
        producer.send("t", batch(partition))
    producer.flush()
    producer.begin()
    producer.send("t", batch(0))
    producer.flush()
    producer.begin(Identity(5, 2, "id"))
    producer.send("t", batch(0))
    producer.flush()
    assert announced == [[0], [1], [0], [0]]
    assert stamps(brokers) == [(5, 0), (5, 10), (5, 20), (5, 0)]


def test_no_login_comes_between_requests_under_way() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    start = brokers.world.now
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    producer.flush()
    (line,) = brokers.world.lines.values()
    line.login_due = True
    for _ in range(3):
        producer.send("t", batch())
    producer.flush()
    assert [each.at - start for each in brokers.sent] == [0, 1, 2, 3]


def test_after_an_error_nothing_more_is_sent() -> None:
    brokers = Brokers(then(Answer(code=ErrorCode.INVALID_REQUIRED_ACKS)))
    producer = Producer(brokers, ProduceSettings())  # type: ignore[arg-type]
    producer.send("t", batch())
    with pytest.raises(ProtocolError, match="INVALID_REQUIRED_ACKS"):
        producer.flush()
    with pytest.raises(ProtocolError, match="INVALID_REQUIRED_ACKS"):
        producer.send("t", batch())
    assert len(brokers.sent) == 1
    producer.close()
    assert brokers.pool.producers.take((brokers.settings, "c")) is None


def test_a_closed_producer_sends_nothing() -> None:
    producer = Producer(Brokers(), ProduceSettings())  # type: ignore[arg-type]
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("t", batch())
