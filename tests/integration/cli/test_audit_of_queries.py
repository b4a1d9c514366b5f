"""``kafka-direct audit`` of the outputs of real queries: topics, Spark's file sink, and a Delta table."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from tests.documentation import fenced
from tests.integration.cli.audits import Auditor
from tests.integration.sessions import setting

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.broker import EmbeddedKafka

_PAGE = "docs/command-line.md"


@pytest.fixture
def auditor(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Auditor:
    return Auditor(kafka.bootstrap_servers, capsys)


@pytest.fixture
def flights(bench: Workbench) -> str:
    """A topic of two partitions with 20 and 10 records."""
    topic = bench.make_topic(2)
    write_more(bench, topic)
    return topic


def write_more(bench: Workbench, topic: str) -> None:
    bench.write(topic, [b"x"] * 20, partition=0)
    bench.write(topic, [b"x"] * 10, partition=1)


def stream_of(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    reader = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def run(writer: DataStreamWriter, checkpoint: Path) -> None:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(600)


def uncommit_last_batch(checkpoint: Path) -> None:
    """Let the next run repeat the last batch, as after a crash between the output and the commit."""
    last = max(
        (each for each in (checkpoint / "commits").iterdir() if each.name.isdecimal()), key=lambda e: int(e.name)
    )
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def run_example_of_page(
    spark: SparkSession, servers: str, topic: str, output: str, checkpoint: Path, options: str
) -> None:
    """Run the query on the page of the command."""
    (block,) = (each for each in fenced(_PAGE) if each.language == "python" and "source.offset" in each.text)
    text = block.text.replace("localhost:9092", servers).replace("copies.checkpoint", str(checkpoint))
    text = text.replace('"flights"', f'"{topic}"').replace('"copies"', f'"{output}"')
    exec(text.replace(".trigger(", f"{options}.trigger("), {"spark": spark})


def test_the_example_with_a_batch_that_was_repeated(
    spark: SparkSession, auditor: Auditor, bench: Workbench, flights: str, tmp_path: Path
) -> None:
    output = bench.make_topic()

    def write() -> None:
        run_example_of_page(spark, auditor.servers, flights, output, tmp_path, options="")

    write()
    write_more(bench, flights)
    arguments = [flights, "--output-topic", output, "--checkpoint", str(tmp_path)]
    # The records that were not committed yet are not missing.
    audit = auditor.run(*arguments)
    assert (audit.code, [row["expected"] for row in audit.rows], audit.stderr) == (0, [20, 10], "")
    assert auditor.run(*arguments[:3]).code == 1
    write()
    audit = auditor.run(*arguments)
    assert (audit.code, audit.problems) == (0, [([], [], [])] * 2)
    uncommit_last_batch(tmp_path)
    write()
    audit = auditor.run(*arguments)
    assert (audit.code, [(row["missing"], row["duplicates"]) for row in audit.rows]) == (1, [(0, 20), (0, 10)])
    assert [row["first_duplicates"] for row in audit.rows] == [[*range(20, 30)], [*range(10, 20)]]


def test_exactly_once_has_no_duplicates(
    spark: SparkSession, auditor: Auditor, bench: Workbench, flights: str, tmp_path: Path
) -> None:
    output = bench.make_topic()
    exactly_once = {
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": output,
        "sinkStateTopic": f"{output}-state",
    }
    options = "".join(f".option({name!r}, {value!r})" for name, value in exactly_once.items())
    run_example_of_page(spark, auditor.servers, flights, output, tmp_path, options)
    uncommit_last_batch(tmp_path)
    run_example_of_page(spark, auditor.servers, flights, output, tmp_path, options)
    audit = auditor.run(flights, "--output-topic", output, "--checkpoint", str(tmp_path))
    assert (audit.code, audit.problems, audit.stderr) == (0, [([], [], [])] * 2, "")


@pytest.mark.parametrize(
    ("file_format", "partitioned"), [("parquet", False), ("parquet", True), ("json", False), ("csv", False)]
)
def test_files_of_the_file_sink(
    spark: SparkSession,
    auditor: Auditor,
    bench: Workbench,
    flights: str,
    tmp_path: Path,
    file_format: str,
    partitioned: bool,
) -> None:
    output, checkpoint = tmp_path / "output", tmp_path / "checkpoint"
    rows = stream_of(spark, auditor.servers, flights).select("topic", "partition", "offset", "timestamp")
    writer = rows.writeStream.format(file_format).option("path", str(output)).option("header", "true")
    writer = writer.partitionBy("partition") if partitioned else writer
    arguments = [flights, "--output-table", str(output), "--checkpoint", str(checkpoint)]
    with setting(spark, "spark.sql.streaming.fileSink.log.compactInterval", "2"):
        for _ in range(3):  # so that the log has a compact entry, and one after it
            run(writer, checkpoint)
            write_more(bench, flights)
    assert list((output / "_spark_metadata").glob("*.compact"))
    audit = auditor.run(*arguments)
    assert (audit.code, [row["expected"] for row in audit.rows], audit.problems) == (0, [60, 30], [([], [], [])] * 2)
    # A file of a failed task is no output.
    files = [each for each in output.rglob(f"part-*.{file_format}") if each.stat().st_size]
    stray = files[0].with_name(f"part-stray.{file_format}")
    shutil.copy(files[0], stray)
    assert auditor.run(*arguments).code == 0
    files[0].unlink()
    audit = auditor.run(*arguments)
    assert (audit.code, sum(row["missing"] for row in audit.rows) > 0) == (1, True)
    assert re.search("1 files are in the log of Spark's file sink, but do not exist", " ".join(audit.stderr.split()))
    # Without the log, all files count.
    shutil.rmtree(output / "_spark_metadata")
    shutil.copy(stray, files[0])
    audit = auditor.run(*arguments)
    assert (audit.code, sum(row["missing"] for row in audit.rows)) == (1, 0)
    stray.unlink()
    assert auditor.run(*arguments).code == 0


def test_delta_table(spark: SparkSession, auditor: Auditor, bench: Workbench, flights: str, tmp_path: Path) -> None:
    table, checkpoint = str(tmp_path / "table"), tmp_path / "checkpoint"

    def write(batch: Any, _: int) -> None:
        deltalake.write_deltalake(table, batch.select("topic", "partition", "offset").toArrow(), mode="append")

    def audit() -> list[tuple[int, list[int], list[int]]]:
        found = auditor.run(flights, "--output-table", table, "--checkpoint", str(checkpoint))
        return [(found.code, row["first_missing"], row["first_duplicates"]) for row in found.rows]

    writer = stream_of(spark, auditor.servers, flights).writeStream.foreachBatch(write)
    run(writer, checkpoint)
    assert audit() == [(0, [], [])] * 2
    deltalake.DeltaTable(table).delete("partition = 0 and offset in (3, 4)")
    assert audit() == [(1, [3, 4], []), (1, [], [])]
    deltalake.DeltaTable(table).restore(0)
    write_more(bench, flights)
    run(writer, checkpoint)
    uncommit_last_batch(checkpoint)
    run(writer, checkpoint)
    assert audit() == [(1, [], [*range(20, 30)]), (1, [], [*range(10, 20)])]


def test_the_output_of_an_aggregation_is_refused(
    spark: SparkSession, auditor: Auditor, flights: str, tmp_path: Path
) -> None:
    output, checkpoint = tmp_path / "output", tmp_path / "checkpoint"
    last = stream_of(spark, auditor.servers, flights).groupBy("topic", "partition").agg({"offset": "max"})

    def write(batch: Any, _: int) -> None:
        batch.withColumnRenamed("max(offset)", "offset").write.mode("overwrite").parquet(str(output))

    run(last.writeStream.outputMode("complete").foreachBatch(write), checkpoint)
    refused = auditor.run(flights, "--output-table", str(output), "--checkpoint", str(checkpoint))
    assert (refused.code, refused.rows) == (2, [])
    assert "The query of" in refused.stderr
    assert "has state: it aggregates, joins, or removes duplicates" in refused.stderr
