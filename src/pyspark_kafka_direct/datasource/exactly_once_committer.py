"""The driver side of an exactly-once write: it sends the staged rows of a batch in one Kafka transaction.

Spark runs it in processes beside the driver: one plans, another one commits, and a third one may abort.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.datasource.write_task import StagedCommitMessage
from pyspark_kafka_direct.errors import TransactionStateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import WriterCommitMessage

    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.client.connection_pool import ConnectionPool
    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.datasource.write_task import StagingConfig
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.options.settings import ConnectionSettings, ProducerSettings
    from pyspark_kafka_direct.planning.commit_decision import BatchAttempt, Ticket
    from pyspark_kafka_direct.producer.exactly_once import ExactlyOnceOptions
    from pyspark_kafka_direct.producer.staging_location import StagingLocation
    from pyspark_kafka_direct.spark.write_report import PartitionWriteReport

_log = logging.getLogger("pyspark_kafka_direct.datasource")

_SWEEP_SECONDS: Final = 3600.0
_last_sweeps: dict[tuple[str, str], float] = {}  # by staging location and transactional id


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnceCommitter:
    """Sends what the tasks of a batch have staged."""

    connection: ConnectionSettings
    produce: ProducerSettings
    staging: StagingConfig
    prefix: str  # of the transactional id
    topic: str | None  # None: rows name their topics
    sink_state_topic: str
    timeout_ms: int  # of the transaction
    reset_token: str | None  # resetTransactionState
    checkpoint: str | None  # the option checkpointLocation

    def prepare(self, pool: ConnectionPool | None = None) -> None:
        """Check before tasks run that the batch can be committed."""
        from pyspark_kafka_direct.producer.exactly_once import check_exactly_once
        from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore

        # Fences no producer, so any process may call this at any time. Creates the sink state topic if it is missing.
        cluster = self._cluster(pool)
        check_exactly_once(cluster, SinkStateStore(cluster, self.sink_state_topic), self._exactly_once_options())

    def append_ticket(self, pool: ConnectionPool | None = None) -> Ticket:
        """Return the ticket of a write that is being planned; call ``prepare`` first."""
        from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore

        return SinkStateStore(self._cluster(pool), self.sink_state_topic).append_ticket(
            self.staging.query_transactional_id
        )

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch_id: int | None = None,
        pool: ConnectionPool | None = None,
    ) -> dict[TopicPartition, PartitionWriteReport] | None:
        """Send staged rows in one transaction; return what was written, ``None`` if the batch was committed before."""
        from pyspark_kafka_direct.producer.exactly_once import commit_batch
        from pyspark_kafka_direct.producer.sink_state_store import SinkStateStore
        from pyspark_kafka_direct.producer.staging import StagedBatches
        from pyspark_kafka_direct.spark.write_report import PartitionWriteReport

        task_messages = _check_messages(messages, batch_id)
        attempt = self._with_digest(task_messages[0].attempt)
        cluster = self._cluster(pool)
        # One metadata request for all later steps: the brokers, and the leaders of all topics.
        cluster.topics([self.sink_state_topic] if self.topic is None else [self.sink_state_topic, self.topic])
        location = self._staging_location(task_messages[0])  # the same for all tasks
        timeout = self.produce.delivery_timeout_ms / 1000
        batches = StagedBatches([task.staged for task in task_messages], location, timeout, cluster.pool.system)
        batches.start_reading()  # before the transaction begins, which delays readers of committed records
        store = SinkStateStore(cluster, self.sink_state_topic)
        result = commit_batch(
            cluster,
            self.produce,
            store,
            self._exactly_once_options(),
            attempt,
            batches=lambda: batches,  # each retry reads them again
        )
        # Best effort from here on, because the batch is committed: no error of the file system is raised.
        batches.delete()
        if location is not None:
            self._sweep(location, task_messages[0], cluster.pool.system)
        if not result.newly_committed:
            return None
        return {tp: PartitionWriteReport(*written_range) for tp, written_range in result.written.items()}

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the staging files of the tasks that have sent messages."""
        # Another driver may have fenced this one long ago, so this sends nothing to Kafka. The commit that failed has
        # ended its own transaction, or the next one does.
        task_messages = [message for message in messages if isinstance(message, StagedCommitMessage)]
        if not task_messages:
            return
        location = self._staging_location(task_messages[0])
        if location is not None:
            location.delete([task.staged for task in task_messages])

    def _staging_location(self, message: StagedCommitMessage) -> StagingLocation | None:
        """Return the location that the tasks have used, which the process that planned them has chosen."""
        return dataclasses.replace(self.staging, location=message.location).open(message.attempt)

    def _sweep(self, location: StagingLocation, message: StagedCommitMessage, system: System) -> None:
        """Delete files that were left behind, once an hour in this process; an error leaves them to the next sweep."""
        key = (message.location or "", self.staging.query_transactional_id)
        now = system.monotonic()
        if now - _last_sweeps.get(key, -math.inf) >= _SWEEP_SECONDS:
            _last_sweeps[key] = now
            attempt = message.attempt
            # A query has one run at a time, and this one has committed, so its other runs have ended. Several jobs of
            # one prefix may run at the same time.
            location.delete_expired(system, committed_batch=attempt.batch, other_runs_ended=attempt.kind != "job")

    def _cluster(self, pool: ConnectionPool | None) -> ClusterClient:
        from pyspark_kafka_direct.client.cluster_client import ClusterClient

        return ClusterClient(self.connection, pool=pool)

    def _exactly_once_options(self) -> ExactlyOnceOptions:
        from pyspark_kafka_direct.producer.exactly_once import ExactlyOnceOptions

        return ExactlyOnceOptions(self.prefix, self.timeout_ms, self.reset_token)

    def _with_digest(self, attempt: BatchAttempt) -> BatchAttempt:
        """Add what the checkpoint's offset log shows about the batch, unless the tasks had it."""
        if attempt.kind == "job" or attempt.digest is not None:
            return attempt
        from pyspark_kafka_direct.datasource.offset_log_digest import offset_log_digest, rewound_before

        assert self.checkpoint is not None  # was checked before the tasks
        return dataclasses.replace(
            attempt,
            digest=offset_log_digest(self.checkpoint, attempt.query, attempt.batch),
            rewound=rewound_before(self.checkpoint, attempt.batch),
        )


def _check_messages(messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> list[StagedCommitMessage]:
    """Return the messages; raise unless they are those of all tasks of one batch."""
    task_messages = [message for message in messages if isinstance(message, StagedCommitMessage)]
    attempts = {task.attempt for task in task_messages}
    if not task_messages or len(task_messages) < len(messages) or len(attempts) > 1:
        raise TransactionStateError(
            f"{len(task_messages)} of {len(messages)} tasks have reported staged rows, for {len(attempts)} batches; "
            "nothing was sent."
        )
    if batch_id is not None and task_messages[0].attempt.batch != batch_id:
        raise TransactionStateError(
            f"Spark commits batch {batch_id}, but its tasks belong to batch {task_messages[0].attempt.batch}; "
            "nothing was sent."
        )
    return task_messages
