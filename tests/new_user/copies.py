"""A user's program: it copies the flights exactly once, in small batches; with ``check`` it compares the copies.

    python copies.py SERVERS FOLDER go|finish|check

It imports the installed package only, and runs with every supported version of Spark.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession, functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT = 1500  # records of a batch until the kill
LIMIT_TO_THE_END = 20_000  # a slow machine must copy faster than the sample writes


def main(servers: str, folder: str, what: str) -> None:
    """Run one of the three commands."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if what == "check":
        check(spark, servers)
    else:
        copy(spark, servers, folder, to_the_end=what == "finish")


def copy(spark: SparkSession, servers: str, folder: str, *, to_the_end: bool) -> None:
    """Copy flights to the topic ``copies`` and print each batch."""
    limit = LIMIT_TO_THE_END if to_the_end else LIMIT
    flights = (
        spark.readStream.format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .load()
    )
    writer = (
        flights.select("key", functions.concat_ws(":", "partition", "offset").alias("value"))
        .writeStream.format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "copies")
        .option("deliveryGuarantee", "exactly-once")
        .option("transactionalIdPrefix", "copies")
        .option("checkpointLocation", f"{folder}/copies.checkpoint")
    )
    if not to_the_end:
        follow(writer.trigger(processingTime="1 second").start())
        return
    # Spark before 4.2 ends an available-now query after one batch: after the restart, after the pending one.
    follow(writer.trigger(availableNow=True).start())
    # A batch that is at most half full is the last one.
    while follow(writer.trigger(availableNow=True).start()) > limit // 2:
        pass


def follow(query: StreamingQuery) -> int:
    """Print each batch of a query until it ends; return the number of rows of the last one."""
    told = -1
    while query.isActive:
        query.awaitTermination(1)
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != told:
            told = progress["batchId"]
            print(f"batch {told}", flush=True)
    query.awaitTermination()
    last = query.lastProgress
    return 0 if last is None else int(last["numInputRows"])


def check(spark: SparkSession, servers: str) -> None:
    """Compare the copies of each partition with its flights, up to the last copied offset."""
    copied = records(spark, servers, "copies").select(
        functions.split(functions.col("value").cast("string"), ":").alias("place")
    )
    places = copied.selectExpr("cast(place[0] as int) partition", "cast(place[1] as long) offset")
    partitions = places.groupBy("partition").agg(
        functions.count("*").alias("copies"),
        functions.countDistinct("offset").alias("flights"),
        functions.max("offset").alias("last"),
    )
    rows = sorted(partitions.collect())
    for partition, copies, flights, last in rows:
        print(f"partition {partition}: offsets 0 to {last}, {flights} flights, {copies} copies")
    right = all(copies == flights == last + 1 for _, copies, flights, last in rows)
    total = sum(row["flights"] for row in rows)
    print(f"{total} flights, each copied once" if right and total >= 10_000 else "WRONG")


def records(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """Return the records of a topic."""
    return (
        spark.read.format("kafka-direct")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
