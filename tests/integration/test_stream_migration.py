"""Change the format name, keep the checkpoint: between Spark's own ``kafka`` source and ``kafka-direct``, both ways.

The tests use the real JVM connector, so its jars are downloaded once (3 MB and their dependencies).
"""

from __future__ import annotations

import itertools
import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, StreamingQueryException
from pyspark.sql import functions as f
from tests.integration.stream_queries import DEADLINE, Stream, produce
from tests.integration.topics import Admin

from pyspark_kafka_direct import error_of
from pyspark_kafka_direct.errors import ColumnError, DataLossError, OptionError, TopicNotFoundError
from pyspark_kafka_direct.offsets import (
    MAX_OFFSET,
    MAX_PARTITION,
    TopicPartition,
    record_first_start,
    recorded_first_start,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

JVM, DIRECT = "kafka", "kafka-direct"


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("start", "formats"),
    [
        pytest.param("earliest", [JVM, DIRECT], id="earliest-formats0"),
        pytest.param("earliest", [DIRECT, JVM], id="earliest-formats1", marks=pytest.mark.soak),
        pytest.param("latest", [JVM, DIRECT], id="latest-formats0", marks=pytest.mark.soak),
        pytest.param("latest", [DIRECT, JVM], id="latest-formats1"),
    ],
)
def test_a_checkpoint_can_move_both_ways(
    session: SparkSession,
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    tmp_path: Path,
    formats: list[str],
    start: str,
) -> None:
    topic = make_topic(12)  # enough for partitions that sort differently as strings
    numbers = itertools.count()
    written: list[int] = []

    def put(count: int) -> None:
        values = list(itertools.islice(numbers, count))
        produce(kafka.bootstrap_servers, topic, values)
        written.extend(values)

    stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic, "maxOffsetsPerTrigger": "30"})
    stream.options["startingOffsets"] = start
    if start == "earliest":
        put(50)
    for turn in formats:
        stream.format = turn
        stream.run()
        assert stream.values == sorted(map(str, written)), f"after {turn}"
        put(40)
    stream.format = formats[0]
    stream.run()
    assert stream.values == sorted(map(str, written))


@pytest.mark.parametrize(("first", "second"), [(JVM, DIRECT), pytest.param(DIRECT, JVM, marks=pytest.mark.soak)])
def test_a_pattern_selects_the_same_topics_in_both_sources(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, first: str, second: str
) -> None:
    words = [f"flights-{uuid.uuid4().hex}" for _ in range(2)]
    topics = [make_topic(prefix=prefix) for prefix in (words[0], f"old-{words[0]}", words[1])]
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribePattern": words[0]}, first)
    stream.options["startingOffsets"] = "earliest"
    written: list[str] = []
    for source in (first, second):
        for topic in topics:
            produce(kafka.bootstrap_servers, topic, [f"{source} {topic}"])
        written += [f"{source} {topic}" for topic in topics[:2]]
        stream.format = source
        stream.run()
        assert stream.values == sorted(written), f"after {source}"


@pytest.mark.smoke
@pytest.mark.parametrize(("first", "second"), [(JVM, DIRECT), (DIRECT, JVM)])
def test_the_other_source_reads_a_planned_unfinished_batch(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, first: str, second: str
) -> None:
    topic = make_topic(3)
    produce(kafka.bootstrap_servers, topic, range(30))
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic, "startingOffsets": "earliest"})
    stream.options["maxOffsetsPerTrigger"] = "15"
    stream.format = first
    stream.run()
    last = stream.committed
    before = stream.batches.pop(last)
    stream.undo_commit()
    stream.format = second
    stream.run()
    assert stream.batches[last] == before
    assert stream.values == sorted(map(str, range(30)))


@pytest.mark.parametrize(("first", "second"), [(JVM, DIRECT), pytest.param(DIRECT, JVM, marks=pytest.mark.soak)])
def test_a_stateful_query_keeps_its_state(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, first: str, second: str
) -> None:
    topic = make_topic(2)
    counts: dict[str, int] = {}

    def counted(stream: Stream) -> DataFrame:
        return stream.load().groupBy(f.col("value").cast("string").alias("word")).count()

    def collect(batch: DataFrame, number: int) -> None:
        counts.update({row.word: row["count"] for row in batch.collect()})

    def run(source: str) -> None:
        stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic}, source)
        stream.options["startingOffsets"] = "earliest"
        writer = counted(stream).writeStream.foreachBatch(collect).outputMode("update")
        query: Any = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE)

    produce(kafka.bootstrap_servers, topic, ["a", "b", "a"])
    run(first)
    assert counts == {"a": 2, "b": 1}
    produce(kafka.bootstrap_servers, topic, ["a", "c"])
    run(second)
    assert counts == {"a": 3, "b": 1, "c": 1}
    produce(kafka.bootstrap_servers, topic, ["b", "b"])
    run(first)
    assert counts == {"a": 3, "b": 3, "c": 1}


