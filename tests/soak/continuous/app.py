"""The application under test: a continuous query that copies a topic to another one, or to a SQLite database.

Its arguments are one JSON string. It ends when its folder has a file named ``stop``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from pyspark_kafka_direct.continuous import continuous_query

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.continuous import ContinuousQueryBuilder

arguments = json.loads(sys.argv[1])
folder, options = arguments["folder"], arguments["options"]


def to_output(query: ContinuousQueryBuilder) -> ContinuousQueryBuilder:
    database = options["database"]
    if database is None:
        return query.to_kafka(options["topic"], options["sink"])
    sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
    import continuous_sqlite

    cloudpickle.register_pickle_by_value(continuous_sqlite)  # type: ignore[no-untyped-call]
    sink_class = continuous_sqlite.SqliteSink  # a function that refers to the module would contain all of it
    return query.to(lambda _: sink_class(database, "records"))


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


spark = SparkSession.builder.master(options["master"]).getOrCreate()
spark.sparkContext.setLogLevel("WARN")
query = to_output(continuous_query(spark).read(options["source"]).select("key", "value").map_batches(identity)).start(
    checkpointLocation=f"{folder}/checkpoint", **options["start"]
)
while not query.awaitTermination(0.2):
    if Path(folder, "stop").exists():
        query.stop()
spark.stop()
