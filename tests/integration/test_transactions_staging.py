"""Record batches staged in a topic of a real broker, and delivered from there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.integration.deliveries import batch_of, cluster_of

from pyspark_kafka_direct.errors import DataLossError, KafkaDirectError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.writing._staging_topic import TopicLocation
from pyspark_kafka_direct.writing.staging import InTopic, StagedBatches, Stager

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.records import EncodedBatch


def staged_by(location: TopicLocation, name: str, batches: list[EncodedBatch]) -> InTopic:
    stager = Stager(0, lambda: location.spill(name))
    for batch in batches:
        stager.add("flights", batch)
    staged = stager.finish()
    assert isinstance(staged, InTopic)
    return staged


def test_tasks_that_write_at_once_are_told_apart(bench: Workbench) -> None:
    """Many tasks, two partitions, batches of all sizes, some of several records."""
    topic = bench.make_topic(2)
    wanted = {
        f"run.{task}": [batch_of([b"%d" % task * (100_000 * part + 1)] * 2) for part in range(8)] for task in range(6)
    }
    expected = {name: [bytes(batch.data) for batch in batches] for name, batches in wanted.items()}
    staged: dict[str, InTopic] = {}

    def run(name: str) -> None:
        staged[name] = staged_by(TopicLocation(cluster_of(bench.bootstrap_servers), topic), name, wanted[name])

    threads = [threading.Thread(target=run, args=(name,)) for name in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    location = TopicLocation(cluster_of(bench.bootstrap_servers), topic)
    for name, entry in staged.items():
        found = list(StagedBatches([entry], location))
        assert [bytes(batch.data) for _, batch in found] == expected[name]
        assert {topic for topic, _ in found} == {"flights"}
        assert entry.records == 16
    assert {entry.partition for entry in staged.values()} == {0, 1}


def test_a_task_that_is_repeated_is_another_one(bench: Workbench) -> None:
    """What the first attempt has written is not read."""
    topic = bench.make_topic(1)
    location = TopicLocation(cluster_of(bench.bootstrap_servers), topic)
    failed = location.spill("run.0-0-1")
    failed.write(b"x" * 100)
    failed.abandon()
    staged_by(location, "run.0-0-2", [batch_of([b"lost"])])
    staged = staged_by(location, "run.0-0-3", [batch_of([b"kept"])])
    ((_, batch),) = list(location.read(staged))
    assert batch == batch_of_same(batch, [b"kept"])


def batch_of_same(like: EncodedBatch, values: list[bytes]) -> EncodedBatch:
    """The same batch but for its timestamp."""
    made = batch_of(values)
    made.data[17:43] = like.data[17:43]
    return made


def test_retention_of_the_staging_topic_is_an_error_and_no_loss(bench: Workbench) -> None:
    topic = bench.make_topic(1)
    location = TopicLocation(cluster_of(bench.bootstrap_servers), topic)
    staged = staged_by(location, "run.0-0-1", [batch_of([b"a"]), batch_of([b"b"])])
    bench.delete_records(topic, -1)
    with pytest.raises(DataLossError):
        list(location.read(staged))


def test_a_compacted_staging_topic_is_refused(bench: Workbench) -> None:
    with pytest.raises(OptionError, match="compact"):
        TopicLocation(cluster_of(bench.bootstrap_servers), bench.make_topic(1, cleanup_policy="compact")).prepare()
    TopicLocation(cluster_of(bench.bootstrap_servers), bench.make_topic(1)).prepare()


def test_a_topic_that_is_not_there_is_refused_and_not_created(bench: Workbench) -> None:
    location = TopicLocation(cluster_of(bench.bootstrap_servers), "no-such-staging")
    with pytest.raises(OptionError, match="no such topic"):
        location.prepare()
    with pytest.raises(TopicNotFoundError):
        location.spill("x")
    assert issubclass(TopicNotFoundError, KafkaDirectError)
    assert "no-such-staging" not in bench.admin.list_topics(timeout=30).topics
