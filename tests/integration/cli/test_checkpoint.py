"""``kafka-direct checkpoint show`` on the checkpoint of a real query of two topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_kafka_direct import write_arrow
from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka


def test_offsets_and_lag_of_a_query(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    make_topic: MakeTopic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topics = sorted(make_topic(1) for _ in range(2))
    checkpoint = str(tmp_path / "checkpoint")
    servers = {"bootstrap.servers": kafka.bootstrap_servers}

    def write(rows: int) -> None:
        for topic in topics:
            write_arrow(topic, pa.table({"value": [b"x"] * rows}), servers)

    def run() -> None:
        query = (
            spark.readStream.format("kafka-direct")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)

    write(3)
    run()
    write(4)
    run()
    write(5)
    assert main(["checkpoint", "show", checkpoint, "-b", kafka.bootstrap_servers, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["partition"], row["start"], row["end"], row["log_end"], row["lag"]) for row in rows] == [
        (f"{topic}-0", 3, 7, 12, 5) for topic in topics
    ]
    assert {row["state"] for row in rows} == {"committed"}
    assert main(["checkpoint", "show", checkpoint]) == 0
    metadata = json.loads((tmp_path / "checkpoint" / "metadata").read_text())
    assert f"query id           {metadata['id']}\n" in capsys.readouterr().out
