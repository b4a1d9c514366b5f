"""``kafka-direct checkpoint preflight`` on checkpoints of real queries, of this package and of Spark's own source."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.stream_queries import Stream, produce
from tests.integration.topics import Admin

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


class Preflight:
    """Runs the command with a broker."""

    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._servers = servers
        self._capsys = capsys

    def __call__(self, code: int, checkpoint: Path, *arguments: str) -> tuple[list[dict[str, Any]], str]:
        """Return the rows and the standard error."""
        given = ["checkpoint", "preflight", str(checkpoint), "-b", self._servers, "--json", *arguments]
        result = main(given)
        output = self._capsys.readouterr()
        assert result == code, output
        return [json.loads(line) for line in output.out.splitlines()], output.err


@pytest.mark.parametrize(("first", "second"), [("kafka", "kafka-direct"), ("kafka-direct", "kafka")])
def test_a_query_that_moves_reads_what_preflight_shows(
    session: SparkSession,
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    first: str,
    second: str,
) -> None:
    topics = sorted(make_topic(1) for _ in range(2))
    preflight = Preflight(kafka.bootstrap_servers, capsys)
    options = {"subscribe": ",".join(topics), "startingOffsets": "earliest"}
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, options, first)
    for topic in topics:
        produce(kafka.bootstrap_servers, topic, range(4))
    stream.run()
    for topic in topics:
        produce(kafka.bootstrap_servers, topic, range(3))
    checkpoint = tmp_path / "checkpoint"
    selection = [argument for topic in topics for argument in ("--topic", topic)]
    before = sorted(path.stat().st_mtime_ns for path in checkpoint.rglob("*"))
    rows, errors = preflight(0, checkpoint, *selection, "--to", second)
    assert [tuple(row.values()) for row in rows] == [(f"{topic}-0", "ok", 4, 7, 3, 0) for topic in topics]
    assert errors == ""
    assert sorted(path.stat().st_mtime_ns for path in checkpoint.rglob("*")) == before

    copy = tmp_path / "unfinished"
    shutil.copytree(checkpoint, copy)
    stream.format = second
    assert sum(stream.run()) == 6
    assert preflight(0, checkpoint, *selection)[0][0]["offsets"] == 0
    last = max(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))
    shutil.copy(checkpoint / "offsets" / str(last), copy / "offsets" / str(last))  # planned, not committed
    for target in (first, second):
        rows, _ = preflight(0, copy, *selection, "--to", target)
        assert [(row["start"], row["end"]) for row in rows] == [(4, 7)] * 2
    assert main(["checkpoint", "preflight", str(copy), "-b", kafka.bootstrap_servers, *selection]) == 0
    assert f"first batch  {last}, planned and not committed" in capsys.readouterr().out


def test_another_query_and_lost_records(
    session: SparkSession,
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, other = make_topic(1), make_topic(2)
    preflight = Preflight(kafka.bootstrap_servers, capsys)
    produce(kafka.bootstrap_servers, topic, range(5))
    stream = Stream(session, kafka.bootstrap_servers, tmp_path, {"subscribe": topic, "startingOffsets": "earliest"})
    stream.run()
    checkpoint = tmp_path / "checkpoint"
    rows, errors = preflight(1, checkpoint, "--topic", other)
    assert rows == []
    assert errors.startswith(f"This is the checkpoint of another query: its source 0 reads {topic}, but")

    rows, errors = preflight(0, checkpoint, "--pattern", f"{topic}|{other}")
    assert {row["state"] for row in rows} == {"ok", "new"}
    produce(kafka.bootstrap_servers, topic, range(5))
    Admin(kafka.bootstrap_servers).delete_records(topic, 7)
    rows, errors = preflight(1, checkpoint, "--topic", topic)
    assert [tuple(row.values())[1:] for row in rows] == [("expired", 7, 10, 3, 2)]
    assert "expired: Records were deleted" in errors
    assert "With failOnDataLoss=true, the query fails." in errors
    _, errors = preflight(1, checkpoint, "--topic", topic, "-X", "failOnDataLoss=false")
    assert "the query fails" not in errors
    _, errors = preflight(
        1, checkpoint, "--topic", topic, "--to", "kafka", "-X", "startingOffsets=-1h", "-X", "maxBytesPerTrigger=1000"
    )
    assert "rejects startingOffsets=-1h" in errors
    assert "ignores maxBytesPerTrigger" in errors


def test_deleted_and_recreated_topics(
    session: SparkSession,
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deleted, recreated, grown = (make_topic(1) for _ in range(3))
    topics = [deleted, recreated, grown]
    for topic in topics:
        produce(kafka.bootstrap_servers, topic, range(5))
    options = {"subscribe": ",".join(topics), "startingOffsets": "earliest"}
    Stream(session, kafka.bootstrap_servers, tmp_path, options).run()
    admin = Admin(kafka.bootstrap_servers)
    admin.delete(deleted)
    admin.recreate(recreated, 1)
    admin.grow(grown, 2)
    produce(kafka.bootstrap_servers, recreated, range(3))
    checkpoint = tmp_path / "checkpoint"

    preflight = Preflight(kafka.bootstrap_servers, capsys)
    selection = [argument for topic in topics for argument in ("--topic", topic)]
    rows, errors = preflight(1, checkpoint, *selection)
    assert {row.pop("partition"): tuple(row.values()) for row in rows} == {
        f"{deleted}-0": ("deleted", 5, None, None, None),
        f"{recreated}-0": ("beyond end", 5, None, None, None),
        f"{grown}-0": ("ok", 5, 5, 0, 0),
        f"{grown}-1": ("new", 0, 0, 0, 0),
    }
    assert "deleted: The topic or partition does not exist any more" in errors
    assert "beyond end: The log ends before the offset of the checkpoint" in errors
    assert "With failOnDataLoss=true, the query fails." in errors

    assert main(["checkpoint", "show", str(checkpoint), "-b", kafka.bootstrap_servers, "--json"]) == 1
    shown = capsys.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert {row["partition"]: (row["log_end"], row["lag"]) for row in rows} == {
        f"{deleted}-0": (None, None),
        f"{recreated}-0": (3, -2),
        f"{grown}-0": (5, 0),
    }
    assert f"No longer in the cluster: {deleted}-0. The topics were deleted, or" in shown.err
    assert f"The query continues behind the end of the log: {recreated}-0 at 5." in shown.err
