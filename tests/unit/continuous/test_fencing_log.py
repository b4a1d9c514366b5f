"""The fencing log in a fake file system: successors, and concurrent drivers."""

from __future__ import annotations

import json

import pytest
from tests.unit.continuous.test_checkpoint_logs import FakeFileManager, open_logs_on, prepare_at_least_once

from pyspark_kafka_direct.continuous.fencing_log import FencingLog
from pyspark_kafka_direct.errors import CheckpointFencedError, InvalidOffsetsError, OptionError


class ReversedFiles(FakeFileManager):
    """Lists the newest file first: the order of a folder is not defined."""

    def list_names(self, folder: str) -> list[str]:
        return super().list_names(folder)[::-1]


def test_an_entry_counts_all_transactional_ids_ever_used() -> None:
    disk = ReversedFiles()
    own = FencingLog(disk, "me")
    assert own.append("c", "p", 4).tasks == 4
    assert own.append("c", "p", 2).tasks == 4
    assert FencingLog(disk, "other").append("c", "p", 6).tasks == 6
    assert FencingLog(disk, "third").append("c", "p", 1).tasks == 6
    entry = json.loads(disk.files["transactions/3"])
    assert {name: entry[name] for name in ("v", "driver", "cluster", "prefix", "tasks", "recovered")} == {
        "v": 1,
        "driver": "third",
        "cluster": "c",
        "prefix": "p",
        "tasks": 6,
        "recovered": False,
    }
    assert sorted(disk.files) == ["transactions/2", "transactions/3"], "older entries are removed"


def test_a_fenced_driver_cannot_append() -> None:
    disk = FakeFileManager()
    first, second = FencingLog(disk, "one"), FencingLog(disk, "two")
    first.append("c", "p", 1)
    for _ in range(3):
        second.append("c", "p", 1)
        before = dict(disk.files)
        with pytest.raises(
            CheckpointFencedError, match=r"disk:/transactions: process \d+ on host .* has taken control"
        ):
            first.append("c", "p", 1)
        with pytest.raises(CheckpointFencedError):
            first.record_recovery()
        assert disk.files == before


def test_one_of_two_concurrent_drivers_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeFileManager()
    FencingLog(disk, "before").append("c", "p", 1)
    first, second = FencingLog(disk, "one"), FencingLog(disk, "two")
    create = disk.create

    def create_late(name: str, text: str) -> bool:
        monkeypatch.setattr(disk, "create", create)
        second.append("c", "p", 1)
        return create(name, text)

    monkeypatch.setattr(disk, "create", create_late)
    with pytest.raises(CheckpointFencedError):
        first.append("c", "p", 1)
    second.append("c", "p", 1)


def test_a_driver_whose_file_name_is_free_again_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeFileManager()
    first, second = FencingLog(disk, "one"), FencingLog(disk, "two")
    create = disk.create

    def create_late(name: str, text: str) -> bool:
        monkeypatch.setattr(disk, "create", create)
        for _ in range(4):
            second.append("c", "p", 1)
        return create(name, text)

    monkeypatch.setattr(disk, "create", create_late)
    with pytest.raises(CheckpointFencedError):
        first.append("c", "p", 1)


def test_a_driver_that_was_suspended_after_append_is_fenced() -> None:
    disk = FakeFileManager()
    first, second = FencingLog(disk, "one"), FencingLog(disk, "two")
    first.append("c", "p", 1)
    first.check_not_fenced()
    second.append("c", "p", 1)
    with pytest.raises(CheckpointFencedError, match=r"process \d+ on host .* has taken control"):
        first.check_not_fenced()
    second.check_not_fenced()


def test_the_first_of_two_drivers_that_wrote_the_same_file_is_fenced() -> None:
    """A local disk, and S3 without conditional writes, check for an existing file before the write."""
    disk = FakeFileManager()
    first, second = FencingLog(disk, "one"), FencingLog(disk, "two")
    first.append("c", "p", 1)
    del disk.files["transactions/0"]  # the second driver has checked before
    second.append("c", "p", 1)
    with pytest.raises(CheckpointFencedError):
        first.check_not_fenced()
    second.check_not_fenced()


@pytest.mark.parametrize("is_overwritten", [True, False])
def test_a_query_does_not_start_with_the_entry_of_another_driver(is_overwritten: bool) -> None:
    class OverwrittenFiles(FakeFileManager):
        def create(self, name: str, text: str) -> bool:
            """Create a file, and let another driver replace it at the same moment."""
            is_created = super().create(name, text)
            if is_overwritten and name.startswith("transactions/"):
                self.files[name] = json.dumps({**json.loads(text), "driver": "other"})
            return is_created

    logs = open_logs_on(OverwrittenFiles())
    if is_overwritten:
        with pytest.raises(CheckpointFencedError):
            prepare_at_least_once(logs)
    else:
        prepare_at_least_once(logs)


def test_prefix_and_cluster_may_change_only_after_a_recovery() -> None:
    disk = FakeFileManager()
    FencingLog(disk, "me").append("c", "p", 3)
    with pytest.raises(OptionError, match=r"transactionalIdPrefix is 'q', but .* used 'p' \(disk:/transactions/0\)"):
        FencingLog(disk, "me").append("c", "q", 1)
    with pytest.raises(OptionError, match="writes to cluster d, but its previous run wrote to c"):
        FencingLog(disk, "me").append("d", "p", 1)
    recovery = FencingLog(disk, "recovery")
    assert recovery.append("c", "p", 0).tasks == 3
    recovery.record_recovery()
    assert FencingLog(disk, "me").append("d", "q", 1).tasks == 1
    with pytest.raises(OptionError):
        FencingLog(disk, "me").append("c", "p", 1)


def test_a_run_with_at_least_once_delivery_keeps_the_transactional_ids_of_earlier_runs() -> None:
    disk = FakeFileManager()
    first = FencingLog(disk, "one").append()
    assert (first.prefix, first.tasks) == (None, 0)
    FencingLog(disk, "two").append("c", "p", 3)
    third = FencingLog(disk, "three").append()
    assert (third.driver, third.cluster, third.prefix, third.tasks) == ("three", "c", "p", 3)
    with pytest.raises(OptionError):
        FencingLog(disk, "four").append("c", "q", 1)
    assert FencingLog(disk, "four").append("c", "p", 1).tasks == 3


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"v":2}', '{"v":1}', '{"v":1,"driver":"d","cluster":"c","prefix":"p","tasks":"x"}']
)
def test_a_damaged_file_is_an_error(text: str) -> None:
    disk = FakeFileManager()
    disk.files["transactions/4"] = text
    with pytest.raises(InvalidOffsetsError, match="Cannot parse disk:/transactions/4"):
        FencingLog(disk, "me").append("c", "p", 1)
    assert list(disk.files) == ["transactions/4"]
