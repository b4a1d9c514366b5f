"""Slices of random topics, with transactions, compaction, gaps and deleted records: what librdkafka reads of them."""

from __future__ import annotations

import heapq
import json
import random
from collections import defaultdict
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import OffsetSpec
from tests.examples import seeds
from tests.integration.open_transactions import new_transactional_producer, write_open_transaction
from tests.integration.random_topics import (
    FIRST_TIMESTAMP,
    PARTITIONS,
    TIMESTAMPS,
    Row,
    offsets_of_time,
    read_by_librdkafka,
    write_random_topic,
)

from pyspark_kafka_direct import DataLossError, OffsetRange, read_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confluent_kafka import Producer
    from tests.integration.workbench import Workbench

COLUMNS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
}
ISOLATIONS = ("read_committed", "read_uncommitted")

Partition = tuple[str, int]


class Topics:
    """Three random topics, and all that librdkafka reads from them at each isolation level."""

    def __init__(self, bench: Workbench, source: random.Random) -> None:
        self.bench = bench
        self.names = [write_random_topic(bench, source, compacted=number == 1) for number in range(3)]
        self._open = self._leave_transaction_open(self.names[2])
        servers = bench.bootstrap_servers
        rows = {level: read_by_librdkafka(servers, self.names, level) for level in ISOLATIONS}
        self.rows = {level: _by_partition(found) for level, found in rows.items()}
        self.starts = {each: bench.start(*each) for each in self.partitions(self.names)}
        self.ends = {level: self._ends(level) for level in ISOLATIONS}

    def close(self) -> None:
        self._open.abort_transaction(600)

    def partitions(self, names: Sequence[str]) -> list[Partition]:
        return [(name, number) for name in sorted(names) for number in range(PARTITIONS)]

    def _ends(self, level: str) -> dict[Partition, int]:
        wanted = {ClientPartition(*each): OffsetSpec.latest() for each in self.partitions(self.names)}
        found = self.bench.admin.list_offsets(wanted, isolation_level=IsolationLevel[level.upper()])
        return {(each.topic, each.partition): future.result(600).offset for each, future in found.items()}

    def _leave_transaction_open(self, topic: str) -> Producer:
        producer = new_transactional_producer(self.bench, topic)
        write_open_transaction(producer, topic, [b"open"] * 3)
        self.bench.write(topic, [b"behind"])
        return producer


@pytest.fixture(scope="module")
def topics(bench: Workbench) -> Iterator[Topics]:
    found = Topics(bench, random.Random())
    yield found
    found.close()


class Slice:
    """The arguments of a random call, and the offsets that it is to read."""

    def __init__(self, topics: Topics, source: random.Random) -> None:
        self.topics = topics
        self.level = source.choice(ISOLATIONS)
        self.names = source.sample(topics.names, source.randrange(1, 4))
        self.partitions = topics.partitions(self.names)
        self.columns = source.sample(list(COLUMNS), source.randrange(1, len(COLUMNS) + 1))
        self.order: Any = source.choice(["partition", "timestamp"])
        self.arguments: dict[str, Any] = {
            "threads": source.randrange(1, 5),
            "limit": source.choice([None, None, 0, source.randrange(1, 60), source.randrange(1, 60)]),
        }
        self.from_offsets: dict[Partition, int] = {}
        self.until_offsets: dict[Partition, int] = {}
        self.first: Any = self.names[0] if len(self.names) == 1 else self.names
        if source.random() < 0.3:
            self._choose_ranges(source)
        else:
            self.arguments["start"], self.from_offsets = self._position(source)
            self.arguments["end"], ends = self._position(source, is_end=True)
            times = [self.arguments[name] for name in ("start", "end") if self.arguments[name].endswith("+00:00")]
            if times != sorted(times) or any(ends[each] < self.from_offsets[each] for each in self.partitions):
                self.arguments["end"], ends = "now", self._ends  # an end before the start is an error
            self.until_offsets = ends

    @cached_property
    def _ends(self) -> dict[Partition, int]:
        return {each: self.topics.ends[self.level][each] for each in self.partitions}

    def expected(self) -> dict[Partition, list[Row]]:
        """Return the records of each partition."""
        rows = self.topics.rows[self.level]
        return {
            each: [row for row in rows[each] if self.from_offsets[each] <= row.offset < self.until_offsets[each]]
            for each in self.partitions
        }

    def ranges(self) -> list[OffsetRange]:
        """Return the ranges that are not empty."""
        all_ranges = (OffsetRange(*each, self.from_offsets[each], self.until_offsets[each]) for each in self.partitions)
        return [each for each in all_ranges if each.from_offset < each.until_offset]

    def read(self) -> tuple[list[OffsetRange], pa.Table]:
        """Return the planned ranges, and the records."""
        params = {"bootstrap.servers": self.topics.bench.bootstrap_servers, "isolation.level": self.level}
        with read_arrow(self.first, params, columns=self.columns, order=self.order, **self.arguments) as found:
            return list(found.ranges), found.read_all()

    def _choose_ranges(self, source: random.Random) -> None:
        for each in self.partitions:
            low, high = self.topics.starts[each], self.topics.ends[self.level][each]
            self.from_offsets[each], self.until_offsets[each] = sorted(source.choices(range(low, high + 1), k=2))
        ranges = [OffsetRange(*each, self.from_offsets[each], self.until_offsets[each]) for each in self.partitions]
        source.shuffle(ranges)
        self.first = ranges

    def _position(self, source: random.Random, *, is_end: bool = False) -> tuple[object, dict[Partition, int]]:
        starts = {each: self.topics.starts[each] for each in self.partitions}
        kinds: list[Callable[[], tuple[object, dict[Partition, int]]]] = [
            lambda: ("now", self._ends) if is_end else ("earliest", starts),
            lambda: self._offsets(source),
            lambda: self._time(source),
            lambda: self._last(source),
        ]
        return source.choice(kinds[:-1] if is_end else kinds)()

    def _offsets(self, source: random.Random) -> tuple[str, dict[Partition, int]]:
        chosen = {each: source.randrange(self.topics.starts[each], self._ends[each] + 1) for each in self.partitions}
        by_topic: dict[str, dict[str, int]] = defaultdict(dict)
        for (topic, partition), offset in chosen.items():
            by_topic[topic][str(partition)] = offset
        return json.dumps(by_topic), chosen

    def _time(self, source: random.Random) -> tuple[str, dict[Partition, int]]:
        milliseconds = FIRST_TIMESTAMP + source.randrange(-5, TIMESTAMPS + 5)
        chosen = {}
        for name in self.names:
            found = offsets_of_time(self.topics.bench.bootstrap_servers, name, milliseconds, self.level)
            for number, offset in found.items():
                end = self._ends[name, number]
                chosen[name, number] = end if offset < 0 else min(offset, end)
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds"), chosen

    def _last(self, source: random.Random) -> tuple[str, dict[Partition, int]]:
        count = source.randrange(1, 60)
        chosen = {each: max(self.topics.starts[each], self._ends[each] - count) for each in self.partitions}
        return f"last {count}", chosen


