"""``kafka-direct transactions list``: the open transactions of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, cluster_client
from pyspark_kafka_direct.cli.output import add_output_argument, print_rows, to_stderr, utc_time
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.hints import listed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.deadline import Deadline
    from pyspark_kafka_direct.client.transaction_listing import DescribedTransaction
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.open_transactions import OpenTransaction

DESCRIPTION: Final = "Show the open transactions of all topics, or of those that are named."
EXAMPLES: Final = """
exit code 1: there is a hanging transaction, which no coordinator knows and only an administrator can end.

examples:
  kafka-direct transactions list -b localhost:9092
  kafka-direct transactions list flights -b localhost:9092 --json
"""

_COLUMNS: Final = (
    "partition",
    "blocks",
    "behind",
    "since",
    "transactional_id",
    "state",
    "producer_id",
    "epoch",
    "start_offset",
)
_HANGING: Final = "hanging"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="topics (default: all)")
    add_output_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the open transactions."""
    from pyspark_kafka_direct.client.transaction_listing import describe_producers_transactions

    cluster = cluster_client(arguments)
    deadline = cluster.deadline()
    blocked = _blocked_partitions(cluster, arguments.topics, deadline)
    open_transactions = cluster.open_transactions(blocked, deadline=deadline) if blocked else {}
    producer_ids = {each.producer_id for found in open_transactions.values() for each in found}
    described = describe_producers_transactions(cluster, producer_ids, deadline)
    open_transactions = _without_ended(cluster, open_transactions, described, deadline)
    rows = [
        _row(partition, blocked[partition], transaction, described.get(transaction.producer_id))
        for partition, found in sorted(open_transactions.items())
        for transaction in sorted(found, key=lambda each: each.start_offset)
    ]
    print_rows(rows, _COLUMNS, as_json=arguments.json, if_none="No transaction is open.")
    unseen = sorted(tp for tp, found in open_transactions.items() if not found)
    if unseen:
        to_stderr(
            f"{', '.join(map(str, unseen))}: records are not stable yet, but no open transaction is shown. It has just "
            "ended, or this principal lacks the permission Read on the topic."
        )
    hanging = [row["partition"] for row in rows if row["state"] == _HANGING]
    if hanging:
        to_stderr(
            f"{listed(hanging)}: a hanging transaction does not end by itself. To end it: kafka-direct "
            "transactions abort --partition TOPIC-N --execute"
        )
    return int(bool(hanging))


class _Blocked(NamedTuple):
    """A partition whose last stable offset is below its high watermark."""

    last_stable_offset: int
    high_watermark: int


def _blocked_partitions(
    cluster: ClusterClient, topics: Sequence[str], deadline: Deadline
) -> dict[TopicPartition, _Blocked]:
    """Return the partitions with records that are not stable yet."""
    from pyspark_kafka_direct.offsets import LATEST, TopicPartition

    metadata = cluster.topics(topics, deadline=deadline) if topics else cluster.all_topics(deadline=deadline)
    if missing := [topic for topic in topics if topic not in metadata]:
        raise OptionError(f"The cluster has no topic {listed(list(map(repr, missing)))}")
    partitions = [TopicPartition(name, index) for name, topic in metadata.items() for index in topic.partitions]
    latest = dict.fromkeys(partitions, LATEST)
    stable = cluster.offsets(latest, isolation_level="read_committed", deadline=deadline)
    ends = cluster.offsets(latest, deadline=deadline)
    return {tp: _Blocked(stable[tp], ends[tp]) for tp in partitions if stable[tp] < ends[tp]}


def _without_ended(
    cluster: ClusterClient,
    found: Mapping[TopicPartition, Sequence[OpenTransaction]],
    described: Mapping[int, DescribedTransaction],
    deadline: Deadline,
) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
    """Leave out transactions that have ended since they were found: no coordinator knows them, as if they hung."""

    def is_known(partition: TopicPartition, transaction: OpenTransaction) -> bool:
        of_producer = described.get(transaction.producer_id)
        return of_producer is not None and of_producer.is_open_in(partition)

    unknown = [tp for tp, transactions in found.items() if not all(is_known(tp, each) for each in transactions)]
    again = cluster.open_transactions(unknown, deadline=deadline) if unknown else {}
    still_open = {(tp, each.producer_id, each.start_offset) for tp, several in again.items() for each in several}
    return {
        tp: tuple(
            each for each in several if is_known(tp, each) or (tp, each.producer_id, each.start_offset) in still_open
        )
        for tp, several in found.items()
    }


def _row(
    partition: TopicPartition, blocked: _Blocked, transaction: OpenTransaction, described: DescribedTransaction | None
) -> Mapping[str, object]:
    """Return what is known of an open transaction in a partition."""
    is_known = described is not None and described.is_open_in(partition)
    since = described.started_at if described is not None and is_known else transaction.last_timestamp
    return {
        "partition": str(partition),
        "blocks": "yes" if transaction.start_offset <= blocked.last_stable_offset else "no",
        "behind": blocked.high_watermark - blocked.last_stable_offset,
        "since": utc_time(since),
        "transactional_id": None if described is None else described.transactional_id,
        "state": described.state if described is not None and is_known else _HANGING,
        "producer_id": transaction.producer_id,
        "epoch": transaction.producer_epoch,
        "start_offset": transaction.start_offset,
    }
