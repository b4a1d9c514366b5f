"""``kafka-direct lag``: how far consumer groups are behind the ends of their partitions, once or again and again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, cluster_client
from pyspark_kafka_direct.cli.main import FOUND_PROBLEM
from pyspark_kafka_direct.cli.output import add_output_argument, print_rows, to_stderr
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.offsets import TopicPartition

DESCRIPTION: Final = """\
Show the lag of consumer groups: the offsets between the committed offset of each partition and the end of its log.
Queries commit offsets if they have the option commitGroupId. The lag of others: kafka-direct checkpoint show."""
EXAMPLES: Final = """
"lag" counts up to the end of the log, "stable lag" up to the first open transaction: with read_committed, nothing
behind it can be read. "rate" is the number of offsets that were committed per second.

exit code 1: a group has no committed offsets.

examples:
  kafka-direct lag flights-query -b localhost:9092
  kafka-direct lag flights-query -b localhost:9092 --json
  kafka-direct lag flights-query -b localhost:9092 --watch
"""

_COLUMNS: Final = ("group", "partition", "offset", "end", "lag", "stable_lag")
_CLEAR_SCREEN: Final = "\x1b[H\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("groups", metavar="GROUP", nargs="+", help="ids of consumer groups")
    parser.add_argument("--watch", action="store_true", help="show it again and again, until Ctrl-C")
    parser.add_argument("--interval", type=float, default=2.0, metavar="S", help="seconds between two shows (2)")
    add_output_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the lag."""
    if not arguments.interval > 0:
        raise OptionError("--interval must be more than 0 seconds")
    cluster = cluster_client(arguments)
    if not arguments.watch:
        return _print(_measure(cluster, arguments.groups), arguments.groups, as_json=arguments.json)
    is_drawn = not arguments.json and sys.stdout.isatty()
    earlier = _Measurement(0.0, {})
    while True:
        measured = _measure(cluster, arguments.groups)
        if is_drawn:
            print(_CLEAR_SCREEN, end="")
        _print(measured, arguments.groups, as_json=arguments.json, earlier=earlier)
        sys.stdout.flush()
        earlier = measured
        time.sleep(arguments.interval)


class _PartitionLag(NamedTuple):
    offset: int  # that the group has committed
    end: int  # of the log
    stable_end: int  # the start of the first open transaction, or else the end of the log


class _Measurement(NamedTuple):
    time: float  # monotonic
    lags: Mapping[tuple[str, TopicPartition], _PartitionLag]  # by group and partition


def _measure(cluster: ClusterClient, groups: Sequence[str]) -> _Measurement:
    from pyspark_kafka_direct.client.consumer_group import ConsumerGroup
    from pyspark_kafka_direct.offsets import LATEST

    now = time.monotonic()
    # Also those that an open transaction is about to replace.
    offsets = {
        (group, tp): committed.offset
        for group in dict.fromkeys(groups)
        for tp, committed in sorted(ConsumerGroup(cluster, group).committed_with_metadata(require_stable=False).items())
    }
    latest = dict.fromkeys((tp for _, tp in offsets), LATEST)
    ends = cluster.offsets(latest) if latest else {}
    stable_ends = cluster.offsets(latest, isolation_level="read_committed") if latest else {}
    lags = {(group, tp): _PartitionLag(offset, ends[tp], stable_ends[tp]) for (group, tp), offset in offsets.items()}
    return _Measurement(now, lags)


def _print(measured: _Measurement, groups: Sequence[str], *, as_json: bool, earlier: _Measurement | None = None) -> int:
    """Print a measurement, with the rates since an earlier one; return the exit code."""
    rows = []
    for (group, tp), lag in measured.lags.items():
        row: dict[str, object] = {
            "group": group,
            "partition": str(tp),
            "offset": lag.offset,
            "end": lag.end,
            "lag": lag.end - lag.offset,
            "stable_lag": lag.stable_end - lag.offset,
        }
        if earlier is not None:
            before = earlier.lags.get((group, tp))
            seconds = measured.time - earlier.time
            row["rate"] = None if before is None else round((lag.offset - before.offset) / seconds)
        rows.append(row)
    columns = _COLUMNS if earlier is None else (*_COLUMNS, "rate")
    print_rows(rows, columns, as_json=as_json, if_none="No group has committed offsets.")
    unknown = [group for group in groups if group not in {known for known, _ in measured.lags}]
    if unknown:
        to_stderr(f"{', '.join(unknown)}: no committed offsets; check the id, and the permission Describe on the group")
    return FOUND_PROBLEM if unknown else 0
