"""Named sources (Spark 4.2 and later): the checkpoint has the offsets of a source by its name, not by its position."""

from __future__ import annotations

import json
import logging
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.errors import AnalysisException, PySparkValueError, StreamingQueryException
from pyspark.sql import DataFrame
from tests.integration.exactly_once import Pipe
from tests.integration.groups import committed
from tests.integration.log.store_helpers import new_name, store_of
from tests.integration.sessions import setting
from tests.integration.stream_queries import DEADLINE, Stream, produce
from tests.integration.waiting import wait_until

from pyspark_kafka_direct import enable
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

JVM, DIRECT = "kafka", "kafka-direct"
SETTINGS = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


class Source(NamedTuple):
    name: str  # of the source, and the key of its topic
    format: str = DIRECT
    options: Mapping[str, str] = {}


class NamedQuery:
    """A query over a union of named sources, each with a topic of the same name, whose sources change between runs."""

    def __init__(self, stream: Stream, topics: Mapping[str, str]) -> None:
        self.stream = stream
        self.topics = topics
        self.written: dict[str, list[str]] = {name: [] for name in topics}

    def put(self, names: str, count: int = 4) -> list[str]:
        """Write records to the topics of these sources, and return their values."""
        added = []
        for name in names:
            written = self.written[name]
            values = [f"{name}{number:03}" for number in range(len(written), len(written) + count)]
            produce(self.stream.servers, self.topics[name], values)
            written += values
            added += values
        return sorted(added)

    def load(self, *sources: Source) -> DataFrame:
        frames = []
        for name, format_, options in sources:
            reader = self.stream.spark.readStream.format(format_).option("subscribe", self.topics[name])
            reader = reader.option("kafka.bootstrap.servers", self.stream.servers).option("startingOffsets", "earliest")
            frames.append(reader.options(**options).name(name).load().select("value"))
        return reduce(DataFrame.unionAll, frames)

    def run(self, *sources: Source) -> list[str]:
        """Run the query to the end of its topics, and return the values that it has read."""
        before = dict(self.stream.batches)
        self.stream.run(self.load(*sources))
        batches = self.stream.batches.items()
        return sorted(value for number, batch in batches if batch != before.get(number) for value in batch)

    def begin(self, *sources: Source) -> None:
        """Finish two batches: Spark 4.2.0 cannot resume from an unfinished batch 1 of an offset log v2."""
        for _ in range(2):
            self.put("abc")
            self.run(*sources)

    def die(self, *sources: Source) -> None:
        """Run the query, as if the driver had died before its next batch was committed."""

        def fail(batch: DataFrame, number: int) -> None:
            raise RuntimeError("died in the batch")

        writer = self.load(*sources).writeStream.foreachBatch(fail).trigger(availableNow=True)
        checkpoint = str(self.stream.folder / "checkpoint")
        with pytest.raises(StreamingQueryException, match="died in the batch"):
            writer.option("checkpointLocation", checkpoint).start().awaitTermination(DEADLINE)

    @property
    def ends(self) -> dict[str, dict[str, int]]:
        """The end offsets of the last batch, by the name of the source."""
        entry = self.stream.folder / "checkpoint" / "offsets" / str(self.stream.planned)
        version, _, *lines = entry.read_text().splitlines()
        assert version == "v2"
        named = dict(line.split(":", 1) for line in lines)
        return {name: json.loads(offsets)[self.topics[name]] for name, offsets in named.items()}


@pytest.fixture(autouse=True)
def _named(session: SparkSession) -> Iterator[None]:
    (first, second) = SETTINGS.items()
    with setting(session, *first), setting(session, *second):
        yield


@pytest.fixture
def query(session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path) -> NamedQuery:
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, {})
    return NamedQuery(stream, {name: make_topic(2) for name in "abc"})


