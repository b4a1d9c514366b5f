"""What the driver side does for an exactly-once write: checks at the start, the commit step, and cleaning up.

All of it runs in processes of Spark's beside the driver: one plans, another commits, and maybe a third one aborts.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import DeliveryRefusedError
from pyspark_kafka_direct.structured._checkpoint import offsets_digest
from pyspark_kafka_direct.structured._staging_task import TaskStaged
from pyspark_kafka_direct.structured._write_task import TaskWritten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import WriterCommitMessage

    from pyspark_kafka_direct.planning.delivery import Attempt
    from pyspark_kafka_direct.settings.connection import ConnectionSettings
    from pyspark_kafka_direct.settings.produce import ProduceSettings
    from pyspark_kafka_direct.structured._staging_task import Staging
    from pyspark_kafka_direct.writing.exactly_once import Delivery

_log = logging.getLogger("pyspark_kafka_direct.structured")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitStep:
    """Delivers what tasks have staged.

    Attributes:
        connection: How to reach the cluster.
        produce: How to write records.
        staging: Where tasks have left them.
        prefix: What the transactional id begins with.
        topic: The topic of all rows; ``None``: rows name theirs.
        marker_topic: Where the marker of the last batch is.
        timeout_ms: After how long the broker aborts a transaction.
        reset_token: The token of a refusal that is overruled.
        checkpoint: The query's ``checkpointLocation``, where it was given as an option.
    """

    connection: ConnectionSettings
    produce: ProduceSettings
    staging: Staging
    prefix: str
    topic: str | None
    marker_topic: str
    timeout_ms: int
    reset_token: str | None
    checkpoint: str | None

    def prepare(self) -> str | None:
        """Check, before tasks run, what can be known then; make the topic of markers if it is not there.

        It fences nobody, so it may run in any process at any time.

        Returns:
            By what tasks recognise the staging location.

        Raises:
            KafkaDirectError: Nothing could be committed.
        """
        from pyspark_kafka_direct.wire.cluster import Cluster
        from pyspark_kafka_direct.writing.exactly_once import prepare
        from pyspark_kafka_direct.writing.markers import MarkerStore

        cluster = Cluster(self.connection)
        prepare(cluster, MarkerStore(cluster, self.marker_topic), self._delivery())
        location = self.staging.open(cluster, "")
        return None if location is None else location.prepare()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None) -> TaskWritten | None:
        """Send what the tasks have staged in one transaction, unless that was done before.

        Args:
            messages: The tasks' messages, in the order of the tasks.
            batch_id: Which micro-batch of a stream.

        Returns:
            What was written, as one task; ``None`` where the batch had been sent before.

        Raises:
            KafkaDirectError: It was not sent.
        """
        from pyspark_kafka_direct.planning.written import PartitionWritten
        from pyspark_kafka_direct.wire.cluster import Cluster
        from pyspark_kafka_direct.writing.exactly_once import deliver
        from pyspark_kafka_direct.writing.markers import MarkerStore
        from pyspark_kafka_direct.writing.staging import StagedBatches

        tasks = _checked(messages, batch_id)
        attempt = self._with_digest(tasks[0].attempt)
        cluster = Cluster(self.connection)
        # One question for what several would ask: the brokers, and the leaders of all that is read and written.
        cluster.topics([self.marker_topic] if self.topic is None else [self.marker_topic, self.topic])
        location = self.staging.open(cluster, attempt.run)
        batches = StagedBatches([task.staged for task in tasks], location)
        store = MarkerStore(cluster, self.marker_topic)
        delivered = deliver(cluster, self.produce, store, self._delivery(), attempt, lambda: batches)
        batches.discard()
        if location is not None and delivered.superseded is not None:
            location.sweep(delivered.superseded, cluster.pool.system)
        if not delivered.sent:
            return None
        return TaskWritten(tasks[0].place, {tp: PartitionWritten(*each) for tp, each in delivered.written.items()})

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files that messages name, and nothing else.

        Another driver may have taken over long ago. So nothing is asked of Kafka: the commit step that failed has
        ended its own transaction, or the next one does.

        Args:
            messages: Those of the tasks that were done.
        """
        from pyspark_kafka_direct.wire.cluster import Cluster

        tasks = [message for message in messages if isinstance(message, TaskStaged)]
        if tasks and (location := self.staging.open(Cluster(self.connection), tasks[0].attempt.run)) is not None:
            location.discard([task.staged for task in tasks])

    def _delivery(self) -> Delivery:
        from pyspark_kafka_direct.writing.exactly_once import Delivery

        return Delivery(self.prefix, self.timeout_ms, self.reset_token)

    def _with_digest(self, attempt: Attempt) -> Attempt:
        if attempt.kind == "job":
            return attempt
        return dataclasses.replace(attempt, digest=offsets_digest(self.checkpoint, attempt.query, attempt.batch))


def _checked(messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> list[TaskStaged]:
    """Return the messages, if they are those of all tasks of one batch."""
    tasks = [message for message in messages if isinstance(message, TaskStaged)]
    attempts = {task.attempt for task in tasks}
    if not tasks or len(tasks) < len(messages) or len(attempts) > 1:
        raise DeliveryRefusedError(
            f"Of {len(messages)} tasks {len(tasks)} have told what they staged, for {len(attempts)} batches; nothing "
            "was sent."
        )
    if batch_id is not None and tasks[0].attempt.batch != batch_id:
        raise DeliveryRefusedError(
            f"Batch {batch_id} is to be committed, and its tasks say batch {tasks[0].attempt.batch}; nothing was sent."
        )
    return tasks
