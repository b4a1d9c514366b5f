"""The digest of the offset log entry of a batch, and the check that it can be read."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.datasource.offset_log_digest import (
    check_checkpoint,
    digest_of,
    offset_log_digest,
    rewound_before,
)
from pyspark_kafka_direct.errors import KafkaDirectError, OptionError, TransactionStateError
from pyspark_kafka_direct.producer import file_systems
from pyspark_kafka_direct.spark.checkpoint_files import REWOUND_CONF

if TYPE_CHECKING:
    from pathlib import Path

QUERY_ID = "46cd79d7-1b47-4181-8aa4-51bbfd8ab305"
ENTRY = b"v1\n{}\n7"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkpoint%20"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    (folder / "offsets" / "7").write_bytes(ENTRY)
    return folder


def test_digests_are_deterministic_and_differ_between_entries(checkpoint: Path) -> None:
    digest = offset_log_digest(str(checkpoint), QUERY_ID, 7)
    assert digest == digest_of(ENTRY)
    assert offset_log_digest(str(checkpoint), QUERY_ID, 7) == digest
    (checkpoint / "offsets" / "7").write_text("v1\n{}\n8")
    assert offset_log_digest(str(checkpoint), QUERY_ID, 7) != digest


@pytest.mark.parametrize("size", [10, 100_000, 10_000_000])
def test_entries_that_differ_only_at_their_end_have_other_digests(checkpoint: Path, size: int) -> None:
    """An entry has the offsets of all partitions of all sources."""
    digests = set()
    for end in (b"7", b"8"):
        entry = b"v1\n{}\n" + b"1" * size + end
        (checkpoint / "offsets" / "7").write_bytes(entry)
        digests.add(offset_log_digest(str(checkpoint), QUERY_ID, 7))
        assert digest_of(entry) in digests
    assert len(digests) == 2


@pytest.mark.parametrize("seed", range(12))
def test_all_rewound_batches_directly_before_a_batch_are_counted(checkpoint: Path, seed: int) -> None:
    source = random.Random(seed)
    length = source.randrange(1, 8)
    is_rewound = [source.random() < 0.7 for _ in range(length)]
    purged = source.randrange(length)  # Spark deletes the oldest entries
    for batch in range(purged, length):
        conf = {REWOUND_CONF: "true"} if is_rewound[batch] else {}
        entry = f"v1\n{json.dumps({'conf': conf})}\n" + '{"t":{"0":5}}'
        (checkpoint / "offsets" / str(batch)).write_text(entry)
    for batch in range(purged, length + 1):
        others = [number for number in range(batch) if number < purged or not is_rewound[number]]
        assert rewound_before(str(checkpoint), batch) == batch - 1 - max(others, default=-1)


def test_an_unreadable_entry_before_a_batch_is_an_error(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "8").mkdir()
    with pytest.raises(KafkaDirectError, match=r"before batch 9 .* cannot be read"):
        rewound_before(str(checkpoint), 9)


@pytest.mark.parametrize("form", ["{}", "{}/", "file:{}", "file://{}", "file://localhost{}"])
def test_local_folders_in_the_forms_that_hadoop_accepts(checkpoint: Path, form: str) -> None:
    location = form.format(checkpoint)
    check_checkpoint(location)
    assert offset_log_digest(location, QUERY_ID, 7) == digest_of(ENTRY)


def test_a_relative_path(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent)
    check_checkpoint(checkpoint.name)
    assert offset_log_digest(checkpoint.name, QUERY_ID, 7) == digest_of(ENTRY)


def test_a_checkpoint_in_another_file_system_is_read_with_pyarrow(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a digest, a different batch of the same number was skipped."""
    monkeypatch.setattr(file_systems, "DBFS_MOUNT", str(checkpoint.parent))
    location = f"dbfs:/{checkpoint.name}"
    check_checkpoint(location)
    assert offset_log_digest(location, QUERY_ID, 7) == digest_of(ENTRY)


@pytest.mark.parametrize("location", ["nosuch://bucket/x", "/no/such/folder", "file:/no/such/folder"])
def test_a_checkpoint_that_cannot_be_read_is_rejected_when_planning(location: str) -> None:
    with pytest.raises(OptionError, match=r"checkpointLocation .* cannot be read.*foreach_batch_writer"):
        check_checkpoint(location)


@pytest.mark.parametrize("location", [None, ""])
def test_a_missing_option_is_rejected_when_planning(location: str | None) -> None:
    with pytest.raises(OptionError, match="checkpointLocation is not an option of the query"):
        check_checkpoint(location)


def test_a_missing_entry_is_an_error(checkpoint: Path) -> None:
    with pytest.raises(TransactionStateError, match="no entry of batch 8"):
        offset_log_digest(str(checkpoint), QUERY_ID, 8)


def test_an_unreadable_entry_is_an_error(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "8").mkdir()
    with pytest.raises(KafkaDirectError, match=r"batch 8 .* cannot be read"):
        offset_log_digest(str(checkpoint), QUERY_ID, 8)


@pytest.mark.parametrize("metadata", ['{"id":"another"}', "{}", "[]", "no JSON", None])
def test_the_checkpoint_of_another_query_is_an_error(checkpoint: Path, metadata: str | None) -> None:
    if metadata is None:
        (checkpoint / "metadata").unlink()
    else:
        (checkpoint / "metadata").write_text(metadata)
    owner = {'{"id":"another"}': "another"}.get(metadata or "")
    reason = f"is the checkpoint of query {owner}, but query {QUERY_ID} writes"
    with pytest.raises(TransactionStateError, match=f"of query {QUERY_ID}" if metadata is None else reason):
        offset_log_digest(str(checkpoint), QUERY_ID, 7)


def test_a_password_in_the_uri_of_a_checkpoint_is_masked() -> None:
    with pytest.raises(
        OptionError, match=r"checkpointLocation 'unknown://user:\*\*\*@host/path' cannot be read"
    ) as caught:
        check_checkpoint("unknown://user:hunter2@host/path")
    assert "hunter2" not in str(caught.value)