def test_slices_are_what_librdkafka_reads(topics: Topics) -> None:
    @seeds(40)
    def check(source: random.Random) -> None:
        chosen = Slice(topics, source)
        ranges, table = chosen.read()
        expected = chosen.expected()
        rows = (
            _by_timestamp(expected)
            if chosen.order == "timestamp"
            else [row for each in expected.values() for row in each]
        )
        assert table.equals(_table(rows[: chosen.arguments["limit"]], chosen.columns)), chosen.__dict__
        not_empty = [each for each in ranges if each.from_offset < each.until_offset]
        assert sorted(not_empty) == chosen.ranges()

    check()


def test_deleted_records_are_data_loss(topics: Topics) -> None:
    topic = topics.names[0]
    params = {"bootstrap.servers": topics.bench.bootstrap_servers}
    ranges = [OffsetRange(topic, 0, 0, topics.ends["read_uncommitted"][topic, 0])]
    with pytest.raises(DataLossError, match="failOnDataLoss") as caught:
        read_arrow(ranges, params).read_all()
    assert (caught.value.topic, caught.value.partition) == (topic, 0)
    rest = read_arrow(ranges, params, failOnDataLoss="false").read_all()
    assert rest.equals(_table(topics.rows["read_uncommitted"][topic, 0], [*COLUMNS][:-1]))


def _by_partition(rows: Sequence[Row]) -> dict[Partition, list[Row]]:
    found: dict[Partition, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.topic, row.partition].append(row)
    return found


def _table(rows: Sequence[Row], columns: Sequence[str]) -> pa.Table:
    values: dict[str, list[object]] = {
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "topic": [row.topic for row in rows],
        "partition": [row.partition for row in rows],
        "offset": [row.offset for row in rows],
        "timestamp": [row.timestamp * 1000 for row in rows],
        "timestampType": [row.timestamp_type for row in rows],
        "headers": [row.headers for row in rows],
    }
    return pa.table({name: pa.array(values[name], COLUMNS[name]) for name in columns})


def _by_timestamp(partitions: dict[Partition, list[Row]]) -> list[Row]:
    """Merge partitions: the next record is the one of the earliest timestamp among the next ones of all partitions."""
    heads = [(rows[0].timestamp, each, 0) for each, rows in partitions.items() if rows]
    heapq.heapify(heads)
    merged = []
    while heads:
        _, each, number = heapq.heappop(heads)
        rows = partitions[each]
        merged.append(rows[number])
        if number + 1 < len(rows):
            heapq.heappush(heads, (rows[number + 1].timestamp, each, number + 1))
    return merged
