"""The judgement of the log's soak must be able to fail; its plans repeat; its ledgers outlive their writers."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, get_args

import pytest
from tests.soak.log.ledger import KEYS, Ledger, Place, deletes, key_of, lingers, newest, number_of, place_of, value_of
from tests.soak.log.plan import KINDS, Deed, kind_of, plan
from tests.soak.log.results import differences, early, latest, memory_faults, without

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.log.ledger import Numbers

FIRST = key_of(Place(0, 0))
TRANSACTIONAL = {1}


def numbers(first: int, transactional: int = 0) -> Numbers:
    """Of the first key of a writer, and of one that uses transactions."""
    return (first,), (transactional,)


def table(first: int | None, transactional: int | None = None) -> dict[bytes, bytes]:
    found = {}
    for writer, number in enumerate((first, transactional)):
        if number is not None:
            value = value_of(number, 3)
            assert value is not None
            found[key_of(Place(writer, 0))] = value
    return found


@pytest.mark.parametrize("number", [4, 5, 6])
def test_what_was_acknowledged_and_what_was_sent_since_is_right(number: int) -> None:
    assert early(numbers(4), table(number), numbers(6), TRANSACTIONAL) == []


def test_an_older_record_is_early() -> None:
    assert early(numbers(4), table(3), numbers(6), TRANSACTIONAL) == ["Place(writer=0, key=0) is 3, not 4 to 6"]


def test_a_record_that_nobody_has_sent() -> None:
    assert early(numbers(4), table(8), numbers(6), TRANSACTIONAL) == ["Place(writer=0, key=0) is 8, not 4 to 6"]


def test_a_missing_key_is_early_unless_it_may_be_deleted() -> None:
    assert early(numbers(4), {}, numbers(6), TRANSACTIONAL) == ["Place(writer=0, key=0) is missing, 4 was acknowledged"]
    assert early(numbers(4), {}, numbers(7), TRANSACTIONAL) == []
    assert early(numbers(7), {}, numbers(7), TRANSACTIONAL) == []
    assert early(numbers(8), {}, numbers(8), TRANSACTIONAL) != []


def test_a_deleted_key_that_is_there_is_early() -> None:
    assert early(numbers(7), table(6), numbers(7), TRANSACTIONAL) == ["Place(writer=0, key=0) is 6, not 7 to 7"]


def test_only_a_table_without_transactions_may_have_what_was_aborted() -> None:
    arguments = numbers(0, 4), table(None, 5), numbers(0, 6), TRANSACTIONAL
    assert early(*arguments) == ["Place(writer=1, key=0) is 5, which was aborted"]
    assert early(*arguments, committed=False) == []


def test_an_aborted_transaction_deletes_nothing() -> None:
    assert early(numbers(0, 34), {}, numbers(0, 36), TRANSACTIONAL) != []
    assert early(numbers(0, 34), {}, numbers(0, 36), TRANSACTIONAL, committed=False) == []
    assert early(numbers(0, 34), {}, numbers(0, 42), TRANSACTIONAL) == []


def test_tables_that_differ() -> None:
    truth = table(4, 6)
    assert differences({"a": table(4, 6)}, truth, "all") == []
    assert differences({"a": truth, "b": table(3), "c": truth | {b"more": b"1"}}, truth, "all") == [
        "b has 2 keys of all that differ (key, here, in the log): [(b'w0-k0', b'3:xxx', b'4:xxx'), "
        "(b'w1-k0', b'', b'6:xxx')]",
        "c has 1 keys of all that differ (key, here, in the log): [(b'more', b'1', b'')]",
    ]


def test_the_table_that_records_make() -> None:
    assert latest([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"c", None)]) == {b"a": b"3"}


def test_a_table_without_some_writers() -> None:
    assert without(table(4, 6), {1}) == table(4)


def test_memory_that_grows() -> None:
    mib = 1 << 20
    assert memory_faults([each * mib for each in (20, 60, 90, 100, 100, 101, 99, 100, 110, 108)]) == []
    assert memory_faults([each * mib for each in (20, 60, 90, 100, 110, 120, 130, 140, 150, 160)]) == [
        "memory has grown from 100 to 160 MiB"
    ]
    assert memory_faults([mib, 900 * mib]) == [], "too short a time"


def test_a_ledger_is_there_for_others_and_after_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    reader, writer = Ledger(path), Ledger(path)
    writer.send(3, 11)
    writer.acknowledge(3, 10)
    assert (reader.sent[3], reader.acknowledged[3]) == (11, 10)
    writer.send(KEYS - 1, 5)
    del writer
    assert newest([Ledger(path)])[1] == (reader.sent,)
    assert sum(reader.sent) == 16
    assert sum(reader.acknowledged) == 10


def test_keys_and_values_tell_what_they_are() -> None:
    assert place_of(key_of(Place(12, 3))) == Place(12, 3)
    value = value_of(12, 50)
    assert value is not None
    assert number_of(value) == 12
    assert deletes(14)
    assert value_of(14, 50) is None
    assert lingers(22)


def test_a_seed_repeats_its_plan_and_every_deed_occurs() -> None:
    assert list(islice(plan(7, 10, 10), 50)) == list(islice(plan(7, 10, 10), 50))
    assert list(islice(plan(7, 10, 10), 50)) != list(islice(plan(8, 10, 10), 50))
    steps = list(islice(plan(7, 10, 10), 200))
    assert {each.deed for each in steps} == set(get_args(Deed))
    assert {each.target for each in steps if each.deed == "kill writer"} == set(range(10))
    assert {each.target for each in steps if each.deed.endswith("broker")} == {1, 2, 3}


def test_ten_writers_write_in_all_ways() -> None:
    assert {kind_of(number) for number in range(10)} == set(KINDS) == {"log", "table", "transactions"}
