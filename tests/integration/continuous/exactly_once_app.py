"""A continuous query in its own process: python exactly_once_app.py SERVERS SOURCE OUTPUT CHECKPOINT"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from pyspark_kafka_direct.continuous import continuous_query


def main(servers: str, source: str, output: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    read_options = {"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    query = (
        continuous_query(spark)
        .read(read_options)
        .select("value")
        .to_kafka(output, {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": output})
        .start(checkpointLocation=checkpoint, epochInterval=0.1)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
