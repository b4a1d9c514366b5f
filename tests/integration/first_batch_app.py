"""An application with queries, each blocked in its first batch, so that a test can kill it there.

``python first_batch_app.py '{"folder": ..., "options": {name: the source's options as JSON}, "to_the_end": ...}'``.
With ``to_the_end`` no batch blocks, and it ends when all records were read.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

arguments = json.loads(sys.argv[1])
folder, to_the_end = Path(arguments["folder"]), arguments["to_the_end"]


def sink(name: str) -> Callable[[DataFrame, int], None]:
    """Write the values of each batch to a file named after its id, unless it blocks."""

    def write(batch: DataFrame, batch_id: int) -> None:
        values = [row.value.decode() for row in batch.select("value").collect()]
        (folder / f"{name}-in-{batch_id}").touch()
        if not to_the_end:
            time.sleep(600)  # killed before
        (folder / f"{name}-batch-{batch_id}.json").write_text(json.dumps(values))

    return write


# Workers are forked from a process that has imported their modules, which saves CPU time.
builder = SparkSession.builder.config("spark.python.daemon.module", "pyspark_kafka_direct.daemon")
spark = builder.master("local[2]").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
queries = []
# One after the other: each starts a Python process, which has ten seconds.
for name, options in arguments["options"].items():
    records = spark.readStream.format("kafka-direct").options(**json.loads(options)).load()
    writer = records.writeStream.foreachBatch(sink(name)).option("checkpointLocation", f"{folder}/{name}-checkpoint")
    query = (writer.trigger(availableNow=True) if to_the_end else writer).start()
    queries.append(query)
    while query.isActive and (to_the_end or not (folder / f"{name}-in-0").exists()):
        query.awaitTermination(1)
for query in queries:
    query.awaitTermination()
spark.stop()
