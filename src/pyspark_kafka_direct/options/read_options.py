"""Parser of the data source options for reading.

Options of Spark's own Kafka source keep their names, defaults and precedence, and are rejected where Spark rejects them
(``org.apache.spark.sql.kafka010.KafkaSourceProvider``). Names are case-insensitive.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.errors import KafkaDirectError, OptionError
from pyspark_kafka_direct.offsets import offset_ranges_from_json
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.batch_limits import check_min_and_max, parse_backpressure, parse_batch_limits
from pyspark_kafka_direct.options.client_parser import parse_connection
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.consumer_definitions import NO_GROUP_REASON
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.offset_specs import (
    AT_EARLIEST,
    AT_LATEST,
    STARTING_TIMESTAMP_OPTIONS,
    STRATEGY_OPTION,
    CommittedStart,
    check_batch_end,
    check_batch_start,
    check_start_and_end,
    given_strategy,
    parse_offset_spec,
    parse_timestamps,
    precedence_warnings,
    timestamp_warnings,
)
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, parse_config, reject_misspelt_arguments
from pyspark_kafka_direct.options.payload_parser import parse_payloads
from pyspark_kafka_direct.options.payload_settings import SIDES
from pyspark_kafka_direct.options.settings import FetchSettings, ReadSettings, SourceSettings
from pyspark_kafka_direct.options.subscription import (
    AssignStrategy,
    SubscribePatternStrategy,
    parse_assign,
    parse_subscribe,
    parse_subscribe_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.offsets import OffsetRange
    from pyspark_kafka_direct.options.config_option import Role
    from pyspark_kafka_direct.options.offset_specs import OffsetSpec, StartingOffsetSpec
    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.payload_settings import PayloadSettings
    from pyspark_kafka_direct.options.positions import NoMatchStrategy
    from pyspark_kafka_direct.options.subscription import SubscriptionStrategy
    from pyspark_kafka_direct.options.token_clusters import TokenCluster

_SELECTION_OPTIONS: Final = ("assign", "subscribe", "subscribePattern")
# Lower-case names that users give to them: `topic` is the option of a write.
_MEANT_SELECTIONS: Final = {
    "topic": "subscribe",
    "topicpattern": "subscribePattern",
    "topicpartitions": "assign",
    "path": "subscribe",  # the argument of load()
    **{name.lower(): name for name in _SELECTION_OPTIONS},
}
_START_OPTIONS: Final = (*STARTING_TIMESTAMP_OPTIONS, "startingOffsets")
_END_OPTIONS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_ONLY_IN_A_BATCH: Final = frozenset(
    option.name
    for option in OPTION_TABLE.options
    if "batch" in option.apis and "stream" not in option.apis and option.unsupported_policy("stream").reject
)
_FALLBACK_OPTION: Final = "committedOffsetsFallback"
_STARTS_BY_FALLBACK: Final = {
    "error": CommittedStart(),
    "earliest": CommittedStart(AT_EARLIEST),
    "latest": CommittedStart(AT_LATEST),
}
_RANGES_FORMAT: Final = 'a JSON list such as [{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]'
_ROLES: Final[tuple[Role, ...]] = ("group", "plan")
# Options whose place an argument of `read_arrow` has.
_REPLACED_BY_ARGUMENTS: Final = {
    **dict.fromkeys((*_SELECTION_OPTIONS, "offsetRanges"), "topics"),
    **dict.fromkeys(_START_OPTIONS, "start"),
    **dict.fromkeys(_END_OPTIONS, "end"),
    "includeHeaders": "columns",
    "minPartitions": "threads",
    "maxRecordsPerPartition": "threads",
}


def parse_batch_options(options: Mapping[str, str], token_clusters: Sequence[TokenCluster] = ()) -> ReadSettings:
    """Parse the options of a batch query."""
    parsed = parse_config(options, api="batch", source=ConfigSource.OPTION)
    warnings = list(parsed.warnings)
    check_min_and_max(parsed)  # a batch has no limits, but load() does not know whether it is one
    ranges = _parse_offset_ranges(parsed)
    start, end = _parse_start_and_end(parsed, warnings)
    selection = _parse_selection(parsed) if ranges is None else _selection_from_ranges(ranges)
    return _read_settings(
        parsed, warnings, token_clusters, selection=selection, start=start, end=end, offset_ranges=ranges
    )


def parse_slice_arguments(
    given: Mapping[str, object],
    selection: SubscriptionStrategy | tuple[OffsetRange, ...],
    start: object,
    end: object,
) -> ReadSettings:
    """Parse the arguments of ``read_arrow``; ``start`` and ``end`` have no effect beside a tuple of ranges."""
    parsed = _with_checked_strings(parse_config(given, api="batch", source=ConfigSource.PARAMETER))
    reject_misspelt_arguments(parsed, ("start", "end", "columns", "threads", "order", "limit", "progress"))
    for name, argument in _REPLACED_BY_ARGUMENTS.items():
        if name in parsed.given_names:
            raise OptionError(f"read_arrow has the argument {argument} in place of {parsed.name_of(name)}")
    warnings = list(parsed.warnings)
    start_spec = parse_offset_spec(start, "start", given_strategy(parsed) or "latest")
    end_spec = parse_offset_spec(end, "end")
    check_batch_start(start_spec, "start")
    check_batch_end(end_spec, "end")
    check_start_and_end(start_spec, end_spec)
    ranges = selection if isinstance(selection, tuple) else None
    if isinstance(selection, tuple):
        selection = _selection_from_ranges(selection)
    return _read_settings(parsed, warnings, selection=selection, start=start_spec, end=end_spec, offset_ranges=ranges)


def parse_stream_options(options: Mapping[str, str], token_clusters: Sequence[TokenCluster] = ()) -> ReadSettings:
    """Parse the options of a streaming query."""
    parsed = parse_config(options, api="stream", source=ConfigSource.OPTION)
    warnings = list(parsed.warnings)
    limits, backpressure = parse_batch_limits(parsed), parse_backpressure(parsed, warnings)
    start, start_group_id = _parse_stream_start(parsed, warnings)
    return _read_settings(
        parsed,
        warnings,
        token_clusters,
        selection=_parse_selection(parsed),
        start=start,
        start_group_id=start_group_id,
        limits=limits,
        backpressure=backpressure,
    )


def parse_continuous_options(options: Mapping[str, str], token_clusters: Sequence[TokenCluster] = ()) -> ReadSettings:
    """Parse the input options of a continuous query."""
    parsed = parse_config(options, api="continuous", source=ConfigSource.OPTION)
    warnings = list(parsed.warnings)
    start, start_group_id = _parse_stream_start(parsed, warnings)
    selection = _parse_selection(parsed)
    return _read_settings(
        parsed, warnings, token_clusters, selection=selection, start=start, start_group_id=start_group_id
    )


def _read_settings(
    parsed: ParsedConfig, warnings: list[str], token_clusters: Sequence[TokenCluster] = (), **source: Any
) -> ReadSettings:
    """Return the settings of a query; ``source`` has the settings that more than one option determines."""
    connection = parse_connection(parsed, warnings, token_clusters)
    # SQL can neither start a continuous query nor give parameters.
    from_python = parsed.api == "continuous" or parsed.source is ConfigSource.PARAMETER
    selection: SubscriptionStrategy = source["selection"]
    topics = [] if isinstance(selection, SubscribePatternStrategy) else [*selection.topics]
    payloads = parse_payloads(
        parsed,
        warnings,
        connection.security,
        from_python=from_python,
        topic=topics[0] if len(topics) == 1 else None,
    )
    return ReadSettings(
        connection,
        FetchSettings(**parsed.fields_for(FetchSettings, roles=["fetch"])),
        SourceSettings(**source, **parsed.fields_for(SourceSettings, roles=_ROLES)),
        payloads,
        tuple(warnings),
    )


def parse_columns(
    options: Mapping[str, str], token_clusters: Sequence[TokenCluster] = ()
) -> tuple[bool, PayloadSettings]:
    """Parse ``includeHeaders`` and the formats of payloads, which determine the schema, before Spark starts a query.

    Spark does not say here whether the query is a batch or a stream. So the options have to be valid for one of them.
    """
    try:
        settings = parse_batch_options(options, token_clusters)
    except KafkaDirectError as batch_error:
        try:
            settings = parse_stream_options(options, token_clusters)
        except KafkaDirectError as stream_error:
            names = {OPTION_TABLE.find(ConfigSource.OPTION, name).canonical_name for name in options}
            # An option that only a batch has decides what was meant.
            if str(stream_error) == str(batch_error) or names & _ONLY_IN_A_BATCH:
                raise batch_error from None
            raise OptionError(f"in a stream: {stream_error}; in a batch: {batch_error}") from None
    return settings.source.include_headers, settings.payloads


def _with_checked_strings(parsed: ParsedConfig) -> ParsedConfig:
    """Return the options with a charset for all strings, because readers of Arrow rely on valid UTF-8."""
    unchecked = [
        f"{side}Charset"
        for side in SIDES
        if parsed.get_string(f"{side}Format") == "string" and f"{side}Charset" not in parsed.given_names
    ]
    return replace(parsed, values={**parsed.values, **dict.fromkeys(unchecked, "UTF-8")})


def _parse_selection(parsed: ParsedConfig) -> SubscriptionStrategy:
    given_names = [name for name in _SELECTION_OPTIONS if name in parsed.given_names]
    if len(given_names) != 1:
        raise OptionError(
            f"exactly one of the options {', '.join(_SELECTION_OPTIONS)} (or offsetRanges) must be given to select "
            f"topics, got {listed(given_names)}{'' if given_names else _meant_selection(parsed)}"
        )
    value = parsed.get_string(given_names[0]) or ""
    match given_names[0]:
        case "assign":
            return parse_assign(value)
        case "subscribe":
            return parse_subscribe(value)
    return parse_subscribe_pattern(value)


def _meant_selection(parsed: ParsedConfig) -> str:
    """Return a hint if another given option looks like one that selects topics."""
    for name in (*parsed.ignored_names, *parsed.unknown):
        close_names = get_close_matches(name.lower(), _MEANT_SELECTIONS, n=1, cutoff=0.7)
        if close_names:
            return f"; use {_MEANT_SELECTIONS[close_names[0]]} instead of {name}"
    return ""


def _selection_from_ranges(ranges: tuple[OffsetRange, ...]) -> SubscriptionStrategy:
    return AssignStrategy(tuple(sorted({offset_range.topic_partition for offset_range in ranges})))


def _parse_start_and_end(parsed: ParsedConfig, warnings: list[str]) -> tuple[OffsetSpec, OffsetSpec]:
    start = _parse_start(parsed, warnings)
    end = _parse_offset_spec(parsed, _END_OPTIONS, warnings, on_no_match="latest")
    check_batch_start(start, "startingOffsets")
    check_batch_end(end, "endingOffsets")
    check_start_and_end(start, end)
    return start, end


def _parse_stream_start(parsed: ParsedConfig, warnings: list[str]) -> tuple[StartingOffsetSpec, str | None]:
    """Return the start of a new stream, and the group whose committed offsets it uses, or None."""
    timestamp_option = next((name for name in STARTING_TIMESTAMP_OPTIONS if name in parsed.given_names), None)
    is_committed = (parsed.get_string("startingOffsets") or "").strip().lower() == "committed"
    if is_committed and timestamp_option is None:
        return _parse_committed_start(parsed, warnings)
    warnings += _ignored_if_given(parsed, "group.id", NO_GROUP_REASON)
    fallback = parsed.given_names.get(_FALLBACK_OPTION)
    has_start = any(name in parsed.given_names for name in _START_OPTIONS)
    if fallback and not has_start and parsed.get_string(_FALLBACK_OPTION) != "latest":
        # A warning is not enough: the stream would start at latest, and skip the existing records.
        raise OptionError(f"{fallback} needs startingOffsets=committed; set it, or remove {fallback}")
    reason = f"{timestamp_option} takes precedence" if is_committed else "startingOffsets is not committed"
    warnings += _ignored_if_given(parsed, _FALLBACK_OPTION, reason)
    return _parse_start(parsed, warnings), None


def _parse_committed_start(parsed: ParsedConfig, warnings: list[str]) -> tuple[CommittedStart, str]:
    """Return the start at committed offsets, and the group that committed them."""
    commit_group = parsed.get_string("commitGroupId")
    if commit_group is not None:
        warnings += _ignored_if_given(parsed, "group.id", "commitGroupId takes precedence")
    group = commit_group or parsed.get_string("group.id")
    if group is None:
        raise OptionError(
            "startingOffsets=committed requires the consumer group that committed the offsets; set commitGroupId"
        )
    return _STARTS_BY_FALLBACK[parsed.get_string(_FALLBACK_OPTION) or "error"], group


def _ignored_if_given(parsed: ParsedConfig, name: str, reason: str) -> list[str]:
    """Return the warning about an option that has no effect; none if it is not given."""
    if name not in parsed.given_names:
        return []
    return [option_messages.ignored_warning(parsed.source, parsed.name_of(name), reason)]


def _parse_offset_ranges(parsed: ParsedConfig) -> tuple[OffsetRange, ...] | None:
    """Return the ranges of ``offsetRanges``, which replace selection, start and end; None if it is not given."""
    if "offsetRanges" not in parsed.given_names:
        return None
    conflicting_names = [
        name
        for name in (*_SELECTION_OPTIONS, *_START_OPTIONS, *_END_OPTIONS, STRATEGY_OPTION)
        if name in parsed.given_names
    ]
    if conflicting_names:
        raise OptionError(f"offsetRanges defines everything that is read; remove {listed(conflicting_names)}")
    value = parsed.get_string("offsetRanges") or ""
    try:
        return offset_ranges_from_json(value)
    except ValueError as error:
        raise OptionError(f"offsetRanges must be {_RANGES_FORMAT}, got {value!r}: {error}") from None


def _parse_start(parsed: ParsedConfig, warnings: list[str]) -> OffsetSpec:
    return _parse_offset_spec(parsed, _START_OPTIONS, warnings, on_no_match=given_strategy(parsed))


def _parse_offset_spec(
    parsed: ParsedConfig, names: tuple[str, str, str], warnings: list[str], *, on_no_match: NoMatchStrategy | None
) -> OffsetSpec:
    """Parse the option with the highest precedence: one timestamp, timestamps by partition, then offsets."""
    warnings += precedence_warnings(parsed, names)
    timestamp_name, timestamps_name, offsets_name = names
    timestamps = parse_timestamps(parsed, (timestamp_name, timestamps_name), on_no_match)
    warnings += timestamp_warnings(timestamps)
    if timestamps is not None:
        return timestamps
    return parse_offset_spec(parsed.get_string(offsets_name) or "", offsets_name, on_no_match or "latest")
