"""Say what a continuous query does, and start it."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.hints import did_you_mean, listed
from pyspark_kafka_direct.planning.select import Assign, Subscribe, SubscribePattern
from pyspark_kafka_direct.runtime.plain_errors import plain_errors
from pyspark_kafka_direct.settings.continuous import options_of, output_options, run_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.continuous._seams import Delivery
    from pyspark_kafka_direct.continuous.query import ContinuousQuery
    from pyspark_kafka_direct.continuous.sink import Sink, SinkFactory
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.select import Selection
    from pyspark_kafka_direct.settings.continuous import RunSettings
    from pyspark_kafka_direct.settings.source import ContinuousOptions

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_DEFAULT_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
_KEPT: Final = "spark.sql.streaming.numRecentProgressUpdates"
_TRANSACTION_TIMEOUT: Final = "kafka.transaction.timeout.ms"
_SECONDS_TO_CANCEL: Final = 60.0


def continuous_query(spark: SparkSession) -> ContinuousQueryBuilder:
    """Begin to say what a continuous query does.

    Args:
        spark: The session that runs it.
    """
    return ContinuousQueryBuilder(spark)


@dataclass(frozen=True, slots=True)
class Output:
    """Where a query's output goes.

    Attributes:
        description: The same in a few words.
        delivery: Returns how it is delivered, by what is read, the session, and how the query runs.
    """

    description: str
    delivery: Callable[[ContinuousOptions, SparkSession, RunSettings], Delivery]


@dataclass(frozen=True, slots=True, repr=False)
class ContinuousQueryBuilder:
    """What a continuous query does, as far as it was said. Each method returns a new one; made by ``continuous_query``.

    A query reads, may make something of each batch, has one output, and is started::

        query = (
            continuous_query(spark)
            .read({"kafka.bootstrap.servers": "broker:9092"}, subscribe="flights")
            .map_batches(late_ones)
            .to_kafka("alerts")
            .start(checkpointLocation="/checkpoints/alerts")
        )
    """

    _spark: SparkSession
    _reading: Mapping[str, str] | None = None
    _columns: tuple[str, ...] | None = None
    _functions: tuple[Callable[[pa.RecordBatch], pa.RecordBatch | None], ...] = ()
    _output: Output | None = None

    def read(self, options: Mapping[str, object] | None = None, **more: object) -> ContinuousQueryBuilder:
        """Say what is read.

        Args:
            options: Options of the data source ``kafka-direct``: see docs/options.md, column *for*: continuous.
            more: The same, where the name is one of Python's.

        Raises:
            OptionError: An option cannot be used, or an output was named before.
        """
        from pyspark_kafka_direct.settings.source import parse_continuous_options

        if self._output is not None:
            raise OptionError("call read(...) before the output, which may be in the cluster that is read")
        reading = options_of(options, more)
        parse_continuous_options(reading)
        return replace(self, _reading=reading)

    def select(self, *columns: str) -> ContinuousQueryBuilder:
        """Choose the columns of a record that the function or the output gets; fewer are faster.

        Args:
            columns: Some of ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``
                and ``headers``. Without ``select`` all of them, ``headers`` only with ``includeHeaders``.

        Raises:
            OptionError: There is no such column, or it is named twice.
        """
        if not columns:
            raise OptionError(f"select() needs the names of columns, some of {', '.join(_COLUMNS)}")
        for name in columns:
            if name not in _COLUMNS:
                raise OptionError(
                    f"select(): a record has no column {name!r}; it has {', '.join(_COLUMNS)}"
                    + did_you_mean(str(name), _COLUMNS)
                )
        if len(set(columns)) != len(columns):
            raise OptionError(f"select(): a column is named twice: {', '.join(columns)}")
        return replace(self, _columns=columns)

    def map_batches(self, function: Callable[[pa.RecordBatch], pa.RecordBatch | None]) -> ContinuousQueryBuilder:
        """Make something of each batch, in the tasks. Called more than once, each function gets what the last returned.

        Args:
            function: Gets a batch of records of one partition, in the order of their offsets, and returns a batch with
                any columns, or ``None`` where nothing is left of it.

        Raises:
            OptionError: It cannot be called.
        """
        _check_callable(function, "map_batches()")
        return replace(self, _functions=(*self._functions, function))

    def to_kafka(
        self, topic: str | None = None, options: Mapping[str, object] | None = None, **more: object
    ) -> ContinuousQueryBuilder:
        """Write to Kafka: the columns ``value`` and, where there are such, ``key``, ``headers``, ``topic`` and others.

        Args:
            topic: The topic; without it the column ``topic`` names it.
            options: Options of the data source for writing, see docs/options.md. Where they name no
                ``kafka.bootstrap.servers``, the output is in the cluster that is read.
            more: The same, where the name is one of Python's.

        Raises:
            OptionError: An option cannot be used, or there was no ``read`` before.
        """
        from pyspark_kafka_direct.continuous._kafka_output import kafka_delivery
        from pyspark_kafka_direct.settings.sink import parse_sink_options, warn_once

        if self._reading is None:
            raise OptionError("call read(...) before to_kafka(...), which writes to the same cluster")
        writing = options_of(options, more)
        if topic is not None:
            writing = {**{name: text for name, text in writing.items() if name.lower() != "topic"}, "topic": topic}
        given = parse_sink_options(output_options(self._reading, writing), streaming=True)
        for warning in given.warnings:
            warn_once(warning)
        timeout_given = _TRANSACTION_TIMEOUT in {name.lower() for name in writing}
        where = f"topic {given.topic}" if given.topic is not None else "the topics of the column topic"

        def delivery(reading: ContinuousOptions, spark: SparkSession, settings: RunSettings) -> Delivery:
            return kafka_delivery(reading, given, spark, settings, timeout_given=timeout_given)

        return replace(self, _output=Output(f"Kafka[{where}]", delivery))

    def foreach_batch(self, function: Callable[[pa.RecordBatch, int], None]) -> ContinuousQueryBuilder:
        """Give each batch to a function, in the tasks, with the number of its epoch.

        Args:
            function: A batch counts as written when it has returned.

        Raises:
            OptionError: It cannot be called.
        """
        from pyspark_kafka_direct.continuous._delivery import AtLeastOnce
        from pyspark_kafka_direct.continuous._plain_sink import batch_function

        _check_callable(function, "foreach_batch()")
        _check_travels(function, "the function of foreach_batch()")
        delivery = AtLeastOnce(batch_function(function))
        return replace(self, _output=Output("foreach_batch", lambda *_: delivery))

    def to(self, sink: Sink | SinkFactory) -> ContinuousQueryBuilder:
        """Write to a sink of your own, see ``continuous.sink``.

        Args:
            sink: An object with the three methods, of which each task gets a copy; or what makes one for a task.

        Raises:
            OptionError: It is neither.
        """
        from pyspark_kafka_direct.continuous._delivery import AtLeastOnce
        from pyspark_kafka_direct.continuous._plain_sink import plain_sink

        delivery = AtLeastOnce(plain_sink(sink))
        _check_travels(sink, "the sink")
        return replace(self, _output=Output(_name_of(sink), lambda *_: delivery))

    @plain_errors
    def start(
        self,
        *,
        checkpointLocation: str | None = None,  # noqa: N803 (Spark's names, so below)
        epochInterval: float | str | None = None,  # noqa: N803
        outputMode: str | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        tasksMax: int | None = None,  # noqa: N803
        taskStartTimeout: float | str | None = None,  # noqa: N803
        epochTimeout: float | str | None = None,  # noqa: N803
        markTimeout: float | str | None = None,  # noqa: N803
        maxRestarts: int | None = None,  # noqa: N803
        restartWindow: float | str | None = None,  # noqa: N803
        discoveryInterval: float | str | None = None,  # noqa: N803
        controlPort: int | None = None,  # noqa: N803
        **unknown: object,
    ) -> ContinuousQuery:
        """Start the query. Durations are seconds, or texts such as ``"1 second"`` or ``"100 milliseconds"``.

        Args:
            checkpointLocation: Where the query keeps how far it is; a micro-batch query can take it over, and back.
            epochInterval: How often it is written down how far the query is; 1 second.
            outputMode: ``append``; ``update`` means the same here.
            queryName: A name.
            tasksMax: Most tasks; each needs a core. Without it there is one for each topic-partition.
            taskStartTimeout: How long to wait for all tasks to start; 60 seconds.
            epochTimeout: How long tasks may take to flush at the end of an epoch, and the checkpoint's file system to
                take it; 60 seconds. A function or a sink that hangs is cancelled then.
            markTimeout: How long a task that hears nothing waits until it takes the driver for dead; by default the
                interval and twice the timeout of epochs.
            maxRestarts: How often the query may start again after failures, within the window; 3.
            restartWindow: How long that is; 600 seconds.
            discoveryInterval: How often to look for new and deleted partitions; 10 seconds.
            controlPort: The driver's port for the tasks; 0, any that is free.
            unknown: Refused.

        Raises:
            OptionError: A setting cannot be used, or something is missing.
            KafkaDirectError: The checkpoint cannot be used.
        """
        spark: Any = self._spark
        settings = run_settings(
            {
                "checkpointLocation": checkpointLocation,
                "epochInterval": epochInterval,
                "outputMode": outputMode,
                "queryName": queryName,
                "tasksMax": tasksMax,
                "taskStartTimeout": taskStartTimeout,
                "epochTimeout": epochTimeout,
                "markTimeout": markTimeout,
                "maxRestarts": maxRestarts,
                "restartWindow": restartWindow,
                "discoveryInterval": discoveryInterval,
                "controlPort": controlPort,
                **unknown,
            },
            _conf(spark, _DEFAULT_CHECKPOINTS),
        )
        return self._start(settings)

    def _start(self, settings: RunSettings) -> ContinuousQuery:
        from pyspark_kafka_direct.continuous._logs import open_logs
        from pyspark_kafka_direct.continuous._progress import About
        from pyspark_kafka_direct.continuous._query_state import QueryState
        from pyspark_kafka_direct.continuous._run import fresh_id
        from pyspark_kafka_direct.continuous._runner import Runner, Work
        from pyspark_kafka_direct.continuous.query import THREAD, ContinuousQuery
        from pyspark_kafka_direct.settings.source import parse_continuous_options
        from pyspark_kafka_direct.wire.system import SYSTEM

        spark: Any = self._spark
        if self._reading is None:
            raise OptionError("nothing is read: call read(...) before start(...)")
        if self._output is None:
            raise OptionError("there is no output: call to_kafka(...), foreach_batch(...) or to(...) before start(...)")
        reading = parse_continuous_options(self._reading)
        work = Work(
            reading=reading,
            columns=self._columns or tuple(each for each in _COLUMNS if each != "headers" or reading.include_headers),
            function=_composed(self._functions),
            delivery=self._output.delivery(reading, self._spark, settings),
        )
        logs = open_logs(self._spark, settings.checkpoint)
        _check_speculation(spark.sparkContext.getConf().get("spark.speculation"))
        _check_travels(work.function, "the function of map_batches()")
        if settings.name is not None and any(each.name == THREAD + settings.name for each in threading.enumerate()):
            raise OptionError(f"queryName: a continuous query {settings.name!r} is running already; stop it first")
        about = About(
            id=logs.query_id(fresh_id(SYSTEM)),
            run_id=fresh_id(SYSTEM),
            name=settings.name,
            source=f"KafkaDirect[{_said(reading.selection)}]",
            sink=self._output.description,
        )
        state = QueryState(about, int(_conf(spark, _KEPT) or 100), SYSTEM)
        return ContinuousQuery(
            state,
            Runner(self._spark, work, settings, logs, state, SYSTEM),
            lambda: _ends(reading),
            2 * settings.epoch_timeout + _SECONDS_TO_CANCEL,  # to flush, and to write that down
            SYSTEM,
        )


@dataclass(frozen=True, slots=True)
class _Composed:
    """Functions, one after the other."""

    functions: tuple[Callable[[pa.RecordBatch], pa.RecordBatch | None], ...]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        made: pa.RecordBatch | None = batch
        for function in self.functions:
            made = function(made)
            if made is None:
                return None
        return made


def _composed(
    functions: tuple[Callable[[pa.RecordBatch], pa.RecordBatch | None], ...],
) -> Callable[[pa.RecordBatch], pa.RecordBatch | None] | None:
    if len(functions) <= 1:
        return functions[0] if functions else None
    return _Composed(functions)


def _check_callable(function: object, where: str) -> None:
    if not callable(function):
        raise OptionError(f"{where} needs a function, got {type(function).__name__}")


def _check_speculation(speculation: str | None) -> None:
    if (speculation or "").strip().lower() == "true":
        raise OptionError(
            "spark.speculation=true cannot be used with a continuous query: Spark would start each task a second time, "
            "as none of them ever ends. Set it to false"
        )


def _check_travels(thing: object, what: str) -> None:
    """Refuse what cannot be sent to the executors, before a job fails with it."""
    from pyspark.serializers import CloudPickleSerializer

    try:
        CloudPickleSerializer().dumps(thing)  # type: ignore[no-untyped-call]
    except Exception as error:
        said = str(error).rstrip(".")
        raise OptionError(
            f"{what} cannot be sent to the executors: {said}. Make what cannot be pickled, a connection for instance, "
            "within it"
        ) from error


def _ends(reading: ContinuousOptions) -> Mapping[TopicPartition, int]:
    """Return where the partitions end now."""
    from pyspark_kafka_direct.offsets import LATEST
    from pyspark_kafka_direct.runtime.live_view import LiveView

    view = LiveView(reading, _log)
    return view.offsets(dict.fromkeys(view.assigned(strict=False).partitions, LATEST))


def _conf(spark: Any, name: str) -> str | None:
    value: str | None = spark.conf.get(name, None)
    return value


def _name_of(sink: object) -> str:
    name = getattr(sink, "__qualname__", None)
    return name if isinstance(name, str) else type(sink).__qualname__


def _said(selection: Selection) -> str:
    match selection:
        case Assign(partitions):
            return f"Assign[{listed(partitions)}]"
        case Subscribe(topics):
            return f"Subscribe[{listed(topics)}]"
        case SubscribePattern(pattern):
            return f"SubscribePattern[{pattern.text}]"
