"""The folder where a query stages its batches if it has no ``stagingLocation``."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.datasource import staging_folder
from pyspark_kafka_direct.datasource.staging_folder import prepare_staging
from pyspark_kafka_direct.datasource.write_task import StagingConfig
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

UNSET = StagingConfig("p.sink", 0)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    folder.chmod(0o700)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkpoint%20"
    folder.mkdir()
    (folder / "metadata").write_text("{}")
    return folder


def folder_of(staging: StagingConfig) -> Path:
    """Return the folder that a task writes to."""
    location = staging.open()
    assert location is not None
    location.check()
    writer = location.open_spill("0-0-0")
    try:
        return Path(writer.path).parent
    finally:
        writer.abort()


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "FILE://localhost{}", "{}/"])
def test_by_default_batches_are_staged_in_the_checkpoint(checkpoint: Path, form: str, temporary: Path) -> None:
    staging = prepare_staging(UNSET, form.format(checkpoint))
    assert folder_of(staging) == checkpoint / "kafka-direct-staging" / "p.sink"
    assert staging.is_default, "a task of a batch write uses it only for many rows"
    assert list(temporary.iterdir()) == []


def test_the_mount_of_dbfs_is_used(checkpoint: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_kafka_direct.producer.file_systems.DBFS_MOUNT", str(checkpoint.parent))
    staging = prepare_staging(UNSET, f"dbfs:/{checkpoint.name}")
    assert folder_of(staging) == checkpoint / "kafka-direct-staging" / "p.sink"
    assert list(temporary.iterdir()) == []


def test_the_option_comes_first(checkpoint: Path, tmp_path: Path) -> None:
    staging = prepare_staging(dataclasses.replace(UNSET, location=str(tmp_path / "mine")), str(checkpoint))
    assert folder_of(staging) == tmp_path / "mine" / "p.sink"
    assert not staging.is_default
    with pytest.raises(OptionError, match=r"stagingLocation .* cannot be written to"):
        prepare_staging(dataclasses.replace(UNSET, location="/proc/nowhere"), str(checkpoint))


@pytest.mark.parametrize("location", [None, "", "nosuch://host/x", "/no/such/folder", "relative"])
def test_without_a_usable_checkpoint_batches_are_staged_in_a_temporary_folder(
    location: str | None, temporary: Path
) -> None:
    folder = folder_of(prepare_staging(UNSET, location))
    assert folder.parent.parent == temporary
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert folder_of(prepare_staging(UNSET, location)) == folder
    assert folder_of(prepare_staging(dataclasses.replace(UNSET, query_transactional_id="q.sink"), location)) != folder


def test_a_checkpoint_that_cannot_be_opened_for_a_moment_is_used_later(
    checkpoint: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark reuses the process that plans batches for weeks."""
    caplog.set_level(logging.INFO)
    system = FakeTimeSystem()
    opened: list[str] = []

    def fail(uri: str) -> NoReturn:
        opened.append(uri)
        raise OptionError("the bucket does not respond")

    with monkeypatch.context() as outage:
        outage.setattr(staging_folder, "open_file_system", fail)
        for _ in range(3):
            assert temporary in folder_of(prepare_staging(UNSET, str(checkpoint), system)).parents
            system.now += 90
    assert opened == [str(checkpoint)], "without credentials, each attempt takes seconds"
    assert caplog.text.count("not staged in the checkpoint: the bucket does not respond") == 1
    system.now += 300
    assert checkpoint in folder_of(prepare_staging(UNSET, str(checkpoint), system)).parents


def test_a_checkpoint_that_fails_after_it_was_opened_is_not_used(
    checkpoint: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staging_folder._is_openable.cache_clear()
    responses: list[BaseException | None] = [None, OSError("the bucket does not respond")]

    def open_file_system(_: str) -> Any:
        error = responses.pop(0)
        if error is not None:
            raise error

    caplog.set_level(logging.INFO)
    with monkeypatch.context() as outage:
        outage.setattr(staging_folder, "open_file_system", open_file_system)
        staging = prepare_staging(UNSET, str(checkpoint))
    assert temporary in folder_of(staging).parents
    assert "not staged in the checkpoint: the bucket does not respond" in caplog.text


def test_a_local_folder_with_the_path_of_a_remote_checkpoint_is_not_used(tmp_path: Path, temporary: Path) -> None:
    """Without a scheme, the checkpoint may be in the default file system of Hadoop. Its metadata file is there then."""
    assert temporary in folder_of(prepare_staging(UNSET, str(tmp_path))).parents
    assert not (tmp_path / "kafka-direct-staging").exists()


def test_a_temporary_folder_of_another_user_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may create it with the expected name, and replace the files in it."""
    name = folder_of(prepare_staging(UNSET, None)).parent.name
    folder = temporary / name
    for mode in (0o777, 0o770, 0o750, 0o701):
        folder.chmod(mode)
        with pytest.raises(OptionError, match=r"other users .* Set stagingLocation"):
            prepare_staging(UNSET, None)
    for file in sorted(folder.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    folder.rmdir()
    (temporary / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(temporary / "elsewhere")
    with pytest.raises(OptionError, match=r"other users .* Set stagingLocation"):
        prepare_staging(UNSET, None)
    folder.unlink()
    other = os.getuid() + 1
    (temporary / name.replace(str(os.getuid()), str(other))).mkdir(mode=0o700)
    monkeypatch.setattr("os.getuid", lambda: other)
    with pytest.raises(OptionError, match=r"other users .* Set stagingLocation"):
        prepare_staging(UNSET, None)


def test_without_any_folder_the_error_names_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file" / "tmp"))
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"stagingLocation is not set, .* Set stagingLocation to a folder that"):
        prepare_staging(UNSET, "nosuch://host/x")


def test_an_executor_without_the_temporary_folder_names_the_option(temporary: Path) -> None:
    staging = prepare_staging(UNSET, None)
    location = staging.open()
    assert location is not None
    (folder,) = temporary.iterdir()
    os.rename(folder, temporary / "on-another-host")
    with pytest.raises(OptionError) as caught:
        location.check()
    assert str(caught.value) == (
        f"stagingLocation is not set, and its default {str(folder)!r} is not the same folder on this executor and on "
        "the driver: the driver's probe was not found in it. Set stagingLocation to a folder that the driver and all "
        "executors share, such as a network mount or an object store."
    )


def test_a_relative_checkpoint_is_one_of_the_working_folder(
    checkpoint: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    staging = prepare_staging(UNSET, checkpoint.name)
    monkeypatch.chdir("/")  # executors have another one
    assert folder_of(staging) == checkpoint / "kafka-direct-staging" / "p.sink"
    assert list(temporary.iterdir()) == []