@pytest.mark.parametrize("other", [JVM, pytest.param(DIRECT, marks=pytest.mark.soak)])
def test_sources_are_added_moved_and_removed(query: NamedQuery, other: str) -> None:
    a, b, c = Source("a"), Source("b", other), Source("c")
    written = query.put("ab")
    assert query.run(a, b) == written
    written = query.put("abc")
    assert query.run(c, b, a) == written, "c was added, a and b moved"
    written = query.put("abc")
    assert query.run(b, a) == [value for value in written if value[0] != "c"], "c was removed"
    assert query.ends == {name: {"0": 6, "1": 6} for name in "ab"}
    written = query.put("ab")
    assert query.run(a, b) == written, "moved"
    query.put("c")
    assert query.run(a, c, b) == query.written["c"], "c is new again"
    assert query.ends == {"a": {"0": 8, "1": 8}, "b": {"0": 8, "1": 8}, "c": {"0": 6, "1": 6}}


@pytest.mark.parametrize("formats", [(DIRECT, JVM), pytest.param((JVM, DIRECT), marks=pytest.mark.soak)])
def test_a_checkpoint_moves_between_connectors_under_names(query: NamedQuery, formats: tuple[str, str]) -> None:
    """Each run reads with the other connector, and in the other order."""
    limit = {"maxOffsetsPerTrigger": "4"}
    for run in range(3):
        written = query.put("ab")
        sources = [Source(name, formats[(run + index) % 2], limit) for index, name in enumerate("ab")]
        assert query.run(*(reversed(sources) if run % 2 else sources)) == written
    assert query.stream.values == sorted(query.written["a"] + query.written["b"])
    assert query.ends == {name: {"0": 6, "1": 6} for name in "ab"}


@pytest.mark.parametrize(("first", "second"), [(JVM, DIRECT), pytest.param(DIRECT, JVM, marks=pytest.mark.soak)])
def test_the_other_connector_reads_an_unfinished_batch_of_moved_sources(
    query: NamedQuery, first: str, second: str
) -> None:
    planned = query.put("ab")
    query.die(Source("a", first), Source("b", first))
    later = query.put("abc")
    assert query.run(Source("c"), Source("b", second), Source("a", second)) == sorted(planned + later)
    assert query.stream.batches[0] == planned


def test_an_added_source_that_starts_at_latest_keeps_its_start(query: NamedQuery) -> None:
    """The query dies in the first batch of the added source, which is not the first one of the query."""
    latest = {"startingOffsets": "latest"}
    query.begin(Source("a"))
    written = query.put("a")
    query.die(Source("a"), Source("b", DIRECT, latest))
    written += query.put("ab")
    assert query.run(Source("b", DIRECT, latest), Source("a")) == sorted(written)


@pytest.mark.soak
def test_an_unknown_start_of_an_added_source_is_an_error_that_names_its_file(query: NamedQuery) -> None:
    latest = {"startingOffsets": "latest"}
    query.begin(Source("a"))
    planned = query.put("a")
    query.die(Source("a"), Source("b", JVM, latest))
    later = query.put("ab")
    with pytest.raises(StreamingQueryException, match=r"Its start is not known.* last line of .*sources/NAME/0"):
        query.run(Source("b", DIRECT, latest), Source("a"))
    start = (query.stream.folder / "checkpoint" / "sources" / "b" / "0").read_text().splitlines()[-1]
    read = query.run(Source("b", DIRECT, {"startingOffsets": start}), Source("a"))
    assert read == sorted(planned + later)


@pytest.mark.soak
def test_a_removed_source_with_an_unfinished_batch(query: NamedQuery) -> None:
    """Spark drops what the batch had planned of it; docs/structured-streaming.md says so."""
    query.begin(Source("a"), Source("b"))
    planned = query.put("ab")
    query.die(Source("a"), Source("b"))
    assert query.run(Source("a")) == [value for value in planned if value[0] == "a"]
    later = query.put("ab")
    assert query.run(Source("a"), Source("b")) == later


@pytest.mark.soak
def test_a_renamed_source_is_new(query: NamedQuery) -> None:
    query.put("a")
    query.run(Source("a"))
    query.topics = {**query.topics, "renamed": query.topics["a"]}
    assert query.run(Source("renamed")) == query.written["a"]
    assert list(query.ends) == ["renamed"]


