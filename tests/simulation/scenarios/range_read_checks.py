"""Checks of what a range read counts and names: its counters, its batches, its brokers and its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.errors import ViolationError
from tests.simulation.oracle import READ_COMMITTED
from tests.simulation.record_attributes import arrow_headers

from pyspark_kafka_direct.consumer.range_task import ReadCounts
from pyspark_kafka_direct.planning.loss_errors import DataLossCause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from tests.simulation.environment import Environment
    from tests.simulation.oracle import Oracle
    from tests.simulation.scheduler import World

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import OffsetRange, TopicPartition

_ROUNDING = 0.1  # seconds; each call of the system takes a moment
THROTTLES = frozenset(("throttle", "throttle_broker"))  # after which a follower is asked again


class _Response(NamedTuple):
    broker: str | None
    size: int  # of its records


class ObservedCounts(ReadCounts):
    """Remembers the responses, and when records were received last; a caller sees them later, in a batch of rows."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.received_at = world.now
        self.responses: list[_Response] = []

    def add_fetch(self, broker: str | None, size: int) -> None:
        super().add_fetch(broker, size)
        self.responses.append(_Response(broker, size))
        if size:
            self.received_at = self._world.now


def check_batch(batch: pa.RecordBatch, read: Mapping[str, Any], partition: TopicPartition, oracle: Oracle) -> None:
    """Check the shape of a batch, and the columns beside the offset and the value."""
    columns = list(read.get("columns", ("offset", "value")))
    if batch.schema.names != columns or not 0 < batch.num_rows <= read["max_rows"]:
        raise ViolationError(f"a batch has {batch.num_rows} rows of {batch.schema.names}: {read}")
    if batch.num_columns == 2:
        return
    for row in batch.to_pylist():
        found = oracle.attributes[*partition, row["value"]]
        expected = {
            "topic": partition.topic,
            "partition": partition.partition,
            "key": found.key,
            "timestamp": found.timestamp,
            "headers": found.headers,
        }
        returned = {name: row[name] for name in expected if name in row}
        returned["timestamp"] = int(returned["timestamp"].timestamp() * 1000)
        if "headers" in returned:
            returned["headers"] = arrow_headers(returned["headers"])
        if any(value != expected[name] for name, value in returned.items()):
            raise ViolationError(f"the record {row['value']!r} has {returned}, not {expected}")


def check_counts(counts: ObservedCounts, offsets: OffsetRange, rows: int, *, from_earliest: bool) -> None:
    """Check that the counters of a complete read explain each offset of its range once."""
    if counts.records != rows:
        raise ViolationError(f"{rows} records are returned, and {counts.records} are counted: {counts}")
    skipped = sum(each for cause, each in counts.skipped.items() if cause is not DataLossCause.UNPROVEN_GAP)
    total = rows + counts.control + counts.aborted + counts.gaps + skipped
    # Records that expired before the first read from "earliest" count as nothing.
    if total > offsets.count() or (total < offsets.count() and not from_earliest):
        raise ViolationError(f"{offsets} has {offsets.count()} offsets, and {total} are counted: {counts}")
    sizes = sum(response.size for response in counts.responses)
    if counts.record_bytes != sizes or counts.fetches != len(counts.responses):
        raise ViolationError(f"{len(counts.responses)} responses have {sizes} bytes of records, but it counts {counts}")
    truncated = counts.skipped.get(DataLossCause.TRUNCATED)
    if counts.lost != skipped and truncated is None:
        raise ViolationError(f"{skipped} offsets are skipped, and {counts.lost} are lost: {counts}")


def check_times(counts: ReadCounts, seconds: float, paused: float, *, may_be_throttled: bool) -> None:
    """Check the durations of a read that its query paused for some seconds, and that a quota is only counted if set."""
    if abs(counts.total_seconds - seconds) > _ROUNDING or counts.wait_seconds > seconds - paused + _ROUNDING:
        raise ViolationError(f"a read took {seconds:.6f} s, and {paused:.6f} s are the query's, but it counts {counts}")
    if counts.throttled and not may_be_throttled:
        raise ViolationError(f"no broker has a quota, but {counts.throttled} responses count as throttled")


