"""What the tests of records/ share: running a decoder to its end, and comparing the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_kafka_direct.errors import RecordError
from pyspark_kafka_direct.records import COLUMNS, IMPLEMENTATION, AbortedTransaction, DecodeCounts
from pyspark_kafka_direct.records._protocol import DecodeRequest
from pyspark_kafka_direct.records._python import PythonDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from pyspark_kafka_direct.records import RecordDecoder

FAR = 1 << 40

CREATORS: dict[str, Callable[[DecodeRequest], RecordDecoder]] = {"python": PythonDecoder}
if IMPLEMENTATION == "native":
    from pyspark_kafka_direct.records._native_decoder import NativeDecoder

    CREATORS["native"] = NativeDecoder

both = pytest.mark.parametrize("implementation", sorted(CREATORS))
"""Runs a test with each decoder that is there (without a Rust toolchain, only the Python one is)."""


@dataclass(frozen=True)
class Outcome:
    """All that can be seen of a decoder: its batches, its error, its counts, where it stands."""

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
    def verdict(self) -> tuple[Any, ...]:
        """What two decoders have to agree on. A message may differ where a codec library words it."""
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
) -> DecodeRequest:
    return DecodeRequest(
        "flights", 7, from_offset, until_offset, tuple(columns), check_crcs, max_rows, max_bytes, max_batch_bytes
    )


def run(
    implementation: str,
    feeds: Iterable[bytes] | bytes,
    wanted: DecodeRequest | None = None,
    aborted: Sequence[AbortedTransaction] = (),
) -> Outcome:
    """Feeds a decoder and reads it to its end, or to its first error."""
    wanted = wanted or request()
    decoder = CREATORS[implementation](wanted)
    batches = []
    error = None
    for records in [feeds] if isinstance(feeds, bytes) else feeds:
        try:
            decoder.feed(records, aborted)
            while (batch := decoder.read()) is not None:
                batch.validate(full=True)
                assert 1 <= batch.num_rows <= wanted.max_rows
                batches.append(batch)
        except RecordError as failure:
            error = failure
            break
    return Outcome(tuple(batches), error, decoder.counts, decoder.next_offset, decoder.done)


def agreed(
    feeds: Iterable[bytes] | bytes,
    wanted: DecodeRequest | None = None,
    aborted: Sequence[AbortedTransaction] = (),
) -> Outcome:
    """Runs each decoder there is, checks that they agree, and returns what they say."""
    outcomes = outcomes_of(feeds, wanted, aborted)
    first, *others = outcomes.values()
    for other in others:
        assert other.verdict == first.verdict, outcomes
    return first


def outcomes_of(
    feeds: Iterable[bytes] | bytes,
    wanted: DecodeRequest | None = None,
    aborted: Sequence[AbortedTransaction] = (),
) -> dict[str, Outcome]:
    """Runs each decoder there is."""
    feeds = [feeds] if isinstance(feeds, bytes) else list(feeds)
    return {name: run(name, feeds, wanted, aborted) for name in CREATORS}


def disagreement(outcomes: dict[str, Outcome]) -> str | None:
    """How the decoders disagree about damaged bytes: ``None`` (they do not), ``"codec"`` or ``"decoder"``.

    Their codecs are different libraries, and each has damaged streams that it puts up with and the other does not (the
    C implementation of LZ4 takes a match offset of 0, for one). That much is allowed where one refuses a stream.
    """
    first, *others = outcomes.values()
    if all(other.verdict == first.verdict for other in others):
        return None
    refused = any("cannot be decompressed" in str(outcome.error) for outcome in outcomes.values())
    return "codec" if refused else "decoder"
