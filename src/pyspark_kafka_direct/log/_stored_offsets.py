"""What the offset store keeps in its topic, as keys and values of records.

    key                     value
    ["query"]               {"run":"6e2f...","host":"worker-3","process":4711,"began":1795346400000}
    ["query","topic",0]     {"offset":123,"topicId":"0f8c...","run":"6e2f..."}

Both are JSON without blanks, in UTF-8. The first says who has opened the store last, the second is the next offset to
read; it has no ``topicId`` where that is not known. A record without a value takes away what was there.
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


class Run(NamedTuple):
    """Who has opened the store.

    Attributes:
        id: Its id, made up anew each time.
        host: Where it runs.
        process: Its process id there.
        began: When, in milliseconds since 1970.
    """

    id: str
    host: str
    process: int
    began: int

    def to_json(self) -> bytes:
        """Return the value of its record."""
        return _text({"run": self.id, "host": self.host, "process": self.process, "began": self.began})


class StoredOffset(NamedTuple):
    """Where a query is in a partition.

    Attributes:
        offset: The next offset to read.
        topic_id: The id of the topic that the offset is of; ``None`` if it was not known.
        run: The run that has written it.
    """

    offset: int
    topic_id: UUID | None
    run: str

    def to_json(self) -> bytes:
        """Return the value of its record."""
        topic_id = {} if self.topic_id is None else {"topicId": str(self.topic_id)}
        return _text({"offset": self.offset, **topic_id, "run": self.run})


class Stored(NamedTuple):
    """What the store has of a query.

    Attributes:
        offsets: The offsets, by partition.
        runs: The records of runs, oldest first; only the newest one is sure to be there still.
    """

    offsets: dict[TopicPartition, StoredOffset]
    runs: list[Run]


def run_key(query: str) -> bytes:
    """Return the key of the record that says who has opened the store last."""
    return _text([query])


def offset_key(query: str, partition: TopicPartition) -> bytes:
    """Return the key of the record that has an offset."""
    return _text([query, partition.topic, partition.partition])


def read_stored(query: str, batches: Iterable[pa.RecordBatch], topic: str) -> Stored:
    """Return what is stored of a query.

    Args:
        query: The query.
        batches: Records with the columns ``key``, ``value`` and ``offset``, oldest first.
        topic: The topic of the store, for errors.

    Raises:
        RecordError: A record of the query that this package has not written.
    """
    stored = Stored({}, [])
    for key, value, offset in _of_query(query, batches):
        try:
            _take(stored, json.loads(key), None if value is None else json.loads(value))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RecordError(
                f"The record with the key {key!r} is none of an offset store ({error}): {value!r}. Something else has "
                "written it; write a right one, or one without a value, under the same key.",
                topic=topic,
                partition=0,
                offset=offset,
            ) from error
    return stored


def _take(stored: Stored, key: list[Any], value: dict[str, Any] | None) -> None:
    if len(key) == 1:
        if value is not None:
            stored.runs.append(Run(value["run"], value["host"], value["process"], value["began"]))
        return
    _, topic, number = key
    if not isinstance(topic, str) or not _is_number(number, MAX_PARTITION):
        raise ValueError("not a topic and a partition")
    partition = TopicPartition(topic, number)
    if value is None:
        stored.offsets.pop(partition, None)
        return
    if not _is_number(value["offset"], MAX_OFFSET):
        raise ValueError("not an offset")
    topic_id = value.get("topicId")
    stored.offsets[partition] = StoredOffset(
        value["offset"], None if topic_id is None else UUID(topic_id), value.get("run", "")
    )


def _of_query(query: str, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, bytes | None, int]]:
    import pyarrow.compute as pc

    start = run_key(query)[:-1]
    for batch in batches:
        key = batch.column("key")
        ours = pc.or_(pc.starts_with(key, start + b","), pc.equal(key, run_key(query)))
        some = batch.filter(pc.fill_null(ours, False))
        yield from zip(*(some.column(name).to_pylist() for name in ("key", "value", "offset")), strict=True)


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
