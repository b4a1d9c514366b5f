"""Which queries of a process are running."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from pyspark_kafka_direct.client.system import SYSTEM, RealSystem
from pyspark_kafka_direct.continuous import active
from pyspark_kafka_direct.continuous.query import ContinuousQuery
from pyspark_kafka_direct.continuous.query_state import QueryInfo, QueryState
from pyspark_kafka_direct.errors import QueryRunError
from pyspark_kafka_direct.offsets import TopicPartition


class Execution:
    """A query that runs until it is stopped."""

    def __init__(self, state: QueryState) -> None:
        self._state = state
        self.ended = threading.Event()

    def run(self) -> None:
        self._state.wait(lambda: self._state.stopping, 120)
        self._state.end(None)

    def start(self, system: RealSystem = SYSTEM) -> ContinuousQuery:  # type: ignore[assignment]
        return ContinuousQuery(self._state, cast("Any", self), dict, 120, system)


def execution(name: str) -> Execution:
    return Execution(QueryState(QueryInfo(id=name, run_id="r", name=name, source="", sink=""), 1, SYSTEM))


def test_running_queries_are_listed_by_name() -> None:
    second, first = execution("b").start(), execution("a").start()
    assert active() == (first, second)
    first.stop()
    second.stop()
    # The threads end after the queries.
    until = SYSTEM.monotonic() + 120
    while active() and SYSTEM.monotonic() < until:
        SYSTEM.sleep(0.01)
    assert active() == ()


def test_a_query_that_cannot_start_is_not_listed() -> None:
    class ExhaustedSystem(RealSystem):
        def start_thread(self, *_: object) -> None:
            raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="can't start new thread"):
        execution("a").start(ExhaustedSystem())
    assert active() == ()


@pytest.mark.parametrize(
    ("error", "message"), [(None, "Stopped"), (QueryRunError("why"), "Terminated with exception: why")]
)
def test_the_status_says_why_a_query_has_ended(error: QueryRunError | None, message: str) -> None:
    state = execution("a")._state
    assert state.status["message"] == "Initializing"
    state.end(error)
    assert (state.ended, state.error) == (True, error)
    assert state.status == {"message": message, "isDataAvailable": False, "isTriggerActive": False}
    state.set_status("a late commit", active=True)
    assert state.status["message"] == message


def test_a_stop_also_stops_the_run() -> None:
    state, stopped = execution("a")._state, list[str]()
    with state.calling_on_stop(lambda: stopped.append("first")):
        assert stopped == []
        state.stop()
        assert stopped == ["first"]
    state.stop()
    assert stopped == ["first"], "the run has ended"
    with state.calling_on_stop(lambda: stopped.append("second")):
        assert stopped == ["first", "second"], "the query is already stopping"


def test_only_the_latest_progress_reports_are_kept() -> None:
    state = QueryState(QueryInfo(id="a", run_id="r", name=None, source="", sink=""), 3, SYSTEM)
    for number in range(10):
        state.add_progress({"batchId": number}, {TopicPartition("t", 0): number})
    assert [each["batchId"] for each in state.recent_progress] == [7, 8, 9]
    assert state.offsets == {TopicPartition("t", 0): 9}
