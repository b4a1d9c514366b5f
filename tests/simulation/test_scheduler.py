"""The world's clock, tasks, locks and processes."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial

import pytest
from tests.simulation.errors import DeadlockError, LivelockError, ProcessKilled
from tests.simulation.faults import RequestFault
from tests.simulation.network import Network
from tests.simulation.process import SimulatedLock, SimulatedProcess
from tests.simulation.scheduler import MAX_CALLS, World


def create(seed: int = 1, max_calls: int = MAX_CALLS) -> tuple[World, SimulatedProcess]:
    world = World(seed, max_calls=max_calls)
    return world, SimulatedProcess(world, Network(world), "driver")


def test_sleeps_take_no_time_and_end_in_order() -> None:
    world, process = create()
    ends = []

    def sleep(seconds: float) -> None:
        process.sleep(seconds)
        ends.append(seconds)

    for seconds in (3600.0, 5.0, 60.0):
        process.spawn(f"sleep {seconds}", partial(sleep, seconds))
    world.run()
    assert ends == [5.0, 60.0, 3600.0]
    assert world.now == pytest.approx(1000 + 3600)


def test_the_seed_chooses_the_order_of_tasks() -> None:
    def order(seed: int) -> str:
        world, process = create(seed)
        steps: list[str] = []

        def work(name: str) -> None:
            for _ in range(3):
                process.monotonic()
                steps.append(name)

        for name in "abc":
            process.spawn(name, partial(work, name))
        world.run()
        return "".join(steps)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(20)}) > 10


@pytest.mark.parametrize("seed", range(20))
def test_one_task_holds_a_lock(seed: int) -> None:
    world, process = create(seed)
    lock = process.lock()
    inside: list[str] = []

    def work(name: str) -> None:
        with lock:
            inside.append(name)
            process.sleep(1)
            assert inside.pop() == name
            assert not inside

    for name in "abcd":
        process.spawn(name, partial(work, name))
    world.run()
    assert world.errors == []


def test_a_lock_is_not_acquired_after_its_timeout() -> None:
    world, process = create()
    lock = process.lock()
    results: list[bool] = []

    def hold() -> None:
        with lock:
            process.sleep(10)

    def attempt() -> None:
        process.sleep(1)
        results.append(process.acquire(lock, 2))
        results.append(process.acquire(lock, 20))

    process.spawn("hold", hold)
    process.spawn("attempt", attempt)
    world.run()
    assert results == [False, True]


@pytest.mark.parametrize("seed", range(20))
def test_conditions_wake_waiting_tasks(seed: int) -> None:
    world, process = create(seed)
    condition = process.condition()
    items: list[int] = []
    taken: list[int] = []

    def take() -> None:
        with condition:
            while not items:
                assert process.wait(condition, 60)
            taken.append(items.pop())

    def give() -> None:
        for number in range(3):
            process.sleep(1)
            with condition, condition:
                items.append(number)
                condition.notify()

    for _ in range(3):
        process.spawn("take", take)
    process.spawn("give", give)
    world.run()
    assert sorted(taken) == [0, 1, 2]


def test_a_condition_that_nothing_notifies_times_out() -> None:
    world, process = create()
    condition = process.condition()
    results = []

    def wait() -> None:
        with condition:
            results.append(process.wait(condition, 5))

    process.spawn("wait", wait)
    world.run()
    assert results == [False]
    assert world.now == pytest.approx(1005, abs=0.001)


def test_futures_are_awaited() -> None:

    world, process = create()
    future: Future[int] = Future()
    results: list[int | str] = []

    def wait(seconds: float) -> None:
        process.wait_for_future(future, seconds)
        results.append(future.result() if future.done() else "late")

    def finish() -> None:
        process.sleep(5)
        future.set_result(7)

    process.spawn("short", lambda: wait(1))
    process.spawn("long", lambda: wait(60))
    process.spawn("finish", finish)
    world.run()
    assert results == ["late", 7]


def test_a_deadlock_is_reported_with_what_each_task_waits_for() -> None:
    world, process = create()
    first, second = process.lock(), process.lock()

    def work(outer: SimulatedLock, inner: SimulatedLock) -> None:
        with outer:
            process.sleep(1)
            with inner:
                pass

    process.spawn("one", lambda: work(first, second))
    process.spawn("two", lambda: work(second, first))
    with pytest.raises(DeadlockError, match=r"driver/one: waits for a lock"):
        world.run()


def test_a_busy_loop_is_reported() -> None:
    world, process = create(max_calls=1000)

    def spin() -> None:
        while process.monotonic() < 2000:
            pass

    task = process.spawn("spin", spin)
    world.run()
    ((ended, error),) = world.errors
    assert ended is task
    assert isinstance(error, LivelockError)


def test_a_killed_process_has_no_more_effects() -> None:
    world, process = create()
    effects: list[str] = []

    def work() -> None:
        try:
            process.sleep(10)
            effects.append("after the sleep")
        except ProcessKilled:
            raise
        finally:
            process.sleep(1)
            effects.append("cleanup")

    process.spawn("work", work)
    process.spawn("not started", lambda: effects.append("started"))
    world.at(world.now + 5, process.kill)
    world.run()
    assert effects == ["started"]
    assert world.errors == []
    assert world.now < 1010


def test_a_fault_has_consequences_for_the_next_requests_of_its_process() -> None:
    world, process = create()
    network, other = process.network, SimulatedProcess(world, process.network, "executor")
    fault = RequestFault("throttle", {"ms": 1, "following": ("lose_request", 2)})
    network.aimed_faults["Produce", 1] = fault
    assert network.next_fault(0, "Produce", process) is None
    assert network.next_fault(1, "Produce", process) == fault
    assert network.next_fault(2, "Metadata", other) is None
    assert [network.next_fault(number, "Metadata", process) for number in (3, 4, 5)] == [
        RequestFault("lose_request"),
        RequestFault("lose_request"),
        None,
    ]


def test_an_operation_fails_if_its_process_dies() -> None:
    world, process = create()
    other = SimulatedProcess(world, process.network, "executor")
    ended, died = world.start_operation(process), world.start_operation(process)
    lives = world.start_operation(other)
    world.record_fault("throttle", "Produce", process)
    world.end_operation(ended, "completed")
    process.kill()
    world.end_operation(died, "completed")
    world.record_fault("throttle", "Produce", process)
    world.end_operation(lives, "completed")
    outcomes = ("completed", "failed", "outside an operation")
    assert world.coverage == {("throttle", "Produce", each): 1 for each in outcomes}


def test_a_thread_with_a_timeout_is_abandoned() -> None:
    world, process = create()
    times: list[float] = []

    def work() -> None:
        process.run_with_timeout(lambda: process.sleep(100), "slow", 3)
        times.append(world.now)
        process.run_with_timeout(lambda: process.sleep(1), "fast", 3)
        times.append(world.now)

    task = process.spawn("work", work)
    world.run([task])
    assert times == pytest.approx([1003, 1004], abs=0.001)
    world.close()


def test_a_wakeup_signal_ends_a_wait_for_sockets() -> None:
    world, process = create()
    signal = process.wakeup_signal()
    times: list[float] = []

    def wait() -> None:
        process.wait_readable([signal.fileno()], 60)
        times.append(world.now)
        signal.clear()
        process.wait_readable([signal.fileno()], 60)
        times.append(world.now)

    def wake() -> None:
        process.sleep(2)
        signal.set()

    process.spawn("wait", wait)
    process.spawn("wake", wake)
    world.run()
    assert times == pytest.approx([1002, 1062], abs=0.001)


def test_an_adopted_caller_waits_beside_tasks() -> None:
    world, process = create()
    world.adopt_caller(process)
    ends: list[float] = []

    def sleep() -> None:
        process.sleep(3)
        ends.append(world.now)

    process.start_thread(sleep, "sleep")
    process.sleep(5)
    assert ends == [pytest.approx(1003)]
    assert world.now == pytest.approx(1005)
    with pytest.raises(DeadlockError, match="caller: waits for nothing"):
        world.block("nothing", None)
    world.close()
