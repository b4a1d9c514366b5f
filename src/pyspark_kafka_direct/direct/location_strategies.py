"""Spark's location strategies, and the preferred locations of tasks (``KafkaRDD.getPreferredLocations``)."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.java_gateway import JavaClass
from pyspark.core.rdd import RDD
from pyspark.serializers import CPickleSerializer

from pyspark_kafka_direct.direct.consumer_strategies import parse_topic_partition
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from pyspark import SparkContext

    from pyspark_kafka_direct.client.cluster_client import PartitionLeader
    from pyspark_kafka_direct.offsets import TopicPartition

_PREFER_FIXED_USAGE: Final = "PreferFixed takes a mapping such as {TopicPartition('t', 0): 'host'}"

# Spark's unpickler (net.razorvine.pickle) reads up to protocol 5; it has supported 4 for longer.
_PICKLE_PROTOCOL = 4

_BLOCK_MANAGER_ID = re.compile(r"BlockManagerId\(([^,]+), ([^,]+), \d+, ")


class LocationStrategy:
    """The preferred hosts of topic-partitions. If a host is busy, Spark may run the task elsewhere."""

    __slots__ = ()


class _Singleton(LocationStrategy):
    """A strategy without arguments; like ``LocationStrategies.PreferConsistent()`` in Java, a call returns it."""

    __slots__ = ()

    def __call__(self) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class _PreferConsistent(_Singleton):
    def __repr__(self) -> str:
        return "PreferConsistent"

    def __reduce__(self) -> str:
        return "PREFER_CONSISTENT"  # unpickles as the singleton


@dataclass(frozen=True, slots=True)
class _PreferBrokers(_Singleton):
    def __repr__(self) -> str:
        return "PreferBrokers"

    def __reduce__(self) -> str:
        return "PREFER_BROKERS"


@dataclass(frozen=True, slots=True, init=False)
class PreferFixed(LocationStrategy):
    """Hosts chosen by the user; partitions without a host are distributed as with ``PreferConsistent``.

    Two instances are equal if they name the same hosts.

    Args:
        host_map: Hosts by topic-partition (a ``TopicPartition`` or a pair), named as Spark names its executors' hosts.
            The attribute ``hosts`` is a copy.

    Raises:
        OptionError: ``host_map`` is not a mapping, a key is not a topic-partition, or a host is not a string.
    """

    hosts: Mapping[TopicPartition, str]

    def __init__(self, host_map: Mapping[TopicPartition, str]) -> None:
        if not isinstance(host_map, Mapping):
            raise OptionError(f"{_PREFER_FIXED_USAGE}, got {host_map!r}")
        hosts: dict[TopicPartition, str] = {}
        for key, host in host_map.items():
            try:
                partition = parse_topic_partition(key)
            except OptionError as error:
                raise OptionError(f"{_PREFER_FIXED_USAGE}, got {key!r}: {host!r}") from error
            if not isinstance(host, str) or not host:
                raise OptionError(f"{_PREFER_FIXED_USAGE}, got {key!r}: {host!r}")
            hosts[partition] = host
        object.__setattr__(self, "hosts", MappingProxyType(hosts))  # the dataclass is frozen

    def __hash__(self) -> int:
        return hash(frozenset(self.hosts.items()))

    def __reduce__(self) -> tuple[type[PreferFixed], tuple[dict[TopicPartition, str]]]:
        return (PreferFixed, (dict(self.hosts),))


PREFER_CONSISTENT: Final[_Singleton] = _PreferConsistent()
PREFER_BROKERS: Final[_Singleton] = _PreferBrokers()


class LocationStrategies:
    """Location strategies under the names of Spark's factories; the first two may be followed by ``()``.

    Attributes:
        PreferConsistent: Distribute the partitions evenly over the executors, each always on the same one. Use it
            unless you have a reason not to.
        PreferBrokers: Read on the host of the partition leader, if executors run on the brokers' hosts.
        PreferFixed: Hosts of your choice, for example if the load of partitions differs.
    """

    PreferConsistent: Final = PREFER_CONSISTENT
    PreferBrokers: Final = PREFER_BROKERS
    PreferFixed: Final = PreferFixed


def preferred_hosts(
    strategy: LocationStrategy, leaders: Mapping[TopicPartition, PartitionLeader]
) -> Mapping[TopicPartition, str] | None:
    """Return the hosts that a strategy prefers, or ``None`` for a consistent distribution over all executors."""
    # With PreferBrokers, a partition without a known leader has no preferred host.
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


class Executor(NamedTuple):
    """An executor; sorts by host and then by id as a string, which is Spark's order (Spark sorts descending)."""

    host: str
    id: str

    @property
    def location(self) -> str:
        """Spark's string for "this executor, or else this host" (``ExecutorCacheTaskLocation``)."""
        return f"executor_{self.host}_{self.id}"


