"""The long-running task of a continuous query: it reads on, gives all to its sink, and ends epochs as the driver marks.

One thread, one wait: the tail's, for its brokers, for the driver's marks and for what the sink waits for. A mark is
looked for between batches, too, so it waits for one call of the user's function at most, and for the sink.

What a report tells as a position was handed out and written. A poll of the tail may bring several batches, so positions
are taken from the batches; once all of them are written, the tail knows better: it has passed over what is no record.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from pyspark_kafka_direct.continuous._control import Report
from pyspark_kafka_direct.continuous._coordinator import START_SETTING
from pyspark_kafka_direct.continuous._epoch_writer import EPOCH_SETTING
from pyspark_kafka_direct.continuous._task_channel import TaskChannel
from pyspark_kafka_direct.continuous.sink import TaskInfo
from pyspark_kafka_direct.errors import DataLossError, OptionError, RunFailedError, TopicNotFoundError
from pyspark_kafka_direct.runtime.worker import begin_task, end_task, spare_collections
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.system import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.continuous._control import Mark, Start
    from pyspark_kafka_direct.continuous._losses import Losses
    from pyspark_kafka_direct.continuous._seams import EpochSink, TaskPlan
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.reading.tail import Polled
    from pyspark_kafka_direct.wire.system import System

_log = logging.getLogger("pyspark_kafka_direct.continuous")

# A sink may have something to try again, of which no descriptor tells.
_LONGEST_POLL: Final = 0.1

# While batches are worked through, marks and the sink's answers are looked for so often.
_LOOK_AROUND: Final = 0.001

# The user's function gets so much at once; a mark waits until it has returned.
_MOST_ROWS: Final = 8192
_MOST_BYTES: Final = 1 << 20

_OFFSET: Final = "offset"


def run_task(plan: TaskPlan, task: int, attempt: int) -> None:
    """Work until the driver ends the run.

    Args:
        plan: What all tasks of the run have in common.
        task: The number of this one.
        attempt: Spark's number of its attempt. The driver ends the run where Spark tries a task again.

    Raises:
        RunFailedError: The driver cannot be reached, has hung up, or is silent.
        DataLossError: Records are gone, and the query is to fail then.
        KafkaDirectError: Something cannot be read or written.
        Exception: What the query's function or its sink has raised.
    """
    begin_task()
    deadline = Deadline.after(plan.start_timeout, START_SETTING, system=SYSTEM)
    with TaskChannel.connect(plan.address, task, attempt, deadline) as channel:
        try:
            _work(plan, task, channel, channel.wait_for_start(deadline))
        except BaseException as error:
            channel.fail(error, Deadline.after(plan.mark_timeout, EPOCH_SETTING, system=SYSTEM))
            raise
    end_task()


class TailLike(Protocol):
    """What is needed of ``reading.tail.Tail``."""

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition, after all that was handed out."""

    def poll(self, seconds: float, wake: Collection[int] = ()) -> list[Polled]:
        """Return what is new; wait for it, or for a descriptor."""


