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
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from pyspark_kafka_direct._option_table import BY_NAME, TABLE, Kind, Option, Use, options_markdown
from pyspark_kafka_direct.errors import OffsetPlanError, OptionError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.planning._hints import did_you_mean, listed
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

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TABLE", "BatchOptions", "Kind", "Option", "Use", "options_markdown", "parse_options"]

Value: TypeAlias = bool | int | str | None

_SELECTIONS = ("assign", "subscribe", "subscribePattern")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_STRATEGY = "startingOffsetsByTimestampStrategy"
_BOOTSTRAP = ("bootstrap.servers", "metadata.broker.list")
_SPARKS_OWN = frozenset({"path", "paths", "checkpointlocation"})
_RANGE_KEYS = ("topic", "partition", "fromOffset", "untilOffset")
_RANGES_FORM = 'a JSON list such as [{"topic":"t","partition":0,"fromOffset":5,"untilOffset":9}]'
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_PROVIDER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class BatchOptions:
    """The options of a batch query.

    Attributes:
        kafka: Client settings without ``kafka.``, names in lower case; may hold secrets, so it is not shown.
        selection: Which topic-partitions to read.
        start: Where to begin.
        end: Where to stop.
        offset_ranges: The ranges to read instead of ``start`` to ``end``, if given.
        fail_on_data_loss: Fail when records are gone.
        min_partitions: Least number of tasks.
        max_records_per_partition: Most offsets per task.
        include_headers: Add the column ``headers``.
        push_down_filters: Use filters to narrow the ranges.
        poll_timeout_ms: How long a task waits for records.
        fetch_tries: How often looking up offsets is tried, at least once; ``None``: as often as the time allows.
        fetch_retry_interval_ms: Pause between two tries; ``None``: growing.
        oauth_token_provider: ``module:factory``.
        rack_environment_variable: Where an executor finds its rack.
        warnings: What the user should be told once.
    """

    kafka: Mapping[str, str] = field(repr=False)
    selection: Selection
    start: Position
    end: Position
    offset_ranges: tuple[OffsetRange, ...] | None
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    push_down_filters: bool
    poll_timeout_ms: int
    fetch_tries: int | None
    fetch_retry_interval_ms: int | None
    oauth_token_provider: str | None
    rack_environment_variable: str | None
    warnings: tuple[str, ...] = ()


def parse_options(raw: Mapping[str, str], use: Literal["batch"]) -> BatchOptions:
    """Check and type the options of a query.

    Args:
        raw: Options as Spark hands them over.
        use: What they are for.

    Raises:
        OptionError: A required option is missing, or one has a value that cannot be used; the message has the
            option's name, what was given and what is allowed.
        OffsetPlanError: Start and end contradict each other.
    """
    texts = _lower_case(raw)
    kafka, own, warnings = _sort(texts, use)
    given = _Given(own)
    if not any(kafka.get(name, "").strip() for name in _BOOTSTRAP):
        hint = next((hint for name in texts if (hint := did_you_mean(name, ["kafka.bootstrap.servers"]))), "")
        raise OptionError(
            "the option kafka.bootstrap.servers is required: host:port of one or more brokers, separated by commas"
            + hint
        )
    ranges = _offset_ranges(given)
    strategy = parse_no_match(given.text(_STRATEGY), _STRATEGY)
    start = _position(given, _STARTS, strategy, warnings)
    end = _position(given, _ENDS, "latest", warnings)
    check_batch_start(start, "startingOffsets")
    check_batch_end(end, "endingOffsets")
    check_pair(start, end)
    return BatchOptions(
        kafka=kafka,
        selection=_selection(given) if ranges is None else Assign(tuple(sorted({r.topic_partition for r in ranges}))),
        start=start,
        end=end,
        offset_ranges=ranges,
        fail_on_data_loss=given.flag("failOnDataLoss"),
        min_partitions=given.optional_number("minPartitions"),
        max_records_per_partition=given.optional_number("maxRecordsPerPartition"),
        include_headers=given.flag("includeHeaders"),
        push_down_filters=given.flag("pushDownFilters"),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs"),
        fetch_tries=given.optional_number("fetchOffset.numRetries"),
        fetch_retry_interval_ms=given.optional_number("fetchOffset.retryIntervalMs"),
        oauth_token_provider=given.matching("oauthTokenProvider", _PROVIDER, "module:factory"),
        rack_environment_variable=given.matching(
            "rackEnvironmentVariable", _VARIABLE, "an environment variable's name"
        ),
        warnings=tuple(warnings),
    )


