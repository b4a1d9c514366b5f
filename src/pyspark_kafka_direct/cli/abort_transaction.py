"""Ends a transaction for ``kafka-direct transactions abort``: by its coordinator, or a hanging one by the leader.

The coordinator comes first. A transaction that it knows is aborted by a new epoch of its transactional id, which also
fences its producer. Only a transaction that no coordinator knows gets a marker from this command: a marker in a
transaction that is being committed would tear it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.main import FOUND_PROBLEM
from pyspark_kafka_direct.cli.output import to_stderr, utc_time
from pyspark_kafka_direct.client.admin import describe_broker_config
from pyspark_kafka_direct.client.deadline import Backoff, Retry
from pyspark_kafka_direct.client.leader_requests import call_leaders
from pyspark_kafka_direct.client.producer_states import AbortMarkerRequest
from pyspark_kafka_direct.client.transaction_coordinator import TransactionCoordinatorClient
from pyspark_kafka_direct.client.transaction_listing import describe_producers_transactions, describe_transaction
from pyspark_kafka_direct.errors import AuthorizationError, OptionError
from pyspark_kafka_direct.offsets import TopicPartition

if TYPE_CHECKING:
    import argparse

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.transaction_listing import DescribedTransaction
    from pyspark_kafka_direct.planning.open_transactions import OpenTransaction

_MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
_DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
_PARTITION: Final = re.compile(r"(.+)-([0-9]{1,9})")


def abort(cluster: ClusterClient, arguments: argparse.Namespace) -> int:
    """Abort the transaction that the arguments name, or say what would be done."""
    if arguments.partition is None:
        if arguments.transactional_id is None:
            raise OptionError("Name one transactional id, or set --partition")
        if arguments.start_offset is not None:
            raise OptionError("--start-offset needs --partition; a transactional id has one transaction")
        return _abort_id(cluster, arguments.transactional_id, execute=arguments.execute)
    if arguments.transactional_id is not None:
        raise OptionError("Remove the transactional id, or --partition")
    partition = _parse_partition(arguments.partition)
    transaction = _find(cluster, partition, arguments.start_offset)
    if transaction is None:
        to_stderr(f"{partition} has no such open transaction.")
        return FOUND_PROBLEM
    known = describe_producers_transactions(cluster, [transaction.producer_id], cluster.deadline())
    described = known.get(transaction.producer_id)
    if described is not None and described.is_open_in(partition):
        return _abort_described(cluster, described, execute=arguments.execute)
    return _abort_hanging(cluster, partition, transaction, execute=arguments.execute, force=arguments.force)


def _abort_id(cluster: ClusterClient, transactional_id: str, *, execute: bool) -> int:
    found = describe_transaction(cluster, transactional_id, cluster.deadline())
    if found is None:
        raise OptionError(f"The cluster has no transactional id {transactional_id!r}")
    return _abort_described(cluster, found, execute=execute)


def _abort_described(cluster: ClusterClient, transaction: DescribedTransaction, *, execute: bool) -> int:
    """Abort a transaction that its coordinator knows."""
    transactional_id = transaction.transactional_id
    if transaction.state != "Ongoing":
        is_ending = transaction.state.startswith("Prepare")
        to_stderr(
            f"The transaction of {transactional_id!r} is in the state {transaction.state}, so "
            + ("its coordinator is ending it." if is_ending else "there is nothing to abort.")
        )
        return FOUND_PROBLEM
    partitions = ", ".join(map(str, transaction.partitions)) or "no partition yet"
    summary = f"the transaction of {transactional_id!r} in {partitions}, open since {utc_time(transaction.started_at)}"
    consequence = "Its producer is fenced: a query or program that uses this transactional id fails at its next write."
    if not execute:
        print(f"Would abort {summary}. {consequence} Add --execute to do it.")
        return 0
    TransactionCoordinatorClient(cluster, transactional_id).init_transactions(transaction.timeout_ms)
    print(f"Aborted {summary}. {consequence}")
    return 0


def _abort_hanging(
    cluster: ClusterClient, partition: TopicPartition, transaction: OpenTransaction, *, execute: bool, force: bool
) -> int:
    """Write the marker that aborts a transaction that no coordinator knows."""
    summary = (
        f"the hanging transaction of producer id {transaction.producer_id}, epoch {transaction.producer_epoch}, in "
        f"{partition} from offset {transaction.start_offset}, whose last record is of "
        f"{utc_time(transaction.last_timestamp)}"
    )
    configured = describe_broker_config(cluster, [_MAX_TIMEOUT]).get(_MAX_TIMEOUT)
    max_timeout_ms = int(configured) if configured else _DEFAULT_MAX_TIMEOUT_MS
    age_ms = cluster.pool.system.wall_time() * 1000 - transaction.last_timestamp
    if age_ms < max_timeout_ms and not force:
        to_stderr(
            f"Did not abort {summary}. It is younger than {_MAX_TIMEOUT} ({max_timeout_ms} ms), so its producer may "
            "still commit it, if this principal lacks Describe on the transactional id. Wait, or add --force."
        )
        return FOUND_PROBLEM
    if not execute:
        print(f"Would abort {summary}. Add --execute to do it.")
        return 0
    retry = Retry(cluster.deadline(), None, Backoff.of(cluster.settings))
    try:
        call_leaders(cluster, AbortMarkerRequest(), {partition: transaction}, retry)
    except AuthorizationError as error:
        raise AuthorizationError(
            f"{error.message} To write markers, the principal needs ClusterAction on the cluster.",
            topic=error.topic,
            partition=error.partition,
            broker=error.broker,
        ) from None
    print(f"Aborted {summary}.")
    return 0


def _find(cluster: ClusterClient, partition: TopicPartition, start_offset: int | None) -> OpenTransaction | None:
    found = sorted(cluster.open_transactions([partition])[partition], key=lambda each: each.start_offset)
    return next((each for each in found if start_offset in (None, each.start_offset)), None)


def _parse_partition(text: str) -> TopicPartition:
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise OptionError(f"--partition: {text!r} is not TOPIC-N, such as flights-0")
    return TopicPartition(match[1], int(match[2]))
