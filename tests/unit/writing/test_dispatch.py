"""Which partition and which record batch single records get, when they are sent, and what becomes of each."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.writing.brokers import Answer, Brokers
from tests.unit.writing.test_producer import then

from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    KafkaDirectError,
    ProtocolError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from pyspark_kafka_direct.records import create_decoder, create_encoder, partition_of
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.wire._idle_producers import ProducerId
from pyspark_kafka_direct.wire.codes import ErrorCode
from pyspark_kafka_direct.writing._dispatch import Dispatcher, Outgoing, Settled

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_WRITTEN = " The records were not written."
IN_DOUBT = " The records may have been written."


@pytest.fixture(autouse=True)
def _ids(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(100, 10_000))
    monkeypatch.setattr("pyspark_kafka_direct.writing._identity.new_producer_id", lambda *_: ProducerId(next(ids), 0))


class Desk:
    """A dispatcher of a made-up cluster, and what it said of each record."""

    def __init__(self, brokers: Brokers, *, linger: float = 0.0, **settings: Any) -> None:
        self.brokers = brokers
        self.told: dict[bytes, tuple[int, int] | KafkaDirectError] = {}
        self.withdrawn: set[bytes] = set()
        how = ProduceSettings(**settings)
        self.dispatcher = Dispatcher(brokers, how, self._settle, self._claim, linger)  # type: ignore[arg-type]

    def take(self, *values: bytes, hurry: bool = False, work: bool = True, **more: Any) -> None:
        records = [self.record(value, **more) for value in values]
        self.dispatcher.take(records, hurry=hurry)
        if work:
            self.dispatcher.work([])

    def record(
        self, value: bytes, key: bytes | None = b"k", topic: str = "t", size: int = 100, **more: Any
    ) -> Outgoing:
        since = more.get("since", self.brokers.world.now)
        future: Future[Any] = Future()
        place = more.get("partition")
        return Outgoing(topic, key, value, more.get("headers", ()), place, 1_000, since, size, future)

    def work_until(self, *values: bytes) -> None:
        for _ in range(1_000):
            if all(value in self.told for value in values):
                return
            self.dispatcher.work([])
        raise AssertionError(self.told)

    def error(self, value: bytes) -> KafkaDirectError:
        error = self.told[value]
        assert isinstance(error, KafkaDirectError)
        return error

    def sent(self) -> list[dict[int, list[bytes]]]:
        """The values of each request, by partition."""
        return [{number: _values(data) for number, data in each.batches.items()} for each in self.brokers.sent]

    def _settle(self, settled: Settled) -> None:
        for place, record in enumerate(settled.records):
            value = record.value or b""
            assert value not in self.told
            if settled.error is None:
                assert record.partition is not None
                self.told[value] = (record.partition, settled.offset + place)
            else:
                assert isinstance(settled.error, KafkaDirectError)
                self.told[value] = settled.error

    def _claim(self, records: Sequence[Outgoing]) -> list[Outgoing]:
        return [each for each in records if each.value not in self.withdrawn]


def _rows(data: bytes) -> Any:
    decoder = create_decoder(
        topic="t", partition=0, from_offset=0, until_offset=99_999, columns=("key", "value", "headers", "timestamp")
    )
    decoder.feed(memoryview(data))
    return decoder.read()


def _values(data: bytes) -> list[bytes]:
    return list(_rows(data).column("value").to_pylist())


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_what_comes_while_others_are_under_way_shares_a_batch() -> None:
    desk = Desk(Brokers(lambda _: Answer(1.0)), max_in_flight=2)
    desk.take(b"first", work=False)
    desk.dispatcher._hand_over()
    for value in numbered(6):
        desk.take(value, work=False)
        desk.dispatcher._hand_over()
    desk.work_until(*numbered(6))
    assert desk.sent() == [{0: [b"first"]}, {0: [b"0"]}, {0: numbered(5, 1)}]
    assert desk.told == {b"first": (0, 0), **{b"%d" % number: (0, number + 1) for number in range(6)}}


def test_contents_arrive_as_they_were() -> None:
    desk = Desk(Brokers())
    headers = (("one", b"1"), ("none", None), ("one", b""))
    first = desk.record(b"v", key=None, headers=headers)
    second = desk.record(b"", key=b"\0\xff")
    second.value = None
    desk.dispatcher.take([first, second])
    desk.work_until(b"v", b"")
    (data,) = desk.brokers.sent[0].batches.values()
    one, other = _rows(data).to_pylist()
    assert (one["key"], one["value"], other["key"], other["value"]) == (None, b"v", b"\0\xff", None)
    assert [(each["key"], each["value"]) for each in one["headers"]] == list(headers)
    assert not other["headers"]


def test_keys_go_where_java_puts_them() -> None:
    brokers = Brokers()
    brokers.partitions = {"t": 7}
    desk = Desk(brokers)
    for key in numbered(50):
        desk.take(b"v" + key, key=key)
    desk.work_until(*(b"v" + key for key in numbered(50)))
    assert {key: desk.told[b"v" + key][0] for key in numbered(50)} == {  # type: ignore[index]
        key: partition_of(key, 7) for key in numbered(50)
    }


@pytest.mark.parametrize("how", [{"key": None}, {"key": b"k", "ignore_keys": True}])
def test_without_a_say_of_keys_records_stick_until_a_batch_is_full(how: dict[str, Any]) -> None:
    brokers = Brokers()
    brokers.partitions = {"t": 3}
    desk = Desk(brokers, batch_bytes=300, ignore_keys=how.pop("ignore_keys", False))
    for value in numbered(12):
        desk.take(value, **how)
    desk.work_until(*numbered(12))
    places = [desk.told[value][0] for value in numbered(12)]  # type: ignore[index]
    assert places == [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0]


def test_a_partition_that_is_not_there_fails_the_record_alone() -> None:
    brokers = Brokers()
    desk = Desk(brokers)
    records = [desk.record(b"good"), desk.record(b"bad", partition=5), desk.record(b"too", partition=0)]
    desk.dispatcher.take(records)
    desk.work_until(b"good", b"bad", b"too")
    assert (desk.told[b"good"], desk.told[b"too"]) == ((0, 0), (0, 1))
    error = desk.error(b"bad")
    assert type(error) is TopicNotFoundError
    assert (error.topic, error.partition) == ("t", 5)
    assert error.message == f"The topic has no such partition; it has 1.{NOT_WRITTEN}"
    brokers.partitions = {"t": 6}
    desk.take(b"now", partition=5)
    desk.work_until(b"now")
    assert desk.told[b"now"] == (5, 0)


def test_a_topic_that_is_not_there_fails_its_records_alone() -> None:
    brokers = Brokers()
    brokers.partitions = {"t": 1, "topic": 1}
    desk = Desk(brokers)
    desk.dispatcher.take([desk.record(b"1", topic="topix"), desk.record(b"2"), desk.record(b"3", topic="topix")])
    desk.work_until(b"1", b"2", b"3")
    assert desk.told[b"2"] == (0, 0)
    assert type(desk.error(b"1")) is type(desk.error(b"3")) is TopicNotFoundError
    assert "did you mean 'topic'" in desk.error(b"3").message
    assert desk.error(b"3").message.endswith(NOT_WRITTEN)
    assert brokers.asked.count("topix") == 5, "asked until it is believed, once for both"
    brokers.partitions["topix"] = 1
    desk.take(b"4", topic="topix")
    desk.work_until(b"4")
    assert desk.told[b"4"] == (0, 1)


def test_partitions_are_counted_again_when_they_are_old_news() -> None:
    brokers = Brokers(metadata_max_age_ms=5_000)
    desk = Desk(brokers)
    desk.take(b"1", b"2")
    desk.work_until(b"1", b"2")
    assert brokers.asked == ["t"]
    brokers.world.now += 5
    look = brokers.topics

    def unreachable(*_: object, **__: object) -> Any:
        raise BrokerUnreachableError("gone")

    brokers.topics = unreachable  # type: ignore[method-assign]
    desk.take(b"3")
    desk.work_until(b"3")
    assert desk.told[b"3"] == (0, 2), "those that were there are there"
    brokers.topics = look  # type: ignore[method-assign]
    brokers.world.now += 5
    desk.take(b"4")
    assert brokers.asked == ["t", "t"]


def test_a_cluster_that_cannot_be_asked_fails_them() -> None:
    brokers = Brokers()

    def unreachable(*_: object, **__: object) -> Any:
        raise BrokerUnreachableError("gone")

    brokers.topics = unreachable  # type: ignore[method-assign]
    desk = Desk(brokers)
    desk.take(b"1")
    assert desk.error(b"1").message == f"gone{NOT_WRITTEN}"


def test_records_wait_for_company_for_as_long_as_is_wanted() -> None:
    brokers = Brokers()
    start = brokers.world.now
    desk = Desk(brokers, linger=2.0)
    desk.take(b"1", work=False)
    brokers.world.now += 1.5
    desk.take(b"2")
    desk.work_until(b"1", b"2")
    assert [each.at - start for each in brokers.sent] == [2.0]
    assert desk.sent() == [{0: [b"1", b"2"]}]


def test_nobody_lingers_when_somebody_waits_or_a_batch_is_full() -> None:
    brokers = Brokers()
    start = brokers.world.now
    desk = Desk(brokers, linger=2.0, batch_bytes=300)
    desk.take(*numbered(3))
    desk.work_until(*numbered(3))
    desk.take(b"last", hurry=True)
    desk.work_until(b"last")
    assert [round(each.at - start, 2) for each in brokers.sent] == [0, 0.01]


def test_a_batch_takes_as_much_as_it_may() -> None:
    desk = Desk(Brokers(), batch_bytes=350)
    desk.take(*numbered(8))
    desk.work_until(*numbered(8))
    assert [each[0] for each in desk.sent()] == [numbered(3), numbered(3, 3), numbered(2, 6)]
    desk.take(b"large", size=10_000)
    desk.work_until(b"large")
    assert desk.sent()[-1] == {0: [b"large"]}


def test_what_waits_behind_others_has_its_own_time() -> None:
    brokers = Brokers()
    brokers.leader = None
    start = brokers.world.now
    desk = Desk(brokers, delivery_timeout_ms=10_000)
    desk.take(b"head")
    brokers.world.now = start + 4
    desk.take(b"behind", b"beside")
    desk.work_until(b"head")
    assert brokers.world.now - start == pytest.approx(10, abs=1.5)
    assert set(desk.told) == {b"head"}
    desk.work_until(b"behind", b"beside")
    assert brokers.world.now - start == pytest.approx(14, abs=1.5)
    assert all(type(error) is BrokerTimeoutError for error in desk.told.values())
    assert all(desk.error(value).message.endswith(NOT_WRITTEN) for value in desk.told)


def test_the_old_do_not_take_the_young_along() -> None:
    """A batch has the time of its oldest record."""
    brokers = Brokers(lambda _: Answer(1.0))
    desk = Desk(brokers)
    now = brokers.world.now
    old, young = desk.record(b"old", since=now - 50), desk.record(b"young", since=now)
    desk.dispatcher.take([old, young])
    desk.work_until(b"old", b"young")
    assert desk.sent() == [{0: [b"old"]}, {0: [b"young"]}]


def test_what_expires_in_the_queue_was_not_written() -> None:
    brokers = Brokers(then(Answer(), Answer(None)), request_timeout_ms=30_000)
    desk = Desk(brokers, delivery_timeout_ms=10_000, max_in_flight=1)
    desk.take(b"0")
    desk.work_until(b"0")
    start = brokers.world.now
    desk.take(b"under way", work=False)
    desk.dispatcher._hand_over()
    desk.take(b"next", work=False)
    desk.dispatcher._hand_over()
    desk.take(b"waits", work=False)
    desk.work_until(b"under way", b"next", b"waits")
    assert brokers.world.now - start < 21
    assert desk.error(b"under way").message.endswith(IN_DOUBT)
    assert desk.error(b"waits").message.endswith(NOT_WRITTEN)
    assert "Records waited 10 s (kafka.delivery.timeout.ms)" in desk.error(b"waits").message
    desk.take(b"later")
    desk.work_until(b"later")
    assert isinstance(desk.told[b"later"], tuple)


def test_a_record_that_is_refused_is_left_out() -> None:
    brokers = Brokers(then(Answer(), Answer(code=ErrorCode.INVALID_RECORD)))
    desk = Desk(brokers)
    for value in (b"1", b"bad", b"2"):
        desk.take(value)
        desk.work_until(value)
    assert (desk.told[b"1"], desk.told[b"2"]) == ((0, 0), (0, 1))
    assert desk.error(b"bad").message.endswith(NOT_WRITTEN)


def test_after_an_error_of_all_another_producer_goes_on() -> None:
    brokers = Brokers(lambda _: Answer(1.0))
    brokers.partitions = {"t": 2}
    desk = Desk(brokers, max_in_flight=1)
    desk.take(b"done", partition=0)
    desk.work_until(b"done")
    for value in (b"under way", b"ready", b"waits"):
        desk.take(value, partition=0, work=False)
        desk.dispatcher._hand_over()
    find = brokers.leaders

    def broken(*_: object, **__: object) -> Any:
        brokers.leaders = find  # type: ignore[method-assign]
        raise ProtocolError("nonsense")

    brokers.leaders = broken  # type: ignore[method-assign]
    desk.take(b"other", partition=1)
    desk.work_until(b"waits")
    assert desk.error(b"under way").message == f"nonsense{IN_DOUBT}"
    assert desk.error(b"ready").message == desk.error(b"other").message == f"nonsense{NOT_WRITTEN}"
    assert desk.told[b"waits"] == (0, 2), "the made-up broker had taken the one under way"


def test_what_cannot_be_encoded_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(**_: object) -> Any:
        raise RecordTooLargeError("There is not enough memory.")

    desk = Desk(Brokers())
    monkeypatch.setattr("pyspark_kafka_direct.writing._dispatch.create_encoder", no_memory)
    desk.take(b"1", b"2")
    desk.work_until(b"1", b"2")
    assert desk.error(b"2").message == f"There is not enough memory.{NOT_WRITTEN}"
    monkeypatch.setattr("pyspark_kafka_direct.writing._dispatch.create_encoder", create_encoder)
    desk.take(b"3")
    desk.work_until(b"3")
    assert desk.told[b"3"] == (0, 0)


def test_what_was_given_up_meanwhile_is_not_sent() -> None:
    desk = Desk(Brokers())
    desk.withdrawn = {b"1", b"3"}
    desk.take(b"1", b"2", b"3")
    desk.take(b"3")
    desk.work_until(b"2")
    assert desk.sent() == [{0: [b"2"]}]
