"""The offset store and structured queries: the end offsets of each batch are saved when it has finished."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.integration.log.store_helpers import new_name, store_of
from tests.integration.sessions import setting
from tests.integration.stream_queries import DEADLINE, produce

from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.log import KafkaOffsetStore


@dataclass
class Job:
    """A query that resumes by its offset store; each start is a new run."""

    spark: SparkSession
    servers: str
    topic: str
    offsets: str = field(default_factory=new_name)
    seen: list[list[int]] = field(default_factory=list)  # the numbers in each processed batch

    def store(self, **more: Any) -> KafkaOffsetStore:
        return store_of(self.servers, self.offsets, "job", **more)

    def put(self, *numbers: int) -> None:
        produce(self.servers, self.topic, numbers)

    def load(self, starting: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("subscribe", self.topic).option("startingOffsets", starting).options(**options)
        return reader.load().selectExpr("cast(cast(value as string) as int) number")

    def run(
        self,
        checkpoint: Path,
        function: Callable[[DataFrame, int], None] | None = None,
        *,
        default: Any = "earliest",
        frame: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        named_checkpoint: object = None,
        **options: str,
    ) -> dict[TopicPartition, int]:
        """Run the query to the end of the topic; return the stored offsets."""
        with self.store() as store:
            source = self.load(store.starting_offsets_json(self.topic, default), **options)
            batch_function = store.foreach_batch(function or self.process, str(named_checkpoint or checkpoint))
            writer = (
                frame(source).writeStream.foreachBatch(batch_function).option("checkpointLocation", str(checkpoint))
            )
            query = writer.trigger(availableNow=True).start()
            try:
                assert query.awaitTermination(DEADLINE), "the query did not end"
            finally:
                query.stop()
            return store.load()

    def process(self, frame: DataFrame, _: int) -> None:
        self.seen.append(sorted(row.number for row in frame.select("number").collect()))

    def fail(self, frame: DataFrame, number: int) -> None:
        self.process(frame, number)
        raise RuntimeError("died after the results were written")

    @property
    def all(self) -> list[int]:
        return sorted(number for batch in self.seen for number in batch)


@pytest.fixture
def job(spark: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic) -> Job:
    return Job(spark, kafka.bootstrap_servers, make_topic(2))


def test_a_query_resumes_with_another_checkpoint_directory(job: Job, tmp_path: Path) -> None:
    job.put(*range(10))
    saved = job.run(tmp_path / "one")
    assert saved == {TopicPartition(job.topic, 0): 5, TopicPartition(job.topic, 1): 5}
    job.put(*range(10, 14))
    assert set(job.run(tmp_path / "two").values()) == {7}
    assert job.seen == [list(range(10)), list(range(10, 14))]


def test_each_batch_is_saved(job: Job, tmp_path: Path) -> None:
    """Not only the last one: a query that dies in its third batch resumes with that batch."""
    job.put(*range(12))

    def die_in_third_batch(frame: DataFrame, number: int) -> None:
        if number == 2:
            raise RuntimeError("died")
        job.process(frame, number)

    with pytest.raises(StreamingQueryException, match="died"):
        job.run(tmp_path / "one", die_in_third_batch, maxOffsetsPerTrigger="4")
    assert job.seen == [[0, 1, 2, 3], [4, 5, 6, 7]]
    job.run(tmp_path / "two")
    assert job.all == list(range(12))


@pytest.mark.smoke
def test_a_batch_that_was_not_saved_is_processed_again(job: Job, tmp_path: Path) -> None:
    job.put(*range(4))
    with pytest.raises(StreamingQueryException, match="died after the results were written"):
        job.run(tmp_path / "one", job.fail)
    job.run(tmp_path / "two")
    assert job.seen == [list(range(4))] * 2


def test_a_saved_batch_that_spark_reruns(job: Job, tmp_path: Path) -> None:
    """The driver died between the save and Spark's own commit."""
    job.put(*range(4))
    job.run(tmp_path / "one")
    job.put(4, 5)
    saved = job.run(tmp_path / "one")
    undo_commit(tmp_path / "one", 1)
    assert job.run(tmp_path / "one") == saved
    assert job.seen == [list(range(4)), [4, 5], [4, 5]]
    job.put(6)
    job.run(tmp_path / "two")
    assert job.seen[3:] == [[6]]


def test_a_saved_first_batch_is_the_same_when_spark_reruns_it(job: Job, tmp_path: Path) -> None:
    """The end of the first batch records its start, so the offset in the store, which is later, does not apply."""
    job.put(*range(4))
    saved = job.run(tmp_path / "one")
    undo_commit(tmp_path / "one", 0)
    job.put(4)
    assert sum(job.run(tmp_path / "one").values()) == sum(saved.values()) + 1
    assert job.seen == [list(range(4)), list(range(4)), [4]]


def undo_commit(checkpoint: Path, number: int) -> None:
    for name in (f"{number}", f".{number}.crc"):
        (checkpoint / "commits" / name).unlink()


def test_the_first_start_at_latest_is_saved(job: Job, tmp_path: Path) -> None:
    """It is saved with the empty first batch, so records that arrive while the job is down are read."""
    job.put(1, 2)
    assert set(job.run(tmp_path / "one", default="latest").values()) == {1}
    job.put(3, 4)
    job.run(tmp_path / "two", default="latest")
    assert job.all == [3, 4]


def test_a_second_run_stops_the_first(job: Job, tmp_path: Path) -> None:
    job.put(*range(4))

    def start_second_run(frame: DataFrame, number: int) -> None:
        job.process(frame, number)
        job.store().open().close()

    with pytest.raises(StreamingQueryException, match=r"ProducerFencedError.*acquired by run"):
        job.run(tmp_path / "one", start_second_run)
    with job.store() as store:
        assert store.load() == {}


