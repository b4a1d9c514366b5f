"""Whole continuous queries on a simulated cluster, several at a time: what their users see of them."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from tests.simulation.cluster.groups import GroupCoordinator
from tests.simulation.scenarios.checkpoint_store import CheckpointStore
from tests.simulation.scenarios.continuous_cores import Cores
from tests.simulation.scenarios.continuous_stand_in import ContinuousDriver
from tests.simulation.unit_cluster import UnitCluster

from pyspark_kafka_direct.continuous.query import active
from pyspark_kafka_direct.errors import QueryRunError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.spark import query_reports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark_kafka_direct.continuous.query_builder import ContinuousQueryBuilder
    from pyspark_kafka_direct.spark.query_reports import BatchReport

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ALL = (T0, T1, U0)
RETAINED: Final = 2  # epochs, besides the last one


class Monitor:
    """What the monitor of the sessions gets, by run."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str | None]] = []
        self.batches: dict[str, list[BatchReport]] = {}
        self.idle: dict[str, int] = {}
        self.ended: dict[str, list[bool]] = {}

    def track_query(self, _: str, run_id: str, name: str | None) -> None:
        self.started.append((run_id, name))

    def report_batch(self, _: str, run_id: str, name: str | None, report: BatchReport) -> None:
        self.batches.setdefault(run_id, []).append(report)

    def report_idle(self, run_id: str) -> None:
        self.idle[run_id] = self.idle.get(run_id, 0) + 1

    def query_ended(self, run_id: str, *, failed: bool = False) -> None:
        self.ended.setdefault(run_id, []).append(failed)


class QueryCluster(UnitCluster):
    """Three partitions of two topics, and queries that read them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__({"t": 2, "u": 1})
        parameters: Any = self.environment.plan.parameters
        parameters["retain"] = RETAINED
        self.monitor: Any = Monitor()
        monkeypatch.setattr(query_reports, "_monitors", {"session": self.monitor})
        monkeypatch.setattr("pyspark_kafka_direct.continuous.continuous_execution.session_id", lambda _: "session")
        self.stores: dict[str, CheckpointStore] = {}
        self.fails: set[str] = set()  # queries whose function fails once
        self.drivers: list[Any] = []

    def __exit__(self, error: object, *more: object) -> None:
        for driver in self.drivers:
            driver.end()
        super().__exit__(error, *more)

    def start(self, name: str, cores: Cores | None = None, **parameters: Any) -> Any:
        """Start a query, which resumes from the checkpoint of its name, if there is one."""
        store = self.stores.setdefault(name, CheckpointStore(self.environment, {}))
        given = {
            "checkpointLocation": "memory:/",
            "queryName": name,
            "epochInterval": 1,
            "heartbeatTimeout": 1,
            "discoveryInterval": 2,
            **parameters,
        }
        driver = ContinuousDriver(
            self.environment,
            len(self.drivers),
            store,
            {"start": given, "task_attempts": 1, "kill_seconds": 2.0, "task_delay": 0.01},
            partial(self._define, name),
            lambda *_: None,
            cores or Cores(self.environment, None),
        )
        self.drivers.append(driver)
        driver.start()
        return driver

    def stop(self, driver: Any) -> None:
        driver.stop()
        self.wait(lambda: driver.ended)

    def wait(self, is_done: Any, seconds: float = 300.0) -> None:
        until = self.now + seconds
        while not is_done():
            assert self.now < until, "it takes too long"
            self.sleep(0.05)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        found = GroupCoordinator.of(self.cluster).committed(group)
        return {TopicPartition(*name): each.offset for name, each in found.items()}

    def call(self, driver: Any, method: str, *arguments: Any) -> list[Any]:
        """Call a method of a query in a thread of its driver; return a list that gets the result or the error."""
        results: list[Any] = []

        def run() -> None:
            try:
                results.append(getattr(driver.query, method)(*arguments))
            except QueryRunError as error:
                results.append(error)

        driver.process.spawn(method, run)
        return results

    def start_steady(self, *names: str, **parameters: Any) -> list[Any]:
        """Start queries, and wait until their tasks run."""
        drivers = [self.start(name, **parameters) for name in names]
        self.wait(lambda: all(each.is_steady for each in drivers))
        return drivers

    @staticmethod
    def _define(name: str, builder: ContinuousQueryBuilder) -> ContinuousQueryBuilder:
        timeouts = {"kafka.request.timeout.ms": "2000", "kafka.default.api.timeout.ms": "4000"}
        given = {"kafka.bootstrap.servers": "broker-1:9092", "subscribe": "t,u", "startingOffsets": "earliest"}
        builder = builder.read({**given, **timeouts, "commitGroupId": f"group-{name}"})
        return builder.map_batches(Function(name)).foreach_batch(ignore)


RUNNING: list[QueryCluster] = []  # that of the test


class Function:
    """The function of a query, which is pickled: it drops odd offsets, and fails if the test has requested that."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        cluster = RUNNING[-1]
        if self._name in cluster.fails:
            cluster.fails.discard(self._name)
            raise ValueError("a bad row")
        even = [row for row, offset in enumerate(batch["offset"].to_pylist()) if offset % 2 == 0]
        return batch.take(pa.array(even, pa.int64()))