def list_executors(sc: SparkContext) -> list[Executor]:
    """Return the current executors without the driver; none in local mode."""
    manager = _block_manager(sc)
    return parse_executors(manager.master().getPeers(manager.blockManagerId()).mkString("; "))


def parse_executors(block_manager_ids: str) -> list[Executor]:
    """Return the executors in strings such as ``BlockManagerId(1, host, 40411, None)``, sorted descending."""
    return sorted(
        (Executor(host, executor_id) for executor_id, host in _BLOCK_MANAGER_ID.findall(block_manager_ids)),
        reverse=True,
    )


def preferred_location(
    partition: TopicPartition, executors: Sequence[Executor], hosts: Mapping[TopicPartition, str]
) -> str | None:
    """Return the preferred executor of a partition, always the same one while the executors stay the same."""
    # The executors are sorted, as parse_executors returns them. If the partition has no preferred host, or if no
    # executor runs on that host, the choice is from all executors. As in Spark, a hash chooses one.
    host = hosts.get(partition)
    candidates = [executor for executor in executors if executor.host == host] or executors
    return candidates[java_hash_code(partition) % len(candidates)].location if candidates else None


def java_hash_code(partition: TopicPartition) -> int:
    """Return ``hashCode`` of Java's ``TopicPartition``; with Python's ``%`` it gives Java's ``floorMod``."""
    return _int32(31 * (31 + partition.partition) + _java_string_hash_code(partition.topic))


def create_task_rdd(sc: SparkContext, tasks: Sequence[object], locations: Iterable[str | None]) -> RDD[Any]:
    """Create an RDD with one task per partition; either all locations or none are ``None``."""
    # Spark's makeRDD takes a Seq[(T, Seq[host])]. Building it object by object takes three JVM round trips for each
    # task, so both columns are sent pickled in one call each, and zipped in Scala.
    if not tasks:
        return RDD(sc._jsc.emptyRDD(), sc, CPickleSerializer())
    scala_context: Any = sc._jsc.sc()
    to_seq = _java_class(sc, "org.apache.spark.api.python.PythonUtils").toSeq
    unpickler = _java_class(sc, "net.razorvine.pickle.Unpickler")()  # part of Spark
    any_class = _java_class(sc, "scala.reflect.ClassTag").Any()
    serializer: Any = CPickleSerializer()  # PySpark's serializers are not typed

    def to_scala_seq(values: list[Any]) -> Any:
        return to_seq(unpickler.loads(pickle.dumps(values, protocol=_PICKLE_PROTOCOL)))

    elements = to_scala_seq([serializer.dumps(task) for task in tasks])
    hosts = [location for location in locations if location is not None]
    if hosts:
        host_lists = to_scala_seq(hosts).grouped(1).toSeq()  # one host for each task
        scala_rdd = scala_context.makeRDD(elements.zip(host_lists), any_class)
    else:
        scala_rdd = scala_context.makeRDD(elements, len(tasks), any_class)
    return RDD(_java_class(sc, "org.apache.spark.api.java.JavaRDD").fromRDD(scala_rdd, any_class), sc, serializer)


def _block_manager(sc: SparkContext) -> Any:
    # This uses a method handle, because a py4j call inspects all methods of SparkEnv, and one of them refers to a class
    # that PySpark 4.3 lacks.
    class_of = _java_class(sc, "java.lang.Class").forName
    method_type = _java_class(sc, "java.lang.invoke.MethodType").methodType
    lookup = _java_class(sc, "java.lang.invoke.MethodHandles").publicLookup()
    signature = method_type(class_of("org.apache.spark.storage.BlockManager"))
    handle = lookup.findVirtual(class_of("org.apache.spark.SparkEnv"), "blockManager", signature)
    scala_context: Any = sc._jsc.sc()
    return handle.invokeWithArguments([scala_context.env()])


def _java_class(sc: SparkContext, name: str) -> Any:
    """Return a class by its full name; ``sc._jvm.a.b.C`` takes a JVM round trip at each dot."""
    gateway: Any = sc._gateway
    return JavaClass(name, gateway._gateway_client)


def _java_string_hash_code(string: str) -> int:
    """Return ``String.hashCode`` as an unsigned number."""
    result = 0
    utf16 = string.encode("utf-16-be", "surrogatepass")  # Java hashes UTF-16 code units, of two bytes
    for index in range(0, len(utf16), 2):
        result = (31 * result + (utf16[index] << 8 | utf16[index + 1])) & 0xFFFFFFFF
    return result


def _int32(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
