"""The options of the data source, checked and typed; ``_option_table`` has the table.

Options of Spark's own Kafka source keep their names, defaults, precedence and refusals
(``org.apache.spark.sql.kafka010.KafkaSourceProvider``). Names are case-insensitive; Spark hands them over in lower
case. Client settings (``kafka.`` and a Java name, or the Java name alone) are passed on as they are: ``wire.settings``
knows those.

    python -m pyspark_kafka_direct.options > docs/options.md
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from pyspark_kafka_direct._option_reader import Given, lower_case, sort_options
from pyspark_kafka_direct._option_table import TABLE, Kind, Option, Use, options_markdown
from pyspark_kafka_direct.errors import KafkaDirectError, OffsetPlanError, OptionError
from pyspark_kafka_direct.offsets import MAX_OFFSET, OffsetRange
from pyspark_kafka_direct.planning.backpressure import Gains
from pyspark_kafka_direct.planning.feedback import Backpressure
from pyspark_kafka_direct.planning.hints import did_you_mean, listed
from pyspark_kafka_direct.planning.limits import Limits
from pyspark_kafka_direct.planning.positions import (
    NoMatch,
    Position,
    check_batch_end,
    check_batch_start,
    check_pair,
    parse_no_match,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
)
from pyspark_kafka_direct.planning.select import (
    Assign,
    Selection,
    parse_assign,
    parse_subscribe,
    parse_subscribe_pattern,
)
from pyspark_kafka_direct.planning.stream_start import Committed, StreamStart, parse_fallback

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "TABLE",
    "BatchOptions",
    "Kind",
    "Option",
    "ReadOptions",
    "StreamOptions",
    "Use",
    "includes_headers",
    "options_markdown",
    "parse_options",
    "parse_stream_options",
]

_SELECTIONS = ("assign", "subscribe", "subscribePattern")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_FALLBACK = "committedOffsetsFallback"
_STRATEGY = "startingOffsetsByTimestampStrategy"
_BOOTSTRAP = ("bootstrap.servers", "metadata.broker.list")
_RANGE_KEYS = ("topic", "partition", "fromOffset", "untilOffset")
_RANGES_FORM = 'a JSON list such as [{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]'
_PROVIDER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of any query that reads.

    Attributes:
        kafka: Client settings without ``kafka.``, names in lower case; may hold secrets, so it is not shown.
        selection: Which topic-partitions to read.
        fail_on_data_loss: Fail when records are gone.
        min_partitions: Least number of tasks.
        max_records_per_partition: Most offsets per task.
        max_record_batch_bytes: Most bytes that a record batch may decompress to.
        include_headers: Add the column ``headers``.
        poll_timeout_ms: How long a task waits for records.
        fetch_tries: How often looking up offsets is tried, at least once; ``None``: as often as the time allows.
        fetch_retry_interval_ms: Pause between two tries; ``None``: growing.
        oauth_token_provider: ``module:factory``.
        rack_environment_variable: Where an executor finds its rack.
        warnings: What the user should be told once.
    """

    kafka: Mapping[str, str] = field(repr=False)
    selection: Selection
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_record_batch_bytes: int
    include_headers: bool
    poll_timeout_ms: int
    fetch_tries: int | None
    fetch_retry_interval_ms: int | None
    oauth_token_provider: str | None
    rack_environment_variable: str | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BatchOptions(ReadOptions):
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
class StreamOptions(ReadOptions):
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


def parse_options(raw: Mapping[str, str], use: Literal["batch"] = "batch") -> BatchOptions:
    """Check and type the options of a batch query.

    Args:
        raw: Options as Spark hands them over.
        use: What they are for.

    Raises:
        OptionError: A required option is missing, or one has a value that cannot be used; the message has the
            option's name, what was given and what is allowed.
        OffsetPlanError: Start and end contradict each other.
    """
    given, kafka, warnings = _given(raw, use)
    ranges = _offset_ranges(given)
    start = _start(given, warnings)
    end = _position(given, _ENDS, "latest", warnings)
    check_batch_start(start, "startingOffsets")
    check_batch_end(end, "endingOffsets")
    check_pair(start, end)
    return BatchOptions(
        **_common(given, kafka),
        selection=_selection(given) if ranges is None else Assign(tuple(sorted({r.topic_partition for r in ranges}))),
        start=start,
        end=end,
        offset_ranges=ranges,
        push_down_filters=given.flag("pushDownFilters"),
        warnings=tuple(warnings),
    )


