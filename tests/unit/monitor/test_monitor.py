"""The monitor, fed with reports: what it knows, tells, and leaves for the planner."""

from __future__ import annotations

import logging
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.monitor.reports import OTHER, SOURCE, report, source

from pyspark_kafka_direct.errors import BrokerTimeoutError
from pyspark_kafka_direct.monitor import Monitor
from pyspark_kafka_direct.monitor import monitor as monitor_module
from pyspark_kafka_direct.monitor._enable import _lives
from pyspark_kafka_direct.monitor._feedback import FeedbackWriter
from pyspark_kafka_direct.monitor._queries import QueryFacts
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.feedback import Measurement, file_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pyspark_kafka_direct.monitor import SourceBatch
    from pyspark_kafka_direct.monitor._metrics import LagCollector

UNKNOWN = QueryFacts()
KNOWN = QueryFacts(5000.0, {SOURCE: {"commitgroupid": "shop", "kafka.sasl.jaas.config": "hush"}})
A = TopicPartition("t", 0)


def at(end: int, latest: int, *, start: int = 0, **more: Any) -> dict[str, Any]:
    return report(source({"t": {"0": start}}, {"t": {"0": end}}, {"t": {"0": latest}}), **more)


class Observer:
    def __init__(self) -> None:
        self.told: list[tuple[str, Mapping[TopicPartition, int], Mapping[str, str]]] = []
        self.ended: list[str] = []
        self.started: list[tuple[str, Sequence[Mapping[str, str]]]] = []
        self.idle: list[str] = []

    def query_started(self, run_id: str, sources: Sequence[Mapping[str, str]]) -> None:
        self.started.append((run_id, sources))

    def query_idle(self, run_id: str) -> None:
        self.idle.append(run_id)

    def batch_ended(self, run_id: str, sources: Sequence[tuple[SourceBatch, Mapping[str, str]]]) -> None:
        self.told += [(run_id, batch.end, options) for batch, options in sources]

    def query_ended(self, run_id: str) -> None:
        self.ended.append(run_id)


class TestLag:
    def test_nothing_before_a_batch(self) -> None:
        assert Monitor().lag() is None
        assert Monitor().lag("orders") is None

    def test_the_last_batch_counts_and_stays(self) -> None:
        monitor = Monitor()
        monitor.batch_ended(at(10, 30), UNKNOWN)
        monitor.batch_ended(at(30, 30, start=10, batch=2), UNKNOWN)
        monitor.query_ended(at(0, 0)["runId"])
        lag = monitor.lag()
        assert lag is not None
        assert (lag.batch_id, lag.sources[0].total) == (2, 0)

    def test_found_by_id_name_and_query(self) -> None:
        class Query:
            id = "b"

        monitor = Monitor()
        monitor.batch_ended(at(10, 30, id="a", runId="1"), UNKNOWN)
        monitor.batch_ended(at(10, 30, id="b", runId="2", name="orders"), UNKNOWN)
        assert [lag.query_id for lag in monitor.lags] == ["a", "b"]
        assert monitor.lag("a") == monitor.lags[0]
        assert monitor.lag("orders") == monitor.lag(Query()) == monitor.lags[1]
        with pytest.raises(LookupError, match="2: a, orders"):
            monitor.lag()

    def test_other_sources_are_left_alone(self) -> None:
        ours, other = (
            source(None, {"t": {"0": 5}}, {"t": {"0": 9}}),
            source(None, {"u": {"0": 5}}, {"u": {"0": 9}}, description=OTHER),
        )
        monitor = Monitor()
        monitor.batch_ended(report(other, ours), KNOWN)
        lag = monitor.lag()
        assert lag is not None
        assert [each.topic for each in lag.sources[0].partitions] == ["t"]

    def test_a_query_without_our_sources_is_not_ours(self) -> None:
        monitor = Monitor()
        monitor.batch_ended(report(source(None, {"t": {"0": 5}}, None, description="FileStreamSource[x]")), UNKNOWN)
        assert monitor.lags == ()

    def test_group(self) -> None:
        groups = []
        for facts, name in ((KNOWN, "orders"), (UNKNOWN, "orders"), (UNKNOWN, None)):
            monitor = Monitor()
            monitor.batch_ended(at(1, 1, name=name, id="the-id"), facts)
            groups.append(monitor.lags[0].sources[0].group)
        assert groups == ["shop", "orders", "the-id"]

    def test_one_log_line_per_batch(self, caplog: pytest.LogCaptureFixture) -> None:
        monitor = Monitor()
        with caplog.at_level(logging.INFO, "pyspark_kafka_direct.monitor"):
            monitor.batch_ended(at(10, 30, name="orders"), KNOWN)
        assert [record.getMessage() for record in caplog.records] == [monitor.lags[0].line]
        assert "hush" not in caplog.text


