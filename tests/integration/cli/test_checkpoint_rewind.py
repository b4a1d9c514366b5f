"""``kafka-direct checkpoint rewind`` on checkpoints of real queries: exactly the wanted offsets are read again."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from tests.integration.exactly_once import PARTITIONS, Pipe
from tests.integration.sessions import setting
from tests.integration.stream_queries import DEADLINE, Stream, produce
from tests.integration.topics import Admin
from tests.integration.waiting import wait_until
from tests.soak.results import ends_of, last_batch

from pyspark_kafka_direct.cli.main import main
from pyspark_kafka_direct.spark.spark_versions import spark_features

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

JVM, DIRECT = "kafka", "kafka-direct"


def rewind(checkpoint: Path, offsets: Mapping[str, Mapping[int, int]], *more: str) -> int:
    """Rewind a checkpoint of a query that has just stopped."""
    return main(["checkpoint", "rewind", str(checkpoint), "--to-offsets", json.dumps(offsets), "--force", *more])


@pytest.fixture
def topics(kafka: EmbeddedKafka, make_topic: MakeTopic) -> list[str]:
    """Two topics with two partitions each, with the values ``0-0`` to ``1-9``: the even ones in partition 0."""
    names = sorted(make_topic(2) for _ in range(2))
    for index, topic in enumerate(names):
        produce(kafka.bootstrap_servers, topic, [f"{index}-{number}" for number in range(10)])
    return names


@pytest.fixture(params=["1", "2"])
def offset_log(request: pytest.FixtureRequest, session: SparkSession) -> Iterator[str]:
    """The version of the offset log; before Spark 4.2, there is only the first."""
    with setting(session, "spark.sql.streaming.offsetLog.formatVersion", request.param):
        yield f"v{request.param}" if spark_features().version >= "4.2" else "v1"


@pytest.mark.smoke
@pytest.mark.parametrize("source", [DIRECT, JVM])
def test_exactly_the_wanted_offsets_are_read_again(
    session: SparkSession, kafka: EmbeddedKafka, topics: list[str], tmp_path: Path, source: str, offset_log: str
) -> None:
    options = {"subscribe": ",".join(topics), "startingOffsets": "earliest"}
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, options, source)
    stream.run()
    first = stream.values
    assert len(first) == 20
    last = stream.committed
    checkpoint = tmp_path / "checkpoint"
    files = {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}
    wanted = {topics[0]: {0: 2}, topics[1]: {0: 4, 1: 3}}

    assert rewind(checkpoint, wanted) == 0
    assert stream.planned == last  # it was a dry run
    assert (checkpoint / "offsets" / str(last)).read_text().startswith(offset_log)
    assert rewind(checkpoint, wanted, "--execute") == 0
    assert (stream.planned, stream.committed) == (last + 1, last + 1)
    assert {file: file.read_bytes() for file in files} == files  # no recorded batch has changed

    produce(kafka.bootstrap_servers, topics[0], ["new"], partition=1)
    stream.run()
    again = sorted(value for number, values in stream.batches.items() if number > last for value in values)
    assert again == sorted(["0-4", "0-6", "0-8", "1-8", "1-7", "1-9", "new"])
    assert min(number for number in stream.batches if number > last) == last + 2
    stream.run()
    assert stream.values == sorted([*first, *again])


@pytest.mark.smoke
@pytest.mark.parametrize("source", [DIRECT, JVM])
def test_the_exactly_once_sink_accepts_the_next_batch(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path, source: str
) -> None:
    pipe = Pipe(
        session, kafka.bootstrap_servers, make_topic(PARTITIONS), make_topic(PARTITIONS), tmp_path / "checkpoint"
    )
    frame = (
        session.readStream.format(source)
        .option("kafka.bootstrap.servers", pipe.servers)
        .option("subscribe", pipe.source)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(value as string) value")
    )
    pipe.produce_numbers(*range(10))
    pipe.run(frame)
    for _ in range(2):  # two rewinds without a batch between them
        assert rewind(pipe.checkpoint, {pipe.source: {0: 3}}, "--execute") == 0
        assert rewind(pipe.checkpoint, {pipe.source: {1: 4}}, "--execute") == 0
        pipe.run(frame)
        pipe.undo_commit()
        pipe.run(frame)
    pipe.produce_numbers(10)
    pipe.run(frame)
    expected = Counter(map(str, range(11))) + Counter(["6", "8", "9"] * 2)
    assert Counter(pipe.committed_values()) == expected


@pytest.mark.smoke
@pytest.mark.parametrize("source", [DIRECT, JVM])
def test_a_file_sink_gets_the_empty_batch_from_the_query(
    session: SparkSession, kafka: EmbeddedKafka, topics: list[str], tmp_path: Path, source: str
) -> None:
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"

    def run(**more: str) -> None:
        reader = session.readStream.format(source).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        reader = reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest").options(**more)
        frame = reader.load().selectExpr("cast(value as string) value")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        for _ in range(2):  # before Spark 4.2, a run has one batch
            assert writer.trigger(availableNow=True).start(str(output)).awaitTermination(DEADLINE)

    run()
    assert rewind(checkpoint, {topics[0]: {0: 2}}, "--file-sink", "--execute") == 0
    # Spark's own source reports the batch as a loss, because its end is before its start.
    run(**({"failOnDataLoss": "false"} if source == JVM else {}))
    last = last_batch(tmp_path, "commits")
    assert {int(file.name.split(".")[0]) for file in (output / "_spark_metadata").glob("[0-9]*")} == {*range(last + 1)}
    values = Counter(row.value for row in session.read.parquet(str(output)).collect())
    expected = Counter(f"{index}-{number}" for index in range(2) for number in range(10)) + Counter(
        ["0-4", "0-6", "0-8"]
    )
    assert values == expected


def test_a_running_query_fails_at_its_next_batch(
    session: SparkSession, kafka: EmbeddedKafka, topics: list[str], tmp_path: Path
) -> None:
    options = {"subscribe": ",".join(topics), "startingOffsets": "earliest"}
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, options)
    query = stream.start()
    first = [f"{index}-{number}" for index in range(2) for number in range(10)]
    stream.wait_for(first)
    stream.wait(lambda: stream.committed == stream.planned, "the commit")
    last = stream.committed
    assert rewind(tmp_path / "checkpoint", {topics[0]: {1: 4}}, "--execute") == 0
    produce(kafka.bootstrap_servers, topics[1], ["new"])
    with pytest.raises(StreamingQueryException, match=r"(?i)concurrent"):
        query.awaitTermination(DEADLINE)
    assert (stream.planned, stream.committed, max(stream.batches)) == (last + 1, last + 1, last)
    stream.run()
    assert stream.values == sorted([*first, "0-9", "new"])


def test_a_time_goes_back_only(
    session: SparkSession,
    kafka: EmbeddedKafka,
    topics: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"subscribe": ",".join(topics), "startingOffsets": "earliest"}
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, options)
    stream.run()
    at_ms = int(time.time() * 1000) + 3_600_000
    later = [f"late-{number}" for number in range(4)]
    produce(kafka.bootstrap_servers, topics[0], later, timestamp=at_ms)
    stream.run()
    last = stream.committed
    produce(kafka.bootstrap_servers, topics[1], ["unread"], timestamp=at_ms)
    command = ["checkpoint", "rewind", str(tmp_path / "checkpoint"), "--to-time", str(at_ms), "--force"]
    assert main([*command, "-b", kafka.bootstrap_servers, "--json", "--execute"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["partition"], row["end"], row["to"], row["again"]) for row in rows] == [
        (f"{topics[0]}-{partition}", 7, 5, 2) for partition in range(2)
    ]
    stream.run()
    again = sorted(value for number, values in stream.batches.items() if number > last for value in values)
    assert again == sorted([*later, "unread"])


_DIE_AFTER_THE_FIRST_FILE = """
import os, signal, sys

