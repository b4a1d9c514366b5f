"""The digest of the offset log entry of a batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.datasource.exactly_once_committer import offset_log_digest

if TYPE_CHECKING:
    from pathlib import Path

QUERY_ID = "46cd79d7-1b47-4181-8aa4-51bbfd8ab305"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkpoint%20"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    (folder / "offsets" / "7").write_text("v1\n{}\n7")
    return folder


def test_digests_are_deterministic_and_differ_between_entries(checkpoint: Path) -> None:
    digest = offset_log_digest(str(checkpoint), QUERY_ID, 7)
    assert digest is not None
    assert offset_log_digest(str(checkpoint), QUERY_ID, 7) == digest
    (checkpoint / "offsets" / "7").write_text("v1\n{}\n8")
    assert offset_log_digest(str(checkpoint), QUERY_ID, 7) not in (None, digest)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_local_folders_in_the_forms_that_hadoop_accepts(checkpoint: Path, form: str) -> None:
    expected = offset_log_digest(str(checkpoint), QUERY_ID, 7)
    assert expected is not None
    assert offset_log_digest(form.format(checkpoint), QUERY_ID, 7) == expected


@pytest.mark.parametrize("location", [None, "", "hdfs://host/checkpoint", "s3a://bucket/x", "/no/such/folder"])
def test_a_checkpoint_that_cannot_be_read_has_no_digest(location: str | None) -> None:
    assert offset_log_digest(location, QUERY_ID, 7) is None


def test_a_missing_entry_has_no_digest(checkpoint: Path) -> None:
    assert offset_log_digest(str(checkpoint), QUERY_ID, 8) is None


@pytest.mark.parametrize("metadata", ['{"id":"another"}', "{}", "[]", "no JSON", None])
def test_the_checkpoint_of_another_query_has_no_digest(checkpoint: Path, metadata: str | None) -> None:
    if metadata is None:
        (checkpoint / "metadata").unlink()
    else:
        (checkpoint / "metadata").write_text(metadata)
    assert offset_log_digest(str(checkpoint), QUERY_ID, 7) is None
