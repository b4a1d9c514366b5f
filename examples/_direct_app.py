"""The application of direct_stream.py, in the way one is written: delays of flights by carrier, a file for each batch.

    python examples/_direct_app.py SERVERS TOPIC GROUP FOLDER

It goes on from the checkpoint in the folder, if there is one, and stops when the folder has a file named "stop".
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
    """Start, or go on; nothing else has to be done after a crash."""
    quiet()
    ssc = StreamingContext.getOrCreate(str(folder / "checkpoint"), lambda: create(servers, topic, group, folder))
    ssc.start()
    while not ssc.awaitTerminationOrTimeout(0.2):  # type: ignore[func-returns-value, arg-type]
        if (folder / "stop").exists():
            ssc.stop(stopSparkContext=True, stopGraceFully=True)  # this commits the last batch, too
            return


def create(servers: str, topic: str, group: str, folder: Path) -> StreamingContext:
    """Make the context at the first start."""
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
            # Most batches are empty when a stream has caught up: they need no job.
            "delays": rdd.map(by_carrier).reduceByKeyLocally(both) if any(each.count() for each in ranges) else {},
            "process": os.getpid(),
        }
        write(folder / "batches" / f"{round(time.timestamp() * 1000)}.json", batch)
        stream.commitAsync(ranges)  # so that others see how far it is; the checkpoint does not need it

    stream.foreachRDD(handle)
    return ssc


def by_carrier(record: KafkaRecord) -> tuple[str, list[int]]:
    """Return the carrier, and what its flight counts: itself, whether it departed, and its delay in minutes."""
    minutes = json.loads(record.value)["dep_delay"]
    return record.key.decode(), [1, minutes is not None, minutes or 0]


def both(some: list[int], more: list[int]) -> list[int]:
    """Add two counts."""
    return [one + other for one, other in zip(some, more, strict=True)]


def write(file: Path, batch: dict[str, Any]) -> None:
    """Write it as a whole or not at all. A batch that runs again has the same time, so it replaces what is there.

    An empty batch does so as well: after a crash a time can come again with fewer records than it had.
    """
    file.parent.mkdir(exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(batch))
    unfinished.replace(file)


def quiet() -> None:
    """Keep a local Spark from talking, and let its workers run this Python."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))


if __name__ == "__main__":
    _, servers_, topic_, group_, folder_ = sys.argv
    main(servers_, topic_, group_, Path(folder_))
