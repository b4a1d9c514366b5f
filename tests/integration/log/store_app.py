"""Run by test_offset_store_kills: python store_app.py KIND SERVERS TOPIC STORE FOLDER RESULTS

KIND is "structured" or "direct". The job resumes by its offset store alone: each start has a new FOLDER. Its sink is
idempotent: each record is a file in RESULTS that is named after partition and offset and contains the value; a line of
RESULTS/log names the writer. While RESULTS/hold exists, batches with records do not end after their results were
written. The job runs until RESULTS/stop exists or it is killed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.streaming import StreamingContext

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies
from pyspark_kafka_direct.log import KafkaOffsetStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from pyspark_kafka_direct.direct import KafkaRDD


def main(kind: str, servers: str, topic: str, store_topic: str, folder: Path, results: Path) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.local.dir", str(folder)).config("spark.sql.warehouse.dir", str(folder / "tables"))
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with KafkaOffsetStore(store_topic, "job", {"bootstrap.servers": servers}) as store:
        (structured if kind == "structured" else direct)(spark, store, servers, topic, folder, results)


def structured(
    spark: SparkSession, store: KafkaOffsetStore, servers: str, topic: str, folder: Path, results: Path
) -> None:
    def process(frame: DataFrame, _: int) -> None:
        write(results, ((row.partition, row.offset, row.value) for row in frame.collect()), folder)

    reader = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", store.starting_offsets_json(topic))
    checkpoint = str(folder / "checkpoint")
    writer = reader.load().writeStream.foreachBatch(store.foreach_batch(process, checkpoint))
    query = writer.option("checkpointLocation", checkpoint).start()
    while not query.awaitTermination(0.2):  # type: ignore[arg-type]
        if (results / "stop").exists():
            query.stop()
            return


def direct(spark: SparkSession, store: KafkaOffsetStore, servers: str, topic: str, folder: Path, results: Path) -> None:
    def process(rdd: KafkaRDD) -> None:
        write(results, rdd.map(lambda each: (each.partition, each.offset, each.value)).collect(), folder)

    ssc = StreamingContext(spark.sparkContext, 1)
    params = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    strategy = ConsumerStrategies.Subscribe([topic], params, store.load())
    stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)
    stream.foreachRDD(store.foreach_rdd(process))
    ssc.start()
    while not ssc.awaitTerminationOrTimeout(0.2):  # type: ignore[arg-type,func-returns-value]
        if (results / "stop").exists():
            ssc.stop(True, True)
            return


def write(results: Path, records: Iterable[tuple[int, int, bytes]], folder: Path) -> None:
    rows = list(records)
    with (results / "log").open("a") as log:
        for partition, offset, value in rows:
            (results / f"{partition}-{offset}").write_bytes(value)
            log.write(f"{folder.name} {value.decode()}\n")
    while rows and (results / "hold").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    args = sys.argv[1:]
    main(args[0], args[1], args[2], args[3], Path(args[4]), Path(args[5]))
