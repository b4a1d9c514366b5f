"""The options that define how keys and values are decoded."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.payload_parser import parse_payload_arguments
from pyspark_kafka_direct.options.payload_settings import PayloadSettings, SidePayload
from pyspark_kafka_direct.options.read_options import (
    parse_batch_options,
    parse_columns,
    parse_continuous_options,
    parse_stream_options,
)
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.options.spark_definitions import PAYLOAD_DECODERS_VARIABLE
from pyspark_kafka_direct.options.user_factories import load_factory

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def test_payloads_are_bytes_by_default() -> None:
    assert parse_batch_options(BASE).payloads == PayloadSettings()
    assert parse_stream_options(BASE).payloads == PayloadSettings()
    assert not PayloadSettings().decodes


def test_formats_schemas_and_mode() -> None:
    options = {
        **BASE,
        "VALUEFORMAT": "JSON",
        "keyformat": "string",
        "valueSchema": "a int",
        "mode": "failfast",
        "columnNameOfCorruptRecord": "text",
    }
    value = SidePayload("value", "json", "a int")
    expected = PayloadSettings(SidePayload("key", "string"), value, "FAILFAST", "text")
    assert parse_batch_options(options).payloads == expected
    assert parse_stream_options(options).payloads == expected
    assert parse_columns(options) == (False, expected)
    assert [expected.side(column) for column in ("key", "value", "topic")] == [expected.key, value, None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"valueFormat": "xml"},
            "valueFormat must be binary, string, json, avro, protobuf or module:factory, got 'xml'",
        ),
        ({"mode": "IGNORE"}, "mode must be PERMISSIVE, DROPMALFORMED or FAILFAST, got 'IGNORE'"),
        (
            {"valueSchema": "a int"},
            "valueSchema is the schema of JSON, Avro or Protobuf, and valueFormat is binary; set valueFormat=json",
        ),
        (
            {"keySchema": "a int", "keyFormat": "string"},
            "keySchema is the schema of JSON, Avro or Protobuf, and keyFormat is str",
        ),
        (
            {"valueMessage": "M", "valueSchema": "x", "valueFormat": "avro"},
            "valueMessage is a message type of Protobuf, and valueFormat is avro",
        ),
        ({"keyCharset": "UTF-8"}, "keyCharset is the charset of .*, and keyFormat is binary"),
        ({"valueFormt": "json"}, "valueFormat"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, str], message: str) -> None:
    for parse in (parse_batch_options, parse_stream_options, parse_columns):
        with pytest.raises(OptionError, match=message):
            parse({**BASE, **options})


def test_avro_fails_at_malformed_data_by_default() -> None:
    avro = {"valueFormat": "avro", "valueSchema": '"int"'}
    value = SidePayload("value", "avro", '"int"')
    expected = PayloadSettings(SidePayload("key", "json", "a int"), value, "FAILFAST")
    options = {**BASE, **avro, "keyFormat": "json", "keySchema": "a int"}
    assert parse_batch_options(options).payloads == expected
    assert parse_batch_options({**BASE, **avro, "mode": "permissive"}).payloads.mode == "PERMISSIVE"


def test_options_of_json_alone_are_ignored_with_a_warning() -> None:
    options = {**BASE, "mode": "FAILFAST", "columnNameOfCorruptRecord": "c", "valueFormat": "string"}
    warnings = parse_batch_options(options).warnings
    for name in ("mode", "columnNameOfCorruptRecord"):
        assert any(f"{name} is ignored: nothing is decoded from JSON" in warning for warning in warnings)


def test_a_continuous_query_has_the_same_options() -> None:
    options = {**BASE, "valueFormat": "json", "valueSchema": "a int", "mode": "DROPMALFORMED"}
    assert parse_continuous_options(options).payloads == parse_batch_options(options).payloads


def test_options_can_be_arguments_of_a_method() -> None:
    arguments = {"valueFormat": "json", "valueSchema": "a int", "mode": None, "keyFormat": None}
    assert parse_payload_arguments(arguments) == parse_batch_options({**BASE, **arguments}).payloads  # type: ignore[dict-item]
    with pytest.raises(OptionError, match="valueFormat must be binary, string, json, avro, protobuf or module:factory"):
        parse_payload_arguments({"valueFormat": "xml"})
    failing = parse_payload_arguments({**arguments, "mode": "failfast"}, modes=("PERMISSIVE", "FAILFAST"))
    assert (failing.mode, failing.value.schema) == ("FAILFAST", "a int")
    with pytest.raises(OptionError, match="mode must be PERMISSIVE or FAILFAST, got 'DROPMALFORMED'"):
        parse_payload_arguments({**arguments, "mode": "DROPMALFORMED"}, modes=("PERMISSIVE", "FAILFAST"))


def test_each_warning_about_arguments_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    option_messages.warn_once.cache_clear()
    parse_payload_arguments({"valueFormat": "string", "mode": "FAILFAST", "emit.default.values": "true"})
    for name in ("mode", "emit.default.values"):
        assert f"{name} is ignored: nothing is decoded from" in caplog.text


def test_tasks_need_the_registry_of_keys_and_of_values() -> None:
    for parsed in (parse_batch_options({**AVRO, "valueFormat": "avro"}), parse_batch_options({**AVRO, **KEYS})):
        for_tasks = parsed.payloads.for_tasks()
        assert for_tasks.registry is not None
        assert pickle.loads(pickle.dumps(for_tasks)) == for_tasks
    side = SidePayload("value", "protobuf", "a", message="M", framing="header", subject="s", version="3")
    assert pickle.loads(pickle.dumps(side)) == side


def test_decoders_of_the_user_must_be_allowed_unless_the_options_are_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {**BASE, "valueFormat": "decoders:Csv.make", "valueSchema": "a int"}
    message = r"valueFormat: 'decoders:Csv\.make' is not allowed, because this function would run on the executors"
    for parse in (parse_batch_options, parse_stream_options):
        monkeypatch.delenv(PAYLOAD_DECODERS_VARIABLE, raising=False)
        with pytest.raises(OptionError, match=message):
            parse(options)
        monkeypatch.setenv(PAYLOAD_DECODERS_VARIABLE, "decoders:Csv, other:make")
        with pytest.raises(OptionError, match=message):
            parse(options)
        monkeypatch.setenv(PAYLOAD_DECODERS_VARIABLE, "other:make, decoders:Csv.make")
        assert parse(options).payloads == PayloadSettings(value=SidePayload("value", "decoders:Csv.make", "a int"))
    monkeypatch.delenv(PAYLOAD_DECODERS_VARIABLE)
    assert parse_continuous_options(options).payloads.value.format == "decoders:Csv.make"
    assert parse_payload_arguments({"keyFormat": "decoders:make"}).key.format == "decoders:make"


def test_a_factory_may_be_a_method_of_a_class() -> None:
    factory = load_factory("valueFormat", "collections:OrderedDict.fromkeys", "a decoder", "the executors")
    assert factory("ab") == {"a": None, "b": None}
    with pytest.raises(OptionError, match=r"the module collections has no OrderedDict\.make"):
        load_factory("valueFormat", "collections:OrderedDict.make", "a decoder", "the executors")


@pytest.mark.parametrize("value", ["decoders:", ":make", "decoders:make()", "deco ders:make", "a:b:c", "json:"])
def test_a_decoder_is_the_name_of_a_function(value: str) -> None:
    with pytest.raises(
        OptionError, match="valueFormat must be binary, string, json, avro, protobuf or module:factory, got"
    ):
        parse_batch_options({**BASE, "valueFormat": value})


AVRO = {**BASE, "valueFormat": "avro", "schema.registry.url": "https://one:8081"}
KEYS = {"valueFormat": "binary", "keyFormat": "avro"}


def test_a_registry_of_avro() -> None:
    payloads = parse_batch_options({**AVRO, "schemaEvolutionMode": "restart"}).payloads
    assert payloads.registry is not None
    assert payloads.registry.urls == ("https://one:8081",)
    assert (payloads.value.subject, payloads.key.subject, payloads.evolution) == ("t-value", "t-key", "restart")
    for parsed in (parse_stream_options(AVRO), parse_continuous_options(AVRO)):
        assert parsed.payloads.registry == parse_batch_options(AVRO).payloads.registry
    assert parse_batch_options({**BASE, "valueFormat": "avro", "valueSchema": "x"}).payloads.registry is None


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"subscribe": " t "}, "t-value"),
        ({"assign": '{"t": [0, 1]}'}, "t-value"),
        ({"offsetRanges": '[{"topic": "t", "partition": 0, "fromOffset": 0, "untilOffset": 1}]'}, "t-value"),
        ({"subscribe": "t,u"}, None),
        ({"subscribePattern": "t.*"}, None),
        ({"subscribe": "t", "valueSubjectNameStrategy": "record"}, None),
        ({"subscribe": "t,u", "valueSubject": " s "}, " s "),
    ],
)
def test_the_subject_follows_from_a_single_topic(options: dict[str, str], subject: str | None) -> None:
    given = {name: value for name, value in AVRO.items() if name != "subscribe"} | options
    assert parse_batch_options(given).payloads.value.subject == subject


WITHOUT_REGISTRY = {"valueFormat": "avro", "valueSchema": "x"}


def json_of(side: str) -> dict[str, str]:
    return {f"{side}Format": "json", f"{side}Schema": "a int"}


def test_options_of_a_registry_that_is_not_needed_are_warned_of() -> None:
    def warnings(options: dict[str, str]) -> list[str]:
        return [warning for warning in parse_batch_options({**BASE, **options}).warnings if "egistr" in warning]

    access = {"schema.registry.url": "https://one:8081", "schema.registry.basic.auth.user.info": "a:b"}
    assert warnings(access) == [
        f"the option {name} is ignored: nothing is decoded from Avro or Protobuf" for name in access
    ]
    advice = "decoded from Avro or Protobuf; if schema ids are in front of JSON, set"
    both = {name: options for side in ("key", "value") for name, options in json_of(side).items()}
    for options, names in (
        (json_of("key"), "keyFraming"),
        (json_of("value"), "valueFraming"),
        (both, "keyFraming and valueFraming"),
    ):
        found = warnings({**access, **options})
        assert len(found) == 2
        assert all(warning.endswith(f"{advice} {names}") for warning in found)
    assert warnings(AVRO) == []
    for framing in ("none", "single-object"):  # that is what is read
        assert parse_batch_options({**BASE, **WITHOUT_REGISTRY, "valueFraming": framing}).warnings == ()
    defaults = {"keySubjectNameStrategy": "topic", "keySchemaVersion": "latest", "schemaEvolutionMode": "NONE"}
    assert parse_batch_options({**BASE, **defaults, "keyFraming": "none"}).warnings == ()
    given = {**AVRO, "valueSchema": "x", "valueSubject": "s", "valueSchemaVersion": "3"}
    given |= {"keyFormat": "avro", "keySchema": "x", "keySchemaVersion": "3"}
    assert sorted(parse_batch_options(given).warnings) == [
        "the option keySchemaVersion is ignored: keySchema is the schema to read with",
        "the option valueSchemaVersion is ignored: valueSchema is the schema to read with",
        "the option valueSubject is ignored: valueSchema is the schema to read with",
    ]


NEEDS_ID = (
    "{0}Framing={1} needs a registry, which has the schemas of the ids; set schema.registry.url, or {0}SchemaId to the "
    "id that all {0}s have, or remove it"
)
NEEDS_REGISTRY = "a registry; set schema.registry.url, or remove"
NEEDS_AVRO = "Avro or Protobuf; set keyFormat=avro or protobuf, or remove"
NEEDS_TYPED = "JSON, Avro or Protobuf; set keyFormat=json, avro or protobuf, or remove it"


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({**WITHOUT_REGISTRY, "valueFraming": "confluent"}, [NEEDS_ID.format("value", "confluent")]),
        ({**WITHOUT_REGISTRY, "valueFraming": "HEADER"}, [NEEDS_ID.format("value", "header")]),
        (
            {"keyFormat": "protobuf", "keySchema": "x", "keyFraming": "confluent"},
            [NEEDS_ID.format("key", "confluent")],
        ),
        ({"keyFraming": "confluent"}, [f"keyFraming=confluent needs {NEEDS_TYPED}"]),
        ({"keyFormat": "string", "keyFraming": "header"}, [f"keyFraming=header needs {NEEDS_TYPED}"]),
        ({"keyFormat": "string", "keyFraming": "single-object"}, [f"keyFraming=single-object needs {NEEDS_TYPED}"]),
        (
            {"schema.registry.url": "http://r", "valueFormat": "avro", "keyFraming": "confluent", "keySubject": "s"},
            [f"keySubject needs {NEEDS_AVRO} it. keyFraming=confluent needs {NEEDS_TYPED}"],
        ),
        (
            {"keyFormat": "json", "keySubject": "s", "keySchemaVersion": "3", "keySchemaId": "7"},
            [f"keySubject, keySchemaVersion, keySchemaId need {NEEDS_AVRO} them"],
        ),
        (
            {**WITHOUT_REGISTRY, "valueSubject": "s", "valueSubjectNameStrategy": "record", "valueFraming": "header"},
            [
                f"valueSubject, valueSubjectNameStrategy=record need {NEEDS_REGISTRY} them. ",
                NEEDS_ID.format("value", "header"),
            ],
        ),
        (
            {**WITHOUT_REGISTRY, "schemaEvolutionMode": "restart"},
            ["schemaEvolutionMode=restart needs Avro or Protobuf with schema ids; set schema.registry.url to their"],
        ),
        ({"schemaEvolutionMode": "restart"}, ["schemaEvolutionMode=restart needs Avro or Protobuf with schema ids"]),
        (
            {
                "valueFormat": "avro",
                "schema.registry.url": "http://r",
                "valueFraming": "none",
                "schemaEvolutionMode": "restart",
            },
            ["schemaEvolutionMode=restart needs Avro or Protobuf with schema ids"],
        ),
        (
            {
                **WITHOUT_REGISTRY,
                "basic.auth.user.info": "a:hunter2",
                "schema.registry.ssl.keystore.password": "hunter2",
            },
            [f"basic.auth.user.info, schema.registry.ssl.keystore.password need {NEEDS_REGISTRY} them"],
        ),
        (
            {"schema.registry.ssl.endpoint.identification.algorithm": "none"},
            [f"schema.registry.ssl.endpoint.identification.algorithm=none needs {NEEDS_REGISTRY} it"],
        ),
        (
            {**WITHOUT_REGISTRY, "valueSchemaId": "7", "schema.registry.url": "http://r"},
            ["valueSchemaId and schema.registry.url exclude each other, because a registry has the schemas of all ids"],
        ),
        (
            {**WITHOUT_REGISTRY, "valueSchemaId": "7", "valueFraming": "none"},
            ["valueSchemaId and valueFraming=none exclude each other"],
        ),
        (
            {**WITHOUT_REGISTRY, "valueSchemaId": "7", "valueFraming": "single-object"},
            ["valueSchemaId and valueFraming=single-object exclude each other"],
        ),
        (
            {"valueFormat": "protobuf", "valueSchema": "x", "valueSchemaId": "7", "valueFraming": "header"},
            ["valueFraming is confluent or none with valueFormat=protobuf"],
        ),
    ],
)
def test_options_that_say_how_bytes_are_read_are_not_ignored(options: dict[str, str], messages: list[str]) -> None:
    for parse in (parse_batch_options, parse_stream_options, parse_continuous_options, parse_columns):
        with pytest.raises(OptionError) as raised:
            parse({**BASE, **options})
        assert all(message in raised.value.message for message in messages), raised.value.message
        assert "hunter2" not in raised.value.message
    with pytest.raises(OptionError):
        parse_payload_arguments(options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (7, "confluent")),
        ({"valueFraming": "confluent"}, (7, "confluent")),
        ({"valueFraming": "header"}, (7, "header")),
        ({"valueSchemaId": " 0 "}, (0, "confluent")),
        ({"valueSchemaId": "2147483647"}, (2147483647, "confluent")),
        (
            {"valueSchemaId": "1F3C2A00-1111-2222-3333-00000000000A", "valueFraming": "header"},
            ("1f3c2a00-1111-2222-3333-00000000000a", "header"),
        ),
    ],
)
def test_the_id_of_a_schema_replaces_a_registry(options: dict[str, str], expected: tuple[int | str, str]) -> None:
    given = {**WITHOUT_REGISTRY, "valueSchemaId": "7", **options}
    for parse in (parse_batch_options, parse_stream_options, parse_continuous_options):
        parsed = parse({**BASE, **given})
        settings = parsed.payloads
        found = (settings.value.schema_id, settings.value.framing)
        assert (found, settings.key.schema_id, settings.registry) == (
            expected,
            None,
            None,
        )
        assert parsed.warnings == ()
    assert parse_payload_arguments(given) == parse_batch_options({**BASE, **given}).payloads


def test_defaults_of_protobuf() -> None:
    protobuf = {**BASE, "keyFormat": "protobuf", "keySchema": "a"}
    for parse in (parse_batch_options, parse_stream_options, parse_continuous_options):
        assert not parse(protobuf).payloads.emits_defaults
        assert parse({**protobuf, "Emit.Default.Values": "TRUE"}).payloads.emits_defaults
        with pytest.raises(OptionError, match=r"emit\.default\.values must be true or false"):
            parse({**protobuf, "emit.default.values": "yes"})
        (warning,) = parse({**BASE, "emit.default.values": "true"}).warnings
        assert "emit.default.values is ignored: nothing is decoded from Protobuf" in warning
        assert not parse({**BASE, "emit.default.values": "false"}).warnings
    arguments = {"valueFormat": "protobuf", "valueSchema": "a", "emit.default.values": "true"}
    assert parse_payload_arguments(arguments).emits_defaults
    assert parse_batch_options({**BASE, **arguments}).warnings == ()
    sink = {"kafka.bootstrap.servers": "b:9092", "valueFormat": "protobuf", "valueSchema": "a"}
    (warning,) = parse_sink_options({**sink, "emit.default.values": "true"}, streaming=True).warnings
    assert "emit.default.values is ignored: it applies to reads only" in warning


@pytest.mark.parametrize("value", ["", "-1", "+7", "07", "7.0", "seven", "2147483648", "9999999999", "7" * 11, "a-b"])
def test_ids_that_no_schema_has(value: str) -> None:
    with pytest.raises(OptionError, match=r"^valueSchemaId must be .*integer from 0 to 2147483647"):
        parse_batch_options({**BASE, **WITHOUT_REGISTRY, "valueSchemaId": value})


@pytest.mark.parametrize(
    ("payload_format", "names"),
    [
        ("json", ["dateFormat", "timestampFormat"]),
        ("avro", ["avroSchema", "positionalFieldMatching"]),
        ("protobuf", ["enums.as.ints", "upcast.unsigned.ints"]),
    ],
)
def test_options_of_sparks_functions_are_rejected(payload_format: str, names: list[str]) -> None:
    """Otherwise, values would differ from those of the function."""
    given = {name.lower(): "true" for name in names}  # as Spark converts names
    with pytest.raises(OptionError) as raised:
        parse_stream_options({**BASE, "keyFormat": payload_format, "keySchema": "a int", **given})
    shown = ", ".join(names)
    assert f"keyFormat={payload_format} does not have {shown}, which from_{payload_format}" in raised.value.message
    of_values = {"valueFormat": payload_format, "valueSchema": "a int"}
    for spelled in (str.lower, str.upper, str, "kafka.{}".format):  # a continuous query gets the names as given
        others = {spelled(name): "true" for name in names}
        for parse in (parse_stream_options, parse_continuous_options):
            with pytest.raises(OptionError, match=f"valueFormat={payload_format} does not have {re.escape(shown)}"):
                parse({**BASE, **of_values, **others})
    sink = {"kafka.bootstrap.servers": "b:9092", "keyFormat": payload_format, **given}
    with pytest.raises(OptionError, match=f"keyFormat={payload_format} does not have {re.escape(shown)}"):
        parse_sink_options(sink, streaming=True)
    other = "avro" if payload_format == "json" else "json"
    for value_format in ("binary", "string", other):  # Spark and wrappers pass options of other formats
        options = {**BASE, "valueFormat": value_format, "valueSchema": "a int", **given}
        if value_format in ("binary", "string"):
            del options["valueSchema"]
        assert len(parse_stream_options(options).warnings) == len(names)


@pytest.mark.parametrize(
    ("payload_format", "given"),
    [
        (
            "json",
            {"allowComments": "false", "allowSingleQuotes": "TRUE", "encoding": "UTF-8", "ignoreNullFields": "true"},
        ),
        ("json", {"primitivesAsString": "true", "prefersDecimal": "true", "samplingRatio": "1"}),  # of an inference
        ("avro", {"positionalFieldMatching": "false", "recursiveFieldMaxDepth": "-1"}),
        ("protobuf", {"enums.as.ints": "False", "recursive.fields.max.depth": "-1"}),
    ],
)
def test_options_of_sparks_functions_that_change_nothing(payload_format: str, given: dict[str, str]) -> None:
    options = {**BASE, "keyFormat": payload_format, "keySchema": "a int", **given}
    assert len(parse_stream_options(options).warnings) == len(given)
    sink = {"kafka.bootstrap.servers": "b:9092", "keyFormat": payload_format, **given}
    if payload_format != "json":
        sink["keySchema"] = "a int"
    assert len(parse_sink_options(sink, streaming=True).warnings) == len(given)


# Avro is drawn more often, because most options are for it.
FORMATS = st.sampled_from(["binary", "string", "json", "avro", "avro", "avro", "protobuf", "decoders:make"])
# Values that are not what an option has by default.
SAYS_HOW_BYTES_ARE_READ = {
    **{f"{side}Subject": "s" for side in ("key", "value")},
    **{f"{side}SubjectNameStrategy": "topic-record" for side in ("key", "value")},
    **{f"{side}SchemaVersion": "3" for side in ("key", "value")},
    **{f"{side}SchemaId": "7" for side in ("key", "value")},
    **{f"{side}Schema": "s" for side in ("key", "value")},
    **{f"{side}Message": "M" for side in ("key", "value")},
    "schemaEvolutionMode": "restart",
}


@example(  # JSON behind an id of a registry
    formats={"keyFormat": "json", "valueFormat": "binary"},
    names=set(),
    framings={"keyFraming": "confluent"},
    registry={"schema.registry.url": "http://localhost:8081"},
)
@given(
    formats=st.fixed_dictionaries({"keyFormat": FORMATS, "valueFormat": FORMATS}),
    names=st.sets(st.sampled_from(sorted(SAYS_HOW_BYTES_ARE_READ)), max_size=3),
    framings=st.dictionaries(
        st.sampled_from(["keyFraming", "valueFraming"]),
        st.sampled_from(["confluent", "header", "single-object", "none"]),
    ),
    registry=st.sampled_from([{}, {"schema.registry.url": "http://localhost:8081"}]),
)
def test_each_option_is_applied_rejected_or_warned_of(
    formats: dict[str, str], names: set[str], framings: dict[str, str], registry: dict[str, str]
) -> None:
    options = {**BASE, **formats, **framings, **registry, **{name: SAYS_HOW_BYTES_ARE_READ[name] for name in names}}
    try:
        parsed = parse_continuous_options(options)
    except OptionError:
        return
    for name in names | framings.keys() | registry.keys():
        try:
            without = parse_continuous_options({other: value for other, value in options.items() if other != name})
        except OptionError:
            continue  # the option is needed
        has_ids = registry or name.replace("Framing", "SchemaId") in names  # then, confluent is the default
        is_default = options[name] == "none" or (options[name] == "confluent" and has_ids)
        settings = parsed.payloads
        is_of_json = name == "schema.registry.url" and any(  # nothing is requested for JSON behind an id
            side.format == "json" and side.framing in ("confluent", "header") for side in (settings.key, settings.value)
        )
        is_applied = parsed.payloads != without.payloads or is_default or is_of_json
        assert is_applied or any(f"the option {name} is ignored" in warning for warning in parsed.warnings), name


@pytest.mark.parametrize("payload_format", ["binary", "string", "decoders:make", "avro", "protobuf"])
@pytest.mark.parametrize("side", ["key", "value"])
def test_ids_without_a_registry_are_rejected_in_each_format_but_json(side: str, payload_format: str) -> None:
    with pytest.raises(OptionError, match=f"{side}Framing"):
        parse_continuous_options({**BASE, f"{side}Format": payload_format, f"{side}Framing": "confluent"})


@pytest.mark.parametrize(
    ("options", "framing"),
    [
        ({}, "none"),
        ({"valueFraming": "confluent"}, "confluent"),
        ({"valueFraming": "header"}, "header"),
        ({"schema.registry.url": "https://one:8081"}, "none"),
        ({"schema.registry.url": "https://one:8081", "valueFraming": "confluent"}, "confluent"),
    ],
)
def test_where_the_schema_id_of_json_is(options: dict[str, str], framing: str) -> None:
    given = {**BASE, "valueFormat": "json", "valueSchema": "a int", **options}
    for parse in (parse_batch_options, parse_stream_options):
        parsed = parse(given)
        settings = parsed.payloads
        assert (settings.value.framing, settings.key.framing) == (framing, "none")
        assert settings.registry is None
        ignored = [warning for warning in parsed.warnings if "ignored" in warning]
        assert bool(ignored) == (list(options) == ["schema.registry.url"])


def test_json_has_no_single_object_encoding() -> None:
    with pytest.raises(OptionError, match="valueFraming is confluent, header or none with valueFormat=json"):
        parse_batch_options({**BASE, "valueFormat": "json", "valueFraming": "single-object"})


def test_a_stream_that_starts_at_latest_is_rejected_when_it_is_loaded() -> None:
    """A batch does not start at latest, so the errors of batch and stream differ."""
    stream = {**BASE, **WITHOUT_REGISTRY, "startingOffsets": "latest"}
    for options in ({"valueFraming": "confluent"}, {"KEYFRAMING": "header"}, {"valueSubject": "s"}):
        with pytest.raises(OptionError, match=f"(?i){next(iter(options))}.* needs? "):
            parse_columns({**stream, **options})
    assert (
        parse_columns({**stream, "valueSchemaId": "7"})[1]
        == parse_stream_options({**stream, "valueSchemaId": "7"}).payloads
    )
