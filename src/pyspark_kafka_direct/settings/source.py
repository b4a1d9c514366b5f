"""The options of the data source, checked and typed.

Options of Spark's own Kafka source keep their names, defaults, precedence and refusals
(``org.apache.spark.sql.kafka010.KafkaSourceProvider``). Names are case-insensitive; Spark hands them over in lower
case. Client settings are written ``kafka.`` and a Java name, or the Java name alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from pyspark_kafka_direct.errors import KafkaDirectError
from pyspark_kafka_direct.settings._limits import backpressure_of, limits_of
from pyspark_kafka_direct.settings._messages import warn_once
from pyspark_kafka_direct.settings._positions import (
    batch_positions,
    offset_ranges,
    selection_of,
    selection_of_ranges,
    stream_start,
)
from pyspark_kafka_direct.settings._reader import read
from pyspark_kafka_direct.settings._table import TABLE, Table
from pyspark_kafka_direct.settings.client import client_settings
from pyspark_kafka_direct.settings.row import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.planning.feedback import Backpressure
    from pyspark_kafka_direct.planning.limits import Limits
    from pyspark_kafka_direct.planning.positions import Position
    from pyspark_kafka_direct.planning.select import Selection
    from pyspark_kafka_direct.planning.stream_start import StreamStart
    from pyspark_kafka_direct.settings._reader import Read
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.fetch import FetchSettings
    from pyspark_kafka_direct.settings.row import Door, Role

__all__ = [
    "BatchOptions",
    "ContinuousOptions",
    "RangeOptions",
    "ReadOptions",
    "StreamOptions",
    "includes_headers",
    "parse_continuous_options",
    "parse_options",
    "parse_stream_options",
    "warn_once",
]

_HEADERS: Final = "includeHeaders"
_ROLES: Final[tuple[Role, ...]] = ("connect", "fetch", "group", "plan")


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of any query that reads.

    Attributes:
        connection: How to reach the cluster.
        fetch: How to fetch records.
        selection: Which topic-partitions to read.
        fail_on_data_loss: Fail when records are gone.
        max_record_batch_bytes: Most bytes that a record batch may decompress to.
        include_headers: Add the column ``headers``.
        fetch_tries: How often looking up offsets is tried, at least once; ``None``: as often as the time allows.
        fetch_retry_interval_ms: Pause between two tries; ``None``: growing.
        oauth_token_provider: ``module:factory``.
        warnings: What the user should be told once.
    """

    connection: ConnectionSettings
    fetch: FetchSettings
    selection: Selection
    fail_on_data_loss: bool
    max_record_batch_bytes: int
    include_headers: bool
    fetch_tries: int | None
    fetch_retry_interval_ms: int | None
    oauth_token_provider: str | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RangeOptions(ReadOptions):
    """The options of a query whose tasks read one offset range each.

    Attributes:
        min_partitions: Least number of tasks.
        max_records_per_partition: Most offsets per task.
        poll_timeout_ms: How long a task waits for records.
        rack_environment_variable: Where an executor finds its rack.
    """

    min_partitions: int | None
    max_records_per_partition: int | None
    poll_timeout_ms: int
    rack_environment_variable: str | None


@dataclass(frozen=True, kw_only=True)
class BatchOptions(RangeOptions):
    """The options of a batch query.

    Attributes:
        start: Where to begin.
        end: Where to stop.
        offset_ranges: The ranges to read instead of ``start`` to ``end``, if given.
        push_down_filters: Use filters to narrow the ranges.
    """

    start: Position
    end: Position
    offset_ranges: tuple[OffsetRange, ...] | None
    push_down_filters: bool


