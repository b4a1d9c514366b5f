"""``kafka-direct transactions abort``: ends an open transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, cluster_client

if TYPE_CHECKING:
    import argparse

DESCRIPTION: Final = """\
End a transaction by its transactional id, or by a partition. The command only shows what it would do, unless --execute
is given."""
EXAMPLES: Final = """
exit code 1: there is a reason against it.

examples:
  kafka-direct transactions abort flights-writer -b localhost:9092
  kafka-direct transactions abort --partition flights-0 -b localhost:9092
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument("transactional_id", metavar="ID", nargs="?", help="the transactional id")
    parser.add_argument(
        "--partition", metavar="TOPIC-N", help="or the first open transaction of a partition, also a hanging one"
    )
    parser.add_argument(
        "--start-offset", type=int, metavar="N", help="with --partition: the one that begins at this offset"
    )
    parser.add_argument("--execute", action="store_true", help="do it")
    parser.add_argument(
        "--force", action="store_true", help="do it although a hanging transaction may be too young to be one"
    )
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Abort the transaction, or show what would be done."""
    cluster = cluster_client(arguments)
    from pyspark_kafka_direct.cli.abort_transaction import abort

    return abort(cluster, arguments)
