"""What ``read_arrow`` selects and returns, on a simulated cluster."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_kafka_direct import MalformedPayloadError, OptionError, TopicNotFoundError, read_arrow
from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice
from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.records import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.arrow.slice_cluster import SliceCluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ALL = ["t-0@0", "t-0@1", "t-1@0", "u-0@0"]


@pytest.fixture(autouse=True)
def records(cluster: SliceCluster) -> None:
    for tp, count in ((T0, 2), (T1, 1), (U0, 1)):
        cluster.append(tp, count)


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ("t", ALL[:3]),
        (["u", "t"], ALL),
        (re.compile("^T", re.IGNORECASE), ALL[:3]),
        (re.compile("t|u"), ALL),
        ({"u", "t"}, ALL),
        (frozenset({"t"}), ALL[:3]),
        (("u", "t"), ALL),
        ([OffsetRange("u", 0, 0, 1), OffsetRange("t", 0, 1, 2)], ["t-0@1", "u-0@0"]),
    ],
)
def test_topics_are_names_a_pattern_or_ranges(cluster: SliceCluster, topics: Any, expected: list[str]) -> None:
    assert cluster.values(topics) == expected


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('{"t":{"0":1,"1":-2}}', '{"t":{"0":-1,"1":0}}'),
        ({"t": {0: 1, "1": "earliest"}}, {T0: "now", T1: 0}),
        ({T0: "last 1", T1: 1}, {"*": "now"}),
        ({T0: 1, "*": "-1h"}, {T0: "now", T1: datetime(2000, 1, 1, tzinfo=UTC)}),
    ],
)
def test_a_start_and_an_end_limit_the_slice(cluster: SliceCluster, start: Any, end: Any) -> None:
    assert cluster.values(start=start, end=end) == ["t-0@1"]


@pytest.mark.parametrize("ago", ["-90s", timedelta(seconds=-90)])
def test_a_slice_of_the_last_time(cluster: SliceCluster, ago: Any) -> None:
    cluster.cluster.create_topic("timed", 2)
    now = cluster.pool.system.wall_time() * 1000
    for seconds in (120, 60):
        cluster.cluster.append(TopicPartition("timed", 1), [b"value"], timestamp=int(now - seconds * 1000))
    assert cluster.values("timed", start=ago) == ["timed-1@1"]
    first = datetime.fromtimestamp((now - 61_000) / 1000, UTC)
    assert cluster.values("timed", start=first) == ["timed-1@1"]


def test_ranges_have_the_id_of_their_topic(cluster: SliceCluster) -> None:
    ranges = cluster.read(["t"]).ranges
    assert ranges == (OffsetRange("t", 0, 0, 2), OffsetRange("t", 1, 0, 1))
    assert {each.topic_id for each in ranges} == {cluster.topic_id("t")}


def test_columns_have_the_order_and_the_types_of_the_request(cluster: SliceCluster) -> None:
    assert cluster.read().schema.names[:3] == ["key", "value", "topic"]
    columns = ["offset", "value", "headers"]
    table = cluster.read(columns=columns).read_all()
    assert table.schema == arrow_schema(columns)
    assert table["value"].to_pylist()[0].endswith(b"-0")


def test_each_reader_of_a_slice_starts_at_its_beginning(cluster: SliceCluster) -> None:
    found = cluster.read(columns=["offset"])
    assert pa.table(found).num_rows == 3
    assert found.to_reader().read_all().num_rows == 3
    with found:
        assert found.read_next_batch().num_rows == 2
        assert found.read_all().num_rows == 1
        with pytest.raises(StopIteration):
            found.read_next_batch()


def test_a_slice_that_was_read_to_its_end_can_be_iterated_again(cluster: SliceCluster) -> None:
    found = cluster.read(columns=["offset"])
    for _ in range(2):
        assert next(iter(found)).num_rows == 2
        assert [batch.num_rows for batch in found] == [1]
        assert found.read_all().num_rows == len(found.read_pandas()) == 3


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"end": '{"t":{"0":0,"1":0}}'}, {"valueFormat": "json"}])
def test_a_slice_without_records_has_a_batch_with_its_columns(cluster: SliceCluster, arguments: dict[str, Any]) -> None:
    if "valueFormat" in arguments:
        arguments |= {"valueSchema": "id bigint", "mode": "DROPMALFORMED"}
    found = cluster.read(columns=["value", "offset"], **arguments)
    (batch,) = found
    assert (batch.schema, batch.num_rows) == (found.schema, 0)


def test_keys_and_values_are_decoded(cluster: SliceCluster) -> None:
    cluster.cluster.append(U0, [b'{"id":7}'])
    formats = {"valueFormat": "json", "valueSchema": "id bigint", "keyFormat": "string"}
    columns = ["value", "_error", "key", "offset"]
    table = cluster.read("u", columns=columns, order="timestamp", mode="PERMISSIVE", **formats).read_all()
    assert table.schema.names == ["value", "_error", "key", "offset"]
    assert table["value"].type == pa.struct([("id", pa.int64())])
    assert table["value"].to_pylist() == [{"id": None}, {"id": 7}]
    assert [error is None for error in table["_error"].to_pylist()] == [False, True]
    failing = cluster.read("u", mode="FAILFAST", **formats)
    with pytest.raises(MalformedPayloadError) as caught:
        failing.read_all()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("u", 0, 0)


def test_strings_are_valid_utf_8(cluster: SliceCluster) -> None:
    """Other libraries rely on it, but the data source does not check it."""
    cluster.cluster.append(U0, [b"\xff", "\xe4".encode()])
    with pytest.raises(MalformedPayloadError, match="UTF-8"):
        cluster.read("u", columns=["value"], valueFormat="string").read_all()
    values = cluster.read("u", columns=["value"], valueFormat="string", mode="PERMISSIVE").read_all()["value"]
    assert values.type == pa.string()
    assert values.to_pylist() == ["0-0", None, "\xe4"]


@pytest.mark.parametrize(
    "read",
    [list, pa.table, ArrowSlice.read_all, ArrowSlice.read_next_batch, ArrowSlice.to_reader, ArrowSlice.read_pandas],
)
def test_a_closed_slice_cannot_be_read(cluster: SliceCluster, read: Callable[[ArrowSlice], object]) -> None:
    """Without an error, it would seem to have no records."""
    found = cluster.read(columns=["offset"])
    found.read_next_batch()
    found.close()
    with pytest.raises(RuntimeError, match="The slice is closed"):
        read(found)


def test_a_slice_cannot_be_pickled_or_copied(cluster: SliceCluster) -> None:
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="pass its ranges to read_arrow"):
            act(cluster.read())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topics": 5}, "topics must be a name, a list of names, a compiled pattern or a list of OffsetRange, got 5"),
        ({"topics": []}, r"topics must be a name.*got \[\]"),
        ({"topics": [OffsetRange("t", 0, 0, 1), "t"]}, "topics must be a name.*'t'"),
        ({"topics": ["t,u"]}, "topics must be a name.*got .'t,u'"),
        ({"topics": ["t", ""]}, "topics must be a name.*got .'t', ''"),
        ({"topics": ["a b"]}, "topics: 'a b' is not a valid topic name"),
        ({"topics": re.compile(b"t")}, "topics must be a pattern of a string"),
        ({"topics": [OffsetRange("t", 0, 0, 1)], "end": "latest"}, "remove start and end"),
        ({"columns": "value"}, r"columns takes a list of names: \['value'\]"),
        ({"columns": ["valu"]}, "columns: there is no column 'valu'"),
        ({"columns": ["key", "valu"]}, "columns: there is no column 'valu'"),
        ({"start": "soon"}, "start must be"),
        ({"start": "2026-11-28T06:00"}, "start must be.*zone"),
        ({"topics": re.compile(" t ", re.VERBOSE)}, "topics: re.VERBOSE is not supported"),
        ({"start": {5.5j: 1}}, "start must be.*5.5j is neither a topic nor a TopicPartition"),
        ({"end": {T0: object()}}, "end must be.*is not a 64-bit integer for t-0"),
        ({"end": 5}, "end must be"),
        ({"end": "earliest"}, "end: the ending offset of all partitions cannot be earliest"),
        ({"startingOffsets": "earliest"}, "read_arrow has the argument start in place of startingOffsets"),
        ({"includeHeaders": "true"}, "read_arrow has the argument columns in place of includeHeaders"),
        ({"failOnDatLoss": "false"}, "failOnDatLoss.*failOnDataLoss"),
        ({"colums": ["key"]}, "the parameter colums is unknown; did you mean 'columns'"),
        ({"starts": "latest"}, "starts is unknown; did you mean 'start'"),
        ({"params": {"isolation.levl": "read_committed"}}, "isolation.levl.*isolation.level"),
        ({"params": {"fetch.min.bytes": "x"}}, "fetch.min.bytes"),
    ],
)
def test_invalid_arguments_are_rejected(cluster: SliceCluster, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        cluster.read(**arguments)
    assert cluster.sent("Metadata") == 0


def test_params_are_a_dict_with_servers() -> None:
    with pytest.raises(OptionError, match=r"bootstrap\.servers"):
        read_arrow("t", {})
    with pytest.raises(OptionError, match="params must be a dict of client settings, got str"):
        read_arrow("t", "localhost:9092")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="failOnDataLoss is given twice"):
        read_arrow("t", {"failOnDataLoss": "true"}, failOnDataLoss="false")


def test_each_parameter_without_effect_is_logged(cluster: SliceCluster, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[tuple[Callable[..., object], tuple[str, str]]] = [
        (cluster.read, ("linger.ms", "compression.type")),
        (partial(cluster.write, "t", []), ("fetch.min.bytes", "fetch.max.wait.ms")),
    ]
    for call, names in calls:
        option_messages.warn_once.cache_clear()
        caplog.clear()
        call(params=dict.fromkeys(names, "10"))
        assert [sum(name in message for message in caplog.messages) for name in names] == [1, 1]
        assert len(caplog.messages) == 2


def test_a_missing_topic_is_an_error(cluster: SliceCluster) -> None:
    with pytest.raises(TopicNotFoundError, match="tt"):
        cluster.read("tt")


def test_it_works_without_pyspark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "from pyspark_kafka_direct import read_arrow, OptionError\n"
        "try: read_arrow('t', {'bootstrap.servers': 'nowhere.invalid:9092'}, columns=['x'])\n"
        "except OptionError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert "there is no column 'x'" in done.stdout