@dataclass(frozen=True, kw_only=True)
class StreamOptions(RangeOptions):
    """The options of a streaming query.

    Attributes:
        start: Where a new query begins.
        limits: Limits on a micro-batch.
        backpressure: How a measured rate limits it too; ``None``: not at all.
        commit_group_id: The consumer group that shows finished batches, if any.
        start_group_id: The group whose offsets ``startingOffsets=committed`` means.
    """

    start: StreamStart
    limits: Limits
    backpressure: Backpressure | None = None
    commit_group_id: str | None = None
    start_group_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ContinuousOptions(ReadOptions):
    """The options of a continuous query that say what it reads.

    Attributes:
        start: Where a new query begins.
        commit_group_id: The consumer group that shows finished epochs, if any.
        start_group_id: The group whose offsets ``startingOffsets=committed`` means.
    """

    start: StreamStart
    commit_group_id: str | None = None
    start_group_id: str | None = None


def parse_options(raw: Mapping[str, str]) -> BatchOptions:
    """Check and type the options of a batch query.

    Args:
        raw: Options as Spark hands them over.

    Raises:
        OptionError: A required option is missing, or one has a value that cannot be used; the message has the
            option's name, what was given and what is allowed.
        OffsetPlanError: Start and end contradict each other.
    """
    given, client, warnings = _read(raw, "batch")
    ranges = offset_ranges(given)
    start, end = batch_positions(given, warnings)
    return BatchOptions(
        **client,
        **given.fields(BatchOptions, *_ROLES),
        selection=selection_of(given) if ranges is None else selection_of_ranges(ranges),
        start=start,
        end=end,
        offset_ranges=ranges,
        warnings=tuple(warnings),
    )


def parse_stream_options(raw: Mapping[str, str]) -> StreamOptions:
    """Check and type the options of a streaming query.

    Args:
        raw: Options as Spark hands them over.

    Raises:
        OptionError: As ``parse_options``; also for options that say where to stop.
    """
    given, client, warnings = _read(raw, "stream")
    start, start_group_id = stream_start(given, warnings)
    limits = limits_of(given)
    backpressure = backpressure_of(given, warnings)
    return StreamOptions(
        **client,
        **given.fields(StreamOptions, *_ROLES),
        selection=selection_of(given),
        start=start,
        limits=limits,
        backpressure=backpressure,
        start_group_id=start_group_id,
        warnings=tuple(warnings),
    )


def parse_continuous_options(raw: Mapping[str, str]) -> ContinuousOptions:
    """Check and type the options that say what a continuous query reads.

    Args:
        raw: Options as users write them.

    Raises:
        OptionError: As ``parse_stream_options``.
    """
    given, client, warnings = _read(raw, "continuous")
    start, start_group_id = stream_start(given, warnings)
    return ContinuousOptions(
        **client,
        **given.fields(ContinuousOptions, *_ROLES),
        selection=selection_of(given),
        start=start,
        start_group_id=start_group_id,
        warnings=tuple(warnings),
    )


def includes_headers(raw: Mapping[str, str]) -> bool:
    """Read the option ``includeHeaders``, which decides the columns before Spark says what the source is used for.

    Args:
        raw: Options as Spark hands them over.

    Raises:
        OptionError: ``includeHeaders`` is neither true nor false; or something else is wrong in the same way for a
            batch and for a stream, so that it can be said this early.
        OffsetPlanError: The same.
    """
    errors = [_error_of(parse_options, raw), _error_of(parse_stream_options, raw)]
    if errors[0] is not None and str(errors[0]) == str(errors[1]):
        raise errors[0]
    # What is wrong for one of the two alone is told when it is known which.
    alone = Table([TABLE.by_name[_HEADERS]])
    given = {name: text for name, text in raw.items() if name.strip().lower() == _HEADERS.lower()}
    return read(given, door="batch", origin=Origin.OPTION, table=alone).flag(_HEADERS)


def _error_of(parse: Callable[[Mapping[str, str]], ReadOptions], raw: Mapping[str, str]) -> KafkaDirectError | None:
    try:
        parse(raw)
    except KafkaDirectError as error:
        return error
    return None


class _Client(TypedDict):
    connection: ConnectionSettings
    fetch: FetchSettings


def _read(raw: Mapping[str, str], door: Door) -> tuple[Read, _Client, list[str]]:
    given = read(raw, door=door, origin=Origin.OPTION)
    settings, notes = client_settings(given)
    return given, {"connection": settings.connection, "fetch": settings.fetch}, [*given.notes, *notes]
