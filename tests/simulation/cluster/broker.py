"""A simulated broker: its image of the cluster, and the dispatch of requests."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.cluster.replies import Delayed, Reply
from tests.simulation.cluster.topics import ClusterImage, PartitionImage, SimulatedPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.cluster.cluster import SimulatedCluster
    from tests.simulation.cluster.foreign_broker import ForeignBroker
    from tests.simulation.cluster.partition_log import ReplicaLog

    Handler = Callable[["SimulatedBroker", int, Any], Reply]

__all__ = ["Delayed", "LocalPartition", "Reply", "SimulatedBroker"]

PORT = 9092
UNSUPPORTED_VERSION = 35

_HANDLER_MODULES = (
    "read_requests",
    "fetch_requests",
    "produce_requests",
    "group_requests",
    "transactions",
    "listing_requests",
)
_handlers: dict[str, Handler] = {}


class LocalPartition(NamedTuple):
    """A partition as a broker has it: its replica and its image, which may be outdated."""

    partition: SimulatedPartition
    log: ReplicaLog
    image: PartitionImage


class SimulatedBroker:
    """A broker acts on its image of the cluster, which lags behind the controller's state."""

    def __init__(self, cluster: SimulatedCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.host = f"broker-{broker_id}"
        self.port = PORT
        self.rack = f"rack-{broker_id % 2}"
        self.image = ClusterImage(0, {}, {}, ())
        self.down = False
        self.foreign: ForeignBroker | None = None  # the broker that uses the address meanwhile
        self.paused = False  # accepts connections and bytes, sends no responses
        self.is_fenced = False  # the controller has noticed that it is down or isolated
        self.isolated_until = 0.0  # no contact with other brokers; clients still reach it
        self.image_stuck_until = 0.0
        self.rebootstrap_until = 0.0  # until then it returns no metadata, but REBOOTSTRAP_REQUIRED (KIP-1102)
        self.throttled_until = 0.0
        self.throttle_ms = 0
        self.throttled_with_partitions = False  # whether throttled responses to Fetch have offsets

    @property
    def is_up(self) -> bool:
        return not self.down

    @property
    def accepts_connections(self) -> bool:
        return self.is_up or self.foreign is not None

    @property
    def world(self) -> Any:
        return self.cluster.world

    def handle(self, api: str, version: int, request: Any, client_id: str) -> Reply:
        """Return the response to a request: values by field name, or one that waits, or None."""
        if self.foreign is not None:
            return self.foreign.handle(api, version, request)
        handler = _find_handler(api)
        if handler is None:
            return {"error_code": UNSUPPORTED_VERSION, "throttle_time_ms": 0}
        reply = handler(self, version, request)
        if self.throttled_until > self.cluster.world.now and isinstance(reply, dict) and "throttle_time_ms" in reply:
            reply["throttle_time_ms"] = self.throttle_ms
        return reply

    def local_partition(self, partition: tuple[str, int]) -> LocalPartition | None:
        """Return the replica of this broker; None if the image has no such partition, or no replica of it here."""
        topic = self.image.topics.get(partition[0])
        index = partition[1]
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        target = topic.topic.partitions[index]
        log = target.replicas.get(self.id)
        return None if log is None else LocalPartition(target, log, topic.partitions[index])

    def led_partition(self, partition: tuple[str, int]) -> LocalPartition | None:
        """Return the replica of this broker if it is the leader in its image."""
        local = self.local_partition(partition)
        return local if local is not None and local.image.leader == self.id else None

    def apply_image(self, image: ClusterImage) -> None:
        """Apply the controller's state, now or when the broker is connected again."""
        world = self.cluster.world
        if image.version <= self.image.version or not self.is_up:
            return
        blocked_until = max(self.image_stuck_until, self.isolated_until)
        if blocked_until > world.now:
            world.at(blocked_until, self.apply_image, image)
            return
        previous, self.image = self.image, image
        for name, topic in image.topics.items():
            generation = topic.topic.generation
            before = previous.topics.get(name)
            known = before.partitions if before is not None and before.topic is topic.topic else ()
            for index, partition in enumerate(topic.partitions):
                old = known[index] if index < len(known) else None
                if self.id in partition.replicas and (old is None or old.epoch != partition.epoch):
                    self.cluster.oracle.epoch_applied(name, generation, index, self.id, partition.epoch, world.now)
                    self.cluster.replicate_later(topic.topic.partitions[index])
        self.cluster.notify()


def _find_handler(api: str) -> Handler | None:
    if not _handlers:
        for name in _HANDLER_MODULES:
            try:
                module = importlib.import_module(f"tests.simulation.cluster.{name}")
            except ModuleNotFoundError:
                continue
            _handlers.update(module.HANDLERS)
    return _handlers.get(api)
