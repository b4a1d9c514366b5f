"""KafkaRecord: fields read from Arrow, decoders, pickling."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.records.batches import LOG_APPEND_TIME, Batch, Rec
from tests.unit.records.legacy_messages import message

from pyspark_kafka_direct import OptionError, RecordError
from pyspark_kafka_direct.direct.kafka_record import RECORD_COLUMNS, check_decoders, kafka_records
from pyspark_kafka_direct.records import RecordDecoder

if TYPE_CHECKING:
    from pyspark_kafka_direct.direct import KafkaRecord

FIELDS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch")


def decode(data: bytes, **decoders: Any) -> list[KafkaRecord]:
    decoder = RecordDecoder(topic="flights", partition=7, from_offset=0, until_offset=1 << 40, columns=RECORD_COLUMNS)
    decoder.feed(data)
    records: list[KafkaRecord] = []
    while (batch := decoder.read()) is not None:
        records += kafka_records(batch, "flights", 7, **decoders)
    return records


def fields(record: KafkaRecord) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in FIELDS)


def test_all_fields() -> None:
    batch = Batch(
        (
            Rec(b"value", b"key", 5, ((b"h", b"1"), (b"h", None))),
            Rec(None, None, 6),
            Rec(b"", b"", -7),
        ),
        base_offset=40,
        base_timestamp=1000,
        leader_epoch=9,
    )
    assert [fields(record) for record in decode(batch.encode())] == [
        ("flights", 7, 40, 1005, "CreateTime", b"key", b"value", (("h", b"1"), ("h", None)), 9),
        ("flights", 7, 41, 1006, "CreateTime", None, None, (), 9),
        ("flights", 7, 42, 993, "CreateTime", b"", b"", (), 9),
    ]


def test_log_append_time() -> None:
    (record,) = decode(Batch((Rec(),), attributes=LOG_APPEND_TIME, max_timestamp=77).encode())
    assert (record.timestamp, record.timestampType) == (77, "LogAppendTime")


def test_old_message_formats() -> None:
    (record,) = decode(message(3, b"v", b"k", magic=0))
    assert fields(record) == ("flights", 7, 3, -1, "NoTimestampType", b"k", b"v", (), None)


@pytest.mark.parametrize("keys", [[None, None], [b"a", b"b"], [b"", None], [b"", b""]])
def test_null_is_not_empty(keys: list[bytes | None]) -> None:
    assert [record.key for record in decode(Batch(tuple(Rec(key=key) for key in keys)).encode())] == keys


@given(st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20)), min_size=1))
def test_any_keys_and_values(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    records = decode(Batch(tuple(Rec(value, key) for key, value in pairs)).encode())
    assert [(record.key, record.value) for record in reversed(records)] == pairs[::-1]


def test_a_sliced_batch() -> None:
    decoder = RecordDecoder(topic="t", partition=0, from_offset=0, until_offset=9, columns=RECORD_COLUMNS)
    decoder.feed(Batch(tuple(Rec(b"%d" % number, time=number) for number in range(9))).encode())
    batch = decoder.read()
    assert batch is not None
    fields_of_slice = [
        (record.offset, record.value, record.timestamp % 1000) for record in kafka_records(batch.slice(3, 2), "t", 0)
    ]
    assert fields_of_slice == [(3, b"3", 3), (4, b"4", 4)]


def test_decoders_are_called_once_on_access_and_not_for_nulls() -> None:
    calls: list[bytes] = []

    def decoder(data: bytes) -> str:
        calls.append(data)
        return data.decode().upper()

    first, second, third = decode(
        Batch((Rec(b"a"), Rec(None), Rec(b"c"))).encode(), key_decoder=decoder, value_decoder=decoder
    )
    assert (first.value, first.value, first.key, second.value) == ("A", "A", None, None)
    assert calls == [b"a"]
    assert third.offset == 2


def test_a_failing_decoder_reports_the_offset() -> None:
    (record,) = decode(Batch((Rec(b"\xff"),), 12).encode(), value_decoder=bytes.decode)
    with pytest.raises(RecordError, match=r"value decoder raised UnicodeDecodeError") as failure:
        _ = record.value
    assert (failure.value.topic, failure.value.partition, failure.value.offset) == ("flights", 7, 12)
    assert isinstance(failure.value.__cause__, UnicodeDecodeError)
    assert record.key is None


def test_a_failing_decoder_is_reported_with_its_stack_trace() -> None:
    """PySpark gets errors of this package without their causes, and here the cause is the user's code."""

    def decoder(data: bytes) -> Any:
        return dict[bytes, Any]()[data]

    (record,) = decode(Batch((Rec(b"a"),), 12).encode(), value_decoder=decoder)
    with pytest.raises(RecordError) as failure:
        _ = record.value
    message, *note = "".join(traceback.format_exception_only(failure.value)).splitlines()
    assert message.endswith("[topic flights, partition 7, offset 12]")
    assert note[0] == "Traceback (most recent call last):"
    assert __file__ in note[1]
    assert note[1].endswith("in decoder")
    assert note[-1] == "KeyError: b'a'"
    assert pickle.loads(pickle.dumps(failure.value)).__notes__ == failure.value.__notes__


