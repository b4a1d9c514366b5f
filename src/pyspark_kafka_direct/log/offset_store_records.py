"""The records of an offset store.

    key                     value
    ["query"]               {"run":"6e2f...","host":"worker-3","process":4711,"began":1795346400000}
    ["query","topic",0]     {"offset":123,"topicId":"0f8c...","run":"6e2f..."}

Both are JSON without blanks, in UTF-8. The first kind of record names the run that opened the store last. The
second has the next offset to read; ``topicId`` is missing if it is unknown. A record without a value deletes its key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pyspark_kafka_direct.errors import RecordError
from pyspark_kafka_direct.offsets import MAX_OFFSET, MAX_PARTITION, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa


class StoreRun(NamedTuple):
    """A run that opened the store."""

    id: str  # random
    host: str
    process_id: int
    started: int  # milliseconds since 1970

    def to_json(self) -> bytes:
        return _to_json_bytes({"run": self.id, "host": self.host, "process": self.process_id, "began": self.started})


class StoredOffset(NamedTuple):
    offset: int  # the next offset to read
    topic_id: UUID | None
    run: str  # the id of the run that wrote it

    def to_json(self) -> bytes:
        topic_id = {} if self.topic_id is None else {"topicId": str(self.topic_id)}
        return _to_json_bytes({"offset": self.offset, **topic_id, "run": self.run})


class StoredState(NamedTuple):
    """The records of one query."""

    offsets: dict[TopicPartition, StoredOffset]
    runs: list[StoreRun]  # oldest first; compaction may have removed all but the newest


def run_key(query: str) -> bytes:
    return _to_json_bytes([query])


def offset_key(query: str, partition: TopicPartition) -> bytes:
    return _to_json_bytes([query, partition.topic, partition.partition])


def read_stored_state(query: str, batches: Iterable[pa.RecordBatch], topic: str) -> StoredState:
    """Read the records of a query from batches with the columns ``key``, ``value`` and ``offset``."""
    state = StoredState({}, [])
    for key, value, offset in _records_of_query(query, batches):
        try:
            _apply_record(state, json.loads(key), None if value is None else json.loads(value))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RecordError(
                f"The record with key {key!r} is not a record of an offset store ({error}): {value!r}. Another program "
                "wrote it; write a valid record, or one without a value, with the same key.",
                topic=topic,
                partition=0,
                offset=offset,
            ) from error
    return state


def _apply_record(state: StoredState, key: list[Any], value: dict[str, Any] | None) -> None:
    if len(key) == 1:  # the key of a run
        if value is not None:
            state.runs.append(StoreRun(value["run"], value["host"], value["process"], value["began"]))
        return
    _, topic, partition_number = key
    if not isinstance(topic, str) or not _is_int_in_range(partition_number, MAX_PARTITION):
        raise ValueError("not a topic and a partition")
    partition = TopicPartition(topic, partition_number)
    if value is None:
        state.offsets.pop(partition, None)
        return
    if not _is_int_in_range(value["offset"], MAX_OFFSET):
        raise ValueError("not an offset")
    topic_id = value.get("topicId")
    state.offsets[partition] = StoredOffset(
        value["offset"], None if topic_id is None else UUID(topic_id), value.get("run", "")
    )


def _records_of_query(query: str, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, bytes | None, int]]:
    import pyarrow.compute as pc

    start = run_key(query)[:-1]  # without the bracket at its end
    for batch in batches:
        key = batch.column("key")
        is_of_query = pc.or_(pc.starts_with(key, start + b","), pc.equal(key, run_key(query)))
        rows = batch.filter(pc.fill_null(is_of_query, False))
        yield from zip(*(rows.column(name).to_pylist() for name in ("key", "value", "offset")), strict=True)


def _is_int_in_range(value: object, maximum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= maximum


def _to_json_bytes(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