def die_in_first_batch(stream: Stream) -> dict[str, Any]:
    """Start a query whose sink fails in batch 0, as if the driver had died there, and return the batch's end."""

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError("died in batch 0")

    checkpoint = stream.folder / "checkpoint"
    writer = stream.load().writeStream.foreachBatch(fail).option("checkpointLocation", str(checkpoint))
    with pytest.raises(Exception, match="died in batch 0"):
        writer.trigger(availableNow=True).start().awaitTermination(DEADLINE)
    assert stream.committed == -1
    end: dict[str, Any] = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[2])
    return end


def forget_first_batch(stream: Stream) -> None:
    """Restore the state before batch 0 was planned, when only ``sources/0/0`` was written."""
    for name in ("0", ".0.crc"):
        (stream.folder / "checkpoint" / "offsets" / name).unlink()


def initial_offsets(stream: Stream) -> str:
    """The start of a query as the JVM source stores it: a zero byte, a line with a version, and the offsets."""
    text = (stream.folder / "checkpoint" / "sources" / "0" / "0").read_text()
    assert text.startswith("\0v1\n")
    return text.splitlines()[-1]


@pytest.fixture
def jvm_start(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> Callable[[str, bool], tuple[Stream, str]]:
    """A query of the JVM source that died in its first batch (``planned``) or before; 3 records follow its start.

    4 records precede its start, except with ``earliest``; ``timestamp`` is that of the 3.
    """

    def make(start: str, planned: bool) -> tuple[Stream, str]:
        topic = make_topic()
        options = {"startingTimestamp": "1700000000000", "startingOffsetsByTimestampStrategy": "error"}
        if start != "timestamp":
            options = {"startingOffsets": start}
        stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic, **options}, JVM)
        produce(stream.servers, topic, range(-4, 0), timestamp=1_600_000_000_000)
        if start == "timestamp":
            produce(stream.servers, topic, range(3), timestamp=1_700_000_000_000)
        begin = 0 if start == "earliest" else 4
        die_in_first_batch(stream)
        forget_first_batch(stream)
        assert json.loads(initial_offsets(stream)) == {topic: {"0": begin}}
        if start != "timestamp":
            produce(stream.servers, topic, range(3))
        if planned:
            assert die_in_first_batch(stream) == {topic: {"0": 7}}
        stream.format = DIRECT
        return stream, topic

    return make


@pytest.mark.parametrize(
    ("start", "planned"),
    [
        pytest.param("earliest", True, id="earliest-in batch 0", marks=pytest.mark.soak),
        pytest.param("earliest", False, id="earliest-before it"),
        pytest.param("timestamp", True, id="timestamp-in batch 0"),
        pytest.param("timestamp", False, id="timestamp-before it", marks=pytest.mark.soak),
        pytest.param("latest", True, id="latest-in batch 0"),
        pytest.param("latest", False, id="latest-before it"),
    ],
)
def test_a_query_that_died_in_its_first_batch_with_the_jvm_source_is_read_from_its_start(
    jvm_start: Callable[[str, bool], tuple[Stream, str]], start: str, planned: bool
) -> None:
    stream, topic = jvm_start(start, planned)
    produce(stream.servers, topic, range(3, 5), timestamp=1_700_000_001_000)
    if start == "latest":
        if planned:
            with pytest.raises(Exception, match=r"Its start is not known.* last line of .*sources/NAME/0"):
                stream.run()
        stream.options["startingOffsets"] = initial_offsets(stream)
    stream.run()
    first = -4 if start == "earliest" else 0
    assert stream.values == sorted(map(str, range(first, 5)))
    if planned:
        assert stream.batches[0] == sorted(map(str, range(first, 3))), "the unfinished batch"


