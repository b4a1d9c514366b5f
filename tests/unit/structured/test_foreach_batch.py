"""The helper of ``foreachBatch``: where it writes, and where it refuses to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.structured.foreach_batch import foreach_batch_writer

ONCE = {"delivery": "exactly-once", "transactionalIdPrefix": "shop"}


class Frame:
    """A frame that only counts how often it was saved.

    Args:
        session: Its session.
    """

    def __init__(self, session: object) -> None:
        self.sparkSession = session
        self.saved = 0

    @property
    def write(self) -> Frame:
        return self

    def format(self, name: str) -> Frame:
        assert name == "kafka-direct"
        return self

    def options(self, **_: str) -> Frame:
        return self

    def mode(self, name: str) -> Frame:
        assert name == "append"
        return self

    def save(self) -> None:
        self.saved += 1


def thread_of(batch: str | None) -> Frame:
    """Return a frame whose thread belongs to a batch, or to none."""
    context = SimpleNamespace(getLocalProperty={"streaming.sql.batchId": batch}.get)
    return Frame(SimpleNamespace(sparkContext=context))


def over_connect() -> Frame:
    return Frame(SimpleNamespace())


def write(frame: Any, **options: str) -> None:
    foreach_batch_writer({"kafka.bootstrap.servers": "b:1", **options})(frame, 7)


def test_exactly_once_is_written_in_the_thread_of_the_batch() -> None:
    frame = thread_of("7")
    write(frame, **ONCE)
    assert frame.saved == 1


@pytest.mark.parametrize(("found", "words"), [(None, "no batch"), ("6", "batch 6")])
def test_exactly_once_is_refused_in_another_thread(found: str | None, words: str) -> None:
    """Its tasks do not know the batch: the write would be a job of its own, and be done again after a restart."""
    frame = thread_of(found)
    with pytest.raises(OptionError, match=f"batch 7 is written in a thread that belongs to {words}"):
        write(frame, **ONCE)
    assert frame.saved == 0


def test_exactly_once_is_refused_over_spark_connect() -> None:
    frame = over_connect()
    with pytest.raises(OptionError, match="cannot be used in foreachBatch over Spark Connect"):
        write(frame, **ONCE)
    assert frame.saved == 0


@pytest.mark.parametrize("frame", [thread_of(None), over_connect()])
def test_at_least_once_is_written_anywhere(frame: Frame) -> None:
    write(frame)
    assert frame.saved == 1
