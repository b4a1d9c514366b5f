"""``kafka-direct dlq replay``: writes dead letters to their topics again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.dlq_arguments import add_letter_arguments, letter_settings, positive_number

if TYPE_CHECKING:
    import argparse

DESCRIPTION: Final = """\
Write each dead letter once, with its key, value, timestamp and original headers, in transactions that also contain the
progress of --group. So a replay that was killed continues where its last transaction ended. The command only shows what
it would do, unless --execute is given."""
EXAMPLES: Final = """
exit code 1: there are dead letters that it cannot or may not write.

examples:
  kafka-direct dlq replay flights-dlq -b localhost:9092
  kafka-direct dlq replay flights-dlq -b localhost:9092 --to flights-again --execute
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    add_letter_arguments(parser, default_start="the progress, or else start")
    parser.add_argument("--to", metavar="TOPIC", help="write to this topic instead of the original ones")
    parser.add_argument(
        "--group", metavar="ID", help="consumer group that has the progress (kafka-direct-replay.TOPIC)"
    )
    parser.add_argument(
        "--max-attempts", type=positive_number, default=3, metavar="N", help="skip what was replayed N times before (3)"
    )
    parser.add_argument(
        "--transaction-size",
        type=positive_number,
        default=1000,
        metavar="N",
        help="dead letters of one transaction (1000)",
    )
    parser.add_argument("--execute", action="store_true", help="do it")


def run(arguments: argparse.Namespace) -> int:
    """Show what would be written, and write it with ``--execute``."""
    settings = letter_settings(arguments)
    from pyspark_kafka_direct.cli.dead_letter_replay import replay

    return replay(arguments, settings)
