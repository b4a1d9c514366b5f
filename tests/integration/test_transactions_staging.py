"""Record batches staged in a topic of a real broker and read back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.integration.transactional_batches import batch_of, cluster_of

from pyspark_kafka_direct.errors import DataLossError, KafkaDirectError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.producer.staging import StagedBatches, StagedTopicRange, StagingWriter
from pyspark_kafka_direct.producer.staging_location import TopicStagingLocation

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.records import EncodedBatch


def staged_by(location: TopicStagingLocation, name: str, batches: list[EncodedBatch]) -> StagedTopicRange:
    writer = StagingWriter(0, lambda: location.open_spill(name))
    for batch in batches:
        writer.add("flights", batch)
    staged = writer.finish()
    assert isinstance(staged, StagedTopicRange)
    return staged


def test_concurrent_tasks_are_read_separately(bench: Workbench) -> None:
    """Many tasks, two partitions, batches of all sizes, some of several records."""
    topic = bench.make_topic(2)
    batches_by_name = {
        f"run.{task}": [batch_of([b"%d" % task * (100_000 * part + 1)] * 2) for part in range(8)] for task in range(6)
    }
    expected = {name: [bytes(batch.data) for batch in batches] for name, batches in batches_by_name.items()}
    staged: dict[str, StagedTopicRange] = {}

    def run(name: str) -> None:
        staged[name] = staged_by(
            TopicStagingLocation(cluster_of(bench.bootstrap_servers), topic), name, batches_by_name[name]
        )

    threads = [threading.Thread(target=run, args=(name,)) for name in batches_by_name]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    location = TopicStagingLocation(cluster_of(bench.bootstrap_servers), topic)
    for name, entry in staged.items():
        read_batches = list(StagedBatches([entry], location))
        assert [bytes(batch.data) for _, batch in read_batches] == expected[name]
        assert {topic for topic, _ in read_batches} == {"flights"}
        assert entry.records == 16
    assert {entry.partition for entry in staged.values()} == {0, 1}


def test_a_retried_task_is_read_without_its_first_attempt(bench: Workbench) -> None:
    """The output of the first attempt is ignored."""
    topic = bench.make_topic(1)
    location = TopicStagingLocation(cluster_of(bench.bootstrap_servers), topic)
    failed = location.open_spill("run.0-0-1")
    failed.write(b"x" * 100)
    failed.abort()
    staged_by(location, "run.0-0-2", [batch_of([b"lost"])])
    staged = staged_by(location, "run.0-0-3", [batch_of([b"kept"])])
    ((_, batch),) = list(location.read(staged))
    assert batch == with_metadata_of(batch, [b"kept"])


def with_metadata_of(like: EncodedBatch, values: list[bytes]) -> EncodedBatch:
    """Return a batch with these values and the header fields of another one."""
    batch = batch_of(values)
    batch.data[17:43] = like.data[17:43]
    return batch


def test_retention_of_the_staging_topic_is_detected(bench: Workbench) -> None:
    topic = bench.make_topic(1)
    location = TopicStagingLocation(cluster_of(bench.bootstrap_servers), topic)
    staged = staged_by(location, "run.0-0-1", [batch_of([b"a"]), batch_of([b"b"])])
    bench.delete_records(topic, -1)
    with pytest.raises(DataLossError):
        list(location.read(staged))


def test_a_compacted_staging_topic_is_rejected(bench: Workbench) -> None:
    with pytest.raises(OptionError, match="compact"):
        TopicStagingLocation(
            cluster_of(bench.bootstrap_servers), bench.make_topic(1, cleanup_policy="compact")
        ).prepare()
    TopicStagingLocation(cluster_of(bench.bootstrap_servers), bench.make_topic(1)).prepare()


def test_a_missing_staging_topic_is_rejected_and_not_created(bench: Workbench) -> None:
    location = TopicStagingLocation(cluster_of(bench.bootstrap_servers), "no-such-staging")
    with pytest.raises(OptionError, match="this topic does not exist"):
        location.prepare()
    with pytest.raises(TopicNotFoundError):
        location.open_spill("x")
    assert issubclass(TopicNotFoundError, KafkaDirectError)
    assert "no-such-staging" not in bench.admin.list_topics(timeout=30).topics
