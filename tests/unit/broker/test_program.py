"""The command line of the broker."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyspark_kafka_direct.broker.__main__ import _watch, main, paste
from pyspark_kafka_direct.cli.sample import Flights
from pyspark_kafka_direct.errors import BrokerError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_topic_that_cannot_be_is_refused_before_a_broker_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--topic", "orders:none"]) == 1
    assert "'orders:none': the number of partitions must be" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--port", "0"], ["--port", "-1"], ["--port", "65534", "--brokers", "3"]])
def test_a_port_that_cannot_be_is_refused_before_a_broker_starts(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert f"port is {arguments[1]}: it must be from 1 to 6553" in capsys.readouterr().err


def test_whoever_finds_the_port_taken_is_told_how_to_choose_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "pyspark-kafka-direct" / "kafka-4.3.0").mkdir(parents=True)  # so that none is fetched
    (tmp_path / "pyspark-kafka-direct" / "kafka-4.3.0" / "kafka.jar").touch()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert f"Port {port} is taken" in told
    assert "--port" in told


def test_a_cache_that_cannot_be_written_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main([]) == 1
    told = capsys.readouterr().err
    assert str(tmp_path / "file") in told
    assert "XDG_CACHE_HOME" in told


class Watched:
    """A broker and a sample: when it writes, sending fails, perhaps because the broker has ended."""

    def __init__(self, log: Path, *, survives: bool) -> None:
        self.pids = {1: 123}
        self._log, self._survives = log, survives
        self._alive = True

    def is_alive(self, node: int) -> bool:
        return self._alive

    def log_file(self, node: int) -> Path:
        return self._log

    def write_due(self) -> None:
        self._alive = self._survives
        raise BrokerError("records were not acknowledged")


def test_a_broker_that_ends_while_the_sample_is_written_is_told_with_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text("FATAL no space left\n")
    ended = cast("Any", Watched(log, survives=False))
    assert _watch(ended, ended) == 1
    told = capsys.readouterr().err
    assert "Broker 1 ended by itself" in told
    assert "FATAL no space left" in told
    alive = cast("Any", Watched(log, survives=True))
    with pytest.raises(BrokerError, match="not acknowledged"):
        _watch(alive, alive)


def test_the_sample_does_not_wait_long_for_a_broker_that_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        servers = f"127.0.0.1:{gone.getsockname()[1]}"
    with Flights(servers) as flights:
        assert flights._producer._settings.delivery_timeout_ms == 30_000


def test_an_unknown_sample_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--sample", "trains"])
    assert "flights" in capsys.readouterr().err


def test_what_is_to_be_pasted_is_python() -> None:
    text = paste("localhost:9092", "orders")
    compile(text, "paste", "exec")
    assert '"localhost:9092"' in text
    assert '"orders"' in text
