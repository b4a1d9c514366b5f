"""Asks the cluster what ``planning/direct_start.py`` has to know, and tells its warnings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning.direct_start import LogSpan, Reset, Starts, decide_starts, decide_starts_of_new

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.settings.fetch import IsolationLevel
    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.groups import Group

_log = logging.getLogger("pyspark_kafka_direct.direct")


def starting_offsets(
    wanted: Mapping[TopicPartition, int | None],
    cluster: Cluster,
    isolation_level: IsolationLevel,
    group: Group | None,
    reset: Reset,
) -> dict[TopicPartition, int]:
    """Return offsets to start at: given ones, else what the group has committed, else what ``auto.offset.reset`` says.

    Args:
        wanted: The partitions; those without an offset have ``None``.
        cluster: The cluster.
        isolation_level: ``isolation.level``: where logs end for the reader.
        group: The group of ``group.id``, if there is one.
        reset: ``auto.offset.reset``.

    Raises:
        OffsetPlanError: A given offset is not in the log; or there is no offset that is, and ``auto.offset.reset`` is
            ``none``.
        KafkaDirectError: The cluster could not be asked.
    """
    committed = _committed(group, [tp for tp, offset in wanted.items() if offset is None])
    return _told(
        decide_starts(wanted, committed, _logs(cluster, wanted, isolation_level), reset=reset, group=_name(group))
    )


def offsets_of_new(
    partitions: Collection[TopicPartition],
    cluster: Cluster,
    isolation_level: IsolationLevel,
    group: Group | None,
    reset: Reset,
) -> dict[TopicPartition, int]:
    """Return offsets to start at for partitions that have appeared under a stream: committed ones, else the log start.

    Raises:
        OffsetPlanError: A committed offset is not in the log, and ``auto.offset.reset`` is ``none``.
        KafkaDirectError: The cluster could not be asked.
    """
    committed = _committed(group, partitions)
    logs = _logs(cluster, partitions, isolation_level)
    return _told(decide_starts_of_new(committed, logs, reset=reset, group=_name(group)))


def high_watermarks(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return where logs end, with what a transaction under way hides under ``read_committed``.

    Raises:
        KafkaDirectError: The cluster could not be asked.
    """
    return cluster.offsets(dict.fromkeys(partitions, LATEST), isolation_level="read_uncommitted")


def _committed(group: Group | None, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return {} if group is None or not partitions else group.committed(partitions)


def _logs(
    cluster: Cluster, partitions: Collection[TopicPartition], isolation_level: IsolationLevel
) -> dict[TopicPartition, LogSpan]:
    if not partitions:
        return {}
    starts = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
    readable = cluster.offsets(dict.fromkeys(partitions, LATEST), isolation_level=isolation_level)
    # An offset behind the last stable one is in the log; who takes it for lost reads all again.
    ends = high_watermarks(cluster, partitions) if isolation_level == "read_committed" else readable
    return {tp: LogSpan(starts[tp], readable[tp], ends[tp]) for tp in partitions}


def _name(group: Group | None) -> str | None:
    return None if group is None else group.group_id


def _told(starts: Starts) -> dict[TopicPartition, int]:
    for warning in starts.warnings:
        _log.warning("%s", warning)
    return starts.offsets
