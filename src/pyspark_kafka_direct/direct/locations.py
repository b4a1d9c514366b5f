"""Where tasks should run: Spark's location strategies (``LocationStrategies.scala``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.direct.strategies import topic_partition
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.wire.cluster import PartitionLeader

_PREFER_FIXED_TAKES: Final = "PreferFixed takes a mapping such as {TopicPartition('t', 0): 'host'}"


class LocationStrategy:
    """Says on which host a topic-partition is best read. Spark may run the task elsewhere when that host is busy."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _PreferConsistent(LocationStrategy):
    def __repr__(self) -> str:
        return "PreferConsistent"

    def __reduce__(self) -> str:
        return "PREFER_CONSISTENT"  # a pickled singleton comes back as itself


@dataclass(frozen=True, slots=True)
class _PreferBrokers(LocationStrategy):
    def __repr__(self) -> str:
        return "PreferBrokers"

    def __reduce__(self) -> str:
        return "PREFER_BROKERS"


@dataclass(frozen=True, slots=True, init=False)
class PreferFixed(LocationStrategy):
    """Hosts chosen by the user; partitions that are not named are spread as with ``PreferConsistent``.

    Two are equal if they name the same hosts.

    Args:
        host_map: Host, as Spark names its executors' hosts, by topic-partition (a ``TopicPartition`` or a pair).

    Raises:
        OptionError: It is no mapping, a key is no topic-partition, or a host is no text.
    """

    hosts: Mapping[TopicPartition, str]

    def __init__(self, host_map: Mapping[TopicPartition, str]) -> None:
        if not isinstance(host_map, Mapping):
            raise OptionError(f"{_PREFER_FIXED_TAKES}, got {host_map!r}")
        hosts: dict[TopicPartition, str] = {}
        for key, host in host_map.items():
            try:
                partition = topic_partition(key)
            except OptionError as error:
                raise OptionError(f"{_PREFER_FIXED_TAKES}, got {key!r}: {host!r}") from error
            if not isinstance(host, str) or not host:
                raise OptionError(f"{_PREFER_FIXED_TAKES}, got {key!r}: {host!r}")
            hosts[partition] = host
        object.__setattr__(self, "hosts", MappingProxyType(hosts))

    def __hash__(self) -> int:
        return hash(frozenset(self.hosts.items()))

    def __reduce__(self) -> tuple[type[PreferFixed], tuple[dict[TopicPartition, str]]]:
        return (PreferFixed, (dict(self.hosts),))


PREFER_CONSISTENT: Final[LocationStrategy] = _PreferConsistent()
PREFER_BROKERS: Final[LocationStrategy] = _PreferBrokers()


class LocationStrategies:
    """Location strategies under the names of Spark's factories.

    Attributes:
        PreferConsistent: Spread the partitions evenly over the executors, each always to the same one. Use it unless
            you know better.
        PreferBrokers: Read on the host of the partition's leader, where executors run on the brokers' hosts.
        PreferFixed: Hosts of your own choice, for loads that differ much.
    """

    PreferConsistent: Final = PREFER_CONSISTENT
    PreferBrokers: Final = PREFER_BROKERS
    PreferFixed: Final = PreferFixed


def preferred_hosts(
    strategy: LocationStrategy, leaders: Mapping[TopicPartition, PartitionLeader]
) -> Mapping[TopicPartition, str] | None:
    """Return the hosts a strategy prefers; ``None``: any, but always the same.

    Args:
        strategy: One of ``LocationStrategies``.
        leaders: Who leads the partitions, as far as known; one without a leader is spread like the others.

    Raises:
        OptionError: It is none of them.
    """
    if strategy == PREFER_CONSISTENT:
        return None
    if strategy == PREFER_BROKERS:
        return {partition: leader.node.host for partition, leader in leaders.items()}
    if isinstance(strategy, PreferFixed):
        return strategy.hosts
    raise OptionError(
        "the location strategy must be LocationStrategies.PreferConsistent, PreferBrokers or PreferFixed(...), "
        f"got {strategy!r}"
    )
