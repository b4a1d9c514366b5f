"""The long-running task of a continuous query: reads records, writes them to its sink, and ends epochs on request.

One thread with one wait: for the brokers, the driver and the sink. (Another one only sends heartbeats.) Epoch requests
are also checked between batches, so a request waits at most for one call of the user's function, and for the sink.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.client.connection_pool import POOL
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.continuous.batch_size import BatchSize
from pyspark_kafka_direct.continuous.continuous_epochs import EpochReport
from pyspark_kafka_direct.continuous.continuous_sink import TaskInfo
from pyspark_kafka_direct.continuous.control_socket import TaskChannel
from pyspark_kafka_direct.continuous.epoch_coordinator import START_TIMEOUT_OPTION
from pyspark_kafka_direct.continuous.map_function import open_functions
from pyspark_kafka_direct.continuous.task_lease import HEARTBEAT_TIMEOUT_OPTION
from pyspark_kafka_direct.errors import (
    DataLossError,
    OptionError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientBrokerError,
)
from pyspark_kafka_direct.offsets import TopicPartition
from pyspark_kafka_direct.planning.data_loss import loss_cause, resume_offset
from pyspark_kafka_direct.planning.loss_errors import DataLossCause
from pyspark_kafka_direct.spark.worker_lifecycle import begin_task, end_task, freeze_gc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    import pyarrow as pa

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer, PolledBatch
    from pyspark_kafka_direct.continuous.continuous_sink import SinkWriter, SinkWriterFactory
    from pyspark_kafka_direct.continuous.control_messages import EpochRequest, StartTask
    from pyspark_kafka_direct.continuous.control_socket import ControlAddress
    from pyspark_kafka_direct.continuous.map_function import MapFunction
    from pyspark_kafka_direct.options.settings import ConnectionSettings, FetchSettings
    from pyspark_kafka_direct.payloads.payload_decoder import DecodedColumns, PayloadDecoder

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_MAX_POLL_SECONDS: Final = 0.1  # a sink may have retries that no descriptor announces
_CHECK_INTERVAL: Final = 0.001  # seconds between checks of sink and driver while batches are processed

# The largest batch for the user's function.
_MAX_ROWS: Final = 8192
_MAX_BYTES: Final = 1 << 20

_OFFSET_COLUMN: Final = "offset"
_LOG_BOUNDS_TIMEOUT: Final = 10.0  # seconds; after a timeout, the consumer raises its error again
_DATA_LOSS_ADVICE: Final = "To skip them, set failOnDataLoss=false."


def run_task(plan: TaskPlan, task: int, attempt: int, pool: ConnectionPool = POOL) -> None:
    """Run a task until the driver ends the run."""
    begin_task()
    deadline = Deadline.after(plan.start_timeout, START_TIMEOUT_OPTION, system=pool.system)
    with TaskChannel.connect(plan.address, task, attempt, deadline) as channel:
        try:
            function = open_functions(plan.functions)
            with channel.begin_lease(plan.heartbeat_timeout):
                _run_task_loop(
                    plan, task, function=function, channel=channel, start_message=channel.wait_for_start(), pool=pool
                )
        except BaseException as error:
            channel.report_failure(
                error, Deadline.after(plan.heartbeat_timeout, HEARTBEAT_TIMEOUT_OPTION, system=pool.system)
            )
            raise
    end_task()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """The plan that all tasks of a run have in common. Pickled into Spark's tasks."""

    address: ControlAddress
    query_id: str
    connection: ConnectionSettings
    fetch: FetchSettings
    columns: tuple[str, ...]
    functions: tuple[MapFunction, ...]
    max_records_per_second: float | None  # of each task
    writer_factory: SinkWriterFactory
    start_timeout: float  # seconds
    heartbeat_timeout: float  # seconds
    decoded: DecodedColumns | None = None  # None: keys and values are bytes


