"""The options of a sink that encodes keys and values as Avro."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.sink_options import parse_sink_options

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.settings import WriteSettings

SCHEMA = '"string"'
REGISTRY = {"schema.registry.url": "http://localhost:8081"}


def parse(**options: str) -> WriteSettings:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return parse_sink_options({"kafka.bootstrap.servers": "b:9092", "topic": "t", **given}, streaming=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueFormat": "avro"}, "valueFormat=avro needs the schema: set valueSchema"),
        ({"valueFormat": "avro", "valueSchema": SCHEMA, "valueFraming": "header"}, "valueFraming=header needs a regis"),
        (
            {"keyFormat": "my:decoder"},
            "keyFormat must be binary, string, json, avro or protobuf in a write",
        ),
        (
            {"valueFormat": "avro", **REGISTRY, "auto.register.schemas": "true", "use.latest.version": "true"},
            "auto.register.schemas and use.latest.version exclude each other",
        ),
        (
            {"valueFormat": "avro", **REGISTRY, "valueSchema": SCHEMA, "use.latest.version": "true"},
            "valueSchema and use.latest.version exclude each other",
        ),
        (
            {
                "keyFormat": "avro",
                "valueFormat": "avro",
                **REGISTRY,
                "valueSchema": SCHEMA,
                "use.latest.version": "true",
            },
            "valueSchema and use.latest.version exclude each other",
        ),
        ({"schema.registry.basic.auth.user.info": "a:b"}, "schema.registry.basic.auth.user.info needs a registry"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**options)


@pytest.mark.parametrize(
    ("options", "auto_register", "use_latest", "framing"),
    [
        ({}, False, True, "confluent"),
        ({"auto.register.schemas": "true"}, True, False, "confluent"),
        ({"use.latest.version": "false", "valueFraming": "header"}, False, False, "header"),
    ],
)
def test_where_the_schema_is_from(options: dict[str, str], auto_register: bool, use_latest: bool, framing: str) -> None:
    payloads = parse(valueFormat="avro", **REGISTRY, **options).payloads
    assert payloads.sides_with_types == {"value"}
    assert parse(keyFormat="avro", valueFormat="avro", **REGISTRY).payloads.sides_with_types == {"key", "value"}
    assert (payloads.auto_register, payloads.use_latest) == (auto_register, use_latest)
    assert payloads.sides[0].framing == framing


def test_charsets_of_keys_and_values() -> None:
    strings = {"keyFormat": "string", "keyCharset": "UTF-16", "valueFormat": "string", "valueCharset": "US-ASCII"}
    for sides in (("key",), ("value",), ("key", "value")):
        given = {name: value for name, value in strings.items() if name.startswith(sides)}
        charsets = {each.side: each.charset for each in parse(**given).payloads.sides}
        assert charsets == {side: strings[f"{side}Charset"] for side in sides}


def test_access_to_a_registry_that_is_not_needed_is_warned_of() -> None:
    access = {**REGISTRY, "schema.registry.basic.auth.user.info": "a:b"}
    parsed = parse(keyFormat="json", **access)
    assert parsed.payloads.sides == ()
    assert parsed.warnings == tuple(
        f"the option {name} is ignored: nothing is written as Avro or Protobuf, or as JSON with schema ids"
        for name in access
    )


AVRO = {"valueFormat": "avro", "valueSchema": SCHEMA}
NEEDS_IDS = "schema ids, which JSON has with keyFraming=confluent or header; set one of these, or remove"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueSchema": SCHEMA}, "valueSchema needs Avro or Protobuf; set valueFormat=avro or protobuf, or remove it"),
        ({"valueFraming": "confluent"}, "valueFraming=confluent needs Avro or Protobuf; set valueFormat=avro"),
        ({"valueFormat": "string", "valueFraming": "header", **REGISTRY}, "valueFraming=header needs Avro or Protobuf"),
        ({"keySubject": "s", **AVRO, **REGISTRY}, "keySubject needs Avro or Protobuf; set keyFormat=avro or protobuf"),
        ({"keyFormat": "json", "keySubject": "s", **REGISTRY}, f"keySubject needs {NEEDS_IDS} it"),
        (
            {"keyFormat": "json", "keySchema": "{}", "keySchemaVersion": "3", **AVRO, **REGISTRY},
            f"keySchema, keySchemaVersion need {NEEDS_IDS} them",
        ),
        ({**AVRO, "valueMessage": "M"}, "valueMessage needs Protobuf; set valueFormat=protobuf, or remove it"),
        ({**AVRO, "valueSubject": "s"}, "valueSubject needs a registry; set schema.registry.url, or remove it"),
        (
            {**AVRO, "valueSubjectNameStrategy": "record", "valueSchemaVersion": "3"},
            "valueSubjectNameStrategy=record, valueSchemaVersion need a registry; set schema.registry.url, or remove",
        ),
        (
            {**AVRO, "valueSubject": "s", "auto.register.schemas": "true", "valueFraming": "confluent"},
            "valueSubject, auto.register.schemas need a registry; set schema.registry.url, or remove them. "
            "valueFraming=confluent needs a registry, which has the id; set schema.registry.url, or remove it",
        ),
        *(
            ({**REGISTRY, name: "true"}, f"{name} needs Avro, Protobuf, or JSON with sch")
            for name in ("auto.register.schemas", "use.latest.version")
        ),
        ({**AVRO, "valueSchemaId": "7"}, "the option valueSchemaId cannot be used here: a write has the id from a reg"),
    ],
)
def test_options_that_say_how_bytes_are_written_are_not_ignored(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse(**options)
    assert message in raised.value.message


def test_values_that_say_what_is_written_anyway_are_accepted() -> None:
    given = {"keyFraming": "none", "auto.register.schemas": "false", "use.latest.version": "false", **AVRO}
    assert parse(**given).warnings == ()


@pytest.mark.parametrize("others", [{"valueSchema": SCHEMA}, {"use.latest.version": "false"}])
def test_a_version_that_is_not_written_with_is_warned_of(others: dict[str, str]) -> None:
    assert parse(valueFormat="avro", valueSchemaVersion="3", **REGISTRY).warnings == ()
    parsed = parse(valueFormat="avro", valueSchemaVersion="3", **REGISTRY, **others)
    message = "the option valueSchemaVersion is ignored: the schema is not that of a version of the subject"
    assert parsed.warnings == (message,)


def test_the_versions_of_both_sides_that_are_not_written_with_are_warned_of() -> None:
    given = {"keyFormat": "avro", "keySchemaVersion": "2", "valueFormat": "avro", "valueSchemaVersion": "3"}
    parsed = parse(**given, **REGISTRY, **{"auto.register.schemas": "true"})
    assert [warning.split(" is ignored")[0] for warning in parsed.warnings] == [
        "the option keySchemaVersion",
        "the option valueSchemaVersion",
    ]


@pytest.mark.parametrize("others", [{}, {"keyFormat": "avro", "keySchema": SCHEMA}])
def test_json_without_ids_is_what_the_framing_none_says(others: dict[str, str]) -> None:
    parsed = parse(valueFormat="json", valueFraming="none", **others)
    assert parsed.warnings == ()
    assert "value" not in [column.side for column in parsed.payloads.sides]


@pytest.mark.parametrize("framing", ["confluent", "header"])
def test_json_is_written_with_ids_if_the_framing_says_so(framing: str) -> None:
    payloads = parse(valueFormat="json", keyFormat="json", valueFraming=framing, **REGISTRY).payloads
    (column,) = payloads.sides
    assert (column.side, column.format, column.framing) == ("value", "json", framing)
    assert parse(valueFormat="json", valueFraming="none", **REGISTRY).payloads.sides == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueFraming": "confluent"}, "valueFraming=confluent needs a registry, which has the id; set schema.regis"),
        ({"valueFraming": "header", "valueSchema": "{}"}, "valueFraming=header needs a registry"),
        ({"valueFraming": "single-object", **REGISTRY}, "valueFraming is confluent, header or none with valueFormat=j"),
        (
            {"valueFraming": "confluent", **REGISTRY, "auto.register.schemas": "true"},
            "auto.register.schemas needs valueSchema with valueFormat=json: the types of columns do not define a JSON "
            "Schema. Set it to a JSON Schema",
        ),
        ({"valueFraming": "confluent", **REGISTRY, "use.latest.version": "false"}, "use.latest.version needs valueS"),
        (
            {"keyFormat": "avro", "valueFraming": "confluent", **REGISTRY, "use.latest.version": "false"},
            "use.latest.version needs valueSchema with valueFormat=json",
        ),
    ],
)
def test_json_with_ids_that_cannot_be_written(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse(valueFormat="json", **options)
    assert message in str(raised.value)


# Values that are not what an option has by default.
SAYS_HOW_BYTES_ARE_WRITTEN = {
    **{f"{side}{name}": "s" for side in ("key", "value") for name in ("Subject", "Message")},
    **{f"{side}Schema": SCHEMA for side in ("key", "value")},
    **{f"{side}SubjectNameStrategy": "topic-record" for side in ("key", "value")},
    **{f"{side}SchemaVersion": "3" for side in ("key", "value")},
    "auto.register.schemas": "true",
    "use.latest.version": "true",
}
FORMATS = st.sampled_from(["binary", "string", "json", "avro", "avro", "protobuf"])


@given(
    formats=st.fixed_dictionaries({"keyFormat": FORMATS, "valueFormat": FORMATS}),
    names=st.sets(st.sampled_from(sorted(SAYS_HOW_BYTES_ARE_WRITTEN)), max_size=3),
    framings=st.dictionaries(
        st.sampled_from(["keyFraming", "valueFraming"]),
        st.sampled_from(["confluent", "header", "single-object", "none"]),
    ),
    registry=st.sampled_from([{}, REGISTRY]),
)
def test_each_option_is_applied_rejected_or_warned_of(
    formats: dict[str, str], names: set[str], framings: dict[str, str], registry: dict[str, str]
) -> None:
    options = {**formats, **framings, **registry, **{name: SAYS_HOW_BYTES_ARE_WRITTEN[name] for name in names}}
    try:
        parsed = parse(**options)
    except OptionError:
        return
    for name in names | framings.keys() | registry.keys():
        try:
            without = parse(**{other: value for other, value in options.items() if other != name})
        except OptionError:
            continue  # the option is needed
        is_default = options[name] == "none" or (options[name] == "confluent" and registry)
        is_default = is_default or name == "use.latest.version"  # with a registry and without valueSchema
        is_applied = parsed.payloads != without.payloads or is_default
        assert is_applied or any(f"the option {name} is ignored" in warning for warning in parsed.warnings), name
