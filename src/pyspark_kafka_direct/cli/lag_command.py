"""``kafka-direct lag``: how far groups and queries are behind the ends of their partitions, once or again and again."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, check_seconds, cluster_client
from pyspark_kafka_direct.cli.lag_measurement import committed_rates, measure
from pyspark_kafka_direct.cli.live_table import LiveScreen, LiveTable, live_screen
from pyspark_kafka_direct.cli.log_ends import behind_log_end, not_in_cluster
from pyspark_kafka_direct.cli.main import FOUND_PROBLEM
from pyspark_kafka_direct.cli.output import add_output_argument, print_rows, to_stderr
from pyspark_kafka_direct.errors import OptionError, printable
from pyspark_kafka_direct.options.hints import listed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark_kafka_direct.cli.lag_measurement import Measurement, ReadPartition
    from pyspark_kafka_direct.client.cluster_client import ClusterClient

DESCRIPTION: Final = """\
Show the lag of consumer groups and of streaming queries: the offsets between what was processed and the end of the log.
The lag of a query is read from its checkpoint, also if it uses Spark's own Kafka source. No Spark is needed."""
EXAMPLES: Final = """
"lag" counts up to the end of the log, "stable lag" up to the first open transaction: with read_committed, nothing
behind it can be read. "rate" is the number of offsets that were committed per second. The age of a batch is the time
since it was planned.

exit code 1: a group has no committed offsets, a query continues behind the end of a log, or a partition of a group or
query does not exist any more.

examples:
  kafka-direct lag flights-query -b localhost:9092
  kafka-direct lag flights-query -b localhost:9092 --json
  kafka-direct lag --checkpoint flights.checkpoint -b localhost:9092
  kafka-direct lag flights-query --checkpoint flights.checkpoint -b localhost:9092 --watch
"""

