"""Run by test_stream_restarts: python stream_app.py SERVERS TOPIC FOLDER, until SIGTERM or SIGKILL.

Each line of FOLDER/log is an event as JSON: a batch was planned (when Spark generated it), a batch is done (all its
records were read), or the contents of state and window after a batch. While FOLDER/hold exists no batch completes, so
planned batches accumulate.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import RDD, SparkConf, SparkContext
from pyspark.streaming import DStream, StreamingContext

from pyspark_kafka_direct import stop_at_signal
from pyspark_kafka_direct.direct import ConsumerStrategies, KafkaUtils, LocationStrategies

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark_kafka_direct.direct import KafkaRDD

BATCH_SECONDS = 4  # long enough for a busy machine
WINDOW_SECONDS = 8


def create(servers: str, topic: str, folder: Path) -> StreamingContext:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.default.parallelism": "1",
        "spark.streaming.kafka.maxRatePerPartition": "5",
        "spark.streaming.gracefulStopTimeout": "60s",
    }
    conf = SparkConf().setMaster("local[2]").setAppName("restarts").setAll(list(settings.items()))
    ssc = StreamingContext(SparkContext(conf=conf), BATCH_SECONDS)
    params = {"bootstrap.servers": servers, "group.id": f"group-{topic}", "auto.offset.reset": "earliest"}
    strategy = ConsumerStrategies.Subscribe([topic], params)
    stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)

    def planned(time: datetime, rdd: KafkaRDD) -> Any:
        log(folder, "planned", time, ranges=ranges_of(rdd))
        return rdd.map(lambda record: int(record.value))

    def done(time: datetime, rdd: KafkaRDD) -> None:
        hold(folder)
        values = rdd.map(lambda record: int(record.value)).collect()
        stream.commitAsync(rdd.offsetRanges())
        log(folder, "done", time, ranges=ranges_of(rdd), values=values)

    numbers = stream.transform(planned)
    stream.foreachRDD(done)
    totals = numbers.map(lambda number: ("sum", number)).updateStateByKey(lambda new, old: sum(new) + (old or 0))
    window: DStream[int] = numbers.window(WINDOW_SECONDS, BATCH_SECONDS)
    state_and_window = totals.union(window.map(lambda number: ("window", number)))

    def log_state(time: datetime, rdd: RDD[tuple[str, int]]) -> None:
        pairs = rdd.collect()
        log(
            folder,
            "state",
            time,
            **{name: [value for key, value in pairs if key == name] for name in ("sum", "window")},
        )

    state_and_window.foreachRDD(log_state)
    return ssc


def ranges_of(rdd: KafkaRDD) -> list[list[Any]]:
    return [[each.partition, each.from_offset, each.until_offset] for each in rdd.offsetRanges()]


def hold(folder: Path) -> None:
    while (folder / "hold").exists():
        time.sleep(0.05)


def log(folder: Path, event: str, at: datetime, **fields: Any) -> None:
    with (folder / "log").open("a") as file:
        file.write(json.dumps({"event": event, "time": round(at.timestamp() * 1000), **fields}) + "\n")


def main(servers: str, topic: str, folder: Path) -> None:
    ssc = StreamingContext.getOrCreate(str(folder / "checkpoint"), lambda: create(servers, topic, folder))
    ssc.sparkContext.setLogLevel("ERROR")
    stop_at_signal(ssc, True, True)
    ssc.start()
    ssc.awaitTermination()
    print("stopped", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
