"""Run by test_process_exit: a continuous query that still runs when its process ends."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from pyspark_kafka_direct.continuous import continuous_query

servers, source, output, checkpoint, how = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
query = (
    continuous_query(spark)
    .read({"kafka.bootstrap.servers": servers}, subscribe=source, startingOffsets="earliest")
    .select("value")
    .to_kafka(output)
    .start(checkpointLocation=checkpoint, epochInterval="1 hour")
)
print("running", flush=True)
sys.stdin.readline()
if how == "stop-session":
    spark.stop()
    try:
        query.awaitTermination(60)
    except Exception as error:
        print(f"ended by {type(error).__name__}: {error}", flush=True)
if how == "raise":
    raise SystemExit(3)
print("done", flush=True)
