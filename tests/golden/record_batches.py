"""Record batches of formats 0 to 2: what decoders read of damaged ones, and what encoders write."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, Any

from tests.golden.plain_values import optional_bytes, optional_text, plain, text
from tests.unit.records.batches import CODECS, Batch, Rec, crc
from tests.unit.records.encoding import HEADER, Row, arrow, decode
from tests.unit.records.mutations import ABORTED, LegacyMutator, Mutator
from tests.unit.records.test_producer_state_and_split import damage

from pyspark_kafka_direct.errors import KafkaDirectError, RecordError
from pyspark_kafka_direct.records import (
    COLUMNS,
    AbortedTransaction,
    RecordDecoder,
    RecordEncoder,
    scan_batches,
    scan_leader_epoch,
    split_batch,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    import pyarrow as pa

    from pyspark_kafka_direct.records import EncodedBatch


def damaged_batches(source: random.Random) -> Iterator[dict[str, Any]]:
    mutator = Mutator(source.getrandbits(64))
    for _ in range(2000):
        aborted = [list(each) for each in ABORTED] if source.random() < 0.3 else []
        yield {"records": text(mutator.response()), "aborted": aborted, **_range(source)}


def damaged_messages(source: random.Random) -> Iterator[dict[str, Any]]:
    """Create responses of formats 0 and 1; some are followed by format 2."""
    mutator = LegacyMutator(source.getrandbits(64))
    newer = Batch((Rec(b"newer"),) * 2, 60).encode()
    for _ in range(1500):
        records = mutator.response() + source.choice([b"", b"", newer])
        yield {"records": text(records), "aborted": [], **_range(source)}


def _range(source: random.Random) -> dict[str, Any]:
    return {
        "from_offset": source.choice([0, 0, 0, 11, 21, 22]),
        "until_offset": source.choice([22, 25, 41, 1 << 40, 1 << 40]),
        "columns": source.sample(COLUMNS, source.choice([1, 3, len(COLUMNS), len(COLUMNS)])),
        "max_rows": source.choice([1, 3, 65536]),
        "max_bytes": source.choice([1, 50, 4 << 20]),
        "max_batch_bytes": source.choice([200, 1 << 30, 1 << 30]),
        "check_crcs": source.random() < 0.9,
    }


def decoded(case: dict[str, Any]) -> Any:
    """Return the rows of each Arrow batch, the class and offset of the error, the counters, and the next offset."""
    arguments = dict(case)
    records = arguments.pop("records").encode("latin-1")
    aborted = [AbortedTransaction(*each) for each in arguments.pop("aborted")]
    decoder = RecordDecoder(topic="flights", partition=7, **arguments)
    batches, error = [], None
    try:
        decoder.feed(records, aborted)
        while (batch := decoder.read()) is not None:
            batch.validate(full=True)
            batches.append(plain(batch.to_struct_array()))
    except RecordError as failure:
        error = [type(failure).__name__, failure.offset]
    counts = decoder.counts
    counters = [counts.records, counts.bytes, counts.control, counts.aborted, counts.gaps]
    return [batches, error, counters, decoder.next_offset, decoder.done]


def headers_to_scan(source: random.Random) -> Iterator[dict[str, Any]]:
    responses = [each["records"] for each in (*damaged_batches(source), *damaged_messages(source))]
    for records in source.sample(responses, 400):
        yield {"records": records, "position": source.randrange(50), "until": source.choice([20, 40, 1 << 40])}


def scanned(case: dict[str, Any]) -> Any:
    """Return the headers of the complete batches, the next offset, the error, and the leader epoch."""
    records = case["records"].encode("latin-1")
    batches, next_offset, error = scan_batches(records, case["position"], case["until"])
    return [batches, next_offset, error and [error.kind, str(error), error.offset], scan_leader_epoch(records)]


def rows_to_encode(source: random.Random) -> Iterator[dict[str, Any]]:
    for _ in range(180):
        partitions = source.randint(1, 5)
        options = {
            "partitions": partitions,
            "codec": source.choice(sorted(CODECS)),
            "batch_bytes": source.randint(1, 600),
            "ignore_keys": source.random() < 0.5,
            "first_sticky_partition": source.randrange(10),
            "max_record_bytes": source.choice([100, 1 << 20, 1 << 20]),
        }
        rows = [[_row(source, partitions) for _ in range(source.randrange(12))] for _ in range(source.randrange(4))]
        yield {"options": options, "rows": rows}


def _row(source: random.Random, partitions: int) -> list[Any]:
    def data(most: int) -> str | None:
        return None if source.random() < 0.3 else text(source.randbytes(source.randrange(most)))

    headers = None
    if source.random() < 0.4:
        headers = [[source.choice(["", "h", "größe"]), data(6)] for _ in range(source.randrange(4))]
    partition = source.choice([None, None, source.randrange(partitions), source.randrange(partitions + 1)])
    timestamp = source.choice([1_700_000_000_000 + source.randrange(100_000), source.randint(-(1 << 50), 1 << 50)])
    return [data(80), data(9), headers, partition, timestamp]


def encoded(case: dict[str, Any]) -> Any:
    """Return the batches after each call, without their CRCs and what depends on a codec's library, or the error."""
    encoder = RecordEncoder(topic="flights", **case["options"])
    answers: list[Any] = []
    for rows in case["rows"]:
        try:
            answers.append([_batch(each) for each in encoder.add(_rows(rows))])
        except KafkaDirectError as error:
            return [*answers, [type(error).__name__, str(error)]]
        answers.append(encoder.open_bytes)
    return [*answers, [_batch(each) for each in encoder.flush()]]


def _rows(rows: list[list[Any]]) -> pa.RecordBatch:
    return arrow(
        [
            Row(
                optional_bytes(value),
                optional_bytes(key),
                headers and tuple((name, optional_bytes(content)) for name, content in headers),
                partition,
                timestamp,
            )
            for value, key, headers, partition, timestamp in rows
        ]
    )


def _batch(batch: EncodedBatch) -> list[Any]:
    *numbers, data = batch
    if not data[22] & 7:
        return [*numbers, text(data)]
    rows = [
        [optional_text(row.value), optional_text(row.key), _headers(row), row.timestamp] for row in decode(bytes(data))
    ]
    return [*numbers, text(data[:8]), text(data[12:17]), text(data[21:HEADER]), rows]


def _headers(row: Row) -> list[Any] | None:
    return None if row.headers is None else [[name, optional_text(content)] for name, content in row.headers]


def batches_to_split(source: random.Random) -> Iterator[str]:
    """Create batches, of which most are damaged, with the right length and CRC."""
    for _ in range(350):
        encoder = RecordEncoder(topic="flights", partitions=1)
        rows = [Row(source.randbytes(source.randrange(30)), timestamp=source.randrange(99)) for _ in range(5)]
        encoder.add(arrow(rows[: source.choice([1, 2, 5, 5])]))
        data = bytearray(encoder.flush()[0].data)
        damage(source, data, source.choice([21, HEADER]))
        if len(data) >= HEADER:
            struct.pack_into(">i", data, 8, len(data) - 12)
            struct.pack_into(">I", data, 17, crc(bytes(data[21:])))
            if data[22] & 7:  # codec libraries may differ on such bytes
                continue
        yield text(data)


def split(case: str) -> list[str] | None:
    """Return the two batches, or None for a ValueError."""
    with contextlib.suppress(ValueError):
        return [text(half) for half in split_batch(case.encode("latin-1"))]
    return None
