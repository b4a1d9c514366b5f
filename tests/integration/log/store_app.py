"""Run by test_offset_store_kills: python store_app.py KIND SERVERS TOPIC STORE FOLDER RESULTS

KIND is a structured query or a direct stream. It knows its place by the offset store alone: FOLDER is its own, and
another at each start. Its sink is idempotent: each record is a file in RESULTS, named after partition and offset, and
holds its value; a line of RESULTS/log says who has written it. While RESULTS/hold exists, no batch with
records ends after its results were written. It runs until RESULTS/stop exists, or it is killed.
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
    def work(frame: DataFrame, _: int) -> None:
        write(results, ((row.partition, row.offset, row.value) for row in frame.collect()), folder)

    reader = spark.readStream.format("kafka-direct").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", store.starting_offsets_json(topic))
    checkpoint = str(folder / "checkpoint")
    writer = reader.load().writeStream.foreachBatch(store.foreach_batch(work, checkpoint))
    query = writer.option("checkpointLocation", checkpoint).start()
    while not query.awaitTermination(0.2):  # type: ignore[arg-type]
        if (results / "stop").exists():
            query.stop()
            return


def direct(spark: SparkSession, store: KafkaOffsetStore, servers: str, topic: str, folder: Path, results: Path) -> None:
    def work(rdd: KafkaRDD) -> None:
        write(results, rdd.map(lambda each: (each.partition, each.offset, each.value)).collect(), folder)

    ssc = StreamingContext(spark.sparkContext, 1)
    params = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    strategy = ConsumerStrategies.Subscribe([topic], params, store.load())
    stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)
    stream.foreachRDD(store.foreach_rdd(work))
    ssc.start()
    while not ssc.awaitTerminationOrTimeout(0.2):  # type: ignore[arg-type,func-returns-value]
        if (results / "stop").exists():
            ssc.stop(True, True)
            return


def write(results: Path, records: Iterable[tuple[int, int, bytes]], folder: Path) -> None:
    found = list(records)
    with (results / "log").open("a") as log:
        for partition, offset, value in found:
            (results / f"{partition}-{offset}").write_bytes(value)
            log.write(f"{folder.name} {value.decode()}\n")
    while found and (results / "hold").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    told = sys.argv[1:]
    main(told[0], told[1], told[2], told[3], Path(told[4]), Path(told[5]))
