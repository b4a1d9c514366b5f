"""Where a direct stream begins to read a partition: a given offset, a committed one, or ``auto.offset.reset``.

A committed offset may be out of the log: retention has overtaken it, or the topic was created anew. Then the contract
of Java's consumer holds: ``auto.offset.reset`` decides, and ``none`` refuses. Spark's own stream checks neither, and
its first batch fails on such an offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from pyspark_kafka_direct.errors import OffsetPlanError
from pyspark_kafka_direct.planning.hints import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.offsets import TopicPartition

Reset: TypeAlias = Literal["earliest", "latest", "none"]


@dataclass(frozen=True, slots=True)
class LogSpan:
    """The log of a partition as its leader has it.

    Attributes:
        start: Log start offset.
        readable_end: Where reading ends today: the last stable offset under ``read_committed``, else the same as
            ``end``.
        end: High watermark. An offset between the two is in the log, though its record cannot be read yet.
    """

    start: int
    readable_end: int
    end: int

    def holds(self, offset: int) -> bool:
        """Tell whether reading can begin at an offset; at the end, the next record is waited for."""
        return self.start <= offset <= self.end

    def __str__(self) -> str:
        return f"{self.start} to {self.end}"


@dataclass(frozen=True, slots=True)
class Starts:
    """Where a stream begins to read.

    Attributes:
        offsets: The first offset to read of each partition.
        warnings: What the user is to be told.
    """

    offsets: dict[TopicPartition, int]
    warnings: tuple[str, ...] = ()


def decide_starts(
    wanted: Mapping[TopicPartition, int | None],
    committed: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogSpan],
    *,
    reset: Reset,
    group: str | None,
) -> Starts:
    """Decide where a new stream begins.

    Args:
        wanted: The partitions, with the offset that was given; ``None`` where none was.
        committed: What the group has committed.
        logs: The logs of all of them.
        reset: ``auto.offset.reset``.
        group: The group's name, for messages; ``None``: there is none.

    Raises:
        OffsetPlanError: A given offset is not in the log; or there is no offset that is, and ``reset`` is ``none``.
    """
    offsets: dict[TopicPartition, int] = {}
    warnings: list[str] = []
    for tp, given in sorted(wanted.items()):
        log, offset = logs[tp], committed.get(tp)
        if given is not None:
            _check_given(tp, given, log)
            offsets[tp] = given
        elif offset is not None and log.holds(offset):
            offsets[tp] = offset
        elif reset != "none":
            offsets[tp] = log.start if reset == "earliest" else log.readable_end
            if offset is not None:
                rule = f"auto.offset.reset={reset}"
                warnings.append(f"{_out_of_log(tp, offset, log, group)}; it begins at {offsets[tp]} ({rule})")
        elif offset is not None:
            _refuse_committed(tp, offset, log, group)
    missing = sorted(tp for tp in wanted if tp not in offsets)
    if missing:
        where = "there is no group.id" if group is None else f"the group {group!r} has committed no offset"
        raise OffsetPlanError(
            f"no offset to start at for {listed(missing)}: none is given, {where}, and auto.offset.reset is none; "
            "give offsets to the consumer strategy, commit some, or set auto.offset.reset to earliest or latest",
            topic=missing[0].topic,
            partition=missing[0].partition,
        )
    return Starts(offsets, tuple(warnings))


def decide_starts_of_new(
    committed: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LogSpan], *, reset: Reset, group: str | None
) -> Starts:
    """Decide where partitions begin that have appeared under a stream: at committed offsets, else at the log start.

    ``auto.offset.reset=latest`` is left out on purpose: with it Spark's stream skips what was written between the
    creation of a partition and its discovery, and that was written after the stream began. For the same reason a
    committed offset that is out of the log means the log start.

    Raises:
        OffsetPlanError: A committed offset is out of the log, and ``reset`` is ``none``.
    """
    offsets: dict[TopicPartition, int] = {}
    warnings: list[str] = []
    for tp, log in sorted(logs.items()):
        offset = committed.get(tp)
        if offset is not None and not log.holds(offset):
            if reset == "none":
                _refuse_committed(tp, offset, log, group)
            rule = "as a partition that has appeared under the stream"
            warnings.append(f"{_out_of_log(tp, offset, log, group)}; it begins at {log.start}, {rule}")
            offset = None
        offsets[tp] = log.start if offset is None else offset
    return Starts(offsets, tuple(warnings))


def _check_given(tp: TopicPartition, offset: int, log: LogSpan) -> None:
    if not log.holds(offset):
        _refuse(
            tp,
            offset,
            f"the offset {offset} to start at is not in the log, which holds {log}; give one from there, or none to "
            "start where auto.offset.reset says",
        )


def _refuse_committed(tp: TopicPartition, offset: int, log: LogSpan, group: str | None) -> NoReturn:
    _refuse(
        tp,
        offset,
        f"{_out_of_log(tp, offset, log, group)}, and auto.offset.reset is none; commit an offset that is in the log, "
        "give one to the consumer strategy, or set auto.offset.reset to earliest or latest",
    )


def _refuse(tp: TopicPartition, offset: int, reason: str) -> NoReturn:
    raise OffsetPlanError(reason, topic=tp.topic, partition=tp.partition, offset=offset)


def _out_of_log(tp: TopicPartition, offset: int, log: LogSpan, group: str | None) -> str:
    why = (
        "retention has removed the records from there on"
        if offset < log.start
        else "the topic was created anew, or its log was cut"
    )
    where = f"is not in the log, which holds {log}"
    return f"the offset {offset} that the group {group!r} has committed for {tp} {where} ({why})"
