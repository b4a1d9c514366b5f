"""What those are told who sent single record batches, and how the producer goes on without one that failed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.writing.brokers import Answer, Brokers
from tests.unit.writing.test_producer import batch, stamps, then
from tests.unit.writing.test_producer_faults import PARTITIONS, Faulty, FaultyLine, encoded

from pyspark_kafka_direct.errors import (
    AuthorizationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    KafkaDirectError,
    ProtocolError,
    RecordRefusedError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.writing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.writing.brokers import Line

    from pyspark_kafka_direct.wire.deadline import Deadline
    from pyspark_kafka_direct.wire.metadata import Node

NOT_WRITTEN = " The records were not written."
IN_DOUBT = " The records may have been written."
TEN = (0, 10)


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 10_000))
    monkeypatch.setattr("pyspark_kafka_direct.writing._identity.new_producer_id", lambda *_: ProducerId(next(ids), 0))


class Told:
    """A recipient."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, int, int]] = []
        self.errors: list[tuple[int, int, BaseException]] = []

    def acknowledged(self, first: int, records: int, offset: int, append_time: int) -> None:
        self.written.append((first, records, offset, append_time))

    def failed(self, first: int, records: int, error: BaseException) -> None:
        self.errors.append((first, records, error))

    @property
    def error(self) -> KafkaDirectError:
        assert not self.written
        ((*place, error),) = self.errors
        assert tuple(place) == TEN
        assert isinstance(error, KafkaDirectError)
        return error


def producing(brokers: Brokers, **settings: Any) -> Producer:
    return Producer(brokers, ProduceSettings(**settings))  # type: ignore[arg-type]


def send(producer: Producer, *partitions: int) -> list[Told]:
    told = [Told() for _ in partitions]
    for partition, each in zip(partitions, told, strict=True):
        producer.send("t", batch(partition), each)
    return told


def test_offsets_and_times_are_told_batch_by_batch() -> None:
    brokers = Brokers(then(Answer(), Answer(more={"log_append_time_ms": 7})))
    producer = producing(brokers)
    told = send(producer, 0, 0, 0)
    producer.flush()
    assert [each.written for each in told] == [[(0, 10, 0, -1)], [(0, 10, 10, 7)], [(0, 10, 20, -1)]]
    assert not any(each.errors for each in told)


def test_without_an_answer_there_is_no_offset() -> None:
    producer = producing(Brokers(), acks=0, idempotent=False)
    (told,) = send(producer, 0)
    assert told.written == [(0, 10, -1, -1)]


def test_the_halves_of_a_batch_are_told_apart() -> None:
    brokers = Faulty(1)
    brokers.chance = _Good()
    told = Told()
    producer = producing(brokers)
    producer.send("t", encoded(0, 0, 25), told)
    producer.flush()
    # 25 records are too many at once, 13 and 12 are too, and 12 is not.
    assert sorted(told.written) == [(0, 7, 0, -1), (7, 6, 7, -1), (13, 12, 13, -1)]
    producer.send("t", encoded(0, 25, 25), told)
    producer.flush()
    assert sum(records for _, records, *_ in told.written) == 50, "also where it is known to be too large"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_RECORD, RecordRefusedError),
        (ErrorCode.INVALID_TIMESTAMP, RecordRefusedError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    ],
)
def test_a_batch_that_is_refused_fails_alone(code: int, kind: type[KafkaDirectError]) -> None:
    brokers = Brokers(then(Answer(), Answer(code=code)))
    producer = producing(brokers)
    before, refused, after = send(producer, 0, 0, 0)
    producer.flush()
    (later,) = send(producer, 0)
    producer.flush()
    assert type(refused.error) is kind
    assert refused.error.message.endswith(NOT_WRITTEN)
    assert [each.written[0][2] for each in (before, after, later)] == [0, 10, 20]
    assert producer.unacknowledged_bytes == 0


