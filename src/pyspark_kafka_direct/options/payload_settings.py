"""Settings for decoding and encoding keys and values. Tasks unpickle them, so this module imports little."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.registry_settings import (
        EvolutionMode,
        FramingName,
        RegistrySettings,
        SubjectNameStrategy,
    )

Side: TypeAlias = Literal["key", "value"]

SIDES: Final[tuple[Side, ...]] = ("key", "value")

BINARY: Final = "binary"

MalformedMode: TypeAlias = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]

LATEST_VERSION: Final = "latest"

DEFAULT_CORRUPT_RECORD: Final = "_corrupt_record"

WANTED_FIELDS: Final = "name the wanted fields with .schema()"
"""The rules for a field that Spark has no type for."""

DECODED_COMMENT: Final = "decoded"
"""The comment of a column of strings or bytes that are not those of the record."""

ERROR_COLUMN: Final = "_error"
"""The column with the errors of malformed records, if a schema names it."""


@dataclass(frozen=True, slots=True)
class SidePayload:
    """Settings for decoding or encoding keys, or values."""

    side: Side
    format: str = BINARY  # the name of a row of payload_formats, or module:factory for a decoder of the user
    schema: str | None = None  # DDL, or a schema of the format. None: that of the registry, or the column's type
    message: str | None = None  # the message type of the schema; None: the first one
    framing: FramingName = "none"  # where the id of the schema is
    schema_id: int | str | None = None  # that all values have, without a registry; a string is a GUID
    references: tuple[tuple[str, str], ...] = ()  # the names and texts of schemas that the schema refers to
    source: str = ""  # where the schema is from, for errors
    charset: str | None = None  # None: UTF-8 that is not checked
    subject: str | None = None  # of the registry; None: it follows from the strategy
    strategy: SubjectNameStrategy = "topic"
    version: str = LATEST_VERSION  # or a number
    has_given_framing: bool = False  # of a format whose default depends on where the fields are from

    @property
    def schema_option(self) -> str:
        """The name of the option that has the schema, which is also its source in a query with a registry."""
        return f"{self.side}Schema"

    @property
    def may_be_malformed(self) -> bool:
        """Whether keys or values are decoded in a way that can fail."""
        from pyspark_kafka_direct.options.payload_formats import format_row

        return format_row(self.format).decodes or self.charset is not None

    def __reduce__(self) -> tuple[type[SidePayload], tuple[object, ...]]:
        """Pickle it without the defaults at the end, of which tasks have many."""
        values = [(getattr(self, each.name), each.default) for each in fields(self)]
        while values[-1][0] == values[-1][1]:  # ends, because `side` has no default
            values.pop()
        return SidePayload, tuple(value for value, _ in values)


@dataclass(frozen=True, slots=True)
class PayloadSettings:
    """Settings for decoding the keys and values of a query."""

    key: SidePayload = SidePayload("key")
    value: SidePayload = SidePayload("value")
    mode: MalformedMode = "PERMISSIVE"
    corrupt_record: str = DEFAULT_CORRUPT_RECORD  # the field with the text of a malformed key or value
    registry: RegistrySettings | None = None  # of writers' schemas
    evolution: EvolutionMode = "none"
    emits_defaults: bool = False  # of Protobuf fields that are missing

    def side(self, column: str) -> SidePayload | None:
        """Return how a column of Kafka records is decoded, or None if it is bytes, as all but keys and values are."""
        side = {"key": self.key, "value": self.value}.get(column)
        return None if side is None or side.format == BINARY else side

    def with_side(self, side: SidePayload) -> PayloadSettings:
        """Return a copy in which keys or values are decoded in another way."""
        return replace(self, key=side) if side.side == "key" else replace(self, value=side)

    @property
    def decodes(self) -> bool:
        """Whether a column is anything but bytes."""
        return (self.key.format, self.value.format) != (BINARY, BINARY)

    def for_tasks(self) -> PayloadSettings:
        """Return what tasks need of it: they have the types of columns without DDL, and request no subjects."""
        from pyspark_kafka_direct.options.payload_formats import format_row

        def stripped(side: SidePayload) -> SidePayload:
            schema = side.schema if format_row(side.format).encoded_by_schema else None
            return replace(side, schema=schema, subject=None, strategy="topic", version=LATEST_VERSION)

        needs_registry = any(format_row(side.format).encoded_by_schema for side in (self.key, self.value))
        registry = self.registry if needs_registry else None
        return replace(self, key=stripped(self.key), value=stripped(self.value), registry=registry)


def subject_name(strategy: SubjectNameStrategy, topic: str, side: Side, record_name: str) -> str:
    """Return the subject of the keys or values of a topic; ``record_name`` is the full name of their schema."""
    match strategy:
        case "topic":
            return f"{topic}-{side}"
        case "record":
            return record_name
        case "topic-record":
            return f"{topic}-{record_name}"


def is_short_subject(side: SidePayload) -> bool:
    """Return whether the subject has the name of a Protobuf message that may lack its package."""
    return side.strategy != "topic" and side.subject is None and side.message is not None and "." not in side.message


def short_subject_advice(side: SidePayload) -> str:
    """Return what to do if the registry does not have such a subject."""
    return (
        f"With {side.side}SubjectNameStrategy={side.strategy}, {side.side}Message must be the full name of the "
        f"message, such as flights.Flight. Or set {side.side}Subject."
    )
