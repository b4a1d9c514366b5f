"""The driver's side of a run, with tasks in threads of this process."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.continuous.coordinators import (
    A0,
    A1,
    B0,
    LONG,
    PLAN,
    TIMES,
    Driver,
    line_of,
    next_mark,
    raw,
    report,
    soon,
)

from pyspark_kafka_direct.continuous._control import (
    Challenge,
    Hello,
    Mark,
    Refused,
    Start,
    Welcome,
    from_line,
    task_proof,
    to_line,
)
from pyspark_kafka_direct.continuous._coordinator import Coordinator, RunPlan
from pyspark_kafka_direct.continuous._task_channel import ControlAddress, TaskChannel
from pyspark_kafka_direct.errors import RunFailedError, TaskStartError
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.planning.epochs import EpochResult


@pytest.fixture
def drivers() -> Iterator[Callable[..., Driver]]:
    made: list[Driver] = []

    def make(*args: Any, **more: Any) -> Driver:
        made.append(Driver(*args, **more))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


class TestWholeRuns:
    def test_from_hello_to_stop(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        channels = [driver.connect(1), driver.connect(0)]
        assert channels[0].wait_for_start(soon()) == Start(3, {A1: 6})
        assert channels[1].wait_for_start(soon()) == Start(3, {A0: 5, B0: 7})
        for epoch in (3, 4):
            assert [next_mark(channel) for channel in channels] == [Mark(epoch, stop=False)] * 2
            report(channels[0], epoch, {A1: 10 * epoch})
            assert len(driver.epochs) == epoch - 3
            if epoch == 4:
                driver.coordinator.stop()
            report(channels[1], epoch, {A0: epoch + 5, B0: 7})
        assert [next_mark(channel) for channel in channels] == [Mark(5, stop=True)] * 2
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

    def test_a_stop_does_not_wait_for_the_interval(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=LONG)
        channels = driver.start_tasks()
        driver.coordinator.stop()
        assert [next_mark(channel) for channel in channels] == [Mark(3, stop=True)] * 2

    def test_a_stop_before_all_have_started(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        channel = driver.connect(0)
        driver.coordinator.stop()
        driver.wait()
        assert (driver.result, driver.error, driver.epochs) == (None, None, [])
        with pytest.raises(RunFailedError, match="has hung up"):
            channel.wait_for_start(soon())

    def test_one_epoch_goes_on_while_the_last_one_is_written(self, drivers: Callable[..., Driver]) -> None:
        written = threading.Event()
        driver = drivers(on_epoch=lambda _: (written.wait(20), None)[1])
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            assert next_mark(channel).epoch == 3
            report(channel, 3, offsets)
        for channel, offsets in zip(channels, ({A0: 7, B0: 8}, {A1: 7}), strict=True):
            assert next_mark(channel).epoch == 4
            report(channel, 4, offsets)
        time.sleep(5 * TIMES.interval)
        assert [channel.receive() for channel in channels] == [[], []], "a third one would be too much"
        written.set()
        assert [next_mark(channel).epoch for channel in channels] == [5, 5]

    def test_epochs_that_cannot_be_written_yet_may_share_a_number(self, drivers: Callable[..., Driver]) -> None:
        written = threading.Event()
        driver = drivers(replace(PLAN, shares_numbers=True), on_epoch=lambda _: (written.wait(20), None)[1])
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            assert next_mark(channel).epoch == 3
            report(channel, 3, offsets)
        for offset in (7, 8, 9):
            for channel, offsets in zip(channels, ({A0: offset, B0: 8}, {A1: 7}), strict=True):
                assert next_mark(channel).epoch == 4, "what cannot be written yet leaves its number to the next"
                report(channel, 4, offsets)
        written.set()
        while (mark := next_mark(channels[0])).epoch == 4:
            assert next_mark(channels[1]).epoch == 4
            for channel, offsets in zip(channels, ({A0: 9, B0: 8}, {A1: 7}), strict=True):
                report(channel, 4, offsets)
        assert mark.epoch == 5
        third, fourth = driver.epochs
        assert (third.epoch, third.offsets[A0], fourth.epoch, fourth.offsets[A0]) == (3, 6, 4, 9)
        assert fourth.rows >= 9, "of all three, each of three rows"

    def test_what_was_begun_is_written_before_a_run_ends(self, drivers: Callable[..., Driver]) -> None:
        begun, written, kept = threading.Event(), threading.Event(), []

        def write(result: EpochResult) -> None:
            begun.set()
            assert written.wait(20)
            kept.append(result.epoch)

        driver = drivers(on_epoch=write)
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 6, B0: 7}, {A1: 6}), strict=True):
            assert next_mark(channel).epoch == 3
            report(channel, 3, offsets)
        assert begun.wait(20)
        driver.coordinator.abort(RunFailedError("on purpose"))
        time.sleep(0.2)
        assert driver.error is None, "it waits"
        written.set()
        driver.wait()
        assert (str(driver.error), kept) == ("on purpose", [3])

    def test_an_epoch_in_which_nothing_moved_leaves_its_number_to_the_next(
        self, drivers: Callable[..., Driver]
    ) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        for epoch, moved in ((3, 6), (3, 8), (4, 8), (4, 9), (5, 9)):
            assert [next_mark(channel).epoch for channel in channels] == [epoch, epoch]
            report(channels[0], epoch, {A0: 5, B0: 7})
            report(channels[1], epoch, {A1: moved})
        assert [next_mark(channel).epoch for channel in channels] == [5, 5]
        assert [each.epoch for each in driver.epochs] == [3, 3, 4, 4, 5]

    def test_an_abort_is_raised(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=LONG)
        driver.start_tasks()
        driver.coordinator.abort(KeyError("the job has ended"))
        assert isinstance(driver.wait().error, KeyError)

    def test_what_the_callback_raises_ends_the_run(self, drivers: Callable[..., Driver]) -> None:
        def refuse(_: EpochResult) -> None:
            raise FileExistsError("offsets/3")

        driver = drivers(on_epoch=refuse)
        channels = driver.start_tasks()
        for channel, offsets in zip(channels, ({A0: 5, B0: 7}, {A1: 6}), strict=True):
            report(channel, next_mark(channel).epoch, offsets)
        assert isinstance(driver.wait().error, FileExistsError)
        with pytest.raises(RunFailedError, match="has hung up"):
            next_mark(channels[0])

    def test_the_port_is_free_again(self, drivers: Callable[..., Driver]) -> None:
        first = drivers()
        first.start_tasks()
        first.coordinator.abort(KeyError())
        port = first.wait().coordinator.port
        with Coordinator(PLAN, TIMES, lambda _: None, "127.0.0.1", port) as second:
            assert second.port == port


class TestFailures:
    def test_a_task_that_fails(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=LONG)
        driver.start_tasks()[1].fail(ZeroDivisionError("in the function"), soon())
        error = driver.failure()
        assert "failed with ZeroDivisionError: in the function" in str(error)
        assert (error.task, error.cause) == (1, "ZeroDivisionError")

    def test_a_failure_that_tells_much(self, drivers: Callable[..., Driver]) -> None:
        """More than somebody who was not let in may say."""
        driver = drivers(times=LONG)
        driver.start_tasks()[0].fail(ValueError("x" * 10_000), soon())
        assert "x" * 10_000 in str(driver.failure())

    def test_a_failure_that_ends_its_sentence_itself(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=LONG)
        driver.start_tasks()[0].fail(ValueError("No such column."), soon())
        assert "ValueError: No such column. What was read" in str(driver.failure())

    def test_a_task_that_fails_while_others_start(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        driver.connect(1).fail(ZeroDivisionError(), soon())
        assert driver.failure().cause == "ZeroDivisionError"

    @pytest.mark.parametrize("marked", [False, True])
    def test_a_task_that_is_lost(self, drivers: Callable[..., Driver], marked: bool) -> None:
        driver = drivers(times=TIMES if marked else LONG)
        channels = driver.start_tasks()
        if marked:
            next_mark(channels[1])
        channels[1].close()
        error = driver.failure()
        assert "The connection to task 1 (" in str(error)
        assert (error.task, error.cause) == (1, None)

    def test_a_task_that_is_lost_after_its_report(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        report(channels[1], next_mark(channels[1]).epoch, {A1: 6})
        channels[1].close()
        assert driver.failure().task == 1

    def test_a_task_that_is_lost_before_its_last_report(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=LONG)
        channels = driver.start_tasks()
        driver.coordinator.stop()
        report(channels[0], next_mark(channels[0]).epoch, {A0: 5, B0: 7})
        channels[1].close()
        assert driver.failure().task == 1
        assert driver.epochs == []

    def test_a_report_that_came_in_time_while_the_driver_slept(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=replace(TIMES, report=30))
        channels = driver.start_tasks()
        report(channels[0], next_mark(channels[0]).epoch, {A0: 8, B0: 7})
        next_mark(channels[1])
        until = time.monotonic() + 20
        while driver.coordinator._awaited != {1} and time.monotonic() < until:
            time.sleep(0.001)
        driver.nap(100)
        report(channels[1], 3, {A1: 9})
        assert [next_mark(channel) for channel in channels] == [Mark(4, stop=False)] * 2
        assert driver.epochs[0].offsets == {A0: 8, A1: 9, B0: 7}

    def test_a_late_report(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        report(channels[0], next_mark(channels[0]).epoch, {A0: 5, B0: 7})
        until = time.monotonic() + 20
        while driver.coordinator._awaited != {1} and time.monotonic() < until:
            time.sleep(0.001)
        driver.put_forward(20)
        error = driver.failure()
        assert "1 of 2 tasks have not reported epoch 3 within 20 s: task 1 (" in str(error)
        assert "raise epochTimeout" in str(error)
        assert error.task == 1

    def test_reports_that_do_not_add_up(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        report(channels[0], next_mark(channels[0]).epoch, {A0: 5, B0: 6})
        report(channels[1], next_mark(channels[1]).epoch, {A1: 6})
        assert "went back from offset 7 to 6" in str(driver.failure())
        assert driver.epochs == []

    def test_a_position_that_goes_back_behind_the_last_epoch(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        for last in (8, 7):
            report(channels[0], next_mark(channels[0]).epoch, {A0: 5, B0: 7})
            report(channels[1], next_mark(channels[1]).epoch, {A1: last})
        assert "went back from offset 8 to 7" in str(driver.failure())
        assert [each.epoch for each in driver.epochs] == [3]

    def test_a_task_that_reads_slowly_gets_its_start(self, drivers: Callable[..., Driver]) -> None:
        """It is more than the sockets hold, so the coordinator has to wait for room."""
        many = [TopicPartition("a", number) for number in range(20_000)]
        driver = drivers(RunPlan("run-1", Secret("hush"), (tuple(many),), dict.fromkeys(many, 1 << 60), 0), LONG)
        channel = driver.connect(0)
        SYSTEM.wait_ready([channel.fileno()], [], 20)
        assert driver.coordinator._tasks[0].lines.unsent
        assert len(channel.wait_for_start(soon()).offsets) == len(many)

    def test_a_report_that_nobody_asked_for(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=LONG)
        report(driver.start_tasks()[0], 3, {A0: 5, B0: 7})
        assert "sent a message of type report that nobody waited for" in str(driver.failure())

    def test_two_reports_of_one_task(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        channels = driver.start_tasks()
        next_mark(channels[0])
        for _ in range(2):
            report(channels[0], 3, {A0: 5, B0: 7})
        report(channels[1], next_mark(channels[1]).epoch, {A1: 6})
        error = driver.failure()  # the second may be heard after that of task 1, which ends the epoch
        assert re.search(
            "task 0 reported twice|Task 0 .* sent a message of type report that nobody waited for", str(error)
        )
        assert error.task == 0

    def test_what_is_no_message(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=LONG)
        driver.start_tasks()[0]._lines.send(b"?\n")
        error = driver.failure()
        assert "sent what is no message" in str(error)
        assert error.task == 0


class TestWhoIsLetIn:
    def test_too_few_tasks(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        driver.connect(0)
        driver.put_forward(20)
        error = driver.failure()
        assert isinstance(error, TaskStartError)
        says = str(error)
        assert "1 of 2 tasks have not started within 20 s (task 1)" in says
        assert "needs 2 free cores" in says
        assert "lower tasksMax, or raise taskStartTimeout" in says
        assert f"port {driver.address.port}" in says

    def test_who_does_not_know_the_secret(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        with pytest.raises(RunFailedError, match="did not take task 0: it does not know the secret of the run"):
            driver.connect(0, secret=Secret("guess"))
        driver.connect(0)
        driver.put_forward(20)
        assert "A connection was refused, the last from 127.0.0.1: it does not know" in str(driver.failure())

    def test_who_belongs_to_another_run(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        with pytest.raises(RunFailedError, match="belongs to another run of the query, which is over"):
            driver.connect(0, run="run-0")
        assert len(driver.start_tasks()) == 2

    def test_a_hello_that_was_recorded(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        with raw(driver) as first, raw(driver) as second:
            challenge = line_of(first)
            hello = Hello(PLAN.run, 0, 0, "host", 1, "mine")
            hello = replace(hello, proof=task_proof(PLAN.secret, challenge.nonce, hello))
            assert line_of(second) != challenge
            second.sendall(to_line(hello))
            assert line_of(second) == Refused("it does not know the secret of the run")
            first.sendall(to_line(hello))
            assert isinstance(line_of(first), Welcome)

    @pytest.mark.parametrize("later", [False, True], ids=["while others start", "when all have started"])
    @pytest.mark.parametrize("attempt", [0, 1])
    def test_a_task_that_comes_twice_ends_the_run(
        self, drivers: Callable[..., Driver], attempt: int, later: bool
    ) -> None:
        driver = drivers(times=LONG)
        channels = driver.start_tasks() if later else [driver.connect(1)]
        with pytest.raises(RunFailedError, match="has hung up"):
            driver.connect(1, attempt)
        error = driver.failure()
        assert "Spark has started task 1" in str(error)
        assert ("attempt 1" if attempt else "a second time") in str(error)
        assert error.task == 1
        with pytest.raises(RunFailedError, match="has hung up"):
            channels[-1].wait_for_start(soon())

    def test_those_that_come_with_one_that_ends_the_run_are_hung_up_on_too(self) -> None:
        with (
            Coordinator(PLAN, LONG, lambda _: None, "127.0.0.1") as coordinator,
            socket.create_connection(("127.0.0.1", coordinator.port), 20) as first,
            socket.create_connection(("127.0.0.1", coordinator.port), 20) as second,
        ):
            while len(coordinator._reception.descriptors()) < 3:
                coordinator._turn(SYSTEM.monotonic() + 20)
            for sock in (first, second):
                hello = Hello(PLAN.run, 1, 1, "host", 1, "mine")  # the second attempt of a task
                proof = task_proof(PLAN.secret, line_of(sock).nonce, hello)
                sock.sendall(to_line(replace(hello, proof=proof)))
            guests = set(coordinator._reception.descriptors()[1:])
            while SYSTEM.wait_ready(guests, [], 20) != guests:
                pass
            with pytest.raises(RunFailedError, match="attempt 1"):
                coordinator.run()
            for sock in (first, second):
                with suppress(ConnectionResetError):  # its hello was not read any more
                    assert sock.recv(1) == b""

    def test_a_task_that_spark_has_tried_before(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        with pytest.raises(RunFailedError):
            driver.connect(0, 1)
        assert "attempt 1" in str(driver.failure())

    def test_a_task_that_the_run_does_not_have(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers()
        with pytest.raises(RunFailedError):
            driver.connect(2)
        assert "There is no task 2" in str(driver.failure())

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            (b"GET / HTTP/1.1\r\n", "Expecting value"),
            (b"x" * 5000, "a line of more than 4096 bytes"),
            (to_line(Mark(1, stop=True)), "something else than hello"),
            (to_line(Mark(1, stop=True)) * 2, "it did not wait to be welcomed"),
            (b"", "it hung up"),
        ],
        ids=["HTTP", "endless", "mark", "two lines", "nothing"],
    )
    def test_strangers_are_sent_away_and_cost_nothing(
        self, drivers: Callable[..., Driver], said: bytes, reason: str
    ) -> None:
        driver = drivers()
        with raw(driver) as stranger:
            assert isinstance(line_of(stranger), Challenge)
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            answer = line_of(stranger)
            assert isinstance(answer, Refused)
            assert reason in answer.reason
        assert len(driver.start_tasks()) == 2

    def test_who_says_nothing_is_sent_away(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=LONG)
        with raw(driver) as silent, silent.makefile("rb") as file:
            assert isinstance(from_line(file.readline()), Challenge)
            driver.start_tasks()
            driver.put_forward(20)
            assert from_line(file.readline()) == Refused("it said no hello within 20 s")

    def test_so_many_may_be_silent_and_no_more(
        self, drivers: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pyspark_kafka_direct.continuous._reception._MOST_GUESTS", 0)
        driver = drivers()
        silent = [raw(driver) for _ in range(3)]
        with silent[0].makefile("rb") as file:
            assert isinstance(from_line(file.readline()), Challenge)
            assert from_line(file.readline()) == Refused("too many others came after it")
        assert len(driver.start_tasks()) == 2
        for each in silent:
            each.close()


class TestWhatATaskNotices:
    """What answers it may be anybody, or nobody."""

    @staticmethod
    def meet(*answers: Callable[[Hello | None], bytes], secret: Secret = PLAN.secret) -> TaskChannel:
        """Connect with one who says this."""
        with SYSTEM.listen("127.0.0.1", 0) as listener:
            address = ControlAddress("127.0.0.1", listener.getsockname()[1], "run-1", secret)
            listener.setblocking(True)

            def answer() -> None:
                sock, _ = listener.accept()
                with sock, sock.makefile("rb") as file:
                    sock.sendall(answers[0](None))
                    for each in answers[1:]:
                        hello = from_line(file.readline())
                        assert isinstance(hello, Hello)
                        sock.sendall(each(hello))

            thread = threading.Thread(target=answer)
            thread.start()
            try:
                return TaskChannel.connect(address, 0, 0, soon())
            finally:
                thread.join(20)

    def test_a_driver_that_does_not_know_the_secret(self) -> None:
        with pytest.raises(RunFailedError, match="does not know the secret of the run"):
            self.meet(lambda _: to_line(Challenge("n")), lambda _: to_line(Welcome("guess")))

    def test_a_driver_that_hands_back_the_proof(self) -> None:
        with pytest.raises(RunFailedError, match="does not know the secret of the run"):
            self.meet(lambda _: to_line(Challenge("n")), lambda hello: to_line(Welcome(hello.proof if hello else "")))

    def test_another_version(self) -> None:
        with pytest.raises(RunFailedError, match=r"speaks version 2 .* install the same version"):
            self.meet(lambda _: to_line(Challenge("n", 2)))

    def test_another_program(self) -> None:
        with pytest.raises(RunFailedError, match="is no message"):
            self.meet(lambda _: b"HTTP/1.1 400 Bad Request\r\n")

    def test_a_driver_that_begins_with_something_else(self) -> None:
        with pytest.raises(RunFailedError, match="sent a mark that nobody waited for"):
            self.meet(lambda _: to_line(Mark(1, stop=True)))

    def test_nobody(self) -> None:
        with SYSTEM.listen("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(RunFailedError, match=f"Cannot connect with the query's driver at 127.0.0.1:{port}"):
            TaskChannel.connect(ControlAddress("127.0.0.1", port, "run-1", PLAN.secret), 0, 0, soon())

    def test_one_who_is_silent(self) -> None:
        with SYSTEM.listen("127.0.0.1", 0) as listener:
            address = ControlAddress("127.0.0.1", listener.getsockname()[1], "run-1", PLAN.secret)
            with pytest.raises(RunFailedError, match="was silent for too long; raise taskStartTimeout"):
                TaskChannel.connect(address, 0, 0, Deadline.after(0.1, "taskStartTimeout", system=SYSTEM))

    def test_a_mark_is_heard_before_the_end(self, drivers: Callable[..., Driver]) -> None:
        driver = drivers(times=LONG)
        channels = driver.start_tasks()
        driver.coordinator.stop()
        SYSTEM.wait_ready([channels[0].fileno()], [], 20)
        driver.close_coordinator()
        assert next_mark(channels[0]) == Mark(3, stop=True)
        with pytest.raises(RunFailedError, match="it has ended this run, or has died"):
            next_mark(channels[0])


def test_epochs_take_less_than_a_millisecond(drivers: Callable[..., Driver]) -> None:
    """From marks to reports; generous here, as other tests run beside it."""
    ends: list[float] = []
    driver = drivers(times=replace(TIMES, interval=0.001), on_epoch=lambda _: ends.append(time.perf_counter()))
    marked: dict[int, float] = {}
    channels = driver.start_tasks()

    def work(number: int) -> None:
        while not (mark := next_mark(channels[number])).stop:
            marked[mark.epoch] = min(time.perf_counter(), marked.get(mark.epoch, float("inf")))
            report(channels[number], mark.epoch, moved(number, mark.epoch))
        report(channels[number], mark.epoch, moved(number, mark.epoch))

    def moved(number: int, epoch: int) -> dict[TopicPartition, int]:
        return {A1: 6 + epoch} if number else {A0: 5, B0: 7}

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    while len(ends) < 50:
        assert time.monotonic() < until, driver.error
        time.sleep(0.01)
    driver.coordinator.stop()
    for thread in threads:
        thread.join(20)
    assert driver.wait().error is None
    took = sorted(end - marked[epoch] for epoch, end in enumerate(ends[:-1], start=3))
    assert took[len(took) // 2] < 0.1