def parse_stream_options(raw: Mapping[str, str]) -> StreamOptions:
    """Check and type the options of a streaming query.

    Args:
        raw: Options as Spark hands them over.

    Raises:
        OptionError: As ``parse_options``; also for options that say where to stop.
    """
    given, kafka, warnings = _given(raw, "stream")
    start = _stream_start(given, warnings)
    group_id = _group_id(given)
    start_group_id = (group_id or kafka.get("group.id") or None) if isinstance(start, Committed) else None
    if isinstance(start, Committed) and start_group_id is None:
        raise OptionError("startingOffsets=committed needs the group that has committed: set commitGroupId")
    limits = Limits(
        given.optional_number("maxOffsetsPerTrigger"),
        given.optional_number("minOffsetsPerTrigger"),
        given.duration("maxTriggerDelay"),
        given.optional_number("maxBytesPerTrigger"),
    )
    if (limits.min_offsets or 0) > (limits.max_offsets or MAX_OFFSET):
        raise OptionError(
            f"minOffsetsPerTrigger={limits.min_offsets} must be less than or equal to "
            f"maxOffsetsPerTrigger={limits.max_offsets}"
        )
    backpressure = _backpressure(given, warnings)
    return StreamOptions(
        **_common(given, kafka),
        selection=_selection(given),
        start=start,
        limits=limits,
        backpressure=backpressure,
        commit_group_id=group_id,
        start_group_id=start_group_id,
        warnings=tuple(warnings),
    )


