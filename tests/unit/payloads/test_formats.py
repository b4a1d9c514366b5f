"""Each format has one row and one object, and no other code decides by its name."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyspark_kafka_direct
from pyspark_kafka_direct.options.payload_formats import FORMATS, format_row, needed_format
from pyspark_kafka_direct.options.payload_settings import BINARY, PayloadSettings, SidePayload
from pyspark_kafka_direct.payloads.payload_format import _MODULES, SchemaFormat, payload_format

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(pyspark_kafka_direct.__file__).parent


def test_each_row_but_that_of_bytes_has_an_object() -> None:
    assert _MODULES.keys() == FORMATS.keys() - {BINARY}


@pytest.mark.parametrize("name", _MODULES)
def test_formats_with_schema_ids_can_be_written_with_a_schema(name: str) -> None:
    assert isinstance(payload_format(name), SchemaFormat) == bool(format_row(name).framings)


def test_an_option_names_the_formats_that_it_needs() -> None:
    assert needed_format("key", lambda row: row.has_message) == "Protobuf; set keyFormat=protobuf"
    expected = "JSON, Avro or Protobuf; set valueFormat=json, avro or protobuf"
    assert needed_format("value", lambda row: row.framings) == expected


def decisions(source: str) -> Iterator[str]:
    """Yield the names of formats that code compares something with."""
    if not any(f"{quote}{name}{quote}" in source for name in FORMATS for quote in "'\""):
        return  # parsing every module takes a second
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.MatchValue | ast.MatchOr):
            constants = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            yield from (str(value) for value in constants if value in FORMATS and format_row(str(value)).framings)


@pytest.mark.parametrize("line", ['if f == "avro": ...', 'x = f in ("json", g)', 'match f:\n case "protobuf": ...'])
def test_a_decision_by_name_is_found(line: str) -> None:
    assert list(decisions(line))


def test_no_code_decides_by_the_name_of_a_format() -> None:
    found = {str(file.relative_to(SOURCE)): list(decisions(file.read_text("utf-8"))) for file in SOURCE.rglob("*.py")}
    assert {file: names for file, names in found.items() if names} == {}


def test_tasks_have_neither_ddl_nor_subjects() -> None:
    value = SidePayload("value", "json", "a int", subject="t-value", version="3")
    settings = PayloadSettings(value=value)
    sent = pickle.dumps(settings.for_tasks())
    assert pickle.loads(sent) == PayloadSettings(value=SidePayload("value", "json"))
    assert b"a int" not in sent
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize("change", [{"schema": ""}, {"source": "x"}, {"version": "1"}, {"schema_id": 0}])
def test_a_pickled_side_has_all_that_is_not_default(change: dict[str, str]) -> None:
    side = SidePayload("key", "avro", **change)  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(side)) == side
