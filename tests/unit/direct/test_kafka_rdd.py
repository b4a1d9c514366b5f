"""The jobs of ``take``, ``isEmpty`` and ``count``; all other tests of a KafkaRDD need a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_kafka_direct.direct import OffsetRange, kafka_rdd
from pyspark_kafka_direct.direct.arrow_columns import arrow_columns
from pyspark_kafka_direct.direct.kafka_rdd import CountRecords, KafkaRDD, _partitions_needed
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    ("record_count", "offset_counts", "expected"),
    [
        (1, [10, 10], 1),
        (10, [10, 10], 1),
        (11, [10, 10], 2),
        (15, [10, 2, 2, 2], 4),
        (100, [10, 10], 2),
        (1, [], 0),
    ],
)
def test_how_many_partitions_contain_the_offsets(record_count: int, offset_counts: list[int], expected: int) -> None:
    assert _partitions_needed(record_count, offset_counts) == expected


class CountedRdd(KafkaRDD):
    """An RDD whose jobs are counted, and read a given number of records of each range."""

    def __init__(self, ranges: Sequence[OffsetRange], record_counts: Sequence[int] = ()) -> None:
        self.jobs: list[tuple[int | None, list[int]]] = []  # the limit of records of a partition, and the partitions
        self.func: Any = None
        self.is_cached = self.is_checkpointed = False
        self._assume_consecutive = False
        self._reader: Any = None
        self._parameters: Any = SimpleNamespace(connection=SimpleNamespace(security=None))
        self._ranges = tuple(ranges)
        self._record_counts = record_counts

    def _run_job(self, function: Any, partitions: Sequence[int]) -> list[Any]:
        is_count = isinstance(function, CountRecords)
        limit = function.limit if is_count else function._limit
        self.jobs.append((limit, list(partitions)))
        found: list[Any] = []
        for index in partitions:
            count = self._record_counts[index] if limit is None else min(self._record_counts[index], limit)
            found += [count] if is_count else [(index, number) for number in range(count)]
        return found

    def _read_arrow(self, columns: Any) -> Any:
        return columns


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=70), st.integers(0, 40))
@example([(1, 0)] * 70, 5)
def test_records_are_found_by_few_jobs(counts: list[tuple[int, int]], num: int) -> None:
    """Offset gaps leave any number of ranges without a record, or with fewer records than offsets."""
    records = [min(count) for count in counts]
    ranges = [OffsetRange("t", number, 5, 5 + offsets) for number, (offsets, _) in enumerate(counts)]
    rdd, all_records = CountedRdd(ranges, records), [(i, j) for i, count in enumerate(records) for j in range(count)]
    for read, expected in (
        (lambda: rdd.take(num), all_records[:num]),
        (rdd.isEmpty, not all_records),
        (rdd.count, len(all_records)),
    ):
        rdd.jobs.clear()
        assert read() == expected
        scanned = [index for _, partitions in rdd.jobs for index in partitions]
        assert scanned == [index for index, (offsets, _) in enumerate(counts) if offsets][: len(scanned)], "each once"
        assert len(rdd.jobs) <= 8, "not one for each range"
    rdd.jobs.clear()
    rdd.take(num)
    taken = 0
    for limit, partitions in rdd.jobs:
        assert limit == num - taken, "no more records are read than needed"
        taken += sum(min(records[index], limit) for index in partitions)


def test_a_persisted_rdd_is_read_by_spark() -> None:
    rdd = CountedRdd([])
    assert not rdd._is_persisted()
    for name in ("is_cached", "is_checkpointed"):
        rdd = CountedRdd([])
        setattr(rdd, name, True)
        assert rdd._is_persisted()


def test_a_registry_finds_the_schema_of_one_topic_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_rdd, "arrow_columns", lambda *_, topic, **__: topic)
    one, same, other = OffsetRange("t", 0, 0, 5), OffsetRange("t", 1, 0, 5), OffsetRange("u", 0, 0, 5)
    for ranges, topic in (([one, same], "t"), ([one, other], None), ([], None)):
        found: Any = CountedRdd(ranges).arrow()
        assert found == topic


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["value", "_error"], None, "_error"),
        (None, {"emit.default.values": "true", "kafka.group.id": "g"}, "kafka.group.id is neither"),
        (None, ["emit.default.values"], "takes a dict"),
    ],
)
def test_arguments_of_arrow_without_a_format_are_rejected(columns: Any, options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        arrow_columns(columns, {"valueFormat": None}, options)
