"""The application under test: a continuous query that copies a topic.

Its arguments are one JSON string. It ends when its folder has a file named ``stop``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyspark_kafka_direct.continuous import continuous_query

if TYPE_CHECKING:
    import pyarrow as pa

arguments = json.loads(sys.argv[1])
folder, options = arguments["folder"], arguments["options"]


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


spark = (
    SparkSession.builder.master(options["master"])
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.local.dir", f"{folder}/tmp")
    .config("spark.sql.warehouse.dir", f"{folder}/tmp/warehouse")
    .config("spark.executor.memory", "512m")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("WARN")
query = (
    continuous_query(spark)
    .read(options["source"])
    .select("key", "value")
    .map_batches(identity)
    .to_kafka(options["topic"], options["sink"])
    .start(checkpointLocation=f"{folder}/checkpoint", **options["start"])
)
while not query.awaitTermination(0.2):
    if Path(folder, "stop").exists():
        query.stop()
spark.stop()
