"""Exactly-once writes in Spark's processes: the batch of a task, and the commit messages that are accepted."""

from __future__ import annotations

import dataclasses
import os
import pickle
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.datasource.exactly_once_committer import ExactlyOnceCommitter
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.datasource.write_task import (
    BatchWriteJob,
    StagedCommitMessage,
    StagingConfig,
    WriteTaskContext,
    resolve_attempt,
)
from pyspark_kafka_direct.errors import KafkaDirectError, OptionError, TransactionStateError
from pyspark_kafka_direct.options.settings import ConnectionSettings, ProducerSettings
from pyspark_kafka_direct.planning.commit_decision import BatchAttempt, Ticket
from pyspark_kafka_direct.producer.exactly_once import CommitResult
from pyspark_kafka_direct.producer.staged_frames import StagedFile, StagedInline
from pyspark_kafka_direct.producer.staging_location import StagingLocation

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.producer.staged_frames import StagedOutput

QUERY_ID, RUN_ID = str(uuid.uuid4()), str(uuid.uuid4())
STREAM_TASK = WriteTaskContext(3, 1, QUERY_ID, 7, None, RUN_ID)
BATCH_TASK = WriteTaskContext(3, 1, job_group="mine")
TICKET = Ticket("topic id", 42)

CommitBatch = Callable[..., list[str]]


def test_a_batch_is_identified_by_its_query_or_its_job() -> None:
    assert resolve_attempt(STREAM_TASK, None, TICKET) == BatchAttempt("stream", QUERY_ID, RUN_ID, 7, TICKET)
    assert resolve_attempt(STREAM_TASK, BatchWriteJob("x", from_option=False), TICKET) == BatchAttempt(
        "foreach", QUERY_ID, RUN_ID, 7, TICKET
    )
    assert resolve_attempt(BATCH_TASK, BatchWriteJob("x", from_option=True), TICKET) == BatchAttempt.of_job("x", TICKET)
    assert resolve_attempt(BATCH_TASK, BatchWriteJob("x", from_option=False), TICKET) == BatchAttempt.of_job(
        "x", TICKET, named=False
    )


def test_a_digest_of_foreach_batch_writer_is_part_of_the_batch() -> None:
    task = dataclasses.replace(STREAM_TASK, offsets_digest="digest")
    job = BatchWriteJob("x", from_option=False)
    assert resolve_attempt(task, job, TICKET, has_checkpoint=False).digest == "digest"


def test_a_write_within_foreach_batch_without_a_checkpoint_is_rejected() -> None:
    """A different batch of the same number would be skipped."""
    with pytest.raises(OptionError, match="foreach_batch_writer"):
        resolve_attempt(STREAM_TASK, BatchWriteJob("x", from_option=False), TICKET, has_checkpoint=False)
    assert (
        resolve_attempt(BATCH_TASK, BatchWriteJob("x", from_option=False), TICKET, has_checkpoint=False).digest is None
    )


def test_a_job_id_within_foreach_batch_is_rejected() -> None:
    with pytest.raises(OptionError, match="jobId cannot be used within foreachBatch"):
        resolve_attempt(STREAM_TASK, BatchWriteJob("x", from_option=True), TICKET)


@pytest.mark.parametrize(
    "group", [None, "mine", RUN_ID.upper(), f"{{{RUN_ID}}}"], ids=["none", "mine", "upper", "braces"]
)
def test_a_job_group_that_is_no_run_id_is_rejected(group: str | None) -> None:
    task = WriteTaskContext(3, 1, QUERY_ID, 7, None, group)
    for job in (None, BatchWriteJob("x", from_option=False)):
        with pytest.raises(OptionError, match="setJobGroup"):
            resolve_attempt(task, job, TICKET)


def test_a_stream_without_local_properties_is_an_error() -> None:
    with pytest.raises(KafkaDirectError, match=r"sql\.streaming\.queryId"):
        resolve_attempt(BATCH_TASK, None, TICKET)


def new_committer(location: str | None = None) -> ExactlyOnceCommitter:
    # No broker listens on port 1, and these tests send no requests.
    return ExactlyOnceCommitter(
        connection=ConnectionSettings((("127.0.0.1", 1),)),
        produce=ProducerSettings(),
        staging=StagingConfig("p.sink", 1000, location),
        prefix="p",
        topic="t",
        sink_state_topic="sink-state",
        timeout_ms=1000,
        reset_token=None,
        checkpoint=None,
    )


def staged(attempt: BatchAttempt, output: StagedOutput | None = None) -> StagedCommitMessage:
    return StagedCommitMessage(WriteTaskContext(), attempt, output or StagedInline(b"", 0))


BATCH_7 = BatchAttempt("stream", QUERY_ID, RUN_ID, 7, TICKET, "digest")


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "0 of 0 tasks"),
        ([staged(BATCH_7), None], "1 of 2 tasks"),
        ([staged(BATCH_7), staged(BatchAttempt("stream", QUERY_ID, RUN_ID, 8, TICKET, "digest"))], "for 2 batches"),
        (
            [staged(BatchAttempt("stream", QUERY_ID, RUN_ID, 8, TICKET, "digest"))],
            "Spark commits batch 7, but its tasks belong to batch 8",
        ),
    ],
)
def test_messages_that_are_not_one_complete_batch_are_rejected(messages: list[Any], message: str) -> None:
    with pytest.raises(TransactionStateError, match=message):
        new_committer().commit(messages, 7)


