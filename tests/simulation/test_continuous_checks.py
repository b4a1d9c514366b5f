"""What counts as committed before a run of a continuous query, on hand-written histories."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.simulation.cluster.stored_batch import encode_batch
from tests.simulation.errors import ViolationError
from tests.simulation.oracle import Oracle
from tests.simulation.scenarios.checkpoint_store import CheckpointStore
from tests.simulation.scenarios.continuous_checks import Delivery, OutputChecker, PlannedStart
from tests.simulation.scenarios.continuous_stand_in import JobStart
from tests.simulation.scenarios.record_truth import RecordTruth

VALUES = (b"t/1/0/1", b"t/1/0/2", b"t/1/0/3")


class Query:
    """Reports jobs, commits and rows to the checker, one per second."""

    def __init__(self) -> None:
        self.truth = truth = RecordTruth()
        truth.topic_created("t", 1, 1, 0.0)
        truth.appended("t", 1, 0, encode_batch(VALUES).at(0, 0), 0.0)
        environment: Any = SimpleNamespace(world=SimpleNamespace(rng=lambda _: None))
        self.store = CheckpointStore(environment, {})
        parameters = {"guarantee": "function", "isolation": "read_uncommitted", "drops_rows": False, "output_topics": 1}
        self.checker = OutputChecker({**parameters, "selections": [["t"]], "cluster": {}}, truth, Oracle(), self.store)
        self.now = 0.0

    def commit(self, epoch: int, offset: int) -> None:
        self.store.files |= {
            f"offsets/{epoch}": f'v1\n{{"batchTimestampMs":0}}\n{{"t":{{"0":{offset}}}}}',
            f"commits/{epoch}": "",
        }

    def start(self, run: str, driver: int = 0) -> None:
        self.now += 1.0
        self.checker.jobs[run] = JobStart(driver, self.now, self.store.committed_offsets(), is_alone=True)

    def open_sink(self, run: str) -> None:
        self.checker.sink_opened(run)

    def write(self, run: str, *values: bytes) -> None:
        self.now += 1.0
        self.checker.deliveries += [Delivery(value, run, self.now) for value in values]


@pytest.fixture
def query() -> Query:
    query = Query()
    query.commit(0, 1)
    return query


def test_a_run_continues_behind_what_was_committed(query: Query) -> None:
    query.start("first")
    query.open_sink("first")
    query.write("first", *VALUES[1:])
    query.commit(1, 3)

    query.checker.check()


def test_a_run_writes_what_was_committed_before_its_job(query: Query) -> None:
    query.start("first")
    query.write("first", VALUES[0])

    with pytest.raises(ViolationError, match="committed before"):
        query.checker.check()


def test_a_run_writes_what_its_driver_has_committed_before_its_tasks_read(query: Query) -> None:
    query.start("first")
    query.commit(1, 2)
    query.open_sink("first")
    query.write("first", VALUES[1])

    with pytest.raises(ViolationError, match="committed before"):
        query.checker.check()


def test_a_driver_that_was_suspended_writes_what_its_successor_has_committed(query: Query) -> None:
    query.start("first", driver=0)
    query.start("second", driver=1)
    query.open_sink("second")
    query.write("second", VALUES[1])
    query.commit(1, 2)
    query.open_sink("first")
    query.write("first", VALUES[1])

    query.checker.check()

    query.write("first", VALUES[0])
    with pytest.raises(ViolationError, match="committed before"):
        query.checker.check()


def test_a_task_that_was_suspended_opens_its_sink_when_the_next_run_has_committed(query: Query) -> None:
    query.start("first")
    query.open_sink("first")
    query.write("first", VALUES[1])
    query.start("second")
    query.open_sink("second")
    query.write("second", VALUES[1])
    query.commit(1, 2)
    query.open_sink("first")

    query.checker.check()


@pytest.mark.parametrize(("active_since", "required"), [(1.5, True), (2.5, False)])
def test_a_recreated_topic_is_required_from_its_start_if_the_driver_has_read_the_deleted_one(
    query: Query, active_since: float, required: bool
) -> None:
    query.start("first")
    query.checker.active_since[0] = active_since
    query.truth.topic_deleted("t", 1, 2.0)
    query.truth.topic_created("t", 2, 1, 2.0)
    query.truth.appended("t", 2, 0, encode_batch((b"t/2/0/4",)).at(0, 0), 3.0)
    query.truth.high_watermark("t", 2, 0, 0, 1, 3.0)

    assert query.checker.missing(["t"]) == ([b"t/2/0/4"] if required else [])


def test_records_behind_the_start_that_the_last_run_has_reported_are_required(query: Query) -> None:
    query.truth.high_watermark("t", 1, 0, 0, 3, 0.0)
    query.start("first")
    query.write("first", VALUES[0])
    query.truth.epoch_started("t", 1, 0, 1, 1, 1, 2.0, 0)
    query.truth.appended("t", 1, 0, encode_batch((b"t/1/0/4",)).at(1, 1), 3.0)
    query.truth.high_watermark("t", 1, 0, 1, 2, 3.0)

    assert query.checker.missing(["t"]) == [], "a reader may have passed the offset"
    query.checker.planned_starts["t", 0] = PlannedStart(1, 2.5)
    assert query.checker.missing(["t"]) == [b"t/1/0/4"]
    query.start("second")
    assert query.checker.missing(["t"]) == [], "the last run has reported no start"
