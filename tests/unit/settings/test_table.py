"""The table: every row is whole, and rows and typed values fit each other."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from pyspark_kafka_direct.settings._kinds import read_value
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.connection import ConnectionSettings
from pyspark_kafka_direct.settings.fetch import FetchSettings
from pyspark_kafka_direct.settings.produce import CODECS, ProduceSettings
from pyspark_kafka_direct.settings.row import DOORS, INT64, Fate, Kind, Origin


def test_something_happens_at_every_door() -> None:
    for row in TABLE.rows:
        for door in DOORS:
            assert door in row.doors or row.fate(door).why, row.name
            assert door in row.doors or not row.fate(door).why.endswith("."), row.name
        assert row.about or not row.doors, row.name


def test_a_door_that_does_not_read_says_nothing_of_reading_but_that() -> None:
    later: Any = "a door to come"
    roles = ("fetch", "group", "plan")
    rows = [row for row in TABLE.rows if row.doors and row.role in roles and row.written(Origin.OPTION)]
    said = {row.name: row.fate(later) for row in rows}
    assert said == {row.name: Fate(why="it is a setting for reading") for row in rows}
    assert {"startingOffsets", "failOnDataLoss", "group.id", "auto.offset.reset", "fetch.min.bytes"} <= said.keys()


def test_defaults_can_be_read_and_limits_fit_the_kind() -> None:
    for row in TABLE.rows:
        for text in row.doors.values():
            if text is not None:
                read_value(row, text, row.name)
                assert not row.secret, row.name
        assert bool(row.allowed) == (row.kind is Kind.WORD), row.name
        if row.low is not None:
            assert row.kind in (Kind.NUMBER, Kind.DECIMAL, Kind.DURATION), row.name
            assert -INT64 - 1 <= row.low <= (row.high or INT64) <= INT64, row.name


def test_no_name_stands_for_two_settings() -> None:
    names = list(itertools.chain.from_iterable((row.name, *row.aliases) for row in TABLE.rows))
    assert len({name.lower() for name in names}) == len(names)
    assert all(row.name == row.name.lower() for row in TABLE.rows if row.client)
    for origin in Origin:
        written = TABLE.names(origin)
        assert len(set(written)) == len(written), origin


@pytest.mark.parametrize(
    ("kind", "role"), [(ConnectionSettings, "connect"), (FetchSettings, "fetch"), (ProduceSettings, "produce")]
)
def test_rows_fill_typed_values_with_the_same_defaults(kind: type, role: str) -> None:
    of_the_sink = {"transaction_timeout_ms"}
    rows = {row.field: row for row in TABLE.rows if row.role == role and row.field and row.client}
    rows = {name: row for name, row in rows.items() if name not in of_the_sink}
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    made_by_rules = {"bootstrap_servers", "security", "acks", "idempotent", "level"}
    assert rows.keys() == fields.keys() - made_by_rules
    for name, row in rows.items():
        for text in row.doors.values():
            assert read_value(row, text or "", row.name) == fields[name], name


def test_codecs_have_the_numbers_of_the_record_format() -> None:
    assert CODECS == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def test_what_every_row_can_be_found_by() -> None:
    for row in TABLE.rows:
        for way in row.origins:
            names = [way.name] if way.name else [row.name, *row.aliases]
            for name in names:
                prefix = "kafka." if row.client and way.origin is Origin.OPTION else ""
                assert TABLE.find(way.origin, prefix + name).row is row, name
                assert TABLE.find(way.origin, prefix + name).way == way, name
