"""Log compaction: removes records, and keeps the offsets of those that remain."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.cluster.stored_batch import encode_batch

if TYPE_CHECKING:
    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.cluster.partition_log import ReplicaLog
    from tests.simulation.cluster.stored_batch import StoredBatch
    from tests.simulation.cluster.topics import SimulatedPartition


def compact(cluster: SimulatedCluster, target: SimulatedPartition, fraction: float, draw: int) -> None:
    """Remove some records, the same ones from all replicas that have them.

    Which keys have newer records is drawn, unless the topic is compacted by its configuration: then it keeps the newest
    committed record of each key. The last batch and everything from the last stable offset on stay, as the
    active segment does. Records of aborted transactions go too. Markers stay.
    """
    log = target.leader_log
    if log is None or not log.batches:
        return
    rng = random.Random(f"{cluster.cluster_id}/{target.topic.name}/{target.index}/{draw}")
    limit = min(log.last_stable_offset, log.batches[-1].base_offset)
    newest = _newest_offsets(log, limit) if target.topic.configs.get("cleanup.policy") == "compact" else None
    removed: list[int] = []
    for batch in log.batches:
        if batch.last_offset >= limit:
            break
        if not batch.is_control:
            is_aborted = _is_aborted(log, batch)
            removed += [
                offset
                for offset, key in zip(batch.offsets, batch.keys, strict=True)
                if is_aborted or (rng.random() < fraction and (newest is None or newest[key] > offset))
            ]
    if not removed:
        return
    compacted = frozenset((batch.base_offset, batch.epoch) for batch in log.batches if batch.last_offset < limit)
    removed_offsets = frozenset(removed)
    cache: dict[tuple[int, int], StoredBatch | None] = {}
    for replica in target.replicas.values():
        _compact_replica(replica, compacted, removed_offsets, cache)
    topic = target.topic
    cluster.oracle.compacted(topic.name, topic.generation, target.index, removed, cluster.world.now)
    cluster.world.trace("compacted", topic.name, target.index, len(removed))


def _newest_offsets(log: ReplicaLog, limit: int) -> dict[bytes | None, int]:
    """Return the offset of the newest committed record of each key before an offset."""
    return {
        key: offset
        for batch in log.batches
        if batch.last_offset < limit and not batch.is_control and not _is_aborted(log, batch)
        for offset, key in zip(batch.offsets, batch.keys, strict=True)
    }


def _compact_replica(
    log: ReplicaLog,
    compacted: frozenset[tuple[int, int]],
    removed: frozenset[int],
    cache: dict[tuple[int, int], StoredBatch | None],
) -> None:
    kept = []
    for batch in log.batches:
        key = (batch.base_offset, batch.epoch)
        if batch.is_control or key not in compacted or removed.isdisjoint(batch.offsets):
            kept.append(batch)
            continue
        if key not in cache:
            cache[key] = _without(batch, removed, retain_empty=_is_last_of_producer(log, batch))
        replacement = cache[key]
        if replacement is not None:
            kept.append(replacement)
    log.replace_batches(kept)


def _without(batch: StoredBatch, removed: frozenset[int], *, retain_empty: bool) -> StoredBatch | None:
    """Return the batch without some records; None if nothing remains of it."""
    left = [index for index, offset in enumerate(batch.offsets) if offset not in removed]
    if not left and not retain_empty:
        return None
    return encode_batch(
        [batch.values[index] for index in left],
        keys=[batch.keys[index] for index in left],
        timestamps=[batch.timestamps[index] for index in left],
        headers=[batch.headers[index] for index in left],
        deltas=[batch.offsets[index] - batch.base_offset for index in left],
        last_offset_delta=batch.last_offset - batch.base_offset,
        base_offset=batch.base_offset,
        epoch=batch.epoch,
        timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
    )


def _is_last_of_producer(log: ReplicaLog, batch: StoredBatch) -> bool:
    """Whether the log retains the batch's header for the producer's last sequence number."""
    entry = log.producers.get(batch.producer_id)
    return bool(entry and entry.batches and entry.batches[-1].last_offset == batch.last_offset)


def _is_aborted(log: ReplicaLog, batch: StoredBatch) -> bool:
    return batch.is_transactional and any(
        each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset <= each.last_offset
        for each in log.aborted
    )
