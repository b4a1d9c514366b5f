"""Staged record batches: they are read back completely or not at all."""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.producer.staged_pairs import Pair, encoded, frames, staged_pair

from pyspark_kafka_direct.datasource.write_task import StagingConfig
from pyspark_kafka_direct.errors import CorruptRecordError, KafkaDirectError, OptionError
from pyspark_kafka_direct.planning.commit_decision import BatchAttempt, Ticket
from pyspark_kafka_direct.producer import staging_location
from pyspark_kafka_direct.producer.staged_frames import StagedFile, StagedInline, decode_frames
from pyspark_kafka_direct.producer.staging import StagedBatches, StagingWriter
from pyspark_kafka_direct.producer.staging_location import (
    ORPHAN_RETENTION_SECONDS,
    SUPERSEDED_RETENTION_SECONDS,
    StagingLocation,
)
from pyspark_kafka_direct.records import EncodedBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

batches = st.builds(
    EncodedBatch,
    st.integers(0, 2**31 - 1),
    st.integers(1, 2**31 - 1),
    st.integers(0, 2**40),
    st.binary(max_size=300).map(encoded),
)
pairs = st.lists(st.tuples(st.text(min_size=1, max_size=20), batches), max_size=6)


def split_at(data: bytes, positions: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(data) + 1) for position in positions), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(pairs, st.lists(st.integers(0, 10_000), max_size=8))
def test_frames_are_decoded_from_chunks_of_any_size(expected: list[Pair], positions: list[int]) -> None:
    data = frames(expected)
    assert list(decode_frames(split_at(data, positions), len(data), "here")) == expected


