"""What batches have written, from the process that commits to whoever asks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.written import BatchWritten, PartitionWritten
from pyspark_kafka_direct.runtime.written_files import find, leave

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

A0 = TopicPartition("a", 0)


def written(query_id: str | None, batch_id: int | None, first: int, records: int) -> BatchWritten:
    return BatchWritten(query_id, batch_id, {A0: PartitionWritten(first, first + records, records, 10 * records)})


def test_each_batch_and_the_last_one(tmp_path: Path) -> None:
    batches = [written("q", number, 10 * number, 3) for number in range(12)]
    for batch in batches:
        leave(batch, "q", tmp_path)
    leave(written("other", 50, 0, 1), "other", tmp_path)
    assert [find(tmp_path, "q", number) for number in range(12)] == batches
    assert find(tmp_path, "q") == batches[11]
    assert find(tmp_path, "q", 12) is None
    assert find(tmp_path, "nobody") is None


def test_a_batch_that_writes_twice_is_put_together(tmp_path: Path) -> None:
    leave(written("q", 3, 10, 2), "q", tmp_path)
    leave(written("q", 3, 12, 5), "q", tmp_path)
    assert find(tmp_path, "q") == written("q", 3, 10, 7)


def test_of_batch_queries_the_last_one_counts(tmp_path: Path) -> None:
    for number in (1, 2):
        leave(written(None, None, number, 5), "", tmp_path)
        leave(written(None, None, number, 9), "night/load ☾", tmp_path)
    assert find(tmp_path, "") == written(None, None, 2, 5)
    assert find(tmp_path, "night/load ☾") == written(None, None, 2, 9)


def test_old_files_go(tmp_path: Path) -> None:
    for number in range(200):
        leave(written("q", number, number, 1), "q", tmp_path)
    assert len(list(tmp_path.iterdir())) == 64
    assert find(tmp_path, "q", 136) == written("q", 136, 136, 1)
    assert find(tmp_path, "q", 135) is None


def test_trouble_with_files_never_fails_a_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pyspark_kafka_direct.runtime"):
        leave(written("q", 1, 1, 1), "q", tmp_path / "gone")
        assert "can't be told to the monitor" in caplog.text
        leave(written("q", 1, 1, 1), "q", tmp_path)
        (file,) = tmp_path.iterdir()
        file.write_text("{")
        assert find(tmp_path, "q") is None
        assert file.name in caplog.text
