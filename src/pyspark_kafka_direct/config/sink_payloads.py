"""How a sink encodes keys and values: the options ``keyFormat``, ``valueFormat``, and those of their schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from pyspark_kafka_direct.config import option_messages
from pyspark_kafka_direct.config.function_options import check_function_options
from pyspark_kafka_direct.config.registry_parser import (
    NEEDS_REGISTRY,
    REGISTRY_URL,
    SCHEMA_FORMATS,
    check_framing,
    parse_registry,
    parse_subject,
    unused_registry_warnings,
)
from pyspark_kafka_direct.config.subject_names import SIDES, Side
from pyspark_kafka_direct.config.unused_options import UnusedOptions
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from pyspark_kafka_direct.config.option_parser import ParsedConfig
    from pyspark_kafka_direct.config.registry_settings import RegistrySettings, SubjectSettings
    from pyspark_kafka_direct.config.security_settings import SecuritySettings

SinkFormat: TypeAlias = Literal["avro", "protobuf", "json"]

AUTO_REGISTER: Final = "auto.register.schemas"
USE_LATEST: Final = "use.latest.version"

_BY_TYPE: Final = ("binary", "string", "json")  # the type of the column says how it is written
_REGISTRY_OPTIONS: Final = ("Subject", "SubjectNameStrategy", "SchemaVersion")
_SCHEMA_OPTIONS: Final = ("Schema", "Framing", *_REGISTRY_OPTIONS)


@dataclass(frozen=True, slots=True)
class SinkColumn:
    """How keys or values are encoded."""

    side: Side
    subject: SubjectSettings
    schema: str | None  # None: that of the subject, or that of the column's type
    payload_format: SinkFormat = "avro"
    message: str | None = None  # the message type of Protobuf; None: the first one of the schema
    schema_argument: str | None = None  # of a function, with the schema; None: an option of the sink

    @property
    def schema_option(self) -> str:
        """What the user sets to a schema, for errors."""
        return self.schema_argument or f"{self.side}Schema"


@dataclass(frozen=True, slots=True)
class SinkPayloads:
    """The columns that a sink writes with a schema. A sink writes others by their types."""

    columns: tuple[SinkColumn, ...] = ()
    registry: RegistrySettings | None = None
    auto_register: bool = False
    use_latest: bool = True  # otherwise, the schema of the column's type has to be in the subject

    @property
    def sides_with_types(self) -> frozenset[str]:
        """The columns whose types are compared with those of a schema; for JSON, the rules of other columns apply."""
        return frozenset(column.side for column in self.columns if column.payload_format != "json")


NO_SINK_PAYLOADS: Final = SinkPayloads()


def parse_sink_payloads(parsed: ParsedConfig, security: SecuritySettings, warnings: list[str]) -> SinkPayloads:
    """Return what is encoded; ``security`` are the settings of the brokers, which a registry may use too."""
    formats = {side: _format(parsed, side) for side in SIDES}
    sides = tuple(side for side in SIDES if formats[side] in SCHEMA_FORMATS or _has_json_ids(parsed, side))
    check_function_options(parsed, formats)
    registry = parse_registry(parsed, security, warnings)
    _check_unused_options(parsed, sides, has_registry=registry is not None)
    if not sides:
        warnings += unused_registry_warnings(
            parsed, "nothing is written as Avro or Protobuf, or as JSON with schema ids"
        )
        return NO_SINK_PAYLOADS
    auto_register = parsed.get_boolean(AUTO_REGISTER)
    use_latest = parsed.values.get(USE_LATEST)
    if auto_register and use_latest:
        raise OptionError(
            f"{parsed.name_of(AUTO_REGISTER)} and {parsed.name_of(USE_LATEST)} exclude each other: the one registers a "
            "schema, the other writes with the latest one of the subject. Set only one of them"
        )
    warnings += [
        option_messages.ignored_warning(parsed.source, given, "the schema is not that of a version of the subject")
        for side in sides
        if (given := parsed.given_names.get(f"{side}SchemaVersion"))
        and (parsed.get_string(f"{side}Schema") or auto_register or use_latest is False)
    ]
    columns = tuple(_column(parsed, side, formats[side], has_registry=registry is not None) for side in sides)
    for column in columns:
        if use_latest and column.schema is not None:
            raise OptionError(
                f"{parsed.name_of(f'{column.side}Schema')} and {parsed.name_of(USE_LATEST)} exclude each other; set "
                "only one of them"
            )
    use_latest = use_latest is not False and not auto_register
    for column in columns:
        if column.payload_format != "avro" and column.schema is None and registry is not None and not use_latest:
            given = AUTO_REGISTER if auto_register else USE_LATEST
            kind, text = ("a Protobuf schema", "the text of a .proto file")
            if column.payload_format == "json":
                kind = text = "a JSON Schema"
            raise OptionError(
                f"{parsed.name_of(given)} needs {column.side}Schema with {column.side}Format={column.payload_format}: "
                f"the types of columns do not define {kind}. Set it to {text}"
            )
    return SinkPayloads(columns, registry, auto_register, use_latest)


def _format(parsed: ParsedConfig, side: Side) -> str:
    payload_format = parsed.get_string(f"{side}Format") or ""
    if payload_format not in (*_BY_TYPE, *SCHEMA_FORMATS):
        raise OptionError(
            f"{parsed.name_of(f'{side}Format')} must be {', '.join(_BY_TYPE)}, avro or protobuf in a write, got "
            f"{payload_format!r}"
        )
    return payload_format


def _has_json_ids(parsed: ParsedConfig, side: Side) -> bool:
    """Return whether schema ids are written with JSON, for which there is no default as for other formats."""
    return parsed.get_string(f"{side}Format") == "json" and (parsed.get_string(f"{side}Framing") or "none") != "none"


def _column(parsed: ParsedConfig, side: Side, payload_format: str, *, has_registry: bool) -> SinkColumn:
    schema = parsed.get_string(f"{side}Schema")
    subject = parse_subject(parsed, side, has_registry=has_registry)
    if not has_registry and schema is None and payload_format != "json":
        kind = "an Avro schema, which is JSON" if payload_format == "avro" else "the text of a .proto file"
        raise OptionError(
            f"{side}Format={payload_format} needs the schema: set {side}Schema to {kind}, or "
            "schema.registry.url to a schema registry"
        )
    check_framing(parsed, side)
    message = parsed.get_string(f"{side}Message") if payload_format == "protobuf" else None
    return SinkColumn(side, subject, schema, cast("SinkFormat", payload_format), message or None)


def _check_unused_options(parsed: ParsedConfig, sides: tuple[Side, ...], *, has_registry: bool) -> None:
    """Reject options that say how keys and values are written and that would have no effect."""
    unused = UnusedOptions(parsed)
    for side in SIDES:
        if parsed.get_string(f"{side}Format") != "protobuf":
            unused.add(f"{side}Message", f"Protobuf; set {side}Format=protobuf")
        if side not in sides:
            need = f"Avro or Protobuf; set {side}Format=avro or protobuf"
            if parsed.get_string(f"{side}Format") == "json":
                need = f"schema ids, which JSON has with {side}Framing=confluent or header; set one of these"
            for name in _SCHEMA_OPTIONS:
                unused.add(f"{side}{name}", need)
        elif not has_registry:
            for name in _REGISTRY_OPTIONS:
                unused.add(f"{side}{name}", NEEDS_REGISTRY)
            framing = parsed.get_string(f"{side}Framing")
            if framing == "confluent" or (framing == "header" and parsed.get_string(f"{side}Format") != "protobuf"):
                unused.add(f"{side}Framing", f"a registry, which has the id; set {REGISTRY_URL}")
    for name in (AUTO_REGISTER, USE_LATEST):
        if not sides:
            unused.add(name, "Avro, Protobuf, or JSON with schema ids; set valueFormat=avro or protobuf")
        elif not has_registry:
            unused.add(name, NEEDS_REGISTRY)
    unused.check()
