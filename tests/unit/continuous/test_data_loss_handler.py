"""Where a task resumes after data loss."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from pyspark_kafka_direct.continuous.continuous_task import DataLossHandler
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    DataLossError,
    TopicNotFoundError,
    TopicRecreatedError,
    TruncatedError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import resume_offset
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer


ONE = TopicPartition("t", 0)
LOCATION: Any = {"topic": "t", "partition": 0, "offset": 50}


class FakeLog:
    """A consumer at offset 50, and the bounds of its log."""

    def __init__(self, start: int = 0, end: int = 100, error: Exception | None = None) -> None:
        self.positions = {ONE: 50}
        self.bounds = (start, end)
        self.error = error

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def deadline(self, seconds: float) -> float:
        return seconds

    def log_bounds(self, partitions: list[TopicPartition], deadline: float) -> dict[TopicPartition, tuple[int, int]]:
        assert deadline <= 10
        if self.error is not None:
            raise self.error
        return dict.fromkeys(partitions, self.bounds)

    def handler(self, *, fail: bool = False) -> DataLossHandler:
        return DataLossHandler(cast("PartitionConsumer", self), cast("ClusterClient", self), fail_on_data_loss=fail)


@pytest.mark.parametrize(
    ("kind", "start", "end", "offset"),
    [
        (DataLossError, 70, 100, 70),
        (DataLossError, 70, 70, 70),
        (DataLossError, 0, 30, 30),
        (DataLossError, 0, 100, 50),
        (TruncatedError, 0, 30, 30),
        (TruncatedError, 0, 100, 50),
        (TruncatedError, 70, 100, 70),
        (TopicRecreatedError, 0, 100, 0),
        (TopicRecreatedError, 3, 10, 3),
    ],
    ids=[
        "expired",
        "all expired",
        "beyond the end",
        "available again",
        "truncated",
        "truncated and grown",
        "truncated and expired",
        "recreated",
        "recreated and expired",
    ],
)
def test_where_reading_resumes(
    kind: type[DataLossError], start: int, end: int, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    error = kind("what has happened.", **LOCATION)
    assert resume_offset(error, 50, start, end) == offset
    log = FakeLog(start, end)
    handler = log.handler()
    with caplog.at_level(logging.WARNING):
        handler.handle(error)
    assert log.positions == {ONE: offset}
    assert handler.take_losses().reset_positions == ({ONE: offset} if offset < 50 else {})
    assert handler.take_losses().reset_positions == {}
    (warning,) = caplog.messages
    assert warning == (
        f"data loss: what has happened. Reading resumes at offset {offset} of t-0 (failOnDataLoss=false)"
    )


@pytest.mark.parametrize("kind", [DataLossError, TruncatedError, TopicRecreatedError, TopicNotFoundError])
def test_it_raises_with_fail_on_data_loss(kind: type[DataLossError]) -> None:
    log = FakeLog()
    error = kind("what has happened.", **LOCATION)
    with pytest.raises(DataLossError, match=r"what has happened. To skip them, set failOnDataLoss=false") as caught:
        log.handler(fail=True).handle(error)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 50)
    assert caught.value.__cause__ is error
    assert log.positions == {ONE: 50}


def test_a_deleted_topic_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    handler = FakeLog().handler()
    missing, back = TopicNotFoundError("lost.", **LOCATION), TopicRecreatedError("back.", **LOCATION)
    for error in (missing, missing, back, missing):
        handler.handle(error)
    assert [each[11:16] for each in caplog.messages] == ["lost.", "back.", "lost."]


def test_an_unreachable_cluster_is_queried_again(caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog(70, error=BrokerTimeoutError("not now"))
    handler = log.handler()
    handler.handle(DataLossError("lost.", **LOCATION))
    assert (log.positions, caplog.messages) == ({ONE: 50}, [])
    log.error = None
    handler.handle(DataLossError("lost.", **LOCATION))
    assert log.positions == {ONE: 70}


def test_a_topic_that_is_deleted_meanwhile_is_queried_again() -> None:
    log = FakeLog(70, error=TopicNotFoundError("lost.", **LOCATION))
    log.handler().handle(DataLossError("expired.", **LOCATION))
    assert log.positions == {ONE: 50}


def test_skipped_offsets_are_counted_by_cause() -> None:
    log = FakeLog(70)
    handler = log.handler()
    handler.handle(DataLossError("expired.", **LOCATION))
    log.bounds = (90, 100)
    handler.handle(DataLossError("expired.", **LOCATION))
    handler.handle(DataLossError("available again.", **LOCATION))
    gap = DataLossError("not returned.", **LOCATION)
    gap.resume_offset = 95
    for error in (gap, TruncatedError("cut.", **LOCATION), TopicNotFoundError("deleted.", **LOCATION)):
        handler.handle(error)
    handler.handle(TopicNotFoundError("still deleted.", **LOCATION))
    log.bounds = (0, 10)
    handler.handle(TopicRecreatedError("back.", **LOCATION))
    log.positions = {ONE: 50}
    handler.handle(DataLossError("too short.", **LOCATION))
    assert handler.take_losses().skipped_offsets == {
        DataLossCause.AGED_OUT: {ONE: 40},
        DataLossCause.UNPROVEN_GAP: {ONE: 5},
        DataLossCause.TRUNCATED: {ONE: 0},
        DataLossCause.DELETED: {ONE: 0},
        DataLossCause.RECREATED: {ONE: 0},
        DataLossCause.BEYOND_END: {ONE: 0},
    }
    assert handler.take_losses().skipped_offsets == {}


def test_ids_of_recreated_topics() -> None:
    log = FakeLog()
    handler = log.handler()
    error = TopicRecreatedError("back.", **LOCATION)
    error.topic_id = UUID(int=7)
    log.error = BrokerTimeoutError("not now")
    handler.handle(error)
    assert handler.take_losses().recreated_topic_ids == {}, "the new topic is not read yet"
    log.error = None
    handler.handle(error)
    handler.handle(DataLossError("expired.", **LOCATION))
    assert handler.take_losses().recreated_topic_ids == {ONE: UUID(int=7)}
    assert handler.take_losses().recreated_topic_ids == {}


def test_the_lowest_reset_position_is_reported() -> None:
    log = FakeLog(0, 30)
    handler = log.handler()
    for end in (30, 10, 20):
        log.bounds = (0, end)
        handler.handle(DataLossError("truncated.", **LOCATION))
        log.positions = {ONE: 50}
    assert handler.take_losses().reset_positions == {ONE: 10}
