"""Run by test_process_exit: a continuous query that still runs when its process ends.

    python exit_app.py SERVERS SOURCE OUTPUT FOLDER return|raise|stop-session

It waits for a line of standard input. Then it returns or fails. With ``stop-session``, it stops the session, starts a
query in another one and waits for another line. Then it runs a micro-batch query, and returns.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import pyspark_kafka_direct
from pyspark_kafka_direct.continuous import continuous_query

if TYPE_CHECKING:
    from pyspark_kafka_direct.continuous import ContinuousQuery

servers, source, output, folder, how = sys.argv[1:]


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    # Workers are forked from a process that has imported their modules, which saves CPU time.
    builder = builder.config("spark.python.daemon.module", "pyspark_kafka_direct.daemon")
    return builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


def start(spark: SparkSession, name: str) -> ContinuousQuery:
    """Start a query, and wait for a line."""
    query = (
        continuous_query(spark)
        .read({"kafka.bootstrap.servers": servers}, subscribe=source, startingOffsets="earliest")
        .select("value")
        .to_kafka(output)
        .start(checkpointLocation=f"{folder}/{name}", epochInterval="1 hour")
    )
    print("running", flush=True)
    sys.stdin.readline()
    return query


def run_batch(spark: SparkSession) -> None:
    pyspark_kafka_direct.enable(spark)
    reader = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", servers)
    reader = reader.options(subscribe=source, startingOffsets="earliest", commitGroupId=f"group-{source}")
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", f"{folder}/batches")
    query = writer.trigger(once=True).start()  # no next batch is planned, so only the listener can commit
    assert query.awaitTermination(600), "the query did not end"


spark = session()
query = start(spark, "first")
if how == "raise":
    raise SystemExit(3)
if how == "stop-session":
    spark.stop()
    try:
        query.awaitTermination(600)
    except Exception as error:
        print(f"ended by {type(error).__name__}: {error}", flush=True)
    spark = session()
    query = start(spark, "second")
    run_batch(spark)
print("done", flush=True)