def test_the_cause_of_the_error_of_a_decoder_is_reported() -> None:
    def decoder(data: bytes) -> Any:
        try:
            return int(data)
        except ValueError as error:
            raise LookupError("no such user") from error

    (record,) = decode(Batch((Rec(b"a"),), 12).encode(), key_decoder=str, value_decoder=decoder)
    with pytest.raises(RecordError) as failure:
        _ = record.value
    (note,) = failure.value.__notes__
    assert "ValueError: invalid literal for int()" in note
    assert note.endswith("LookupError: no such user")


def test_a_decoded_none_is_kept() -> None:
    calls: list[bytes] = []
    (record,) = decode(Batch((Rec(b"a"),)).encode(), value_decoder=calls.append)
    assert (record.value, record.value, calls) == (None, None, [b"a"])


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_record_is_pickled_with_its_decoded_fields(protocol: int) -> None:
    data = Batch((Rec(b"12", b"k", 5, ((b"h", None),)), Rec(None)), 5).encode()
    records = decode(data, value_decoder=int, key_decoder=bytes.decode)
    unpickled = pickle.loads(pickle.dumps(records, protocol))
    assert [fields(record) for record in unpickled] == [fields(record) for record in records]
    assert unpickled == records
    assert pickle.loads(pickle.dumps(unpickled[0])) == records[0]
    assert (unpickled[0].value, unpickled[0].key) == (12, "k")


def test_a_pickled_record_does_not_contain_its_batch() -> None:
    records = decode(Batch(tuple(Rec(b"x" * 1000) for _ in range(100))).encode())
    assert len(pickle.dumps(records[0])) < 1500


def test_equality_and_hash() -> None:
    data = Batch((Rec(b"a"), Rec(b"a"))).encode()
    first, second = decode(data)
    assert first == decode(data)[0]
    assert hash(first) == hash(decode(data)[0])
    assert first != second
    assert first != "a"


def test_the_repr_has_all_fields_and_records_are_immutable() -> None:
    (record,) = decode(Batch((Rec(b"a"),), 3, base_timestamp=1).encode())
    assert repr(record) == (
        "KafkaRecord(topic='flights', partition=7, offset=3, timestamp=1, timestampType='CreateTime', key=None, "
        "value=b'a', headers=(), leaderEpoch=3)"
    )
    assert not hasattr(record, "__dict__")
    with pytest.raises(AttributeError):
        record.value = b"b"  # type: ignore[misc]


@pytest.mark.parametrize(("decoders", "name"), [(("utf-8", None), "keyDecoder"), ((None, 3), "valueDecoder")])
def test_a_decoder_that_is_not_callable_is_rejected(decoders: tuple[Any, Any], name: str) -> None:
    check_decoders(None, bytes.decode)
    with pytest.raises(OptionError, match=f"{name} must be a function"):
        check_decoders(*decoders)