_QUERY_COLUMNS: Final = ("checkpoint", "query_id", "batch", "state", "age")
_SHOWS_OF_PEAK: Final = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="ids of consumer groups")
    parser.add_argument(
        "--checkpoint",
        dest="checkpoints",
        metavar="PATH",
        action="append",
        default=[],
        help="the checkpointLocation of a query; may be repeated",
    )
    parser.add_argument("--watch", action="store_true", help="show it again and again, until Ctrl-C")
    parser.add_argument("--interval", type=float, default=2.0, metavar="S", help="seconds between two shows (2)")
    add_output_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the lag."""
    groups, checkpoints = arguments.groups, arguments.checkpoints
    check_seconds("--interval", arguments.interval)
    if not groups and not checkpoints:
        raise OptionError("Name a consumer group, or the checkpoint of a query with --checkpoint")
    cluster = cluster_client(arguments)
    measured = measure(cluster, groups, checkpoints)
    if not arguments.watch:
        return _print(measured, groups, as_json=arguments.json)
    watched = _watched(cluster, arguments)
    if arguments.json or not sys.stdout.isatty():
        for measured, rates in watched:
            _print(measured, groups, as_json=arguments.json, rates=rates)
            sys.stdout.flush()
    with live_screen() as draw:
        peaks: deque[Mapping[ReadPartition, int]] = deque(maxlen=_SHOWS_OF_PEAK)
        for measured, rates in watched:
            draw(_screen(measured, groups, rates, peaks))
            peaks.append({each: lag.lag or 0 for each, lag in measured.lags.items()})
    return 0


def _watched(
    cluster: ClusterClient, arguments: argparse.Namespace
) -> Iterator[tuple[Measurement, Mapping[ReadPartition, int]]]:
    """Yield measurements, and the rates since the one before, without an end."""
    measured = measure(cluster, arguments.groups, arguments.checkpoints)
    rates: Mapping[ReadPartition, int] = {}
    while True:
        yield measured, rates
        time.sleep(arguments.interval)
        earlier, measured = measured, measure(cluster, arguments.groups, arguments.checkpoints)
        rates = committed_rates(measured, earlier)


def _screen(
    measured: Measurement,
    groups: Sequence[str],
    rates: Mapping[ReadPartition, int],
    peaks: Sequence[Mapping[ReadPartition, int]],
) -> LiveScreen:
    """Return what is drawn: partitions whose lag is greater than in all of the last shows are highlighted."""
    lags = [lag.lag or 0 for lag in measured.lags.values()]
    behind = frozenset(
        index
        for index, each in enumerate(measured.lags)
        if peaks and lags[index] > max(earlier.get(each, 0) for earlier in peaks)
    )
    worst_first = sorted(range(len(lags)), key=lambda index: -lags[index])
    tables = [LiveTable(_query_rows(measured), _QUERY_COLUMNS)] if measured.queries else []
    table = LiveTable(*_table(measured, rates), behind, worst_first)
    return LiveScreen([*tables, table], _problems(measured, groups))


def _print(
    measured: Measurement,
    groups: Sequence[str],
    *,
    as_json: bool,
    rates: Mapping[ReadPartition, int] | None = None,
) -> int:
    """Print a measurement, and the rates if there are some; return the exit code."""
    problems = _problems(measured, groups)
    if measured.queries and not as_json:
        print_rows(_query_rows(measured), _QUERY_COLUMNS, as_json=False, if_none="")
        print()
    rows, columns = _table(measured, rates) if not as_json else (_rows(measured, rates), ())
    print_rows(rows, columns, as_json=as_json, if_none="There are no committed offsets.")
    for problem in problems:
        to_stderr(problem)
    return FOUND_PROBLEM if problems else 0


def _table(
    measured: Measurement, rates: Mapping[ReadPartition, int] | None
) -> tuple[list[dict[str, object]], list[str]]:
    """Return rows and columns; the first column is that of the group or checkpoint."""
    reader, *columns = _columns(measured, with_rates=rates is not None)
    rows = [{"source": None, **row, reader: row.get("group", row.get("checkpoint"))} for row in _rows(measured, rates)]
    return rows, [reader, *columns]


def _query_rows(measured: Measurement) -> list[dict[str, object]]:
    return [
        {
            "checkpoint": _masked(location),
            "query_id": query.query_id,
            "batch": query.batch,
            "state": "committed" if query.is_committed else "in flight",
            "age": None if query.age_seconds is None else f"{query.age_seconds} s",
        }
        for location, query in measured.queries.items()
    ]


def _rows(measured: Measurement, rates: Mapping[ReadPartition, int] | None) -> list[dict[str, object]]:
    rows = []
    for each, lag in measured.lags.items():
        row: dict[str, object]
        if each.source is None:
            row = {"group": each.reader}
        else:
            query = measured.queries[each.reader]
            row = {
                "checkpoint": _masked(each.reader),
                "query_id": query.query_id,
                "batch": query.batch,
                "state": "committed" if query.is_committed else "in flight",
                "age_seconds": query.age_seconds,
                "source": each.source,
            }
        row["partition"] = str(each.partition)
        row |= {"offset": lag.offset, "end": lag.end, "lag": lag.lag, "stable_lag": lag.stable_lag}
        if rates is not None:
            row["rate"] = rates.get(each)
        rows.append(row)
    return rows


def _columns(measured: Measurement, *, with_rates: bool) -> list[str]:
    """Return the columns of a table; the first one is the reader's."""
    readers = {"group" if each.source is None else "checkpoint" for each in measured.lags} or {"group"}
    sources = {(each.reader, each.source) for each in measured.lags}
    has_several_sources = len(sources) > len({reader for reader, _ in sources})
    columns = [" or ".join(sorted(readers, reverse=True)), *(["source"] if has_several_sources else [])]
    return [*columns, "partition", "offset", "end", "lag", "stable_lag", *(["rate"] if with_rates else [])]


def _problems(measured: Measurement, groups: Sequence[str]) -> list[str]:
    known = {each.reader for each in measured.lags if each.source is None}
    unknown = ", ".join(printable(group) for group in groups if group not in known)
    problems = []
    if unknown:
        problems.append(f"{unknown}: no committed offsets; check the id, and the permission Describe on the group")
    with_source = {each.reader for each in measured.lags if each.source is not None}
    problems += [
        f"{_masked(location)}: no source of batch {query.batch} is a Kafka source"
        for location, query in measured.queries.items()
        if location not in with_source
    ]
    beyond = [
        f"{each.partition} at {lag.offset}"
        for each, lag in measured.lags.items()
        if each.source is not None and lag.lag is not None and lag.lag < 0
    ]
    problems += [behind_log_end(beyond)] if beyond else []
    deleted = [each for each, lag in measured.lags.items() if lag.end is None]
    if in_checkpoints := {each.partition for each in deleted if each.source is not None}:
        problems.append(not_in_cluster(in_checkpoints))
    if in_groups := {each.partition for each in deleted if each.source is None}:
        problems.append(
            f"No longer in the cluster: {listed(sorted(in_groups))}. The topics were deleted, but the groups still "
            "have offsets of them."
        )
    return problems


def _masked(location: str) -> str:
    """Return a location without the secrets that its URI may contain."""
    from pyspark_kafka_direct.producer.file_systems import mask_secrets

    return mask_secrets(location, location)