class TaskLoop:
    """Reads, writes and ends epochs.

    Args:
        tail: Reads the task's partitions, with the column ``offset``.
        channel: Hears the driver.
        sink: Takes what the function returns.
        function: Is called with each batch; ``None``: the batch is written as it is.
        columns: The columns that the function gets.
        losses: Is told what is gone.
        mark_timeout: Seconds without a mark after which the driver is taken for dead.
        system: Whose clock.
    """

    def __init__(
        self,
        tail: TailLike,
        channel: TaskChannel,
        sink: EpochSink,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | None] | None,
        columns: Sequence[str],
        losses: Losses,
        mark_timeout: float,
        system: System,
    ) -> None:
        self._tail = tail
        self._channel = channel
        self._sink = sink
        self._function = function
        self._columns = list(columns)
        self._losses = losses
        self._mark_timeout = mark_timeout
        self._system = system
        self._unread: deque[Polled] = deque()  # handed out, and not given to the function yet
        self._positions = dict(tail.positions)
        self._rows = self._rows_read = self._bytes = 0
        self._heard_at = self._looked_at = system.monotonic()
        self._stopped = False

    def run(self) -> None:
        """Work until the mark that stops the run.

        Raises:
            Exception: As ``run_task``.
        """
        while not self._stopped:
            try:
                polled = self._tail.poll(_LONGEST_POLL, [self._channel.fileno(), *self._sink.descriptors()])
            except (DataLossError, TopicNotFoundError) as error:
                self._losses.after(error)
                self._positions.update(self._tail.positions)
            else:
                self._unread.extend(polled)
            while self._unread and not self._stopped:
                self._take(*self._unread.popleft())
                if self._unread and self._system.monotonic() >= self._looked_at + _LOOK_AROUND:
                    self._look_around()
            if not self._stopped:
                self._look_around()

    def _take(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        self._rows_read += rows.num_rows
        self._bytes += rows.get_total_buffer_size()
        following = rows.column(_OFFSET)[-1].as_py() + 1
        if _OFFSET not in self._columns:
            rows = rows.select(self._columns)
        made = rows if self._function is None else self._made(self._function(rows))
        if made is not None and made.num_rows:
            self._sink.write(made)
            self._rows += made.num_rows
        self._positions[partition] = following

    def _made(self, made: object) -> pa.RecordBatch | None:
        import pyarrow as pa

        if made is None or isinstance(made, pa.RecordBatch):
            return made
        kind = type(made)
        raise OptionError(
            f"The query's function returned a {kind.__module__}.{kind.__qualname__}: it must return a "
            "pyarrow.RecordBatch, or None to drop the rows."
        )

    def _look_around(self) -> None:
        """Let the sink go on, and do what the driver wants."""
        self._sink.turn()
        for mark in self._channel.receive():
            self._end_epoch(mark)
        self._looked_at = now = self._system.monotonic()
        if now > self._heard_at + self._mark_timeout:
            raise RunFailedError(
                f"For {self._mark_timeout:g} s the query's driver has marked no epoch: this task takes it for dead, "
                "and ends. The next run reads on from the last whole epoch. Raise markTimeout if it is only slow."
            )

    def _end_epoch(self, mark: Mark) -> None:
        if not self._unread:
            self._positions.update(self._tail.positions)
        positions = dict(self._positions)
        began = self._system.monotonic()
        sought, anew = self._losses.take_sought(), self._losses.take_anew()
        self._sink.end_epoch(mark.epoch, positions, anew)
        flush_ms = (self._system.monotonic() - began) * 1000
        report = Report(mark.epoch, positions, self._rows, self._bytes, flush_ms, self._rows_read, sought, anew)
        self._channel.report(report, Deadline.after(self._mark_timeout, EPOCH_SETTING, system=self._system))
        if self._rows_read:
            spare_collections()  # all is imported now; a full collection would hold records up for 20 ms
        self._rows = self._rows_read = self._bytes = 0
        self._stopped = mark.stop
        self._heard_at = self._system.monotonic()


def _work(plan: TaskPlan, task: int, channel: TaskChannel, start: Start) -> None:
    from pyspark_kafka_direct.continuous._losses import Losses
    from pyspark_kafka_direct.reading.tail import Tail
    from pyspark_kafka_direct.wire.cluster import Cluster

    cluster = Cluster(plan.connection)
    who = TaskInfo(plan.query_id, plan.address.run, task, tuple(sorted(start.offsets)), start.epoch)
    tail = Tail(
        cluster,
        plan.fetch,
        start.offsets,
        columns=plan.columns if _OFFSET in plan.columns else (*plan.columns, _OFFSET),
        max_rows=_MOST_ROWS,
        max_bytes=_MOST_BYTES,
        max_batch_bytes=plan.max_record_batch_bytes,
        topic_ids=plan.topic_ids,
    )
    with tail, _closing(plan.sink(who)) as sink:
        TaskLoop(
            tail,
            channel,
            sink,
            plan.function,
            plan.columns,
            Losses(tail, cluster, fail_on_data_loss=plan.fail_on_data_loss),
            plan.mark_timeout,
            cluster.pool.system,
        ).run()


@contextmanager
def _closing(sink: EpochSink) -> Iterator[EpochSink]:
    """Close the sink in any case; what has ended the task counts more than what closing may raise then."""
    try:
        yield sink
    except BaseException:
        try:
            sink.close()
        except Exception:
            _log.warning("the sink could not be closed", exc_info=True)
        raise
    sink.close()
