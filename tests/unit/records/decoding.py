"""Helpers for tests of decoders: running one to its end, and comparing both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import RecordError
from pyspark_kafka_direct.records import COLUMNS, IMPLEMENTATION, AbortedTransaction, DecodeCounts
from pyspark_kafka_direct.records.interfaces import DecodeRequest
from pyspark_kafka_direct.records.python.decoder import PythonDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.records import RecordDecoder

FAR = 1 << 40

CREATORS: dict[str, Callable[[DecodeRequest], RecordDecoder]] = {"python": PythonDecoder}
if IMPLEMENTATION == "native":
    from pyspark_kafka_direct.records.native_kernel import NativeDecoder

    CREATORS["native"] = NativeDecoder

both = pytest.mark.parametrize("implementation", sorted(CREATORS))
"""Runs a test with each available decoder (without a Rust toolchain, only the Python one)."""


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

    @property
    def comparable(self) -> tuple[Any, ...]:
        """What both decoders must agree on; messages of codec libraries may differ."""
        error = None if self.error is None else (type(self.error), self.error.offset)
        return self.batches, error, self.counts, self.next_offset, self.done


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
) -> DecodeRequest:
    return DecodeRequest(
        "flights",
        7,
        from_offset,
        until_offset,
        tuple(columns),
        check_crcs,
        max_rows,
        max_bytes,
        max_batch_bytes,
        count_only,
    )


def run(
    implementation: str,
    feeds: Iterable[bytes] | bytes,
    decode_request: DecodeRequest | None = None,
    aborted: Sequence[AbortedTransaction] = (),
) -> Outcome:
    """Feeds a decoder and reads it to its end, or to its first error."""
    decode_request = decode_request or request()
    decoder = CREATORS[implementation](decode_request)
    batches = []
    error = None
    for records in [feeds] if isinstance(feeds, bytes) else feeds:
        try:
            decoder.feed(records, aborted)
            while (batch := decoder.read()) is not None:
                batch.validate(full=True)
                assert 1 <= batch.num_rows <= decode_request.max_rows
                batches.append(batch)
        except RecordError as failure:
            error = failure
            break
    return Outcome(tuple(batches), error, decoder.counts, decoder.next_offset, decoder.done)


def agreed(
    feeds: Iterable[bytes] | bytes,
    decode_request: DecodeRequest | None = None,
    aborted: Sequence[AbortedTransaction] = (),
) -> Outcome:
    """Runs each available decoder, checks that they agree, and returns the outcome."""
    outcomes = outcomes_of(feeds, decode_request, aborted)
    first, *others = outcomes.values()
    for other in others:
        assert other.comparable == first.comparable, outcomes
    return first


def outcomes_of(
    feeds: Iterable[bytes] | bytes,
    decode_request: DecodeRequest | None = None,
    aborted: Sequence[AbortedTransaction] = (),
) -> dict[str, Outcome]:
    """Runs each available decoder."""
    feeds = [feeds] if isinstance(feeds, bytes) else list(feeds)
    return {name: run(name, feeds, decode_request, aborted) for name in CREATORS}


def disagreement(outcomes: dict[str, Outcome]) -> str | None:
    """How the decoders disagree on damaged bytes: ``None`` (they agree), ``"codec"`` or ``"decoder"``.

    Their codecs are different libraries, and each accepts some damaged streams that the other rejects (the C
    implementation of LZ4 accepts a match offset of 0, for example). Only such differences are allowed.
    """
    first, *others = outcomes.values()
    if all(other.comparable == first.comparable for other in others):
        return None
    rejected = any("cannot be decompressed" in str(outcome.error) for outcome in outcomes.values())
    return "codec" if rejected else "decoder"
