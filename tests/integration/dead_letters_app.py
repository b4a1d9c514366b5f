"""A streaming query that writes good rows and dead letters of each batch in one transaction.

``python dead_letters_app.py '{"folder": ..., "options": {"source": ..., "sink": ..., "good": ..., "dead": ...},
"to_the_end": ...}'``. A test kills it, and starts it again.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from pyspark_kafka_direct import dead_letters, foreach_batch_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

arguments = json.loads(sys.argv[1])
folder, options = arguments["folder"], arguments["options"]
to_kafka = foreach_batch_writer(options["sink"])


def write(batch: DataFrame, batch_id: int) -> None:
    """Write a batch."""
    good = batch.where("value._corrupt_record IS NULL").selectExpr("key", "cast(to_json(value) AS binary) AS value")
    rows = good.withColumn("topic", lit(options["good"]))
    to_kafka(rows.unionByName(dead_letters(batch, topic=options["dead"]), allowMissingColumns=True), batch_id)


# Workers are forked from a process that has imported their modules, which saves CPU time.
builder = SparkSession.builder.config("spark.python.daemon.module", "pyspark_kafka_direct.daemon")
spark = builder.master("local[2]").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
records = spark.readStream.format("kafka-direct").options(**options["source"]).load()
writer = records.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
(writer.trigger(availableNow=True) if arguments["to_the_end"] else writer).start().awaitTermination()
spark.stop()
