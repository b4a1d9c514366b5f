"""The target of ``kafka-direct checkpoint rewind``: a time, or offsets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.errors import InvalidOffsetsError, OptionError
from pyspark_kafka_direct.offsets import EARLIEST, LATEST, partition_offsets_from_json
from pyspark_kafka_direct.options.positions import AtTime, parse_time
from pyspark_kafka_direct.planning.offset_resolution import NO_RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import TopicPartition


class Target(NamedTuple):
    """A time, or offsets of partitions, which may be ``EARLIEST`` and ``LATEST``."""

    time_ms: int | None
    offsets: Mapping[TopicPartition, int]

    @property
    def needs_cluster(self) -> bool:
        """Whether offsets have to be requested."""
        return self.time_ms is not None or any(offset < 0 for offset in self.offsets.values())


def parse_target(to_time: str | None, to_offsets: str | None) -> Target:
    """Parse the arguments, of which one is given."""
    if to_time is not None:
        try:
            position = parse_time(to_time, on_no_match="latest")
        except ValueError as error:
            raise OptionError(f"--to-time: {error}") from None
        if isinstance(position, AtTime):
            return Target(position.timestamp, {})
        return Target(int(time.time() * 1000) - position.milliseconds, {})
    try:
        offsets = partition_offsets_from_json(to_offsets or "")
    except InvalidOffsetsError as error:
        raise OptionError(f"--to-offsets: {error}") from None
    if invalid := [f"{tp}: {offset}" for tp, offset in offsets.items() if offset < EARLIEST]:
        raise OptionError(f"--to-offsets: an offset is at least 0, or -2 (earliest) or -1 (latest), not {invalid[0]}")
    return Target(None, offsets)


def wanted_offsets(
    target: Target, sources: Mapping[str, Mapping[TopicPartition, int]], cluster: ClusterClient | None
) -> dict[str, dict[TopicPartition, int]]:
    """Return the wanted offsets of each source; a time never moves a partition forward.

    Raises:
        OptionError: A partition is in no source, or in several.
    """
    if target.time_ms is not None:
        assert cluster is not None  # a time needs one
        partitions = {tp for ends in sources.values() for tp in ends}
        found = cluster.offsets(dict.fromkeys(partitions, target.time_ms)) if partitions else {}
        return {
            source: {tp: end if found[tp] == NO_RECORD else min(end, found[tp]) for tp, end in ends.items()}
            for source, ends in sources.items()
        }
    wanted: dict[str, dict[TopicPartition, int]] = {}
    for tp, offset in _resolved(target.offsets, cluster).items():
        owners = [source for source, ends in sources.items() if tp in ends]
        if not owners:
            raise OptionError(f"--to-offsets: the last batch has no offset of {tp}")
        if len(owners) > 1:
            raise OptionError(f"--to-offsets: the sources {', '.join(owners)} have {tp}; choose one with --source")
        wanted.setdefault(owners[0], {})[tp] = offset
    return wanted


def _resolved(offsets: Mapping[TopicPartition, int], cluster: ClusterClient | None) -> dict[TopicPartition, int]:
    keywords = {tp: offset for tp, offset in offsets.items() if offset in (EARLIEST, LATEST)}
    return {**offsets, **(cluster.offsets(keywords) if cluster and keywords else {})}
