"""The configuration of each node, as pure functions of what was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker._probe import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTROLLER = "CONTROLLER"
PLAINTEXT = "PLAINTEXT"

# A cluster for demos and tests: small, quick to start, quick to react, and never deleting by the clock.
_BASE = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLER,
    "inter.broker.listener.name": PLAINTEXT,
    "auto.create.topics.enable": "false",  # a mistyped topic fails
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # By default a record is deleted when its own timestamp is a week old, even minutes after it came. Data of the past,
    # such as the demo's flights of 2013, would vanish.
    "log.retention.ms": "-1",
    # With these a test of retention or compaction need not wait half a minute and more.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),  # taken from the heap at the start; 128 MB by default
    "num.recovery.threads.per.data.dir": "1",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",  # how long the cluster takes to miss a killed broker; 9 s by default
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",  # KIP-392
}


@dataclass(frozen=True, slots=True)
class Listener:
    """One way in: its name, the security protocol behind it, and what that needs configured."""

    name: str
    protocol: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # holds passwords


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster, with the port of each of its listeners (the controller's among them)."""

    id: int
    ports: Mapping[str, int]


def server_properties(
    node: Node,
    nodes: tuple[Node, ...],
    listeners: tuple[Listener, ...],
    data: str,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Return the ``server.properties`` of ``node`` (Kafka documentation, "Broker Configs").

    Args:
        node: The node.
        nodes: All nodes, ``node`` among them.
        listeners: What clients may connect to, the same on each node.
        data: Its folder for logs, which must not be shared with other nodes.
        extra: Wins over everything that is set here.
    """
    replicas = str(min(3, len(nodes)))
    addresses = [f"{listener.name}://{HOST}:{node.ports[listener.name]}" for listener in listeners]
    protocols = [f"{listener.name}:{listener.protocol}" for listener in listeners]
    result = dict(_BASE)
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        result[f"{topic}.replication.factor"] = replicas
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        result[f"{topic}.min.isr"] = "1"  # so that one live broker of three is enough
    for listener in listeners:
        result.update(listener.properties)
    return result | {
        "node.id": str(node.id),
        "broker.rack": f"rack-{node.id}",
        "controller.quorum.voters": ",".join(f"{each.id}@{HOST}:{each.ports[CONTROLLER]}" for each in nodes),
        "listeners": ",".join([*addresses, f"{CONTROLLER}://{HOST}:{node.ports[CONTROLLER]}"]),
        "advertised.listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join([*protocols, f"{CONTROLLER}:PLAINTEXT"]),
        "log.dirs": data,
        **extra,
    }


def to_text(properties: Mapping[str, str]) -> str:
    r"""Write a Java properties file.

    >>> to_text({"a.path": "C:\\data", "b": "two\nlines"})
    'a.path=C:\\\\data\nb=two\\nlines\n'
    """
    escaped = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in properties.items()}
    return "".join(f"{name}={value}\n" for name, value in escaped.items())