def test_lag_and_committed_offsets_of_named_sources(query: NamedQuery) -> None:
    monitor = enable(query.stream.spark)
    groups = {name: new_name("group") for name in "ab"}
    sources = [Source(name, DIRECT, {"commitGroupId": group}) for name, group in groups.items()]
    for order in (sources, sources[::-1]):
        query.put("ab")
        query.run(*order)
        ends = {name: {int(number): end for number, end in query.ends[name].items()} for name in groups}

        def is_committed(ends: Mapping[str, Mapping[int, int]] = ends) -> bool:
            servers = query.stream.servers
            return all(committed(servers, groups[name], query.topics[name]) == end for name, end in ends.items())

        wait_until(is_committed)
    wait_until(lambda: (lag := monitor.lag(query.stream.query)) is not None and lag.batch_id == query.stream.committed)
    lag = monitor.lag(query.stream.query)
    assert lag is not None
    assert {(each.group, tp.topic) for each in lag.sources for tp in each.partitions} == {
        (groups[name], query.topics[name]) for name in "ab"
    }


def test_an_offset_store_with_named_sources(query: NamedQuery, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = str(query.stream.folder / "checkpoint")
    read: list[str] = []

    def process(batch: DataFrame, _: int) -> None:
        read.extend(row.value.decode() for row in batch.collect())

    def run(*sources: Source) -> dict[str, int]:
        """Run the query, and return the stored offsets of the first partitions."""
        query.put("abc")
        read.clear()
        with store_of(query.stream.servers, f"offsets-{query.topics['a']}") as store:
            writer = query.load(*sources).writeStream.foreachBatch(store.foreach_batch(process, checkpoint))
            started = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            assert started.awaitTermination(DEADLINE)
            saved = store.load()
        return {name: saved[tp] for name, topic in query.topics.items() if (tp := TopicPartition(topic, 0)) in saved}

    a, b, c = Source("a"), Source("b", JVM), Source("c")
    with caplog.at_level(logging.WARNING, "pyspark_kafka_direct.log"):
        assert run(a, b) == {"a": 2, "b": 2}
        assert run(c, b, a) == {"a": 4, "b": 4, "c": 4}
        assert run(b) == {"a": 4, "b": 6, "c": 4}
        assert run(b) == {"a": 4, "b": 8, "c": 4}
        assert sorted(read) == query.written["b"][-4:]
        assert not caplog.messages
        assert run(c._replace(options={"maxOffsetsPerTrigger": "4"}), b) == {"a": 4, "b": 10, "c": 10}
    assert sorted(read) == sorted(query.written["b"][-4:] + query.written["c"])
    (message,) = caplog.messages
    assert query.topics["c"] in message, "c starts again, before the stored offset"
    assert query.topics["b"] not in message


@pytest.mark.soak
def test_an_exactly_once_batch_is_not_repeated_if_sources_move(query: NamedQuery, make_topic: MakeTopic) -> None:
    """Its entry in the offset log is the same, so the sink recognizes the batch that it has committed."""
    stream = query.stream
    pipe = Pipe(stream.spark, stream.servers, "", make_topic(2), stream.folder / "checkpoint")
    query.put("ab")
    pipe.run(query.load(Source("a"), Source("b")))
    stream.undo_commit()
    query.put("abc")
    pipe.run(query.load(Source("c"), Source("b", JVM), Source("a")))
    pipe.check(value for written in query.written.values() for value in written)


def test_what_spark_rejects(query: NamedQuery) -> None:
    """docs/structured-streaming.md has these conditions."""
    evolution, _ = SETTINGS
    reader = query.stream.spark.readStream.format(DIRECT).option("subscribe", query.topics["a"])
    reader = reader.option("kafka.bootstrap.servers", query.stream.servers)
    with pytest.raises(AnalysisException, match="UNNAMED_STREAMING_SOURCES_WITH_ENFORCEMENT"):
        reader.load()
    for name in ("flights-eu", "flights.eu", "flüge", ""):
        with pytest.raises(PySparkValueError, match="INVALID_STREAMING_SOURCE_NAME"):
            reader.name(name)
    frame = query.load(Source("a"))
    for union in (query.load(Source("a"), Source("a")), frame.unionAll(frame)):
        with pytest.raises(AnalysisException, match="DUPLICATE_SOURCE_NAMES"):
            query.stream.start(union)
    with setting(query.stream.spark, evolution, "false"), pytest.raises(AnalysisException, match="NAMING_NOT_SUPP"):
        query.load(Source("a"))
