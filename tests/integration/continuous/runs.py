"""Runs of a continuous query without Spark: a real coordinator, and tasks in threads or processes of their own."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from pyspark import cloudpickle
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.continuous._coordinator import Coordinator, RunPlan, RunTimes
from pyspark_kafka_direct.continuous._kafka_sink import kafka_sink
from pyspark_kafka_direct.continuous._seams import TaskPlan
from pyspark_kafka_direct.continuous._task import run_task
from pyspark_kafka_direct.continuous._task_channel import ControlAddress
from pyspark_kafka_direct.planning.epochs import assign
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.settings.sink import parse_sink_options
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.continuous._seams import EpochSinkFactory
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.epochs import EpochResult

PATIENCE = 60.0  # seconds; only catches hangs

_CHILD = """
import pickle, sys
from pyspark_kafka_direct.continuous._task import run_task
run_task(*pickle.loads(open(sys.argv[1], "rb").read()))
"""


def to_kafka(bench: Workbench, topic: str | None, **options: object) -> EpochSinkFactory:
    """The sink, with options under their names; underscores for dots."""
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    given |= {"kafka.bootstrap.servers": bench.bootstrap_servers} | ({} if topic is None else {"topic": topic})
    return kafka_sink(parse_sink_options(given, streaming=True))


class Run:
    """A run of a query.

    Args:
        bench: The cluster.
        starts: Where to begin.
        sink: What makes the sinks.
        interval: Seconds between marks.
        report: Seconds that a report may take.
        tasks: How many tasks there are; by default one for all partitions.
        kafka: Settings of the reading side, under Java's names, with underscores for dots.
        plan: Fields of ``TaskPlan``.

    Attributes:
        epochs: Those that were whole.
        error: What has ended the run.
        failures: What the tasks have raised, by number.
    """

    def __init__(
        self,
        bench: Workbench,
        starts: Mapping[TopicPartition, int],
        sink: EpochSinkFactory,
        *,
        interval: float = 0.05,
        report: float = PATIENCE,
        tasks: int = 1,
        kafka: Mapping[str, object] | None = None,
        **plan: Any,
    ) -> None:
        self.epochs: list[EpochResult] = []
        self.error: BaseException | None = None
        self.failures: dict[int, BaseException] = {}
        secret = Secret(SYSTEM.nonce())
        run = RunPlan("run-1", secret, assign(starts, tasks), dict(starts), 0)
        self.coordinator = Coordinator(run, RunTimes(interval, report=report), self.epochs.append, "127.0.0.1")
        settings = bench.settings(**({"retry_backoff_ms": 20} | dict(kafka or {})))
        usual: dict[str, Any] = {
            "address": ControlAddress("127.0.0.1", self.coordinator.port, run.run, secret),
            "query_id": "query-1",
            "connection": settings.connection,
            "fetch": settings.fetch,
            "columns": ("key", "value"),
            "topic_ids": {},
            "fail_on_data_loss": True,
            "max_record_batch_bytes": 1 << 30,
            "function": None,
            "sink": sink,
            "start_timeout": PATIENCE,
            "mark_timeout": PATIENCE,
        }
        self.plan = TaskPlan(**(usual | plan))
        self._tasks = len(run.assignment)
        self._driver = threading.Thread(target=self._lead, daemon=True)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.coordinator.abort(RuntimeError("the test is over"))
        self.join()

    def start(self) -> Self:
        """Start the driver, and all tasks in threads."""
        self.start_driver()
        for number in range(self._tasks):
            self.start_task(number)
        return self

    def start_driver(self) -> Self:
        self._driver.start()
        return self

    def start_task(self, number: int, attempt: int = 0, **changes: Any) -> threading.Thread:
        plan = replace(self.plan, **changes)

        def work() -> None:
            try:
                run_task(plan, number, attempt)
            except BaseException as error:
                self.failures[number] = error

        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()
        return self._threads[-1]

    def start_process(self, number: int, folder: Path) -> subprocess.Popen[str]:
        """Start a task as Spark would: what it needs is pickled."""
        packed = folder / f"task-{number}"
        packed.write_bytes(cloudpickle.dumps((self.plan, number, 0)))  # type: ignore[no-untyped-call]
        return subprocess.Popen([sys.executable, "-c", _CHILD, str(packed)], stderr=subprocess.PIPE, text=True)

    def until(self, so: Callable[[], bool], what: str = "it") -> None:
        """Wait until something is so; the run must not end before."""

        def happened() -> bool:
            if so():
                return True
            assert self._driver.is_alive(), (self.error, self.failures)
            return False

        wait_until(happened, what, PATIENCE)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """Those of the last whole epoch."""
        return self.epochs[-1].offsets if self.epochs else {}

    def until_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Wait until an epoch has ended at these positions."""
        self.until(lambda: self.positions == positions, f"positions {positions}")

    def stop(self) -> EpochResult:
        """Stop the run at an epoch; return that."""
        self.coordinator.stop()
        self.join()
        assert self.error is None, self.error
        assert self.failures == {}
        return self.epochs[-1]

    def failure(self, kind: type[BaseException]) -> Any:
        """Wait for what ends the run; return it."""
        self._driver.join(PATIENCE)
        assert isinstance(self.error, kind), (self.error, self.failures)
        return self.error

    def join(self) -> None:
        """Wait until driver and tasks have ended."""
        for thread in (self._driver, *self._threads):
            if thread.ident is not None:
                thread.join(PATIENCE)
                assert not thread.is_alive(), "it hangs"

    def _lead(self) -> None:
        try:
            self.coordinator.run()
        except BaseException as error:
            self.error = error
