"""Exactly-once writes as Spark's processes see them: which batch a task is in, and which messages are delivered."""

from __future__ import annotations

import pickle
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import DeliveryRefusedError, KafkaDirectError, OptionError
from pyspark_kafka_direct.planning.delivery import Attempt
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.settings.produce import ProduceSettings
from pyspark_kafka_direct.structured._commit_step import CommitStep
from pyspark_kafka_direct.structured._staging_task import Job, Staging, TaskStaged, attempt_of
from pyspark_kafka_direct.structured._write_task import TaskPlace
from pyspark_kafka_direct.structured.source import KafkaDirectSource
from pyspark_kafka_direct.writing._frames import Sum
from pyspark_kafka_direct.writing.staging import InFile, Inline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark_kafka_direct.writing.staging import Staged

QUERY, RUN = str(uuid.uuid4()), str(uuid.uuid4())
IN_A_STREAM = TaskPlace(3, 1, QUERY, 7, None, RUN)
ALONE = TaskPlace(3, 1, job_group="mine")


def test_a_batch_is_known_by_its_query_or_its_job() -> None:
    assert attempt_of(IN_A_STREAM, None) == Attempt("stream", QUERY, RUN, 7)
    assert attempt_of(IN_A_STREAM, Job("x", given=False)) == Attempt("foreach", QUERY, RUN, 7)
    assert attempt_of(ALONE, Job("x", given=True)) == Attempt.of_job("x")
    assert attempt_of(ALONE, Job("x", given=False)) == Attempt.of_job("x", named=False)


def test_a_job_id_within_foreach_batch_is_refused() -> None:
    with pytest.raises(OptionError, match="jobId cannot be used within foreachBatch"):
        attempt_of(IN_A_STREAM, Job("x", given=True))


@pytest.mark.parametrize("group", [None, "mine", RUN.upper(), f"{{{RUN}}}"], ids=["none", "mine", "upper", "braces"])
def test_a_run_that_is_not_known_is_refused(group: str | None) -> None:
    place = TaskPlace(3, 1, QUERY, 7, None, group)
    for job in (None, Job("x", given=False)):
        with pytest.raises(OptionError, match="setJobGroup"):
            attempt_of(place, job)


def test_a_stream_that_spark_does_not_name_is_an_error() -> None:
    with pytest.raises(KafkaDirectError, match=r"sql\.streaming\.queryId"):
        attempt_of(ALONE, None)


def commit_step(location: str | None = None) -> CommitStep:
    # Nobody listens there: what these tests do asks no broker.
    return CommitStep(
        connection=ConnectionSettings((("127.0.0.1", 1),)),
        produce=ProduceSettings(),
        staging=Staging("p.sink", 1000, location),
        prefix="p",
        topic="t",
        marker_topic="markers",
        timeout_ms=1000,
        reset_token=None,
        checkpoint=None,
    )


def staged(attempt: Attempt, where: Staged | None = None) -> TaskStaged:
    return TaskStaged(TaskPlace(), attempt, where or Inline(b"", Sum(), 0))


SEVEN = Attempt("stream", QUERY, RUN, 7)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "Of 0 tasks 0"),
        ([staged(SEVEN), None], "Of 2 tasks 1"),
        ([staged(SEVEN), staged(Attempt("stream", QUERY, RUN, 8))], "for 2 batches"),
        ([staged(Attempt("stream", QUERY, RUN, 8))], "Batch 7 is to be committed, and its tasks say batch 8"),
    ],
)
def test_what_is_not_one_whole_batch_is_not_delivered(messages: list[Any], words: str) -> None:
    with pytest.raises(DeliveryRefusedError, match=words):
        commit_step().commit(messages, 7)


def test_abort_removes_only_what_messages_name(tmp_path: Path) -> None:
    named, other = tmp_path / "p.sink" / "named.staged", tmp_path / "p.sink" / "other.staged"
    named.parent.mkdir()
    named.write_bytes(b"x")
    other.write_bytes(b"x")
    step = commit_step(str(tmp_path))
    step.abort([None, staged(SEVEN, InFile(str(named), Sum(), 1)), staged(SEVEN)])
    assert not named.exists()
    assert other.exists()
    step.abort([None, None])
    commit_step().abort([staged(SEVEN)])


def test_what_travels_can_be_packed_twice_and_says_the_same() -> None:
    message = staged(SEVEN, InFile("x", Sum(1, 2), 3))
    assert pickle.loads(pickle.dumps(message)) == message
    step = commit_step("topic:x")
    assert pickle.dumps(step) == pickle.dumps(step)
    assert pickle.loads(pickle.dumps(step)) == step


def test_a_source_knows_that_it_is_a_copy() -> None:
    # Spark plans with a new one, and commits with a copy: then nothing is to be checked again.
    source = KafkaDirectSource({"a": "b"})
    assert not source._is_copy
    copy = pickle.loads(pickle.dumps(source))
    assert copy._is_copy
    assert copy.options == {"a": "b"}
