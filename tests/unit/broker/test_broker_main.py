"""The command line of the broker."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyspark_kafka_direct.broker.__main__ import _run_until_exit, example_code, main
from pyspark_kafka_direct.cli.sample_flights import TopicWriter
from pyspark_kafka_direct.errors import BrokerError, BrokerTimeoutError

if TYPE_CHECKING:
    from pathlib import Path


def test_an_invalid_topic_is_rejected_before_a_broker_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--topic", "orders:none"]) == 1
    assert "'orders:none': the number of partitions must be" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--port", "0"], ["--port", "-1"], ["--port", "65534", "--brokers", "3"]])
def test_an_invalid_port_is_rejected_before_a_broker_starts(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert f"port is {arguments[1]}: it must be from 1 to 6553" in capsys.readouterr().err


def test_if_the_port_is_in_use_the_error_says_how_to_choose_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "pyspark-kafka-direct" / "kafka-4.4.0").mkdir(parents=True)  # so that nothing is downloaded
    (tmp_path / "pyspark-kafka-direct" / "kafka-4.4.0" / "scala-library-2.13.1.jar").touch()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    stderr = capsys.readouterr().err
    assert f"Port {port} is in use" in stderr
    assert "--port" in stderr


def test_a_cache_that_is_not_writable_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main([]) == 1
    stderr = capsys.readouterr().err
    assert str(tmp_path / "file") in stderr
    assert "XDG_CACHE_HOME" in stderr


class FakeKafka:
    """A broker and a sample: producing fails, perhaps because the broker has exited."""

    def __init__(self, log: Path, *, survives: bool) -> None:
        self.pids = {1: 123}
        self._log, self._survives = log, survives
        self._alive = True

    def is_alive(self, node: int) -> bool:
        return self._alive

    def log_file(self, node: int) -> Path:
        return self._log

    def produce_due(self) -> None:
        self._alive = self._survives
        raise BrokerError("records were not acknowledged")


def test_a_broker_that_exits_while_the_sample_is_produced_is_reported_with_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text("FATAL no space left\n")
    exited = cast("Any", FakeKafka(log, survives=False))
    assert _run_until_exit(exited, exited) == 1
    stderr = capsys.readouterr().err
    assert "Broker 1 exited" in stderr
    assert "FATAL no space left" in stderr
    alive = cast("Any", FakeKafka(log, survives=True))
    with pytest.raises(BrokerError, match="not acknowledged"):
        _run_until_exit(alive, alive)


class SlowKafka(FakeKafka):
    """A broker that is too slow for the first flights, and exits after the second ones."""

    def __init__(self, log: Path) -> None:
        super().__init__(log, survives=True)
        self.calls: list[str] = []

    def produce_due(self) -> None:
        self._alive = not self.calls
        self.calls.append("produce_due")
        if self._alive:
            raise BrokerTimeoutError("Records were not acknowledged within 30 s.")

    def reconnect(self) -> None:
        self.calls.append("reconnect")


def test_the_sample_retries_if_a_running_broker_does_not_acknowledge_the_flights_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.touch()
    slow = SlowKafka(log)
    assert _run_until_exit(cast("Any", slow), cast("Any", slow)) == 1
    assert slow.calls == ["produce_due", "reconnect", "produce_due"]
    stderr = capsys.readouterr().err
    assert "Records were not acknowledged within 30 s." in stderr
    assert "the sample retries" in stderr


def test_the_sample_has_a_short_delivery_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        servers = f"127.0.0.1:{closed.getsockname()[1]}"
    with TopicWriter(servers, "flights") as writer:
        assert writer._producer._settings.delivery_timeout_ms == 30_000


def test_an_unknown_sample_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--sample", "trains"])
    assert "flights" in capsys.readouterr().err


def test_the_example_code_is_valid_python() -> None:
    code = example_code("localhost:9092", "orders")
    compile(code, "paste", "exec")
    assert '"localhost:9092"' in code
    assert '"orders"' in code
