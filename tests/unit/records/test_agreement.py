"""The decoder on random records, and on batches of kafka-python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.records.batches import CODECS, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Batch, Rec, marker
from tests.unit.records.decoding import request, run
from tests.unit.records.kafka_python import DefaultRecordBatchBuilder

from pyspark_kafka_direct.records import COLUMNS, AbortedTransaction

PRODUCERS = (-1, 1, 2)

some_bytes = st.none() | st.binary(max_size=40) | st.sampled_from([b"x" * 70, b"y" * 9000])
headers = st.lists(st.tuples(st.binary(max_size=6), st.none() | st.binary(max_size=6)), max_size=3).map(tuple)
times = st.integers(-300, 300) | st.integers(-(1 << 62), 1 << 62) | st.sampled_from([-(1 << 63), (1 << 63) - 1])


@st.composite
def batch_streams(draw: st.DrawFn) -> tuple[bytes, int, list[int]]:
    """Consecutive batches with gaps, as bytes, and the first and each batch's next offset."""
    start = offset = draw(st.integers(0, 1 << 40))
    out = b""
    borders = [start]
    for _ in range(draw(st.integers(1, 5))):
        offset += draw(st.integers(0, 3))
        producer = draw(st.sampled_from(PRODUCERS))
        if draw(st.integers(0, 4)) == 0:
            batch = marker(offset, max(producer, 0), commit=draw(st.booleans()))
            last = 0
        else:
            gaps = draw(st.lists(st.integers(0, 2), max_size=8))
            deltas = [index + sum(gaps[: index + 1]) for index in range(len(gaps))]
            last = (deltas[-1] if deltas else 0) + draw(st.integers(0, 3))
            records = tuple(
                Rec(draw(some_bytes), draw(some_bytes), draw(times), draw(headers), delta) for delta in deltas
            )
            attributes = draw(st.sampled_from([0, 0, LOG_APPEND_TIME, 0x40])) | (TRANSACTIONAL if producer > 0 else 0)
            batch = Batch(
                records,
                offset,
                draw(st.sampled_from(sorted(CODECS))),
                base_timestamp=draw(st.sampled_from([0, 1_700_000_000_000, -5])),
                leader_epoch=draw(st.integers(-1, 2)),
                producer_id=producer,
                attributes=attributes,
                last_offset_delta=last,
            )
        out += batch.encode()
        offset += last + 1
        borders.append(offset)
    return out, start, borders


@examples(50)
@given(st.data(), batch_streams())
def test_the_decoders_agree(data: Any, stream: tuple[bytes, int, list[int]]) -> None:
    records, start, borders = stream
    from_offset = data.draw(st.integers(max(start - 2, 0), borders[-1]))
    wanted = request(
        from_offset,
        data.draw(st.integers(from_offset, borders[-1] + 3)),
        data.draw(st.permutations(COLUMNS).flatmap(lambda names: st.integers(0, 9).map(lambda count: names[:count]))),
        max_rows=data.draw(st.sampled_from([1, 3, 65536])),
        max_bytes=data.draw(st.sampled_from([1, 50, 4 << 20])),
    )
    aborted = data.draw(
        st.lists(
            st.builds(AbortedTransaction, st.sampled_from(PRODUCERS[1:]), st.integers(start, borders[-1])), max_size=3
        )
    )
    length = data.draw(st.none() | st.integers(0, len(records)))
    outcome = run(records[:length], wanted, aborted)
    if outcome.error is None and "offset" in wanted["columns"]:
        offsets = outcome.column("offset")
        assert offsets == sorted(set(offsets))
        assert all(wanted["from_offset"] <= offset < wanted["until_offset"] for offset in offsets)


@examples(20)
@given(batch_streams(), st.integers(0, 1 << 30))
def test_parts_of_a_range_equal_the_range(stream: tuple[bytes, int, list[int]], seed: int) -> None:
    """A range read in two parts has the same records as the range read at once."""
    records, start, borders = stream
    until = borders[-1]
    middle = start + seed % (until - start + 1)
    names = [name for name in COLUMNS if name != "timestamp"]
    all_rows = run(records, request(start, until, names)).rows()
    parts = [run(records, request(*part, names)).rows() for part in ((start, middle), (middle, until))]
    assert parts[0] + parts[1] == all_rows


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_kafka_python(codec: str) -> None:
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], True, 77, 1, 0, 1 << 20)
    sent = [(b"k%d" % n if n % 3 else None, b"v" * n, [("h", b"x")] if n % 4 == 0 else []) for n in range(500)]
    for index, (key, value, extra) in enumerate(sent):
        builder.append(index, 1_700_000_000_000 + index * 7, key, value, extra)
    outcome = run(bytes(builder.build()), request(0, 500))
    assert outcome.done
    assert outcome.column("key") == [key for key, _, _ in sent]
    assert outcome.column("value") == [value for _, value, _ in sent]
    assert outcome.column("headers") == [[{"key": "h", "value": b"x"}] if extra else None for _, _, extra in sent]
    assert [time.timestamp() for time in outcome.column("timestamp")] == [
        pytest.approx(1_700_000_000 + index * 0.007) for index in range(500)
    ]


def test_control_batches_of_kafka_python_are_skipped() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, True, 77, 1, 0, 1 << 20)
    builder.append(0, 1, b"\0\0\0\0", b"\0\0\0\0\0\0", [])
    data = bytearray(builder.build())
    data[22] |= CONTROL
    outcome = run(bytes(data), request(0, 1, check_crcs=False))
    assert (outcome.batches, outcome.counts.control, outcome.done) == ((), 1, True)
