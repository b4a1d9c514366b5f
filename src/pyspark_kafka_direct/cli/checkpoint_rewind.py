"""``kafka-direct checkpoint rewind``: appends an empty batch to a checkpoint, so that a query reads records again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments
from pyspark_kafka_direct.cli.output import add_output_argument

if TYPE_CHECKING:
    import argparse

DESCRIPTION: Final = """\
Append an empty batch to the checkpoint of a stopped query, so that the query reads records again. The command only
shows what it would do, unless --execute is given. It never changes or deletes a recorded batch."""
EXAMPLES: Final = """
exit code 1: there is a reason against it, for example the query is running, or it has state.

examples:
  kafka-direct checkpoint rewind flights.checkpoint --to-time -2h -b localhost:9092
  kafka-direct checkpoint rewind flights.checkpoint --to-offsets '{"flights":{"0":2,"1":3}}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument("location", metavar="CHECKPOINT", help="the checkpointLocation of a query")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-time", metavar="TIME", help="go back to a time, such as -2h or 2026-11-28T06:00Z")
    target.add_argument("--to-offsets", metavar="JSON", help='or to offsets, such as {"flights":{"0":23}}')
    parser.add_argument("--source", metavar="NAME", help="of this source only (default: all Kafka sources)")
    parser.add_argument("--file-sink", action="store_true", help="the query writes with a file sink of Spark")
    parser.add_argument("--allow-skip", action="store_true", help="also go forward, so that records are never read")
    parser.add_argument("--force", action="store_true", help="the query is stopped, although it has just committed")
    parser.add_argument("--execute", action="store_true", help="do it")
    add_output_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show what would be read again, and append the batch with ``--execute``."""
    from pyspark_kafka_direct.cli.query_rewind import rewind_query

    return rewind_query(arguments)
