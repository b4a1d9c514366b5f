"""Preferred hosts of tasks, as Spark's KafkaRDD chooses them (``KafkaRDD.getPreferredLocations``)."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.java_gateway import JavaClass
from pyspark.core.rdd import RDD
from pyspark.serializers import CPickleSerializer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark import SparkContext

    from pyspark_kafka_direct.offsets import TopicPartition

# Spark's own unpickler (net.razorvine.pickle) reads up to protocol 5; 4 is what it has read for longest.
_PROTOCOL = 4

_BLOCK_MANAGER = re.compile(r"BlockManagerId\(([^,]+), ([^,]+), \d+, ")


class Executor(NamedTuple):
    """An executor; sorts by host, then by id as text, which is Spark's order (it then takes it descending)."""

    host: str
    id: str

    @property
    def location(self) -> str:
        """The way Spark writes "this executor, or else this host" (``ExecutorCacheTaskLocation``)."""
        return f"executor_{self.host}_{self.id}"


def executors_of(sc: SparkContext) -> list[Executor]:
    """Return the executors of this moment, without the driver; none in local mode."""
    manager = _block_manager(sc)
    return parse_executors(manager.master().getPeers(manager.blockManagerId()).mkString("; "))


def parse_executors(text: str) -> list[Executor]:
    """Return executors in Spark's order: by host and then id, both descending.

    Args:
        text: Texts of ``BlockManagerId``, such as ``BlockManagerId(1, host, 40411, None)``.
    """
    return sorted((Executor(host, number) for number, host in _BLOCK_MANAGER.findall(text)), reverse=True)


def place(partition: TopicPartition, executors: Sequence[Executor], hosts: Mapping[TopicPartition, str]) -> str | None:
    """Choose where a partition is best read: always on the same executor as long as the executors stay the same.

    Args:
        partition: The partition.
        executors: Executors, sorted as by ``parse_executors``.
        hosts: Preferred hosts; a partition that is not named, or whose host has no executor, may go to any.

    Returns:
        The executor's location; ``None`` if there are no executors.
    """
    host = hosts.get(partition)
    chosen = [executor for executor in executors if executor.host == host] or executors
    return chosen[java_hash(partition) % len(chosen)].location if chosen else None


def java_hash(partition: TopicPartition) -> int:
    """Return ``hashCode`` of Java's ``TopicPartition``; Python's ``%`` of it is Java's ``floorMod``."""
    return _int32(31 * (31 + partition.partition) + _java_text_hash(partition.topic))


def tasks_rdd(sc: SparkContext, tasks: Sequence[object], locations: Iterable[str | None]) -> RDD[Any]:
    """Make an RDD of one element per partition.

    Spark's ``makeRDD`` takes a ``Seq[(T, Seq[host])]``. Building that object by object takes three round trips to the
    JVM for each task; so both columns travel pickled in one call each, and Scala zips them.

    Args:
        sc: The context.
        tasks: What the partitions hold; small, and picklable by value.
        locations: Where each is best computed: for all of them, or ``None`` for all.
    """
    if not tasks:
        return RDD(sc._jsc.emptyRDD(), sc, CPickleSerializer())
    scala: Any = sc._jsc.sc()
    to_seq = _java_class(sc, "org.apache.spark.api.python.PythonUtils").toSeq
    unpickler = _java_class(sc, "net.razorvine.pickle.Unpickler")()  # Spark's own
    any_class = _java_class(sc, "scala.reflect.ClassTag").Any()
    serializer: Any = CPickleSerializer()  # PySpark's are not typed

    def sent(values: list[Any]) -> Any:
        return to_seq(unpickler.loads(pickle.dumps(values, protocol=_PROTOCOL)))

    elements = sent([serializer.dumps(task) for task in tasks])
    hosts = [location for location in locations if location is not None]
    if hosts:
        made = scala.makeRDD(elements.zip(sent(hosts).grouped(1).toSeq()), any_class)
    else:
        made = scala.makeRDD(elements, len(tasks), any_class)
    return RDD(_java_class(sc, "org.apache.spark.api.java.JavaRDD").fromRDD(made, any_class), sc, serializer)


def _block_manager(sc: SparkContext) -> Any:
    # By a handle: py4j would look at all methods of SparkEnv, and one of them names a class that PySpark 4.3 lacks.
    class_of = _java_class(sc, "java.lang.Class").forName
    method_type = _java_class(sc, "java.lang.invoke.MethodType").methodType
    lookup = _java_class(sc, "java.lang.invoke.MethodHandles").publicLookup()
    returns = method_type(class_of("org.apache.spark.storage.BlockManager"))
    handle = lookup.findVirtual(class_of("org.apache.spark.SparkEnv"), "blockManager", returns)
    scala: Any = sc._jsc.sc()
    return handle.invokeWithArguments([scala.env()])


def _java_class(sc: SparkContext, name: str) -> Any:
    """Return a class by its full name; ``sc._jvm.a.b.C`` would ask the JVM at each dot."""
    gateway: Any = sc._gateway
    return JavaClass(name, gateway._gateway_client)


def _java_text_hash(text: str) -> int:
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        result = (31 * result + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return result


def _int32(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
