"""Runs of a streaming query on a simulated cluster, with the calls of Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.unit.planning.planner_cluster import GROUP

from pyspark_kafka_direct.datasource.legacy_micro_batch_stream import LegacyKafkaMicroBatchStream
from pyspark_kafka_direct.datasource.micro_batch_stream import KafkaMicroBatchStream
from pyspark_kafka_direct.datasource.read_schema import kafka_schema, read_schema
from pyspark_kafka_direct.options.read_options import parse_stream_options

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from tests.unit.planning.planner_cluster import PlannerCluster

LEGACY = pytest.mark.parametrize("legacy", [False, True], ids=["4.2", "4.0"])


class StreamRun:
    """A run of a query, whose offsets Spark stores as JSON and passes back.

    Args:
        brokers: The cluster, with the topic ``t``.
        start: The option startingOffsets.
        legacy: Whether Spark 4.0 or 4.1 runs it, which does not pass the start of a batch.
        options: Other options.
    """

    def __init__(
        self, brokers: PlannerCluster, start: str = "earliest", *, legacy: bool = False, **options: str
    ) -> None:
        named = {"kafka.bootstrap.servers": "broker-1:9092", "startingoffsets": start, "commitgroupid": GROUP}
        if "subscribepattern" not in options:
            named["subscribe"] = "t"
        kind = LegacyKafkaMicroBatchStream if legacy else KafkaMicroBatchStream
        parsed = parse_stream_options({**named, **options})
        self.reader = kind(parsed, read_schema(kafka_schema(False)), brokers.pool)

    def initial(self) -> dict[str, Any]:
        return _stored(self.reader.initialOffset())

    def latest(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the next end; only newer versions of Spark pass the start."""
        if isinstance(self.reader, LegacyKafkaMicroBatchStream):
            return _stored(self.reader.latestOffset())
        return _stored(self.reader.latestOffset(_stored(start), limit or self.reader.getDefaultReadLimit()))

    def first_end(self) -> dict[str, Any]:
        """Return the end of the first batch of a new query."""
        return self.latest(None if isinstance(self.reader, LegacyKafkaMicroBatchStream) else self.initial())

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
        tasks = cast("Any", self.reader.partitions(_stored(start), _stored(end)))
        offsets = [task.task.offsets for task in tasks]
        return [(str(each.topic_partition), each.from_offset, each.until_offset) for each in offsets]

    def replay_first_batch(self, end: dict[str, Any]) -> list[tuple[str, int, int]]:
        """Plan the first batch of an earlier run again, with the calls after a restart."""
        if isinstance(self.reader, LegacyKafkaMicroBatchStream):
            assert self.ranges(end, end) == []
        return self.ranges(self.initial(), end)


def at(offset: int) -> dict[str, Any]:
    """Return an offset of the first partition, as Spark stores it."""
    return {"t": {"0": offset}}


def first_end_at(start: int, end: int) -> dict[str, Any]:
    """Return the end of a first batch, which records its start."""
    return {**at(end), f'(start){{"t":{{"0":{start}}}}}': {}}


def _stored(offsets: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(json.dumps(offsets)))
