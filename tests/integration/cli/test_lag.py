"""``kafka-direct lag`` with two groups and two topics of a real broker."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.cli.program import START, run
from tests.integration.topics import Admin

from pyspark_kafka_direct import write_arrow

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


@pytest.fixture
def topics(kafka: EmbeddedKafka, make_topic: MakeTopic) -> list[str]:
    """Two topics with ten records in one partition; the first one has an open transaction behind them."""
    topics = sorted(make_topic(1) for _ in range(2))
    for topic in topics:
        write_arrow(topic, pa.table({"value": [b"x"] * 10}), {"bootstrap.servers": kafka.bootstrap_servers})
    return topics


def commit(kafka: EmbeddedKafka, group: str, offsets: dict[str, int]) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset) for topic, offset in offsets.items()], asynchronous=False)
    consumer.close()


def lag(kafka: EmbeddedKafka, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("lag", *arguments, "-b", kafka.bootstrap_servers)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lag_up_to_the_end_and_up_to_open_transactions(kafka: EmbeddedKafka, topics: list[str]) -> None:
    one, two = topics
    commit(kafka, f"{one}-a", {one: 4, two: 10})
    commit(kafka, f"{one}-b", {two: 0})
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{one}-open"})
    writer.init_transactions(300)
    writer.begin_transaction()
    writer.produce(one, b"open")
    assert writer.flush(300) == 0
    done = lag(kafka, f"{one}-a", f"{one}-b", "--json")
    assert done.returncode == 0
    assert rows(done.stdout) == [
        {"group": f"{one}-a", "partition": f"{one}-0", "offset": 4, "end": 11, "lag": 7, "stable_lag": 6},
        {"group": f"{one}-a", "partition": f"{two}-0", "offset": 10, "end": 10, "lag": 0, "stable_lag": 0},
        {"group": f"{one}-b", "partition": f"{two}-0", "offset": 0, "end": 10, "lag": 10, "stable_lag": 10},
    ]
    writer.abort_transaction(300)
    table = lag(kafka, f"{one}-b").stdout.splitlines()
    assert table[0].split() == ["GROUP", "PARTITION", "OFFSET", "END", "LAG", "STABLE", "LAG"]
    assert table[1].split() == [f"{one}-b", f"{two}-0", "0", "10", "10", "10"]
    unknown = lag(kafka, f"{one}-b", "no-such-group", "--json")
    assert (unknown.returncode, len(rows(unknown.stdout))) == (1, 1)
    assert "no-such-group: no committed offsets; check the id" in unknown.stderr


def test_watch_shows_rates(kafka: EmbeddedKafka, topics: list[str]) -> None:
    group = f"{topics[0]}-watched"
    commit(kafka, group, {topics[0]: 2})
    command = [*START, "lag", group, "--watch", "--interval", "0.2", "--json", "-b", kafka.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["lag"], first["rate"]) == (8, None)
        commit(kafka, group, {topics[0]: 9})
        for line in process.stdout:
            row = json.loads(line)
            if row["offset"] == 9:
                break
            assert row["rate"] == 0
        assert row["lag"] == 1
        assert row["rate"] > 0
        # The rate is that since the show before, not since the start.
        assert [json.loads(process.stdout.readline())["rate"] for _ in range(3)] == [0, 0, 0]
        process.kill()


def write_checkpoint(folder: Path, batches: list[dict[str, int]], committed: int) -> str:
    """Write the checkpoint of a query of Spark's own source, with these end offsets; return its path."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id":"3fa1c1a5"}')
    (folder / "sources/0/0").write_text("\0v1\n" + json.dumps({topic: {"0": 1} for topic in batches[0]}))
    for number, ends in enumerate(batches):
        age = 90 + 3600 * (len(batches) - 1 - number)  # in seconds: one batch an hour
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": int((time.time() - age) * 1000)})
        offsets = json.dumps({topic: {"0": end} for topic, end in ends.items()})
        (folder / f"offsets/{number}").write_text("\n".join(["v1", metadata, offsets]))
    for number in range(committed):
        (folder / f"commits/{number}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return str(folder)


def test_lag_of_queries(kafka: EmbeddedKafka, topics: list[str], tmp_path: Path) -> None:
    one, two = topics
    # The second topic was added after the first batch.
    first = write_checkpoint(tmp_path / "first", [{one: 4}, {one: 4, two: 7}, {one: 6, two: 8}], committed=2)
    second = write_checkpoint(tmp_path / "second", [{two: 10}], committed=1)
    commit(kafka, f"{one}-group", {two: 3})
    arguments = [f"{one}-group", "--checkpoint", first, "--checkpoint", second]
    done = lag(kafka, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    in_group, *in_queries = rows(done.stdout)
    assert in_group == {
        "group": f"{one}-group",
        "partition": f"{two}-0",
        "offset": 3,
        "end": 10,
        "lag": 7,
        "stable_lag": 7,
    }
    assert [row["age_seconds"] // 300 for row in in_queries] == [0, 0, 0]
    assert min(row["age_seconds"] for row in in_queries) >= 90
    shown = ("checkpoint", "query_id", "batch", "state", "source", "partition", "offset", "lag", "stable_lag")
    assert [tuple(row[name] for name in shown) for row in in_queries] == [
        (first, "3fa1c1a5", 2, "in flight", "0", f"{one}-0", 4, 6, 6),
        (first, "3fa1c1a5", 2, "in flight", "0", f"{two}-0", 7, 3, 3),
        (second, "3fa1c1a5", 0, "committed", "0", f"{two}-0", 10, 0, 0),
    ]
    queries, _, table = lag(kafka, *arguments).stdout.partition("\n\n")
    assert queries.splitlines()[1].split()[:5] == [first, "3fa1c1a5", "2", "in", "flight"]
    assert table.splitlines()[0].split()[:4] == ["GROUP", "OR", "CHECKPOINT", "PARTITION"]
    assert [line.split()[0] for line in table.splitlines()[1:]] == [f"{one}-group", first, first, second]


def test_a_query_without_a_committed_batch_is_behind_from_its_start(
    kafka: EmbeddedKafka, topics: list[str], tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path, [dict.fromkeys(topics, 5)], committed=0)
    assert [row["lag"] for row in rows(lag(kafka, "--checkpoint", checkpoint, "--json").stdout)] == [9, 9]


def test_a_query_behind_the_end_of_the_log(kafka: EmbeddedKafka, topics: list[str], tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, [{topics[0]: 300, topics[1]: 10}], committed=1)
    done = lag(kafka, "--checkpoint", checkpoint)
    assert (
        done.returncode,
        f"The query continues behind the end of the log: {topics[0]}-0 at 300." in done.stderr,
    ) == (
        1,
        True,
    )


def test_a_deleted_topic(kafka: EmbeddedKafka, topics: list[str], tmp_path: Path) -> None:
    one, two = topics
    checkpoint = write_checkpoint(tmp_path, [{one: 4, two: 7}], committed=1)
    Admin(kafka.bootstrap_servers).delete(one)
    done = lag(kafka, "--checkpoint", checkpoint, "--json")
    assert done.returncode == 1, done.stderr
    assert f"No longer in the cluster: {one}-0. The topics were deleted" in done.stderr
    assert [(row["partition"], row["offset"], row["end"], row["lag"]) for row in rows(done.stdout)] == [
        (f"{one}-0", 4, None, None),
        (f"{two}-0", 7, 10, 3),
    ]


def test_watch_reads_the_checkpoint_again(kafka: EmbeddedKafka, topics: list[str], tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, [{topics[0]: 4}], committed=1)
    command = [*START, "lag", "--checkpoint", checkpoint, "--watch", "--interval", "0.2", "--json"]
    with subprocess.Popen([*command, "-b", kafka.bootstrap_servers], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["batch"], first["lag"], first["rate"]) == (0, 6, None)
        write_checkpoint(tmp_path, [{topics[0]: 4}, {topics[0]: 10}], committed=2)
        row = next(row for row in map(json.loads, process.stdout) if row["batch"] == 1 and row["lag"] == 0)
        assert row["rate"] > 0
        process.kill()


def test_groups_or_checkpoints_are_needed(kafka: EmbeddedKafka) -> None:
    done = lag(kafka)
    assert (done.returncode, "Name a consumer group, or the checkpoint" in done.stderr) == (2, True)


def test_the_interval_is_positive(kafka: EmbeddedKafka) -> None:
    done = lag(kafka, "group", "--interval", "0")
    assert (done.returncode, "--interval must be more than 0" in done.stderr) == (2, True)
