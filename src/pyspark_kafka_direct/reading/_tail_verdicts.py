"""What the log of a partition's leader means for a tail whose offset was refused: pure decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.errors import DataLossError, TopicNotFoundError, TopicRecreatedError, TruncatedError

if TYPE_CHECKING:
    from uuid import UUID

    from pyspark_kafka_direct.errors import KafkaDirectError
    from pyspark_kafka_direct.offsets import TopicPartition
    from pyspark_kafka_direct.planning.loss import LogState
    from pyspark_kafka_direct.wire.metadata import TopicMetadata


def judge_refusal(name: TopicPartition, position: int, log: LogState, *, confirmed: bool) -> DataLossError | None:
    """Decide what it means that the leader refused an offset.

    Args:
        name: The partition.
        position: The offset.
        log: The leader's log now.
        confirmed: Whether a leader has served an offset of this read before.

    Returns:
        What to tell; ``None`` if the offset is there.
    """
    now = f"the log now holds [{log.start}, {log.end})"
    if position < log.start:
        return DataLossError(
            f"offsets [{position}, {log.start}) are gone: retention, or DeleteRecords, removed them before "
            f"they were read; {now}. Go on at its start.",
            **_place(name, position),
        )
    if position <= log.end:
        return None
    if confirmed:
        return cut(name, position, log.end)
    return DataLossError(
        f"the offset lies beyond the end of the log: {now}. The number is wrong, or the log was cut back, or the topic "
        "created again.",
        **_place(name, position),
    )


def cut(name: TopicPartition, position: int, cut_at: int) -> TruncatedError:
    """Return the error for a log that was cut back.

    Args:
        name: The partition.
        position: The next offset that was to be handed out.
        cut_at: Where what was read and what is there part.
    """
    error = TruncatedError(
        f"an unclean leader election cut the log back to offset {cut_at}: what was read from there up to offset "
        f"{position} is not in it any more. Go on at offset {min(cut_at, position)}, and undo what came after it.",
        **_place(name, position),
    )
    error.cut_at = cut_at
    return error


def judge_topic(name: TopicPartition, known_id: UUID | None, topic: TopicMetadata | None) -> TopicNotFoundError | None:
    """Decide whether a partition is there, and of the topic that was read.

    Args:
        name: The partition.
        known_id: The id that the topic has had; ``None`` if it is not known.
        topic: What a broker tells of it; ``None`` if there is no such topic.

    Returns:
        What to tell, once brokers have said so often enough; ``None`` if all is well.
    """
    if topic is None:
        return TopicNotFoundError(
            "The topic does not exist any more, or may not be seen (a missing DESCRIBE permission looks the same).",
            topic=name.topic,
            partition=name.partition,
        )
    if known_id is not None and topic.topic_id is not None and topic.topic_id != known_id:
        error = TopicRecreatedError(
            f"The topic was deleted and created again: its id is {topic.topic_id}, not {known_id}. What was read is of "
            "the old one. Go on at the start of the new one, with nothing of what was read.",
            topic=name.topic,
            partition=name.partition,
        )
        error.topic_id = topic.topic_id
        return error
    if name.partition not in topic.partitions:
        return TopicNotFoundError(
            f"The topic has no such partition; it has {len(topic.partitions)}.",
            topic=name.topic,
            partition=name.partition,
        )
    return None


def _place(name: TopicPartition, position: int) -> dict[str, Any]:
    return {"topic": name.topic, "partition": name.partition, "offset": position}


def is_about(error: KafkaDirectError, name: TopicPartition) -> bool:
    """Tell whether an error concerns a partition: one that names no topic concerns all."""
    return error.topic in (None, name.topic) and error.partition in (None, name.partition)
