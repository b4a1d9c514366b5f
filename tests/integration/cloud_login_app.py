"""A separate Spark application for ``test_cloud_logins``: read a topic with the options of a JSON file, and write it.

    python cloud_login_app.py options.json

The driver and the Python workers have the environment of the process. It prints the values that it has read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(options_file: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        # Workers are forked from a process that has imported their modules, which saves CPU time.
        .config("spark.python.daemon.module", "pyspark_kafka_direct.daemon")
        .getOrCreate()
    )
    options, target = json.loads(Path(options_file).read_text(encoding="utf-8"))
    rows = spark.read.format("kafka-direct").options(**options).load()
    rows.select("value").write.format("kafka-direct").options(**options).option("topic", target).mode("append").save()
    copies = spark.read.format("kafka-direct").options(**{**options, "subscribe": target}).load()
    print(sorted(row.value.decode() for row in copies.select("value").collect()))
    print(rows._jdf.queryExecution().toString())
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
