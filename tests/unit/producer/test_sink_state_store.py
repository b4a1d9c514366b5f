"""When a sink state record that was read may still be used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import pytest

from pyspark_kafka_direct.errors import BrokerError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.producer import sink_state_store
from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition
from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore, StoredSinkState
from pyspark_kafka_direct.producer.transactional_records import KeyRecord
from pyspark_kafka_direct.producer.written_range import WrittenRange

OLD, NEW = KeyRecord(3, b"old"), KeyRecord(10, b"new")


@dataclass
class FakeLog:
    """The sink state topic: its end, and the newest records of the key."""

    newest: KeyRecord | None = NEW
    undecided: KeyRecord | None = None
    reads: list[tuple[int, int]] = field(default_factory=list)

    partition = TopicPartition("states", 0)
    check_follows: ClassVar[Any] = CompactedPartition.check_follows
    _error_text = sink_state_store._ERROR_TEXT

    def start(self, deadline: object) -> int:
        return 0

    def end(self, deadline: object) -> int:
        return 12

    def find_newest(
        self, key: bytes, first: int, end: int, deadline: object, *, from_earliest: bool = False
    ) -> FakeLog:
        assert key == b"key"
        self.reads.append((first, end))
        return self


class FakeCluster:
    def deadline(self) -> float:
        return 0.0


def store_on(log: FakeLog) -> SinkStateStore:
    store = SinkStateStore.__new__(SinkStateStore)
    untyped = cast("Any", store)
    untyped._cluster, untyped._log, untyped.topic = FakeCluster(), log, "states"
    untyped.partition = TopicPartition("states", 0)
    return store


@pytest.mark.parametrize(("read_until", "is_read_again"), [(12, False), (8, True)])
def test_a_record_is_read_again_if_the_log_has_grown(read_until: int, is_read_again: bool) -> None:
    log = FakeLog()
    stored = store_on(log).read_decided("key", StoredSinkState(OLD, None, read_until))
    assert stored.newest == (NEW if is_read_again else OLD)
    assert bool(log.reads) == is_read_again


@pytest.mark.parametrize(
    ("newest", "undecided", "follows"), [(None, None, True), (NEW, None, False), (None, NEW, False)]
)
def test_no_other_record_of_the_key_may_be_between(
    newest: KeyRecord | None, undecided: KeyRecord | None, follows: bool
) -> None:
    log = FakeLog(newest, undecided)
    store, stored = store_on(log), StoredSinkState(OLD, None, 8)
    if follows:
        store.check_newest("key", stored, 12)
    else:
        with pytest.raises(BrokerError, match="does not directly follow what was read"):
            store.check_newest("key", stored, 12)
    assert log.reads == [(8, 12)]


def test_a_ticket_without_an_offset_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be older than all others."""

    class FakeProducer:
        def __init__(self, *_: object) -> None:
            self.closed = False

        def flush(self) -> dict[TopicPartition, WrittenRange]:
            return {TopicPartition("states", 0): WrittenRange(-1, -1, 1, 100)}

        def close(self) -> None:
            self.closed = True

    store = store_on(FakeLog())
    monkeypatch.setattr(FakeLog, "encode", lambda *_: iter(()), raising=False)
    monkeypatch.setattr("pyspark_kafka_direct.producer.sink_state_store.BatchProducer", FakeProducer)
    with pytest.raises(BrokerError, match="did not return the offset"):
        store.append_ticket("key")
