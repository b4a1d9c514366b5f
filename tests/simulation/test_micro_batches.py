"""Streaming queries that die at each step, without other faults; and bugs that a history of a few seeds must find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.errors import ViolationError
from tests.simulation.history import Event, Plan
from tests.simulation.planted_micro_batches import BUGS
from tests.simulation.planting import violates_soon
from tests.simulation.runner import run_seed
from tests.simulation.scenarios import micro_batches
from tests.simulation.scenarios.micro_batch_recreations import Report
from tests.simulation.scenarios.micro_batch_reports import check_resumptions
from tests.simulation.scenarios.spark_stand_in import STEPS, LoggedEnd
from tests.simulation.scheduler import World

from pyspark_kafka_direct.datasource import micro_batch_planner

if TYPE_CHECKING:
    from tests.simulation.conftest import Sampled

STARTS = ("earliest", "latest", '{"flights": {"0": 3, "1": -2}}')


def plan(
    *,
    start: str = "earliest",
    crashes: Any = (),
    events: Any = (),
    interval: float = 0.2,
    legacy: bool = False,
    **options: str,
) -> Plan:
    """Return a history of two runs and a final one, with records that are appended in between."""
    run = {
        "trigger": "processing time",
        "triggers": round(1 / interval),
        "interval": interval,
        "pause": 0.0,
        "skip_loss": False,
        "options": {"subscribe": "flights", "startingOffsets": start, "failOnDataLoss": "true", **options},
    }
    batch = {"records": 5, "keys": 0, "producer": 0, "transaction": None}
    log = [{**batch, "partition": number} for number in range(4)]
    appends = [{**batch, "partition": number, "at": 0.3 + 0.2 * number} for number in range(6)]
    parameters = {
        "brokers": 2,
        "cluster": {},
        "partitions": {"flights": 2},
        "log": log,
        "append_list": appends,
        "appends": len(appends),
        "late_list": appends[:1],
        "late": 1,
        "run_list": [run, run],
        "runs": 2,
        "crash_list": crashes,
        "crashes": len(crashes),
        "executors": 2,
        "speculation": 0.0,
        "legacy": legacy,
        "committed": [0],
    }
    return Plan(micro_batches.NAME, parameters, events, quiet_after=4.0)


def run(history: Plan) -> None:
    world = World(1)
    try:
        micro_batches.run(world, history)
    finally:
        world.close()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies_at_each_step(step: str, start: str, legacy: bool, sampled: Sampled) -> None:
    for count in sampled(range(3), 2, STEPS.index(step) + legacy):
        run(plan(start=start, crashes=[{"run": 0, "step": step, "count": count}], legacy=legacy))


@pytest.mark.parametrize("kind", ["crash_before_request", "crash_after_request"])
@pytest.mark.parametrize("start", STARTS)
def test_a_process_that_dies_at_each_request(start: str, kind: str, sampled: Sampled) -> None:
    step = 1 if start == "earliest" else 5
    phase = 0 if kind == "crash_before_request" else 1  # a crash after a request is one before the next
    for request in sampled(range(0, 40, step), 4 if step == 1 else 1, phase):
        run(plan(start=start, events=[Event(kind, request=request)], commitGroupId="lag", maxOffsetsPerTrigger="4"))


def test_both_processes_of_a_run_die() -> None:
    for first in range(4, 30, 3):
        crashes = [Event("crash_after_request", request=request) for request in (first, first + 5)]
        run(plan(events=crashes, maxOffsetsPerTrigger="3"))


@pytest.mark.parametrize(
    ("name", "found_by"),
    [
        ("replanned until latest", 20),
        ("commits ahead", 1),
        ("lower end not reported", 9),
    ],
)
def test_planted_bugs_are_found_soon(name: str, found_by: int) -> None:
    bug = next(each for each in BUGS if each.name == name)
    assert violates_soon(bug, found_by, seeds=59)


def test_histories_with_metadata_of_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle query requests their metadata less often."""
    monkeypatch.setattr(micro_batch_planner, "_MANY_PARTITIONS", 0)
    for seed in range(1, 60):
        assert run_seed(seed, micro_batches.NAME, "short").failure is None
    run(plan(interval=0.02))


@pytest.mark.parametrize("legacy", [False, True])
def test_an_answer_is_not_older_than_the_question(legacy: bool) -> None:
    history = plan(interval=0.02, legacy=legacy)
    run(history)
    bug = next(each for each in BUGS if each.name == "idle answer repeated")
    with bug.planted(), pytest.raises(ViolationError, match="says that the query has read everything"):
        run(history)


@pytest.mark.parametrize(("run_number", "end", "is_wrong"), [(0, 10, False), (0, 40, True), (1, 40, False)])
def test_a_run_logs_the_lower_end_that_it_has_reported(run_number: int, end: int, is_wrong: bool) -> None:
    """The next run knows nothing of a report whose batch was not logged."""
    partition = ("flights", 0)
    logged = [LoggedEnd("", 1.0, 0, 1.0), LoggedEnd("", 3.0, run_number, 3.0)]
    reports = [Report(2.0, 0, "data loss: flights-0's offset was changed from 30 to 10. Either", is_error=False)]
    offsets = [{partition: 0}, {partition: 30}, {partition: end}]
    if is_wrong:
        with pytest.raises(ViolationError, match="batch 1 starts at 30 and ends at 40"):
            check_resumptions(reports, logged, offsets)
    else:
        check_resumptions(reports, logged, offsets)
