"""Run by test_early_end: queries that end before their tasks have read everything, with each daemon of workers."""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession

bootstrap_servers, *topics = sys.argv[1:]


def in_new_worker(_: object) -> str:
    """Describe the daemon that forked a worker, and whether it had imported PyArrow."""
    started_as = sys.modules["__main__"].__spec__
    return f"workers of {started_as and started_as.name}, PyArrow before the fork: {'pyarrow' in sys.modules}"


def run(daemon: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.python.daemon.module", daemon).getOrCreate()
    print(spark.sparkContext.parallelize([0], 1).map(in_new_worker).first())
    for topic in topics:
        options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
        df = spark.read.format("kafka-direct").options(**options).load()
        df.show(3)
        assert len(df.limit(10).collect()) == 10
        assert df.first() is not None
    time.sleep(2)  # a worker takes a moment to detect that its output is not read
    spark.stop()


run("pyspark.daemon")
run("pyspark_kafka_direct.daemon")
print("done")