class _Given:
    """The options of the table that were given, by lower-case name, with the table's defaults for the others."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def has(self, name: str) -> bool:
        return name.lower() in self._texts

    def text(self, name: str) -> str:
        return self._texts.get(name.lower(), BY_NAME[name.lower()].default)

    def flag(self, name: str) -> bool:
        text = self.text(name)
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{name} must be true or false, got {text!r}{did_you_mean(text, ['true', 'false'])}")
        return text.lower() == "true"

    def number(self, name: str) -> int:
        option, text = BY_NAME[name.lower()], self.text(name)
        if not _WHOLE.fullmatch(text) or not option.least <= int(text) <= option.most:
            raise OptionError(f"{name} must be a whole number from {option.least} to {option.most}, got {text!r}")
        return int(text)

    def optional_number(self, name: str) -> int | None:
        return self.number(name) if self.has(name) else None

    def matching(self, name: str, form: re.Pattern[str], wanted: str) -> str | None:
        if not self.has(name):
            return None
        if not form.fullmatch(self.text(name)):
            raise OptionError(f"{name} must be {wanted}, got {self.text(name)!r}")
        return self.text(name)


def _lower_case(raw: Mapping[str, str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, text in raw.items():
        if text is None:  # what Spark makes of option(name, None)
            continue
        if texts.setdefault(name.lower(), text) != text:
            raise OptionError(f"the option {name} is given twice with different values; names are case-insensitive")
    return texts


def _sort(texts: Mapping[str, str], use: Use) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Tell client settings from our own options; warn of what has no effect."""
    kafka: dict[str, str] = {}
    own: dict[str, str] = {}
    warnings: list[str] = []
    ours = [option.name for option in TABLE if not option.name.startswith("kafka.")]
    our_groups = {name.lower().split(".")[0] for name in ours if "." in name}
    for name, text in texts.items():
        option = BY_NAME.get(name)
        if option is not None and not name.startswith("kafka."):
            if use in option.uses:
                own[name] = text
            else:
                warnings.append(f"the option {option.name} is ignored: {option.ignored}")
        elif name.startswith("kafka.") or ("." in name and name.split(".")[0] not in our_groups):
            # Names with a dot are client settings, with or without their prefix, but for two groups of Spark's.
            setting = name.removeprefix("kafka.")
            if kafka.setdefault(setting, text) != text:
                raise OptionError(f"kafka.{setting} and {setting} are given with different values; give one of them")
        elif name not in _SPARKS_OWN:
            warnings.append(f"the option {name} is unknown and ignored{did_you_mean(name, ours)}")
    return kafka, own, warnings


def _selection(given: _Given) -> Selection:
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


def _position(given: _Given, names: tuple[str, str, str], on_no_match: NoMatch, warnings: list[str]) -> Position:
    """The position that takes precedence: one timestamp, then timestamps per partition, then offsets."""
    timestamp, timestamps, offsets = names
    named = [name for name in names if given.has(name)] or [offsets]
    warnings += [f"the option {name} is ignored: {named[0]} takes precedence" for name in named[1:]]
    if named[0] == timestamp:
        return parse_timestamp(given.text(timestamp), timestamp, on_no_match)
    if named[0] == timestamps:
        return parse_timestamps(given.text(timestamps), timestamps, on_no_match)
    return parse_offsets(given.text(offsets), offsets)


def _offset_ranges(given: _Given) -> tuple[OffsetRange, ...] | None:
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