class Brokers:
    """Where an idle query's partitions end; answers when it is let."""

    def __init__(self, *ends: int | Exception) -> None:
        self.ends = list(ends)
        self.open = threading.Event()
        self.open.set()
        self.asked: list[str] = []
        self.looked = threading.Event()

    def look_up(self, options: Mapping[str, str], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append(options["commitgroupid"])
        self.looked.set()
        assert self.open.wait(30)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return dict.fromkeys(partitions, end)


def settled() -> None:
    for thread in threading.enumerate():
        if thread.name == "kafka-direct-ends":
            thread.join(30)


class TestIdle:
    def test_an_idle_query_is_looked_at(self) -> None:
        brokers = Brokers(30, 45)
        monitor = Monitor(look_up=brokers.look_up)
        monitor.batch_ended(at(30, 30, runId="r"), KNOWN)
        for latest, behind in ((30, 0), (45, 15)):
            monitor.query_idle("r")
            settled()
            lag = monitor.lag()
            assert lag is not None
            (partition,) = lag.sources[0].partitions
            assert (partition.offset, partition.latest, partition.lag, partition.rate) == (30, latest, behind, 0.0)
            assert abs(lag.time - time.time()) < 60
            assert lag.batch_id == 1

    def test_a_batch_that_ended_meanwhile_knows_better(self) -> None:
        brokers = Brokers(99)
        brokers.open.clear()
        monitor = Monitor(look_up=brokers.look_up)
        monitor.batch_ended(at(10, 10, runId="r"), KNOWN)
        monitor.query_idle("r")
        assert brokers.looked.wait(30)  # or else the thread's look begins after the batch
        monitor.query_idle("r")
        monitor.batch_ended(at(20, 25, start=10, batch=2, runId="r"), KNOWN)
        brokers.open.set()
        settled()
        lag = monitor.lag()
        assert lag is not None
        assert (lag.batch_id, lag.sources[0].total) == (2, 5)
        assert brokers.asked == ["shop"], "one look at a time"

    def test_a_cluster_that_cannot_be_asked_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        brokers = Brokers(BrokerTimeoutError("no answer"), 12)
        monitor = Monitor(look_up=brokers.look_up)
        monitor.batch_ended(at(10, 11, runId="r"), KNOWN)
        before = monitor.lag()
        monitor.query_idle("r")
        settled()
        assert monitor.lag() == before
        assert caplog.text == ""
        monitor.query_idle("r")
        settled()
        lag = monitor.lag()
        assert lag is not None
        assert lag.sources[0].total == 2

    def test_a_look_without_a_thread_is_made_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        brokers = Brokers(12)
        monitor = Monitor(look_up=brokers.look_up)
        monitor.batch_ended(at(10, 11, runId="r"), KNOWN)
        with monkeypatch.context() as exhausted:
            exhausted.setattr(threading.Thread, "start", refuse)
            monitor.query_idle("r")
        monitor.query_idle("r")
        settled()
        assert brokers.asked == ["shop"]

    def test_queries_that_are_over_or_unknown_are_not_looked_at(self) -> None:
        brokers = Brokers()
        monitor = Monitor(look_up=brokers.look_up)
        monitor.batch_ended(at(10, 11, runId="unknown"), UNKNOWN)
        monitor.batch_ended(at(10, 11, runId="over"), KNOWN)
        monitor.query_ended("over")
        for run in ("unknown", "over", "never seen"):
            monitor.query_idle(run)
        settled()
        assert brokers.asked == []


class TestOlderSpark:
    """Spark 4.0 and 4.1 report the end of the batch as ``latestOffset``, however much waits behind it."""

    FACTS = QueryFacts(5000.0, {OTHER: {"commitgroupid": "shop"}})

    def batch(self, end: int, *, start: int = 0, **more: Any) -> dict[str, Any]:
        ends = {"t": {"0": end}}
        return report(source({"t": {"0": start}}, ends, ends, description=OTHER), **{"runId": "r", **more})

    def test_the_brokers_are_asked_after_a_batch(self) -> None:
        brokers = Brokers(1000)
        monitor = Monitor(look_up=brokers.look_up)
        monitor.batch_ended(self.batch(100), self.FACTS)
        settled()
        lag = monitor.lag()
        assert lag is not None
        (partition,) = lag.sources[0].partitions
        assert (partition.offset, partition.latest, partition.lag, partition.rate) == (100, 1000, 900, 50.0)
        assert abs(lag.time - time.time()) < 60

    def test_nothing_is_said_where_they_cannot_be_asked(self) -> None:
        monitor = Monitor(look_up=Brokers(BrokerTimeoutError("no answer")).look_up)
        monitor.batch_ended(self.batch(100), self.FACTS)
        settled()
        assert monitor.lag() is None
        monitor.batch_ended(self.batch(100, runId="no options"), UNKNOWN)
        settled()
        assert monitor.lag() is None

    def test_they_are_asked_once_a_second_and_their_answer_counts_for_the_newest_batch(self) -> None:
        brokers = Brokers(1000, 1000)
        brokers.open.clear()
        monitor = Monitor(look_up=brokers.look_up)
        monitor.batch_ended(self.batch(100), self.FACTS)
        assert brokers.looked.wait(30)
        monitor.batch_ended(self.batch(300, start=100, batch=2), self.FACTS)
        brokers.open.set()
        settled()
        monitor.batch_ended(self.batch(400, start=300, batch=3), self.FACTS)
        settled()
        lag = monitor.lag()
        assert lag is not None
        assert (lag.batch_id, lag.sources[0].total, brokers.asked) == (2, 700, ["shop"])
        monitor.query_idle("r")
        settled()
        lag = monitor.lag()
        assert lag is not None
        assert (lag.batch_id, lag.sources[0].total) == (3, 600)

    def test_a_query_that_is_over_is_told_too_but_not_for_a_later_run_of_it(self) -> None:
        for later in (False, True):
            brokers = Brokers(1000)
            brokers.open.clear()
            monitor = Monitor(look_up=brokers.look_up)
            monitor.batch_ended(self.batch(100), self.FACTS)
            assert brokers.looked.wait(30)
            monitor.query_ended("r")
            if later:
                monitor.batch_ended(self.batch(200, start=100, runId="later"), UNKNOWN)
            brokers.open.set()
            settled()
            assert (monitor.lag() is None) is later


class TestObservers:
    def test_are_told_of_every_batch_and_the_end(self) -> None:
        observer = Observer()
        monitor = Monitor(observers=(observer,))
        monitor.batch_ended(at(10, 30, runId="r"), KNOWN)
        monitor.query_ended("r")
        assert observer.told == [("r", {A: 10}, (KNOWN.options or {})[SOURCE])]
        assert observer.ended == ["r"]

    def test_are_told_of_the_start_and_of_pauses_before_any_batch(self) -> None:
        observer = Observer()
        monitor = Monitor(observers=(observer,))
        monitor.query_started("other", [])
        monitor.query_started("r", [{"subscribe": "t"}])
        monitor.query_idle("r")
        assert observer.started == [("r", [{"subscribe": "t"}])], "not of queries that commit for no group"
        assert observer.idle == ["r"]

    def test_secrets_are_not_shown(self) -> None:
        assert "hush" not in repr(KNOWN)


class TestFeedback:
    def measured(self, folder: Path, end: int) -> Measurement | None:
        file = folder / file_name({A: end})
        return Measurement.from_text(file.read_text()) if file.exists() else None

    def test_left_under_the_end(self, tmp_path: Path) -> None:
        Monitor(FeedbackWriter(tmp_path)).batch_ended(at(10, 30), KNOWN)
        assert self.measured(tmp_path, 10) == Measurement(1795254412000.0, 10, 2000, 0, 5000)

    def test_none_for_an_empty_batch(self, tmp_path: Path) -> None:
        Monitor(FeedbackWriter(tmp_path)).batch_ended(at(10, 30, start=10), KNOWN)
        assert list(tmp_path.iterdir()) == []

    def test_waiting_is_what_the_batch_before_took_too_long(self, tmp_path: Path) -> None:
        monitor = Monitor(FeedbackWriter(tmp_path))
        monitor.batch_ended(at(10, 30, took=8000), KNOWN)
        monitor.batch_ended(at(20, 30, start=10, at="2026-11-21T09:46:58.000Z"), KNOWN)
        monitor.batch_ended(at(30, 40, start=20, at="2026-11-21T09:47:03.000Z", took=9000), KNOWN)
        monitor.batch_ended(at(40, 40, start=30, at="2026-11-21T09:48:03.000Z"), KNOWN)
        waits = [found.waiting_ms for end in (20, 30, 40) if (found := self.measured(tmp_path, end))]
        assert waits == [3000, 0, 0]  # before the last batch there was nothing to do for a while

    @pytest.mark.parametrize("order", [("slow", "fast"), ("fast", "slow")])
    def test_two_queries_at_the_same_offsets_get_the_lower_rate(self, tmp_path: Path, order: tuple[str, str]) -> None:
        monitor = Monitor(FeedbackWriter(tmp_path))
        for run in order:
            monitor.batch_ended(at(10, 30, runId=run, took=9000 if run == "slow" else 1000), KNOWN)
        found = self.measured(tmp_path, 10)
        assert found is not None
        assert found.processing_ms == 9000

    def test_only_the_newest_are_kept(self, tmp_path: Path) -> None:
        monitor = Monitor(FeedbackWriter(tmp_path))
        for n in range(100):
            monitor.batch_ended(at(10 * n + 10, 5000, start=10 * n), KNOWN)
        assert len(list(tmp_path.iterdir())) == 64
        assert self.measured(tmp_path, 1000) is not None


class TestMetrics:
    def text(self, monitor: Monitor) -> list[str]:
        registry = CollectorRegistry()
        monitor.register_metrics(registry)
        return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]

    def test_none_before_a_batch(self) -> None:
        assert self.text(Monitor()) == []

    def test_names_that_dashboards_know(self) -> None:
        monitor = Monitor()
        monitor.batch_ended(at(100, 100, at="2026-11-21T09:46:40.000Z"), KNOWN)
        monitor.batch_ended(at(150, 200, start=100, batch=2), KNOWN)
        labels = '{group="shop",partition="0",topic="t"}'
        assert [line for line in self.text(monitor) if "kafka_direct_query" not in line] == [
            f"kafka_consumergroup_group_offset{labels} 150.0",
            f"kafka_consumergroup_group_lag{labels} 50.0",
            f"kafka_consumergroup_group_lag_seconds{labels} 7.0",
            'kafka_consumergroup_group_max_lag{group="shop"} 50.0',
            'kafka_consumergroup_group_max_lag_seconds{group="shop"} 7.0',
            'kafka_partition_latest_offset{partition="0",topic="t"} 200.0',
        ]

    def test_a_query_that_has_ended_is_down_and_has_no_lag(self) -> None:
        monitor = Monitor()
        run = at(0, 0)
        name = run["name"] or run["id"]
        up = f'kafka_direct_query_up{{query="{name}"}}'
        last = f'kafka_direct_query_last_batch_timestamp_seconds{{query="{name}"}}'
        monitor.query_known(run["id"], run["runId"], run["name"])
        assert self.text(monitor) == [f"{up} 1.0"]
        began = time.time()
        monitor.batch_ended(at(10, 30), KNOWN)
        lines = self.text(monitor)
        assert f"{up} 1.0" in lines
        assert any("group_lag{" in line for line in lines)
        ended = next(line for line in lines if line.startswith(last))
        assert began <= float(ended.removeprefix(last)) <= time.time()
        monitor.query_ended(run["runId"])
        assert self.text(monitor) == [f"{up} 0.0", ended]
        monitor.query_known(run["id"], "its next run", run["name"])
        assert self.text(monitor)[:2] == [f"{up} 1.0", ended], "its last batch was the one before"
        monitor.query_ended(run["runId"])
        assert f"{up} 1.0" in self.text(monitor), "an older run has ended"

    def test_lag_grows_while_a_batch_is_stuck(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ends = [40]
        monitor = Monitor(look_up=lambda options, partitions: {A: ends[0]})
        monitor.batch_ended(at(10, 30), KNOWN)
        line = 'kafka_consumergroup_group_lag{group="shop",partition="0",topic="t"}'
        self.text(monitor)  # the batch of the report was long ago
        deadline = time.monotonic() + 60
        while f"{line} 30.0" not in self.text(monitor):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        ends[0] = 50
        time.sleep(0.1)
        assert f"{line} 30.0" in self.text(monitor), "brokers are not asked each time"
        monkeypatch.setattr(monitor_module, "_STALE_SECONDS", 0.0)
        while f"{line} 40.0" not in self.text(monitor):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def test_a_registry_is_given_once(self) -> None:
        monitor, registry = Monitor(), CollectorRegistry()
        for _ in range(2):
            monitor.register_metrics(registry)
        monitor.batch_ended(at(10, 30), KNOWN)
        assert generate_latest(registry).decode().count("group_lag{") == 1

    def test_queries_that_have_ended_with_spark_are_down(self) -> None:
        """Nobody is told: the SparkContext was stopped, or the JVM has died, and its listeners with it."""
        lives = [True]
        monitor = Monitor(lives=lambda: lives[0], look_up=lambda *_: pytest.fail("nobody asks for it any more"))
        run = at(0, 0)
        monitor.query_known(run["id"], run["runId"], "delays")
        assert 'kafka_direct_query_up{query="delays"} 1.0' in self.text(monitor)
        lives[0] = False
        monitor.batch_ended(at(10, 30), KNOWN)
        lines = self.text(monitor)
        assert 'kafka_direct_query_up{query="delays"} 0.0' in lines
        assert not any("group_lag{" in line for line in lines)
        assert not monitor.queries[0].is_running
        lives[0] = True
        assert not monitor.queries[0].is_running, "it was seen to have ended, and nobody is asked again"

    def test_to_read_which_queries_run_changes_nothing(self) -> None:
        lives = [False]
        monitor = Monitor(lives=lambda: lives[0])
        run = at(0, 0)
        monitor.query_known(run["id"], run["runId"], "delays")
        monitor.batch_ended(at(10, 30), KNOWN)
        runs = dict(monitor._runs)
        assert [each.is_running for each in monitor.queries] == [False]
        lives[0] = True
        assert [each.is_running for each in monitor.queries] == [True]
        assert monitor._runs == runs
        assert runs

    def test_sessions_share_a_registry(self) -> None:
        """A name that comes twice with its type, or a series that comes twice, is an error for who reads the text."""
        registry: CollectorRegistry = CollectorRegistry()
        collectors: dict[CollectorRegistry, LagCollector] = {}
        for number in range(2):
            monitor = Monitor(collectors=collectors)
            monitor.register_metrics(registry)
            monitor.batch_ended(at(10, 30) | {"id": f"q{number}", "runId": f"r{number}"}, KNOWN)
        lines = generate_latest(registry).decode().splitlines()
        assert len(lines) == len({line.rpartition(" ")[0] for line in lines})
        assert 'kafka_direct_query_up{query="q0"} 1.0' in lines
        assert 'kafka_direct_query_up{query="q1"} 1.0' in lines
        assert sum("group_lag{" in line for line in lines) == 1

    def test_many_queries_later(self) -> None:
        """Those that run are never forgotten, and the lag of one that has ended does not come back."""
        monitor = Monitor()
        monitor.query_known("old", "r", "runs on")
        monitor.batch_ended(at(10, 30), KNOWN)
        monitor.query_ended(at(10, 30)["runId"])
        for number in range(200):
            monitor.query_known(f"q{number}", f"r{number}", None)
            monitor.query_ended(f"r{number}")
        lines = self.text(monitor)
        assert 'kafka_direct_query_up{query="runs on"} 1.0' in lines
        assert not any("group_lag{" in line for line in lines)
        assert len(monitor.queries) == 100

    def test_a_topic_read_twice_is_one_series(self) -> None:
        one, two = (source({"t": {"0": 0}}, {"t": {"0": end}}, {"t": {"0": 30}}) for end in (20, 10))
        monitor = Monitor()
        monitor.batch_ended(report(one, two), KNOWN)
        assert [line for line in self.text(monitor) if "group_lag{" in line] == [
            'kafka_consumergroup_group_lag{group="shop",partition="0",topic="t"} 20.0'
        ]


class Stopped:
    def __init__(self, stopped: bool | Exception) -> None:
        self.stopped = stopped

    def sc(self) -> Stopped:
        return self

    def isStopped(self) -> bool:
        if isinstance(self.stopped, Exception):
            raise self.stopped
        return self.stopped


@pytest.mark.parametrize(
    ("context", "lives"),
    [(None, False), (Stopped(True), False), (Stopped(ConnectionError()), False), (Stopped(False), True)],
    ids=["stopped here", "stopped in the JVM", "no JVM", "runs"],
)
def test_whether_spark_still_runs(context: Stopped | None, lives: bool) -> None:
    session: Any = SimpleNamespace(_jsparkSession=1, sparkContext=SimpleNamespace(_jsc=context))
    assert _lives(session) is lives
    over_connect: Any = SimpleNamespace(is_stopped=not lives)
    assert _lives(over_connect) is lives
