"""The application under test: a streaming query that copies a topic. Its arguments are one JSON string."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

arguments = json.loads(sys.argv[1])
folder, options = arguments["folder"], arguments["options"]

spark = SparkSession.builder.master(options["master"]).config("spark.sql.shuffle.partitions", "3").getOrCreate()
spark.sparkContext.setLogLevel("WARN")
records = spark.readStream.format("kafka-direct").options(**options["source"]).load().select("key", "value")
if options["shuffled"]:  # rows move between tasks, and may be in other tasks when a batch is repeated
    records = records.repartition(3)
writer = records.writeStream.format("kafka-direct").options(**options["sink"])
writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
query = (writer.trigger(availableNow=True) if arguments["to_the_end"] else writer).start()
query.awaitTermination()
spark.stop()
