"""Late departures, told within milliseconds: flights go into a topic, a continuous query finds who leaves late.

    python examples/continuous_flights.py             half a minute; --flights, --rate and --late to change it

It starts a Kafka of its own, and Spark. The query is in ``start_query``; the rest is there to show how quick it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _flights
from _alerts import Alert, Board, Departures, Watcher
from _steps import Steps
from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous import ContinuousQuery

REHEARSAL, DEPARTURES, ALERTS = "rehearsal", "departures", "alerts"
PARTITIONS = 2
PATIENCE_S = 120.0
FRAME_S = 0.1


def main(flights: int, rate: int, late: int) -> int:
    """Run it; returns 1 if an alert is missing, or one came that should not."""
    steps = Steps(5)
    records = list(islice(_flights.flights(), flights))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with steps.step("Starting Apache Kafka"):
            kafka = EmbeddedKafka(reuse_running=False).start()
        try:
            servers = kafka.bootstrap_servers
            for topic in (REHEARSAL, DEPARTURES, ALERTS):
                _flights.create(servers, topic, PARTITIONS)
            with steps.step("Starting Spark"), Departures(servers, REHEARSAL, records, rate // 2) as rehearsal:
                rehearsal.start()  # a broker that has just started is slow at first
                spark = start_spark()
            try:
                with steps.step("Starting the query, which stays in its tasks from now on"):
                    query = start_query(spark, servers, Path(folder, "checkpoint"), late)
                    wait_until_live(query)
                with steps.step(f"{flights:,} flights depart, {rate:,} a second; who is {late} minutes late is told"):
                    alerts = watch(steps, query, servers, records, rate)
                with steps.step("Stopping the query, and comparing its alerts with the flights"):
                    right = compare(steps, query, alerts, records, late)
            finally:
                spark.stop()
        finally:
            kafka.close()
    print(f"\n{steps.summary()}", flush=True)
    return 0 if right else 1


def start_spark() -> SparkSession:
    """Start a local Spark that keeps quiet: it needs a core for each task of the query."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.appName("late departures")
        .master(f"local[{PARTITIONS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def start_query(spark: SparkSession, servers: str, checkpoint: Path, late: int) -> ContinuousQuery:
    """Start the query. This is all it takes."""
    from pyspark_kafka_direct.continuous import continuous_query

    def alerts(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return an alert for each flight of a batch that is late."""
        import pyarrow as pa

        found = [flight for flight in map(json.loads, batch["value"].to_pylist()) if (flight["dep_delay"] or 0) >= late]
        if not found:
            return None
        keys = [flight["origin"].encode() for flight in found]
        return pa.record_batch({"key": keys, "value": [json.dumps(flight).encode() for flight in found]})

    return (
        continuous_query(spark)
        .read({"kafka.bootstrap.servers": servers, "subscribe": DEPARTURES, "startingOffsets": "earliest"})
        .select("value")
        .map_batches(alerts)
        .to_kafka(ALERTS)
        .start(checkpointLocation=str(checkpoint), epochInterval="1 second", queryName="late departures")
    )


def wait_until_live(query: ContinuousQuery) -> None:
    """Return when the tasks run.

    Raises:
        TimeoutError: They don't.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not query.status["isTriggerActive"]:
        if (failure := query.exception()) is not None:
            raise failure
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query has not begun after {PATIENCE_S:.0f} s: {query.status}")
        time.sleep(0.05)


def watch(
    steps: Steps, query: ContinuousQuery, servers: str, records: Sequence[_flights.Record], rate: int
) -> list[Alert]:
    """Let the flights depart, and show the alerts as they come; return them all."""
    board = Board(steps)
    with Departures(servers, DEPARTURES, records, rate) as departures, Watcher(servers, ALERTS, departures) as watcher:
        departures.start()
        ended = 0.0
        next_frame = time.monotonic()
        # Alerts of the last flights come within milliseconds; a second is ample.
        while not ended or time.monotonic() < ended + 1:
            watcher.poll(FRAME_S / 4)
            if departures.ended and not ended:
                ended = time.monotonic()
            if time.monotonic() >= next_frame:
                if (failure := query.exception()) is not None:
                    raise failure
                next_frame += FRAME_S
                board.show(departures.count, watcher.alerts, epoch_of(query))
        board.end(departures.count, watcher.alerts, epoch_of(query))
    return watcher.alerts


def compare(
    steps: Steps, query: ContinuousQuery, alerts: Sequence[Alert], records: Sequence[_flights.Record], late: int
) -> bool:
    """Whether every late flight was told, once, and no other."""
    began = time.monotonic()
    query.stop()
    steps.say(f"The query has stopped at the end of epoch {epoch_of(query)}, after {time.monotonic() - began:.2f} s.")
    expected = [number for number, each in enumerate(records) if (json.loads(each.value)["dep_delay"] or 0) >= late]
    told = sorted(alert.number for alert in alerts)
    right = told == expected
    steps.say(
        f"{len(expected):,} flights were late, {len(told):,} alerts came: {'all equal' if right else 'NOT EQUAL'}"
    )
    return right


def epoch_of(query: ContinuousQuery) -> int:
    """Return the last epoch that is whole."""
    progress: dict[str, Any] = query.lastProgress or {"batchId": 0}
    return int(progress["batchId"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, default=20_000, help="how many (default 20,000)")
    parser.add_argument("--rate", type=int, default=2_000, help="of them a second (default 2,000)")
    parser.add_argument("--late", type=int, default=60, help="minutes (default 60)")
    asked = parser.parse_args()
    sys.exit(main(asked.flights, asked.rate, asked.late))
