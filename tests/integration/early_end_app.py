"""Run by test_early_end: queries that have seen enough before their tasks are done."""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession

bootstrap_servers, *topics = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
for topic in topics:
    options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
    df = spark.read.format("kafka-direct").options(**options).load()
    df.show(3)
    assert len(df.limit(10).collect()) == 10
    assert df.first() is not None
time.sleep(2)  # a worker finds out on its own time that nobody reads on
spark.stop()
print("done")