class TaskLoop:
    """Reads, writes and ends epochs.

    A reported position means that everything before it was written. A poll may return several batches, so positions
    come from the batches. Once all of them are written, the positions of the consumer apply, which are also past
    control records and offset gaps.
    """

    def __init__(
        self,
        consumer: PartitionConsumer,
        channel: TaskChannel,
        sink: SinkWriter,
        *,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | None] | None,
        columns: Sequence[str],
        data_loss_handler: DataLossHandler,
        heartbeat_timeout: float,  # seconds
        system: System,
        end_offsets: Mapping[TopicPartition, int] = MappingProxyType({}),  # where to stop reading
        batch_size: BatchSize | None = None,
        # Positions that the sink has stored at or after the end offset, so the consumer does not read these partitions.
        stored_ahead: Mapping[TopicPartition, int] = MappingProxyType({}),
        decoder: PayloadDecoder | None = None,
    ) -> None:
        self._decoder = decoder
        self._end_offsets = end_offsets
        self._stored_ahead = stored_ahead
        self._consumer = consumer
        self._channel = channel
        self._sink = sink
        self._function = function
        self._columns = list(columns)
        self._data_loss_handler = data_loss_handler
        self._heartbeat_timeout = heartbeat_timeout
        self._system = system
        self._batch_size = batch_size or BatchSize(_MAX_ROWS)
        self._unprocessed: deque[PolledBatch] = deque()  # polled, but not passed to the function yet
        self._positions = {**consumer.positions, **stored_ahead}  # a report needs all partitions of the task
        self._written_rows = self._read_rows = self._read_bytes = 0  # since the last report
        self._last_check_at = system.monotonic()
        self._has_stopped = False

    def run(self) -> None:
        """Process batches until a request ends the run."""
        while not self._has_stopped:
            try:
                polled = self._consumer.poll(_MAX_POLL_SECONDS, self._descriptors())
            except (DataLossError, TopicNotFoundError) as error:
                self._data_loss_handler.handle(error)
                self._positions.update(self._consumer.positions)  # the handler may have moved the consumer
            else:
                self._unprocessed.extend(polled)
            self._process_polled()
            if not self._has_stopped:
                self._check_sink_and_driver()

    def _process_polled(self) -> None:
        """Process what was polled; meanwhile, check the sink and the driver."""
        while self._unprocessed and not self._has_stopped:
            if (pause := self._batch_size.next_at - self._system.monotonic()) > 0:  # maxRecordsPerSecond
                self._system.wait_ready(self._descriptors(), [], min(pause, _MAX_POLL_SECONDS))
                self._check_sink_and_driver()
                continue
            self._process_rows(*self._next_rows())
            if self._unprocessed and self._system.monotonic() >= self._last_check_at + _CHECK_INTERVAL:
                self._check_sink_and_driver()

    def _descriptors(self) -> list[int]:
        """Return the descriptors of the driver and the sink, for which the task waits."""
        return [self._channel.fileno(), *self._sink.descriptors()]

    def _next_rows(self) -> PolledBatch:
        """Return as many polled rows as may be processed at once."""
        polled = self._unprocessed.popleft()
        if polled.rows.num_rows <= self._batch_size.rows:
            return polled
        self._unprocessed.appendleft(polled._replace(rows=polled.rows.slice(self._batch_size.rows)))
        return polled._replace(rows=polled.rows.slice(0, self._batch_size.rows))

    def _process_rows(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        if partition in self._end_offsets:
            end = self._end_offsets[partition]
            rows = rows.slice(0, bisect_left(rows.column(_OFFSET_COLUMN), end, key=lambda offset: offset.as_py()))
            if not rows.num_rows:  # all are after the end
                self._positions[partition] = end
                return
        read_rows = rows.num_rows
        self._read_rows += read_rows
        self._read_bytes += rows.nbytes
        next_offset = rows.column(_OFFSET_COLUMN)[-1].as_py() + 1  # also after records that are dropped below
        started_at = self._system.monotonic()
        for batch in self._input_batches(partition, rows):
            result = batch if self._function is None else _check_result(self._function(batch))
            if result is not None and result.num_rows:
                self._channel.check_lease()
                self._sink.write(result)
                self._written_rows += result.num_rows
        self._positions[partition] = next_offset
        self._batch_size.adapt(read_rows, started_at, self._system.monotonic())

    def _input_batches(self, partition: TopicPartition, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Return what the user's function receives; no batch if malformed records are dropped."""
        if self._decoder is not None:
            return self._decoder.decode([rows], partition)
        # The offset may have been read only for the positions.
        return [rows if _OFFSET_COLUMN in self._columns else rows.select(self._columns)]

    def _check_sink_and_driver(self) -> None:
        self._channel.check_lease()
        self._sink.run_once()
        for request in self._channel.receive():
            self._end_epoch(request)
        self._last_check_at = self._system.monotonic()

    def _end_epoch(self, request: EpochRequest) -> None:
        if not self._unprocessed:
            self._positions.update(self._consumer.positions)
        # The consumer may be after the end of a planned epoch.
        positions = {tp: min(offset, self._end_offsets.get(tp, offset)) for tp, offset in self._positions.items()}
        started_at = self._system.monotonic()
        losses = self._data_loss_handler.take_losses()
        self._channel.check_lease()
        if request.stop or not self._end_offsets:  # otherwise the rows so far are a part of an epoch
            # A sink that is ahead must not store the end offset, which may be lower.
            self._sink.end_epoch(request.epoch, {**positions, **self._stored_ahead}, losses.recreated_topic_ids)
        flush_ms = (self._system.monotonic() - started_at) * 1000
        report = EpochReport(
            epoch=request.epoch,
            offsets=positions,
            rows=self._written_rows,
            bytes=self._read_bytes,
            flush_ms=flush_ms,
            rows_read=self._read_rows,
            reset_positions=losses.reset_positions,
            recreated_topic_ids=losses.recreated_topic_ids,
            skipped_offsets=losses.skipped_offsets,
            malformed_records={} if self._decoder is None else self._decoder.take_malformed(),
            schema_errors={} if self._decoder is None else self._decoder.take_schema_errors(),
        )
        self._channel.report(
            report, Deadline.after(self._heartbeat_timeout, HEARTBEAT_TIMEOUT_OPTION, system=self._system)
        )
        if self._read_rows:
            freeze_gc()  # all modules are imported; a full collection would delay records by 20 ms
        self._written_rows = self._read_rows = self._read_bytes = 0
        self._has_stopped = request.stop


@dataclass(slots=True)
class Losses:
    """Records that a task has lost since its last report; see ``EpochReport``."""

    reset_positions: dict[TopicPartition, int] = field(default_factory=dict)
    recreated_topic_ids: dict[TopicPartition, UUID] = field(default_factory=dict)
    skipped_offsets: dict[DataLossCause, dict[TopicPartition, int]] = field(default_factory=dict)


class DataLossHandler:
    """Raises at the first data loss, or warns and resumes where a micro-batch stream would.

    With ``failOnDataLoss=false``, a partition resumes as follows:

        records expired        at the start of the log
        log truncated          at its position, because offsets are not reread; at most at the end of the log
        position beyond end    at the end of the log
        records not returned   after the offsets of which it is unknown whether they have records
        topic recreated        at the start of the new topic
        topic deleted          not; the topic may come back, or the driver drops the partition
    """

    def __init__(
        self,
        consumer: PartitionConsumer,
        cluster: ClusterClient,
        reset_positions: Mapping[TopicPartition, int] = MappingProxyType({}),  # lower than those of the driver
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._fail_on_data_loss = fail_on_data_loss
        self._missing_partitions: set[TopicPartition] = set()
        self._losses = Losses(dict(reset_positions))

    def handle(self, error: DataLossError | TopicNotFoundError) -> None:
        """Raise the error as data loss, or move the consumer to where it resumes, and record what is lost."""
        if self._fail_on_data_loss or error.topic is None or error.partition is None:
            raise DataLossError(
                f"data loss: {error.message} {_DATA_LOSS_ADVICE}",
                topic=error.topic,
                partition=error.partition,
                offset=error.offset,
            ) from error
        partition = TopicPartition(error.topic, error.partition)
        if not isinstance(error, DataLossError | TopicRecreatedError):  # the topic or partition was deleted
            self._warn_of_missing(partition, error)
            return
        try:
            deadline = self._cluster.deadline(_LOG_BOUNDS_TIMEOUT)
            start, end = self._cluster.log_bounds([partition], deadline)[partition]
        except (TransientBrokerError, TopicNotFoundError):
            return  # the consumer raises the same error again later
        position = self._consumer.positions[partition]
        offset = resume_offset(error, position, start, end)
        _log.warning(
            "data loss: %s Reading resumes at offset %d of %s (failOnDataLoss=false)", error.message, offset, partition
        )
        self._consumer.seek(partition, offset)
        self._missing_partitions.discard(partition)
        cause = loss_cause(error, position, start, end)
        if cause is not None:  # otherwise the log has the position by now
            is_same_topic = cause is not DataLossCause.RECREATED  # offsets of two topics cannot be compared
            self._count_skipped(cause, partition, max(offset - position, 0) if is_same_topic else 0)
        if offset < position:  # without this, the driver would reject the report
            self._losses.reset_positions[partition] = offset
        if isinstance(error, TopicRecreatedError) and error.topic_id is not None:
            self._losses.recreated_topic_ids[partition] = error.topic_id

    def take_losses(self) -> Losses:
        """Return what was lost since the last call."""
        losses, self._losses = self._losses, Losses()
        return losses

    def _count_skipped(self, cause: DataLossCause, partition: TopicPartition, offsets: int) -> None:
        counts = self._losses.skipped_offsets.setdefault(cause, {})
        counts[partition] = counts.get(partition, 0) + offsets

    def _warn_of_missing(self, partition: TopicPartition, error: TopicNotFoundError) -> None:
        """Warn once: the consumer raises the error again at later polls."""
        if partition not in self._missing_partitions:
            self._missing_partitions.add(partition)
            self._count_skipped(DataLossCause.DELETED, partition, 0)
            _log.warning("data loss: %s Reading continues without %s (failOnDataLoss=false)", error.message, partition)


def _run_task_loop(
    plan: TaskPlan,
    task: int,
    *,
    function: Callable[[pa.RecordBatch], pa.RecordBatch | None] | None,
    channel: TaskChannel,
    start_message: StartTask,
    pool: ConnectionPool,
) -> None:
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.consumer.partition_consumer import PartitionConsumer

    cluster = ClusterClient(plan.connection, pool=pool)
    task_info = TaskInfo(plan.query_id, plan.address.run, task, tuple(sorted(start_message.offsets)))
    decoder = None if plan.decoded is None else plan.decoded.decoder()
    read_columns = list(plan.columns if decoder is None else decoder.record_columns)
    if _OFFSET_COLUMN not in read_columns:
        read_columns.append(_OFFSET_COLUMN)
    max_rows = min([_MAX_ROWS, *(each.max_rows for each in plan.functions if each.max_rows is not None)])
    with _closing(plan.writer_factory(task_info, start_message, pool)) as sink:
        start = _start_positions(start_message, sink.stored_positions())
        consumer = PartitionConsumer(
            cluster,
            plan.fetch,
            start.to_read,
            columns=read_columns,
            max_rows=max_rows,
            max_bytes=_MAX_BYTES,
            max_batch_bytes=plan.fetch.max_record_batch_bytes,
            topic_ids=start_message.topic_ids,
        )
        data_loss_handler = DataLossHandler(
            consumer, cluster, start.moved_back, fail_on_data_loss=plan.fetch.fail_on_data_loss
        )
        with consumer:
            TaskLoop(
                consumer,
                channel,
                sink,
                function=function,
                columns=plan.columns,
                data_loss_handler=data_loss_handler,
                heartbeat_timeout=plan.heartbeat_timeout,
                system=pool.system,
                end_offsets=start_message.end_offsets,
                batch_size=BatchSize(max_rows, plan.max_records_per_second),
                stored_ahead=start.stored_ahead,
                decoder=decoder,
            ).run()


@dataclass(frozen=True, slots=True)
class _StartPositions:
    to_read: Mapping[TopicPartition, int]  # where the consumer starts
    stored_ahead: Mapping[TopicPartition, int]  # of the sink, at or after the end offsets
    moved_back: Mapping[TopicPartition, int]  # of the sink, lower than those of the driver


def _start_positions(start: StartTask, stored_positions: Mapping[TopicPartition, int]) -> _StartPositions:
    """Return where a task starts: a sink that stores positions resumes there, and not at the offsets of the driver."""
    stored = {tp: offset for tp, offset in stored_positions.items() if tp in start.offsets}
    end_offsets = start.end_offsets
    stored_ahead = {tp: offset for tp, offset in stored.items() if tp in end_offsets and offset >= end_offsets[tp]}
    to_read = {tp: offset for tp, offset in {**start.offsets, **stored}.items() if tp not in stored_ahead}
    moved_back = {tp: offset for tp, offset in stored.items() if offset < start.offsets[tp]}
    return _StartPositions(to_read, stored_ahead, moved_back)


def _check_result(result: object) -> pa.RecordBatch | None:
    """Return the result of the user's function if it is valid; ``None`` drops the rows."""
    import pyarrow as pa

    if result is None or isinstance(result, pa.RecordBatch):
        return result
    result_type = type(result)
    raise OptionError(
        f"The query's function returned a {result_type.__module__}.{result_type.__qualname__}. It must return a "
        "pyarrow.RecordBatch, or None to drop the rows."
    )


@contextmanager
def _closing(sink: SinkWriter) -> Iterator[SinkWriter]:
    """Close the sink; an error of the task takes precedence over an error of ``close``."""
    try:
        yield sink
    except BaseException:
        try:
            sink.close()
        except Exception:
            _log.warning("Cannot close the sink.", exc_info=True)
        raise
    sink.close()
