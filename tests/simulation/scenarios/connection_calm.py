"""Operations on a healthy cluster: exactly the requests that are needed, at once, and the truth as result.

Then one fault happens: the operation succeeds after a short pause, and the next one is as before.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.cluster.coordinators import GROUP, Coordinators
from tests.simulation.cluster.events import lose_leader, pause_broker, reuse_address, stick_image, stop_broker
from tests.simulation.errors import ViolationError
from tests.simulation.faults import RETRIABLE_ERRORS, RequestFault, draw_fault
from tests.simulation.scenarios.connection_truth import KINDS, METADATA_SECONDS, HealthyCluster

from pyspark_kafka_direct.client.deadline import Cancellation
from pyspark_kafka_direct.errors import BrokerError, TransientBrokerError
from pyspark_kafka_direct.planning.data_loss import CONFIRMATION_SECONDS, CONFIRMATION_STEP_SECONDS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.connection_operations import Operation, Operations

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
    from pyspark_kafka_direct.offsets import TopicPartition

_FAULTS: Final = (
    "lose_request",
    "lose_response",
    "truncate_response",
    "stall_request",
    "stall_response",
    "delay_response",
    "split_response",
    "error",
    "error",
    "throttle",
)
_STALLS: Final = ("stall_request", "stall_response", "delay_response", "split_response", "throttled_stall")
_CHANGES: Final = (
    "reset_connections",
    "move_coordinators",
    "elect_leaders",
    "lose_leaders",
    "reuse_address",
    "outdated_broker",
    "rebootstrap",
    "rebootstrap",
    "final_error",
    "final_error",
    "loading",
    "cancel",
    "throttled_stall",
    "stop_leader",
    "stop_leader",
    "stop_brokers",
    "slow_broker",
    "slow_broker",
    "garble_response",
    "lasting_failure",
    "lasting_failure",
    "pending_offset",
)
# Incidents in which an operation does what others do not.
_TYPICAL: Final[Mapping[str, tuple[str, ...]]] = {
    "groups": ("move_coordinators",),
    "committed": ("pending_offset", "elect_leaders", "loading", "lasting_failure"),
    "all_committed": ("elect_leaders", "loading"),
    "commit": ("loading", "final_error", "lasting_failure", "error"),
    "all_topics": ("error",),
    "required_topics": ("error",),
    "metadata": ("garble_response", "stall_response", "reuse_address"),
    "describe_topic": ("garble_response", "stall_response", "reuse_address"),
    "large_config": ("truncate_response", "stall_response", "reuse_address"),
    "leader": ("lose_leaders",),
    "ends": ("error", "slow_broker", "lasting_failure", "outdated_broker", "final_error"),
    "starts": ("error", "slow_broker", "final_error"),
    "timestamps": ("slow_broker", "error"),
}
# Errors that no retry changes.
_FINAL_CODES: Final[Mapping[str, tuple[int, ...]]] = {
    "ListOffsets": (29, 43),
    "OffsetCommit": (30, 29, 12, 25, 22, 27),
    "OffsetFetch": (30,),
    "CreateTopics": (29, 17, 40, 44),
}
_CACHED: Final = ("leaders", "leader", "commit")  # operations that use metadata as it was
_OUTDATED: Final = (*_CACHED, "metadata", "missing_topic", "all_topics", "required_topics")
_SEVERAL_STEPS: Final = ("deleted", "recreated", "confirm_lost")
_WITHOUT_INCIDENTS: Final = (*_SEVERAL_STEPS, "too_many_replicas", "expired", "missing_partition")
# The request that follows if a retriable error stands in a response, and what may happen to it.
_NEXT_APIS: Final[Mapping[str, str]] = {
    "OffsetFetch": "FindCoordinator",
    "OffsetCommit": "FindCoordinator",
    "ListOffsets": "Metadata",
    "DescribeProducers": "Metadata",
}
_EXPLANATIONS: Final[Mapping[str, tuple[int, str]]] = {
    "OffsetFetch": (16, "NOT_COORDINATOR"),
    "OffsetCommit": (16, "NOT_COORDINATOR"),
    "ListOffsets": (6, "NOT_LEADER_OR_FOLLOWER"),
    "DescribeProducers": (6, "NOT_LEADER_OR_FOLLOWER"),
}
_FROZEN_SECONDS: Final = 200.0
_SECONDS_OF_REBOOT: Final = 30.0  # the longest pause before a connect
_SECOND_FAULTS: Final = ("lose_request", "lose_response", "truncate_response", "error")
_LOADING: Final[Mapping[str, int]] = {"OffsetCommit": 14, "OffsetFetch": 14}  # COORDINATOR_LOAD_IN_PROGRESS
_LOADING_SECONDS: Final = 0.05  # of the short pause, and of two requests
_STOPPED: Final = (*_OUTDATED, "nodes", "create_topic", "open_transactions", "groups")  # other leaders and brokers
_SECONDS_PER_REQUEST: Final = 0.008  # two latencies, and a margin
_SECONDS_OF_RETRIES: Final = 0.5  # the pauses of one or two, and of a reconnect
_SECONDS_WITHOUT_RETRY: Final = 0.1
_STOPPED_SECONDS: Final[Mapping[str, float]] = {"stop_leader": 3.0, "stop_brokers": 12.0}
_STOPS: Final = tuple(_STOPPED_SECONDS)
_MAX_CONNECTS: Final = 50  # to each broker that is down, with growing pauses
_SHORTEST_PAUSE: Final = 0.07  # seconds; retry.backoff.ms with jitter is 0.08
_SLOWNESS: Final = 0.35  # of request.timeout.ms; first tries are shorter
_SLOW_KINDS: Final = ("bounds",)  # of several requests
_WITHOUT_RETRY: Final = ("reset_connections", "throttle")
_LASTING: Final = (
    "move_coordinators",
    "lose_leaders",
    "reuse_address",
    "outdated_broker",
    "rebootstrap",
    "slow_broker",
    "pending_offset",
)
_EXTRA_REQUESTS: Final = 16  # after a fault: metadata of three brokers, a coordinator, connects
_OFFSETS: Final = ("ends", "stable_ends", "starts", "timestamps")
_OF_ANY_BROKER: Final = ("metadata", "missing_topic", "describe_topic", "large_config")
_FIRST_STABLE: Final = 7  # version of OffsetFetch
_FIRST_WITH_IDENTITY: Final = 5  # version of ApiVersions
_CANCELLED_AFTER: Final = 0.05  # seconds; less than the timeout of a first attempt
_SHORT_CHANGE: Final = 0.5  # seconds


def draw_calm(rng: random.Random) -> list[dict[str, Any]]:
    """Draw the operations after the faults, each with a fault of one of its requests."""
    calm = []
    for _ in range(rng.choice((1, 1, 2, 2))):
        fault = draw_fault(rng, _FAULTS)
        args = dict(fault.arguments)
        if fault.kind == "error" and rng.random() < 0.3:
            args["of_topics"] = True
        incident = {"kind": fault.kind, "args": args, "api": rng.randrange(3), "second": None}
        if rng.random() < 0.4:
            second = draw_fault(rng, _SECOND_FAULTS)
            incident["second"] = {"kind": second.kind, "args": dict(second.arguments)}
        kind = rng.choice(KINDS)
        if rng.random() < 0.5:
            incident = {"kind": rng.choice(_CHANGES), "args": {}, "api": rng.randrange(6)}
        if kind in _TYPICAL and rng.random() < 0.4:
            args = {"draw": rng.randrange(1_000), "partition": rng.randrange(3)}
            incident = {"kind": rng.choice(_TYPICAL[kind]), "args": args, "api": rng.randrange(6)}
            if incident["kind"] == "truncate_response":
                args["fraction"] = round(rng.random(), 2)
        calm.append(
            {
                "kind": kind,
                "client": rng.randrange(8),
                "partitions": [rng.randrange(9) for _ in range(rng.choice((1, 2, 3)))],
                "open_transaction": rng.random() < 0.3,
                "incident": incident if rng.random() < 0.8 else None,
            }
        )
    return calm


class _Call(NamedTuple):
    """An operation of a client."""

    client: ClusterClient
    group: ConsumerGroup
    kind: str
    partitions: Sequence[TopicPartition]


class Calm:
    """The operations on a healthy cluster."""

    def __init__(self, environment: Environment, operations: Operations, names: Sequence[str], driver: Any) -> None:
        self._environment = environment
        self._cluster = environment.cluster
        self._healthy = HealthyCluster(environment, names)
        self._operations = operations
        self._names = names
        self._driver = driver

    def run(self, users: Sequence[tuple[ClusterClient, ConsumerGroup]]) -> None:
        """Run what was drawn, with these clients and their groups."""
        drawn = self._environment.plan.parameters.get("calm", ())
        if not drawn or not users:
            return
        self._driver.sleep(METADATA_SECONDS)
        for each in drawn:
            client, group = users[each["client"] % len(users)]
            partitions = self._healthy.partitions(each["partitions"])
            if not partitions or not self._healthy.is_healthy():
                continue
            if "committed" in each["kind"] and self._environment.oracle.deleted_at:
                continue  # the group may have offsets with leader epochs of deleted topics
            if each["open_transaction"]:
                self._healthy.open_transaction(partitions[0])
                self._driver.sleep(METADATA_SECONDS)
            call = _Call(client, group, each["kind"], partitions)
            self._prepare(call)
            self._check_exact(call)
            if each["incident"] is not None and "retries" not in self._environment.plan.parameters:
                self._run_incident(call, each["incident"])

    def _prepare(self, call: _Call) -> None:
        """Let the client learn of the healthy cluster, and have connections to all brokers."""
        call.client.topics(self._names)
        call.client.confirm_missing(dict.fromkeys(call.partitions))
        self._healthy.call(*call)

    def _check_exact(self, call: _Call) -> None:
        """Check the requests and the result of an operation, which needs no retry and no connect."""
        kind = call.kind
        expected = self._healthy.expected_requests(call.kind, call.partitions)
        with self._operations.operation() as operation:
            self._healthy.call(*call)
        seconds = self._seconds(operation)
        if kind == "create_topic" and self._cluster.settings.metadata_lag > 0:
            return  # other brokers lack the topic at first
        if kind == "confirm_lost" and not CONFIRMATION_SECONDS <= seconds <= 2 * CONFIRMATION_SECONDS:
            raise ViolationError(f"brokers confirm a loss for {seconds:.1f} s")
        if kind in _SEVERAL_STEPS:
            return
        if kind == "expired":
            if operation.requests["Metadata"] != 1:
                raise ViolationError(f"expired metadata is requested {operation.requests['Metadata']} times")
            return
        if operation.requests != expected or operation.connects:
            raise ViolationError(
                f"{kind} needs {dict(expected)}, and sends {dict(operation.requests)}, {operation.connects} connects"
            )
        if kind in ("next_broker", "confirm") and len(operation.brokers) < len(self._cluster.brokers):
            raise ViolationError(f"{kind} calls the brokers {sorted(operation.brokers)} only")
        if seconds > _SECONDS_PER_REQUEST * (1 + expected.total()):
            raise ViolationError(f"{kind} takes {seconds:.3f} s for {expected.total()} requests of a healthy cluster")
        pool = self._environment.pool(self._driver)
        failed = [each.id for each in self._cluster.brokers.values() if pool.last_failure_time((each.host, each.port))]
        if failed:
            raise ViolationError(f"the brokers {failed} have responded, and still count as failed")
        if operation.warnings:
            raise ViolationError(f"{kind} warns without a fault: {operation.warnings[0][1].getMessage()}")

    # Incidents.

    def _run_incident(self, call: _Call, incident: Mapping[str, Any]) -> None:
        """Check that an operation succeeds soon after one fault, and that the next one is as before it."""
        kind, fault = call.kind, incident["kind"]
        expected = self._healthy.expected_requests(call.kind, call.partitions)
        apis = sorted(expected)
        if kind == "confirm_lost" and len(self._cluster.brokers) > 1:
            self._check_frozen_witness(call, incident["api"])
            return
        if kind in _WITHOUT_INCIDENTS or (
            not apis and fault in (*_FAULTS, "throttled_stall", "cancel", "lasting_failure")
        ):
            return
        api = apis[incident["api"] % len(apis)] if apis else ""
        limit = self._limit(call, fault, api)
        if incident.get("second") is not None:
            limit += _SECONDS_OF_RETRIES
        if limit + 2.0 > call.client.settings.default_api_timeout_ms / 1000:
            return
        if fault == "final_error":
            self._check_final_error(call, api, incident)
            return
        if fault == "cancel":
            self._check_cancelled(call, api)
            return
        if fault == "lasting_failure":
            self._check_explained(call, api)
            return
        self._environment.network.sent_codes.clear()
        requested = self._operations.requested_offsets
        if not self._plan_fault(call, api, incident):
            return
        is_metadata_fault = fault == "error" and api == "Metadata"
        may_be_outdated = {
            "outdated_broker": _OUTDATED,
            "elect_leaders": _CACHED,
            "stop_leader": _STOPPED,
            "stop_brokers": _STOPPED,
        }.get(fault, ())
        second = incident.get("second")
        is_metadata_fault |= second is not None and second["kind"] == "error" and fault in _FAULTS
        has_result = not is_metadata_fault and kind not in may_be_outdated
        with self._operations.operation() as operation:
            self._healthy.call(*call, check=has_result)
        self._check_incident(call, incident, api, operation, limit)
        if kind == "all_topics" and fault == "error" and operation.requests != expected:
            raise ViolationError(f"topics with errors are not required, and {kind} sends {operation.requests}")
        if fault == "elect_leaders" and kind in ("committed", "all_committed"):
            self._healthy.check_later_epochs(call.client, call.partitions)
        requested = self._operations.requested_offsets - requested
        is_partial = fault == "error" and "partition" in incident["args"] and incident.get("second") is None
        is_partial = is_partial and kind in _OFFSETS and self._environment.world.codec == "tables"
        if is_partial and requested > len(call.partitions) + 1:
            raise ViolationError(f"one of {len(call.partitions)} partitions fails, and {kind} requests {requested}")
        if fault == "slow_broker" and kind == "timestamps" and operation.requests[api] != expected[api]:
            raise ViolationError(f"a broker searches for timestamps, and the client sends {operation.requests}")
        if fault == "loading" and (self._seconds(operation) > _LOADING_SECONDS or len(operation.requests) > 1):
            raise ViolationError(f"a coordinator loads its state, and {kind} sends {operation.requests}")
        if kind in _OF_ANY_BROKER and len(self._cluster.brokers) > 1:
            if fault == "reuse_address":
                self._check_avoided(call, list(self._cluster.brokers)[incident["api"] % len(self._cluster.brokers)])
            elif fault in ("stall_request", "stall_response"):
                self._check_avoided(call, next(iter(operation.brokers)))
        self._environment.network.aimed_faults.clear()
        self._driver.sleep(METADATA_SECONDS + 2 * limit)
        if not self._healthy.is_healthy():
            raise ViolationError(f"{fault} has not ended")
        with self._operations.operation() as operation:
            self._prepare(call)
        seconds, count = self._seconds(operation), operation.requests.total() + 2 * operation.connects
        is_slow = kind == "create_topic" and self._cluster.settings.metadata_lag > 0
        has_dead_address = bool(self._environment.network.silent_addresses)
        if seconds > _SECONDS_WITHOUT_RETRY + _SECONDS_PER_REQUEST * count and not (has_dead_address or is_slow):
            raise ViolationError(f"the next operations after one {fault} take {seconds:.2f} s: {operation.requests}")
        self._check_exact(call)

    def _limit(self, call: _Call, fault: str, api: str) -> float:
        """Return how long an operation may take with a fault."""
        settings = call.client.settings
        seconds = _SECONDS_WITHOUT_RETRY if fault in _WITHOUT_RETRY else _SECONDS_OF_RETRIES
        if fault in _STALLS:
            seconds += settings.request_timeout_ms / 1000 + 1.0
            if api == "Metadata" and len(self._cluster.brokers) == 1:  # the only witness has half of the time
                seconds += settings.default_api_timeout_ms / 2000
        if call.kind == "confirm":
            seconds += CONFIRMATION_STEP_SECONDS
        if call.kind == "create_topic" and self._cluster.settings.metadata_lag > 0:
            seconds += METADATA_SECONDS
        if fault in _LASTING:
            seconds += METADATA_SECONDS + 2 * _SHORT_CHANGE
        if fault == "slow_broker":  # two tries that are too short, and then its time
            tries = (0.1 + 0.2 + _SLOWNESS) * settings.request_timeout_ms / 1000
            seconds += len(call.partitions) * tries  # one leader after the other
        if fault in _STOPS:  # and the pause before the connect that succeeds
            seconds += _STOPPED_SECONDS[fault] + 1.3 * settings.reconnect_backoff_max_ms / 1000
        if self._environment.network.silent_addresses:  # the timeout of a connect grows while no broker is there
            timeout = settings.connect_timeout_max_ms if fault in _STOPS else settings.connect_timeout_ms
            seconds += 2 * timeout / 1000
        return seconds

    def _check_incident(
        self, call: _Call, incident: Mapping[str, Any], api: str, operation: Operation, limit: float
    ) -> None:
        fault = incident["kind"]
        expected = self._healthy.expected_requests(call.kind, call.partitions)
        seconds = self._seconds(operation)
        if seconds > limit:
            raise ViolationError(f"{call.kind} takes {seconds:.2f} s after one {fault} of {api}")
        if fault in _STOPS:
            most = _MAX_CONNECTS * len(self._cluster.brokers)
            if operation.connects > most:
                raise ViolationError(f"{call.kind} connects {operation.connects} times after one {fault}")
            return
        if fault == "error" and api in _NEXT_APIS and operation.requests[api] > expected[api]:
            is_loading = 14 in self._environment.network.sent_codes  # which has a shorter pause
            if seconds < _SHORTEST_PAUSE and not is_loading:
                raise ViolationError(f"{call.kind} is repeated after {seconds:.3f} s, without a pause")
        count = operation.requests.total() + operation.connects
        faults = 4 if fault in (*_LASTING, "elect_leaders") else 1 if incident.get("second") is None else 2
        if call.kind == "create_topic" and self._cluster.settings.metadata_lag > 0:
            faults = 4  # until the brokers know the topic, their metadata is requested again
        if count > expected.total() + _EXTRA_REQUESTS * faults:
            raise ViolationError(f"{call.kind} sends {count} requests after one {fault} of {api}: {operation.requests}")

    def _check_final_error(self, call: _Call, api: str, incident: Mapping[str, Any]) -> None:
        """Check that an error that no retry changes is raised at once."""
        codes = _FINAL_CODES.get(api)
        if codes is None or call.kind == "local_start":
            return
        code = codes[incident["api"] % len(codes)]
        self._environment.network.aim_at_next(api, 0, RequestFault("error", {"code": code}))
        found: BrokerError | None = None
        with self._operations.operation() as operation:
            try:
                self._healthy.call(*call, check=False)
            except BrokerError as error:
                found = error
        seconds = self._seconds(operation)
        if found is None or isinstance(found, TransientBrokerError):
            raise ViolationError(f"{call.kind} raises {found!r} after error {code} of {api}")
        if seconds > _SECONDS_PER_REQUEST * (2 + operation.requests.total()) or operation.requests[api] > len(
            self._cluster.brokers
        ):
            raise ViolationError(f"{call.kind} takes {seconds:.2f} s to report error {code} of {api}: {found!r}")
        self._prepare(call)
        self._check_exact(call)

    def _check_explained(self, call: _Call, api: str) -> None:
        """Check that the error at the deadline is the one that explains the failure, not a later timeout."""
        found = _EXPLANATIONS.get(api)
        if found is None or call.kind in ("bounds", "local_start"):
            return
        code, name = found
        network = self._environment.network
        network.aim_at_next(api, 0, RequestFault("error", {"code": code}))
        for number in range(200):
            network.aim_at_next(_NEXT_APIS[api], number, RequestFault("stall_response"))
        error: BrokerError | None = None
        with self._operations.operation() as operation:
            try:
                self._healthy.call(*call, check=False)
            except BrokerError as raised:
                error = raised
        network.aimed_faults.clear()
        seconds, limit = self._seconds(operation), call.client.settings.default_api_timeout_ms / 1000
        if error is None or name not in str(error):
            raise ViolationError(f"{call.kind} fails because of {name}, and raises {error!r}")
        if not limit - 1.5 <= seconds <= limit + 0.5:
            raise ViolationError(f"{call.kind} has {limit} s, and takes {seconds:.2f} s: {error!r}")
        self._driver.sleep(2 * _SECONDS_OF_REBOOT)
        self._prepare(call)
        self._check_exact(call)

    def _check_frozen_witness(self, call: _Call, number: int) -> None:
        """Check that a broker that does not respond delays the confirmation of a loss, but not forever."""
        pause_broker(self._cluster, number, _FROZEN_SECONDS)
        started_at = self._environment.world.now
        self._healthy.call(*call)
        seconds = self._environment.world.now - started_at
        request_timeout = call.client.settings.request_timeout_ms / 1000
        limit = CONFIRMATION_SECONDS + 2 * request_timeout + CONFIRMATION_SECONDS
        if not min(CONFIRMATION_SECONDS, request_timeout) <= seconds <= limit:
            raise ViolationError(f"{call.kind} takes {seconds:.1f} s with a broker that does not respond")
        self._driver.sleep(_FROZEN_SECONDS)

    def _check_avoided(self, call: _Call, broker: int) -> None:
        """Check that a broker that just failed is not called again while others respond."""
        with self._operations.operation() as operation:
            self._healthy.call(*call)
        if broker in operation.brokers:
            raise ViolationError(f"{call.kind} calls broker {broker} again, which has just failed")

    def _check_cancelled(self, call: _Call, api: str) -> None:
        """Check that a cancelled operation ends soon, and that no broker counts as failed because of it."""
        client, pool = call.client, self._environment.pool(self._driver)
        addresses = [(broker.host, broker.port) for broker in self._cluster.brokers.values()]
        failed_at = [pool.last_failure_time(each) for each in addresses]
        idle = self._environment.network.open_connections(self._driver).total()
        cancellation = Cancellation(self._driver)
        deadline = replace(client.deadline(), cancellation=cancellation)
        self._environment.network.aim_at_next(api, 0, RequestFault("stall_response"))
        self._environment.world.after(_CANCELLED_AFTER, cancellation.set)
        client.deadline = lambda seconds=None: deadline  # type: ignore[method-assign]
        with self._operations.operation() as operation, suppress(TransientBrokerError):
            self._healthy.call(*call, check=False)
        del client.deadline
        seconds = self._seconds(operation)
        if seconds > _CANCELLED_AFTER + _SECONDS_OF_RETRIES:
            raise ViolationError(f"{call.kind} was cancelled after {_CANCELLED_AFTER} s, and takes {seconds:.2f} s")
        if failed_at != [pool.last_failure_time(each) for each in addresses]:
            raise ViolationError(f"a broker counts as failed because {call.kind} was cancelled")
        if self._environment.network.open_connections(self._driver).total() < idle - len(addresses):
            raise ViolationError(f"idle connections were closed because {call.kind} was cancelled")
        self._driver.sleep(METADATA_SECONDS)
        cancellation.close()
        self._prepare(call)
        self._check_exact(call)

    def _seconds(self, operation: Operation) -> float:
        return self._environment.world.now - operation.started_at

    def _plan_fault(self, call: _Call, api: str, incident: Mapping[str, Any]) -> bool:
        """Let a fault begin; return False if there is nothing to check."""
        cluster, network = self._cluster, self._environment.network
        brokers = list(cluster.brokers.values())
        match incident["kind"]:
            case "reset_connections":
                for broker in brokers:
                    network.reset_broker(broker)
            case "move_coordinators":
                coordinators = Coordinators.of(cluster)
                for number in range(4):
                    former = brokers.index(cluster.brokers[coordinators._leaders[GROUP, number]])
                    broker_id = brokers[(former + 1) % len(brokers)].id
                    coordinators.move(GROUP, number, broker_id, loading_seconds=_SHORT_CHANGE)
            case "elect_leaders":
                self._elect(call)
                self._driver.sleep(METADATA_SECONDS)
                if call.kind in ("committed", "all_committed"):
                    self._healthy.commit_elsewhere(call.group, call.partitions)
            case "loading" if api not in _LOADING:
                return False
            case "loading":
                network.aim_at_next(api, 0, RequestFault("error", {"code": _LOADING[api]}))
            case "throttled_stall":
                network.aim_at_next(api, 0, RequestFault("throttle", {"ms": 50}))
                network.aim_at_next(api, len(call.partitions), RequestFault("stall_response"))
                self._healthy.call(*call)
            case "pending_offset" if call.kind != "committed" or self._healthy.version("OffsetFetch") < _FIRST_STABLE:
                return False
            case "pending_offset":
                self._healthy.commit_later(call.group, call.partitions[0], _SHORT_CHANGE)
            case "slow_broker" if api not in _NEXT_APIS or call.kind in _SLOW_KINDS:
                return False
            case "slow_broker":
                seconds = _SLOWNESS * call.client.settings.request_timeout_ms / 1000
                for number in range(10):
                    network.aim_at_next(api, number, RequestFault("delay_response", {"seconds": seconds}))
            case "garble_response" if call.kind not in _OF_ANY_BROKER or len(brokers) == 1:
                return False
            case "stop_leader" | "stop_brokers" if call.kind == "check_leader":
                return False  # the leader is another one then
            case "stop_leader":
                leader = brokers.index(cluster.brokers[self._healthy.leader(call.partitions[0])])
                stop_broker(cluster, leader, _STOPPED_SECONDS["stop_leader"])
            case "stop_brokers":
                for number in range(len(brokers)):
                    stop_broker(cluster, number, _STOPPED_SECONDS["stop_brokers"])
            case "lose_leaders":
                if call.kind in ("metadata", "missing_topic", "all_topics", "required_topics", "leaders", "commit"):
                    return False  # the result is without leaders
                for tp in call.partitions:
                    lose_leader(cluster, tp.topic, tp.partition, METADATA_SECONDS + _SHORT_CHANGE)
                self._driver.sleep(METADATA_SECONDS)
                call.client.topics(self._names)
            case "reuse_address":
                has_check = call.client.settings.metadata_cluster_check_enable
                if len(brokers) == 1 or not has_check or self._healthy.version("ApiVersions") < _FIRST_WITH_IDENTITY:
                    return False
                reuse_address(cluster, incident["api"], _SHORT_CHANGE)
            case "outdated_broker":
                if len(brokers) == 1:
                    return False
                stick_image(cluster, incident["api"], METADATA_SECONDS + 2 * _SHORT_CHANGE)
                self._elect(call)
                self._driver.sleep(METADATA_SECONDS)
            case "rebootstrap":
                server = call.client.settings.bootstrap_servers[0][0]
                for broker in brokers:
                    if broker.host != server or len(brokers) == 1:
                        broker.rebootstrap_until = self._environment.world.now + _SHORT_CHANGE
                call.client.topics(self._names)
            case "error" if api not in RETRIABLE_ERRORS:
                return False
            case "garble_response":
                network.aim_at_next(api, 0, RequestFault("garble_response"))
            case kind:
                args = dict(incident["args"])
                if call.kind in ("all_topics", "required_topics"):
                    args["of_topics"] = True
                network.aim_at_next(api, 0, RequestFault(kind, args))
                second = incident.get("second")
                if second is not None and api in _NEXT_APIS:  # while the first fault is handled
                    network.aim_at_next(_NEXT_APIS[api], 0, RequestFault(second["kind"], second["args"]))
        return True

    def _elect(self, call: _Call) -> None:
        """Elect other leaders."""
        for tp in call.partitions:
            target = self._cluster.partition(tp)
            assert target is not None
            others = [each for each in target.in_sync_replicas if each != target.leader]
            self._cluster.elect(target, others[0] if others else target.leader)