def test_what_is_behind_one_that_fails_gets_another_producer_id_as_its_number_is_missing() -> None:
    """Nothing else was under way, so nothing can be written twice."""
    brokers = Brokers(then(Answer(code=ErrorCode.INVALID_RECORD)))
    producer = producing(brokers)
    start = brokers.world.now
    refused, after = send(producer, 0, 0)
    producer.flush()
    assert (refused.error, after.written) == (refused.error, [(0, 10, 0, -1)])
    assert stamps(brokers) == [(100, 0), (101, 0)]
    assert brokers.world.now - start < 0.05, "and without a pause"


def test_what_is_under_way_behind_it_keeps_its_number_until_the_broker_misses_one() -> None:
    """It may have been written: with another number it might be there twice."""
    refused, missing = Answer(code=ErrorCode.INVALID_RECORD), Answer(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    brokers = Brokers(then(Answer(), refused, Answer(None), missing))
    producer = producing(brokers)
    told = send(producer, 0, 0, 0)
    producer.flush()
    assert (len(told[0].written), len(told[1].errors), len(told[2].written)) == (1, 1, 1)
    assert stamps(brokers) == [(100, 0), (100, 10), (100, 20), (100, 20), (101, 0)]


def test_a_verdict_on_a_batch_counts_when_those_before_it_are_written() -> None:
    late = Answer(code=ErrorCode.REQUEST_TIMED_OUT)
    refused = Answer(code=ErrorCode.INVALID_RECORD)
    brokers = Brokers(then(Answer(), late, refused, Answer(more={"base_offset": 10}), refused))
    producer = producing(brokers)
    told = send(producer, 0, 0, 0)
    producer.flush()
    assert [len(each.written) for each in told] == [1, 1, 0]
    assert type(told[2].error) is RecordRefusedError
    assert [sequence for _, sequence in stamps(brokers)] == [0, 10, 20, 10, 20]


def test_one_record_that_is_too_large_for_the_topic() -> None:
    class Small(Faulty):
        def connect(self, node: Node, deadline: Deadline) -> Line:
            line = _SmallLine(self, node.id)
            self.world.lines[line.fileno()] = line
            return line

    class _SmallLine(FaultyLine):
        def _append(self, number: int, data: bytes) -> dict[str, Any]:
            if len(data) > 70:
                return {"error_code": ErrorCode.MESSAGE_TOO_LARGE, "base_offset": -1}
            return super()._append(number, data)

    brokers = Small(1)
    brokers.chance = _Good()
    producer = producing(brokers)
    large, small = Told(), Told()
    producer.send("t", encoded(0, 10**9, 1), large)
    producer.send("t", encoded(0, 1, 1), small)
    producer.flush()
    ((_, _, error),) = large.errors
    assert type(error) is RecordTooLargeError
    assert small.written == [(0, 1, 0, -1)]
    assert brokers.logs[0].values == [1]


def test_a_topic_that_is_not_there_fails_what_is_for_it_only() -> None:
    brokers = Brokers()
    find = brokers.leaders

    def leaders(partitions: Any, *more: Any, **named: Any) -> Any:
        if any(each.partition == 1 for each in partitions):
            raise TopicNotFoundError("denied", topic="t", partition=1)
        return find(partitions, *more, **named)

    brokers.leaders = leaders  # type: ignore[method-assign]
    producer = producing(brokers)
    one, other, again = send(producer, 1, 0, 1)
    producer.flush()
    assert type(one.error) is type(again.error) is TopicNotFoundError
    assert one.error.message == f"denied{NOT_WRITTEN}"
    assert other.written == [(0, 10, 0, -1)]
    brokers.leaders = find  # type: ignore[method-assign]
    (later,) = send(producer, 1)
    producer.flush()
    assert later.written == [(0, 10, 0, -1)], "it may be there by now"


def test_a_topic_that_may_not_be_seen_fails_what_is_for_it() -> None:
    brokers = Brokers()

    def leaders(*_: Any, **__: Any) -> Any:
        raise AuthorizationError("no", topic="t")

    brokers.leaders = leaders  # type: ignore[method-assign]
    producer = producing(brokers)
    (told,) = send(producer, 0)
    producer.flush()
    assert type(told.error) is AuthorizationError


@pytest.mark.parametrize(
    ("what", "doubt"),
    [
        ({"leader": None}, NOT_WRITTEN),
        ({"refuses": {1}}, NOT_WRITTEN),
        ({"script": lambda _: Answer(code=ErrorCode.NOT_ENOUGH_REPLICAS)}, NOT_WRITTEN),
        ({"script": lambda _: Answer(code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)}, IN_DOUBT),
        ({"script": lambda _: Answer(code=ErrorCode.REQUEST_TIMED_OUT)}, IN_DOUBT),
        ({"script": lambda _: Answer(None)}, IN_DOUBT),
    ],
)
def test_whether_it_may_have_been_written_is_told_as_it_is(what: dict[str, Any], doubt: str) -> None:
    brokers = Brokers()
    vars(brokers).update(what)
    producer = producing(brokers, delivery_timeout_ms=20_000)
    (told,) = send(producer, 0)
    producer.flush()
    assert type(told.error) is BrokerTimeoutError
    assert "within 20 s" in told.error.message
    assert told.error.message.endswith(doubt)
    assert isinstance(told.error.__cause__, KafkaDirectError)


def test_each_has_its_own_time() -> None:
    brokers = Brokers()
    brokers.leader = None
    producer = producing(brokers, delivery_timeout_ms=20_000)
    start = brokers.world.now
    early, late = Told(), Told()
    producer.send("t", batch(), early, since=start - 15)
    producer.send("t", batch(), late, since=start)
    while not early.errors:
        producer.work(60)
    assert brokers.world.now - start == pytest.approx(5)
    assert not late.errors
    while not late.errors:
        producer.work(60)
    assert brokers.world.now - start == pytest.approx(20)


def test_one_that_expires_does_not_take_its_followers_along() -> None:
    brokers = Brokers(then(Answer(None)), request_timeout_ms=5_000)
    producer = producing(brokers, delivery_timeout_ms=20_000)
    start = brokers.world.now
    old, new = Told(), Told()
    producer.send("t", batch(), old, since=start - 17)
    producer.send("t", batch(), new, since=start)
    producer.flush()
    assert old.error.message.endswith(IN_DOUBT)
    assert new.written == [(0, 10, 10, -1)], "the broker had taken the other one"
    assert stamps(brokers) == [(100, 0), (101, 0)]


def test_after_another_error_all_are_told() -> None:
    brokers = Brokers(then(Answer(), Answer(1.0)))
    producer = producing(brokers)
    (done,) = send(producer, 0)
    producer.flush()
    told = send(producer, 0, 0)
    brokers.leaders = _unknown  # type: ignore[method-assign]
    told += [Told()]
    with pytest.raises(ProtocolError, match="who knows"):
        producer.send("t", batch(1), told[-1])
    assert len(done.written) == 1
    assert [each.error.message[9:] for each in told] == [IN_DOUBT, IN_DOUBT, NOT_WRITTEN]
    with pytest.raises(ProtocolError, match=r"who knows$"):
        producer.send("t", batch())
    assert [len(each.errors) for each in told] == [1, 1, 1]


def test_who_has_no_recipient_has_an_exception_as_ever() -> None:
    brokers = Brokers(then(Answer(), Answer(code=ErrorCode.INVALID_RECORD)))
    producer = producing(brokers)
    (told,) = send(producer, 0)
    producer.flush()
    producer.send("t", batch())
    (other,) = send(producer, 0)
    with pytest.raises(RecordRefusedError):
        producer.flush()
    assert len(told.written) == 1
    assert other.error.message.endswith(IN_DOUBT)


def test_what_waits_is_counted() -> None:
    producer = producing(Brokers(lambda _: Answer(1.0)))
    assert producer.waiting(batch_name(0)) == 0
    send(producer, 0, 0, 0, 1)
    assert [producer.waiting(batch_name(number)) for number in (0, 1)] == [2, 0]
    producer.flush()
    assert producer.waiting(batch_name(0)) == 0


def test_it_waits_no_longer_than_it_is_told_to() -> None:
    brokers = Brokers(lambda _: Answer(5.0))
    producer = producing(brokers)
    start = brokers.world.now
    producer.work(3)
    assert brokers.world.now - start == 3
    (told,) = send(producer, 0)
    producer.work(2)
    assert (brokers.world.now - start, told.written) == (5, [])
    producer.work(60)
    assert (brokers.world.now - start, len(told.written)) == (8, 1)


def batch_name(partition: int) -> Any:
    return ("t", partition)


def _unknown(*_: object, **__: object) -> Any:
    raise ProtocolError("who knows")


class _Good(random.Random):
    """Nothing goes wrong by chance."""

    def random(self) -> float:
        return 0.9

    def choice(self, options: Any) -> Any:
        return options[0]


class Refusing(Faulty):
    """Brokers that also refuse records for good, and are slow."""

    def connect(self, node: Node, deadline: Deadline) -> Line:
        if self.chance.random() < 0.1:
            raise BrokerUnreachableError("refused", broker=str(node))
        line = RefusingLine(self, node.id)
        self.world.lines[line.fileno()] = line
        return line


class RefusingLine(FaultyLine):
    """As Kafka does: records are looked at before sequence numbers."""

    def _append(self, number: int, data: bytes) -> dict[str, Any]:
        if is_bad(data) and self._brokers.leads[number] == self._node:
            return {"error_code": ErrorCode.INVALID_RECORD, "base_offset": -1}
        return super()._append(number, data)


def is_bad(data: bytes) -> bool:
    return sum(data[61:]) % 11 == 3  # what is in it decides, whoever sends it


class Records:
    """The records of a batch, and what was told of each."""

    def __init__(self, first: int, records: int) -> None:
        self.first = first
        self.told: list[Any] = [None] * records

    def acknowledged(self, first: int, records: int, offset: int, append_time: int) -> None:
        for place in range(first, first + records):
            assert self.told[place] is None
            self.told[place] = offset + place - first

    def failed(self, first: int, records: int, error: BaseException) -> None:
        for place in range(first, first + records):
            assert self.told[place] is None
            self.told[place] = error


@pytest.mark.parametrize("seed", range(60, 84))
def test_whatever_happens_each_record_is_told_of_once_and_truly(seed: int) -> None:
    """Leaders move, connections break, records are refused, and time is short."""
    brokers = Refusing(seed)
    settings = ProduceSettings(max_request_bytes=700, buffer_bytes=4_000, delivery_timeout_ms=12_000)
    producer = Producer(brokers, settings)  # type: ignore[arg-type]
    counts = [0] * PARTITIONS
    sent: list[list[Records]] = [[] for _ in range(PARTITIONS)]
    for _ in range(150):
        partition = brokers.chance.randrange(PARTITIONS)
        number = brokers.chance.choice([1, 2, 5, 9, 20])
        records = Records(counts[partition], number)
        sent[partition].append(records)
        since = brokers.world.now - brokers.chance.choice([0, 0, 0, 8])
        producer.send("t", encoded(partition, counts[partition], number), records, since=since)
        counts[partition] += number
    producer.flush()
    assert producer.unacknowledged_bytes == 0
    outcomes = _check(brokers, sent)
    assert outcomes["written"] > outcomes["refused"] > 0


def _check(brokers: Faulty, sent: list[list[Records]]) -> Mapping[str, int]:
    seen = {"written": 0, "refused": 0, "in doubt": 0, "not written": 0}
    for log, batches in zip(brokers.logs, sent, strict=True):
        assert log.values == sorted(set(log.values)), "in order, and none twice"
        for records in batches:
            for place, told in enumerate(records.told):
                value = records.first + place
                if isinstance(told, int):
                    seen["written"] += 1
                    assert log.values[told] == value
                    continue
                assert isinstance(told, KafkaDirectError)
                doubt = told.message.endswith(IN_DOUBT)
                assert doubt != told.message.endswith(NOT_WRITTEN)
                assert doubt or value not in log.values
                seen["refused"] += isinstance(told, RecordRefusedError)
                seen["in doubt" if doubt else "not written"] += 1
    return seen