def test_several_sources_in_one_query(job: Job, tmp_path: Path, make_topic: MakeTopic) -> None:
    """Offsets of Kafka sources are saved; if two read one topic, the lower ones."""
    other = make_topic(1)
    produce(job.servers, other, [100])
    job.put(1, 2, 3, 4)
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("200\n")

    def union(frame: DataFrame) -> DataFrame:
        files = job.spark.readStream.format("text").load(str(folder)).selectExpr("cast(value as int) number")
        reader = job.spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", job.servers)
        reader = reader.option("startingOffsets", "earliest")
        second = reader.option("subscribe", other).load().selectExpr("cast(cast(value as string) as int) number")
        slow = reader.option("subscribe", job.topic).option("maxOffsetsPerTrigger", "1").load()
        behind = slow.selectExpr("cast(cast(value as string) as int) number").where("number < 0")
        return frame.unionAll(files).unionAll(second).unionAll(behind)

    ends: list[dict[TopicPartition, int]] = []
    with job.store() as store:
        saved = store.save

        def save(offsets: Any) -> None:
            ends.append(dict(offsets))
            saved(offsets)

        store.save = save  # type: ignore[method-assign]
        source = union(job.load(store.starting_offsets_json(job.topic)))
        writer = source.writeStream.foreachBatch(store.foreach_batch(job.process, str(tmp_path / "one")))
        query = writer.option("checkpointLocation", str(tmp_path / "one")).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE)
    assert job.all == [1, 2, 3, 4, 100, 200]
    both = [TopicPartition(job.topic, number) for number in (0, 1)]
    assert ends[-1] == {**dict.fromkeys(both, 2), TopicPartition(other, 0): 1}
    assert [ends[0][tp] for tp in both] == [1, 1]


def test_the_checkpoint_of_another_query_is_rejected(job: Job, tmp_path: Path) -> None:
    job.put(1)
    with pytest.raises(
        StreamingQueryException, match=r"/offsets/0 does not exist: pass the checkpointLocation of this query"
    ):
        job.run(tmp_path / "one", named_checkpoint=tmp_path / "other")
    job.run(tmp_path / "two")
    with pytest.raises(StreamingQueryException, match=r"two is the checkpoint of query .*, but this is query"):
        job.run(tmp_path / "three", named_checkpoint=tmp_path / "two")
    assert job.seen == [[1]]


def test_a_batch_function_checks_the_checkpoint_of_each_query(job: Job, tmp_path: Path) -> None:
    """As in a notebook if the query is restarted with another directory and the old function."""
    job.put(1, 2)
    with job.store() as store:
        batch_function = store.foreach_batch(job.process, str(tmp_path / "one"))

        def run(checkpoint: str) -> None:
            writer = job.load("earliest", maxOffsetsPerTrigger="2").writeStream.foreachBatch(batch_function)
            query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
            assert query.awaitTermination(DEADLINE)

        run("one")
        job.put(3, 4)
        run("one")
        before = store.load()
        with pytest.raises(StreamingQueryException, match=r"one is the checkpoint of query .*, but this is query"):
            run("two")
        assert store.load() == before
    assert job.seen == [[1, 2], [3, 4]]


def test_a_checkpoint_behind_the_store_is_used_with_a_warning(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a job returns to a machine after it ran on another one."""
    job.put(1, 2)
    job.run(tmp_path / "one")
    job.put(3, 4)
    job.run(tmp_path / "two")
    job.put(5, 6)
    with caplog.at_level(logging.WARNING, "pyspark_kafka_direct.log"):
        job.run(tmp_path / "two")
        assert not caplog.messages
        job.put(7, 8)
        saved = job.run(tmp_path / "one")
    assert any("resumes at" in each and "Spark uses the checkpoint" in each for each in caplog.messages)
    assert job.seen == [[1, 2], [3, 4], [5, 6], [3, 4, 5, 6, 7, 8]]
    assert set(saved.values()) == {4}


def test_a_first_batch_that_ends_before_the_stored_offsets(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was planned but not processed before the job ran elsewhere. Records are processed again, and none is lost."""
    job.put(1, 2)
    with pytest.raises(StreamingQueryException, match="died"):
        job.run(tmp_path / "one", job.fail)
    job.put(3, 4)
    job.run(tmp_path / "two")
    job.put(5, 6)
    with caplog.at_level(logging.WARNING, "pyspark_kafka_direct.log"):
        saved = job.run(tmp_path / "one")
    assert any("Spark uses the checkpoint" in each for each in caplog.messages)
    assert job.seen == [[1, 2], [1, 2, 3, 4], [1, 2], [3, 4, 5, 6]]
    assert set(saved.values()) == {3}


def test_an_offset_log_with_named_sources(job: Job, tmp_path: Path) -> None:
    job.put(1, 2)
    with setting(job.spark, "spark.sql.streaming.offsetLog.formatVersion", "2"):
        saved = job.run(tmp_path / "one")
    assert (tmp_path / "one" / "offsets" / "0").read_text().startswith("v2")
    assert set(saved.values()) == {1}


def test_the_format_of_an_offset_log(job: Job, tmp_path: Path) -> None:
    """foreach_batch relies on it."""
    job.put(1, 2)
    job.run(tmp_path / "one")
    version, metadata, *lines = (tmp_path / "one" / "offsets" / "0").read_text().splitlines()
    assert version == "v1"
    assert "batchTimestampMs" in json.loads(metadata)
    recorded_start = json.dumps({job.topic: {"0": 0, "1": 0}}, separators=(",", ":"))
    assert [json.loads(line) for line in lines] == [{job.topic: {"0": 1, "1": 1}, f"(start){recorded_start}": {}}]
