"""The batches of the direct stream: nothing is skipped silently."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from pyspark_kafka_direct.errors import BrokerTimeoutError, DataLossError, TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.direct_stream_planner import DirectBatchPlan, StreamPosition, plan_direct_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID, OTHER_ID = uuid4(), uuid4()


@dataclass
class FakeOffsetReader:
    """Implements ``DirectOffsetReader``: a log is (start, end); ``high`` overrides high watermarks."""

    logs: dict[TopicPartition, tuple[int, int]]
    ids: dict[str, UUID] = field(default_factory=dict)
    limit: int | None = None
    high: dict[TopicPartition, int] = field(default_factory=dict)
    waits_left: int = 3  # of each confirmation
    pauses: int = 0
    on_wait: Callable[[FakeOffsetReader], None] = lambda reader: None
    on_floors: Callable[[FakeOffsetReader], None] = lambda reader: None
    on_assigned: Callable[[FakeOffsetReader], None] = lambda reader: None
    on_latest: Callable[[FakeOffsetReader], None] = lambda reader: None
    skips_lost_records: bool = False

    def assigned(self, tracked: Collection[TopicPartition]) -> Mapping[TopicPartition, UUID | None]:
        found = {tp: self.ids.get(tp.topic) for tp in self.logs}
        self.on_assigned(self)
        return found

    def known_topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID]:
        return {topic: topic_id for topic, topic_id in self.ids.items() if topic in topics}

    def new_partition_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.logs[tp][0] for tp in partitions}

    def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.on_latest(self)
        for tp in partitions:
            if tp not in self.logs:
                raise TopicNotFoundError("deleted in between", topic=tp.topic)
        return {tp: self.logs[tp][1] for tp in partitions}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.high.get(tp, self.logs[tp][1]) for tp in partitions}

    def record_limits(
        self, from_offsets: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int] | None:
        return None if self.limit is None else dict.fromkeys(from_offsets, self.limit)

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.logs[tp][0] for tp in partitions} if self.skips_lost_records else {}

    def confirm_missing(self, suspects: Mapping[TopicPartition, UUID | None]) -> Collection[TopicPartition]:
        for _ in range(self.waits_left):
            self.on_wait(self)
        return {
            tp
            for tp, topic_id in suspects.items()
            if tp not in self.logs or (topic_id is not None and self.ids.get(tp.topic, topic_id) != topic_id)
        }

    def wait(self) -> None:
        self.pauses += 1

    def raise_epoch_floors(self, topics: Collection[str]) -> None:
        self.on_floors(self)


def plan(
    reader: FakeOffsetReader, *, position: dict[TopicPartition, int], ids: dict[str, UUID] | None = None
) -> DirectBatchPlan:
    return plan_direct_batch(StreamPosition(position, ids or {}), reader)


def spans(batch: DirectBatchPlan) -> dict[TopicPartition, tuple[int, int]]:
    return {each.topic_partition: (each.from_offset, each.until_offset) for each in batch.ranges}


def test_a_batch_has_all_records_in_order_and_empty_ranges() -> None:
    batch = plan(FakeOffsetReader({B0: (0, 7), A1: (0, 4), A0: (0, 9)}, {"a": ID}), position={A0: 2, A1: 4, B0: 0})
    assert batch.ranges == (OffsetRange("a", 0, 2, 9), OffsetRange("a", 1, 4, 4), OffsetRange("b", 0, 0, 7))
    assert batch.topic_ids == {"a": ID}


def test_limits_end_a_batch_before_the_log() -> None:
    assert spans(plan(FakeOffsetReader({A0: (0, 9), A1: (0, 3)}, limit=4), position={A0: 2, A1: 1})) == {
        A0: (2, 6),
        A1: (1, 3),
    }


def test_limits_do_not_count_deleted_records() -> None:
    logs = {A0: (900, 1000), A1: (0, 3)}
    batch = plan(FakeOffsetReader(logs, limit=4, skips_lost_records=True), position={A0: 0, A1: 1})
    assert spans(batch) == {A0: (0, 904), A1: (1, 3)}
    assert batch.deleted_offset_count == 900
    batch = plan(FakeOffsetReader(logs, skips_lost_records=True), position={A0: 0, A1: 1})
    assert (spans(batch), batch.deleted_offset_count) == ({A0: (0, 1000), A1: (1, 3)}, 0), (
        "without a limit log starts are not requested"
    )
    batch = plan(FakeOffsetReader(logs, limit=4), position={A0: 0, A1: 1})
    assert (spans(batch), batch.deleted_offset_count) == ({A0: (0, 4), A1: (1, 3)}, 0), "the task fails there"


def test_deleted_records_do_not_count_in_a_rate_shared_by_lag() -> None:
    class SharedRate(FakeOffsetReader):
        def record_limits(
            self, from_offsets: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
        ) -> Mapping[TopicPartition, int]:
            lags = {tp: latest[tp] - from_offsets[tp] for tp in from_offsets}
            return {tp: 20 * lag // sum(lags.values()) for tp, lag in lags.items()}

    batch = plan(SharedRate({A0: (900, 1000), A1: (0, 100)}, skips_lost_records=True), position={A0: 0, A1: 0})
    assert spans(batch) == {A0: (0, 910), A1: (0, 10)}


def test_all_unread_records_may_be_deleted() -> None:
    reader = FakeOffsetReader({A0: (1000, 1000)}, limit=4, skips_lost_records=True)
    assert spans(plan(reader, position={A0: 10})) == {A0: (10, 1000)}
    assert spans(plan(reader, position={A0: 1000})) == {A0: (1000, 1000)}


def test_a_new_partition_starts_at_its_start_offset() -> None:
    assert spans(plan(FakeOffsetReader({A0: (0, 5), A1: (2, 3)}), position={A0: 5})) == {A0: (5, 5), A1: (2, 3)}


def test_a_missing_partition_is_data_loss_once_it_is_confirmed() -> None:
    reader = FakeOffsetReader({A0: (0, 5)})
    with pytest.raises(DataLossError, match=r"a-1 do not exist any more.*new checkpoint directory") as failure:
        plan(reader, position={A0: 0, A1: 0})
    assert (failure.value.topic, failure.value.partition) == ("a", 1)


def test_stale_metadata_is_refreshed() -> None:
    reader = FakeOffsetReader({A0: (0, 5)}, on_wait=lambda reader: reader.logs.update({A1: (0, 6)}))
    assert spans(plan(reader, position={A0: 0, A1: 0})) == {A0: (0, 5), A1: (0, 6)}


def test_brokers_that_contradict_each_other_are_asked_with_pauses() -> None:
    """For example, the principal may not list a topic for a minute. 30 requests took a few milliseconds."""

    class Contradicting(FakeOffsetReader):
        def confirm_missing(self, suspects: Mapping[TopicPartition, UUID | None]) -> Collection[TopicPartition]:
            return ()

    reader = Contradicting({A0: (0, 5)})
    with pytest.raises(BrokerTimeoutError, match="some brokers do not know all of a-0, a-1"):
        plan(reader, position={A0: 0, A1: 0})
    assert reader.pauses == 30


def test_a_topic_with_another_id_is_data_loss_however_long_its_log_is() -> None:
    with pytest.raises(DataLossError, match=f"recreated, its id was {ID} and is {OTHER_ID} now") as failure:
        plan(FakeOffsetReader({A0: (0, 50)}, {"a": OTHER_ID}), position={A0: 3}, ids={"a": ID})
    assert failure.value.topic == "a"


def test_another_topic_id_in_one_response_is_no_loss() -> None:
    """A broker with stale metadata may report the id of a deleted topic."""
    reader = FakeOffsetReader({A0: (0, 5)}, {"a": OTHER_ID}, on_wait=lambda reader: reader.ids.update({"a": ID}))
    assert spans(plan(reader, position={A0: 3}, ids={"a": ID})) == {A0: (3, 5)}


@pytest.mark.parametrize("end", [9, 6])
def test_only_the_leader_of_the_highest_epoch_reports_a_truncation(end: int) -> None:
    """A deposed leader responds with the end 2 until the epochs are known."""
    reader = FakeOffsetReader({A0: (0, 2)}, on_floors=lambda reader: reader.logs.update({A0: (0, end)}))
    if end < 7:
        with pytest.raises(DataLossError, match="changed from 7 to 6"):
            plan(reader, position={A0: 7})
    else:
        assert spans(plan(reader, position={A0: 7})) == {A0: (7, 7)}, "the end is requested for the next batch"


def test_brokers_without_ids_and_the_same_id_are_no_loss() -> None:
    assert spans(plan(FakeOffsetReader({A0: (0, 5)}), position={A0: 3}, ids={"a": ID})) == {A0: (3, 5)}
    assert spans(plan(FakeOffsetReader({A0: (0, 5)}, {"a": ID}), position={A0: 3}, ids={"a": ID})) == {A0: (3, 5)}
    assert spans(plan(FakeOffsetReader({A0: (0, 5)}, {"a": ID}), position={A0: 3})) == {A0: (3, 5)}


def test_a_truncated_log_is_data_loss() -> None:
    with pytest.raises(DataLossError, match="a-0's offset was changed from 6 to 5") as failure:
        plan(FakeOffsetReader({A0: (0, 5)}), position={A0: 6})
    assert (failure.value.topic, failure.value.partition) == ("a", 0)
    assert "failOnDataLoss" not in str(failure.value), "the option does not apply here"


def test_an_offset_beyond_an_open_transaction_gives_an_empty_range() -> None:
    reader = FakeOffsetReader({A0: (0, 5), A1: (0, 5)}, high={A0: 8, A1: 8})
    assert spans(plan(reader, position={A0: 7, A1: 4})) == {A0: (7, 7), A1: (4, 5)}
    with pytest.raises(DataLossError, match="a-0's offset was changed from 9 to 8"):
        plan(reader, position={A0: 9, A1: 4})


def test_a_topic_deleted_between_two_requests_is_data_loss() -> None:
    reader = FakeOffsetReader({A0: (0, 5), A1: (0, 5)}, on_assigned=lambda reader: reader.logs.pop(A1, None) and None)
    with pytest.raises(DataLossError, match="a-1 do not exist any more"):
        plan(reader, position={A0: 0, A1: 0})


@dataclass
class MissingInResponses(FakeOffsetReader):
    """A broker that lags does not know a topic when end offsets are requested."""

    responses: int = 1

    def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        if self.pauses < self.responses:
            raise TopicNotFoundError("unknown to one broker", topic="a")
        return super().latest(partitions)


def test_a_topic_that_one_response_lacks_does_not_fail_the_batch() -> None:
    reader = MissingInResponses({A0: (0, 5), A1: (0, 5)}, responses=3)
    assert spans(plan(reader, position={A0: 0})) == {A0: (0, 5), A1: (0, 5)}
    assert reader.pauses == 3


def test_a_topic_that_many_responses_lack_keeps_its_error() -> None:
    reader = MissingInResponses({A0: (0, 5)}, responses=1000)
    with pytest.raises(TopicNotFoundError, match="unknown to one broker"):
        plan(reader, position={A0: 0})
    assert reader.pauses <= 30


def test_a_batch_has_the_topic_ids_that_its_offsets_came_with() -> None:
    """A partition is added whose first metadata has an outdated topic id; requests for offsets refresh it."""
    reader = FakeOffsetReader({A0: (0, 9), B0: (0, 7)}, {"a": ID, "b": OTHER_ID})
    reader.on_latest = lambda changed: changed.ids.update(b=ID)
    batch = plan(reader, position={A0: 2}, ids={"a": ID})
    assert (spans(batch), batch.topic_ids) == ({A0: (2, 9), B0: (0, 7)}, {"a": ID, "b": ID})


def test_a_topic_that_is_recreated_while_a_batch_is_planned_is_data_loss() -> None:
    reader = FakeOffsetReader({A0: (0, 9)}, {"a": ID}, on_latest=lambda changed: changed.ids.update(a=OTHER_ID))
    with pytest.raises(DataLossError, match="deleted and recreated"):
        plan(reader, position={A0: 2}, ids={"a": ID})
