"""Which broker coordinates a transactional id or a group: the leaders of Kafka's two internal topics."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.cluster.broker import SimulatedBroker
    from tests.simulation.cluster.cluster import SimulatedCluster

Kind = Literal["group", "transaction"]
GROUP: Final[Literal["group"]] = "group"
TRANSACTION: Final[Literal["transaction"]] = "transaction"
PARTITION_COUNT: Final = 4
"""Of both internal topics."""

_COORDINATOR_LOAD_IN_PROGRESS = 14
_COORDINATOR_NOT_AVAILABLE = 15
_NOT_COORDINATOR = 16
_INVALID_REQUEST = 42

_LOADING_SECONDS = (0.02, 0.5)  # after an election because a broker is down


@cache
def coordinator_partition(key: str) -> int:
    """Return the partition of the internal topic, by Java's hash of the key."""
    hashed = 0
    encoded = key.encode("utf-16-be")
    for position in range(0, len(encoded), 2):
        hashed = (31 * hashed + encoded[position] * 256 + encoded[position + 1]) & 0xFFFF_FFFF
    # Utils.abs clears the sign instead of negating.
    return (hashed & 0x7FFF_FFFF) % PARTITION_COUNT


class Coordinators:
    """The leaders of the internal topics' partitions."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._random = cluster.world.rng("coordinators")
        brokers = list(cluster.brokers)
        self._leaders: dict[tuple[Kind, int], int] = {}
        for partition in range(PARTITION_COUNT):
            self._leaders[GROUP, partition] = brokers[partition % len(brokers)]
            self._leaders[TRANSACTION, partition] = brokers[(partition + 1) % len(brokers)]
        self._unavailable_until: dict[tuple[Kind, int], float] = {}
        self._loading_until: dict[tuple[Kind, int], float] = {}
        # Brokers that have not yet applied that the former leader no longer is one: that leader, and until when.
        self._outdated: dict[tuple[Kind, int, int], tuple[int, float]] = {}
        self.moves: dict[tuple[Kind, int], int] = {}
        """The number of elections of each partition."""
        self.before_move: list[Callable[[Kind, int, int], None]] = []
        """Called with a partition and its former coordinator."""

    @classmethod
    def of(cls, cluster: SimulatedCluster) -> Coordinators:
        found: Coordinators = cluster.state("coordinators", lambda: cls(cluster))
        return found

    def move(
        self,
        kind: Kind,
        partition: int,
        broker_id: int,
        *,
        unavailable_seconds: float = 0.0,
        loading_seconds: float = 0.0,
    ) -> None:
        """Elect another coordinator; there is none at first, then it loads its state."""
        slot = (kind, partition)
        former = self._leaders[slot]
        for callback in self.before_move:
            callback(kind, partition, former)
        now = self._cluster.world.now
        self._leaders[slot] = broker_id
        self._unavailable_until[slot] = now + unavailable_seconds
        self._loading_until[slot] = now + unavailable_seconds + loading_seconds
        self.moves[slot] = self.moves.get(slot, 0) + 1
        for each in self._cluster.brokers:
            if each != broker_id:
                lag = self._random.uniform(0, self._cluster.settings.metadata_lag)
                self._outdated[kind, partition, each] = (former, now + lag)
        self._cluster.world.trace("coordinator moved", kind, partition, broker_id)

    def heal(self) -> None:
        """Make all coordinators available, in the images of all brokers."""
        self._unavailable_until.clear()
        self._loading_until.clear()
        self._outdated.clear()

    def leader(self, kind: Kind, key: str) -> int | None:
        """Return the coordinator; None while there is none."""
        return self._leader((kind, coordinator_partition(key)))

    def leader_in_image(self, kind: Kind, key: str, broker: SimulatedBroker) -> int | None:
        """Return the coordinator in the image of a broker, which lags behind."""
        partition = coordinator_partition(key)
        leader = self._leader((kind, partition))
        former, until = self._outdated.get((kind, partition, broker.id), (-1, 0.0))
        now = self._cluster.world.now
        if former >= 0 and (until > now or broker.isolated_until > now):
            return former
        return leader

    def error(self, kind: Kind, key: str, broker_id: int | None = None) -> int:
        """Return why a broker cannot serve a key, or 0. Without a broker, why no broker can."""
        slot = (kind, coordinator_partition(key))
        leader = self._leader(slot)
        now = self._cluster.world.now
        if broker_id is not None and broker_id != self._leaders[slot]:
            former, _ = self._outdated.get((*slot, broker_id), (-1, 0.0))
            is_zombie = former == broker_id and self._cluster.brokers[broker_id].isolated_until > now
            return _COORDINATOR_NOT_AVAILABLE if is_zombie else _NOT_COORDINATOR
        if leader is None:
            return _COORDINATOR_NOT_AVAILABLE if broker_id is None else _NOT_COORDINATOR
        if self._loading_until.get(slot, 0.0) > now:
            return _COORDINATOR_LOAD_IN_PROGRESS
        if self._cluster.brokers[leader].isolated_until > now:
            return _COORDINATOR_NOT_AVAILABLE  # it cannot replicate its log
        return 0

    def _leader(self, slot: tuple[Kind, int]) -> int | None:
        """Return the leader; elect another one if the controller has fenced it."""
        leader = self._leaders[slot]
        if self._unavailable_until.get(slot, 0.0) > self._cluster.world.now:
            return None
        broker = self._cluster.brokers[leader]
        if broker.is_fenced:
            live = [each for each, other in self._cluster.brokers.items() if other.is_up and not other.is_fenced]
            if not live:
                return None
            self.move(
                slot[0], slot[1], self._random.choice(live), loading_seconds=self._random.uniform(*_LOADING_SECONDS)
            )
            return self._leaders[slot]
        return leader if broker.is_up else None


def find_coordinator(broker: SimulatedBroker, version: int, request: Any) -> Mapping[str, Any]:
    """Return the coordinator of a key; from version 4 on of several."""
    kinds: Mapping[int, Kind] = {0: GROUP, 1: TRANSACTION}
    kind = kinds.get(request.key_type)
    if version < 4:
        return {"throttle_time_ms": 0, "error_message": None, **_coordinator(broker, kind, request.key)}
    return {
        "throttle_time_ms": 0,
        "coordinators": [{"key": key, **_coordinator(broker, kind, key)} for key in request.coordinator_keys],
    }


def _coordinator(broker: SimulatedBroker, kind: Kind | None, key: str) -> dict[str, Any]:
    error_code = _INVALID_REQUEST
    if kind is not None:
        leader = Coordinators.of(broker.cluster).leader_in_image(kind, key, broker)
        if leader is not None:
            found = broker.cluster.brokers[leader]
            return {"error_code": 0, "node_id": leader, "host": found.host, "port": found.port}
        error_code = _COORDINATOR_NOT_AVAILABLE
    return {"error_code": error_code, "node_id": -1, "host": "", "port": -1}