def check_markers(counts: ReadCounts, offsets: OffsetRange, environment: Environment, generation: int) -> None:
    """Check the counters of a complete read of a log that has lost nothing, and of which nothing was compacted."""
    truth = environment.oracle.truth(offsets.topic_partition, generation)
    if truth.compacted or truth.truncations() or truth.starts:
        return
    first, until = offsets.from_offset, offsets.until_offset
    markers = sum(entry.commit is not None for entry in truth.path(truth.epoch()) if first <= entry.offset < until)
    if counts.control != markers or counts.gaps:
        raise ViolationError(f"{offsets} has {markers} markers and no gaps, and the counters are: {counts}")


def check_causes(
    counts: ReadCounts, offsets: OffsetRange, environment: Environment, generation: int, warnings: Sequence[str]
) -> None:
    """Check that a read skips offsets only for reasons that the history has, and logs each of them."""
    if not environment.plan.events and (counts.retries or counts.throttled or counts.skipped):
        has_open = any(batch["transaction"] for batch in environment.plan.parameters["log"])
        if counts.throttled or counts.skipped or not (has_open or environment.cluster.settings.metadata_lag):
            raise ViolationError(f"nothing happens in this history, but it counts {counts}")
    truth = environment.oracle.truth(offsets.topic_partition, generation)
    is_gone = (offsets.topic, generation) in environment.oracle.deleted_at
    for cause in counts.skipped:
        if (cause is DataLossCause.AGED_OUT and not (truth.starts or is_gone)) or (
            cause is DataLossCause.TRUNCATED and not (len(truth.epochs) > 1 or is_gone)
        ):
            raise ViolationError(f"{offsets} lost nothing in this way: {counts.skipped}")
        if not any(cause.value in each and str(offsets.topic_partition) in each for each in warnings):
            raise ViolationError(f"{offsets} skips {counts.skipped}, and the log has only {list(warnings)}")


def check_error(error: KafkaDirectError, offsets: OffsetRange, position: int) -> None:
    """Check that an error of a read names its partition, and the offset that was to be read next."""
    if error.topic is None:
        return  # it concerns all partitions of a broker
    if error.topic != offsets.topic or error.partition not in (None, offsets.partition):
        raise ViolationError(f"the error of {offsets} names another partition: {error!r}") from error
    if error.offset is not None and not position <= error.offset <= offsets.until_offset:
        raise ViolationError(f"{offsets} was read until {position}, and its error names: {error!r}") from error


def check_followers(counts: ObservedCounts, partition: TopicPartition, rack: str, environment: Environment) -> None:
    """Check that a read uses the follower in its rack, and does not return to it after it had no records."""
    cluster, plan = environment.cluster, environment.plan
    target = cluster.partition(partition)
    if (
        target is None
        or target.leader not in cluster.brokers
        or len(environment.oracle.truth(partition).epochs) > 1
        or cluster.absent_topics
    ):
        return
    if environment.oracle.generations[partition.topic] > 1 or any(each.kind in THROTTLES for each in plan.events):
        return
    leader = cluster.brokers[target.leader]
    address = f"{leader.host}:{leader.port}"
    silent: str | None = None
    for broker, size in counts.responses:
        if broker != address and silent is not None:
            raise ViolationError(f"{partition} is read from the follower {broker} again after {silent} had no records")
        if broker != address and not size:
            silent = broker
    followers = [cluster.brokers[each] for each in target.replicas if each != target.leader]
    is_near = rack and leader.rack != rack and any(each.rack == rack for each in followers)
    settings = cluster.settings
    has_racks = settings.read_from_followers and settings.leader_epochs  # otherwise Fetch has no rack
    if not plan.events and is_near and has_racks and counts.brokers == [address]:
        raise ViolationError(f"{partition} is read from {address}, although a replica is in the rack {rack}")


def has_undecided(environment: Environment, partition: TopicPartition, generation: int, until: int) -> bool:
    """Return whether transactions before an offset are open, or end after it; expired ones count no more."""
    truth = environment.oracle.truth(partition, generation)
    return truth.log_start() < truth.end_offset(READ_COMMITTED, environment.world.now) < until
