"""The driver's side of a run, with tasks in this process."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest
from tests.unit.client.fake_systems import FakeTimeSystem
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

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.continuous.control_messages import (
    DriverHandshake,
    EpochRequest,
    HandshakeChallenge,
    HandshakeRejected,
    StartTask,
    TaskHandshake,
    decode_message,
    encode_message,
)
from pyspark_kafka_direct.continuous.control_socket import ControlAddress, TaskChannel
from pyspark_kafka_direct.continuous.epoch_coordinator import EpochCoordinator, RunPlan, RunStart
from pyspark_kafka_direct.continuous.message_authentication import task_proof
from pyspark_kafka_direct.errors import QueryRunError, TaskStartTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult


class TestCompleteRuns:
    def test_from_handshake_to_stop(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        channels = [driver.connect(1), driver.connect(0)]
        assert channels[0].wait_for_start() == StartTask(3, {A1: 6})
        assert channels[1].wait_for_start() == StartTask(3, {A0: 5, B0: 7})
        for epoch in (3, 4):
            assert [next_epoch_request(channel) for channel in channels] == [EpochRequest(epoch, stop=False)] * 2
            report(channels[0], epoch, {A1: 10 * epoch})
            assert len(driver.epochs) == epoch - 3
            if epoch == 4:
                driver.coordinator.stop()
            report(channels[1], epoch, {A0: epoch + 5, B0: 7})
        assert [next_epoch_request(channel) for channel in channels] == [EpochRequest(5, stop=True)] * 2
        report(channels[0], 5, {A1: 50})
        channels[0].close()
        report(channels[1], 5, {A0: 10, B0: 7})
        assert driver.wait().error is None
        assert [dict(each.offsets) for each in driver.epochs] == [
            {A0: 8, A1: 30, B0: 7},
            {A0: 9, A1: 40, B0: 7},
            {A0: 10, A1: 50, B0: 7},
        ]
        assert [(each.epoch, each.rows, each.rows_read, each.bytes, each.last) for each in driver.epochs] == [
            (3, 3, 30, 200, False),
            (4, 3, 30, 200, False),
            (5, 3, 30, 200, True),
        ]
        assert driver.result == driver.epochs[-1]

    def test_a_stop_does_not_wait_for_the_interval(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        channels = driver.start_tasks()
        driver.coordinator.stop()
        assert [next_epoch_request(channel) for channel in channels] == [EpochRequest(3, stop=True)] * 2

    def test_a_stop_before_all_have_started(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        channel = driver.connect(0)
        driver.coordinator.stop()
        driver.wait()
        assert (driver.result, driver.error, driver.epochs) == (None, None, [])
        with pytest.raises(QueryRunError, match="closed the connection"):
            channel.wait_for_start()

    def test_the_next_epoch_runs_while_the_last_one_is_committed(
        self, drivers: Callable[..., CoordinatorThread]
    ) -> None:
        committed = threading.Event()
        driver = drivers(on_epoch=lambda _: (committed.wait(120), None)[1])
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            assert next_epoch_request(channel).epoch == 3
            report(channel, 3, offsets)
        for channel, offsets in zip(channels, ({A0: 7, B0: 8}, {A1: 7}), strict=True):
            assert next_epoch_request(channel).epoch == 4
            report(channel, 4, offsets)
        time.sleep(5 * SETTINGS.epoch_interval)
        assert [channel.receive() for channel in channels] == [[], []], "at most two epochs are in flight"
        committed.set()
        assert [next_epoch_request(channel).epoch for channel in channels] == [5, 5]

    def test_epochs_are_merged_while_a_commit_is_in_flight(self, drivers: Callable[..., CoordinatorThread]) -> None:
        committed = threading.Event()
        driver = drivers(replace(PLAN, coalesces_epochs=True), on_epoch=lambda _: (committed.wait(120), None)[1])
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            assert next_epoch_request(channel).epoch == 3
            report(channel, 3, offsets)
        for offset in (7, 8, 9):
            for channel, offsets in zip(channels, ({A0: offset, B0: 8}, {A1: 7}), strict=True):
                assert next_epoch_request(channel).epoch == 4, (
                    "an epoch that is not committed yet is merged with the next one"
                )
                report(channel, 4, offsets)
        committed.set()
        while (request := next_epoch_request(channels[0])).epoch == 4:
            assert next_epoch_request(channels[1]).epoch == 4
            for channel, offsets in zip(channels, ({A0: 9, B0: 8}, {A1: 7}), strict=True):
                report(channel, 4, offsets)
        assert request.epoch == 5
        third, fourth = driver.epochs
        assert (third.epoch, third.offsets[A0], fourth.epoch, fourth.offsets[A0]) == (3, 6, 4, 9)
        assert fourth.rows >= 9, "the rows of three epochs"

    def test_a_run_ends_after_the_commit_in_flight(self, drivers: Callable[..., CoordinatorThread]) -> None:
        started, release, committed = threading.Event(), threading.Event(), []

        def commit(result: EpochResult) -> None:
            started.set()
            assert release.wait(120)
            committed.append(result.epoch)

        driver = drivers(on_epoch=commit)
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            assert next_epoch_request(channel).epoch == 3
            report(channel, 3, offsets)
        assert started.wait(120)
        driver.coordinator.abort(QueryRunError("on purpose"))
        time.sleep(0.2)
        assert driver.error is None, "the run waits for the commit"
        release.set()
        driver.wait()
        assert (str(driver.error), committed) == ("on purpose", [3])

    def test_the_id_of_an_epoch_without_progress_is_reused(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        for epoch, moved in ((3, 6), (3, 8), (4, 8), (4, 9), (5, 9)):
            assert [next_epoch_request(channel).epoch for channel in channels] == [epoch, epoch]
            report(channels[0], epoch, {A0: 5, B0: 7})
            report(channels[1], epoch, {A1: moved})
        assert [next_epoch_request(channel).epoch for channel in channels] == [5, 5]
        assert [each.epoch for each in driver.epochs] == [3, 3, 4, 4, 5]

    def test_an_abort_is_raised(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        driver.start_tasks()
        driver.coordinator.abort(KeyError("the job has ended"))
        assert isinstance(driver.wait().error, KeyError)

    def test_a_failed_commit_ends_the_run(self, drivers: Callable[..., CoordinatorThread]) -> None:
        def fail(_: EpochResult) -> None:
            raise FileExistsError("offsets/3")

        driver = drivers(on_epoch=fail)
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 5, B0: 7}, {A1: 6}), strict=True):
            report(channel, next_epoch_request(channel).epoch, offsets)
        assert isinstance(driver.wait().error, FileExistsError)
        with pytest.raises(QueryRunError, match="closed the connection"):
            # On a busy machine, the next epoch may be requested before the commit fails.
            list(iter(lambda: next_epoch_request(channels[0]), None))

    def test_the_port_is_released(self, drivers: Callable[..., CoordinatorThread]) -> None:
        first = drivers()
        first.start_tasks()
        first.coordinator.abort(KeyError())
        port = first.wait().coordinator.port
        settings = replace(SETTINGS, control_port=port)
        with EpochCoordinator(PLAN, settings, lambda _: None, "127.0.0.1") as second:
            assert second.port == port


class TestFailures:
    def test_a_task_that_fails(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        driver.start_tasks()[1].report_failure(ZeroDivisionError("in the function"), deadline_in())
        error = driver.failure()
        assert "failed with ZeroDivisionError: in the function" in str(error)
        assert (error.task_index, error.cause_class) == (1, "ZeroDivisionError")

    def test_a_long_failure_message(self, drivers: Callable[..., CoordinatorThread]) -> None:
        """The limit for connections before the handshake does not apply."""
        driver = drivers(settings=LONG_EPOCHS)
        driver.start_tasks()[0].report_failure(ValueError("x" * 10_000), deadline_in())
        assert "x" * 10_000 in str(driver.failure())

    def test_a_failure_message_that_ends_with_a_period(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        driver.start_tasks()[0].report_failure(ValueError("No such column."), deadline_in())
        assert "ValueError: No such column. The next run reads again" in str(driver.failure())

    def test_a_task_that_fails_while_others_start(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        driver.connect(1).report_failure(ZeroDivisionError(), deadline_in())
        assert driver.failure().cause_class == "ZeroDivisionError"

    @pytest.mark.parametrize("requested", [False, True])
    def test_a_task_that_is_lost(self, drivers: Callable[..., CoordinatorThread], requested: bool) -> None:
        driver = drivers(settings=SETTINGS if requested else LONG_EPOCHS)
        channels = driver.start_tasks()
        if requested:
            next_epoch_request(channels[1])
        channels[1].close()
        error = driver.failure()
        assert "The connection to task 1 (" in str(error)
        assert (error.task_index, error.cause_class) == (1, None)

    def test_a_task_that_is_lost_after_its_report(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        report(channels[1], next_epoch_request(channels[1]).epoch, {A1: 6})
        channels[1].close()
        assert driver.failure().task_index == 1

    def test_a_task_that_is_lost_before_its_last_report(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        channels = driver.start_tasks()
        driver.coordinator.stop()
        report(channels[0], next_epoch_request(channels[0]).epoch, {A0: 5, B0: 7})
        channels[1].close()
        assert driver.failure().task_index == 1
        assert driver.epochs == []

    def test_a_report_that_arrived_while_the_driver_was_suspended(
        self, drivers: Callable[..., CoordinatorThread]
    ) -> None:
        driver = drivers(settings=replace(SETTINGS, epoch_timeout=130))
        channels = driver.start_tasks()
        report(channels[0], next_epoch_request(channels[0]).epoch, {A0: 8, B0: 7})
        next_epoch_request(channels[1])
        until = time.monotonic() + 120
        while driver.coordinator._unreported_tasks != {1} and time.monotonic() < until:
            time.sleep(0.001)
        driver.stall(200)
        report(channels[1], 3, {A1: 9})
        assert [next_epoch_request(channel) for channel in channels] == [EpochRequest(4, stop=False)] * 2
        assert driver.epochs[0].offsets == {A0: 8, A1: 9, B0: 7}

    def test_a_late_report(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        report(channels[0], next_epoch_request(channels[0]).epoch, {A0: 5, B0: 7})
        until = time.monotonic() + 120
        while driver.coordinator._unreported_tasks != {1} and time.monotonic() < until:
            time.sleep(0.001)
        driver.advance(120)
        error = driver.failure()
        assert "1 of 2 tasks did not report epoch 3 within 120 s: task 1 (" in str(error)
        assert "raise epochTimeout" in str(error)
        assert error.task_index == 1

    def test_inconsistent_reports(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        report(channels[0], next_epoch_request(channels[0]).epoch, {A0: 5, B0: 6})
        report(channels[1], next_epoch_request(channels[1]).epoch, {A1: 6})
        assert "moved back from offset 7 to 6" in str(driver.failure())
        assert driver.epochs == []

    def test_a_position_that_moves_back(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        for last in (8, 7):
            report(channels[0], next_epoch_request(channels[0]).epoch, {A0: 5, B0: 7})
            report(channels[1], next_epoch_request(channels[1]).epoch, {A1: last})
        assert "moved back from offset 8 to 7" in str(driver.failure())
        assert [each.epoch for each in driver.epochs] == [3]

    def test_a_slow_reader_receives_its_start_message(self, drivers: Callable[..., CoordinatorThread]) -> None:
        """The message exceeds the socket buffers, so the coordinator has to wait until the socket is writable."""
        partitions = [TopicPartition("a", number) for number in range(20_000)]
        start = RunStart((tuple(partitions),), dict.fromkeys(partitions, 1 << 60), 0)
        driver = drivers(RunPlan("run-1", Secret("hush"), 1, lambda _: start), LONG_EPOCHS)
        channel = driver.connect(0)
        SYSTEM.wait_ready([channel.fileno()], [], 120)
        assert driver.coordinator._tasks[0].connection.has_unsent
        assert len(channel.wait_for_start().offsets) == len(partitions)

    def test_an_unrequested_report(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        report(driver.start_tasks()[0], 3, {A0: 5, B0: 7})
        assert "sent an unexpected message of type EpochReport" in str(driver.failure())

    def test_two_reports_of_one_task(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        next_epoch_request(channels[0])
        for _ in range(2):
            report(channels[0], 3, {A0: 5, B0: 7})
        report(channels[1], next_epoch_request(channels[1]).epoch, {A1: 6})
        error = driver.failure()  # the second report may arrive after that of task 1, which ends the epoch
        assert re.search("task 0 reported twice|Task 0 .* sent an unexpected message of type EpochReport", str(error))
        assert error.task_index == 0

    def test_an_invalid_message(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        driver.start_tasks()[0]._connection.send(b"?\n")
        error = driver.failure()
        assert "sent an invalid message" in str(error)
        assert error.task_index == 0


class TestHandshakes:
    def test_too_few_tasks(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        driver.connect(0)
        driver.advance(120)
        error = driver.failure()
        assert isinstance(error, TaskStartTimeoutError)
        message = str(error)
        assert "1 of 2 tasks did not start within 120 s (task 1)" in message
        assert "needs 2 free cores" in message
        assert "lower tasksMax, or raise taskStartTimeout" in message
        assert f"port {driver.address.port}" in message

    def test_a_wrong_secret(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        with pytest.raises(QueryRunError, match="rejected task 0: it does not have the secret of the run"):
            driver.connect(0, secret=Secret("guess"))
        driver.connect(0)
        driver.advance(120)
        assert "A connection to the control port from 127.0.0.1 was rejected: it does not have" in str(driver.failure())

    def test_a_task_of_an_earlier_run(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        with pytest.raises(QueryRunError, match="belongs to an earlier run, or to another query"):
            driver.connect(0, run="run-0")
        assert len(driver.start_tasks()) == 2

    def test_a_replayed_handshake(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        with raw_connection(driver) as first, raw_connection(driver) as second:
            challenge = read_message(first)
            handshake = TaskHandshake(PLAN.run, 0, 0, "host", 1, "task nonce")
            handshake = replace(handshake, proof=task_proof(PLAN.secret, challenge.nonce, handshake))
            assert read_message(second) != challenge
            second.sendall(encode_message(handshake))
            assert read_message(second) == HandshakeRejected("it does not have the secret of the run")
            first.sendall(encode_message(handshake))
            assert isinstance(read_message(first), DriverHandshake)

    @pytest.mark.parametrize("attempt", [0, 1])
    def test_a_second_attempt_of_a_task_ends_the_run(
        self, drivers: Callable[..., CoordinatorThread], attempt: int
    ) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        channel = driver.connect(1)
        with pytest.raises(QueryRunError, match="Cannot connect to the query's driver"):
            driver.connect(1, attempt)
        error = driver.failure()
        assert "Spark started task 1" in str(error)
        assert ("attempt 1" if attempt else "a second time") in str(error)
        assert error.task_index == 1
        with pytest.raises(QueryRunError, match="closed the connection"):
            channel.wait_for_start()

    def test_a_second_attempt_fails_when_all_tasks_have_connected(
        self, drivers: Callable[..., CoordinatorThread]
    ) -> None:
        """The first attempt continues. If it was lost, its connection breaks, or its next report is late."""
        driver = drivers()
        channels = driver.start_tasks()
        with pytest.raises(QueryRunError, match="or Spark started it again"):
            driver.connect(1, 1)
        assert [next_epoch_request(channel).epoch for channel in channels] == [3, 3]

    def test_all_connections_are_closed_if_one_task_ends_the_run(self) -> None:
        with (
            EpochCoordinator(PLAN, LONG_EPOCHS, lambda _: None, "127.0.0.1") as coordinator,
            socket.create_connection(("127.0.0.1", coordinator.port), 120) as first,
            socket.create_connection(("127.0.0.1", coordinator.port), 120) as second,
        ):
            while len(coordinator._handshake_server.descriptors()) < 3:
                coordinator._poll(SYSTEM.monotonic() + 120)
            for sock in (first, second):
                handshake = TaskHandshake(PLAN.run, 1, 1, "host", 1, "task nonce")  # the second attempt of a task
                proof = task_proof(PLAN.secret, read_message(sock).nonce, handshake)
                sock.sendall(encode_message(replace(handshake, proof=proof)))
            pending = set(coordinator._handshake_server.descriptors()[1:])
            while SYSTEM.wait_ready(pending, [], 120) != pending:
                pass
            with pytest.raises(QueryRunError, match="attempt 1"):
                coordinator.run()
            for sock in (first, second):
                with suppress(ConnectionResetError):  # its handshake was not read
                    assert sock.recv(1) == b""

    def test_a_task_that_spark_has_retried(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        with pytest.raises(QueryRunError):
            driver.connect(0, 1)
        assert "attempt 1" in str(driver.failure())

    def test_an_unknown_task(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers()
        with pytest.raises(QueryRunError):
            driver.connect(2)
        assert re.search("Task 2 .* does not exist", str(driver.failure()))

    @pytest.mark.parametrize(
        ("sent", "reason"),
        [
            (b"GET / HTTP/1.1\r\n", "Expecting value"),
            (b"x" * 5000, "a line of more than 4096 bytes"),
            (
                encode_message(EpochRequest(1, stop=True)),
                "it sent a message of type EpochRequest instead of a handshake",
            ),
            (encode_message(EpochRequest(1, stop=True)) * 2, "it sent more messages before the handshake was complete"),
            (b"", "it closed the connection"),
        ],
        ids=["HTTP", "no line end", "other message", "two lines", "nothing"],
    )
    def test_other_connections_are_rejected_without_effect(
        self, drivers: Callable[..., CoordinatorThread], sent: bytes, reason: str
    ) -> None:
        driver = drivers()
        with raw_connection(driver) as stranger:
            assert isinstance(read_message(stranger), HandshakeChallenge)
            stranger.sendall(sent)
            stranger.shutdown(socket.SHUT_WR)
            response = read_message(stranger)
            assert isinstance(response, HandshakeRejected)
            assert reason in response.reason
        assert len(driver.start_tasks()) == 2

    def test_a_silent_connection_is_rejected(self, drivers: Callable[..., CoordinatorThread]) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        with raw_connection(driver) as silent, silent.makefile("rb") as file:
            assert isinstance(decode_message(file.readline()), HandshakeChallenge)
            driver.advance(20)
            assert decode_message(file.readline()) == HandshakeRejected("it sent no handshake within 10 s")


class TestTaskChannel:
    """The peer may be any process."""

    @staticmethod
    def connect_to_fake_driver(
        *responses: Callable[[TaskHandshake | None], bytes], secret: Secret = PLAN.secret
    ) -> TaskChannel:
        """Connect to a driver that sends these messages."""
        with SYSTEM.listen("127.0.0.1", 0) as listener:
            address = ControlAddress("127.0.0.1", listener.getsockname()[1], "run-1", secret)
            listener.setblocking(True)

            def serve() -> None:
                sock, _ = listener.accept()
                with sock, sock.makefile("rb") as file:
                    sock.sendall(responses[0](None))
                    for response in responses[1:]:
                        handshake = decode_message(file.readline())
                        assert isinstance(handshake, TaskHandshake)
                        sock.sendall(response(handshake))

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                return TaskChannel.connect(address, 0, 0, deadline_in())
            finally:
                thread.join(120)

    def test_a_driver_without_the_secret(self) -> None:
        with pytest.raises(QueryRunError, match="does not have the secret of the run"):
            self.connect_to_fake_driver(
                lambda _: encode_message(HandshakeChallenge("n")), lambda _: encode_message(DriverHandshake("guess"))
            )

    def test_a_driver_that_reflects_the_proof(self) -> None:
        with pytest.raises(QueryRunError, match="does not have the secret of the run"):
            self.connect_to_fake_driver(
                lambda _: encode_message(HandshakeChallenge("n")),
                lambda handshake: encode_message(DriverHandshake(handshake.proof if handshake else "")),
            )

    def test_another_protocol_version(self) -> None:
        with pytest.raises(QueryRunError, match=r"uses control protocol version 5, .* Install the same version"):
            self.connect_to_fake_driver(lambda _: encode_message(HandshakeChallenge("n", 5)))

    def test_another_program(self) -> None:
        with pytest.raises(QueryRunError, match="sent an invalid message"):
            self.connect_to_fake_driver(lambda _: b"HTTP/1.1 400 Bad Request\r\n")

    def test_a_driver_that_skips_the_handshake(self) -> None:
        with pytest.raises(QueryRunError, match="sent an unexpected message of type EpochRequest"):
            self.connect_to_fake_driver(lambda _: encode_message(EpochRequest(1, stop=True)))

    def test_no_driver(self) -> None:
        with SYSTEM.listen("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(QueryRunError, match=f"Cannot connect to the query's driver at 127.0.0.1:{port}"):
            TaskChannel.connect(ControlAddress("127.0.0.1", port, "run-1", PLAN.secret), 0, 0, deadline_in())

    def test_a_silent_driver(self) -> None:
        with SYSTEM.listen("127.0.0.1", 0) as listener:
            address = ControlAddress("127.0.0.1", listener.getsockname()[1], "run-1", PLAN.secret)
            with pytest.raises(QueryRunError, match=r"did not respond in time\. If it is slow, raise taskStartTimeout"):
                TaskChannel.connect(address, 0, 0, Deadline.after(0.1, "taskStartTimeout", system=SYSTEM))

    def test_a_driver_that_closes_every_connection(self) -> None:
        with SYSTEM.listen("127.0.0.1", 0) as listener:
            listener.setblocking(True)
            address = ControlAddress("127.0.0.1", listener.getsockname()[1], "run-1", PLAN.secret)
            accepted: list[int] = []

            def serve() -> None:
                with suppress(OSError):  # the listener was shut down
                    while True:
                        sock, _ = listener.accept()
                        accepted.append(sock.fileno())
                        sock.close()

            thread = threading.Thread(target=serve)
            thread.start()
            with pytest.raises(QueryRunError, match="repeatedly closed the connection during the handshake"):
                TaskChannel.connect(address, 0, 0, Deadline.after(2, system=FakeTimeSystem()))
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(120)
        assert 1 < len(accepted) < 20, "the task pauses between its attempts"

    def test_a_request_is_received_before_the_closed_connection(
        self, drivers: Callable[..., CoordinatorThread]
    ) -> None:
        driver = drivers(settings=LONG_EPOCHS)
        channels = driver.start_tasks()
        driver.coordinator.stop()
        SYSTEM.wait_ready([channels[0].fileno()], [], 120)
        driver.close_coordinator()
        assert next_epoch_request(channels[0]) == EpochRequest(3, stop=True)
        with pytest.raises(QueryRunError, match="it ended this run, or has died"):
            next_epoch_request(channels[0])


def test_an_epoch_waits_for_tasks_only(drivers: Callable[..., CoordinatorThread]) -> None:
    """From its requests to its commit, no wait ends by a timeout, so an epoch takes less than a millisecond."""
    committed: SimpleQueue[int] = SimpleQueue()
    driver = drivers(settings=LONG_EPOCHS, on_epoch=lambda each: committed.put(each.epoch))
    channels = driver.start_tasks()
    driver.ignore_timeouts()
    for epoch in range(3, 23):
        assert driver.keeps_polling(), "it waits until the next request is due"
        driver.advance(LONG_EPOCHS.epoch_interval + 1)
        assert [next_epoch_request(channel).epoch for channel in channels] == [epoch, epoch]
        report(channels[0], epoch, {A0: 5, B0: 7})
        report(channels[1], epoch, {A1: 6 + epoch})
        assert committed.get(timeout=120) == epoch
