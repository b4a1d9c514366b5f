"""``kafka-direct checkpoint show``: the offsets in the checkpoint of a streaming query."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, cluster_client, has_connection
from pyspark_kafka_direct.cli.log_ends import behind_log_end, log_ends, not_in_cluster
from pyspark_kafka_direct.cli.main import FOUND_PROBLEM
from pyspark_kafka_direct.cli.output import add_output_argument, print_rows, to_stderr, utc_time
from pyspark_kafka_direct.errors import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark_kafka_direct.cli.query_checkpoint import QueryCheckpoint
    from pyspark_kafka_direct.offsets import TopicPartition

DESCRIPTION: Final = """\
Show the offsets in the checkpoint of a streaming query. With -b, the lag is shown, too."""
EXAMPLES: Final = """
exit code 1: the query continues behind the end of the log, or a partition of it
does not exist any more.

examples:
  kafka-direct checkpoint show flights.checkpoint
  kafka-direct checkpoint show flights.checkpoint --batches 3 --json
  kafka-direct checkpoint show flights.checkpoint -b localhost:9092
"""

_COLUMNS: Final = ("source", "partition", "start", "end", "offsets")
_LAG_COLUMNS: Final = ("log_end", "lag")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument("location", metavar="CHECKPOINT", help="the checkpointLocation of a query")
    parser.add_argument("--batches", type=int, default=1, metavar="N", help="show the last N batches (1)")
    add_output_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the batches."""
    from pyspark_kafka_direct.cli.query_checkpoint import QueryCheckpoint

    checkpoint = QueryCheckpoint(arguments.location)
    wanted = {*checkpoint.planned[-max(arguments.batches, 1) :], *checkpoint.committed[-1:]}
    ends = [each for batch in checkpoint.planned if batch in wanted for each in _partition_ends(checkpoint, batch)]
    rows = [_row(each) for each in ends]
    columns = [*_COLUMNS]
    beyond: list[str] = []
    deleted: set[TopicPartition] = set()
    if has_connection(arguments):
        columns += _LAG_COLUMNS
        found = log_ends(cluster_client(arguments), {each.partition for each in ends})
        for row, each in zip(rows, ends, strict=True):
            log_end, _ = found.get(each.partition, (None, None))
            row |= {"log_end": log_end, "lag": None if log_end is None else log_end - each.end}
            if log_end is None:
                deleted.add(each.partition)
            elif each.end > log_end:
                beyond.append(f"{each.partition} at {each.end}")
    if not arguments.json:
        _print_summary(checkpoint)
    _print_batches(rows, columns, as_json=arguments.json)
    if beyond:
        to_stderr(behind_log_end(beyond))
    if deleted:
        to_stderr(not_in_cluster(deleted))
    return FOUND_PROBLEM if beyond or deleted else 0


class _PartitionEnd(NamedTuple):
    """The end of a partition in a batch, and its start."""

    batch: int
    is_committed: bool
    time_ms: int | None
    source: str
    partition: TopicPartition
    start: int | None  # None: the batch is the first one with the partition, or the one before is not there
    end: int


def _partition_ends(checkpoint: QueryCheckpoint, batch_id: int) -> Iterator[_PartitionEnd]:
    batch = checkpoint.batch(batch_id)
    earlier = checkpoint.batch(batch_id - 1).sources if batch_id - 1 in checkpoint.planned else {}
    is_committed = batch_id in checkpoint.committed
    for source, ends in batch.sources.items():
        starts = earlier.get(source, {})
        for tp, end in sorted(ends.items()):
            yield _PartitionEnd(batch_id, is_committed, batch.time_ms, source, tp, starts.get(tp), end)


def _row(of: _PartitionEnd) -> dict[str, object]:
    return {
        "batch": of.batch,
        "state": "committed" if of.is_committed else "unfinished",
        "time": utc_time(of.time_ms),
        "source": of.source,
        "partition": str(of.partition),
        "start": of.start,
        "end": of.end,
        "offsets": None if of.start is None else of.end - of.start,
    }


def _print_batches(rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print rows as JSON, or as a table of each batch."""
    none = "No source of these batches is a Kafka source."
    if as_json or not rows:
        print_rows(rows, columns, as_json=as_json, if_none=none)
        return
    for number, ((batch, state, time), group) in enumerate(groupby(rows, key=itemgetter("batch", "state", "time"))):
        if number:
            print()
        print(f"batch {batch}, {state}, planned at {time or 'an unknown time'}")
        print_rows(list(group), columns, as_json=False, if_none=none)


def _print_summary(checkpoint: QueryCheckpoint) -> None:
    unfinished = sorted({*checkpoint.planned} - {*checkpoint.committed})
    last = checkpoint.batch(checkpoint.planned[-1])
    committed = f"{checkpoint.committed[0]} to {checkpoint.committed[-1]}" if checkpoint.committed else "none"
    print(f"query id           {printable(checkpoint.query_id or 'unknown')}")
    print(f"committed batches  {committed}")
    print(f"unfinished batch   {unfinished[-1] if unfinished else 'none'}")
    print(f"watermark          {utc_time(last.watermark_ms or None) or 'none'}")
    print(f"state              {'yes' if checkpoint.has_state else 'no'}")
    print()
