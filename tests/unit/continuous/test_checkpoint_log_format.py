"""The content of checkpoint files, compared with files that Spark 4.2.0 wrote (``spark-4.2``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.continuous.checkpoint_log_format import (
    OffsetLogEntry,
    format_commit,
    format_metadata,
    format_offset_entry,
    parse_commit,
    parse_metadata,
    parse_offset_entry,
)
from pyspark_kafka_direct.errors import InvalidOffsetsError, KafkaDirectError, OptionError
from pyspark_kafka_direct.offsets import MAX_OFFSET, MAX_PARTITION, TopicPartition

SAMPLES = Path(__file__).parent / "spark-4.2"
F0, F1 = TopicPartition("flights", 0), TopicPartition("flights", 1)

TOPICS = st.text("abcXYZ019._-é", min_size=1, max_size=8)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, MAX_PARTITION))
TEXTS = st.text(max_size=20)
ENTRIES = st.builds(
    OffsetLogEntry,
    offsets=st.dictionaries(PARTITIONS, st.integers(0, MAX_OFFSET), max_size=5),
    timestamp_ms=st.integers(0, 1 << 50),
    watermark_ms=st.integers(0, 1 << 50),
    conf=st.dictionaries(TEXTS, TEXTS, max_size=4),
    is_start=st.booleans(),
)


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def test_offsets_written_by_spark() -> None:
    entry = parse_offset_entry(sample("offsets/0"), "here")
    assert entry.offsets == {F0: 5, F1: 5}
    assert (entry.timestamp_ms, entry.watermark_ms, entry.is_start) == (1795347961214, 0, False)
    assert entry.conf["spark.sql.shuffle.partitions"] == "1"
    assert len(entry.conf) == 15


def test_offsets_are_written_as_spark_writes_them() -> None:
    """Byte for byte, except for the spaces in the JSON of the Python source that wrote the sample."""
    text = sample("offsets/0")
    assert format_offset_entry(parse_offset_entry(text, "here")) == text.replace('": ', '":').replace(
        '}, "', '},"'
    ).replace(', "1"', ',"1"')


def test_other_files_are_written_as_spark_writes_them() -> None:
    assert format_commit(parse_commit(sample("commits/0"), "here")) == sample("commits/0")
    assert format_metadata(parse_metadata(sample("metadata"), "here")) == sample("metadata")


def test_a_commit_of_the_second_version_without_state() -> None:
    """As with ``spark.sql.streaming.stateStore.checkpointFormatVersion=2``."""
    assert sample("commits/1").startswith("v2\n")
    assert parse_commit(sample("commits/1"), "here") == 0


@given(ENTRIES)
def test_entries_round_trip(entry: OffsetLogEntry) -> None:
    text = format_offset_entry(entry)
    assert parse_offset_entry(text, "here") == entry
    assert text.count("\n") == 2


@given(st.integers(-1, 1 << 60), TEXTS.filter(bool))
def test_commits_and_ids_round_trip(watermark_ms: int, query_id: str) -> None:
    assert parse_commit(format_commit(watermark_ms), "here") == watermark_ms
    assert parse_metadata(format_metadata(query_id), "here") == query_id


def test_the_flag_of_an_empty_first_batch() -> None:
    text = format_offset_entry(OffsetLogEntry({F0: 7}, is_start=True))
    assert text.splitlines()[2] == '{"flights":{"0":7},"(start)":{}}'
    assert parse_offset_entry(text, "here").is_start


def test_non_ascii_letters_are_not_escaped() -> None:
    text = format_offset_entry(OffsetLogEntry({TopicPartition("flüge", 0): 7}, conf={"zone": "Zürich"}, is_start=True))
    assert "Zürich" in text
    assert "flüge" in text


def test_minimal_files_that_spark_reads() -> None:
    assert parse_offset_entry('v1\n\n{"a":{"0":1}}\n', "here") == OffsetLogEntry({TopicPartition("a", 0): 1})
    assert parse_commit("v1", "here") == 0
    assert parse_commit("v1\n{}", "here") == 0


def entry_text(metadata: str = "{}", *lines: str, version: str = "v1") -> str:
    return "\n".join([version, metadata, *lines])


OFFSETS = '{"a":{"0":5}}'


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (entry_text("{}", OFFSETS, version="v3"), InvalidOffsetsError, "here has version 'v3', but only v1 and v2 are"),
        ("", InvalidOffsetsError, "here has version ''"),
        (entry_text("{}", f"0:{OFFSETS}", version="v2"), OptionError, "here has version v2, which names the sources"),
        (entry_text("{}", OFFSETS, "-"), OptionError, "has the offsets of 2 sources, but a continuous query reads one"),
        (entry_text("{}", "-"), InvalidOffsetsError, "here has no offsets"),
        (entry_text("{}"), InvalidOffsetsError, "here has no offsets"),
        ("v1", InvalidOffsetsError, "here has no offsets"),
        (
            entry_text("{}", '{"logOffset":3}'),
            InvalidOffsetsError,
            "here does not have the offsets of a Kafka source: ",
        ),
        (entry_text("{", OFFSETS), InvalidOffsetsError, "here must have a JSON object, got '{'"),
        (entry_text("[]", OFFSETS), InvalidOffsetsError, "here must have a JSON object"),
        (entry_text('{"conf":{"x":"1","a":1}}', OFFSETS), InvalidOffsetsError, "here: conf must map names to strings"),
        (
            entry_text('{"batchTimestampMs":"x"}', OFFSETS),
            InvalidOffsetsError,
            "batchTimestampMs must be an integer",
        ),
    ],
    ids=["v3", "empty", "v2", "two", "dash", "none", "short", "other", "metadata", "list", "conf", "timestamp"],
)
def test_invalid_offsets(text: str, kind: type[KafkaDirectError], message: str) -> None:
    with pytest.raises(kind, match=message):
        parse_offset_entry(text, "here")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("v3\n{}", InvalidOffsetsError, "here has version 'v3', but only v1 and v2 are supported"),
        ("", InvalidOffsetsError, "here has version ''"),
        ("v1\n{", InvalidOffsetsError, "here must have a JSON object"),
        (
            'v1\n{"nextBatchWatermarkMs":true}',
            InvalidOffsetsError,
            "nextBatchWatermarkMs must be an integer",
        ),
        (
            'v2\n{"stateUniqueIds":{"0":[["x"]]}}',
            OptionError,
            "here shows that the query of this checkpoint is stateful",
        ),
    ],
    ids=["v3", "empty", "truncated", "watermark", "state"],
)
def test_invalid_commits(text: str, kind: type[KafkaDirectError], message: str) -> None:
    with pytest.raises(kind, match=message):
        parse_commit(text, "here")


@pytest.mark.parametrize("value", [{}, {"id": 3}, {"id": ""}, ["id"], "id"], ids=json.dumps)
def test_invalid_metadata(value: Any) -> None:
    with pytest.raises(InvalidOffsetsError, match=r"here .* The checkpoint is damaged"):
        parse_metadata(json.dumps(value), "here")