def test_abort_deletes_only_files_that_messages_name(tmp_path: Path) -> None:
    files = [tmp_path / "p.sink" / f"{name}.staged" for name in ("named", "named-too", "other")]
    files[0].parent.mkdir()
    for file in files:
        file.write_bytes(b"x")
    # The process that planned the batch has chosen the folder, and another one aborts it.
    messages = [
        dataclasses.replace(staged(BATCH_7, StagedFile(str(file), 0, 1)), location=str(tmp_path)) for file in files[:2]
    ]
    new_committer().abort([None, *messages, messages[0]])
    assert [file.exists() for file in files] == [False, False, True]
    new_committer().abort([None, None])
    new_committer().abort([staged(BATCH_7)])


def test_messages_and_committers_can_be_pickled() -> None:
    message = staged(BATCH_7, StagedFile("x", 1, 3))
    assert pickle.loads(pickle.dumps(message)) == message
    committer = new_committer("/x")
    assert pickle.dumps(committer) == pickle.dumps(committer)
    assert pickle.loads(pickle.dumps(committer)) == committer


def test_a_source_detects_that_it_was_unpickled() -> None:
    # Spark plans with a new source and commits with an unpickled one, which does not repeat the checks.
    source = KafkaSourceProvider({"a": "b"})
    assert not source._unpickled
    copy = pickle.loads(pickle.dumps(source))
    assert copy._unpickled
    assert copy.options == {"a": "b"}


@pytest.fixture
def commit_batch(monkeypatch: pytest.MonkeyPatch) -> CommitBatch:
    """Commits a batch after a task of the previous one was killed; returns the files that are left of the query."""
    monkeypatch.setattr(ClusterClient, "topics", lambda *_: {})
    monkeypatch.setattr(
        "pyspark_kafka_direct.producer.exactly_once.commit_batch", lambda *_, **_others: CommitResult(True, {})
    )

    def commit(
        location: Path, query: str, batch: int, pool: ConnectionPool, attempt: BatchAttempt = BATCH_7
    ) -> list[str]:
        folder = location / query
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{RUN_ID}.{batch - 1}-0-0-killed.staged").touch()
        message = dataclasses.replace(staged(dataclasses.replace(attempt, batch=batch)), location=str(location))
        dataclasses.replace(new_committer(), staging=StagingConfig(query, 1000)).commit([message], batch, pool)
        return sorted(path.name.partition(".")[2] for path in folder.iterdir())

    return commit


def test_files_that_were_left_behind_are_deleted_every_hour(tmp_path: Path, commit_batch: CommitBatch) -> None:
    system = FakeTimeSystem(now=1_000_000.0)
    pool = ConnectionPool(system=system)
    for batch in range(10, 19, 3):
        assert commit_batch(tmp_path, "p.sink", batch, pool) == []
        assert commit_batch(tmp_path, "p.sink", batch + 1, pool) == [f"{batch}-0-0-killed.staged"]
        system.now += 3601


@pytest.mark.parametrize(
    ("location", "query"), [(".", "q.sink"), ("moved", "p.sink")], ids=["another-query", "another-location"]
)
def test_each_query_deletes_its_files_in_each_location(
    tmp_path: Path, commit_batch: CommitBatch, location: str, query: str
) -> None:
    """Spark reuses the process that commits for all queries of an application."""
    pool = ConnectionPool(system=FakeTimeSystem(now=1_000_000.0))
    assert commit_batch(tmp_path, "p.sink", 7, pool) == []
    assert commit_batch(tmp_path / location, query, 7, pool) == []


@pytest.mark.parametrize(
    ("attempt", "deleted"),
    [
        (BATCH_7, True),
        (dataclasses.replace(BATCH_7, kind="foreach"), True),
        (BatchAttempt.of_job("x", TICKET), False),
    ],
    ids=["stream", "foreach", "job"],
)
def test_files_of_other_runs_are_deleted_unless_they_may_be_those_of_a_running_job(
    tmp_path: Path, commit_batch: CommitBatch, attempt: BatchAttempt, deleted: bool
) -> None:
    system = FakeTimeSystem(now=1_000_000.0)
    file = tmp_path / "p.sink" / f"{uuid.uuid4()}.6-0-0-other.staged"
    file.parent.mkdir()
    file.touch()
    os.utime(file, (system.wall_time() - 2 * 3600,) * 2)
    commit_batch(tmp_path, "p.sink", 7, ConnectionPool(system=system), attempt)
    assert file.exists() is not deleted


def test_reading_starts_before_the_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a transaction is open, readers of committed records wait."""
    files: list[StagedFile] = []
    monkeypatch.setattr(ClusterClient, "topics", lambda *_: {})
    monkeypatch.setattr(StagingLocation, "read_ahead", lambda _, staged, *__: files.extend(staged))

    def commit_batch(*_: Any, **_others: Any) -> CommitResult:
        assert files == outputs
        return CommitResult(True, {})

    monkeypatch.setattr("pyspark_kafka_direct.producer.exactly_once.commit_batch", commit_batch)
    outputs = [StagedFile(str(tmp_path / "p.sink" / f"{name}.staged"), 1, 1) for name in "xy"]
    messages = [dataclasses.replace(staged(BATCH_7, output), location=str(tmp_path)) for output in outputs]
    new_committer().commit(messages, 7)
    assert files == outputs
