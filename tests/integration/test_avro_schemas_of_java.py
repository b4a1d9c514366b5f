"""Avro schemas compared with Java's parser: what it accepts is accepted, and is the same schema."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyspark

from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError, RecordType
from pyspark_kafka_direct.payloads.avro.canonical_form import canonical_form
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.avro.spark_types import logical_type

# Reads a schema from each line. Prints its Parsing Canonical Form and the decimal of its first field, or E.
JAVA = """
import java.io.*;
import org.apache.avro.*;

public class Parse {
    static String decimal(Schema schema) {
        if (schema.getType() != Schema.Type.RECORD || schema.getFields().isEmpty()) return "";
        LogicalType found = schema.getFields().get(0).schema().getLogicalType();
        if (!(found instanceof LogicalTypes.Decimal)) return "";
        LogicalTypes.Decimal decimal = (LogicalTypes.Decimal) found;
        return "decimal(" + decimal.getPrecision() + "," + decimal.getScale() + ")";
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String line; (line = lines.readLine()) != null;) {
            try {
                Schema schema = new Schema.Parser().parse(line);
                out.println(SchemaNormalization.toParsingForm(schema) + "\\t" + decimal(schema));
            } catch (RuntimeException error) {
                out.println("E");
            }
        }
    }
}
"""


def record(*types: Any, **attributes: Any) -> dict[str, Any]:
    fields = [each if isinstance(each, dict) and "name" in each else {"type": each} for each in types]
    members = [{"name": f"f{number}", **each} for number, each in enumerate(fields)]
    return {"type": "record", "name": "R", "fields": members, **attributes}


def field(avro_type: Any, **attributes: Any) -> dict[str, Any]:
    return record({"name": "f", "type": avro_type, **attributes})


def decimal(**attributes: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", **attributes}


def fixed(size: Any, **attributes: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "X", "size": size, **attributes}


def enum(*symbols: Any, **attributes: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": symbols, **attributes}


DECIMALS: list[dict[str, Any]] = [
    *({"precision": precision, "scale": 2} for precision in (4, 38, 39, 64, 1000, (1 << 31) - 1, 1 << 31, 0, -1)),
    *({"precision": precision} for precision in ("4", 4.0, None, True)),
    *({"precision": 4, "scale": scale} for scale in (4, 5, -1, None, "1", 1.0)),
    {"scale": 2},
]
LOGICAL_TYPES = [
    *(("int", name) for name in ("date", "time-millis", "timestamp-millis", "decimal", "unknown", None, 3)),
    *(("long", name) for name in ("timestamp-nanos", "local-timestamp-nanos", "time-micros", "date")),
    *(("bytes", name) for name in ("big-decimal", "uuid")),
    *(("string", name) for name in ("uuid", "date")),
]
STRANGE = [None, 3, [], {"a": 1}, ["a"], ""]

SCHEMAS: list[Any] = [
    *(field(decimal(**attributes)) for attributes in DECIMALS),
    *(field(fixed(size, logicalType="decimal", precision=p)) for size, p in ((28, 64), (2, 10), (28, 67), (100, 240))),
    *(field({"type": base, "logicalType": name}) for base, name in LOGICAL_TYPES),
    *(field(fixed(size, logicalType=name)) for size, name in ((12, "duration"), (16, "uuid"), (8, "uuid"))),
    *(record("int", logicalType=name) for name in ("decimal", "date")),
    field("int", logicalType="date"),
    *(record("int", **{name: value}) for name in ("namespace", "doc", "aliases", "unknown") for value in STRANGE),
    *(field("int", **{name: value}) for name in ("doc", "aliases", "unknown", "order") for value in STRANGE),
    *(enum("A", "B", **{name: value}) for name in ("default", "namespace", "aliases") for value in STRANGE),
    *(enum("A", default=default) for default in ("A", "B")),
    *(enum(*symbols) for symbols in ([], ["A", "A"], ["a", "A"], ["a-b"], [1], [""], ["ä"], [None])),
    *(record("int", namespace=namespace) for namespace in ("a.b", "a-b", "a..b", "1a", ".a")),
    *(field("int", order=order) for order in ("descending", "ignore", "IGNORE")),
    *({**record(), "name": name} for name in ("a.b.C", ".a", "a.", "a-b", "1", "", "int", "record", "a b", None, 3)),
    {**record(), "name": "int", "namespace": "a"},
    *(record({"name": name, "type": "int"}) for name in ("a-b", "1", "", "a.b", "a b", "ä", "中", "a$", None, 3)),
    *(field(fixed(size)) for size in (0, 1, -1, 20_000_000, 1 << 31, 3.0, "3", None, True)),
    *(field(default) for default in ("null", "float", "int", {"type": "int"}, {"type": "int", "name": "x"}, "nope")),
    *(field("double", default=default) for default in ("NaN", 3, 3.5)),
    *(field(["null", "int"], default=default) for default in (None, 3)),
    # Types that contain themselves, and names that are used before their definitions.
    *(
        field(avro_type)
        for avro_type in ("R", ["null", "R"], {"type": "array", "items": "R"}, {"type": "map", "values": "R"})
    ),
    field(["null", {"type": "record", "name": "S", "fields": [{"name": "r", "type": ["null", "R"]}]}]),
    {**field(["null", "a.R"]), "namespace": "a"},
    {**field(["null", "R"]), "namespace": "a"},
    {**field({"type": "record", "name": "b.S", "fields": [{"name": "r", "type": ["null", "R"]}]}), "namespace": "a"},
    record({"name": "f", "type": "X"}, {"name": "g", "type": fixed(1)}),
    record({"name": "f", "type": fixed(1)}, {"name": "g", "type": "X"}),
    record({"name": "f", "type": fixed(1)}, {"name": "g", "type": {"type": "X"}}),
    record({"name": "f", "type": fixed(1)}, {"name": "g", "type": fixed(1)}),
    record({"name": "f", "type": fixed(1)}, {"name": "g", "type": fixed(2)}),
    *(
        {**record({"name": "f", "type": fixed(1, namespace=inner)}, {"name": "g", "type": name}), "namespace": "a"}
        for inner in (None, "", "b")
        for name in ("X", "a.X", "b.X", ".X")
    ),
    *(
        field(union)
        for union in (
            ["int"],
            ["int", "int"],
            ["null", ["int"]],
            ["int", {"type": "int", "logicalType": "date"}],
            [fixed(1), "X"],
            [{"type": "array", "items": "int"}, {"type": "array", "items": "string"}],
            [fixed(1), enum("A")],
        )
    ),
    *({"type": kind} for kind in ("array", "map", "enum", "fixed", "record", "Record", "string")),
    {"type": "array", "items": "int", "default": [], "name": "x"},
    {"type": "map", "values": "int", "keys": "int"},
    {"type": "error", "name": "E", "fields": []},
    {"type": "record", "name": "R", "fields": None},
    {"type": "record", "name": "R", "fields": ["int"]},
    *STRANGE,
    True,
    "int",
    "nope",
]
TEXTS = [
    *(json.dumps(schema) for schema in SCHEMAS),
    '/* a comment */ {"type": /* another */ "string"}',
    '{"type": "string", "doc": "no // comment, and no /* either */"}',
    "/* that does not end",
    '"int',
    "int",
    "",
]


def test_schemas_that_java_accepts(tmp_path: Path) -> None:
    results = java_results(tmp_path, TEXTS)
    accepted = 0
    for text, result in zip(TEXTS, results, strict=True):
        if result == "E":
            continue  # what Java's parser rejects may be accepted, such as defaults of other types
        accepted += 1
        try:
            root = parse_avro_schema(text).root
        except AvroSchemaError as error:
            raise AssertionError(f"Java accepts {text}") from error
        form, _, java_decimal = result.partition("\t")
        assert canonical_form(root) == form, text
        decimals = [each.type for each in root.fields[:1]] if isinstance(root, RecordType) else []
        logical = logical_type(decimals[0]) if decimals else None
        assert java_decimal == (str(logical) if logical and logical.name == "decimal" else ""), text
    assert accepted > 100


def java_results(folder: Path, texts: list[str]) -> list[str]:
    """Return what the program above prints; PySpark has Avro's classes."""
    source = folder / "Parse.java"
    source.write_text(JAVA, encoding="utf-8")
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    command = ["java", "-cp", jars, str(source)]
    lines = "".join(f"{text}\n" for text in texts)
    done = subprocess.run(command, input=lines, capture_output=True, timeout=900, check=True, encoding="utf-8")
    results = done.stdout.split("\n")[:-1]
    assert len(results) == len(texts)
    return results
