"""Reads, streams and writes over Spark Connect: python connect_app.py SERVERS TOPIC OUTPUT FOLDER

The server runs in a JVM of this process, and the client has only its port. The results go to FOLDER/results.json.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.connect.client.core import DefaultChannelBuilder

import pyspark_kafka_direct

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

DEADLINE = 600  # seconds


def main(servers: str, topic: str, output: str, folder: str) -> None:
    spark = connect()
    results: dict[str, Any] = {"session": type(spark).__module__}
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}

    batch = spark.read.format("kafka-direct").options(**options).load()
    results["batch"] = sorted(row.value.decode() for row in batch.collect())
    results["filtered"] = batch.where("partition = 1").count()
    writer = batch.select("key", "value").write.format("kafka-direct").mode("append")
    writer.option("kafka.bootstrap.servers", servers).option("topic", output).save()
    try:
        spark.read.format("kafka-direct").options(**options, startingOffset="latest").load().count()
    except Exception as error:
        results["error"] = str(error)

    monitor = pyspark_kafka_direct.enable(spark)
    stream = spark.readStream.format("kafka-direct").options(**options, maxOffsetsPerTrigger="4").load()
    values = stream.selectExpr("cast(value as string) text")
    query = run_to_end(values.writeStream.format("memory").queryName("stream_rows"), folder, "plain")
    results["stream"] = sorted(row.text for row in spark.table("stream_rows").collect())
    wait_for(lambda: (lag := monitor.lag(query)) is not None and lag.sources[0].total == 0)
    lag = monitor.lag(query)
    assert lag is not None
    results["lag"] = [(each.topic, each.partition, each.offset, each.lag) for each in lag.sources[0].partitions]

    def save(batch: DataFrame, batch_id: int) -> None:
        """Save the rows of a batch; Spark calls this on the server."""
        texts = [row.text for row in batch.collect()]
        (Path(folder) / f"batch-{batch_id}").write_text(json.dumps(sorted(texts)), "utf-8")

    run_to_end(values.writeStream.foreachBatch(save), folder, "each")
    results["each"] = [json.loads(file.read_text("utf-8")) for file in sorted(Path(folder).glob("batch-*"))]
    (Path(folder) / "results.json").write_text(json.dumps(results), "utf-8")
    # The program has to exit although this query runs and the session, which has a listener, is not stopped.
    running = values.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint-running").start()
    wait_for(lambda: running.lastProgress is not None)
    assert running.isActive


def connect() -> SparkSession:
    """Return a session of Spark Connect on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    builder = SparkSession.builder.remote("local[2]").config("spark.connect.grpc.binding.port", str(port))
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    # Workers are forked from a process that has imported their modules, which saves CPU time.
    builder = builder.config("spark.python.daemon.module", "pyspark_kafka_direct.daemon")
    return builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


def run_to_end(writer: Any, folder: str, name: str) -> Any:
    """Run a query with Trigger.AvailableNow, and return it."""
    query = writer.option("checkpointLocation", f"{folder}/checkpoint-{name}").trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE), "the query did not end"
    return query


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
