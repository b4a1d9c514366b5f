"""``foreach_batch_writer``: where it writes, and where it raises an error."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_kafka_direct.datasource import foreach_batch
from pyspark_kafka_direct.datasource.foreach_batch import foreach_batch_writer
from pyspark_kafka_direct.datasource.offset_log_digest import DIGEST_PROPERTY, digest_of
from pyspark_kafka_direct.errors import OptionError, TransactionStateError

RUNNING = str(uuid.uuid4())
EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "shop"}


class FakeFrame:
    """A frame that only counts how often it was saved."""

    def __init__(self, session: object) -> None:
        self.sparkSession: Any = session
        self.saved = 0
        self.written_options: list[dict[str, str]] = []
        self.digests: list[str | None] = []

    @property
    def write(self) -> FakeFrame:
        return self

    def format(self, name: str) -> FakeFrame:
        assert name == "kafka-direct"
        return self

    def options(self, **options: str) -> FakeFrame:
        self.written_options.append(options)
        return self

    def mode(self, name: str) -> FakeFrame:
        assert name == "append"
        return self

    def save(self) -> None:
        self.saved += 1
        context = getattr(self.sparkSession, "sparkContext", None)
        self.digests.append(None if context is None else context.getLocalProperty(DIGEST_PROPERTY))


def frame_in_thread_of(batch: str | None, run: str | None = None) -> FakeFrame:
    """Return a frame in a thread of a batch, or of none; each has its own run by default."""
    properties: dict[str, str | None] = {
        "streaming.sql.batchId": batch,
        "spark.jobGroup.id": run or str(uuid.uuid4()),
    }
    context = SimpleNamespace(getLocalProperty=properties.get, setLocalProperty=properties.__setitem__)
    return FakeFrame(SimpleNamespace(sparkContext=context))


@pytest.fixture(autouse=True)
def digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreach_batch, "_offsets_digest", lambda _, batch: f"digest of {batch}")


def connect_frame() -> FakeFrame:
    return FakeFrame(SimpleNamespace())


def write(frame: Any, **options: str) -> None:
    foreach_batch_writer({"kafka.bootstrap.servers": "b:1", **options})(frame, 7)


def test_exactly_once_is_written_in_the_thread_of_the_batch() -> None:
    frame = frame_in_thread_of("7")
    write(frame, **EXACTLY_ONCE)
    assert frame.digests == ["digest of 7"]
    assert frame.sparkSession.sparkContext.getLocalProperty(DIGEST_PROPERTY) is None


def test_a_second_write_of_a_batch_is_rejected_even_if_both_would_be_skipped() -> None:
    """After a crash between the two, the sink state cannot tell the replay of the first from the lost second."""
    frame = frame_in_thread_of("7")
    write(frame, **EXACTLY_ONCE)
    with pytest.raises(TransactionStateError, match="use another prefix for the second write"):
        write(frame, **EXACTLY_ONCE, topic="other")
    assert frame.saved == 1


def test_second_writes_that_are_allowed() -> None:
    frame = frame_in_thread_of("7", "run")
    write(frame, **EXACTLY_ONCE)
    for other in ({"transactionalIdPrefix": "other"}, {"sinkStateTopic": "other"}, {"kafka.bootstrap.servers": "c:1"}):
        write(frame, **EXACTLY_ONCE | other)
    write(frame_in_thread_of("7", "next run"), **EXACTLY_ONCE)


def test_a_failed_write_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it was sent nevertheless, the sink state shows it."""
    frame = frame_in_thread_of("7")

    def fail() -> None:
        raise OSError("the write failed")

    with monkeypatch.context() as patched:
        patched.setattr(frame, "save", fail)
        with pytest.raises(OSError, match="the write failed"):
            write(frame, **EXACTLY_ONCE)
    digest = frame.sparkSession.sparkContext.getLocalProperty(DIGEST_PROPERTY)
    assert digest is None, "other writes of the thread do not get it"
    write(frame, **EXACTLY_ONCE)
    assert frame.saved == 1


def test_writers_with_the_options_of_one_dictionary() -> None:
    """A function may create one for each topic in a loop."""
    options = {"kafka.bootstrap.servers": "b:1"}
    writers = []
    for topic in ("one", "two"):
        options["topic"] = topic
        writers.append(foreach_batch_writer(options))
    options.clear()
    frame = connect_frame()
    for each in writers:
        each(frame, 7)  # type: ignore[arg-type]
    assert [each["topic"] for each in frame.written_options] == ["one", "two"]


@pytest.mark.parametrize(("batch", "description"), [(None, "no batch"), ("6", "batch 6")])
def test_exactly_once_is_rejected_in_another_thread(batch: str | None, description: str) -> None:
    """Its tasks cannot see the batch id, so a rerun after a restart would write again."""
    frame = frame_in_thread_of(batch)
    with pytest.raises(OptionError, match=f"batch 7 is written in a thread of {description}"):
        write(frame, **EXACTLY_ONCE)
    assert frame.saved == 0


def test_exactly_once_is_rejected_over_spark_connect() -> None:
    frame = connect_frame()
    with pytest.raises(OptionError, match="is not supported in foreachBatch over Spark Connect"):
        write(frame, **EXACTLY_ONCE)
    assert frame.saved == 0


@pytest.mark.parametrize("frame", [frame_in_thread_of(None), connect_frame()])
def test_at_least_once_is_written_anywhere(frame: FakeFrame) -> None:
    write(frame)
    assert frame.saved == 1


@pytest.mark.parametrize(("is_active", "has_entry"), [(True, True), (True, False), (False, False)])
def test_the_digest_is_that_of_the_querys_checkpoint(
    monkeypatch: pytest.MonkeyPatch, is_active: bool, has_entry: bool
) -> None:
    monkeypatch.undo()
    names: list[str] = []

    class Files:
        def __init__(self, session: object, checkpoint: str, _: str) -> None:
            assert checkpoint == "file:/checkpoint"

        def read(self, name: str) -> str | None:
            names.append(name)
            return "the entry" if has_entry else None

    query = SimpleNamespace(resolvedCheckpointRoot=lambda: "file:/checkpoint")
    queries = SimpleNamespace(get={f"uuid of {RUNNING}": query if is_active else None}.get)
    uuids = SimpleNamespace(fromString=lambda text: f"uuid of {text}")
    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(getLocalProperty={"sql.streaming.queryId": RUNNING}.get),
        _jsparkSession=SimpleNamespace(sharedState=lambda: SimpleNamespace(activeStreamingQueries=lambda: queries)),
        _jvm=SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(UUID=uuids))),
    )
    monkeypatch.setattr(foreach_batch, "CheckpointFiles", Files)
    if has_entry:
        assert foreach_batch._offsets_digest(session, 7) == digest_of(b"the entry")
    else:
        missing = "has no offsets/7" if is_active else f"Query {RUNNING} is not active"
        with pytest.raises(TransactionStateError, match=missing):
            foreach_batch._offsets_digest(session, 7)
    assert names == (["offsets/7"] if is_active else [])
