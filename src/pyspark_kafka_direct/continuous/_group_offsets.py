"""How far a query's transactions have got: the offsets that they commit in a group, and what is noted beside them.

The group is ``<transactionalIdPrefix>.cont``; nobody is a member of it. Task number i writes under the transactional id
``<transactionalIdPrefix>.cont.<i>``. Each of its transactions has the records of one epoch, and for each partition
that moved the next offset to read, with this beside it::

    {"v":1,"query":"3fa1c1a5-...","epoch":17,"topic":"c0ffee..."}

So the offsets are there if and only if the records are. They count more than the logs of the checkpoint only where they
are this query's, of the same topic (one that was created again has another id), and of an epoch that the logs do not
have yet: a micro-batch query may have gone on since, and brokers forget what was not committed for a week.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_kafka_direct.errors import DeliveryRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from pyspark_kafka_direct.offsets import TopicPartition

_VERSION: Final = 1

_MOST_AHEAD: Final = 2  # epochs: one that ends while the one before is written down

BEFORE_ALL: Final = -1
"""An epoch that is before every other one: an offset with it counts for nothing."""


@dataclass(frozen=True, slots=True)
class Note:
    """What is noted beside an offset.

    Attributes:
        query: The query's id, which its checkpoint keeps.
        epoch: The epoch that the offset is the end of.
        topic_id: The id of the topic; ``None`` where brokers tell none (before Kafka 2.8).
    """

    query: str
    epoch: int
    topic_id: UUID | None

    def to_json(self) -> str:
        """Write it as JSON."""
        topic = None if self.topic_id is None else self.topic_id.hex
        fields = {"v": _VERSION, "query": self.query, "epoch": self.epoch, "topic": topic}
        return json.dumps(fields, separators=(",", ":"))


class Noted(NamedTuple):
    """An offset with its note.

    Attributes:
        offset: The next offset to read.
        note: The note; ``None`` where it was written by something else, or by a newer version of this package.
    """

    offset: int
    note: Note | None


def group_of(prefix: str) -> str:
    """Return the name of the group."""
    return f"{prefix}.cont"


def transactional_id(prefix: str, task: int) -> str:
    """Return the transactional id of a task."""
    return f"{prefix}.cont.{task}"


def read_note(text: str) -> Note | None:
    """Return what ``Note.to_json`` wrote; ``None`` for anything else."""
    from uuid import UUID

    try:
        fields: Any = json.loads(text)
        if not isinstance(fields, dict) or fields.get("v") != _VERSION:
            return None
        query, epoch, topic = fields["query"], fields["epoch"], fields["topic"]
        if not isinstance(query, str) or not isinstance(epoch, int) or isinstance(epoch, bool):
            return None
        return Note(query, epoch, None if topic is None else UUID(hex=topic))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def others(noted: Mapping[TopicPartition, Noted], query: str) -> dict[TopicPartition, Noted]:
    """Return the offsets that are not the query's own."""
    return {tp: each for tp, each in noted.items() if each.note is None or each.note.query != query}


def reached(
    noted: Mapping[TopicPartition, Noted],
    query: str,
    topic_ids: Mapping[str, UUID | None],
    last_epoch: int | None,
    logged: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offsets that count more than the logs.

    Args:
        noted: What is in the group. Nobody can add to it any more.
        query: The query's id.
        topic_ids: The ids of all topics that there are.
        last_epoch: The last epoch that the logs have as committed, if any.
        logged: Where that epoch ended.

    Raises:
        DeliveryRefusedError: The logs are of another past than the transactions.
    """
    last = BEFORE_ALL if last_epoch is None else last_epoch
    found = {}
    for tp, (offset, note) in noted.items():
        if note is None or note.query != query or tp.topic not in topic_ids or note.topic_id != topic_ids[tp.topic]:
            continue
        if note.epoch > last + _MOST_AHEAD and offset < logged.get(tp, offset):
            raise DeliveryRefusedError(
                f"Epoch {note.epoch} of query {query} has ended at offset {offset} of {tp}, and the logs have "
                f"{logged[tp]} for epoch {last}, which is earlier: the checkpoint was restored from a backup, and a "
                "micro-batch query has gone on since. Which of the two counts nobody knows, and some records could "
                "be published again. Start a new checkpoint with startingOffsets and another transactionalIdPrefix.",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
            )
        if note.epoch > last:
            found[tp] = offset
        elif note.epoch > BEFORE_ALL and offset > logged.get(tp, offset):
            raise DeliveryRefusedError(
                f"Epoch {note.epoch} of query {query} has ended at offset {offset} of {tp}, and by the logs epoch "
                f"{last} ended before it, at {logged[tp]}. The checkpoint was copied and two queries went on from it, "
                "or its logs were changed: some records would be published again. Go on with the other copy, or with "
                "a new checkpoint and another transactionalIdPrefix.",
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
            )
    return found


def reset_token(found: Mapping[TopicPartition, Noted], query: str) -> str:
    """Return what ``resetDelivery`` has to be for a query to take the prefix over.

    It changes when the others go on, so two queries cannot take a prefix from one another by it, time and again.

    Args:
        found: Offsets of others, as ``others`` returns them.
        query: The query that wants the prefix.
    """
    theirs = [(*tp, each.offset, None if each.note is None else each.note.to_json()) for tp, each in found.items()]
    return hashlib.sha256(json.dumps([query, sorted(theirs, key=repr)]).encode()).hexdigest()[:16]


def refusal(found: Mapping[TopicPartition, Noted], query: str, prefix: str) -> DeliveryRefusedError:
    """Return the error for a prefix that is another query's.

    Args:
        found: Offsets of others; at least one.
        query: The query that wants the prefix.
        prefix: The prefix.
    """
    tp, first = next(iter(sorted(found.items())))
    if first.note is None:
        whose = (
            f"it holds offset {first.offset} of {tp}, which no continuous query has committed: a consumer group or a "
            "tool uses the name, or a newer version of this package has written it"
        )
    else:
        whose = (
            f"it holds offset {first.offset} of {tp}, which epoch {first.note.epoch} of query {first.note.query} has "
            "committed. Another query uses this transactionalIdPrefix, and needs one of its own; or this is the same "
            "query with a new checkpoint, which begins anew and may repeat what was sent"
        )
    return DeliveryRefusedError(
        f"Exactly-once delivery of query {query} by the group {group_of(prefix)!r}: {whose}. Nothing was sent. If this "
        f"query is to have the prefix from now on, set resetDelivery to {reset_token(found, query)}; that holds for "
        "this one case only."
    )
