"""Reads, streams and writes over Spark Connect: python connect_app.py SERVERS TOPIC OUTPUT FOLDER

The server is in a JVM of this process, the client knows it by its port only. What was seen goes to FOLDER/seen.json.
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

DEADLINE = 120  # seconds


def main(servers: str, topic: str, output: str, folder: str) -> None:
    spark = connect()
    seen: dict[str, Any] = {"session": type(spark).__module__}
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}

    batch = spark.read.format("kafka-direct").options(**options).load()
    seen["batch"] = sorted(row.value.decode() for row in batch.collect())
    seen["filtered"] = batch.where("partition = 1").count()
    writer = batch.select("key", "value").write.format("kafka-direct").mode("append")
    writer.option("kafka.bootstrap.servers", servers).option("topic", output).save()
    try:
        spark.read.format("kafka-direct").options(**options, startingOffset="latest").load().count()
    except Exception as error:
        seen["refused"] = str(error)

    monitor = pyspark_kafka_direct.enable(spark)
    stream = spark.readStream.format("kafka-direct").options(**options, maxOffsetsPerTrigger="4").load()
    texts = stream.selectExpr("cast(value as string) text")
    query = start(texts.writeStream.format("memory").queryName("seen"), folder, "plain")
    seen["stream"] = sorted(row.text for row in spark.table("seen").collect())
    wait_for(lambda: (lag := monitor.lag(query)) is not None and lag.sources[0].total == 0)
    lag = monitor.lag(query)
    assert lag is not None
    seen["lag"] = [(each.topic, each.partition, each.offset, each.lag) for each in lag.sources[0].partitions]

    def keep(batch: DataFrame, number: int) -> None:
        """Run on the server."""
        texts = [row.text for row in batch.collect()]
        (Path(folder) / f"batch-{number}").write_text(json.dumps(sorted(texts)), "utf-8")

    start(texts.writeStream.foreachBatch(keep), folder, "each")
    seen["each"] = [json.loads(file.read_text("utf-8")) for file in sorted(Path(folder).glob("batch-*"))]
    (Path(folder) / "seen.json").write_text(json.dumps(seen), "utf-8")
    spark.stop()


def connect() -> SparkSession:
    """A session of Spark Connect, at a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    builder = SparkSession.builder.remote("local[2]").config("spark.connect.grpc.binding.port", str(port))
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    return builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


def start(writer: Any, folder: str, name: str) -> Any:
    """A query that has ended."""
    query = writer.option("checkpointLocation", f"{folder}/checkpoint-{name}").trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE), "the query did not end"
    return query


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
