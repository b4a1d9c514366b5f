"""Where reading a partition starts, once: at the start of a stream, or when the partition appears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, TopicPartition
from pyspark_kafka_direct.planning._hints import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark_kafka_direct.wire.cluster import Cluster
    from pyspark_kafka_direct.wire.groups import Group

Reset = Literal["earliest", "latest", "none"]


def starting_offsets(
    wanted: Mapping[TopicPartition, int | None], cluster: Cluster, group: Group | None, reset: Reset
) -> dict[TopicPartition, int]:
    """Offsets to start at: the given ones, else what the group has committed, else what ``auto.offset.reset`` says.

    Args:
        wanted: The partitions; those without an offset have ``None``.
        cluster: The cluster.
        group: The group of ``group.id``, if there is one.
        reset: ``auto.offset.reset``.

    Raises:
        OffsetPlanError: A given offset is not in the log, or there is none and ``auto.offset.reset`` is ``none``.
        KafkaDirectError: The cluster could not be asked.
    """
    given = {tp: offset for tp, offset in wanted.items() if offset is not None}
    _check_in_log(given, cluster)
    open_ones = [tp for tp, offset in wanted.items() if offset is None]
    found = {**given, **_committed(group, open_ones)}
    missing = sorted(tp for tp in open_ones if tp not in found)
    if missing and reset == "none":
        where = "there is no group.id" if group is None else f"the group {group.group_id!r} has committed no offset"
        raise OffsetPlanError(
            f"no offset to start at for {listed(missing)}: none is given, {where}, and auto.offset.reset is none; "
            "give offsets to the consumer strategy, commit some, or set auto.offset.reset to earliest or latest",
            topic=missing[0].topic,
            partition=missing[0].partition,
        )
    return {**found, **_ask(cluster, missing, EARLIEST if reset == "earliest" else LATEST)}


def offsets_of_new(
    partitions: Collection[TopicPartition], cluster: Cluster, group: Group | None
) -> dict[TopicPartition, int]:
    """Offsets to start at for partitions that have appeared under a stream: committed ones, else the log start.

    ``auto.offset.reset`` is left out on purpose. With ``latest`` Spark's stream skips what was written between the
    creation of a partition and its discovery, and that was written after the stream began.

    Raises:
        KafkaDirectError: The cluster could not be asked.
    """
    found = _committed(group, partitions)
    return {**found, **_ask(cluster, [tp for tp in partitions if tp not in found], EARLIEST)}


def _committed(group: Group | None, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return {} if group is None or not partitions else group.committed(partitions)


def _ask(cluster: Cluster, partitions: Collection[TopicPartition], position: int) -> dict[TopicPartition, int]:
    return cluster.offsets(dict.fromkeys(partitions, position)) if partitions else {}


def _check_in_log(given: Mapping[TopicPartition, int], cluster: Cluster) -> None:
    starts = _ask(cluster, given, EARLIEST)
    ends = _ask(cluster, given, LATEST)
    for tp, offset in given.items():
        if not starts[tp] <= offset <= ends[tp]:
            raise OffsetPlanError(
                f"the offset {offset} to start at is not in the log, which holds {starts[tp]} to {ends[tp]}; "
                "give one from there, or none to start where auto.offset.reset says",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
            )
