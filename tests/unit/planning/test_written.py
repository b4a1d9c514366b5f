"""What a batch has written, as text and summed up."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.written import BatchWritten, PartitionWritten, together

A0, A10, B0 = TopicPartition("a", 0), TopicPartition("a", 10), TopicPartition("b", 0)


def test_the_text_holds_everything() -> None:
    written = BatchWritten("q", 7, {A10: PartitionWritten(5, 9, 4, 120), B0: PartitionWritten(-1, -1, 1, 70)})
    assert BatchWritten.from_text(written.to_text()) == written
    assert (written.records, written.bytes) == (5, 190)
    assert written.to_text() == (
        '{"queryId": "q", "batchId": 7, "topics": {"a": {"10": {"firstOffset": 5, "nextOffset": 9, "records": 4, '
        '"bytes": 120}}, "b": {"0": {"firstOffset": -1, "nextOffset": -1, "records": 1, "bytes": 70}}}}'
    )
    nothing = BatchWritten(None, None, {})
    assert BatchWritten.from_text(nothing.to_text()) == nothing


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"topics": {"a": 1}}', '{"topics": {"a": {"0": {}}}}', '{"topics": []}']
)
def test_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a report|Expecting value"):
        BatchWritten.from_text(text)


def test_tasks_of_a_batch_are_put_together() -> None:
    one = {A0: PartitionWritten(5, 9, 4, 40), B0: PartitionWritten(-1, -1, 2, 20)}
    other = {A0: PartitionWritten(3, 7, 2, 20), A10: PartitionWritten(0, 1, 1, 10), B0: PartitionWritten(4, 5, 1, 10)}
    assert together([one, other, {}]) == {
        A0: PartitionWritten(3, 9, 6, 60),
        A10: PartitionWritten(0, 1, 1, 10),
        B0: PartitionWritten(4, 5, 3, 30),
    }
    assert together([]) == {}
