"""Measurements of how far consumer groups and streaming queries are behind the ends of their partitions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.cli.log_ends import log_ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_kafka_direct.cli.query_checkpoint import QueryCheckpoint
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import TopicPartition


class ReadPartition(NamedTuple):
    """A partition that a group or a query reads. A query can have several sources with the same partition."""

    reader: str  # the id of a group, or the location of a checkpoint
    source: str | None  # the number or the name of the source; None: of a group
    partition: TopicPartition


class QueryStatus(NamedTuple):
    """The last batch of a query."""

    query_id: str | None
    batch: int
    is_committed: bool
    age_seconds: int | None  # since it was planned


class PartitionLag(NamedTuple):
    """The offset that a group or a query has committed, and the ends of the log."""

    offset: int | None  # None: a batch in flight is the first one with the partition
    end: int | None  # None: the partition does not exist
    stable_end: int | None  # the start of the first open transaction, or else the end of the log

    @property
    def lag(self) -> int | None:
        """The offsets up to the end of the log."""
        return None if self.offset is None or self.end is None else self.end - self.offset

    @property
    def stable_lag(self) -> int | None:
        """The offsets up to the last stable offset."""
        return None if self.offset is None or self.stable_end is None else max(self.stable_end - self.offset, 0)


class Measurement(NamedTuple):
    """The lag at one time."""

    time: float  # monotonic
    lags: Mapping[ReadPartition, PartitionLag]
    queries: Mapping[str, QueryStatus]  # by the location of the checkpoint


def measure(cluster: ClusterClient, groups: Iterable[str], checkpoints: Iterable[str]) -> Measurement:
    """Measure the lag of groups, and of queries by their checkpoints."""
    from pyspark_kafka_direct.cli.query_checkpoint import QueryCheckpoint
    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup

    now = time.monotonic()
    offsets: dict[ReadPartition, int | None] = {}
    for group in dict.fromkeys(groups):
        # Also those that an open transaction is about to replace.
        committed = ConsumerGroup(cluster, group).committed_with_metadata(require_stable=False)
        offsets |= {ReadPartition(group, None, tp): at.offset for tp, at in sorted(committed.items())}
    queries = {}
    for location in dict.fromkeys(checkpoints):
        checkpoint = QueryCheckpoint(location)
        queries[location] = _status(checkpoint)
        offsets |= _processed_offsets(location, checkpoint)
    ends = log_ends(cluster, {each.partition for each in offsets}, with_stable_ends=True)
    lags = {each: PartitionLag(offset, *ends.get(each.partition, (None, None))) for each, offset in offsets.items()}
    return Measurement(now, lags, queries)


def committed_rates(measured: Measurement, earlier: Measurement) -> dict[ReadPartition, int]:
    """Return the committed offsets per second of the partitions that are in both measurements."""
    seconds = measured.time - earlier.time
    rates = {}
    for each, lag in measured.lags.items():
        before = earlier.lags.get(each)
        if before is not None and before.offset is not None and lag.offset is not None:
            rates[each] = round((lag.offset - before.offset) / seconds)
    return rates


def _status(checkpoint: QueryCheckpoint) -> QueryStatus:
    last = checkpoint.planned[-1]
    time_ms = checkpoint.batch(last).time_ms
    age = None if time_ms is None else max(int(time.time() - time_ms / 1000), 0)
    return QueryStatus(checkpoint.query_id, last, last in checkpoint.committed, age)


def _processed_offsets(location: str, checkpoint: QueryCheckpoint) -> dict[ReadPartition, int | None]:
    """Return the end of the last committed batch; for partitions that it lacks, the start of the query."""
    done = _last_committed(checkpoint.committed, checkpoint.planned)
    ends = {} if done is None else checkpoint.batch(done).sources
    offsets: dict[ReadPartition, int | None] = {}
    for source, planned in checkpoint.batch(checkpoint.planned[-1]).sources.items():
        known = ends.get(source)
        if known is None:
            known = checkpoint.first_start(source) or {}
        offsets |= {ReadPartition(location, source, tp): known.get(tp) for tp in sorted(planned)}
    return offsets


def _last_committed(committed: Sequence[int], planned: Sequence[int]) -> int | None:
    return max({*committed} & {*planned}, default=None)
