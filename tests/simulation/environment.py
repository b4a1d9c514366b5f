"""What a scenario runs in: a world with its network, a cluster, and processes of the package's code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.cluster import ClusterSettings, SimulatedCluster
from tests.simulation.cluster.events import apply_event, heal
from tests.simulation.errors import ViolationError
from tests.simulation.faults import (
    CHANGES,
    CONNECT_FAULTS,
    CRASHES,
    MALFORMED_RESPONSES,
    PAUSES,
    REQUEST_FAULTS,
    RequestFault,
)
from tests.simulation.network import Network
from tests.simulation.process import SimulatedProcess
from tests.simulation.record_attributes import headers_of

from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.client.connection_pool import ConnectionPool
from pyspark_kafka_direct.options.settings import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.simulation.history import Plan
    from tests.simulation.oracle import Oracle
    from tests.simulation.scheduler import World

OUTDATED: Final = frozenset(("stick_image", "isolate_broker"))
"""Events after which a broker lacks new metadata."""
UNREACHABLE: Final = frozenset(("stop_broker", "reuse_address", "pause_broker", "require_rebootstrap"))

_REQUESTS_SECONDS = 200.0  # after which all requests that were in flight have ended


class Environment:
    """The cluster and the network of one history, with the plan's events scheduled.

    The plan's parameters need ``brokers`` (their number) and ``cluster`` (fields of ``ClusterSettings``).
    """

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.started_at = world.now
        self.network = Network(world)
        settings = ClusterSettings(**plan.parameters["cluster"])
        if world.codec == "kio":  # which lacks version 5
            settings = replace(settings, newest_versions={"ApiVersions": 4, **settings.newest_versions})
        self.cluster = SimulatedCluster(world, brokers=plan.parameters["brokers"], settings=settings)
        for broker in self.cluster.brokers.values():
            self.network.brokers[broker.host, broker.port] = broker
        self.cluster.on_change(self.network.cluster_changed)
        self.cluster.on_broker_down = self.network.reset_broker
        self.cluster.on_broker_resumed = self.network.resume_broker
        self._sequences: dict[tuple[tuple[str, int], int], int] = {}  # by partition and producer id
        self._pools: dict[SimulatedProcess, ConnectionPool] = {}
        self._schedule_events()

    @property
    def oracle(self) -> Oracle:
        return self.cluster.oracle

    @property
    def quiet_at(self) -> float:
        """When the faults stop, on the world's clock."""
        return self.started_at + self.plan.quiet_after

    @property
    def is_quiet(self) -> bool:
        return self.world.now >= self.quiet_at

    @property
    def may_hide_partitions(self) -> bool:
        """Whether brokers may lack new partitions while no other one responds, so that they are taken for deleted."""
        events = self.plan.events
        return any(event.kind in OUTDATED for event in events) and any(
            event.kind in UNREACHABLE or event.args.get("repeats", 1) > 1 for event in events
        )

    def process(self, name: str) -> SimulatedProcess:
        return SimulatedProcess(self.world, self.network, name)

    def pool(self, process: SimulatedProcess) -> ConnectionPool:
        """Return the process's only connection pool."""
        if process not in self._pools:
            self._pools[process] = ConnectionPool(process)
        return self._pools[process]

    def settings(self, *, first_broker: int = 0, **changes: Any) -> ConnectionSettings:
        """Return settings; new clients ask the first bootstrap server first."""
        servers = [(f"broker-{number}", 9092) for number in sorted(self.cluster.brokers)]
        first = first_broker % len(servers)
        return ConnectionSettings((*servers[first:], *servers[:first]), **changes)

    def client(
        self, process: SimulatedProcess, *, first_broker: int = 0, retries: int | None = None, **changes: Any
    ) -> ClusterClient:
        settings = self.settings(first_broker=first_broker, **changes)
        return ClusterClient(settings, retries=retries, pool=self.pool(process))

    def oldest_generation(self, topic: str, index: int) -> int:
        """Return the oldest generation of a partition that a broker may report."""
        images = [broker.image.topics.get(topic) for broker in self.cluster.brokers.values()]
        known = {image.topic.generation for image in images if image is not None}
        found = [number for number in known if (topic, number, index) in self.oracle.truths]
        return min(found, default=self.oracle.generations[topic])

    def write_log(
        self,
        topic: str,
        partitions: int,
        log: Sequence[Mapping[str, Any]],
        *,
        first_number: int = 0,
        partition_keys: bool = False,
    ) -> None:
        """Append the batches that ``drawing.draw_log`` has drawn; with ``partition_keys`` no partitions share keys.

        Values contain the batches' numbers, which must differ: a log that replaces another one has other values.
        """
        open_transactions: dict[tuple[int, int], None] = {}
        for number, batch in enumerate(log, first_number):
            partition = (topic, batch["partition"] % partitions)
            values = [b"%s-%d-%d" % (topic.encode(), number, each) for each in range(batch["records"])]
            prefix = b"p%d-" % partition[1] if partition_keys else b""
            keys = None
            if batch["keys"]:
                keys = [b"%sk%d" % (prefix, each % batch["keys"]) for each in range(batch["records"])]
            headers = [headers_of(value) for value in values]
            if batch["transaction"] is None:
                self.cluster.append(partition, values, keys=keys, headers=headers)
                continue
            producer_id = 900 + batch["producer"]
            sequence = self._sequences.get((partition, producer_id), 0)
            self._sequences[partition, producer_id] = sequence + len(values)
            producer = (producer_id, 0, sequence)
            appended = self.cluster.append(
                partition, values, keys=keys, headers=headers, producer=producer, transactional=True
            )
            if appended is None:
                continue
            if batch["transaction"] == "open":
                open_transactions[partition[1], producer_id] = None
            else:
                open_transactions.pop((partition[1], producer_id), None)
                self.cluster.append_marker(partition, producer_id, 0, commit=batch["transaction"] == "commit")
        for index, producer_id in open_transactions:
            self.world.at(self.quiet_at, self._end_transaction, (topic, index), producer_id)

    def raise_errors(self) -> None:
        """Raise the first error that ended a task."""
        if self.world.errors:
            raise self.world.errors[0][1]

    def check_client_ids(self) -> None:
        if self.network.mixed_client_ids:
            raise ViolationError(self.network.mixed_client_ids[0])

    def check_timeouts(self) -> None:
        """Check that no connection was used again that was idle when another one to its broker timed out."""
        if self.network.late_reuses:
            raise ViolationError(self.network.late_reuses[0])

    def check_released(self, processes: Sequence[SimulatedProcess]) -> None:
        """Check that no connection remains after the pools are cleared."""
        for process in processes:
            self.pool(process).clear()
            remaining = self.network.open_connections(process)
            if remaining:
                raise ViolationError(f"connections of {process.name} leak: {sorted(remaining.items())}")

    def check_threads(self, processes: Sequence[SimulatedProcess]) -> None:
        """Check that no thread of the package remains; call it when all requests have ended."""
        for process in processes:
            if threads := self._threads(process):
                raise ViolationError(f"threads of {process.name} remain: {threads}")

    def await_released(self, process: SimulatedProcess) -> None:
        """Wait in a task until requests that were in flight have ended, and check that nothing of them remains."""
        end = self.world.now + _REQUESTS_SECONDS
        while connections := self.network.open_connections(process):
            if self.world.now > end:
                raise ViolationError(f"connections of {process.name} remain open: {sorted(connections.items())}")
            process.sleep(0.5)
        process.sleep(_REQUESTS_SECONDS if self._threads(process) else 0.0)
        self.check_threads([process])

    def heal(self) -> None:
        """End all faults: brokers are up, images are fresh, replicas catch up; request faults end too."""
        self.network.request_faults.clear()
        self.network.aimed_faults.clear()
        self.network.following_faults.clear()
        self.network.connect_faults.clear()
        heal(self.cluster)

    def _threads(self, process: SimulatedProcess) -> list[str]:
        alive = [each for each in self.world.tasks if each.process is process and not each.greenlet.dead]
        return [f"{each.name} ({each.waits_for})" for each in alive if each.name.startswith("pyspark-kafka-direct")]

    def _end_transaction(self, partition: tuple[str, int], producer_id: int) -> None:
        if self.cluster.append_marker(partition, producer_id, 0, commit=True) is None and self.cluster.partition(
            partition
        ):
            self.world.after(1.0, self._end_transaction, partition, producer_id)

    def _schedule_events(self) -> None:
        for event in self.plan.events:
            if event.at is not None:
                at = min(event.at, self.plan.quiet_after)  # rounded times may be later
                self.world.at(self.started_at + at, self._apply, event.kind, event.args)
                continue
            fault = RequestFault(event.kind, event.args)
            if event.kind in CONNECT_FAULTS:
                assert event.request is not None
                self.network.connect_faults[event.request] = fault
                continue
            kinds = (*REQUEST_FAULTS, *CRASHES, *PAUSES, *CHANGES, *MALFORMED_RESPONSES)
            assert event.kind in kinds, event.kind
            if event.request is not None:
                self.network.request_faults[event.request] = fault
            else:
                first, api = event.args["occurrence"], event.args["api"]
                for occurrence in range(first, first + event.args["repeats"]):
                    self.network.aimed_faults.setdefault((api, occurrence), fault)
        self.network.on_change = lambda change: self._apply(change["change"], change["args"])
        self.network.faults_end = self.quiet_at
        self.world.at(self.quiet_at, self.heal)

    def _apply(self, kind: str, args: Any) -> None:
        self.world.record_fault(kind, "cluster")
        apply_event(self.cluster, kind, args)
