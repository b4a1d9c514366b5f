"""Where a task goes on when records are gone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from pyspark_kafka_direct.continuous._losses import Losses, go_on_at
from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    DataLossError,
    TopicNotFoundError,
    TopicRecreatedError,
    TruncatedError,
)
from pyspark_kafka_direct.offsets import EARLIEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.wire.cluster import Cluster

ONE = TopicPartition("t", 0)
PLACE: Any = {"topic": "t", "partition": 0, "offset": 50}


class World:
    """A tail at 50, and a cluster that tells what the log holds."""

    def __init__(self, start: int = 0, end: int = 100, trouble: Exception | None = None) -> None:
        self.positions = {ONE: 50}
        self.log = (start, end)
        self.trouble = trouble

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def deadline(self, seconds: float) -> float:
        return seconds

    def offsets(self, wanted: Mapping[TopicPartition, int], *, deadline: float) -> dict[TopicPartition, int]:
        assert deadline <= 10
        if self.trouble is not None:
            raise self.trouble
        return {each: self.log[0] if position == EARLIEST else self.log[1] for each, position in wanted.items()}

    def losses(self, *, fail: bool = False) -> Losses:
        return Losses(self, cast("Cluster", self), fail_on_data_loss=fail)


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
        "aged out",
        "all aged out",
        "beyond the end",
        "there again",
        "cut before",
        "cut and grown",
        "cut and aged out",
        "created again",
        "created again and aged out",
    ],
)
def test_where_it_goes_on(
    kind: type[DataLossError], start: int, end: int, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    error = kind("what has happened.", **PLACE)
    assert go_on_at(error, 50, start, end) == offset
    world = World(start, end)
    losses = world.losses()
    with caplog.at_level(logging.WARNING):
        losses.after(error)
    assert world.positions == {ONE: offset}
    assert losses.take_sought() == ({ONE: offset} if offset < 50 else {})
    assert losses.take_sought() == {}
    (warning,) = caplog.messages
    assert warning == (
        f"data loss: what has happened. Reading goes on at offset {offset} of t-0 (failOnDataLoss=false)"
    )


@pytest.mark.parametrize("kind", [DataLossError, TruncatedError, TopicRecreatedError, TopicNotFoundError])
def test_it_fails_where_the_user_wants(kind: type[DataLossError]) -> None:
    world = World()
    error = kind("what has happened.", **PLACE)
    with pytest.raises(DataLossError, match=r"what has happened. Set failOnDataLoss=false to go on") as caught:
        world.losses(fail=True).after(error)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 50)
    assert caught.value.__cause__ is error
    assert world.positions == {ONE: 50}


def test_a_topic_that_is_gone_is_told_once_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    losses = World().losses()
    gone, back = TopicNotFoundError("gone.", **PLACE), TopicRecreatedError("back.", **PLACE)
    for error in (gone, gone, back, gone):
        losses.after(error)
    assert [each[11:16] for each in caplog.messages] == ["gone.", "back.", "gone."]


def test_a_cluster_that_cannot_be_asked_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World(70, trouble=BrokerTimeoutError("not now"))
    losses = world.losses()
    losses.after(DataLossError("gone.", **PLACE))
    assert (world.positions, caplog.messages) == ({ONE: 50}, [])
    world.trouble = None
    losses.after(DataLossError("gone.", **PLACE))
    assert world.positions == {ONE: 70}


def test_a_topic_that_is_deleted_while_its_log_is_looked_up_is_asked_for_again() -> None:
    world = World(70, trouble=TopicNotFoundError("gone.", **PLACE))
    world.losses().after(DataLossError("aged out.", **PLACE))
    assert world.positions == {ONE: 50}


def test_which_topic_is_read_since_it_was_created_anew() -> None:
    world = World()
    losses = world.losses()
    error = TopicRecreatedError("back.", **PLACE)
    error.topic_id = UUID(int=7)
    world.trouble = BrokerTimeoutError("not now")
    losses.after(error)
    assert losses.take_anew() == {}, "it is not read yet"
    world.trouble = None
    losses.after(error)
    losses.after(DataLossError("aged out.", **PLACE))
    assert losses.take_anew() == {ONE: UUID(int=7)}
    assert losses.take_anew() == {}


def test_the_lowest_of_several_is_told() -> None:
    world = World(0, 30)
    losses = world.losses()
    for end in (30, 10, 20):
        world.log = (0, end)
        losses.after(DataLossError("cut.", **PLACE))
        world.positions = {ONE: 50}
    assert losses.take_sought() == {ONE: 10}
