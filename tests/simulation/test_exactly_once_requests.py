"""Faults at the requests of exactly-once batches: the rows are written once, and the next batch follows.

The histories are not drawn: a history without faults has n requests, and with ``--thorough`` each fault happens at each
of them. Otherwise, each fault happens at each sixth or ninth one, and the requests of two faults or versions differ.
Every history has two batches, so that a late request of the first transaction can arrive at each request of the second.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.errors import ViolationError
from tests.simulation.history import Event, History, Plan
from tests.simulation.runner import run_history
from tests.simulation.scenarios import exactly_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.simulation.conftest import Sampled
    from tests.simulation.runner import Outcome

_PARAMETERS: Mapping[str, Any] = {
    "brokers": 1,
    "partitions": 2,
    "topics": 1,
    "stamp": False,
    "names_topics": False,
    "batches": [[0, 1], [1, 0]],
    "batch_count": 2,
    "parallelism": [1],
    "queries": 1,
    "shares_prefix": False,
    "state_exists": True,
    "restart_seconds": 0.01,
    "pauses": [],
    "speculated": [],
    "extra_drivers": [],
    "request_timeout_ms": 2_000,
    "api_timeout_ms": 60_000,
    "delivery_timeout_ms": 120_000,
    "transaction_timeout_ms": 60_000,
    "batch_bytes": 524_288,
}
_SEED = 1
_WRITES = ("Produce", "AddPartitionsToTxn", "EndTxn", "InitProducerId")
_FAULTS = ("crash_before_request", "crash_after_request", "lose_response", "lose_request", "stall_response", "error")
_VERSIONS = pytest.mark.parametrize("transaction_version", [2, 0])


def test_a_history_without_faults_has_all_requests() -> None:
    for version in (2, 0):
        requests = request_names(version, 1)
        assert requests.count("EndTxn") == 2
        assert requests.count("InitProducerId") >= 2
        assert ("AddPartitionsToTxn" in requests) == (version == 0)


@_VERSIONS
@pytest.mark.parametrize(("fault", "brokers"), [*((each, 1) for each in _FAULTS), *((each, 3) for each in _FAULTS[:3])])
def test_each_fault_at_each_request(fault: str, brokers: int, transaction_version: int, sampled: Sampled) -> None:
    args = {"draw": 0} if fault == "error" else {}
    numbers = range(len(request_names(transaction_version, brokers)))
    phase = _FAULTS.index(fault) // 2 + transaction_version // 2  # a crash after a request is one before the next
    check_all(
        (Event(fault, request=number, args=args) for number in sampled(numbers, 6 if brokers == 1 else 9, phase)),
        transaction_version,
        brokers,
    )


@_VERSIONS
@pytest.mark.parametrize("fault", ["crash_before_request", "crash_after_request"])
def test_each_crash_with_a_lost_response_before(fault: str, transaction_version: int, sampled: Sampled) -> None:
    """The response to a write is lost, and the driver dies at one of the next requests, while it finds out."""
    names = request_names(transaction_version, 1)
    writes = [number for number, name in enumerate(names) if name in _WRITES]
    histories = (
        (Event("lose_response", request=number), Event(fault, request=number + distance))
        for number in writes
        for distance in range(1, 12, 2)
    )
    phase = ("crash_before_request", "crash_after_request").index(fault) + transaction_version
    check_all(sampled(histories, 6, phase), transaction_version, 1)


@_VERSIONS
@pytest.mark.parametrize(("fault", "step"), [("late_request", 1), ("late_stalled_request", 4)])
def test_each_late_write_at_each_later_request(
    fault: str, step: int, transaction_version: int, sampled: Sampled
) -> None:
    """A write of transaction n arrives before a request of the same batch or of transaction n + 1."""
    names = request_names(transaction_version, 1)
    first_batch = names.index("EndTxn") + 1
    writes = [number for number, name in enumerate(names[:first_batch]) if name in _WRITES]
    histories = (
        Event(fault, request=number, args={"before_request": before})
        for number in writes
        for before in range(number + 1, len(names) + 8, step)
    )
    check_all(sampled(histories, 6 if step == 1 else 2, transaction_version), transaction_version, 1)


@_VERSIONS
def test_each_late_write_of_a_driver_that_died(transaction_version: int, sampled: Sampled) -> None:
    """The driver dies right after a write that arrives while its successor sends the batch, or the next one."""
    names = request_names(transaction_version, 1)
    first_batch = names.index("EndTxn") + 1
    writes = [number for number, name in enumerate(names[:first_batch]) if name in _WRITES]
    histories = (
        (
            Event("late_request", request=number, args={"before_request": before}),
            Event("crash_before_request", request=number + 1),
        )
        for number in writes
        for before in range(number + 2, len(names) + 8, 2)
    )
    check_all(sampled(histories, 6, transaction_version), transaction_version, 1)


@_VERSIONS
@pytest.mark.parametrize("seconds", [0.06, 0.12, 400.0])
def test_each_pause_with_a_second_driver(seconds: float, transaction_version: int, sampled: Sampled) -> None:
    """The driver stops before a request, a second driver runs, and the first one wakes while it runs or later."""
    phase = [0.06, 0.12, 400.0].index(seconds) + transaction_version
    numbers = sampled(range(len(request_names(transaction_version, 1))), 6, phase)
    events = (Event("pause_before_request", request=number, args={"seconds": seconds}) for number in numbers)
    check_all(events, transaction_version, 1)


@_VERSIONS
def test_each_crash_with_a_second_query(transaction_version: int, sampled: Sampled) -> None:
    """A driver that dies does not stop another query with the same sink state topic for good."""
    first_batches = 2 * (request_names(transaction_version, 1).index("EndTxn") + 1)
    for number in sampled(range(first_batches), 5, transaction_version):
        fault = "crash_after_request" if number % 2 else "crash_before_request"
        check((Event(fault, request=number),), transaction_version, 1, queries=2)


@_VERSIONS
def test_each_pause_with_three_drivers(transaction_version: int, sampled: Sampled) -> None:
    """Two more drivers run while the first one is stopped before a request, or after it has continued."""
    for number in sampled(range(len(request_names(transaction_version, 1))), 4, transaction_version):
        pause = Event("pause_before_request", request=number, args={"seconds": 0.12})
        check((pause,), transaction_version, 1, extra_drivers=[0.02, 0.1])


@_VERSIONS
@pytest.mark.parametrize("step", ["plan", "tasks", "commit"])
@pytest.mark.parametrize("successors_step", ["plan", "tasks", "commit"])
def test_a_zombie_that_never_wrote_does_not_end_its_successor(
    successors_step: str, step: str, transaction_version: int
) -> None:
    """It hangs in its first batch, and wakes while its successor, which has sent that batch, is in the next one."""
    check(
        (),
        transaction_version,
        1,
        batches=[[0, 1, 1, 0], [], [1, 1]],
        batch_count=3,
        restart_seconds=5.0,
        pauses=[[0, 0, step, 8.0], [1, 1, successors_step, 4.0]],
    )


@_VERSIONS
@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("replication_delay", [0.0, 0.3])
def test_two_queries_with_one_prefix_do_not_fence_each_other(
    replication_delay: float, brokers: int, transaction_version: int
) -> None:
    """The one that is rejected does not fence the other one first."""
    check(
        (),
        transaction_version,
        brokers,
        queries=2,
        shares_prefix=True,
        state_exists=False,
        batches=[[0, 1, 0, 0]],
        batch_count=1,
        parallelism=[2],
        replication_delay=replication_delay,
    )


def check_all(histories: Iterator[Event] | Iterator[tuple[Event, ...]], transaction_version: int, brokers: int) -> None:
    for each in histories:
        check((each,) if isinstance(each, Event) else each, transaction_version, brokers)


def check(events: tuple[Event, ...], transaction_version: int, brokers: int, **parameters: Any) -> None:
    """Run a history, and fail unless its rows are written exactly once."""
    failure = run(events, transaction_version, brokers, **parameters).failure
    if failure is not None:
        described = [(event.kind, event.request, dict(event.args)) for event in events]
        raise ViolationError(f"{described}: {failure.message}\n{failure.traceback}")


def run(events: tuple[Event, ...], transaction_version: int, brokers: int, **parameters: Any) -> Outcome:
    replication_delay = parameters.pop("replication_delay", 0.0)
    cluster = {
        "transaction_version": transaction_version,
        "replication_factor": brokers,
        "replication_delay": replication_delay,
    }
    plan = Plan(exactly_once.NAME, {**_PARAMETERS, "brokers": brokers, "cluster": cluster, **parameters}, events, 1.0)
    return run_history(History(_SEED, "short", "tables", plan))


@cache
def request_names(transaction_version: int, brokers: int) -> tuple[str, ...]:
    """Return the requests of a history without faults."""
    outcome = run((), transaction_version, brokers)
    assert outcome.failure is None, outcome.failure
    return tuple(line[5] for line in outcome.trace if line[1] == "request")
