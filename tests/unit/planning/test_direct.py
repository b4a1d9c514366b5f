"""The batches of the direct stream, against a made-up cluster: nothing is passed over in silence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.planning.direct import Batch, Position, plan_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID, OTHER_ID = uuid4(), uuid4()


@dataclass
class View:
    """Implements ``DirectView``: a log is (start, end), ``high`` is what a transaction hides.

    ``on_wait`` is what happens while the planner waits.
    """

    logs: dict[TopicPartition, tuple[int, int]]
    ids: dict[str, UUID] = field(default_factory=dict)
    limit: int | None = None
    high: dict[TopicPartition, int] = field(default_factory=dict)
    waits_left: int = 3
    on_wait: Callable[[View], None] = lambda view: None
    on_assigned: Callable[[View], None] = lambda view: None
    passes_over: bool = False

    def assigned(self, tracked: Collection[TopicPartition]) -> Mapping[TopicPartition, UUID | None]:
        found = {tp: self.ids.get(tp.topic) for tp in self.logs}
        self.on_assigned(self)
        return found

    def starts_of_new(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.logs[tp][0] for tp in partitions}

    def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        for tp in partitions:
            if tp not in self.logs:
                raise TopicNotFoundError("gone in between", topic=tp.topic)
        return {tp: self.logs[tp][1] for tp in partitions}

    def written(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.high.get(tp, self.logs[tp][1]) for tp in partitions}

    def most(
        self, begins: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int] | None:
        return None if self.limit is None else dict.fromkeys(begins, self.limit)

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.logs[tp][0] for tp in partitions} if self.passes_over else {}

    def wait(self) -> bool:
        self.waits_left -= 1
        if self.waits_left < 0:
            return False
        self.on_wait(self)
        return True


def plan(view: View, *, at: dict[TopicPartition, int], ids: dict[str, UUID] | None = None) -> Batch:
    return plan_batch(Position(at, ids or {}), view)


def spans(batch: Batch) -> dict[TopicPartition, tuple[int, int]]:
    return {each.topic_partition: (each.from_offset, each.until_offset) for each in batch.ranges}


def test_a_batch_has_all_there_is_in_order_and_empty_ranges_too() -> None:
    batch = plan(View({B0: (0, 7), A1: (0, 4), A0: (0, 9)}, {"a": ID}), at={A0: 2, A1: 4, B0: 0})
    assert batch.ranges == (OffsetRange("a", 0, 2, 9), OffsetRange("a", 1, 4, 4), OffsetRange("b", 0, 0, 7))
    assert batch.topic_ids == {"a": ID}


def test_limits_end_a_batch_before_the_log() -> None:
    assert spans(plan(View({A0: (0, 9), A1: (0, 3)}, limit=4), at={A0: 2, A1: 1})) == {A0: (2, 6), A1: (1, 3)}


def test_limits_do_not_count_records_that_are_gone() -> None:
    logs = {A0: (900, 1000), A1: (0, 3)}
    batch = plan(View(logs, limit=4, passes_over=True), at={A0: 0, A1: 1})
    assert spans(batch) == {A0: (0, 904), A1: (1, 3)}
    assert batch.expired == 900
    batch = plan(View(logs, passes_over=True), at={A0: 0, A1: 1})
    assert (spans(batch), batch.expired) == ({A0: (0, 1000), A1: (1, 3)}, 0), "no limit, nothing to ask"
    batch = plan(View(logs, limit=4), at={A0: 0, A1: 1})
    assert (spans(batch), batch.expired) == ({A0: (0, 4), A1: (1, 3)}, 0), "the task is to fail there"


def test_what_is_gone_takes_no_part_of_a_rate_that_is_shared_by_lag() -> None:
    class Shared(View):
        def most(
            self, begins: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
        ) -> Mapping[TopicPartition, int]:
            lags = {tp: latest[tp] - begins[tp] for tp in begins}
            return {tp: 20 * lag // sum(lags.values()) for tp, lag in lags.items()}

    batch = plan(Shared({A0: (900, 1000), A1: (0, 100)}, passes_over=True), at={A0: 0, A1: 0})
    assert spans(batch) == {A0: (0, 910), A1: (0, 10)}


def test_all_that_waited_is_gone() -> None:
    view = View({A0: (1000, 1000)}, limit=4, passes_over=True)
    assert spans(plan(view, at={A0: 10})) == {A0: (10, 1000)}
    assert spans(plan(view, at={A0: 1000})) == {A0: (1000, 1000)}


def test_a_partition_that_appears_begins_where_the_view_says() -> None:
    assert spans(plan(View({A0: (0, 5), A1: (2, 3)}), at={A0: 5})) == {A0: (5, 5), A1: (2, 3)}


def test_a_partition_that_is_gone_for_sure_is_loss() -> None:
    view = View({A0: (0, 5)})
    with pytest.raises(DataLossError, match=r"a-1 are gone.*another checkpoint folder") as failure:
        plan(view, at={A0: 0, A1: 0})
    assert (failure.value.topic, failure.value.partition) == ("a", 1)
    assert view.waits_left < 0, "it was looked for as long as allowed"


def test_a_broker_that_lags_behind_the_others_is_asked_again() -> None:
    view = View({A0: (0, 5)}, on_wait=lambda view: view.logs.update({A1: (0, 6)}))
    assert spans(plan(view, at={A0: 0, A1: 0})) == {A0: (0, 5), A1: (0, 6)}
    assert view.waits_left == 2


def test_a_topic_with_another_id_is_loss_however_long_its_log_is() -> None:
    with pytest.raises(DataLossError, match=f"created again, its id was {ID} and is {OTHER_ID} now") as failure:
        plan(View({A0: (0, 50)}, {"a": OTHER_ID}), at={A0: 3}, ids={"a": ID})
    assert failure.value.topic == "a"


def test_brokers_without_ids_and_the_same_id_are_no_loss() -> None:
    assert spans(plan(View({A0: (0, 5)}), at={A0: 3}, ids={"a": ID})) == {A0: (3, 5)}
    assert spans(plan(View({A0: (0, 5)}, {"a": ID}), at={A0: 3}, ids={"a": ID})) == {A0: (3, 5)}
    assert spans(plan(View({A0: (0, 5)}, {"a": ID}), at={A0: 3})) == {A0: (3, 5)}


def test_a_log_that_was_cut_is_loss() -> None:
    with pytest.raises(DataLossError, match="a-0's offset was changed from 6 to 5") as failure:
        plan(View({A0: (0, 5)}), at={A0: 6})
    assert (failure.value.topic, failure.value.partition) == ("a", 0)
    assert "failOnDataLoss" not in str(failure.value), "it is not asked here"


def test_an_offset_behind_a_transaction_under_way_is_waited_for() -> None:
    view = View({A0: (0, 5), A1: (0, 5)}, high={A0: 8, A1: 8})
    assert spans(plan(view, at={A0: 7, A1: 4})) == {A0: (7, 7), A1: (4, 5)}
    with pytest.raises(DataLossError, match="a-0's offset was changed from 9 to 8"):
        plan(view, at={A0: 9, A1: 4})


def test_a_topic_that_goes_between_two_questions() -> None:
    view = View({A0: (0, 5), A1: (0, 5)}, on_assigned=lambda view: view.logs.pop(A1, None) and None)
    with pytest.raises(DataLossError, match="a-1 are gone"):
        plan(view, at={A0: 0, A1: 0})


def test_a_topic_that_is_away_for_one_question_only_keeps_its_error() -> None:
    class Flickers(View):
        def latest(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            raise TopicNotFoundError("gone in between", topic="a")

    with pytest.raises(TopicNotFoundError, match="gone in between"):
        plan(Flickers({A0: (0, 5), A1: (0, 5)}), at={A0: 0, A1: 0})
