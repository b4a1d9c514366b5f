"""The offsets that a query's transactions commit to a consumer group, and their metadata.

The group is ``<transactionalIdPrefix>.cont`` and has no members. Task number i uses the transactional id
``<transactionalIdPrefix>.cont.<i>``. Each of its transactions contains the records of one epoch and, for each
partition that moved, the next offset to read with this metadata::

    {"v":1,"query":"3fa1c1a5-...","epoch":17,"topic":"c0ffee..."}

So the offsets are committed if and only if the records are. They take precedence over the checkpoint's logs only if
they are of this query, of the same topic (a recreated topic has another id), and of an epoch that the logs do not have
yet. Otherwise a micro-batch query may have run since then, or brokers may have deleted offsets that were not committed
for a week.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.errors import TransactionStateError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition

_METADATA_VERSION: Final = 1

_MAX_EPOCHS_AHEAD: Final = 2  # one epoch may end while the commit of the previous one is in flight

BEFORE_FIRST_EPOCH: Final = -1  # offsets with this epoch are ignored


@dataclass(frozen=True, slots=True)
class EpochMetadata:
    """The metadata of a committed offset."""

    query: str  # id, which is stored in the checkpoint
    epoch: int  # that ends at the offset
    topic_id: UUID | None  # None: the brokers have no topic ids (before Kafka 2.8)

    def to_json(self) -> str:
        topic = None if self.topic_id is None else self.topic_id.hex
        fields = {"v": _METADATA_VERSION, "query": self.query, "epoch": self.epoch, "topic": topic}
        return json.dumps(fields, separators=(",", ":"))


class EpochOffset(NamedTuple):
    """A committed offset with its metadata."""

    offset: int  # the next offset to read
    metadata: EpochMetadata | None  # None: written by another application, or a newer version of this package


def offsets_group_id(prefix: str) -> str:
    return f"{prefix}.cont"


def transactional_id(prefix: str, task: int) -> str:
    return f"{prefix}.cont.{task}"


def parse_epoch_metadata(text: str) -> EpochMetadata | None:
    """Parse the result of ``EpochMetadata.to_json``; return ``None`` for anything else."""
    from uuid import UUID

    try:
        fields: Any = json.loads(text)
        if not isinstance(fields, dict) or fields.get("v") != _METADATA_VERSION:
            return None
        query, epoch, topic = fields["query"], fields["epoch"], fields["topic"]
        if not isinstance(query, str) or not isinstance(epoch, int) or isinstance(epoch, bool):
            return None
        return EpochMetadata(query, epoch, None if topic is None else UUID(hex=topic))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def foreign_offsets(committed: Mapping[TopicPartition, EpochOffset], query: str) -> dict[TopicPartition, EpochOffset]:
    """Return the offsets that other queries committed."""
    return {
        tp: committed_offset
        for tp, committed_offset in committed.items()
        if committed_offset.metadata is None or committed_offset.metadata.query != query
    }


def offsets_ahead(
    committed: Mapping[TopicPartition, EpochOffset],
    *,
    query: str,
    topic_ids: Mapping[str, UUID | None],
    last_epoch: int | None,
    logged_offsets: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition] = (),
) -> dict[TopicPartition, int]:
    """Return the offsets of this query that are ahead of its logs.

    All earlier writers must have been fenced, so that ``committed`` is final. ``topic_ids`` has all existing topics;
    ``logged_offsets`` are the end offsets of ``last_epoch``, the last committed epoch of the logs. Some of the
    ``partitions`` that the next run reads may be missing there because the query has not read them for a while: their
    last committed offsets count, of any epoch.
    """
    last_logged_epoch = BEFORE_FIRST_EPOCH if last_epoch is None else last_epoch
    ahead = {}
    for tp, (offset, metadata) in _current_offsets(committed, query, topic_ids).items():
        problem = _contradiction(offset, metadata.epoch, logged_offsets.get(tp), last_logged_epoch)
        if problem is not None:
            raise TransactionStateError(
                f"A transaction committed offset {offset} of {tp} for epoch {metadata.epoch} of query {query}, but the "
                f"logs have {problem}",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
            )
        is_read_again = tp in partitions and tp not in logged_offsets and metadata.epoch > BEFORE_FIRST_EPOCH
        if metadata.epoch > last_logged_epoch or is_read_again:
            ahead[tp] = offset
    return ahead


def _contradiction(offset: int, epoch: int, logged_offset: int | None, last_logged_epoch: int) -> str | None:
    """Return how the logs contradict an offset that a transaction committed for an epoch; ``None`` if they do not."""
    if logged_offset is None:
        return None
    # An epoch whose commit was in flight may have a lower offset, because the log of the partition was truncated.
    if epoch > last_logged_epoch + _MAX_EPOCHS_AHEAD and offset < logged_offset:
        return (
            f"the higher offset {logged_offset} for the earlier epoch {last_logged_epoch}: the checkpoint was "
            "restored from a backup, and a micro-batch query has run since then. Neither offset can be confirmed, "
            "and some records could be written twice. Start with a new checkpoint, startingOffsets and another "
            "transactionalIdPrefix."
        )
    if BEFORE_FIRST_EPOCH < epoch <= last_logged_epoch and offset > logged_offset:
        return (
            f"the lower offset {logged_offset} for epoch {last_logged_epoch}. Either two queries have resumed "
            "from copies of one checkpoint, or its logs were changed, and some records would be written twice. "
            "Resume from the other copy, or start with a new checkpoint and another transactionalIdPrefix."
        )
    return None


def reset_token(foreign: Mapping[TopicPartition, EpochOffset], query: str) -> str:
    """Return the value of ``resetTransactionState`` that allows a query to use the prefix.

    It depends on the committed offsets, so two queries cannot repeatedly reset each other's state with fixed values.
    """
    rows = [
        (*tp, offset, None if metadata is None else metadata.to_json()) for tp, (offset, metadata) in foreign.items()
    ]
    rows.sort(key=repr)  # None and strings cannot be compared
    return hashlib.sha256(json.dumps([query, rows]).encode()).hexdigest()[:16]


def prefix_in_use_error(
    foreign: Mapping[TopicPartition, EpochOffset], query: str, prefix: str
) -> TransactionStateError:
    """Return the error for a prefix with offsets of another query."""
    tp, first = min(foreign.items())
    if first.metadata is None:
        owner = (
            f"it has offset {first.offset} of {tp}, which was not committed by a continuous query: another application "
            "uses this consumer group, or a newer version of this package has committed the offset"
        )
    else:
        owner = (
            f"it has offset {first.offset} of {tp}, which query {first.metadata.query} has committed in epoch "
            f"{first.metadata.epoch}. If that is another query, set another transactionalIdPrefix for this one. If "
            "that is the same query with an earlier checkpoint, the query starts again and may repeat records"
        )
    return TransactionStateError(
        f"Query {query} cannot use the group {offsets_group_id(prefix)!r} for exactly-once delivery: {owner}. Nothing "
        f"was written. To use this prefix for query {query}, set resetTransactionState to "
        f"{reset_token(foreign, query)}, which is valid only while the group's offsets do not change."
    )


def _current_offsets(
    committed: Mapping[TopicPartition, EpochOffset], query: str, topic_ids: Mapping[str, UUID | None]
) -> dict[TopicPartition, tuple[int, EpochMetadata]]:
    """Return the offsets that the query committed for existing topics with the same ids."""
    return {
        tp: (offset, metadata)
        for tp, (offset, metadata) in committed.items()
        if metadata is not None
        and metadata.query == query
        and tp.topic in topic_ids
        and metadata.topic_id == topic_ids[tp.topic]
    }
