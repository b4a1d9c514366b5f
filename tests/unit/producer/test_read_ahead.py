"""Staged files are read ahead, several ranges at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.producer.staged_pairs import frames, staged_pair

from pyspark_kafka_direct.errors import CorruptRecordError, KafkaDirectError
from pyspark_kafka_direct.producer import staging_location
from pyspark_kafka_direct.producer.staged_frames import StagedFile, StagedInline
from pyspark_kafka_direct.producer.staging import StagedBatches
from pyspark_kafka_direct.producer.staging_location import StagingLocation

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.producer.staged_pairs import Pair

DEADLINE = 120.0  # seconds
RANGE = 8 << 20


class SlowStore:
    """A file system in which a read waits until enough of them are in flight."""

    def __init__(self, files: dict[str, bytes], at_once: int = 1) -> None:
        self.files = files
        self.at_once = at_once
        self.in_flight = 0
        self.most_in_flight = 0
        self.started: list[tuple[str, int, int]] = []
        self.changed = threading.Condition()
        self.is_open = True

    def open_input_file(self, path: str) -> SlowFile:
        return SlowFile(self, path)

    def read(self, path: str, size: int, offset: int) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        if offset >= len(self.files[path]):
            return b""
        with self.changed:
            self.started.append((path, offset, size))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.is_open and self.most_in_flight >= self.at_once, DEADLINE)
            self.in_flight -= 1
        return self.files[path][offset : offset + size]

    def wait_for_reads(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.started) >= count, DEADLINE), self.started


class SlowFile:
    def __init__(self, store: SlowStore, path: str) -> None:
        self._store = store
        self._path = path
        self._offset = 0

    def seek(self, offset: int) -> None:
        self._offset = offset

    def readinto(self, target: memoryview) -> int:
        data = self._store.read(self._path, len(target), self._offset)
        target[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def __enter__(self) -> SlowFile:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def batches_in(store: Any, staged: list[StagedFile | StagedInline], timeout: float = DEADLINE) -> StagedBatches:
    location = StagingLocation("/unused", "p.sink", "run")
    location._files = store
    return StagedBatches(staged, location, timeout)


@pytest.fixture
def large() -> tuple[dict[str, bytes], list[StagedFile | StagedInline], list[Pair]]:
    """Two files of several ranges, with small batches between them in a message, and 20 small files."""
    pairs = [
        [staged_pair(number, 3 << 20) for number in range(20)],
        [staged_pair(number, 1 << 20) for number in range(40)],
    ]
    pairs += [[staged_pair(number, 100)] for number in range(20)]
    files = {f"file-{number}": frames(each) for number, each in enumerate(pairs)}
    staged: list[StagedFile | StagedInline] = [StagedFile(path, len(content), 3) for path, content in files.items()]
    inline = [staged_pair(77, 10)]
    staged.insert(1, StagedInline(frames(inline), 3))
    expected = [*pairs[0], *inline, *(each for file in pairs[1:] for each in file)]
    return files, staged, expected


def test_eight_ranges_are_read_at_once_and_returned_in_order(large: Any) -> None:
    files, staged, expected = large
    store = SlowStore(files, at_once=8)
    batches = batches_in(store, staged)
    assert list(batches) == expected
    assert store.most_in_flight == 8
    assert max(size for _, _, size in store.started) == RANGE
    assert sum(size for _, _, size in store.started) == sum(map(len, files.values()))
    assert list(batches) == expected  # for another attempt


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(10, 900), max_size=4), min_size=1, max_size=8), st.integers(100, 700))
def test_files_of_any_sizes_are_read_in_ranges(sizes: list[list[int]], range_bytes: int) -> None:
    pairs = [[staged_pair(number, size) for number, size in enumerate(file)] for file in sizes]
    files = {f"file-{number}": frames(each) for number, each in enumerate(pairs)}
    staged: list[StagedFile | StagedInline] = [StagedFile(path, len(content), 3) for path, content in files.items()]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(staging_location, "_RANGE_BYTES", range_bytes)
        patched.setattr(staging_location, "_RANGES", 3)
        batches = batches_in(SlowStore(files), staged)
        for _ in range(2):
            assert list(batches) == [pair for file in pairs for pair in file]


def test_reading_starts_before_the_first_batch_is_needed(large: Any) -> None:
    files, staged, expected = large
    store = SlowStore(files)
    batches = batches_in(store, staged)
    batches.start_reading()
    store.wait_for_reads(8)
    assert list(batches) == expected
    assert len(store.started) == len(set(store.started))


def test_no_more_than_eight_ranges_are_in_memory(large: Any) -> None:
    files, staged, _ = large
    store = SlowStore(files)
    batches = batches_in(store, staged)
    iterator = iter(batches)
    next(iterator)
    store.wait_for_reads(9)  # the first one is decoded
    next(iterator)
    assert len(store.started) == 9


def test_a_missing_file_and_a_short_file_are_errors() -> None:
    content = frames([staged_pair(1, 100), staged_pair(2, 100)])
    missing = batches_in(SlowStore({}), [StagedFile("a", 10, 1)])
    with pytest.raises(CorruptRecordError, match="Staged records are missing"):
        list(missing)
    short = batches_in(SlowStore({"a": content[:-1]}), [StagedFile("a", len(content), 1)])
    with pytest.raises(CorruptRecordError, match="incomplete"):
        list(short)


def test_a_store_that_does_not_respond_is_an_error() -> None:
    store = SlowStore({"a": frames([staged_pair(1, 100)])})
    store.is_open = False
    with pytest.raises(KafkaDirectError, match=r"cannot be read: no response within 0\.05 s .*delivery\.timeout\.ms"):
        list(batches_in(store, [StagedFile("a", len(store.files["a"]), 1)], timeout=0.05))
    with store.changed:
        store.is_open = True
        store.changed.notify_all()


def test_files_of_a_local_file_system(tmp_path: Path) -> None:
    pairs = [staged_pair(number, 5 << 20) for number in range(5)]
    path = tmp_path / "staged"
    path.write_bytes(frames(pairs))
    location = StagingLocation(str(tmp_path), "p.sink", "run")
    size = path.stat().st_size
    assert list(StagedBatches([StagedFile(str(path), size, 1)], location, DEADLINE)) == pairs