def includes_headers(raw: Mapping[str, str]) -> bool:
    """The option ``includeHeaders``, which decides the columns before Spark says what the source is used for.

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
    return Given(lower_case(raw), "batch").flag("includeHeaders")


def _error_of(parse: Callable[[Mapping[str, str]], ReadOptions], raw: Mapping[str, str]) -> KafkaDirectError | None:
    try:
        parse(raw)
    except KafkaDirectError as error:
        return error
    return None


def _given(raw: Mapping[str, str], use: Use) -> tuple[Given, dict[str, str], list[str]]:
    texts = lower_case(raw)
    kafka, own, warnings = sort_options(texts, use)
    if not any(kafka.get(name, "").strip() for name in _BOOTSTRAP):
        hint = next((hint for name in texts if (hint := did_you_mean(name, ["kafka.bootstrap.servers"]))), "")
        raise OptionError(
            "the option kafka.bootstrap.servers is required: host:port of one or more brokers, separated by commas"
            + hint
        )
    return Given(own, use), kafka, warnings


class _Common(TypedDict):
    kafka: Mapping[str, str]
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_record_batch_bytes: int
    include_headers: bool
    poll_timeout_ms: int
    fetch_tries: int | None
    fetch_retry_interval_ms: int | None
    oauth_token_provider: str | None
    rack_environment_variable: str | None


def _common(given: Given, kafka: Mapping[str, str]) -> _Common:
    return {
        "kafka": kafka,
        "fail_on_data_loss": given.flag("failOnDataLoss"),
        "min_partitions": given.optional_number("minPartitions"),
        "max_records_per_partition": given.optional_number("maxRecordsPerPartition"),
        "max_record_batch_bytes": given.number("maxRecordBatchBytes"),
        "include_headers": given.flag("includeHeaders"),
        "poll_timeout_ms": given.number("kafkaConsumer.pollTimeoutMs"),
        "fetch_tries": given.optional_number("fetchOffset.numRetries"),
        "fetch_retry_interval_ms": given.optional_number("fetchOffset.retryIntervalMs"),
        "oauth_token_provider": given.matching("oauthTokenProvider", _PROVIDER, "module:factory"),
        "rack_environment_variable": given.matching(
            "rackEnvironmentVariable", _VARIABLE, "an environment variable's name"
        ),
    }


def _start(given: Given, warnings: list[str]) -> Position:
    return _position(given, _STARTS, parse_no_match(given.text(_STRATEGY), _STRATEGY), warnings)


def _stream_start(given: Given, warnings: list[str]) -> StreamStart:
    fallback = parse_fallback(given.text(_FALLBACK), _FALLBACK)
    by_offsets = not any(given.has(name) for name in _STARTS[:2])
    if by_offsets and given.text("startingOffsets").strip().lower() == "committed":
        return fallback
    if given.has(_FALLBACK):
        warnings.append(f"the option {_FALLBACK} is ignored: startingOffsets is not committed")
    return _start(given, warnings)


def _group_id(given: Given) -> str | None:
    if not given.has("commitGroupId"):
        return None
    if not given.text("commitGroupId").strip():
        raise OptionError("commitGroupId must be the name of a consumer group, got ''")
    return given.text("commitGroupId")


def _selection(given: Given) -> Selection:
    named = [name for name in _SELECTIONS if given.has(name)]
    if len(named) != 1:
        raise OptionError(
            f"exactly one of the options {', '.join(_SELECTIONS)} must be given (or offsetRanges), "
            f"got {listed(named)}: they say which topics to read"
        )
    text = given.text(named[0])
    match named[0]:
        case "assign":
            return parse_assign(text)
        case "subscribe":
            return parse_subscribe(text)
    return parse_subscribe_pattern(text)


def _position(given: Given, names: tuple[str, str, str], on_no_match: NoMatch, warnings: list[str]) -> Position:
    """The position that takes precedence: one timestamp, then timestamps per partition, then offsets."""
    timestamp, timestamps, offsets = names
    named = [name for name in names if given.has(name)] or [offsets]
    warnings += [f"the option {name} is ignored: {named[0]} takes precedence" for name in named[1:]]
    if named[0] == timestamp:
        return parse_timestamp(given.text(timestamp), timestamp, on_no_match)
    if named[0] == timestamps:
        return parse_timestamps(given.text(timestamps), timestamps, on_no_match)
    return parse_offsets(given.text(offsets), offsets)


def _backpressure(given: Given, warnings: list[str]) -> Backpressure | None:
    gains = Gains(
        proportional=given.decimal("backpressureProportional"),
        integral=given.decimal("backpressureIntegral"),
        derived=given.decimal("backpressureDerived"),
        min_rate=given.number("backpressureMinRate"),
    )
    chosen = Backpressure(gains, given.optional_number("backpressureInitialRate"))
    if given.flag("backpressure"):
        return chosen
    others = [option.name for option in TABLE if option.name.startswith("backpressure") and given.has(option.name)]
    warnings += [f"the option {name} is ignored: backpressure is not true" for name in others if name != "backpressure"]
    return None


def _offset_ranges(given: Given) -> tuple[OffsetRange, ...] | None:
    if not given.has("offsetRanges"):
        return None
    others = [name for name in (*_SELECTIONS, *_STARTS, *_ENDS, _STRATEGY) if given.has(name)]
    if others:
        raise OptionError(f"offsetRanges says exactly what to read; leave out {listed(others)}")
    text = given.text("offsetRanges")
    try:
        entries = json.loads(text)
        if not isinstance(entries, list):
            raise ValueError("not a list")
        return tuple(_offset_range(index, entry) for index, entry in enumerate(entries))
    except (ValueError, RecursionError) as error:
        raise OptionError(f"offsetRanges must be {_RANGES_FORM}, got {text!r}: {error}") from None


def _offset_range(index: int, entry: object) -> OffsetRange:
    if not isinstance(entry, dict) or set(entry) != set(_RANGE_KEYS):
        raise ValueError(f"entry {index} must have exactly the keys {', '.join(_RANGE_KEYS)}")
    try:
        return OffsetRange(*cast("tuple[str, int, int, int]", tuple(entry[key] for key in _RANGE_KEYS)))
    except OffsetPlanError as error:
        raise ValueError(f"entry {index}: {error}") from None


if __name__ == "__main__":
    print(options_markdown(), end="")
