"""The checks of the log soak detect errors, its plans are reproducible, and sent records survive their writers."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, get_args

import pytest
from tests.soak.log.plan import KINDS, Fault, kind_of, plan
from tests.soak.log.results import differences, latest, memory_faults, stale_keys, without_writers
from tests.soak.log.sent_records import (
    KEYS,
    KeyId,
    SentRecords,
    deletes,
    format_key,
    format_value,
    lingers,
    newest,
    parse_key,
    parse_number,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.log.sent_records import Numbers

FIRST = format_key(KeyId(0, 0))
TRANSACTIONAL = {1}


def numbers(first: int, transactional: int = 0) -> Numbers:
    """The numbers of one key of a writer without and of one with transactions."""
    return (first,), (transactional,)


def table(first: int | None, transactional: int | None = None) -> dict[bytes, bytes]:
    found = {}
    for writer, number in enumerate((first, transactional)):
        if number is not None:
            value = format_value(number, 3)
            assert value is not None
            found[format_key(KeyId(writer, 0))] = value
    return found


@pytest.mark.parametrize("number", [4, 5, 6])
def test_records_from_the_acknowledged_to_the_sent_one_are_valid(number: int) -> None:
    assert stale_keys(numbers(4), table(number), numbers(6), TRANSACTIONAL) == []


def test_an_older_record_is_stale() -> None:
    assert stale_keys(numbers(4), table(3), numbers(6), TRANSACTIONAL) == ["KeyId(writer=0, key=0) is 3, not 4 to 6"]


def test_a_record_that_was_not_sent() -> None:
    assert stale_keys(numbers(4), table(8), numbers(6), TRANSACTIONAL) == ["KeyId(writer=0, key=0) is 8, not 4 to 6"]


def test_a_missing_key_is_stale_unless_it_may_be_deleted() -> None:
    assert stale_keys(numbers(4), {}, numbers(6), TRANSACTIONAL) == [
        "KeyId(writer=0, key=0) is missing, 4 was acknowledged"
    ]
    assert stale_keys(numbers(4), {}, numbers(7), TRANSACTIONAL) == []
    assert stale_keys(numbers(7), {}, numbers(7), TRANSACTIONAL) == []
    assert stale_keys(numbers(8), {}, numbers(8), TRANSACTIONAL) != []


def test_a_deleted_key_that_exists_is_stale() -> None:
    assert stale_keys(numbers(7), table(6), numbers(7), TRANSACTIONAL) == ["KeyId(writer=0, key=0) is 6, not 7 to 7"]


def test_only_uncommitted_tables_may_have_aborted_records() -> None:
    arguments = numbers(0, 4), table(None, 5), numbers(0, 6), TRANSACTIONAL
    assert stale_keys(*arguments) == ["KeyId(writer=1, key=0) is 5, which was aborted"]
    assert stale_keys(*arguments, committed=False) == []


def test_an_aborted_transaction_deletes_nothing() -> None:
    assert stale_keys(numbers(0, 34), {}, numbers(0, 36), TRANSACTIONAL) != []
    assert stale_keys(numbers(0, 34), {}, numbers(0, 36), TRANSACTIONAL, committed=False) == []
    assert stale_keys(numbers(0, 34), {}, numbers(0, 42), TRANSACTIONAL) == []


def test_tables_that_differ() -> None:
    truth = table(4, 6)
    assert differences({"a": table(4, 6)}, truth, "all") == []
    assert differences({"a": truth, "b": table(3), "c": truth | {b"more": b"1"}}, truth, "all") == [
        "b has 2 keys of all that differ (key, in the table, in the topic): [(b'w0-k0', b'3:xxx', b'4:xxx'), "
        "(b'w1-k0', b'', b'6:xxx')]",
        "c has 1 keys of all that differ (key, in the table, in the topic): [(b'more', b'1', b'')]",
    ]


def test_the_table_of_records() -> None:
    assert latest([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"c", None)]) == {b"a": b"3"}


def test_a_table_without_some_writers() -> None:
    assert without_writers(table(4, 6), {1}) == table(4)


def test_memory_that_grows() -> None:
    mib = 1 << 20
    assert memory_faults([each * mib for each in (20, 60, 90, 100, 100, 101, 99, 100, 110, 108)]) == []
    assert memory_faults([each * mib for each in (20, 60, 90, 100, 110, 120, 130, 140, 150, 160)]) == [
        "memory has grown from 100 to 160 MiB"
    ]
    assert memory_faults([mib, 900 * mib]) == [], "too short a time"


def test_sent_records_are_shared_and_survive_their_writer(tmp_path: Path) -> None:
    path = tmp_path / "sent"
    reader, writer = SentRecords(path), SentRecords(path)
    writer.send(3, 11)
    writer.acknowledge(3, 10)
    assert (reader.sent[3], reader.acknowledged[3]) == (11, 10)
    writer.send(KEYS - 1, 5)
    del writer
    assert newest([SentRecords(path)])[1] == (reader.sent,)
    assert sum(reader.sent) == 16
    assert sum(reader.acknowledged) == 10


def test_keys_and_values_round_trip() -> None:
    assert parse_key(format_key(KeyId(12, 3))) == KeyId(12, 3)
    value = format_value(12, 50)
    assert value is not None
    assert parse_number(value) == 12
    assert deletes(14)
    assert format_value(14, 50) is None
    assert lingers(22)


def test_plans_are_reproducible_and_have_all_faults() -> None:
    assert list(islice(plan(7, 10, 10), 50)) == list(islice(plan(7, 10, 10), 50))
    assert list(islice(plan(7, 10, 10), 50)) != list(islice(plan(8, 10, 10), 50))
    steps = list(islice(plan(7, 10, 10), 200))
    assert {each.fault for each in steps} == set(get_args(Fault))
    assert {each.target for each in steps if each.fault == "kill writer"} == set(range(10))
    assert {each.target for each in steps if each.fault.endswith("broker")} == {1, 2, 3}


def test_ten_writers_have_all_kinds() -> None:
    assert {kind_of(number) for number in range(10)} == set(KINDS) == {"log", "table", "transactions"}
