"""Define and start a continuous query."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.continuous.map_function import MapFunction
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.continuous_query import (
    START_PARAMETERS,
    options_as_strings,
    parse_start_options,
    with_input_connection,
)
from pyspark_kafka_direct.options.hints import did_you_mean, listed
from pyspark_kafka_direct.options.payload_settings import ERROR_COLUMN
from pyspark_kafka_direct.options.subscription import AssignStrategy, SubscribePatternStrategy, SubscribeStrategy
from pyspark_kafka_direct.spark.stack_traces import without_stack_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.continuous.checkpoint_logs import CheckpointLogs
    from pyspark_kafka_direct.continuous.continuous_sink import Sink, SinkFactory, SinkWriterFactory
    from pyspark_kafka_direct.continuous.query import ContinuousQuery
    from pyspark_kafka_direct.continuous.sink_delivery import SinkDelivery
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.continuous_query import ContinuousSettings
    from pyspark_kafka_direct.options.security_settings import DelegationTokenLogin
    from pyspark_kafka_direct.options.settings import ReadSettings
    from pyspark_kafka_direct.options.subscription import SubscriptionStrategy

_log = logging.getLogger("pyspark_kafka_direct.continuous")

_RECORD_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_CHECKPOINT_LOCATION_CONF: Final = "spark.sql.streaming.checkpointLocation"
_PROGRESS_UPDATES_CONF: Final = "spark.sql.streaming.numRecentProgressUpdates"
_TRANSACTION_TIMEOUT_OPTION: Final = "kafka.transaction.timeout.ms"
_CANCEL_MARGIN_SECONDS: Final = 60.0


def continuous_query(spark: SparkSession) -> ContinuousQueryBuilder:
    """Define a continuous query.

    Args:
        spark: The session that runs the query.

    Returns:
        A builder without input and output.
    """
    return ContinuousQueryBuilder(spark)


@dataclass(frozen=True, slots=True)
class _QueryOutput:
    description: str  # of the sink, in progress reports
    create_delivery: Callable[[ReadSettings, CheckpointLogs, ContinuousSettings, ConnectionPool], SinkDelivery]
    token_login: DelegationTokenLogin | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ContinuousQueryBuilder:
    """The definition of a continuous query. Each method returns a new builder.

    A query reads records, may transform them, has exactly one output, and is then started::

        query = (
            continuous_query(spark)
            .read({"kafka.bootstrap.servers": "broker:9092"}, subscribe="flights")
            .map_batches(late_ones)
            .to_kafka("alerts")
            .start(checkpointLocation="/checkpoints/alerts")
        )
    """

    _spark: SparkSession
    _read_options: Mapping[str, str] | None = None
    _columns: tuple[str, ...] | None = None
    _functions: tuple[MapFunction, ...] = ()
    _output: _QueryOutput | None = None

    def read(self, options: Mapping[str, object] | None = None, **keywords: object) -> ContinuousQueryBuilder:
        """Set the input of the query.

        Args:
            options: Options of the data source ``kafka-direct``. See docs/options.md, column *applies to*.
            keywords: The same options as keyword arguments; they override ``options``.

        Returns:
            A builder with this input.

        Raises:
            OptionError: An option is invalid, or the output was set before.
        """
        from pyspark_kafka_direct.options.read_options import parse_continuous_options
        from pyspark_kafka_direct.spark.delegation_tokens import start_delegation_tokens

        if self._output is not None:
            raise OptionError("call read(...) before the output, because the output may use the input's connection")
        read_options = options_as_strings(options, keywords)
        # Only to raise errors here; `start` parses them again.
        parse_continuous_options(read_options, start_delegation_tokens(self._spark.sparkContext))
        return replace(self, _read_options=read_options)

    def select(self, *columns: str) -> ContinuousQueryBuilder:
        """Select the columns of a record that the function or the output receives. Fewer columns are faster.

        Args:
            columns: Any of ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``
                and ``headers``. By default, all of them; ``headers`` only with ``includeHeaders``. If keys or values
                are decoded from JSON also ``_error``, which says why a record is malformed.

        Returns:
            A builder with these columns.

        Raises:
            OptionError: A column does not exist or is repeated.
        """
        if not columns:
            raise OptionError(f"select() needs column names: any of {', '.join(_RECORD_COLUMNS)}")
        for name in columns:
            if name not in (*_RECORD_COLUMNS, ERROR_COLUMN):
                raise OptionError(
                    f"select(): a record has no column {name!r}; it has {', '.join(_RECORD_COLUMNS)}"
                    + did_you_mean(str(name), _RECORD_COLUMNS)
                )
        if len(set(columns)) != len(columns):
            raise OptionError(f"select(): a column is repeated: {', '.join(columns)}")
        return replace(self, _columns=columns)

    def map_batches(
        self,
        function: Callable[..., pa.RecordBatch | None],
        *,
        setup: Callable[[], Any] | None = None,
        max_rows: int | None = None,
    ) -> ContinuousQueryBuilder:
        """Transform each batch in the tasks. Several functions are applied one after the other.

        Args:
            function: Receives a batch of records of one partition, in offset order. Returns a batch with any columns,
                or ``None`` to drop all rows.
            setup: Called once in each task, before the task reads, such as to load a model. Its result is the second
                argument of each call of ``function``.
            max_rows: The maximum number of rows in a batch that is read. Default: 8,192.

        Returns:
            A builder with this function added.

        Raises:
            OptionError: A function is not callable, or ``max_rows`` is not a positive integer.
        """
        _check_callable(function, "map_batches()")
        if setup is not None:
            _check_callable(setup, "setup of map_batches()")
        if max_rows is not None and (not isinstance(max_rows, int) or isinstance(max_rows, bool) or max_rows < 1):
            raise OptionError(f"max_rows of map_batches() must be a positive integer, got {max_rows!r}")
        return replace(self, _functions=(*self._functions, MapFunction(function, setup, max_rows)))

    def to_kafka(
        self, topic: str | None = None, options: Mapping[str, object] | None = None, **keywords: object
    ) -> ContinuousQueryBuilder:
        """Write to Kafka. Batches need a column ``value``; ``key``, ``headers``, ``topic`` and others are optional.

        Args:
            topic: The topic. Without it, the column ``topic`` names the topic of each row.
            options: Options of the data source for writing. See docs/options.md. Unless they name
                ``kafka.bootstrap.servers``, the query writes to the cluster that it reads.
            keywords: The same options as keyword arguments; they override ``options``.

        Returns:
            A builder with this output.

        Raises:
            OptionError: An option is invalid, or ``read`` was not called before.
        """
        from pyspark_kafka_direct.continuous.sink_delivery import kafka_delivery
        from pyspark_kafka_direct.options.option_messages import warn_once
        from pyspark_kafka_direct.options.sink_options import parse_sink_options
        from pyspark_kafka_direct.spark.delegation_tokens import start_delegation_tokens

        if self._read_options is None:
            raise OptionError("call read(...) before to_kafka(...), which uses the connection of the input")
        sink_options = options_as_strings(options, keywords)
        if topic is not None:  # the argument overrides the option, however its name is written
            sink_options = {name: value for name, value in sink_options.items() if name.lower() != "topic"}
            sink_options["topic"] = topic
        all_options = with_input_connection(self._read_options, sink_options)
        parsed = parse_sink_options(all_options, start_delegation_tokens(self._spark.sparkContext), streaming=True)
        for warning in parsed.warnings:
            warn_once(warning)
        has_timeout_option = _TRANSACTION_TIMEOUT_OPTION in {name.lower() for name in sink_options}
        create_delivery = partial(kafka_delivery, parsed, has_timeout_option=has_timeout_option)
        target = f"topic {parsed.topic}" if parsed.topic is not None else "topics of the topic column"
        login = parsed.connection.security.token_login
        return replace(self, _output=_QueryOutput(f"Kafka[{target}]", create_delivery, login))

    def foreach_batch(self, function: Callable[[pa.RecordBatch], None]) -> ContinuousQueryBuilder:
        """Call a function with each batch, in the tasks.

        Args:
            function: A batch counts as written when the function returns.

        Returns:
            A builder with this output.

        Raises:
            OptionError: The function is not callable, or cannot be pickled.
        """
        from pyspark_kafka_direct.continuous.continuous_sink import function_writer_factory

        _check_callable(function, "foreach_batch()")
        _check_picklable(function, "the function of foreach_batch()")
        return self._with_custom_writers("foreach_batch", function_writer_factory(function))

    def to(self, sink: Sink | SinkFactory) -> ContinuousQueryBuilder:
        """Write to your own sink, with at-least-once delivery.

        Args:
            sink: A ``Sink``, which is copied to each task, or a function that creates a task's sink.

        Returns:
            A builder with this output.

        Raises:
            OptionError: ``sink`` is neither a ``Sink`` nor a function, or it cannot be pickled.
        """
        from pyspark_kafka_direct.continuous.continuous_sink import custom_writer_factory

        factory = custom_writer_factory(sink)
        _check_picklable(sink, "the sink")
        return self._with_custom_writers(_sink_name(sink), factory)

    @without_stack_trace
    def start(
        self,
        *,
        checkpointLocation: str | None = None,  # noqa: N803 (Spark's names, also below)
        epochInterval: float | str | None = None,  # noqa: N803
        outputMode: str | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        tasksMax: int | None = None,  # noqa: N803
        maxRecordsPerSecond: int | None = None,  # noqa: N803
        taskStartTimeout: float | str | None = None,  # noqa: N803
        taskSetupTimeout: float | str | None = None,  # noqa: N803
        epochTimeout: float | str | None = None,  # noqa: N803
        heartbeatTimeout: float | str | None = None,  # noqa: N803
        maxRestarts: int | None = None,  # noqa: N803
        restartWindow: float | str | None = None,  # noqa: N803
        discoveryInterval: float | str | None = None,  # noqa: N803
        controlPort: int | None = None,  # noqa: N803
        **unknown: object,
    ) -> ContinuousQuery:
        """Start the query. A duration is a number of seconds, or a string such as ``"1 second"`` or ``"100 ms"``.

        Args:
            checkpointLocation: The folder of the query's offset and commit logs. A micro-batch query can resume from
                the same checkpoint, and vice versa.
            epochInterval: How often the query commits its progress. Default: 1 second.
            outputMode: ``append`` or ``update``; both have the same effect.
            queryName: A name.
            tasksMax: The maximum number of tasks; each needs a core. By default, one for each topic-partition,
                but at most as many as the application can run at once.
            maxRecordsPerSecond: The maximum rate of all tasks together; each has an equal share. Default: no limit.
            taskStartTimeout: How long to wait until all tasks have started. Default: 60 seconds.
            taskSetupTimeout: How long the ``setup`` of ``map_batches`` may take. Default: 600 seconds.
            epochTimeout: How long tasks may take to flush at the end of an epoch, and how long the checkpoint's file
                system may take to store it. A function or sink that takes longer is cancelled. Default: 60 seconds.
            heartbeatTimeout: A task whose heartbeats get no response for this time writes nothing more, and
                ends. After a failure the query waits for so long for lost tasks. Default: 10 seconds.
            maxRestarts: How often the query may restart after failures within ``restartWindow``. Default: 3.
            restartWindow: The time over which restarts are counted. Default: 600 seconds.
            discoveryInterval: How often to look for new and deleted partitions. Default: 10 seconds.
            controlPort: The driver's port for the tasks. Default: 0, any free port.
            unknown: Rejected, with a suggestion for a misspelled name.

        Returns:
            The running query.

        Raises:
            OptionError: An option is invalid or missing.
            KafkaDirectError: The checkpoint cannot be used.
        """
        # Before there are other local variables.
        parameters = {name: value for name, value in locals().items() if name in START_PARAMETERS}
        default_checkpoint = _conf_value(self._spark, _CHECKPOINT_LOCATION_CONF)
        return self._start(parse_start_options({**parameters, **unknown}, default_checkpoint))

    def _with_custom_writers(self, description: str, factory: SinkWriterFactory) -> ContinuousQueryBuilder:
        from pyspark_kafka_direct.continuous.sink_delivery import AtLeastOnceDelivery

        def create_delivery(_: ReadSettings, logs: CheckpointLogs, *__: object) -> SinkDelivery:
            return AtLeastOnceDelivery(factory, logs)

        return replace(self, _output=_QueryOutput(description, create_delivery))

    def _start(self, settings: ContinuousSettings) -> ContinuousQuery:
        from pyspark_kafka_direct.client.connection_pool import POOL
        from pyspark_kafka_direct.continuous.checkpoint_logs import open_checkpoint_logs

        return self._start_with(settings, lambda: open_checkpoint_logs(self._spark, settings.checkpoint), POOL)

    def _start_with(
        self, settings: ContinuousSettings, open_logs: Callable[[], CheckpointLogs], pool: ConnectionPool
    ) -> ContinuousQuery:
        """Start the query with these logs and connections, which the simulation replaces."""
        from pyspark_kafka_direct.continuous.continuous_execution import ContinuousExecution, QueryDefinition
        from pyspark_kafka_direct.continuous.query import ContinuousQuery
        from pyspark_kafka_direct.continuous.query_run import new_id
        from pyspark_kafka_direct.continuous.query_state import QueryInfo, QueryState
        from pyspark_kafka_direct.options.read_options import parse_continuous_options
        from pyspark_kafka_direct.payloads.spark.payload_schema import decoded_columns
        from pyspark_kafka_direct.payloads.spark.reader_schemas import with_reader_schemas
        from pyspark_kafka_direct.spark.delegation_tokens import start_delegation_tokens

        spark: Any = self._spark
        if self._read_options is None:
            raise OptionError("the query has no input: call read(...) before start(...)")
        if self._output is None:
            raise OptionError(
                "the query has no output: call to_kafka(...), foreach_batch(...) or to(...) before start(...)"
            )
        read_settings = parse_continuous_options(self._read_options, start_delegation_tokens(self._spark.sparkContext))
        logs = open_logs()
        columns = self._columns or tuple(
            name for name in _RECORD_COLUMNS if name != "headers" or read_settings.source.include_headers
        )
        logins = (read_settings.connection.security.token_login, self._output.token_login)
        definition = QueryDefinition(
            read_settings=read_settings,
            columns=columns,
            decoded=decoded_columns(columns, with_reader_schemas(read_settings.payloads)),
            functions=self._functions,
            delivery=self._output.create_delivery(read_settings, logs, settings, pool),
            token_logins=frozenset(login for login in logins if login is not None),
        )
        _check_speculation(spark.sparkContext.getConf().get("spark.speculation"))
        _check_picklable(definition.functions, "the function of map_batches()")
        _check_unused_name(settings.name)
        query_info = QueryInfo(
            id=logs.query_id(new_id(pool.system)),
            run_id=new_id(pool.system),
            name=settings.name,
            source=f"KafkaDirect[{_describe(read_settings.source.selection)}]",
            sink=self._output.description,
        )
        max_progress = int(_conf_value(spark, _PROGRESS_UPDATES_CONF) or 100)
        state = QueryState(query_info, max_progress, pool.system)
        return ContinuousQuery(
            state,
            ContinuousExecution(self._spark, definition, settings, logs, state=state, pool=pool),
            end_offsets=lambda: _end_offsets(read_settings, pool),
            # One epoch timeout to flush, one to commit.
            stop_timeout=2 * settings.epoch_timeout + _CANCEL_MARGIN_SECONDS,
            system=pool.system,
        )


def _check_callable(function: object, where: str) -> None:
    if not callable(function):
        raise OptionError(f"{where} needs a function, got {type(function).__name__}")


def _check_unused_name(name: str | None) -> None:
    from pyspark_kafka_direct.continuous.query import active

    if name is not None and any(query.name == name for query in active()):
        raise OptionError(f"queryName: a continuous query named {name!r} is running; stop it first")


def _check_speculation(speculation: str | None) -> None:
    if (speculation or "").strip().lower() == "true":
        raise OptionError(
            "spark.speculation=true cannot be used with a continuous query: its tasks do not end, so Spark would start "
            "each of them a second time. Set it to false"
        )


def _check_picklable(value: object, description: str) -> None:
    """Reject an object that cannot be sent to the executors before a Spark job fails with it."""
    from pyspark.serializers import CloudPickleSerializer

    try:
        CloudPickleSerializer().dumps(value)  # type: ignore[no-untyped-call]
    except Exception as error:
        reason = str(error).rstrip(".")
        raise OptionError(
            f"{description} cannot be sent to the executors: {reason}. Create objects that cannot be pickled, such as "
            "connections, inside it"
        ) from error


def _end_offsets(read_settings: ReadSettings, pool: ConnectionPool) -> Mapping[TopicPartition, int]:
    from pyspark_kafka_direct.offsets import LATEST
    from pyspark_kafka_direct.spark.kafka_offset_reader import KafkaOffsetReader

    offset_reader = KafkaOffsetReader(read_settings, _log, pool)
    return offset_reader.offsets(dict.fromkeys(offset_reader.assigned(strict=False).partitions, LATEST))


def _conf_value(spark: Any, name: str) -> str | None:
    value: str | None = spark.conf.get(name, None)
    return value


def _sink_name(sink: object) -> str:
    name = getattr(sink, "__qualname__", None)
    return name if isinstance(name, str) else type(sink).__qualname__


def _describe(selection: SubscriptionStrategy) -> str:
    match selection:
        case AssignStrategy(partitions):
            return f"Assign[{listed(partitions)}]"
        case SubscribeStrategy(topics):
            return f"Subscribe[{listed(topics)}]"
        case SubscribePatternStrategy(pattern):
            return f"SubscribePattern[{pattern.text}]"