link = os.link

def link_and_die(source, target):
    link(source, target)
    os.kill(os.getpid(), signal.SIGKILL)

os.link = link_and_die
from pyspark_kafka_direct.cli.main import main

main(sys.argv[1:])
"""


@pytest.mark.parametrize(("source", "completes"), [(DIRECT, False), (DIRECT, True), (JVM, True)])
def test_a_kill_between_the_two_files(
    session: SparkSession, kafka: EmbeddedKafka, topics: list[str], tmp_path: Path, source: str, completes: bool
) -> None:
    options = {"subscribe": ",".join(topics), "startingOffsets": "earliest"}
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, options, source)
    stream.run()
    last, first, wanted = stream.committed, stream.values, {topics[0]: {0: 2}, topics[1]: {1: 4}}
    checkpoint = tmp_path / "checkpoint"
    command = ["checkpoint", "rewind", str(checkpoint), "--to-offsets", json.dumps(wanted), "--force", "--execute"]
    killed = subprocess.run([sys.executable, "-c", _DIE_AFTER_THE_FIRST_FILE, *command], check=False, timeout=300)
    assert (killed.returncode, stream.planned, stream.committed) == (-signal.SIGKILL, last + 1, last)
    if completes:
        assert rewind(checkpoint, wanted, "--execute") == 0
        assert (stream.planned, stream.committed) == (last + 1, last + 1)
    stream.run()
    assert stream.values == sorted([*first, "0-4", "0-6", "0-8", "1-9"])
    assert stream.batches.get(last + 1, []) == []


def test_rewinds_of_a_running_query_lose_and_tear_nothing(
    session: SparkSession, kafka: EmbeddedKafka, make_topic: MakeTopic, tmp_path: Path
) -> None:
    with setting(session, "spark.sql.streaming.minBatchesToRetain", "10000"):
        names, stream, results = _rewound_while_it_runs(session, kafka.bootstrap_servers, make_topic, tmp_path)
    assert results[0] >= 3, results  # that many rewinds have succeeded

    previous: dict[tuple[str, int], int] = {}
    for batch in range(stream.planned + 1):
        entry = (stream.folder / "checkpoint" / "offsets" / str(batch)).read_text()
        ends = ends_of(stream.folder, batch)
        assert ends is not None
        if '"pyspark_kafka_direct.rewound":"true"' in entry:
            assert not stream.batches.get(batch)  # it is there if the query has started between its two files
        else:
            expected = [
                f"{topic} {partition} {offset}"
                for (topic, partition), end in ends.items()
                for offset in range(previous.get((topic, partition), 0), end)
            ]
            assert stream.batches[batch] == sorted(expected)
        previous = ends
    assert {*stream.values} == {
        f"{topic} {partition} {n}" for topic in names for partition in range(2) for n in range(40)
    }


def test_a_query_with_state_gets_starting_offsets(
    session: SparkSession,
    kafka: EmbeddedKafka,
    topics: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"subscribe": ",".join(topics), "startingOffsets": "earliest"}
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, options)
    stream.run(stream.load().dropDuplicates(["value"]))
    last = stream.committed
    assert rewind(tmp_path / "checkpoint", {topics[1]: {1: 3}}, "--execute", "--json") == 1
    assert stream.planned == last
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads(shown["startingOffsets"]) == {topics[0]: {"0": 5, "1": 5}, topics[1]: {"0": 5, "1": 3}}
    again = Stream(session, kafka.bootstrap_servers, tmp_path / "new", {**options, **shown})
    again.options.pop("source")
    again.run()
    assert again.values == ["1-7", "1-9"]


def test_expired_offsets_are_named(
    kafka: EmbeddedKafka, topics: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = json.dumps({topic: {"0": 5, "1": 5} for topic in topics})
    for folder, lines in (("offsets", ["v1", "{}", ends]), ("commits", ["v1", "{}"])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text("\n".join(lines))
    Admin(kafka.bootstrap_servers).delete_records(topics[0], 3)
    assert rewind(tmp_path, {topics[0]: {0: 1}}, "--execute", "-b", kafka.bootstrap_servers) == 1
    assert f"cannot be read: {topics[0]}-0: 1 to 2." in capsys.readouterr().err
    assert rewind(tmp_path, {topics[0]: {0: 6}}, "--allow-skip", "-b", kafka.bootstrap_servers) == 1
    assert f"do not exist yet: {topics[0]}-0: 6, and the log ends at 5." in capsys.readouterr().err
    assert rewind(tmp_path, {topics[0]: {0: -2}}, "-b", kafka.bootstrap_servers, "--json") == 0
    assert json.loads(capsys.readouterr().out)["to"] == 3
    (tmp_path / "offsets" / "0").write_text(f'v1\n{{}}\n{{"{topics[0]}":{{"0":1}}}}')
    assert rewind(tmp_path, {topics[0]: {0: 2}}, "--allow-skip", "-b", kafka.bootstrap_servers) == 1
    assert f"cannot be read: {topics[0]}-0: 2 to 2." in capsys.readouterr().err


def _rewound_while_it_runs(
    session: SparkSession, servers: str, make_topic: MakeTopic, folder: Path
) -> tuple[list[str], Stream, Counter[int]]:
    """Rewind a query of two topics with 40 records in each partition; return the exit codes of the rewinds, too."""
    names, results = sorted(make_topic(2) for _ in range(2)), Counter[int]()
    stream = Stream(session, servers, folder, {"subscribe": ",".join(names), "startingOffsets": "earliest"})
    query, random = stream.start(), Random(56)
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(40):
        for topic in names:
            for partition in range(2):
                producer.produce(topic, f"{topic} {partition} {number}", partition=partition)
                assert producer.flush(300) == 0
        if number == 0:
            stream.wait(lambda: stream.committed >= 0, "the first commit")
        elif random.randrange(3):
            time.sleep(random.random() / 5)
        else:  # on a slow machine, a batch is in flight nearly always
            wait_until(partial(_is_idle, stream, query), "a commit or the end of the query")
        to = {random.choice(names): {random.randrange(2): random.randrange(number + 1)}}
        results[rewind(folder / "checkpoint", to, "--execute")] += 1
        if not query.isActive:
            assert "concurrent" in str(query.exception()).lower()
            query = stream.start()
    with contextlib.suppress(StreamingQueryException):
        query.processAllAvailable()
    assert query.exception() is None or "concurrent" in str(query.exception()).lower()
    query.stop()
    stream.run()
    return names, stream, results


def _is_idle(stream: Stream, query: StreamingQuery) -> bool:
    return stream.committed == stream.planned or not query.isActive
