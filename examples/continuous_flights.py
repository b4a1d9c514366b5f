"""Alerts for late departures within milliseconds: a continuous query reads flights and writes alerts to another topic.

    python examples/continuous_flights.py             half a minute; --flights, --rate and --late change the load

It starts its own Kafka broker and Spark. The query is in ``start_query``; the rest measures its latency.
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
from _alerts import Alert, AlertBoard, AlertConsumer, DepartureProducer
from _steps import Steps
from pyspark_kafka_direct.broker import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous import ContinuousQuery

WARM_UP, DEPARTURES, ALERTS = "rehearsal", "departures", "alerts"
PARTITIONS = 2
TIMEOUT_S = 120.0
FRAME_S = 0.1


def main(flights: int, rate: int, late: int) -> int:
    """Run the example; return 1 if the alerts do not match the late flights."""
    steps = Steps(5)
    records = list(islice(_flights.flights(), flights))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with steps.step("Starting Apache Kafka"):
            kafka = EmbeddedKafka().start()
        try:
            servers = kafka.bootstrap_servers
            for topic in (WARM_UP, DEPARTURES, ALERTS):
                _flights.create(servers, topic, PARTITIONS)
            with steps.step("Starting Spark"), DepartureProducer(servers, WARM_UP, records, rate // 2) as warm_up:
                warm_up.start()  # a broker is slow just after its start
                spark = start_spark()
            try:
                with steps.step("Starting the query, whose tasks keep running"):
                    query = start_query(spark, servers, Path(folder, "checkpoint"), late)
                    wait_until_live(query)
                with steps.step(
                    f"{flights:,} flights depart, {rate:,} per second; a delay of {late} minutes causes an alert"
                ):
                    alerts = watch(steps, query, servers, records, rate)
                with steps.step("Stopping the query, and comparing its alerts with the flights"):
                    correct = compare(steps, query, alerts, records, late)
            finally:
                spark.stop()
        finally:
            kafka.close()
    print(f"\n{steps.summary()}", flush=True)
    return 0 if correct else 1


def start_spark() -> SparkSession:
    """Start a local Spark with a core for each task of the query."""
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
    """Start the query."""
    from pyspark_kafka_direct.continuous import continuous_query

    def alerts(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return an alert for each late flight of a batch."""
        import pyarrow as pa

        late_flights = [
            flight for flight in map(json.loads, batch["value"].to_pylist()) if (flight["dep_delay"] or 0) >= late
        ]
        if not late_flights:
            return None
        keys = [flight["origin"].encode() for flight in late_flights]
        return pa.record_batch({"key": keys, "value": [json.dumps(flight).encode() for flight in late_flights]})

    return (
        continuous_query(spark)
        .read({"kafka.bootstrap.servers": servers, "subscribe": DEPARTURES, "startingOffsets": "earliest"})
        .select("value")
        .map_batches(alerts)
        .to_kafka(ALERTS)
        .start(checkpointLocation=str(checkpoint), epochInterval="1 second", queryName="late departures")
    )


def wait_until_live(query: ContinuousQuery) -> None:
    """Wait until the tasks run."""
    deadline = time.monotonic() + TIMEOUT_S
    while not query.status["isTriggerActive"]:
        if (failure := query.exception()) is not None:
            raise failure
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query has not started after {TIMEOUT_S:.0f} s: {query.status}")
        time.sleep(0.05)


def watch(
    steps: Steps, query: ContinuousQuery, servers: str, records: Sequence[_flights.Record], rate: int
) -> list[Alert]:
    """Produce the departures, show the alerts as they arrive, and return all of them."""
    board = AlertBoard(steps)
    with (
        DepartureProducer(servers, DEPARTURES, records, rate) as departures,
        AlertConsumer(servers, ALERTS, departures) as consumer,
    ):
        departures.start()
        ended = 0.0
        next_frame = time.monotonic()
        # The alerts of the last flights arrive within milliseconds, so one second is enough.
        while not ended or time.monotonic() < ended + 1:
            consumer.poll(FRAME_S / 4)
            if departures.ended and not ended:
                ended = time.monotonic()
            if time.monotonic() >= next_frame:
                if (failure := query.exception()) is not None:
                    raise failure
                next_frame += FRAME_S
                board.show(departures.count, consumer.alerts, last_epoch(query))
        board.end(departures.count, consumer.alerts, last_epoch(query))
    return consumer.alerts


def compare(
    steps: Steps, query: ContinuousQuery, alerts: Sequence[Alert], records: Sequence[_flights.Record], late: int
) -> bool:
    """Stop the query, and return whether each late flight has exactly one alert."""
    started = time.monotonic()
    query.stop()
    steps.say(f"The query stopped at the end of epoch {last_epoch(query)} after {time.monotonic() - started:.2f} s.")
    expected = [number for number, each in enumerate(records) if (json.loads(each.value)["dep_delay"] or 0) >= late]
    alerted = sorted(alert.number for alert in alerts)
    correct = alerted == expected
    result = "all equal" if correct else "NOT EQUAL"
    steps.say(f"{len(expected):,} flights were late, {len(alerted):,} alerts arrived: {result}")
    return correct


def last_epoch(query: ContinuousQuery) -> int:
    """Return the last committed epoch."""
    progress: dict[str, Any] = query.lastProgress or {"batchId": 0}
    return int(progress["batchId"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flights", type=int, default=20_000, help="number of flights (default 20,000)")
    parser.add_argument("--rate", type=int, default=2_000, help="flights per second (default 2,000)")
    parser.add_argument("--late", type=int, default=60, help="minutes of delay that cause an alert (default 60)")
    arguments = parser.parse_args()
    sys.exit(main(arguments.flights, arguments.rate, arguments.late))
