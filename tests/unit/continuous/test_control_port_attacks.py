"""Strangers at the control port of a run, and a third party on the connection between the driver and a task."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.unit.continuous.coordinator_threads import (
    A0,
    A1,
    B0,
    LONG_EPOCHS,
    PLAN,
    SETTINGS,
    CoordinatorThread,
    deadline_in,
    next_epoch_request,
    raw_connection,
    read_message,
    report,
)

from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport
from pyspark_kafka_direct.continuous.control_messages import (
    EpochRequest,
    HandshakeChallenge,
    HandshakeRejected,
    decode_message,
    encode_message,
)
from pyspark_kafka_direct.continuous.control_socket import MAX_LINE_BYTES, ControlAddress, TaskChannel
from pyspark_kafka_direct.errors import QueryRunError

if TYPE_CHECKING:
    from collections.abc import Callable

LOCALHOST = "127.0.0.1"
OTHER_HOST = "127.0.0.2"  # another address of the same machine
MANY = 300  # more than may wait for their handshake

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have only one loopback address")


class Strangers:
    """Connections that send nothing."""

    def __init__(self, driver: CoordinatorThread, count: int, host: str = LOCALHOST) -> None:
        self._address = (driver.address.host, driver.address.port)
        self._sockets = [socket.create_connection(self._address, 120, (host, 0)) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets:
            sock.close()

    def wait_until_rejected(self, index: int) -> None:
        with self._sockets[index].makefile("rb") as file:
            file.read()


class Interceptor:
    """Relays lines between a task and the driver, and can send others."""

    def __init__(self, driver: CoordinatorThread) -> None:
        self._listener = socket.create_server((LOCALHOST, 0))
        self._driver_address = (driver.address.host, driver.address.port)
        self.address = replace(driver.address, port=self._listener.getsockname()[1])
        self.lines: dict[str, list[bytes]] = {"task": [], "driver": []}  # by the receiver
        self._sockets: dict[str, socket.socket] = {}
        self._threads: list[threading.Thread] = []
        self._run_in_thread(self._relay)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for sock in self._sockets.values():
            with suppress(OSError):  # the peer has closed it
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(120)
        for sock in self._sockets.values():
            sock.close()

    def connect(self, task: int) -> TaskChannel:
        return TaskChannel.connect(self.address, task, 0, deadline_in())

    def send(self, receiver: str, line: bytes) -> None:
        self._sockets[receiver].sendall(line)

    def _relay(self) -> None:
        self._sockets["task"], _ = self._listener.accept()
        self._sockets["driver"] = socket.create_connection(self._driver_address, 120)
        self._run_in_thread(lambda: self._forward("task", "driver"))
        self._forward("driver", "task")

    def _forward(self, sender: str, receiver: str) -> None:
        with self._sockets[sender].makefile("rb") as file:
            while line := self._read_line(file):
                self.lines[receiver].append(line)
                self._sockets[receiver].sendall(line)

    def _read_line(self, file: Any) -> bytes:
        try:
            return bytes(file.readline())
        except OSError:
            return b""

    def _run_in_thread(self, run: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()


class TestStrangersAtThePort:
    @pytest.mark.parametrize("host", [LOCALHOST, pytest.param(OTHER_HOST, marks=only_linux)])
    def test_many_connections_do_not_evict_a_task_in_its_handshake(
        self, drivers: Callable[..., CoordinatorThread], host: str
    ) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with raw_connection(driver) as first:
            read_message(first)  # the challenge
            with Strangers(driver, MANY, host) as strangers:
                strangers.wait_until_rejected(-1)
                first.sendall(b"?\n")
                assert "Expecting value" in read_message(first).reason, "the driver has read the message"

    @only_linux
    def test_many_connections_do_not_exclude_the_tasks_of_other_hosts(
        self, drivers: Callable[..., CoordinatorThread]
    ) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with Strangers(driver, MANY, OTHER_HOST) as strangers:
            strangers.wait_until_rejected(-1)
            assert len(driver.start_tasks()) == 2

    @only_linux
    def test_the_newest_connection_of_the_busiest_host_is_closed(
        self, drivers: Callable[..., CoordinatorThread], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pyspark_kafka_direct.continuous.handshake._MAX_EXTRA_CONNECTIONS", 0)
        driver = drivers(settings=LONG_EPOCHS)
        with raw_connection(driver, OTHER_HOST) as oldest, raw_connection(driver, OTHER_HOST) as newest:
            read_message(oldest)
            read_message(newest)
            driver.connect(0)
            assert newest.recv(1) == b""
            oldest.sendall(b"?\n")
            assert "Expecting value" in read_message(oldest).reason

    def test_a_task_waits_until_fewer_connections_are_waiting(
        self, drivers: Callable[..., CoordinatorThread], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pyspark_kafka_direct.continuous.handshake._MAX_EXTRA_CONNECTIONS", 0)
        driver = drivers(settings=LONG_EPOCHS)
        channels: list[TaskChannel] = []
        with Strangers(driver, 3) as strangers:
            strangers.wait_until_rejected(-1)
            task = threading.Thread(target=lambda: channels.append(driver.connect(0)), daemon=True)
            task.start()
            task.join(1)
            assert channels == [], "no place is free"
        task.join(120)
        assert len(channels) == 1

    def test_bytes_now_and_then_do_not_extend_the_deadline(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with raw_connection(driver) as slow, slow.makefile("rb") as file:
            file.readline()
            for _ in range(3):
                assert driver.keeps_polling()
                slow.sendall(b"{")
                assert driver.keeps_polling()
                driver.advance(4)
            assert decode_message(file.readline()) == HandshakeRejected("it sent no handshake within 10 s")

    def test_the_port_is_closed_when_all_tasks_have_connected(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with Strangers(driver, 1) as strangers:
            channels = driver.start_tasks()
            strangers.wait_until_rejected(0)
            with pytest.raises(ConnectionRefusedError):
                raw_connection(driver)
        driver.coordinator.stop()
        assert [next_epoch_request(channel) for channel in channels] == [EpochRequest(3, stop=True)] * 2

    @pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on descriptors")
    def test_accepting_resumes_when_descriptors_are_free_again(
        self,
        drivers: Callable[..., CoordinatorThread],
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        import resource

        monkeypatch.setattr("pyspark_kafka_direct.continuous.handshake._ACCEPT_RETRY_SECONDS", 60)
        driver = drivers(settings=LONG_EPOCHS)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as stranger:
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
            try:
                stranger.connect((driver.address.host, driver.address.port))
                polls = driver.polls_within(1)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert polls < 50, "the driver pauses between its attempts"
            driver.advance(60)
            assert len(driver.start_tasks()) == 2
        assert [each for each in caplog.messages if "could not be accepted: [Errno 24]" in each]


class TestLog:
    @pytest.mark.parametrize(
        "line",
        [b'{"type":"EpochRequest","epoch":1,"stop":true,"a\\nERROR b\\u001b[31m":1}\n', b'{"type":"\\n\\u001b"}\n'],
        ids=["field", "type"],
    )
    def test_line_breaks_and_control_characters_are_escaped(
        self, drivers: Callable[..., CoordinatorThread], caplog: pytest.LogCaptureFixture, line: bytes
    ) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with raw_connection(driver) as stranger:
            read_message(stranger)
            stranger.sendall(line)
            reason = read_message(stranger).reason
        driver.advance(120)
        messages = [*caplog.messages, reason, str(driver.failure())]
        assert [each for each in messages if not each.isprintable()] == []
        assert r"\x1b" in reason

    def test_a_task_escapes_what_an_unknown_program_sends(self) -> None:
        with socket.create_server((LOCALHOST, 0)) as listener:
            address = ControlAddress(LOCALHOST, listener.getsockname()[1], PLAN.run, PLAN.secret)

            def serve() -> None:
                sock, _ = listener.accept()
                with sock, sock.makefile("rb") as file:
                    sock.sendall(encode_message(HandshakeChallenge("n")))
                    file.readline()
                    sock.sendall(encode_message(HandshakeRejected("x\nERROR \x1b[31m")))

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            with pytest.raises(QueryRunError) as raised:
                TaskChannel.connect(address, 0, 0, deadline_in())
            thread.join(120)
        assert str(raised.value).isprintable()
        assert r"x\nERROR \x1b[31m" in str(raised.value)

    def test_many_rejections_log_one_warning(
        self, drivers: Callable[..., CoordinatorThread], caplog: pytest.LogCaptureFixture
    ) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        for _ in range(20):
            with raw_connection(driver) as stranger:
                read_message(stranger)
                stranger.sendall(b"GET / HTTP/1.1\r\n")
                read_message(stranger)
        assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 1


class TestThirdPartyOnTheConnection:
    def test_it_cannot_forge_a_report(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        with Interceptor(driver) as interceptor, interceptor.connect(0) as channel:
            other = driver.connect(1)
            for task in (channel, other):
                task.report_ready()
            for task in (channel, other):
                task.wait_for_start()
                next_epoch_request(task)
            report(other, 3, {A1: 6})
            interceptor.send("driver", encode_message(EpochReport(3, {A0: 1_000, B0: 1_000}, 0, 0, 0)))
            assert "sent an invalid message (its authentication code is wrong" in str(driver.failure())
        assert driver.epochs == []

    @pytest.mark.parametrize("length", [10, 10_000_000])
    def test_garbage_ends_the_run(self, drivers: Callable[..., CoordinatorThread], length: int) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with Interceptor(driver) as interceptor, interceptor.connect(0):
            interceptor.send("driver", b"{" * length + b"\n")
            assert "sent an invalid message (its authentication code is wrong" in str(driver.failure())

    def test_a_line_without_end_ends_the_run(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with Interceptor(driver) as interceptor, interceptor.connect(0):
            with suppress(OSError):  # the driver closes the connection
                for _ in range(1000):
                    interceptor.send("driver", b"{" * 1_000_000)
            assert f"sent an invalid message (a line of more than {MAX_LINE_BYTES} bytes)" in str(driver.failure())

    def test_it_cannot_stop_a_task(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with Interceptor(driver) as interceptor, interceptor.connect(0) as channel:
            driver.connect(1)
            channel.report_ready()
            channel.wait_for_start()
            interceptor.send("task", encode_message(EpochRequest(3, stop=True)))
            with pytest.raises(QueryRunError, match="sent an invalid message"):
                next_epoch_request(channel)

    def test_it_cannot_replay_a_request(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=replace(SETTINGS, epoch_interval=0.5))
        with Interceptor(driver) as interceptor, interceptor.connect(0) as channel:
            driver.connect(1)
            channel.report_ready()
            channel.wait_for_start()
            assert next_epoch_request(channel).epoch == 3
            interceptor.send("task", interceptor.lines["task"][-1])
            with pytest.raises(QueryRunError, match="sent an invalid message"):
                next_epoch_request(channel)

    def test_it_cannot_replay_a_report(self, drivers: Callable[..., CoordinatorThread]) -> None:
        """The id of an epoch without progress is requested twice, and the second response moves back."""
        driver = drivers()
        with Interceptor(driver) as interceptor, interceptor.connect(0) as channel:
            other = driver.connect(1)
            for task in (channel, other):
                task.report_ready()
            for task in (channel, other):
                task.wait_for_start()
                assert next_epoch_request(task).epoch == 3
            report(channel, 3, {A0: 5, B0: 7})
            report(other, 3, {A1: 6})
            for task in (channel, other):
                assert next_epoch_request(task).epoch == 3
            report(other, 3, {A1: 6})
            interceptor.send("driver", interceptor.lines["driver"][-1])
            assert "sent an invalid message (its authentication code is wrong" in str(driver.failure())
        assert len(driver.epochs) == 1

    def test_it_cannot_reflect_a_message(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with Interceptor(driver) as interceptor, interceptor.connect(0) as channel:
            driver.connect(1)
            channel.report_ready()
            channel.wait_for_start()
            interceptor.send("driver", interceptor.lines["task"][-1])
            assert "sent an invalid message (its authentication code is wrong" in str(driver.failure())

    def test_it_cannot_replay_a_connection_in_the_next_run(self, drivers: Callable[..., CoordinatorThread]) -> None:
        """With the same secret: the driver's nonce alone makes the difference."""
        first = drivers(settings=LONG_EPOCHS)
        with Interceptor(first) as interceptor, interceptor.connect(0) as channel:
            channel.report_failure(ValueError("on purpose"), deadline_in())
            assert "on purpose" in str(first.failure())
            recorded = list(interceptor.lines["driver"])
        second = drivers(settings=LONG_EPOCHS)
        with raw_connection(second) as stranger:
            read_message(stranger)
            stranger.sendall(recorded[0])
            assert read_message(stranger) == HandshakeRejected("it does not have the secret of the run")
        assert len(second.start_tasks()) == 2
