"""A simulated process: the ``System`` of the package's code in a simulated world."""

from __future__ import annotations

import socket
import weakref
from typing import TYPE_CHECKING, Any

from tests.simulation.errors import ProcessKilled

from pyspark_kafka_direct.client.system import Address

if TYPE_CHECKING:
    import urllib.request
    from collections.abc import Callable, Collection
    from concurrent.futures import Future

    from tests.simulation.network import Network
    from tests.simulation.scheduler import Task, World

    from pyspark_kafka_direct.client.system import Condition, Finalizer, Lock


class SimulatedProcess:
    """One operating system process with its threads, sockets and clock; implements ``System``."""

    def __init__(self, world: World, network: Network, name: str) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.address = "10.0.0.1"  # as listeners of other processes see it
        self.dead = False
        self.paused_until = 0.0
        self._random = world.rng(f"process {name}")
        self._nonces = 0
        world.processes.append(self)

    def spawn(self, name: str, run: Callable[[], None]) -> Task:
        """Start a thread of this process; scenarios use it."""
        return self.world.start(self, name, run)

    def kill(self) -> None:
        """End the process at once: its connections are reset, and its cleanup has no effect."""
        if self.dead:
            return
        self.dead = True
        self.network.reset_process(self)
        self.world.end_tasks_of(self)

    def pause(self, seconds: float) -> None:
        """Stop all threads for some seconds, as SIGSTOP does; its connections stay open."""
        self.world.trace("pause", self.name, seconds)
        self.paused_until = max(self.paused_until, self.world.now + seconds)

    # Time and randomness.

    def monotonic(self) -> float:
        self.world.checkpoint()
        return self.world.now

    def wall_time(self) -> float:
        self.world.checkpoint()
        return 1_700_000_000.0 + self.world.now

    def sleep(self, seconds: float) -> None:
        self._check_alive()
        self.world.block(f"sleep({seconds:.3f})", seconds)

    def random(self) -> float:
        return self._random.random()

    def nonce(self) -> str:
        self._nonces += 1
        return f"{self.name}-nonce-{self._nonces}"

    # Sockets.

    def resolve_host(self, host: str, port: int, family: int, flags: int) -> list[Address]:
        self.world.checkpoint()
        return [
            Address(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, (address, port))
            for address in self.network.on_resolve(host, flags)
        ]

    def connect_tcp(self, address: Address, seconds: float, receive_buffer: int, send_buffer: int) -> Any:
        self._check_alive()
        return self.network.connect(self, address.address, seconds)

    def listen(self, host: str, port: int) -> Any:
        self.world.checkpoint()
        return self.network.peers.listen(self, host, port)

    def bind_udp(self, host: str) -> Any:
        raise NotImplementedError("simulated processes have no UDP")

    def connect_udp(self, host: str, port: int) -> Any:
        raise NotImplementedError("simulated processes have no UDP")

    def readable(self, descriptor: int) -> bool:
        self.world.checkpoint()
        return self.network.is_readable(descriptor)

    def wait_readable(self, descriptors: Collection[int], seconds: float) -> None:
        self.wait_ready(descriptors, (), seconds)

    def wait_ready(self, to_read: Collection[int], to_write: Collection[int], seconds: float) -> set[int]:
        self.world.checkpoint()
        network = self.network
        ready = {*to_write, *(each for each in to_read if network.is_readable(each))}
        if ready or seconds <= 0:
            return ready
        task = self.world.current
        for descriptor in to_read:
            network.waiting_tasks(descriptor).append(task)
        self.world.block(f"sockets {sorted(to_read)}", seconds)
        for descriptor in to_read:
            network.waiting_tasks(descriptor).remove(task)
        return {each for each in to_read if network.is_readable(each)}

    def wakeup_signal(self) -> SimulatedWakeupSignal:
        return SimulatedWakeupSignal(self)

    def open_url(self, opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> Any:
        raise NotImplementedError("simulated processes have no HTTP")

    # Threads and locks.

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        self._check_alive()
        self.world.start(self, name, run)
        self.world.checkpoint()

    def finalize(self, owner: object, call: Callable[..., object], *args: object) -> Finalizer:
        finalizer = weakref.finalize(owner, call, *args)
        finalizer.detach()  # the time at which the interpreter collects an object belongs to no history
        return finalizer

    def run_with_timeout(self, run: Callable[[], None], name: str, seconds: float) -> None:
        self._check_alive()
        caller = self.world.current
        done: list[bool] = []

        def body() -> None:
            try:
                run()
            finally:
                done.append(True)
                if waits:
                    self.world.wake(caller)

        waits = True
        self.world.start(self, name, body)
        end = self.world.now + seconds
        while not done and self.world.now < end:
            self.world.block(f"thread {name}", end - self.world.now)
        waits = False

    def thread_id(self) -> int:
        return self.world.current.number + 1

    def lock(self) -> SimulatedLock:
        return SimulatedLock(self, reentrant=False)

    def reentrant_lock(self) -> SimulatedLock:
        return SimulatedLock(self, reentrant=True)

    def condition(self, lock: Lock | None = None) -> SimulatedCondition:
        assert lock is None or isinstance(lock, SimulatedLock)
        return SimulatedCondition(self, lock)

    def wait(self, condition: Condition, seconds: float | None) -> bool:
        return condition.wait(seconds)

    def acquire(self, lock: Lock, seconds: float) -> bool:
        return lock.acquire(timeout=seconds)

    def wait_for_future(self, future: Future[Any], seconds: float | None) -> None:
        self.world.checkpoint()
        if not future.done():
            task, waits = self.world.current, True
            future.add_done_callback(lambda _: self.world.wake(task) if waits else None)
            end = None if seconds is None else self.world.now + seconds
            while not future.done() and (end is None or self.world.now < end):
                self.world.block("a future", None if end is None else end - self.world.now)
            waits = False

    def _check_alive(self) -> None:
        if self.dead:
            raise ProcessKilled


class SimulatedLock:
    """A lock of tasks; taking it is a point at which another task may run."""

    __slots__ = ("_count", "_owner", "_process", "_reentrant", "_waiting")

    def __init__(self, process: SimulatedProcess, *, reentrant: bool) -> None:
        self._process = process
        self._reentrant = reentrant
        self._owner: Task | None = None
        self._count = 0
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = self._process.world
        if world._current is None:  # built or used by the scenario itself, outside any task
            assert self._owner is None
            return True
        world.checkpoint()
        task = world.current
        if self._reentrant and self._owner is task:
            self._count += 1
            return True
        end = None if timeout < 0 else world.now + timeout
        while self._owner is not None:
            if not blocking or (end is not None and world.now >= end):
                return False
            self._waiting.append(task)
            world.block("a lock", None if end is None else end - world.now)
            self._waiting.remove(task)
        self._owner, self._count = task, 1
        return True

    def release(self) -> None:
        if self._process.world._current is None or self._process.dead:
            return
        if self._owner is None or (self._reentrant and self._owner is not self._process.world.current):
            raise RuntimeError("a lock is released that this task does not hold")
        self._count -= 1
        if self._count == 0:
            self._owner = None
            for task in self._waiting:
                self._process.world.wake(task)

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedCondition:
    """A condition with a re-entrant lock, as ``threading.Condition``."""

    __slots__ = ("_lock", "_process", "_waiting")

    def __init__(self, process: SimulatedProcess, lock: SimulatedLock | None) -> None:
        self._process = process
        self._lock = lock or SimulatedLock(process, reentrant=True)
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        world, task = self._process.world, self._process.world.current
        count, self._lock._count = self._lock._count, 1
        self._waiting.append(task)
        self._lock.release()
        in_time = world.block("a condition", timeout)
        if task in self._waiting:
            self._waiting.remove(task)
        self._lock.acquire()
        self._lock._count = count
        return in_time

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            world = self._process.world
            world.wake(self._waiting.pop(world.random.randrange(len(self._waiting))))

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class SimulatedWakeupSignal:
    """Wakes a task that waits for sockets."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._network = process.network
        self._is_set = False
        self._descriptor = process.network.add_descriptor(lambda: self._is_set)

    def fileno(self) -> int:
        return self._descriptor

    def set(self) -> None:
        self._is_set = True
        self._network.wake_waiting(self._descriptor)

    def clear(self) -> None:
        self._is_set = False

    def close(self) -> None:
        self._network.remove_descriptor(self._descriptor)
