"""``kafka-direct transactions describe``: the latest transaction of transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, cluster_client
from pyspark_kafka_direct.cli.output import add_output_argument, print_rows, utc_time
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    import argparse

DESCRIPTION: Final = """\
Show the latest transaction of transactional ids, and the partitions that it has written to. "kafka-direct transactions
list" shows the ids of open transactions."""
EXAMPLES: Final = """
examples:
  kafka-direct transactions describe flights-writer -b localhost:9092
"""

_COLUMNS: Final = ("transactional_id", "state", "since", "timeout_ms", "producer_id", "epoch", "partitions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument("transactional_ids", metavar="ID", nargs="+", help="transactional ids")
    add_output_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the transactions."""
    from pyspark_kafka_direct.client.transaction_listing import describe_transaction

    cluster = cluster_client(arguments)
    deadline = cluster.deadline()
    rows = []
    for transactional_id in arguments.transactional_ids:
        found = describe_transaction(cluster, transactional_id, deadline)
        if found is None:
            raise OptionError(f"The cluster has no transactional id {transactional_id!r}")
        rows.append(
            {
                "transactional_id": transactional_id,
                "state": found.state,
                "since": utc_time(found.started_at),
                "timeout_ms": found.timeout_ms,
                "producer_id": found.producer.id,
                "epoch": found.producer.epoch,
                "partitions": " ".join(map(str, found.partitions)) or None,
            }
        )
    print_rows(rows, _COLUMNS, as_json=arguments.json, if_none="")
    return 0