def ignore(_: pa.RecordBatch) -> None:
    """The output of a query."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryCluster]:
    with QueryCluster(monkeypatch) as cluster:
        RUNNING.append(cluster)
        yield cluster
        RUNNING.clear()


def offsets_of(by_topic: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, int(number)): each for topic, of in by_topic.items() for number, each in of.items()}


def check_reports(cluster: QueryCluster, driver: Any) -> None:
    """Check that the reports of a query which has stopped have everything that was read, each record once."""
    query: Any = driver.query
    ends, last = dict.fromkeys(ALL, 0), 0
    batches = cluster.monitor.batches[query.runId]
    assert len(query.recentProgress) == len(batches)
    for report, batch in zip(query.recentProgress, batches, strict=True):
        (source,) = report["sources"]
        start, end, latest = (offsets_of(source[f"{name}Offset"] or {}) for name in ("start", "end", "latest"))
        assert {**dict.fromkeys(start, 0), **ends} == start, "it begins where the one before ended"
        assert all(each >= end[tp] for tp, each in latest.items())
        rows = sum(end[tp] - start[tp] for tp in end)
        written = sum(offset % 2 == 0 for tp in end for offset in range(start[tp], end[tp]))
        seconds = report["durationMs"]["triggerExecution"] / 1000
        assert (report["numInputRows"], report["sink"]["numOutputRows"]) == (rows, written)
        assert seconds < 1.5, "the time of this epoch, not of those without records before it"
        assert source["inputRowsPerSecond"] == pytest.approx(rows / seconds, rel=0.01)
        assert (batch.batch_id, batch.rows, batch.start, batch.end) == (report["batchId"], rows, start, end)
        assert (batch.ended_ms - batch.began_ms) / 1000 == pytest.approx(seconds, abs=0.01)
        assert report["batchId"] > last, "new partitions have an epoch without a report"
        ends, last = end, report["batchId"]
    assert ends == {tp: cluster.log(tp).end for tp in ends}
    assert cluster.committed(f"group-{query.name}") == ends
    assert cluster.stores[query.name].epochs("commits") == list(range(last + 1))[-RETAINED - 1 :]
    assert cluster.monitor.ended[query.runId] == [False]
    assert (query.status["message"], query.exception()) == ("Stopped", None)


@pytest.mark.parametrize("seed", range(10))
def test_each_of_several_queries_reports_what_it_reads(cluster: QueryCluster, seed: int) -> None:
    """Failures are rarer than the restarts that are allowed, and new partitions are no failures."""
    rng = random.Random(seed)
    drivers = [
        cluster.start(name, tasksMax=tasks, maxRestarts=1, restartWindow=4) for name, tasks in (("a", 1), ("b", 2))
    ]
    cluster.wait(lambda: all(each.is_steady for each in drivers))
    for _ in range(rng.randint(2, 6)):
        step, tp, name = rng.choice(("append", "append", "fail", "outage", "expand")), rng.choice(ALL), rng.choice("ab")
        cluster.append(tp, 5)
        if step == "fail":
            cluster.fails.add(name)
            cluster.sleep(6)
        elif step == "outage":
            cluster.stores[name].outage_until = cluster.now + 3  # the file system fails
            cluster.sleep(9)
        elif step == "expand" and len(cluster.cluster.topics[tp.topic].partitions) < 4:
            cluster.event("expand_topic", topic=tp.topic)
        cluster.sleep(rng.choice((0.0, 0.7, 2.5)))
    cluster.sleep(6)
    cluster.append(U0, 2)
    cluster.sleep(4)
    assert [each.name for each in active()] == ["a", "b"]
    for driver in drivers:
        assert driver.query.status["message"] == "Waiting for data to arrive"
        assert cluster.monitor.idle[driver.query.runId] > 0
        cluster.stop(driver)
        check_reports(cluster, driver)
    assert active() == ()


def test_a_query_that_fails_too_often_ends_and_others_continue(cluster: QueryCluster) -> None:
    """New partitions between the failures do not explain them."""
    first, second = cluster.start_steady("a", "b", maxRestarts=1, tasksMax=1)
    for _ in range(2):
        cluster.append(T0, 2)
        cluster.sleep(2)
        cluster.fails.add("a")
        cluster.append(T0, 2)
        cluster.sleep(4)
        cluster.event("expand_topic", topic="t")
        cluster.sleep(4)
    assert first.ended
    assert "a bad row" in str(first.error)
    assert first.query.status["message"].startswith("Terminated with exception: ")
    assert cluster.monitor.ended == {first.query.runId: [True]}
    assert [each.name for each in active()] == ["b"]
    cluster.append(T1, 2)
    cluster.sleep(2)
    cluster.stop(second)
    check_reports(cluster, second)


def test_a_query_waits_for_cores_after_each_restart(cluster: QueryCluster) -> None:
    """A job of another application takes its core, twice, for longer than a run waits for it."""
    cores = Cores(cluster.environment, 1)
    (driver,) = cluster.start_steady("a", cores=cores, taskStartTimeout=2, maxRestarts=9)
    statuses: list[str] = []
    state = driver.query._state
    set_status = state.set_status

    def record_status(message: str, **details: bool) -> None:
        statuses.append(message)
        set_status(message, **details)

    state.set_status = record_status
    for seconds in (9.0, 9.0, 0.0):
        cluster.fails.add("a")
        cluster.append(T0, 2)
        if seconds:
            cores.run_other_job(1, seconds)
        statuses.clear()
        cluster.sleep(15)
        assert any(each.startswith("Waiting for cores: 1 of 1 tasks") for each in statuses) is (seconds > 0)
        assert statuses[-1] == "Waiting for data to arrive"
    cluster.stop(driver)
    assert (driver.error, cluster.committed("group-a")) == (None, {T0: 6, T1: 0, U0: 0})


def test_each_outage_of_the_brokers_is_reported(cluster: QueryCluster, caplog: pytest.LogCaptureFixture) -> None:
    (driver,) = cluster.start_steady("a", maxRestarts=9)
    for number in (1, 2):
        cluster.fails.add("a")
        cluster.append(T0, 2)
        cluster.sleep(0.5)
        cluster.event("pause_broker", broker=0, seconds=25)
        cluster.sleep(22)
        assert driver.query.status["message"].startswith("Waiting for the brokers: ")
        warnings = [each for each in caplog.records if each.msg.startswith("The query waits until it can reach")]
        assert [each.levelname for each in warnings].count("WARNING") == number
        cluster.sleep(12)
        assert driver.query.status["message"] == "Waiting for data to arrive"
    cluster.stop(driver)
    assert driver.error is None


def test_process_all_available_waits_for_all_topics(cluster: QueryCluster) -> None:
    cluster.append(T0, 3)
    first, second = cluster.start_steady("a", "b", maxRestarts=0)
    cluster.sleep(3)
    cluster.append(U0, 3)
    cluster.fails.add("b")
    done, failed = (cluster.call(driver, "processAllAvailable") for driver in (first, second))
    cluster.wait(lambda: done)
    assert cluster.stores["a"].committed_offsets() == {("t", 0): 3, ("t", 1): 0, ("u", 0): 3}
    cluster.wait(lambda: failed)
    assert "a bad row" in str(failed[0])
    states = [cluster.call(driver, "awaitTermination", *given) for driver in (first, second) for given in ((0,), (2,))]
    cluster.sleep(5)
    assert states[:2] == [[False], [False]]
    assert [type(each[0]) for each in states[2:]] == [QueryRunError] * 2
    waits = cluster.call(first, "awaitTermination")
    cluster.stop(first)
    assert waits == [None]


def test_a_rate_limit_is_that_of_all_tasks_together(cluster: QueryCluster) -> None:
    (driver,) = cluster.start_steady("a", maxRecordsPerSecond=30)
    began = cluster.now
    for tp in ALL:
        cluster.append(tp, 400)
    cluster.sleep(10)
    cluster.stop(driver)
    rows = sum(each["numInputRows"] for each in driver.query.recentProgress)
    assert 200 < rows <= 30 * (cluster.now - began) + 9