@pytest.mark.parametrize("first", [JVM, DIRECT])
def test_a_failed_first_batch_is_read_although_a_partition_was_added(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, first: str
) -> None:
    """The start names one partition only, so a new query would be rejected; this one is not new."""
    topic = make_topic()
    produce(kafka.bootstrap_servers, topic, range(-4, 3))
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 4}})}
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, options, first)
    assert die_in_first_batch(stream)[topic] == {"0": 7}
    Admin(kafka.bootstrap_servers).grow(topic, 2)
    produce(kafka.bootstrap_servers, topic, [3, 4], partition=1)
    stream.format = DIRECT
    stream.run()
    assert stream.batches[0] == ["0", "1", "2"], "the unfinished batch"
    assert stream.values == ["0", "1", "2", "3", "4"]
    stream.folder = tmp_path / "new"
    with pytest.raises(Exception, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        stream.run()


def test_the_jvm_source_rejects_our_unfinished_first_batch_if_records_arrived_since(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    produce(kafka.bootstrap_servers, topic, range(-4, 0))
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic, "startingOffsets": "latest"})
    assert die_in_first_batch(stream) == {topic: {"0": 4}, "(start)": {}}
    produce(stream.servers, topic, range(3))
    stream.format = JVM
    with pytest.raises(Exception, match="offset was changed from 7 to 4"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    stream.run()
    assert stream.values == ["0", "1", "2"], "its complaint was none: the first batch was empty"


def test_the_jvm_source_reads_our_unfinished_first_batch_from_its_start(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(12)
    produce(kafka.bootstrap_servers, topic, range(30))
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic, "startingOffsets": "earliest"})
    assert recorded_first_start(die_in_first_batch(stream)) == {TopicPartition(topic, each): 0 for each in range(12)}
    for turn in (JVM, DIRECT):
        stream.format = turn
        stream.run()
        assert stream.batches[0] == sorted(map(str, range(30)))
        produce(kafka.bootstrap_servers, topic, [f"after {turn}"])
    stream.run()
    assert stream.values == sorted([*map(str, range(30)), "after kafka", "after kafka-direct"])


def test_the_jvm_source_ignores_the_recorded_start_of_many_partitions(session: SparkSession) -> None:
    topics = [f"{each:\u00e4>249}" for each in range(3000)]  # Kafka's names are as long, but need no escapes
    end = {TopicPartition(topic, MAX_PARTITION): MAX_OFFSET for topic in topics}
    recorded = record_first_start(end, dict.fromkeys(end, MAX_OFFSET - 1))
    jvm: Any = session._jvm
    parsed = jvm.org.apache.spark.sql.kafka010.JsonUtils.partitionOffsets(json.dumps(recorded))
    assert parsed.size() == 3000


CLASSES = {
    "option": (IllegalArgumentException, AnalysisException, OptionError),
    "missing topic": (Py4JJavaError, AnalysisException, TopicNotFoundError),
    "data loss": (Py4JJavaError, AnalysisException, DataLossError),
    "written option": (Py4JJavaError, AnalysisException, OptionError),
    "missing column": (AnalysisException, AnalysisException, ColumnError),
    "stream": (StreamingQueryException, StreamingQueryException, TopicNotFoundError),
}


@pytest.mark.parametrize("what", CLASSES)
def test_classes_of_exceptions(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, what: str
) -> None:
    """As docs/coming-from-the-jvm-connector.md says."""
    topic = make_topic()
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}

    def fail(source: str) -> None:
        batch: Any = session.read.format(source).options(**servers)
        rows = session.range(1)
        write: Any = rows.selectExpr("cast(id AS STRING) AS value").write.format(source).options(**servers, topic=topic)
        match what:
            case "option":
                batch.options(subscribe=topic, startingOffsets="x").load()
            case "missing topic":
                batch.option("subscribe", f"{topic}-missing").load().collect()
            case "data loss":
                start, end = (json.dumps({topic: {"0": offset}}) for offset in (100, 200))
                batch.options(subscribe=topic, startingOffsets=start, endingOffsets=end).load().collect()
            case "written option":
                write.option("kafka.acks", "maybe").mode("append").save()
            case "missing column":
                rows.write.format(source).options(**servers, topic=topic).mode("append").save()
            case "stream":
                stream = session.readStream.format(source).options(**servers, subscribe=f"{topic}-missing").load()
                writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / source))
                writer.start().awaitTermination(DEADLINE)

    for_jvm, here, original = CLASSES[what]
    with pytest.raises(for_jvm):
        fail(JVM)
    with pytest.raises(here) as caught:
        fail(DIRECT)
    assert type(error_of(caught.value)) is original