@given(pairs.filter(bool), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_detected(expected: list[Pair], position: int, change: int) -> None:
    data = bytearray(frames(expected))
    data[position % len(data)] ^= change
    with pytest.raises(CorruptRecordError):
        list(decode_frames([bytes(data)], len(data), "here"))


@given(pairs.filter(bool), st.integers(1, 10_000))
def test_a_lost_end_is_detected(expected: list[Pair], lost: int) -> None:
    """Also if whole frames are lost."""
    data = frames(expected)
    with pytest.raises(CorruptRecordError, match="incomplete or damaged: here has"):
        list(decode_frames([data[: max(0, len(data) - lost)]], len(data), "here"))


def test_bytes_after_the_end_are_detected() -> None:
    data = frames([staged_pair(1)])
    with pytest.raises(CorruptRecordError):
        list(decode_frames([data + data], len(data), "here"))


def test_damage_is_detected_before_everything_is_in_memory() -> None:
    """The size field of a frame is four gigabytes, or a lot of data follows the end."""
    data = frames([staged_pair(1)])
    for damaged in (b"\xff" * 4 + data[4:], data):
        rest = iter([bytes(1 << 20)] * 50)
        with pytest.raises(CorruptRecordError, match="damaged"):
            list(decode_frames(itertools.chain([damaged], rest), len(data), "here"))
        assert len(list(rest)) >= 49


def test_small_batches_stay_in_the_message() -> None:
    writer = StagingWriter(1000, None)
    for number in range(3):
        writer.add(*staged_pair(number))
    staged = writer.finish()
    assert isinstance(staged, StagedInline)
    assert staged.records == 9
    assert len(staged.data) == staged.size <= 1000
    assert list(StagedBatches([staged], None)) == [staged_pair(0), staged_pair(1), staged_pair(2)]


def test_a_task_without_records_has_a_message() -> None:
    staged = StagingWriter(0, None).finish()
    assert staged.records == 0
    assert list(StagedBatches([staged, staged], None)) == []


@pytest.mark.parametrize("task", range(3))
def test_a_damaged_message_is_named(task: int) -> None:
    staged = [StagedInline(frames([staged_pair(number)]), 3) for number in range(3)]
    staged[task] = StagedInline(staged[task].data[:-1], 3)
    with pytest.raises(CorruptRecordError, match=f"the message of task {task} has"):
        list(StagedBatches(staged, None))


def test_more_than_the_threshold_requires_a_staging_location() -> None:
    writer = StagingWriter(300, None)
    writer.add(*staged_pair(0))
    writer.add(*staged_pair(1))
    with pytest.raises(OptionError, match=r"more than 300 bytes .*stagingThreshold.*stagingLocation"):
        writer.add(*staged_pair(2))


@pytest.fixture
def location(tmp_path: Path) -> StagingLocation:
    location = StagingLocation(str(tmp_path / "staging"), "p.sink", "run-1")
    location.prepare()
    return location


def files(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".staged"}


def staged_by(location: StagingLocation, name: str, *numbers: int) -> StagedFile:
    writer = StagingWriter(0, lambda: location.open_spill(name))
    for number in numbers:
        writer.add(*staged_pair(number))
    staged = writer.finish()
    assert isinstance(staged, StagedFile)
    return staged


def test_above_the_threshold_everything_is_in_a_file(location: StagingLocation, tmp_path: Path) -> None:
    writer = StagingWriter(300, lambda: location.open_spill("5-0-17"))
    for number in range(5):
        writer.add(*staged_pair(number))
    staged = writer.finish()
    assert isinstance(staged, StagedFile)
    assert files(tmp_path) == {"run-1.5-0-17.staged"}
    assert os.stat(staged.path).st_size == staged.size
    all_staged = StagedBatches([staged, StagedInline(frames([staged_pair(9)]), 3)], location)
    assert list(all_staged) == list(all_staged) == [staged_pair(number) for number in (0, 1, 2, 3, 4, 9)]
    assert (all_staged.records, all_staged.bytes) == (18, staged.size + len(frames([staged_pair(9)])))


@pytest.mark.parametrize("existing", [False, True])
def test_only_this_user_can_read_staged_records(tmp_path: Path, existing: bool) -> None:
    base = tmp_path / "staging"
    if existing:  # as an earlier version or an administrator created it
        (base / "p.sink").mkdir(parents=True, mode=0o755)
    umask = os.umask(0)
    try:
        location = StagingLocation(str(base), "p.sink", "run-1")
        location.prepare()
        staged = staged_by(location, "5-0-1", 1, 2)
    finally:
        os.umask(umask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (base / "p.sink").iterdir()}
    assert modes == {"driver.probe": 0o600, Path(staged.path).name: 0o600}
    assert (base / "p.sink").stat().st_mode & 0o777 == (0o755 if existing else 0o700)


@pytest.mark.parametrize("target_exists", [False, True])
def test_files_of_other_users_are_not_written(tmp_path: Path, target_exists: bool) -> None:
    """Another user who can write in the folder may guess the names of files."""
    folder = tmp_path / "staging" / "p.sink"
    folder.mkdir(parents=True)
    target = tmp_path / "target"
    if target_exists:
        target.write_bytes(b"")
    (folder / "driver.probe").symlink_to(target)
    location = StagingLocation(str(tmp_path / "staging"), "p.sink", "run-1")
    with pytest.raises(OptionError, match="cannot be written to"):
        location.prepare()
    assert not target.exists() or target.read_bytes() == b""
    (folder / "driver.probe").unlink()
    location.prepare()
    (folder / "run-1.5-0-1.staged").touch(mode=0o666)
    with pytest.raises(KafkaDirectError, match="File exists"):
        staged_by(location, "5-0-1", 1)


def test_a_failed_attempt_leaves_no_file(location: StagingLocation, tmp_path: Path) -> None:
    writer = StagingWriter(0, lambda: location.open_spill("5-0-17"))
    writer.add(*staged_pair(0))
    assert len(files(tmp_path)) == 1
    writer.abort()
    assert files(tmp_path) == set()
    StagingWriter(0, None).abort()


def test_only_files_named_by_messages_are_deleted(location: StagingLocation, tmp_path: Path) -> None:
    first, other = staged_by(location, "5-0-1", 0), staged_by(location, "5-0-2", 1)
    StagedBatches([first, StagedInline(b"", 0)], location).delete()
    assert files(tmp_path) == {"run-1.5-0-2.staged"}
    StagedBatches([first], location).delete()  # once more does no harm
    assert list(StagedBatches([other], location)) == [staged_pair(1)]


def test_a_missing_truncated_or_changed_file_is_an_error(location: StagingLocation) -> None:
    missing, truncated, changed = (staged_by(location, f"5-{number}-1", number, number) for number in range(3))
    os.remove(missing.path)
    os.truncate(truncated.path, truncated.size // 2)
    content = bytearray(Path(changed.path).read_bytes())
    content[-1] ^= 1
    Path(changed.path).write_bytes(content)
    with pytest.raises(CorruptRecordError, match="Staged records are missing"):
        list(StagedBatches([missing], location))
    for each in (truncated, changed):
        with pytest.raises(CorruptRecordError):
            list(StagedBatches([each], location))


def test_an_executor_with_another_folder_is_detected(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    probe = StagingLocation(str(there), "p.sink", "run-1").prepare()
    StagingLocation(str(there), "p.sink", "run-2", probe).open_spill("5-0-1").abort()
    with pytest.raises(OptionError, match="not the same folder on this executor and on the driver"):
        StagingLocation(str(here), "p.sink", "run-1", probe).open_spill("5-0-1")
    StagingLocation(str(here), "p.sink", "run-1").prepare()  # as its driver did once
    with pytest.raises(OptionError, match="not the same folder on this executor and on the driver"):
        StagingLocation(str(here), "p.sink", "run-1", probe).open_spill("5-0-1")


def test_a_folder_retains_its_probe(tmp_path: Path) -> None:
    probes = {StagingLocation(str(tmp_path), "p.sink", run).prepare() for run in ("run-1", "run-2")}
    assert len(probes) == 1


def test_two_drivers_that_create_the_probe_at_once_use_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one looked for it before the first one wrote it: jobs of one prefix may start together."""
    first, second = (StagingLocation(str(tmp_path), "p.sink", run) for run in ("run-1", "run-2"))
    probe = first.prepare()
    reads: list[str | None] = [None]
    read_probe = second._read_probe
    monkeypatch.setattr(second, "_read_probe", lambda: reads.pop() if reads else read_probe())
    assert second.prepare() == probe
    first.check()


def test_a_probe_that_a_killed_driver_left_empty_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "p.sink"
    folder.mkdir()
    (folder / "driver.probe").touch()
    system = FakeTimeSystem()
    location = StagingLocation(str(tmp_path), "p.sink", "run-1")
    assert location.prepare(system) == (folder / "driver.probe").read_text() != ""
    assert sum(system.slept) == pytest.approx(1.0)
    location.check()


def test_an_unusable_location_is_rejected_at_the_start(tmp_path: Path) -> None:
    for bad in ("relative/path", "nosuch://bucket/x"):
        with pytest.raises(OptionError, match="stagingLocation"):
            StagingLocation(bad, "p.sink", "run-1")
    blocked = tmp_path / "a-file"
    blocked.write_bytes(b"")
    with pytest.raises(OptionError, match="cannot be written to"):
        StagingLocation(str(blocked), "p.sink", "run-1").prepare()


def test_special_characters_in_names_are_escaped(tmp_path: Path) -> None:
    for run in ("job.1", "job/1", "../job", "job 1"):
        location = StagingLocation(str(tmp_path), "../a/b", run)
        location.prepare()
        assert list(StagedBatches([staged_by(location, "0-0-1", 1)], location)) == [staged_pair(1)]
    assert len(files(tmp_path)) == 4
    assert {path.parent for path in tmp_path.rglob("*.staged")} == {tmp_path / "..%2Fa%2Fb"}


def age(path: str | Path, seconds: float, now: float) -> None:
    os.utime(path, (now - seconds, now - seconds))


def test_old_files_are_deleted_by_age_and_run(tmp_path: Path) -> None:
    system = FakeTimeSystem(now=2_000_000_000.0)
    expected_files: set[str] = set()
    for run in ("run-0", "run-1", "run.2", "run-x"):
        location = StagingLocation(str(tmp_path), "p.sink", run)
        location.prepare()
        for name, seconds in (
            ("new", 60.0),
            ("old", SUPERSEDED_RETENTION_SECONDS + 60),
            ("older", ORPHAN_RETENTION_SECONDS + 60),
        ):
            age(staged_by(location, name, 1).path, seconds, system.now)
            if name == "new" or (name == "old" and run == "run.2"):
                expected_files.add(f"{run.replace('.', '%2E')}.{name}.staged")
    foreign = tmp_path / "p.sink" / "not-ours.txt"
    foreign.write_bytes(b"")
    age(foreign, ORPHAN_RETENTION_SECONDS * 2, system.now)
    other = StagingLocation(str(tmp_path), "q.sink", "run-0")
    other.prepare()
    age(staged_by(other, "older", 1).path, ORPHAN_RETENTION_SECONDS * 2, system.now)
    (probe,) = (tmp_path / "p.sink").glob("*.probe")
    age(probe, ORPHAN_RETENTION_SECONDS * 2, system.now)
    here = StagingLocation(str(tmp_path), "p.sink", "run.2", probe.read_text())
    assert here.delete_expired(system, committed_batch=0, other_runs_ended=True) == 7
    assert files(tmp_path / "p.sink") == expected_files
    assert files(tmp_path / "q.sink") == {"run-0.older.staged"}
    assert foreign.exists()
    here.check()
    nothing = StagingLocation(str(tmp_path / "nothing"), "p.sink", "r")
    assert nothing.delete_expired(system, committed_batch=0, other_runs_ended=True) == 0


def test_files_of_runs_that_may_commit_are_deleted_after_a_week(tmp_path: Path) -> None:
    system = FakeTimeSystem(now=2_000_000_000.0)
    here, other = (StagingLocation(str(tmp_path), "p.sink", run) for run in ("run-1", "run-2"))
    here.prepare()
    other.prepare()
    age(staged_by(other, "0-old", 1).path, SUPERSEDED_RETENTION_SECONDS + 60, system.now)
    age(staged_by(other, "0-older", 1).path, ORPHAN_RETENTION_SECONDS + 60, system.now)
    assert here.delete_expired(system, committed_batch=0, other_runs_ended=False) == 1
    assert files(tmp_path) == {"run-2.0-old.staged"}


def test_files_of_earlier_batches_of_the_run_are_deleted_at_once(tmp_path: Path) -> None:
    """Those of failed and killed attempts, which no message names."""
    location = StagingLocation(str(tmp_path), "p.sink", "run-1")
    location.prepare()
    for batch in (6, 7, 8, 10):
        staged_by(location, f"{batch}-0-0-nonce", 1)
    other = StagingLocation(str(tmp_path), "p.sink", "run-2")
    other.prepare()
    staged_by(other, "6-0-0-nonce", 1)
    system = FakeTimeSystem(now=(tmp_path / "p.sink" / "run-1.6-0-0-nonce.staged").stat().st_mtime + 1)
    assert location.delete_expired(system, committed_batch=8, other_runs_ended=True) == 2
    assert files(tmp_path) == {f"run-1.{batch}-0-0-nonce.staged" for batch in (8, 10)} | {"run-2.6-0-0-nonce.staged"}


@pytest.mark.parametrize(
    "uri",
    [
        "s3://ACCESS:se%2Fcret@bucket/x?unknown=se%2Fcret",
        "s3://ACCESS:se/cret@bucket/x",
        "s3://ACCESS:cret@[bad/x",
        "abfss://container@account.dfs.core.windows.net/x?sig=cret&unknown",
        "nosuch://bucket/x?token=cret",
        "nosuch://ACCESS:se\\cret@bucket/x",
    ],
)
def test_errors_have_no_secrets_of_the_uri(uri: str) -> None:
    with pytest.raises(OptionError, match="cannot be opened") as caught:
        StagingLocation(uri, "p.sink", "run-1")
    assert "cret" not in str(caught.value)
    assert uri.partition(":")[0] in str(caught.value)


@pytest.mark.parametrize("uri", ["s3://ACCESS:cret@bucket/x", "s3://ACCESS:se\\cret@bucket/x"])
def test_errors_of_files_have_no_secrets_of_the_uri(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``repr`` doubles a backslash."""

    class BrokenFiles:
        def __getattr__(self, _: str) -> Any:
            raise OSError(f"HTTP 403 for {uri}")

    monkeypatch.setattr(staging_location, "open_file_system", lambda *_, **__: (BrokenFiles(), "bucket/x"))
    location = StagingLocation(uri, "p.sink", "run-1")
    missing = StagedFile("x", 1, 1)
    errors: list[KafkaDirectError] = []
    for use in (
        location.prepare,
        location.check,
        lambda: list(StagedBatches([missing], location)),
    ):
        with pytest.raises(KafkaDirectError, match="bucket") as caught:
            use()
        errors.append(caught.value)
    monkeypatch.setattr(location, "check", lambda: None)
    with pytest.raises(KafkaDirectError, match="bucket") as caught:
        location.open_spill("5-0-1")
    for error in [*errors, caught.value]:
        assert "cret" not in str(error)


def test_files_of_jobs_are_not_deleted_by_a_query_with_the_prefix(tmp_path: Path) -> None:
    """A job may run for hours, and commits all its files at its end."""
    system = FakeTimeSystem(now=2_000_000_000.0)
    staging = StagingConfig("p.sink", 0, str(tmp_path))
    ticket = Ticket("id", 1)
    query = staging.open(BatchAttempt("stream", "query", "run-1", 7, ticket))
    assert query is not None
    staging = dataclasses.replace(staging, probe=query.prepare())
    job = staging.open(BatchAttempt.of_job("monday", ticket))
    assert job is not None
    staged = staged_by(job, "0-0-0-nonce", 1)
    age(staged.path, SUPERSEDED_RETENTION_SECONDS + 60, system.now)
    assert query.delete_expired(system, committed_batch=7, other_runs_ended=True) == 0
    assert list(StagedBatches([staged], job)) == [staged_pair(1)]
    age(staged.path, ORPHAN_RETENTION_SECONDS + 60, system.now)
    assert query.delete_expired(system, committed_batch=7, other_runs_ended=True) == 1


def test_a_file_with_an_undecodable_name_does_not_fail_a_committed_batch(
    location: StagingLocation, tmp_path: Path
) -> None:
    (Path(os.fsdecode(tmp_path)) / "staging" / "p.sink" / os.fsdecode(b"\xff.staged")).touch()
    assert location.delete_expired(FakeTimeSystem(), committed_batch=8, other_runs_ended=True) == 0
