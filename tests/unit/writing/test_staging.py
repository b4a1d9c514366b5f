"""Staged record batches: what is kept comes back whole, or not at all."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import CorruptRecordError, OptionError
from pyspark_kafka_direct.records import EncodedBatch
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.wire.cluster import Cluster
from pyspark_kafka_direct.writing._frames import Sum, frame, frames
from pyspark_kafka_direct.writing._staging_files import AGE_OF_OTHERS, AGE_OF_SUPERSEDED, FileLocation
from pyspark_kafka_direct.writing._staging_topic import TopicLocation
from pyspark_kafka_direct.writing.staging import InFile, Inline, StagedBatches, Stager
from pyspark_kafka_direct.writing.staging_location import open_location

if TYPE_CHECKING:
    from collections.abc import Iterable

Pair = tuple[str, EncodedBatch]

batches = st.builds(
    EncodedBatch,
    st.integers(0, 2**31 - 1),
    st.integers(1, 2**31 - 1),
    st.integers(0, 2**40),
    st.binary(max_size=300).map(bytearray),
)
pairs = st.lists(st.tuples(st.text(min_size=1, max_size=20), batches), max_size=6)


def made(number: int, size: int = 100) -> Pair:
    return "flights", EncodedBatch(number, 3, size, bytearray(bytes([number]) * size))


def sum_of(framed: Iterable[bytes]) -> Sum:
    total = Sum()
    for each in framed:
        total = total.add(each)
    return total


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(pairs, st.lists(st.integers(0, 10_000), max_size=8))
def test_frames_come_back_however_the_bytes_are_cut(wanted: list[Pair], places: list[int]) -> None:
    framed = [frame(*each) for each in wanted]
    assert list(frames(cut(b"".join(framed), places), sum_of(framed), "here")) == wanted


@given(pairs.filter(bool), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_seen(wanted: list[Pair], place: int, change: int) -> None:
    framed = [frame(*each) for each in wanted]
    data = bytearray(b"".join(framed))
    data[place % len(data)] ^= change
    with pytest.raises(CorruptRecordError):
        list(frames([bytes(data)], sum_of(framed), "here"))


@given(pairs.filter(bool), st.integers(1, 10_000))
def test_a_lost_end_is_seen(wanted: list[Pair], lost: int) -> None:
    """Also one that loses whole frames."""
    framed = [frame(*each) for each in wanted]
    data = b"".join(framed)
    with pytest.raises(CorruptRecordError, match="incomplete or damaged: here has"):
        list(frames([data[: max(0, len(data) - lost)]], sum_of(framed), "here"))


def test_a_frame_in_the_place_of_another_is_seen() -> None:
    first, second = frame(*made(1)), frame(*made(2))
    for damaged in (second + first, first + first):
        with pytest.raises(CorruptRecordError, match="incomplete or damaged: here has"):
            list(frames([damaged], sum_of([first, second]), "here"))


def test_bytes_behind_the_end_are_seen() -> None:
    data = frame(*made(1))
    with pytest.raises(CorruptRecordError):
        list(frames([data + data], sum_of([data]), "here"))


def test_damage_is_seen_before_all_is_in_memory() -> None:
    """The size of a frame says four gigabytes, or much comes behind the end."""
    data = frame(*made(1))
    for damaged in (b"\xff" * 4 + data[4:], data):
        rest = iter([bytes(1 << 20)] * 50)
        with pytest.raises(CorruptRecordError, match="damaged"):
            list(frames(itertools.chain([damaged], rest), sum_of([data]), "here"))
        assert len(list(rest)) >= 49


def test_small_batches_stay_in_the_message() -> None:
    stager = Stager(1000, None)
    for number in range(3):
        stager.add(*made(number))
    staged = stager.finish()
    assert isinstance(staged, Inline)
    assert staged.records == 9
    assert len(staged.data) == staged.sum.size <= 1000
    assert list(StagedBatches([staged], None)) == [made(0), made(1), made(2)]


def test_nothing_staged_is_a_message_too() -> None:
    staged = Stager(0, None).finish()
    assert staged.records == 0
    assert list(StagedBatches([staged, staged], None)) == []


def test_more_than_the_threshold_needs_another_place() -> None:
    stager = Stager(300, None)
    stager.add(*made(0))
    stager.add(*made(1))
    with pytest.raises(OptionError, match=r"more than 300 bytes .*stagingThreshold.*stagingLocation"):
        stager.add(*made(2))


@pytest.fixture
def location(tmp_path: Path) -> FileLocation:
    made = FileLocation(str(tmp_path / "staging"), "p.sink", "run-1")
    made.prepare()
    return made


def files(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".staged"}


def staged_by(location: FileLocation, name: str, *numbers: int) -> InFile:
    stager = Stager(0, lambda: location.spill(name))
    for number in numbers:
        stager.add(*made(number))
    staged = stager.finish()
    assert isinstance(staged, InFile)
    return staged


def test_beyond_the_threshold_all_is_in_a_file(location: FileLocation, tmp_path: Path) -> None:
    stager = Stager(300, lambda: location.spill("5-0-17"))
    for number in range(5):
        stager.add(*made(number))
    staged = stager.finish()
    assert isinstance(staged, InFile)
    assert files(tmp_path) == {"run-1.5-0-17.staged"}
    assert os.stat(staged.path).st_size == staged.sum.size
    found = StagedBatches([staged, Inline(frame(*made(9)), sum_of([frame(*made(9))]), 3)], location)
    assert list(found) == list(found) == [made(number) for number in (0, 1, 2, 3, 4, 9)]
    assert (found.records, found.bytes) == (18, staged.sum.size + len(frame(*made(9))))


def test_an_attempt_that_failed_leaves_no_file(location: FileLocation, tmp_path: Path) -> None:
    stager = Stager(0, lambda: location.spill("5-0-17"))
    stager.add(*made(0))
    assert len(files(tmp_path)) == 1
    stager.abandon()
    assert files(tmp_path) == set()
    Stager(0, None).abandon()


def test_only_what_messages_name_is_discarded(location: FileLocation, tmp_path: Path) -> None:
    first, other = staged_by(location, "5-0-1", 0), staged_by(location, "5-0-2", 1)
    StagedBatches([first, Inline(b"", Sum(), 0)], location).discard()
    assert files(tmp_path) == {"run-1.5-0-2.staged"}
    StagedBatches([first], location).discard()  # once more does no harm
    assert list(StagedBatches([other], location)) == [made(1)]


def test_a_file_that_is_gone_cut_or_changed_is_an_error(location: FileLocation) -> None:
    gone, short, changed = (staged_by(location, f"5-{number}-1", number, number) for number in range(3))
    os.remove(gone.path)
    os.truncate(short.path, short.sum.size // 2)
    content = bytearray(Path(changed.path).read_bytes())
    content[-1] ^= 1
    Path(changed.path).write_bytes(content)
    with pytest.raises(CorruptRecordError, match="not there any more"):
        list(location.read(gone))
    for each in (short, changed):
        with pytest.raises(CorruptRecordError):
            list(location.read(each))


def test_an_executor_that_sees_another_folder_is_told_so(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    probe = FileLocation(str(there), "p.sink", "run-1").prepare()
    FileLocation(str(there), "p.sink", "run-2", probe).spill("5-0-1").abandon()
    with pytest.raises(OptionError, match="not the folder that the driver sees"):
        FileLocation(str(here), "p.sink", "run-1", probe).spill("5-0-1")
    FileLocation(str(here), "p.sink", "run-1").prepare()  # as its driver did once
    with pytest.raises(OptionError, match="not the folder that the driver sees"):
        FileLocation(str(here), "p.sink", "run-1", probe).spill("5-0-1")


def test_a_folder_keeps_its_probe(tmp_path: Path) -> None:
    probes = {FileLocation(str(tmp_path), "p.sink", run).prepare() for run in ("run-1", "run-2")}
    assert len(probes) == 1


def test_a_location_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    for bad in ("relative/path", "nosuch://bucket/x"):
        with pytest.raises(OptionError, match="stagingLocation"):
            FileLocation(bad, "p.sink", "run-1")
    blocked = tmp_path / "a-file"
    blocked.write_bytes(b"")
    with pytest.raises(OptionError, match="cannot be written to"):
        FileLocation(str(blocked), "p.sink", "run-1").prepare()


def test_names_of_all_kinds_are_kept_apart(tmp_path: Path) -> None:
    for run in ("job.1", "job/1", "../job", "job 1"):
        location = FileLocation(str(tmp_path), "../a/b", run)
        location.prepare()
        assert list(location.read(staged_by(location, "0-0-1", 1))) == [made(1)]
    assert len(files(tmp_path)) == 4
    assert {path.parent for path in tmp_path.rglob("*.staged")} == {tmp_path / "..%2Fa%2Fb"}


def age(path: str | Path, seconds: float, now: float) -> None:
    os.utime(path, (now - seconds, now - seconds))


def test_a_sweep_goes_by_age_and_spares_other_runs(tmp_path: Path) -> None:
    system = Frozen(now=2_000_000_000.0)
    kept: set[str] = set()
    for run in ("run-0", "run-1", "run-2", "run-x"):
        location = FileLocation(str(tmp_path), "p.sink", run)
        location.prepare()
        for name, seconds in (("new", 60.0), ("old", AGE_OF_SUPERSEDED + 60), ("older", AGE_OF_OTHERS + 60)):
            age(staged_by(location, name, 1).path, seconds, system.now)
            if name == "new" or (name == "old" and run in ("run-2", "run-x")):
                kept.add(f"{run}.{name}.staged")
    foreign = tmp_path / "p.sink" / "not-ours.txt"
    foreign.write_bytes(b"")
    age(foreign, AGE_OF_OTHERS * 2, system.now)
    other = FileLocation(str(tmp_path), "q.sink", "run-0")
    other.prepare()
    age(staged_by(other, "older", 1).path, AGE_OF_OTHERS * 2, system.now)
    (probe,) = (tmp_path / "p.sink").glob("*.probe")
    age(probe, AGE_OF_OTHERS * 2, system.now)
    here = FileLocation(str(tmp_path), "p.sink", "run-2", probe.read_text())
    assert here.sweep(("run-0", "run-1", "run-2"), system) == 6
    assert files(tmp_path / "p.sink") == kept
    assert files(tmp_path / "q.sink") == {"run-0.older.staged"}
    assert foreign.exists()
    here.check()
    assert FileLocation(str(tmp_path / "nothing"), "p.sink", "r").sweep((), system) == 0


def test_what_the_option_names() -> None:
    cluster = Cluster(ConnectionSettings((("h", 1),)))
    found = open_location("topic:staging", cluster, transactional_id="p.sink", run="r")
    assert isinstance(found, TopicLocation)
    assert found.topic == "staging"
    assert isinstance(open_location("/tmp/x", cluster, transactional_id="p.sink", run="r"), FileLocation)
    assert isinstance(open_location("file:///tmp/x", cluster, transactional_id="p.sink", run="r"), FileLocation)
    with pytest.raises(OptionError, match="topic:NAME"):
        open_location("topic:", cluster, transactional_id="p.sink", run="r")
