"""The application of direct_stream.py: it computes delays of flights by carrier, and writes a file for each batch.

    python examples/_direct_app.py SERVERS TOPIC GROUP FOLDER

It resumes from the checkpoint in the folder, if there is one, and stops when the folder contains a file named "stop".
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark_kafka_direct.direct import KafkaRDD, KafkaRecord

BATCH_SECONDS = 1
RATE_PER_PARTITION = 500  # records per second


def main(servers: str, topic: str, group: str, folder: Path) -> None:
    """Start or resume; after a crash nothing else has to be done."""
    configure_environment()
    ssc = StreamingContext.getOrCreate(str(folder / "checkpoint"), lambda: create(servers, topic, group, folder))
    ssc.start()
    while not ssc.awaitTerminationOrTimeout(0.2):  # type: ignore[func-returns-value, arg-type]
        if (folder / "stop").exists():
            ssc.stop(stopSparkContext=True, stopGraceFully=True)  # this also commits the last batch
            return


def create(servers: str, topic: str, group: str, folder: Path) -> StreamingContext:
    """Create the context at the first start."""
    conf = SparkConf().setMaster("local[2]").setAppName("delays")
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.streaming.kafka.maxRatePerPartition", str(RATE_PER_PARTITION))
    ssc = StreamingContext(SparkContext(conf=conf), BATCH_SECONDS)
    parameters = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    stream = KafkaUtils.createDirectStream(
        ssc, LocationStrategies.PreferConsistent, ConsumerStrategies.Subscribe([topic], parameters)
    )

    def handle(time: datetime, rdd: KafkaRDD) -> None:
        ranges = rdd.offsetRanges()
        batch = {
            "ranges": [[each.partition, each.fromOffset, each.untilOffset] for each in ranges],
            # Most batches are empty when a stream has caught up, and need no job.
            "delays": rdd.map(by_carrier).reduceByKeyLocally(add_counts)
            if any(each.count() for each in ranges)
            else {},
            "process": os.getpid(),
        }
        write(folder / "batches" / f"{round(time.timestamp() * 1000)}.json", batch)
        stream.commitAsync(ranges)  # for consumer group tools; the checkpoint does not need it

    stream.foreachRDD(handle)
    return ssc


def by_carrier(record: KafkaRecord) -> tuple[str, list[int]]:
    """Return the carrier, and the counts of the flight: 1, whether it departed, and its delay in minutes."""
    minutes = json.loads(record.value)["dep_delay"]
    return record.key.decode(), [1, minutes is not None, minutes or 0]


def add_counts(counts: list[int], more: list[int]) -> list[int]:
    """Add two counts."""
    return [count + other for count, other in zip(counts, more, strict=True)]


def write(file: Path, batch: dict[str, Any]) -> None:
    """Write the file atomically. A batch that runs again has the same time, so it replaces the file.

    This includes empty batches: after a crash, a batch may run again with fewer records.
    """
    file.parent.mkdir(exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(batch))
    unfinished.replace(file)


def configure_environment() -> None:
    """Reduce the output of a local Spark, and let its workers run this Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))


if __name__ == "__main__":
    _, servers_, topic_, group_, folder_ = sys.argv
    main(servers_, topic_, group_, Path(folder_))
