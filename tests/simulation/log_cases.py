"""Steps about topics and logs, as data, whose results must be equal on a simulated and on a real broker.

A step is the name of a method of ``LogCaller`` (or of ``Caller``) and its arguments. ``producer`` is an index into the
producer ids and epochs that earlier steps returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_TIME = 1_700_000_000_000


class Step(NamedTuple):
    method: str
    arguments: Mapping[str, Any]


def step(method: str, **arguments: Any) -> Step:
    return Step(method, arguments)


def _topics() -> list[Step]:
    return [
        step("send_create_topics", topic="{topic}"),
        step("send_create_topics", topic="{topic}-none", partitions=0),
        step("send_create_topics", topic="{topic}-wide", replication=7),
        step("send_create_topics", topic="{topic}-zero", replication=0),
        step("send_create_topics", topic="not/valid"),
        step("send_create_topics", topic=".."),
        step("send_create_topics", topic="{topic}-validated", validate_only=True),
        step("send_create_topics", topic="{topic}-validated", version=5),
        step("send_create_topics", topic="{topic}-default", partitions=-1, replication=-1, version=4),
        *(step("metadata", topic=topic) for topic in ("{topic}", "{topic}-none", "not/valid", "..")),
        *(step("metadata", topic="{topic}", version=version) for version in (4, 7, 9, 10, 12, 13)),
    ]


def _plain_writes() -> list[Step]:
    """Offsets, timestamps, sizes and leader epochs of records without a producer id."""
    return [
        step("write", values=[b"a", b"b"], timestamp=_TIME + 50),
        step("write", values=[b"c"], timestamp=_TIME + 10),
        step("write", values=[b"d" * 500], timestamp=_TIME + 90),
        step("write", values=[b"e"], timestamp=_TIME + 90, partition=1),
        step("write", values=[b"f"], acks=1),
        step("write", values=[b"g"], acks=2),
        step("write", values=[b"h"], partition=2),
        step("write", values=[b"h"], topic="{topic}-missing"),
        *(step("fetch", offset=offset) for offset in (0, 1, 2, 3, 4, 5, 6, -1)),
        *(step("fetch", offset=0, version=version) for version in (4, 7, 9, 11, 13, 16, 17)),
        step("fetch", offset=0, partition=1),
        step("fetch", offset=0, partition=2),
        step("fetch", offset=0, topic="{topic}-missing"),
        step("fetch", offset=0, version=13, unknown_id=True),
        # The first batch is complete, later ones may be truncated.
        *(step("fetch", offset=0, partition_max_bytes=size) for size in (0, 1, 70, 100, 200, 10_000)),
        *(step("fetch", offset=0, max_bytes=size) for size in (0, 1, 150)),
        *(step("fetch", offset=0, leader_epoch=epoch) for epoch in (0, 1)),
        *(step("fetch", offset=2, last_epoch=epoch) for epoch in (0, 3)),
        step("fetch", offset=5, last_epoch=0),
        step("fetch", offset=6, last_epoch=0),
        *_all_offsets(),
        *(step("list_offsets", timestamp=_TIME + each) for each in (0, 10, 11, 50, 51, 89, 90, 91)),
        *(step("list_offsets", timestamp=-1, leader_epoch=epoch) for epoch in (0, 1)),
        step("list_offsets", timestamp=-1, partition=2),
        step("list_offsets", timestamp=-1, topic="{topic}-missing"),
    ]


def _all_offsets(partition: int = 0) -> list[Step]:
    """All special timestamps, in both isolation levels."""
    return [
        step("list_offsets", timestamp=timestamp, isolation=isolation, partition=partition)
        for timestamp in (-1, -2, -3, -4, -5)
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED)
    ]


def _special_timestamps_in_old_versions() -> list[Step]:
    return [
        step("write", values=[b"a", b"b"]),
        *(
            step("list_offsets", timestamp=timestamp, version=version)
            for timestamp in (-1, -2, -3, -4, -5, -6, -7)
            for version in (2, 4, 6, 7, 8, 9, 11)
        ),
    ]


def _empty_partition() -> list[Step]:
    return [*_all_offsets(), step("list_offsets", timestamp=_TIME), *(step("fetch", offset=each) for each in (0, 1))]


def _deleted_records() -> list[Step]:
    return [
        *(step("write", values=[b"a%d" % each, b"b"], timestamp=_TIME + each) for each in range(4)),
        step("delete_records", offset=3),
        *_all_offsets(),
        *(step("list_offsets", timestamp=_TIME + each) for each in (0, 1, 2)),
        *(step("fetch", offset=offset) for offset in (0, 2, 3, 4, 8, 9)),
        step("delete_records", offset=2),
        step("fetch", offset=3, last_epoch=0),
        step("delete_records", offset=8),
        *_offsets_without_max_timestamp(),
        *(step("fetch", offset=offset) for offset in (7, 8)),
        step("write", values=[b"z"]),
        step("fetch", offset=8),
        *_offsets_without_max_timestamp(),
    ]


def _offsets_without_max_timestamp() -> list[Step]:
    """Without -3: Kafka returns a deleted record while its segment exists, which the simulation does not have."""
    return [each for each in _all_offsets() if each.arguments["timestamp"] != -3]


def _idempotent_writes() -> list[Step]:
    """Duplicates, gaps and old epochs."""
    return [
        step("init", transactional_id=None),
        *(step("idempotent", producer=0, sequence=each * 2, values=[b"a%d" % each, b"b"]) for each in range(7)),
        step("idempotent", producer=0, sequence=12, values=[b"changed", b"b"]),
        step("idempotent", producer=0, sequence=4, values=[b"a2", b"b"]),
        step("idempotent", producer=0, sequence=0, values=[b"a0", b"b"]),
        step("idempotent", producer=0, sequence=12, values=[b"one"]),
        step("idempotent", producer=0, sequence=16, values=[b"gap"]),
        step("idempotent", producer=0, sequence=0, values=[b"x"], partition=1),
        step("idempotent", producer=0, sequence=2, values=[b"x"], partition=1),
        step("idempotent", producer=0, epoch=1, sequence=3, values=[b"new epoch, not from 0"]),
        step("idempotent", producer=0, epoch=1, sequence=0, values=[b"new epoch"]),
        step("idempotent", producer=0, sequence=14, values=[b"old epoch"]),
        step("idempotent", producer=0, epoch=1, sequence=0, values=[b"new epoch"]),
        step("idempotent", producer=0, epoch=1, sequence=1, values=[b"p", b"q"], batches=2),
        step("fetch", offset=0),
        step("fetch", offset=0, partition=1),
        *_all_offsets(),
    ]


def _transactional_writes() -> list[Step]:
    """Committed, aborted and open transactions in both isolation levels."""
    return [
        step("write", values=[b"plain"]),
        step("init"),
        step("transactional", producer=0, values=[b"committed-1", b"committed-2"]),
        step("transactional", producer=0, values=[b"committed-3"], partition=1),
        step("end", producer=0, commit=True),
        step("stabilize"),
        step("stabilize", partition=1),
        *_both_levels(0, 1, 3, 4),
        step("transactional", producer=1, values=[b"aborted-1"]),
        step("transactional", producer=1, values=[b"aborted-2", b"aborted-3"]),
        step("write", values=[b"after open"]),
        *_both_levels(0, 4, 5, 8),
        *_all_offsets(),
        step("end", producer=1, commit=False),
        step("stabilize"),
        *_both_levels(0, 4, 6, 7, 8, 9),
        *_all_offsets(),
        *_all_offsets(partition=1),
        step("list_offsets", timestamp=_TIME, isolation=READ_COMMITTED),
        step("transactional", producer=2, values=[b"open"]),
        *_both_levels(8, 9, 10),
        step("list_offsets", timestamp=-1, isolation=READ_COMMITTED),
        step("delete_records", offset=7),
        *_both_levels(7, 8),
        step("init"),  # fences the producer, and aborts its transaction
        step("stabilize"),
        *_both_levels(7, 9),
        step("transactional", producer=2, values=[b"fenced"], sequence=1),
        step("end", producer=2, commit=True),
        step("fetch", offset=0, partition=1, isolation=READ_COMMITTED),
    ]


def _both_levels(*offsets: int) -> list[Step]:
    return [
        step("fetch", offset=offset, isolation=isolation)
        for offset in offsets
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED)
    ]


def _interleaved_transactions() -> list[Step]:
    """The last stable offset follows the oldest open transaction."""
    return [
        step("init"),
        step("init", transactional_id="{transactional_id}-second"),
        step("transactional", producer=0, values=[b"first-1"]),
        step("transactional", producer=1, values=[b"second-1"], transactional_id="{transactional_id}-second"),
        step("transactional", producer=0, values=[b"first-2"]),
        step("end", producer=1, commit=False, transactional_id="{transactional_id}-second"),
        step("await_end", offset=4),
        *_both_levels(0, 1),
        *_all_offsets(),
        step("end", producer=0, commit=True),
        step("stabilize"),
        *_both_levels(0, 1, 2, 4),
        *(step("fetch", offset=0, isolation=READ_COMMITTED, partition_max_bytes=size) for size in (80, 160, 250)),
        *_all_offsets(),
    ]


LOG_CASES: Final[Mapping[str, Sequence[Step]]] = {
    "topics": _topics(),
    "plain-writes": _plain_writes(),
    "special-timestamps-in-old-versions": _special_timestamps_in_old_versions(),
    "empty-partition": _empty_partition(),
    "deleted-records": _deleted_records(),
    "idempotent-writes": _idempotent_writes(),
    "transactional-writes": _transactional_writes(),
    "interleaved-transactions": _interleaved_transactions(),
}
