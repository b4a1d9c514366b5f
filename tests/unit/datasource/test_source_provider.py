"""The data source: which reader and writer an option selects."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pyspark_kafka_direct.datasource.kafka_batch_reader import FilterPushdownBatchReader, KafkaBatchReader
from pyspark_kafka_direct.datasource.legacy_micro_batch_stream import LegacyKafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
from pyspark_kafka_direct.datasource.source_provider import KafkaSourceProvider
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.spark import spark_versions
from pyspark_kafka_direct.spark.spark_versions import spark_features

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPTIONS = {"kafka.bootstrap.servers": "nowhere.invalid:9092", "subscribe": "t"}
SINK = {"kafka.bootstrap.servers": "nowhere.invalid:9092", "topic": "t"}
VALUES = StructType([StructField("value", BinaryType())])


@pytest.fixture(autouse=True)
def _warnings_are_repeated() -> Iterator[None]:
    option_messages.warn_once.cache_clear()
    yield
    option_messages.warn_once.cache_clear()


def columns(**options: str) -> list[str]:
    schema: Any = KafkaSourceProvider({**OPTIONS, **options}).schema()
    return list(schema.names)


def test_the_columns_follow_from_the_options() -> None:
    plain = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert columns() == plain
    assert columns(includeHeaders="true") == [*plain, "headers"]
    typed: Any = KafkaSourceProvider({**OPTIONS, "valueFormat": "json", "valueSchema": "a int"}).schema()
    assert "`value` struct<a int>" in (typed if isinstance(typed, str) else typed.toDDL())


@pytest.mark.parametrize("wanted", ["true", "false"])
@pytest.mark.parametrize("possible", [True, False])
def test_filters_are_pushed_down_if_the_option_and_spark_allow_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wanted: str, possible: bool
) -> None:
    features = replace(spark_features(), has_filter_pushdown=possible)
    monkeypatch.setattr(spark_versions, "spark_features", lambda: features)
    with caplog.at_level(logging.WARNING):
        reader = KafkaSourceProvider({**OPTIONS, "pushDownFilters": wanted}).reader(VALUES)
    assert isinstance(reader, KafkaBatchReader)
    assert isinstance(reader, FilterPushdownBatchReader) is (wanted == "true")
    assert ("pushDownFilters has no effect" in caplog.text) is (wanted == "true" and not possible)


@pytest.mark.parametrize("has_limits", [True, False])
def test_streams_of_older_versions_of_spark_have_their_own_reader(
    monkeypatch: pytest.MonkeyPatch, has_limits: bool
) -> None:
    features = replace(spark_features(), has_read_limits=has_limits)
    monkeypatch.setattr(spark_versions, "spark_features", lambda: features)
    reader = KafkaSourceProvider(OPTIONS).streamReader(VALUES)
    assert type(reader) is (KafkaMicroBatchStream if has_limits else LegacyKafkaMicroBatchStream)


def test_a_reader_in_the_planning_process_reads_as_its_copy_does() -> None:
    reader = KafkaSourceProvider(OPTIONS).reader(VALUES)
    for each in (reader, pickle.loads(pickle.dumps(reader))):
        assert list(each.read(InputPartition(None))) == []


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(OptionError, match="mode overwrite is not supported"):
        KafkaSourceProvider(SINK).writer(VALUES, True)


@pytest.mark.parametrize("kind", ["reader", "writer", "streamWriter"])
def test_each_option_without_effect_is_logged(caplog: pytest.LogCaptureFixture, kind: str) -> None:
    ignored = "kafka.linger.ms" if kind == "reader" else "kafka.fetch.min.bytes"
    source: Any = KafkaSourceProvider({**(OPTIONS if kind == "reader" else SINK), "unrelated": "1", ignored: "1"})
    getattr(source, kind)(VALUES, *([] if kind == "reader" else [False]))
    assert [sum(name in message for message in caplog.messages) for name in ("unrelated", ignored)] == [1, 1]
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("name", ["checkpointLocation", "checkpointlocation"])
def test_a_stream_is_staged_in_its_checkpoint(tmp_path: Path, name: str) -> None:
    (tmp_path / "metadata").write_text("{}")
    options = {**SINK, "deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "p"}
    source = KafkaSourceProvider({"other": "x", **options, name: str(tmp_path)})
    source._unpickled = True  # the process that commits sends no request here
    writer = source.streamWriter(StructType([StructField("value", StringType())]), False)
    committer: Any = writer._committer  # type: ignore[attr-defined]
    assert committer.checkpoint == str(tmp_path)
    copy = pickle.loads(pickle.dumps(writer))
    assert (copy._task, copy._committer) == (writer._task, committer)  # type: ignore[attr-defined]
