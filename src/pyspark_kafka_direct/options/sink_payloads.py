"""Encoding of keys and values by a sink: ``keyFormat``, ``valueFormat``, and the options of their schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options import option_messages
from pyspark_kafka_direct.options.hints import either
from pyspark_kafka_direct.options.payload_formats import FORMATS, format_row, needed_format
from pyspark_kafka_direct.options.payload_settings import SIDES
from pyspark_kafka_direct.options.registry_parser import (
    NEEDS_REGISTRY,
    REGISTRY_URL,
    parse_registry,
    parse_side,
    unused_registry_warnings,
)
from pyspark_kafka_direct.options.registry_settings import ID_FRAMINGS
from pyspark_kafka_direct.options.unused_options import UnusedOptions, check_function_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.payload_settings import Side, SidePayload
    from pyspark_kafka_direct.options.registry_settings import RegistrySettings
    from pyspark_kafka_direct.options.security_settings import SecuritySettings

AUTO_REGISTER: Final = "auto.register.schemas"
USE_LATEST: Final = "use.latest.version"

_REGISTRY_OPTIONS: Final = ("Subject", "SubjectNameStrategy", "SchemaVersion")
_SCHEMA_OPTIONS: Final = ("Schema", "Framing", *_REGISTRY_OPTIONS)


@dataclass(frozen=True, slots=True)
class SinkPayloads:
    """The columns that a sink writes with a schema or in a charset. A sink writes others by their types."""

    sides: tuple[SidePayload, ...] = ()
    registry: RegistrySettings | None = None
    auto_register: bool = False
    use_latest: bool = True  # otherwise, the schema of the column's type has to be in the subject
    schema_argument: str | None = None  # of a function, with the schema; None: the options of the sink

    @property
    def sides_with_types(self) -> frozenset[str]:
        """The columns whose types are compared with those of a schema; for JSON, the rules of other columns apply."""
        return frozenset(each.side for each in self.sides if not format_row(each.format).written_by_type)


def parse_sink_payloads(parsed: ParsedConfig, security: SecuritySettings, warnings: list[str]) -> SinkPayloads:
    """Return what is encoded; ``security`` are the settings of the brokers, which a registry may use too."""
    formats = {side: _format(parsed, side) for side in SIDES}
    # There is no default framing of JSON: without one, it is written without a schema.
    with_schema = [side for side in SIDES if format_row(formats[side]).encoded_by_schema or _has_ids(parsed, side)]
    check_function_options(parsed, formats)
    registry = parse_registry(parsed, security, warnings)
    _check_unused_options(parsed, with_schema, has_registry=registry is not None)
    in_charset = tuple(parse_side(parsed, side) for side in SIDES if parsed.get_string(f"{side}Charset"))
    if not with_schema:
        warnings += unused_registry_warnings(
            parsed, "nothing is written as Avro or Protobuf, or as JSON with schema ids"
        )
        return SinkPayloads(in_charset)
    auto_register = parsed.get_boolean(AUTO_REGISTER)
    given_use_latest = parsed.values.get(USE_LATEST)  # None: not given
    if auto_register and given_use_latest:
        raise OptionError(
            f"{parsed.name_of(AUTO_REGISTER)} and {parsed.name_of(USE_LATEST)} exclude each other: the one registers a "
            "schema, the other writes with the latest one of the subject. Set only one of them"
        )
    warnings += [
        option_messages.ignored_warning(parsed.source, given, "the schema is not that of a version of the subject")
        for side in with_schema
        if (given := parsed.given_names.get(f"{side}SchemaVersion"))
        and (parsed.get_string(f"{side}Schema") or auto_register or given_use_latest is False)
    ]
    sides = tuple(_parse_side(parsed, side, has_registry=registry is not None) for side in with_schema)
    if given_use_latest:
        _check_no_schemas(parsed, sides)
    use_latest = given_use_latest is not False and not auto_register
    if registry is not None and not use_latest:
        _check_derived_schemas(parsed, sides, AUTO_REGISTER if auto_register else USE_LATEST)
    return SinkPayloads((*sides, *in_charset), registry, auto_register, use_latest)


def _check_no_schemas(parsed: ParsedConfig, sides: Iterable[SidePayload]) -> None:
    """Raise an error if a schema is given although the latest one of the subject has to be written."""
    for payload in sides:
        if payload.schema is not None:
            raise OptionError(
                f"{parsed.name_of(f'{payload.side}Schema')} and {parsed.name_of(USE_LATEST)} exclude each other; set "
                "only one of them"
            )


def _check_derived_schemas(parsed: ParsedConfig, sides: Iterable[SidePayload], cause: str) -> None:
    """Raise an error if the column's type has to define the schema and cannot; ``cause`` is the option's name."""
    for payload in sides:
        row = format_row(payload.format)
        if payload.schema is None and not row.derives_schema:
            raise OptionError(
                f"{parsed.name_of(cause)} needs {payload.side}Schema with {payload.side}Format={payload.format}: the "
                f"types of columns do not define {row.schema_kind}. Set it to {row.schema_text}"
            )


def _format(parsed: ParsedConfig, side: Side) -> str:
    payload_format = parsed.get_string(f"{side}Format") or ""
    if payload_format not in FORMATS:
        raise OptionError(
            f"{parsed.name_of(f'{side}Format')} must be {either([*FORMATS])} in a write, got {payload_format!r}"
        )
    return payload_format


def _has_ids(parsed: ParsedConfig, side: Side) -> bool:
    """Return whether schema ids are written, of a format that can also be written without them."""
    has_framings = format_row(parsed.get_string(f"{side}Format") or "").framings
    return bool(has_framings) and (parsed.get_string(f"{side}Framing") or "none") != "none"


def _parse_side(parsed: ParsedConfig, side: Side, *, has_registry: bool) -> SidePayload:
    payload = parse_side(parsed, side)
    row = format_row(payload.format)
    if not has_registry and payload.schema is None and row.encoded_by_schema:
        raise OptionError(
            f"{side}Format={payload.format} needs the schema: set {side}Schema to {row.schema_text}, or "
            f"{REGISTRY_URL} to a schema registry"
        )
    return payload


def _check_unused_options(parsed: ParsedConfig, sides: list[Side], *, has_registry: bool) -> None:
    """Reject options that say how keys and values are written and that would have no effect."""
    unused = UnusedOptions(parsed)
    for side in SIDES:
        row = format_row(parsed.get_string(f"{side}Format") or "")
        if not row.has_message:
            unused.add(f"{side}Message", needed_format(side, lambda each: each.has_message))
        if not row.has_charset:
            unused.add(f"{side}Charset", needed_format(side, lambda each: each.has_charset))
        if side not in sides:  # it is written without a schema
            need = needed_format(side, lambda each: each.encoded_by_schema)
            if row.framings:
                need = f"schema ids, which {row.title} has with {side}Framing={either(ID_FRAMINGS)}; set one of these"
            for name in _SCHEMA_OPTIONS:
                unused.add(f"{side}{name}", need)
        elif not has_registry:
            for name in _REGISTRY_OPTIONS:
                unused.add(f"{side}{name}", NEEDS_REGISTRY)
            framing = parsed.get_string(f"{side}Framing")
            if framing in ID_FRAMINGS and framing in row.framings:
                unused.add(f"{side}Framing", f"a registry, which has the id; set {REGISTRY_URL}")
    for name in (AUTO_REGISTER, USE_LATEST):
        if not sides:
            unused.add(name, "Avro, Protobuf, or JSON with schema ids; set valueFormat=avro or protobuf")
        elif not has_registry:
            unused.add(name, NEEDS_REGISTRY)
    unused.check()
