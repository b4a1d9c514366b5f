"""Runs of a continuous query without Spark: a real coordinator, and tasks in threads or processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from pyspark import cloudpickle
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.continuous.continuous_epochs import assign_partitions
from pyspark_kafka_direct.continuous.continuous_task import TaskPlan, run_task
from pyspark_kafka_direct.continuous.control_socket import ControlAddress
from pyspark_kafka_direct.continuous.epoch_coordinator import EpochCoordinator, RunPlan, RunStart
from pyspark_kafka_direct.continuous.kafka_writer import KafkaWriterFactory
from pyspark_kafka_direct.continuous.map_function import MapFunction
from pyspark_kafka_direct.options.continuous_query import parse_start_options
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.options.sink_options import parse_sink_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from uuid import UUID

    from tests.integration.workbench import Workbench

    from pyspark_kafka_direct.continuous.continuous_epochs import EpochResult
    from pyspark_kafka_direct.continuous.continuous_sink import SinkWriterFactory
    from pyspark_kafka_direct.offsets import TopicPartition

TIMEOUT = 600.0  # seconds; only a limit for hangs

_CHILD = """
import pickle, sys
from pyspark_kafka_direct.continuous.continuous_task import run_task
run_task(*pickle.loads(open(sys.argv[1], "rb").read()))
"""


def to_kafka(bench: Workbench, topic: str | None, **options: object) -> SinkWriterFactory:
    """Return a writer factory; underscores in the names of options stand for dots."""
    sink_options = {name.replace("_", "."): str(value) for name, value in options.items()}
    sink_options |= {"kafka.bootstrap.servers": bench.bootstrap_servers} | ({} if topic is None else {"topic": topic})
    return KafkaWriterFactory.of(parse_sink_options(sink_options, streaming=True))


class ThreadedRun:
    """A run of a query; ``kafka`` has input options with underscores for dots, ``plan`` fields of ``TaskPlan``."""

    def __init__(
        self,
        bench: Workbench,
        starts: Mapping[TopicPartition, int],
        writer_factory: SinkWriterFactory,
        *,
        interval: float = 0.05,
        report: float = TIMEOUT,
        tasks: int = 1,
        kafka: Mapping[str, object] | None = None,
        topic_ids: Mapping[TopicPartition, UUID] | None = None,
        end_offsets: Mapping[TopicPartition, int] | None = None,  # of a planned epoch
        function: Callable[..., Any] | None = None,
        fail_on_data_loss: bool = True,
        **plan: Any,
    ) -> None:
        self.epochs: list[EpochResult] = []  # completed ones
        self.error: BaseException | None = None
        self.failures: dict[int, BaseException] = {}  # by task
        secret = Secret(SYSTEM.nonce())
        start = RunStart(assign_partitions(starts, tasks), dict(starts), 0, end_offsets or {}, topic_ids or {})
        run = RunPlan("run-1", secret, len(start.assignment), lambda _: start)
        run_settings = parse_start_options({"checkpointLocation": "memory:/"})
        run_settings = replace(run_settings, epoch_interval=interval, epoch_timeout=report)
        self.coordinator = EpochCoordinator(run, run_settings, self.epochs.append, "127.0.0.1")
        settings = bench.settings(**({"retry_backoff_ms": 20} | dict(kafka or {})))
        defaults: dict[str, Any] = {
            "address": ControlAddress("127.0.0.1", self.coordinator.port, run.run, secret),
            "query_id": "query-1",
            "connection": settings.connection,
            "fetch": replace(settings.fetch, fail_on_data_loss=fail_on_data_loss, max_record_batch_bytes=1 << 30),
            "columns": ("key", "value"),
            "functions": () if function is None else (MapFunction(function),),
            "max_records_per_second": None,
            "writer_factory": writer_factory,
            "start_timeout": TIMEOUT,
            "heartbeat_timeout": TIMEOUT,
        }
        self.plan = TaskPlan(**(defaults | plan))
        self._tasks = run.tasks
        self._driver = threading.Thread(target=self._run, daemon=True)
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

        def run_in_thread() -> None:
            try:
                run_task(plan, number, attempt)
            except BaseException as error:
                self.failures[number] = error

        self._threads.append(threading.Thread(target=run_in_thread, daemon=True))
        self._threads[-1].start()
        return self._threads[-1]

    def start_process(self, number: int, folder: Path) -> subprocess.Popen[str]:
        """Start a task in its own process, as Spark does."""
        pickled = folder / f"task-{number}"
        pickled.write_bytes(cloudpickle.dumps((self.plan, number, 0)))  # type: ignore[no-untyped-call]
        return subprocess.Popen([sys.executable, "-c", _CHILD, str(pickled)], stderr=subprocess.PIPE, text=True)

    def until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        """Wait for a condition; the run must not end before."""

        def holds() -> bool:
            if condition():
                return True
            assert self._driver.is_alive(), (self.error, self.failures)
            return False

        wait_until(holds, what, TIMEOUT)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The positions of the last completed epoch."""
        return self.epochs[-1].offsets if self.epochs else {}

    def until_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Wait until an epoch has ended at these positions."""
        self.until(lambda: self.positions == positions, f"positions {positions}")

    def stop(self) -> EpochResult:
        """Stop the run, and return its last epoch."""
        self.coordinator.stop()
        self.join()
        assert self.error is None, self.error
        assert self.failures == {}
        return self.epochs[-1]

    def failure(self, kind: type[BaseException]) -> Any:
        """Wait until the run has failed, and return the error."""
        self._driver.join(TIMEOUT)
        assert isinstance(self.error, kind), (self.error, self.failures)
        return self.error

    def join(self) -> None:
        """Wait until the driver and the tasks have ended."""
        for thread in (self._driver, *self._threads):
            if thread.ident is not None:
                thread.join(TIMEOUT)
                assert not thread.is_alive(), "the thread hangs"

    def _run(self) -> None:
        try:
            self.coordinator.run()
        except BaseException as error:
            self.error = error
        finally:
            self.coordinator.close()
