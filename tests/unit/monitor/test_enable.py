"""``enable(spark)`` for several sessions and applications, and the end of a program."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.monitor.test_query_monitor import DETAILS, report_at

from pyspark_kafka_direct.monitor import enable, enable_monitor
from pyspark_kafka_direct.spark import query_reports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.monitor.enable_monitor import MonitorQueryListener
    from pyspark_kafka_direct.monitor.group_committer import GroupCommitter

Flush = tuple[Any, "GroupCommitter"]  # the arguments of what runs at the exit


class Session:
    """A session of an application, whose driver has an address."""

    def __init__(self, name: str, *, driver_host: str | None = "127.0.0.1", context: Any = None) -> None:
        self.listeners: list[MonitorQueryListener] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append)
        self._jsparkSession = SimpleNamespace(sessionUUID=lambda: name)
        conf = {"spark.driver.host": driver_host}
        self.sparkContext = SimpleNamespace(getConf=lambda: conf, _jsc=context)


class Application:
    """The state of ``enable(spark)`` in one process, in which several applications may run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.folder = folder / "first"
        self.folder.mkdir()
        self.at_exit: list[Flush] = []
        self.tokens: list[Any] = []

    def restart(self, name: str, *, delete: bool) -> None:
        """Begin another application; Spark deletes the folder of the one before, maybe later."""
        if delete:
            for file in self.folder.iterdir():
                file.unlink()
            self.folder.rmdir()
        self.folder = self.root / name
        self.folder.mkdir()


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    application = Application(tmp_path)
    receivers: dict[Path, Any] = {}
    for name, value in (
        ("create_shared_folder", lambda _: application.folder),
        ("start_delegation_tokens", application.tokens.append),
        ("_monitors", {}),
        ("_loss_receivers", receivers),
        ("atexit", SimpleNamespace(register=lambda _, *arguments: application.at_exit.append(arguments))),
    ):
        monkeypatch.setattr(enable_monitor, name, value)
    monkeypatch.setattr(query_reports, "_monitors", {})
    yield application
    for receiver in receivers.values():
        receiver.close()


def enable_session(session: Session) -> Any:
    spark: Any = session
    return enable(spark)


def is_closed(receiver: Any) -> bool:
    return bool(receiver._closed)


def test_each_session_has_a_monitor_and_shares_what_belongs_to_the_application(application: Application) -> None:
    sessions = [Session(name) for name in ("one", "two", "three")]
    monitors = [enable_session(each) for each in sessions]
    assert [enable_session(Session(name)) for name in ("one", "two", "three")] == monitors
    assert len({id(each) for each in monitors}) == 3
    assert [len(each.listeners) for each in sessions] == [1, 1, 1]
    assert query_reports._monitors == dict(zip(("one", "two", "three"), monitors, strict=True))
    assert application.tokens == [each.sparkContext for each in sessions]
    registry = CollectorRegistry()
    for number, monitor in enumerate(monitors):
        monitor.register_metrics(registry)
        monitor.track_query(f"q{number}", f"r{number}", None)
    families = list(registry.collect())
    assert len({each.name for each in families}) == len(families), "they share a collector"
    found = {sample.labels["query"] for each in families for sample in each.samples}
    assert found == {"q0", "q1", "q2"}
    committers = [committer for _, committer in application.at_exit]
    assert len({id(each) for each in committers}) == 3
    assert len({id(each._all_groups) for each in committers}) == 1, "no commit overtakes another one of its group"


def test_each_application_has_one_port_for_losses_until_it_ends(application: Application) -> None:
    def new_session(name: str) -> Any:
        enable_session(Session(name))
        return enable_monitor._loss_receivers[application.folder]

    first = new_session("one")
    assert new_session("two") is first
    application.restart("second", delete=False)
    second = new_session("three")
    assert [is_closed(each) for each in (first, second)] == [False, False], "the folder of the first still exists"
    application.restart("third", delete=True)
    third = new_session("four")
    assert [is_closed(each) for each in (first, second, third)] == [False, True, False]
    assert len({each.channel.port for each in (first, second, third)}) == 3
    assert len({each.channel.key for each in (first, second, third)}) == 3


@pytest.mark.parametrize(
    ("conf", "bind_host", "host"),
    [
        ({}, "localhost", "localhost"),
        ({"spark.driver.host": "driver"}, "driver", "driver"),
        ({"spark.driver.host": "[::1]"}, "::1", "::1"),
        ({"spark.driver.host": "driver", "spark.driver.bindAddress": "0.0.0.0"}, "0.0.0.0", "driver"),
        ({"spark.driver.host": "[::1]", "spark.driver.bindAddress": "[::]"}, "::", "::1"),
    ],
)
def test_the_address_of_the_port(
    application: Application, monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], bind_host: str, host: str
) -> None:
    opened: list[tuple[Path, str, str]] = []

    def open_receiver(folder: Path, bind: str, reached_as: str, _: object) -> Any:
        opened.append((folder, bind, reached_as))
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(enable_monitor, "LossReceiver", open_receiver)
    session = Session("one")
    session.sparkContext.getConf = lambda: conf
    enable_session(session)
    assert opened == [(application.folder, bind_host, host)]


def test_a_driver_without_a_port_is_logged_and_monitored(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = enable_session(Session("one", driver_host="not a host"))
    assert "offsets that tasks skip are not counted" in caplog.text
    monitor.batch_ended(report_at(10, 30), DETAILS)
    assert monitor.lag() is not None


class ListenerBus:
    """The listener bus of a JVM, which may have ended."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.waits: list[int] = []

    def sc(self) -> ListenerBus:
        return self

    def listenerBus(self) -> ListenerBus:
        return self

    def waitUntilEmpty(self, timeout_ms: int) -> None:
        self.waits.append(timeout_ms)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("context", [None, ListenerBus(), ListenerBus(ConnectionError("no JVM"))])
def test_the_last_offsets_are_committed_at_the_exit(
    context: ListenerBus | None, is_flushed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The session may be stopped, or its JVM may have exited; commits may be in flight nevertheless."""
    flushed: list[float] = []

    def flush(seconds: float) -> bool:
        flushed.append(seconds)
        return is_flushed

    committer: Any = SimpleNamespace(flush=flush)
    session: Any = Session("one", context=context)
    with caplog.at_level(logging.WARNING):
        enable_monitor._flush_commits_at_exit(session, committer)
    assert flushed == [10.0]
    assert ("the last offsets were not committed" in caplog.text) is not is_flushed
    if context is not None:
        assert context.waits.pop() == 5000
