"""The driver's side of a run, with tasks in another simulated process."""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.continuous.run_cluster import (
    A0,
    A1,
    B0,
    LONG_EPOCHS,
    PLAN,
    SETTINGS,
    START,
    Gate,
    Peer,
    RunCluster,
    Stranger,
)
from tests.unit.continuous.run_cluster import cluster as cluster

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.system import Address, RealSystem
from pyspark_kafka_direct.continuous.control_messages import (
    DriverHandshake,
    EpochRequest,
    HandshakeChallenge,
    HandshakeRejected,
    StartTask,
    TaskHandshake,
    encode_message,
)
from pyspark_kafka_direct.continuous.control_socket import ControlAddress, TaskChannel
from pyspark_kafka_direct.continuous.epoch_coordinator import EpochCoordinator, RunPlan, RunStart
from pyspark_kafka_direct.continuous.message_authentication import task_proof
from pyspark_kafka_direct.errors import QueryRunError, TaskStartTimeoutError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult


class TestCompleteRuns:
    def test_from_handshake_to_stop(self, cluster: RunCluster) -> None:
        ids = {A0: UUID(int=1), A1: UUID(int=1), B0: UUID(int=2)}
        driver = cluster.driver(replace(PLAN, prepare=lambda _: replace(START, topic_ids=ids)))
        channels = [driver.connect(1), driver.connect(0)]
        assert channels[0].wait_for_start() == StartTask(3, {A1: 6}, topic_ids={A1: ids[A1]})
        assert channels[1].wait_for_start() == StartTask(3, {A0: 5, B0: 7}, topic_ids={tp: ids[tp] for tp in (A0, B0)})
        for epoch in (3, 4):
            assert [cluster.next_epoch_request(channel) for channel in channels] == [
                EpochRequest(epoch, stop=False)
            ] * 2
            cluster.report(channels[0], epoch, {A1: 10 * epoch})
            assert len(driver.epochs) == epoch - 3
            if epoch == 4:
                driver.coordinator.stop()
            cluster.report(channels[1], epoch, {A0: epoch + 5, B0: 7})
        assert [cluster.next_epoch_request(channel) for channel in channels] == [EpochRequest(5, stop=True)] * 2
        cluster.report(channels[0], 5, {A1: 50})
        channels[0].close()
        cluster.report(channels[1], 5, {A0: 10, B0: 7})
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

    def test_a_stop_does_not_wait_for_the_interval(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        channels = driver.start_tasks()
        driver.coordinator.stop()
        assert [cluster.next_epoch_request(channel) for channel in channels] == [EpochRequest(3, stop=True)] * 2

    def test_a_stop_before_all_have_started(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        channel = driver.connect(0)
        driver.coordinator.stop()
        driver.wait()
        assert (driver.result, driver.error, driver.epochs) == (None, None, [])
        with pytest.raises(QueryRunError, match="closed the connection"):
            channel.wait_for_start()

    def test_the_next_epoch_runs_while_the_last_one_is_committed(self, cluster: RunCluster) -> None:
        commit = Gate(cluster)
        driver = cluster.driver(on_epoch=commit)
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            assert cluster.next_epoch_request(channel).epoch == 3
            cluster.report(channel, 3, offsets)
        for channel, offsets in zip(channels, ({A0: 7, B0: 8}, {A1: 7}), strict=True):
            assert cluster.next_epoch_request(channel).epoch == 4
            cluster.report(channel, 4, offsets)
        cluster.sleep(5 * SETTINGS.epoch_interval)
        assert [channel.receive() for channel in channels] == [[], []], "at most two epochs are in flight"
        commit.is_open = True
        assert [cluster.next_epoch_request(channel).epoch for channel in channels] == [5, 5]

    def test_epochs_are_merged_while_a_commit_is_in_flight(self, cluster: RunCluster) -> None:
        commit = Gate(cluster)
        driver = cluster.driver(replace(PLAN, coalesces_epochs=True), on_epoch=commit)
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            assert cluster.next_epoch_request(channel).epoch == 3
            cluster.report(channel, 3, offsets)
        for offset in (7, 8, 9):
            for channel, offsets in zip(channels, ({A0: offset, B0: 8}, {A1: 7}), strict=True):
                assert cluster.next_epoch_request(channel).epoch == 4, (
                    "an epoch that is not committed yet is merged with the next one"
                )
                cluster.report(channel, 4, offsets)
        commit.is_open = True
        while (request := cluster.next_epoch_request(channels[0])).epoch == 4:
            assert cluster.next_epoch_request(channels[1]).epoch == 4
            for channel, offsets in zip(channels, ({A0: 9, B0: 8}, {A1: 7}), strict=True):
                cluster.report(channel, 4, offsets)
        assert request.epoch == 5
        third, fourth = driver.epochs
        assert (third.epoch, third.offsets[A0], fourth.epoch, fourth.offsets[A0]) == (3, 6, 4, 9)
        assert fourth.rows >= 9, "the rows of three epochs"

    def test_a_run_ends_after_the_commit_in_flight(self, cluster: RunCluster) -> None:
        commit = Gate(cluster)
        driver = cluster.driver(on_epoch=commit)
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            assert cluster.next_epoch_request(channel).epoch == 3
            cluster.report(channel, 3, offsets)
        cluster.sleep(0.1)
        assert commit.was_reached
        driver.coordinator.abort(QueryRunError("on purpose"))
        cluster.sleep(1)
        assert driver.error is None, "the run waits for the commit"
        commit.is_open = True
        driver.wait()
        assert (str(driver.error), commit.was_passed) == ("on purpose", True)

    def test_the_id_of_an_epoch_without_progress_is_reused(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        channels = driver.start_tasks()
        for epoch, moved in ((3, 6), (3, 8), (4, 8), (4, 9), (5, 9)):
            assert [cluster.next_epoch_request(channel).epoch for channel in channels] == [epoch, epoch]
            cluster.report(channels[0], epoch, {A0: 5, B0: 7})
            cluster.report(channels[1], epoch, {A1: moved})
        assert [cluster.next_epoch_request(channel).epoch for channel in channels] == [5, 5]
        assert [each.epoch for each in driver.epochs] == [3, 3, 4, 4, 5]

    def test_an_abort_is_raised(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        driver.start_tasks()
        cluster.sleep(1)
        began = cluster.now
        driver.coordinator.abort(KeyError("the job has ended"))
        assert isinstance(driver.wait().error, KeyError)
        assert cluster.now - began < 1

    def test_a_failed_commit_ends_the_run(self, cluster: RunCluster) -> None:
        def fail(_: EpochResult) -> None:
            raise FileExistsError("offsets/3")

        driver = cluster.driver(on_epoch=fail)
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 5, B0: 7}, {A1: 6}), strict=True):
            cluster.report(channel, cluster.next_epoch_request(channel).epoch, offsets)
        assert isinstance(driver.wait().error, FileExistsError)
        with pytest.raises(QueryRunError, match="closed the connection"):
            # The next epoch may be requested before the commit fails.
            list(iter(lambda: cluster.next_epoch_request(channels[0]), None))

    def test_the_port_is_released(self, cluster: RunCluster) -> None:
        first = cluster.driver()
        first.start_tasks()
        first.coordinator.abort(KeyError())
        port = first.wait().coordinator.port
        settings = replace(SETTINGS, control_port=port)
        with EpochCoordinator(PLAN, settings, lambda _: None, first.process.name, first.process) as second:
            assert second.port == port


class SmallBuffers(RealSystem):
    """The real system, whose listeners have small send buffers."""

    def listen(self, host: str, port: int) -> socket.socket:
        listener = super().listen(host, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # accepted connections inherit it
        return listener


class TestFailures:
    def test_a_task_that_fails(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        driver.start_tasks()[1].report_failure(ZeroDivisionError("in the function"), cluster.deadline())
        error = driver.failure()
        assert "failed with ZeroDivisionError: in the function" in str(error)
        assert (error.task_index, error.cause_class) == (1, "ZeroDivisionError")

    def test_a_long_failure_message(self, cluster: RunCluster) -> None:
        """The limit for connections before the handshake does not apply."""
        driver = cluster.driver(settings=LONG_EPOCHS)
        driver.start_tasks()[0].report_failure(ValueError("x" * 10_000), cluster.deadline())
        assert "x" * 10_000 in str(driver.failure())

    def test_a_failure_message_that_ends_with_a_period(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        driver.start_tasks()[0].report_failure(ValueError("No such column."), cluster.deadline())
        assert "ValueError: No such column. The next run reads again" in str(driver.failure())

    def test_a_task_that_fails_while_others_start(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        driver.connect(1).report_failure(ZeroDivisionError(), cluster.deadline())
        assert driver.failure().cause_class == "ZeroDivisionError"

    @pytest.mark.parametrize("requested", [False, True])
    def test_a_task_that_is_lost(self, cluster: RunCluster, requested: bool) -> None:
        driver = cluster.driver(settings=SETTINGS if requested else LONG_EPOCHS)
        channels = driver.start_tasks()
        if requested:
            cluster.next_epoch_request(channels[1])
        channels[1].close()
        error = driver.failure()
        assert "The connection to task 1 (" in str(error)
        assert (error.task_index, error.cause_class) == (1, None)

    def test_a_task_that_is_lost_after_its_report(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        channels = driver.start_tasks()
        cluster.report(channels[1], cluster.next_epoch_request(channels[1]).epoch, {A1: 6})
        channels[1].close()
        assert driver.failure().task_index == 1

    def test_a_task_that_is_lost_before_its_last_report(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        channels = driver.start_tasks()
        driver.coordinator.stop()
        cluster.report(channels[0], cluster.next_epoch_request(channels[0]).epoch, {A0: 5, B0: 7})
        channels[1].close()
        assert driver.failure().task_index == 1
        assert driver.epochs == []

    def test_a_report_that_arrived_while_the_driver_was_suspended(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=replace(SETTINGS, epoch_timeout=130))
        channels = driver.start_tasks()
        cluster.report(channels[0], cluster.next_epoch_request(channels[0]).epoch, {A0: 8, B0: 7})
        cluster.next_epoch_request(channels[1])
        cluster.sleep(0.1)
        wait_ready = driver.process.wait_ready

        def suspended(to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
            """Suspend the process after the wait has timed out, and before a report arrives."""
            vars(driver.process)["wait_ready"] = wait_ready
            driver.process.sleep(200)
            return set()

        vars(driver.process)["wait_ready"] = suspended
        driver.coordinator._signal.set()  # another wait begins
        cluster.sleep(100)
        cluster.report(channels[1], 3, {A1: 9})
        assert [cluster.next_epoch_request(channel) for channel in channels] == [EpochRequest(4, stop=False)] * 2
        assert driver.epochs[0].offsets == {A0: 8, A1: 9, B0: 7}

    @pytest.mark.parametrize(("late", "names"), [([1], r"task 1 \("), ([0, 1], r"task 0 \(.*\), 1 \(")])
    def test_late_reports(self, cluster: RunCluster, late: list[int], names: str) -> None:
        driver = cluster.driver()
        channels = driver.start_tasks()
        epoch = cluster.next_epoch_request(channels[0]).epoch
        if late == [1]:
            cluster.report(channels[0], epoch, {A0: 5, B0: 7})
        start, error = cluster.now, driver.failure()
        assert cluster.now - start == pytest.approx(120, abs=0.2)
        assert re.search(f"{len(late)} of 2 tasks did not report epoch 3 within 120 s: {names}", str(error))
        assert "raise epochTimeout" in str(error)
        assert error.task_index == (1 if late == [1] else None)

    def test_inconsistent_reports(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        channels = driver.start_tasks()
        cluster.report(channels[0], cluster.next_epoch_request(channels[0]).epoch, {A0: 5, B0: 6})
        cluster.report(channels[1], cluster.next_epoch_request(channels[1]).epoch, {A1: 6})
        assert "moved back from offset 7 to 6" in str(driver.failure())
        assert driver.epochs == []

    def test_a_position_that_moves_back(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        channels = driver.start_tasks()
        for last in (8, 7):
            cluster.report(channels[0], cluster.next_epoch_request(channels[0]).epoch, {A0: 5, B0: 7})
            cluster.report(channels[1], cluster.next_epoch_request(channels[1]).epoch, {A1: last})
        assert "moved back from offset 8 to 7" in str(driver.failure())
        assert [each.epoch for each in driver.epochs] == [3]

    def test_a_slow_reader_receives_its_start_message(self) -> None:
        """The message exceeds the buffers of a real socket, so the coordinator waits until the socket is writable."""
        partitions = [TopicPartition("a", number) for number in range(100_000)]
        start = RunStart(((B0,), tuple(partitions)), dict.fromkeys([B0, *partitions], 1 << 60), 0)
        plan, errors = RunPlan("run-1", Secret("hush"), 2, lambda _: start), list[BaseException]()
        with EpochCoordinator(plan, LONG_EPOCHS, lambda _: None, "127.0.0.1", SmallBuffers()) as coordinator:

            def run() -> None:
                with pytest.raises(QueryRunError) as raised:
                    coordinator.run()
                errors.append(raised.value)

            thread = threading.Thread(target=run)
            thread.start()
            address = ControlAddress("127.0.0.1", coordinator.port, plan.run, plan.secret)
            first, slow = (TaskChannel.connect(address, task, 0, Deadline.after(120)) for task in range(2))
            with first, slow:
                for channel in (first, slow):
                    channel.report_ready()
                assert [*first.wait_for_start().offsets] == [B0]
                assert len(slow.wait_for_start().offsets) == len(partitions)
            thread.join(120)
        assert ["was lost" in str(error) for error in errors] == [True]

    def test_an_unrequested_report(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        cluster.report(driver.start_tasks()[0], 3, {A0: 5, B0: 7})
        assert "sent an unexpected message of type EpochReport" in str(driver.failure())

    def test_two_reports_of_one_task(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        channels = driver.start_tasks()
        cluster.next_epoch_request(channels[0])
        for _ in range(2):
            cluster.report(channels[0], 3, {A0: 5, B0: 7})
        error = driver.failure()
        assert re.search("Task 0 .* sent an unexpected message of type EpochReport", str(error))
        assert error.task_index == 0

    def test_an_invalid_message(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        driver.start_tasks()[0]._connection.send(b"?\n")
        error = driver.failure()
        assert "sent an invalid message" in str(error)
        assert error.task_index == 0


class TestHandshakes:
    def test_too_few_tasks(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        driver.connect(0)
        cluster.sleep(120)
        error = driver.failure()
        assert isinstance(error, TaskStartTimeoutError)
        message = str(error)
        assert "1 of 2 tasks did not start within 120 s (task 1)" in message
        assert "needs 2 free cores" in message
        assert "lower tasksMax, or raise taskStartTimeout" in message
        assert f"port {driver.address.port}" in message

    def test_a_wrong_secret(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        with pytest.raises(QueryRunError, match="rejected task 0: it does not have the secret of the run"):
            driver.connect(0, secret=Secret("guess"))
        driver.connect(0)
        cluster.sleep(120)
        assert "A connection to the control port from 10.0.0.1 was rejected: it does not have" in str(driver.failure())

    def test_a_task_of_an_earlier_run(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        with pytest.raises(QueryRunError, match="belongs to an earlier run, or to another query"):
            driver.connect(0, run="run-0")
        assert len(driver.start_tasks()) == 2

    def test_a_replayed_handshake(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        with Stranger(driver) as first, Stranger(driver) as second:
            challenge = first.read()
            handshake = TaskHandshake(PLAN.run, 0, 0, "host", 1, "task nonce")
            handshake = replace(handshake, proof=task_proof(PLAN.secret, challenge.nonce, handshake))
            assert second.read() != challenge
            second.send(encode_message(handshake))
            assert second.read() == HandshakeRejected("it does not have the secret of the run")
            first.send(encode_message(handshake))
            assert isinstance(first.read(), DriverHandshake)

    @pytest.mark.parametrize("attempt", [0, 1])
    def test_a_second_attempt_of_a_task_ends_the_run(self, cluster: RunCluster, attempt: int) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        channel = driver.connect(1)
        with pytest.raises(QueryRunError, match="Cannot connect to the query's driver"):
            driver.connect(1, attempt)
        error = driver.failure()
        assert "Spark started task 1" in str(error)
        assert ("attempt 1" if attempt else "a second time") in str(error)
        assert error.task_index == 1
        with pytest.raises(QueryRunError, match="closed the connection"):
            channel.wait_for_start()

    def test_a_second_attempt_fails_when_all_tasks_have_connected(self, cluster: RunCluster) -> None:
        """The first attempt continues. If it was lost, its connection breaks, or its next report is late."""
        driver = cluster.driver()
        channels = driver.start_tasks()
        with pytest.raises(QueryRunError, match="or Spark started it again"):
            driver.connect(1, 1)
        assert [cluster.next_epoch_request(channel).epoch for channel in channels] == [3, 3]

    def test_all_connections_are_closed_if_one_task_ends_the_run(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        with Stranger(driver) as first, Stranger(driver) as second:
            nonces = [each.read().nonce for each in (first, second)]
            for stranger, nonce in zip((first, second), nonces, strict=True):
                handshake = TaskHandshake(PLAN.run, 1, 1, "host", 1, "task nonce")  # the second attempt of a task
                proof = task_proof(PLAN.secret, nonce, handshake)
                stranger.send(encode_message(replace(handshake, proof=proof)))
            assert "attempt 1" in str(driver.failure())
            assert not first.is_open
            assert not second.is_open

    def test_a_task_that_spark_has_retried(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        with pytest.raises(QueryRunError):
            driver.connect(0, 1)
        assert "attempt 1" in str(driver.failure())

    def test_an_unknown_task(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
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
    def test_other_connections_are_rejected_without_effect(self, cluster: RunCluster, sent: bytes, reason: str) -> None:
        driver = cluster.driver()
        with Stranger(driver) as stranger:
            assert isinstance(stranger.read(), HandshakeChallenge)
            stranger.send(sent)
            stranger.end()
            response = stranger.read()
            assert isinstance(response, HandshakeRejected)
            assert reason in response.reason
        assert len(driver.start_tasks()) == 2

    def test_a_silent_connection_is_rejected(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        with Stranger(driver) as silent:
            assert isinstance(silent.read(), HandshakeChallenge)
            start = cluster.now
            assert silent.read() == HandshakeRejected("it sent no handshake within 10 s")
            assert cluster.now - start == pytest.approx(10, abs=0.1)


class TestTaskChannel:
    """The peer may be any process."""

    @pytest.mark.parametrize(
        ("responses", "message"),
        [
            (
                [HandshakeChallenge("n"), lambda _: encode_message(DriverHandshake("guess"))],
                "does not have the secret of the run",
            ),
            (
                [HandshakeChallenge("n"), lambda handshake: encode_message(DriverHandshake(handshake.proof))],
                "does not have the secret of the run",
            ),
            ([HandshakeChallenge("n", 5)], r"uses control protocol version 5, .* Install the same version"),
            ([lambda _: b"HTTP/1.1 400 Bad Request\r\n"], "sent an invalid message"),
            ([EpochRequest(1, stop=True)], "sent an unexpected message of type EpochRequest"),
            ([lambda _: b""], r"did not respond in time\. If it is slow, raise taskStartTimeout"),
            ([None], "repeatedly closed the connection during the handshake"),
        ],
        ids=["secret", "reflected-proof", "version", "program", "no-handshake", "silent", "closed"],
    )
    def test_a_peer_that_is_no_driver_of_the_run(self, cluster: RunCluster, responses: list[Any], message: str) -> None:
        peer = Peer(cluster, [each if callable(each) or each is None else encode_message(each) for each in responses])
        with pytest.raises(QueryRunError, match=message):
            peer.connect(2)
        assert peer.accepted in (range(2, 20) if responses == [None] else [1]), "a task pauses between its attempts"

    def test_no_driver(self, cluster: RunCluster) -> None:
        address = ControlAddress("driver", 7, "run-1", PLAN.secret)
        with pytest.raises(QueryRunError, match="Cannot connect to the query's driver at driver:7"):
            TaskChannel.connect(address, 0, 0, cluster.deadline())

    def test_a_driver_is_reached_at_any_of_its_addresses(self, cluster: RunCluster) -> None:
        driver = cluster.driver()
        resolve = cluster.process.resolve_host
        unreachable = Address(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, (driver.address.host, 7))
        vars(cluster.process)["resolve_host"] = lambda *given: [unreachable, *resolve(*given)]
        assert len(driver.start_tasks()) == 2
        assert cluster.connect_limits == pytest.approx([60, 60], abs=1), "half of the time, for each task"

    def test_a_request_is_received_before_the_closed_connection(self, cluster: RunCluster) -> None:
        driver = cluster.driver(settings=LONG_EPOCHS)
        channels = driver.start_tasks()
        driver.coordinator.stop()
        cluster.sleep(0.1)
        driver.coordinator.abort(RuntimeError("on purpose"))
        driver.wait()
        assert cluster.next_epoch_request(channels[0]) == EpochRequest(3, stop=True)
        with pytest.raises(QueryRunError, match="it ended this run, or has died"):
            cluster.next_epoch_request(channels[0])


def test_an_epoch_waits_for_tasks_only(cluster: RunCluster) -> None:
    """From its requests to its commit, no wait ends by a timeout, so an epoch takes as long as its messages."""
    committed: list[tuple[int, float]] = []
    driver = cluster.driver(settings=LONG_EPOCHS, on_epoch=lambda each: committed.append((each.epoch, cluster.now)))
    channels = driver.start_tasks()
    for epoch in range(3, 23):
        assert [cluster.next_epoch_request(channel).epoch for channel in channels] == [epoch, epoch]
        cluster.report(channels[0], epoch, {A0: 5, B0: 7})
        cluster.report(channels[1], epoch, {A1: 6 + epoch})
        start = cluster.now
        assert driver.is_running
        assert committed[-1][0] == epoch
        assert committed[-1][1] - start < 0.01
