"""Writes a year of flights from Spark to Kafka and reads them back, without a connector jar. Run it with ``make demo``.

The results are in ``demo-output``, or in the folder of the first argument. With ``--external host:port``, the demo uses
a running Kafka cluster, where it creates its own topics and deletes them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import _delay_chart
import _flights
import _streaming_demo
from _steps import Steps
from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 6
OUTPUT = Path(__file__).resolve().parent.parent / "demo-output"

NEXT = """
What to try next:
  docs/first-query.md                      a query of yours, batch and stream, with this broker on 127.0.0.1:9092:
  {bin}/python -m pyspark_kafka_direct.broker --topic flights:6 --sample flights
  .schema("value binary, offset long")     before .load(): only these columns are decoded, at half the cost
  .option("minPartitions", "12")           more tasks than the topic has partitions
  docs/sink.md                             writing, at least once and exactly once
  docs/options.md                          all options
  make bench                               a comparison with Spark's own connector
"""


def main(output: Path, external: str | None = None) -> int:
    """Run the demo; return 1 if a flight is missing or duplicated, in the batch or in the streaming query."""
    if external is not None and importlib.util.find_spec("confluent_kafka") is None:
        print("--external needs confluent-kafka, to delete the topics: pip install confluent-kafka", file=sys.stderr)
        return 1
    output.mkdir(parents=True, exist_ok=True)
    steps = Steps(9)
    kafka = EmbeddedKafka(external=external)
    topic = "flights" if external is None else f"flights-{uuid.uuid4().hex[:8]}"
    with steps.step("Starting Apache Kafka" if external is None else "Using the external Kafka cluster"):
        kafka.start()
        steps.say(f"The broker listens on {kafka.bootstrap_servers}.")
    try:
        topics = _flights.Topics.with_prefix(topic)
        try:
            complete = _use_spark(steps, kafka.bootstrap_servers, topics, output)
        finally:
            if external is not None:
                _flights.delete(kafka.bootstrap_servers, list(topics))
    finally:
        kafka.close()
    print(f"\n{steps.summary()}")
    print(f"\nFlights:  {output / 'flights.parquet'}")
    print(f"Pictures: {output / 'delays.png'}\n          {output / 'live.png'}")
    print(f"Log:      {output / 'spark.log'}")
    print(NEXT.format(bin=os.path.relpath(Path(sys.executable).parent)), end="", flush=True)
    return 0 if complete else 1


def _use_spark(steps: Steps, servers: str, topics: _flights.Topics, output: Path) -> bool:
    with steps.step("Starting Spark"):
        # Starting Spark takes seconds, mostly on another core.
        replayed_flights = ThreadPoolExecutor(1).submit(_streaming_demo.early_flights)
        with _standard_error_of_children(output / "spark.log"):
            spark = start_spark()
        steps.say(f"PySpark {spark.version}")
    try:
        write = f"Writing {_flights.FLIGHTS:,} flights as JSON to topic {topics.flights}, {PARTITIONS} partitions"
        with steps.step(write), tempfile.TemporaryDirectory() as folder:
            for each in (topics.flights, topics.replayed, topics.windows):
                _flights.create(servers, each, PARTITIONS)
            write_flights(_flights.as_frame(spark, Path(folder)), servers, topics.flights)
        with steps.step("Reading the topic"):
            flights = read_flights(spark, servers, topics.flights).cache()
            count = flights.count()
            steps.say(f"{count:,} records")
        with steps.step("Checking that each flight was read exactly once"):
            distinct = flights.select(*_flights.KEY_COLUMNS).distinct().count()
            complete: bool = count == distinct == _flights.FLIGHTS
            result = "yes" if complete else "NO"
            steps.say(f"{count:,} records, {distinct:,} different flights, {_flights.FLIGHTS:,} in the file: {result}")
        with steps.step("Writing Parquet"):
            flights.write.mode("overwrite").parquet(str(output / "flights.parquet"))
        with steps.step("Counting departures, without cancelled flights, and their delay by origin and hour"):
            rows = delays(flights)
            steps.say(as_table(rows))
            _delay_chart.draw(rows, output / "delays.png")
        same = _streaming_demo.run(steps, spark, servers, topics, replayed_flights.result(), flights, output)
    except Exception:
        steps.say(f"Spark's log is {output / 'spark.log'}.")
        raise
    finally:
        spark.stop()
    return complete and same


def start_spark() -> SparkSession:
    """Start a local Spark session without progress bars."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.appName("flights")
        .master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executor.heartbeatInterval", "100s")  # Spark 4.2 fails heartbeats while a cache is filled
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "America/New_York")
        .getOrCreate()
    )


def write_flights(flights: DataFrame, servers: str, topic: str) -> None:
    """Write the flights as JSON; their timestamp is the scheduled hour. The sink needs no further setup."""
    from pyspark.sql.functions import col, struct, to_json

    df = flights.select(
        col("carrier").alias("key"), to_json(struct("*")).alias("value"), col("time_hour").alias("timestamp")
    )
    (
        df.write.format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.compression.type", "lz4")
        .option("topic", topic)
        .mode("append")
        .save()
    )


def read_flights(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """Read the topic; the source decodes the JSON values. It needs no jar and no registration."""
    df = (
        spark.read.format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("valueFormat", "json")
        .schema(f"partition int, offset long, value struct<{_flights.JSON_SCHEMA}>")
        .load()
    )
    return _flights.with_time(df.select("partition", "offset", "value.*"))


def delays(flights: DataFrame) -> list[tuple[str, int, int, float]]:
    """Return departures and their mean delay in minutes, by origin and scheduled hour; without cancelled flights."""
    from pyspark.sql.functions import avg, count

    grouped = (
        flights.where("dep_delay is not null")
        .groupBy("origin", "hour")
        .agg(count("*").alias("departures"), avg("dep_delay").alias("delay"))
        .orderBy("origin", "hour")
    )
    return [(row.origin, row.hour, row.departures, row.delay) for row in grouped.collect()]


def as_table(rows: list[tuple[str, int, int, float]]) -> str:
    """Format a table with a row per hour and columns per airport."""
    origins = sorted({origin for origin, *_ in rows})
    cells = {(origin, hour): f"{count:11,}{delay:+7.1f} min" for origin, hour, count, delay in rows}
    empty = " " * 22
    lines = ["hour" + "".join(f"{origin:>11}      delay" for origin in origins)]
    lines += [
        f"{hour:>3}h" + "".join(cells.get((origin, hour), empty) for origin in origins)
        for hour in sorted({hour for _, hour, *_ in rows})
    ]
    return "\n".join(lines)


@contextmanager
def _standard_error_of_children(file: Path) -> Iterator[None]:
    """Store in this file what processes that start meanwhile print, such as Java's note about incubator modules."""
    ours = os.dup(2)
    with file.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


if __name__ == "__main__":
    try:
        parser = argparse.ArgumentParser(description="Write flights to Kafka and read them back.")
        parser.add_argument("output", nargs="?", type=Path, default=OUTPUT, help="folder of the results")
        parser.add_argument("--external", metavar="HOST:PORT", help="a running Kafka cluster to use")
        sys.exit(main(**vars(parser.parse_args())))
    except KeyboardInterrupt:
        print("\nInterrupted. Spark and Kafka are stopped.")
        sys.exit(130)
