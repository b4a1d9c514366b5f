"""A program that ends right after its query: python commit_app.py SERVERS TOPIC GROUP CHECKPOINT"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import pyspark_kafka_direct


def main(servers: str, topic: str, group: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    pyspark_kafka_direct.enable(spark)
    reader = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", servers)
    source = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("commitGroupId", group)
    writer = source.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(once=True).start()  # no next batch is planned, so only the listener can commit
    assert query.awaitTermination(240), "the query did not end"


if __name__ == "__main__":
    main(*sys.argv[1:])
