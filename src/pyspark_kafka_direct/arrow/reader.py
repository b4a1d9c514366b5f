"""``read_arrow``: a bounded slice of topics as Arrow, without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from pyspark_kafka_direct.arrow.arguments import merged_arguments
from pyspark_kafka_direct.arrow.arrow_slice import ArrowSlice, open_slice
from pyspark_kafka_direct.arrow.slice_reads import Order
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import OffsetRange
from pyspark_kafka_direct.options.option_messages import warn_once
from pyspark_kafka_direct.options.read_options import parse_slice_arguments
from pyspark_kafka_direct.options.subscription import parse_subscribe, pattern_strategy
from pyspark_kafka_direct.payloads.record_columns import checked_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.subscription import SubscriptionStrategy

Position: TypeAlias = str | datetime | timedelta | Mapping[Any, Any]


def read_arrow(
    topics: str | Sequence[str] | re.Pattern[str] | Sequence[OffsetRange],
    params: Mapping[str, object],
    *,
    start: Position | None = None,
    end: Position | None = None,
    columns: Sequence[str] | None = None,
    threads: int | None = None,
    order: Order = "partition",
    limit: int | None = None,
    progress: bool = False,
    **options: Any,
) -> ArrowSlice:
    """Plan a bounded slice of topics; its records are read when the result is used.

    Args:
        topics: The name of a topic, a list of names, a compiled pattern that occurs in the names, or a list of
            ``OffsetRange``.
        params: Settings of Kafka's clients by their names, such as ``bootstrap.servers`` and ``isolation.level``.
        start: The first position, such as ``earliest``, ``-1h``, ``2026-11-28T06:00Z``, ``last 1000``, a ``datetime``
            with a time zone, a negative ``timedelta``, or a dict such as ``{"orders": {"0": 23, "*": "earliest"}}``, in
            which a ``TopicPartition`` may be a key, too (docs/positions.md). Default: ``earliest``.
        end: The position to stop before. Default: ``now``, which is the end of the log when this function is called.
        columns: Some of key, value, topic, partition, offset, timestamp, timestampType, headers, leaderEpoch, in the
            order of the result. By default the first seven. Only these are decoded.
        threads: The number of partitions that are read at the same time. Default: half of the processors, and at most
            4. With one, everything runs in the caller's thread. In the order of partitions, the memory is at
            most ``threads`` times two fetch responses (``max.partition.fetch.bytes``, 4 MiB by default) and two Arrow
            batches (4 MiB, or one larger record).
        order: ``partition``: by topic, partition and offset. ``timestamp``: by the largest timestamp up to a record in
            its partition, so that each partition keeps its order; records with the same one are in the order of
            topics, partitions and offsets. All partitions are then read at the same time, and share two
            times 128 MiB for fetch responses and three times 64 MiB for batches; with more than 1,000 partitions, each
            of them has 64 KiB in place of its share. Each needs a connection, unless one response contains its records.
        limit: The maximum number of records, the first ones in this order. No more is fetched than needed for them.
        progress: Whether to show a progress bar, if the standard error is a terminal or a notebook.
        options: Options of the data source, such as ``failOnDataLoss`` and ``valueFormat``. Strings must be valid
            UTF-8, on which other libraries rely: with the format ``string``, others are malformed, as with
            ``valueCharset=UTF-8``. Timestamps in JSON without an offset are in UTC.

    Returns:
        The slice. Its columns have the types of the data source: key and value ``binary``, topic ``string``, partition
        ``int32``, offset ``int64``, timestamp ``timestamp[us, UTC]``, timestampType ``int32``, headers a list of
        ``struct<key: string, value: binary>``, leaderEpoch ``int32``.

    Raises:
        OptionError: An argument is invalid.
        TopicNotFoundError: A topic or partition does not exist.
        DataLossError: Requested records are no longer available.
        BrokerError: A request to the brokers failed.
    """
    given = merged_arguments(params, options)
    _check_reading(threads, order, limit)
    selection = _selection(topics)
    if isinstance(selection, tuple) and (start is not None or end is not None):
        raise OptionError("topics is a list of OffsetRange, which defines what is read; remove start and end")
    names = checked_columns(columns, "columns")
    settings = parse_slice_arguments(
        given, selection, "earliest" if start is None else start, "now" if end is None else end
    )
    for warning in settings.warnings:
        warn_once(warning)
    return open_slice(settings, names, threads=threads, order=order, limit=limit, shows_progress=progress)


def _check_reading(threads: object, order: object, limit: object) -> None:
    """Raise an error if an argument that says how a slice is read is invalid."""
    for name, value, least in (("threads", threads, 1), ("limit", limit, 0)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise OptionError(f"{name} must be an integer of at least {least}, got {value!r}")
    if order not in get_args(Order):
        raise OptionError(f"order must be {' or '.join(get_args(Order))}, got {order!r}")


def _selection(topics: object) -> SubscriptionStrategy | tuple[OffsetRange, ...]:
    """Return what the argument ``topics`` selects."""
    if isinstance(topics, str):
        return parse_subscribe(topics, "topics")
    if isinstance(topics, re.Pattern):
        return pattern_strategy(topics, "topics")
    entries = list(topics) if isinstance(topics, (list, tuple, set, frozenset)) else []
    if entries and all(isinstance(entry, OffsetRange) for entry in entries):
        return tuple(entries)
    # A comma would separate two names in the list that is parsed below, and an empty name would be dropped.
    if entries and all(isinstance(entry, str) and entry.strip() and "," not in entry for entry in entries):
        return parse_subscribe(",".join(entries), "topics")
    raise OptionError(
        f"topics must be a name, a list of names, a compiled pattern or a list of OffsetRange, got {topics!r}"
    )
