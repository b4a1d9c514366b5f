"""Slices of two topics on a real broker, as other libraries read them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from pyspark_kafka_direct import OptionError, read_arrow

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice
    from pyspark_kafka_direct.broker import EmbeddedKafka

FORMAT: dict[str, Any] = {"valueFormat": "json", "valueSchema": "id bigint"}
COLUMNS = ["topic", "partition", "offset", "value"]


@pytest.fixture
def topics(kafka: EmbeddedKafka, make_topic: MakeTopic) -> list[str]:
    """Two topics with three partitions and 60 records each."""
    topics = sorted(make_topic(3) for _ in range(2))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for topic in topics:
        for number in range(60):
            producer.produce(topic, b'{"id":%d}' % (number // 3), partition=number % 3)
    assert producer.flush(300) == 0
    return topics


@pytest.fixture
def orders(kafka: EmbeddedKafka, topics: list[str]) -> ArrowSlice:
    return read_arrow(topics, {"bootstrap.servers": kafka.bootstrap_servers}, columns=COLUMNS, **FORMAT)


def sql(query: str, **slices: ArrowSlice) -> list[tuple[Any, ...]]:
    """Return the result of a query of DuckDB."""
    with duckdb.connect() as connection:
        for name, found in slices.items():
            connection.register(name, found)
        return connection.execute(query).fetchall()


def test_libraries_read_a_slice_directly(orders: ArrowSlice, topics: list[str]) -> None:
    expected = [(topic, partition, offset) for topic in topics for partition in range(3) for offset in range(20)]
    for _ in range(2):  # each starts at the beginning
        frame = polars.from_arrow(orders)
        assert isinstance(frame, polars.DataFrame)
        assert frame.select("topic", "partition", "offset").rows() == expected
        assert polars.DataFrame(orders).equals(frame)
    query = 'select count(*), sum(value.id), max("offset") from orders'
    assert sql(query, orders=orders) == [(120, 6 * sum(range(20)), 19)]
    assert pa.table(orders).schema == orders.schema
    frame = orders.read_pandas()
    assert list(zip(frame["topic"], frame["partition"], frame["offset"], strict=True)) == expected
    assert [each.count() for each in orders.ranges] == [20] * 6


@pytest.mark.parametrize("limit", [0, 7])
def test_libraries_read_a_part_of_a_slice(kafka: EmbeddedKafka, topics: list[str], limit: int) -> None:
    params = {"bootstrap.servers": kafka.bootstrap_servers}
    few = read_arrow(topics, params, columns=COLUMNS, limit=limit, order="timestamp")
    assert polars.from_arrow(few).shape == polars.DataFrame(few).shape == (limit, 4)
    assert sql("select * from few limit 3", few=few) == sql("select * from few", few=few)[:3]


READ = """\
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None  # as if PySpark were not installed

import signal, threading, time
from pyspark_kafka_direct import read_arrow

params = {"bootstrap.servers": sys.argv[1], "max.partition.fetch.bytes": "100"}
formats = {"valueFormat": "json", "valueSchema": "id bigint, at timestamp"}
slice = read_arrow(sys.argv[2:], params, threads=4, **formats)
"""
# As a user presses Ctrl+C in the middle of a read.
INTERRUPTED = """\
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
slice.read_next_batch()
try:
    print("ready", flush=True)  # from here on, the signal may arrive
    time.sleep(300)
except KeyboardInterrupt:
    slice.close()
    print([each.name for each in threading.enumerate()])
    raise
"""


def run(code: str, kafka: EmbeddedKafka, topics: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", READ + code, kafka.bootstrap_servers, *topics]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_pyspark_need_not_be_installed(kafka: EmbeddedKafka, topics: list[str]) -> None:
    with run("print(slice.read_all().num_rows)", kafka, topics) as process:
        assert process.communicate(timeout=300) == ("120\n", "")


def test_a_process_may_end_in_the_middle_of_a_read(kafka: EmbeddedKafka, topics: list[str]) -> None:
    with run("print(slice.read_next_batch().num_rows > 0)", kafka, topics) as process:
        assert process.communicate(timeout=300) == ("True\n", "")
        assert process.returncode == 0


def test_an_interrupted_reader_leaves_no_thread(kafka: EmbeddedKafka, topics: list[str]) -> None:
    with run(INTERRUPTED, kafka, topics) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=300)
    assert output == "['MainThread']\n"
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"


def test_a_misspelt_name_is_an_error(kafka: EmbeddedKafka, topics: list[str]) -> None:
    arguments: dict[str, Any] = {"failOnDatLoss": "false"}
    with pytest.raises(OptionError, match="failOnDataLoss"):
        read_arrow(topics, {"bootstrap.servers": kafka.bootstrap_servers}, **arguments)
