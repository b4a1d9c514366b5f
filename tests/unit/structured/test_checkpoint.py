"""The digest of a batch's entry in a checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.structured._checkpoint import offsets_digest

if TYPE_CHECKING:
    from pathlib import Path

QUERY = "46cd79d7-1b47-4181-8aa4-51bbfd8ab305"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkpoint%20"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    (folder / "offsets" / "7").write_text("v1\n{}\n7")
    return folder


def test_it_tells_batches_apart_and_says_the_same_again(checkpoint: Path) -> None:
    digest = offsets_digest(str(checkpoint), QUERY, 7)
    assert digest is not None
    assert offsets_digest(str(checkpoint), QUERY, 7) == digest
    (checkpoint / "offsets" / "7").write_text("v1\n{}\n8")
    assert offsets_digest(str(checkpoint), QUERY, 7) not in (None, digest)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_folders_are_written_as_for_hadoop(checkpoint: Path, form: str) -> None:
    wanted = offsets_digest(str(checkpoint), QUERY, 7)
    assert wanted is not None
    assert offsets_digest(form.format(checkpoint), QUERY, 7) == wanted


@pytest.mark.parametrize("place", [None, "", "hdfs://host/checkpoint", "s3a://bucket/x", "/no/such/folder"])
def test_where_it_cannot_be_read_there_is_none(place: str | None) -> None:
    assert offsets_digest(place, QUERY, 7) is None


def test_there_is_none_without_the_entry(checkpoint: Path) -> None:
    assert offsets_digest(str(checkpoint), QUERY, 8) is None


@pytest.mark.parametrize("metadata", ['{"id":"another"}', "{}", "[]", "no JSON", None])
def test_a_folder_that_is_not_the_querys_is_not_looked_at(checkpoint: Path, metadata: str | None) -> None:
    if metadata is None:
        (checkpoint / "metadata").unlink()
    else:
        (checkpoint / "metadata").write_text(metadata)
    assert offsets_digest(str(checkpoint), QUERY, 7) is None
