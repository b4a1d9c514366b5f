"""Helpers for tests of decoders: running one to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_kafka_direct.errors import RecordError
from pyspark_kafka_direct.records import COLUMNS, AbortedTransaction, DecodeCounts, RecordDecoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FAR = 1 << 40


@dataclass(frozen=True)
class Outcome:
    """The observable result of a decoder."""

    batches: tuple[pa.RecordBatch, ...]
    error: RecordError | None
    counts: DecodeCounts
    next_offset: int
    done: bool

    def column(self, name: str) -> list[Any]:
        return [value for batch in self.batches for value in batch.column(name).to_pylist()]

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]

    def table(self) -> pa.Table:
        """All rows, of which Python may not have the timestamps."""
        return pa.Table.from_batches(self.batches).combine_chunks() if self.batches else None

    @property
    def facts(self) -> tuple[Any, ...]:
        """Everything but the rows."""
        return repr(self.error), self.counts, self.next_offset, self.done


def request(
    from_offset: int = 0,
    until_offset: int = FAR,
    columns: Sequence[str] = COLUMNS,
    *,
    check_crcs: bool = True,
    max_rows: int = 65536,
    max_bytes: int = 4 << 20,
    max_batch_bytes: int = 1 << 30,
    count_only: bool = False,
) -> dict[str, Any]:
    """Return the arguments of a decoder."""
    return {
        "topic": "flights",
        "partition": 7,
        "from_offset": from_offset,
        "until_offset": until_offset,
        "columns": columns,
        "check_crcs": check_crcs,
        "max_rows": max_rows,
        "max_bytes": max_bytes,
        "max_batch_bytes": max_batch_bytes,
        "count_only": count_only,
    }


def run(
    feeds: Iterable[bytes] | bytes,
    decode_request: dict[str, Any] | None = None,
    aborted: Sequence[AbortedTransaction] = (),
) -> Outcome:
    """Feeds a decoder and reads it to its end, or to its first error."""
    decode_request = decode_request or request()
    decoder = RecordDecoder(**decode_request)
    batches = []
    error = None
    for records in [feeds] if isinstance(feeds, bytes) else feeds:
        try:
            decoder.feed(records, aborted)
            while (batch := decoder.read()) is not None:
                batch.validate(full=True)
                assert 1 <= batch.num_rows <= decode_request["max_rows"]
                batches.append(batch)
        except RecordError as failure:
            error = failure
            break
    return Outcome(tuple(batches), error, decoder.counts, decoder.next_offset, decoder.done)


def run_in_steps(records: bytes, decode_request: dict[str, Any], aborted: Sequence[AbortedTransaction] = ()) -> Outcome:
    """Decodes a response at once and row by row, with the same rows and the same error; returns the outcome."""
    whole = run(records, decode_request, aborted)
    steps = run(records, {**decode_request, "max_rows": 1}, aborted)
    assert whole.table() == steps.table(), records.hex()
    assert whole.facts == steps.facts, records.hex()
    return whole
