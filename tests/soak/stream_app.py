"""The application under test: a streaming query from kafka-direct into Parquet, with a folder for each batch.

A repeated batch replaces its folder, so the sink is idempotent. The arguments are one JSON string.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyspark_kafka_direct.spark.spark_versions import spark_features

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

arguments = json.loads(sys.argv[1])
folder = arguments["folder"]


def write(batch: DataFrame, number: int) -> None:
    """Replace the folder of a batch; ``_SUCCESS`` in it shows that it is complete."""
    batch.write.mode("overwrite").parquet(f"{folder}/output/{number}")


spark = SparkSession.builder.master("local[2,4]").getOrCreate()  # four attempts, because workers are killed
spark.sparkContext.setLogLevel("WARN")
records = spark.readStream.format("kafka-direct").options(**arguments["options"]).load()
writer = records.select("topic", "partition", "offset", "key", "value").writeStream.foreachBatch(write)
writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
done: set[Path] | None = None
while done != (done := set(Path(folder, "checkpoint", "commits").glob("[0-9]*"))):  # one batch per run before Spark 4.2
    query = (writer.trigger(availableNow=True) if arguments["to_the_end"] else writer).start()
    query.awaitTermination()
    if spark_features().has_read_limits:
        break
spark.stop()
