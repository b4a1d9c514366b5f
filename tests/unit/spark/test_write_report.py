"""Write reports as JSON, and merged."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark.write_report import BatchWriteReport, PartitionWriteReport, merge_write_reports

A0, A10, B0 = TopicPartition("a", 0), TopicPartition("a", 10), TopicPartition("b", 0)


def test_json_round_trip() -> None:
    written = BatchWriteReport(
        "q",
        7,
        {
            A0: PartitionWriteReport(2, 3, 1, 10),
            A10: PartitionWriteReport(5, 9, 4, 120),
            B0: PartitionWriteReport(-1, -1, 1, 70),
        },
    )
    assert BatchWriteReport.from_json(written.to_json()) == written
    assert (written.records, written.bytes) == (6, 200)
    assert written.to_json() == (
        '{"queryId": "q", "batchId": 7, "topics": {"a": {'
        '"0": {"firstOffset": 2, "nextOffset": 3, "records": 1, "bytes": 10}, '
        '"10": {"firstOffset": 5, "nextOffset": 9, "records": 4, "bytes": 120}}, "b": {'
        '"0": {"firstOffset": -1, "nextOffset": -1, "records": 1, "bytes": 70}}}}'
    )
    empty = BatchWriteReport(None, None, {})
    assert BatchWriteReport.from_json(empty.to_json()) == empty


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"topics": {"a": 1}}', '{"topics": {"a": {"0": {}}}}', '{"topics": []}']
)
def test_invalid_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a write report|Expecting value"):
        BatchWriteReport.from_json(text)


def test_reports_of_tasks_are_merged() -> None:
    one = {A0: PartitionWriteReport(5, 9, 4, 40), B0: PartitionWriteReport(-1, -1, 2, 20)}
    other = {
        A0: PartitionWriteReport(3, 7, 2, 20),
        A10: PartitionWriteReport(0, 1, 1, 10),
        B0: PartitionWriteReport(4, 5, 1, 10),
    }
    assert merge_write_reports([one, other, {}]) == {
        A0: PartitionWriteReport(3, 9, 6, 60),
        A10: PartitionWriteReport(0, 1, 1, 10),
        B0: PartitionWriteReport(4, 5, 3, 30),
    }
    assert merge_write_reports([]) == {}
