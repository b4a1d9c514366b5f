"""The schemas of a registry, and the parser of its responses, which are not trusted.

{"schema": "...", "schemaType": "PROTOBUF",                     the type is absent for Avro
 "references": [{"name": "...", "subject": "...", "version": 1}],
 "ruleSet": {"domainRules": [{"name": "...", "type": "ENCRYPT", "disabled": false}], ...},
 "id": 5, "guid": "...", "subject": "...", "version": 3}        these depend on the request
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from pyspark_kafka_direct.errors import SchemaError, SchemaRegistryError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_REFERENCES: Final = 1000
"""Of one schema, those of its references included."""

_MAX_INT32: Final = 2**31 - 1
_MAX_NAME_CHARS: Final = 10_000
_MAX_SHOWN_RULES: Final = 5
_RULE_LISTS: Final = ("domainRules", "encodingRules", "migrationRules")
_ENCRYPTION: Final = "ENCRYPT"  # the types are ENCRYPT for fields and ENCRYPT_PAYLOAD


class SchemaReference(NamedTuple):
    """The version of a subject that a schema refers to by a name."""

    name: str  # of the Avro type, or of the imported Protobuf file
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that refers to others."""

    text: str
    schema_type: str = "AVRO"  # or PROTOBUF or JSON
    references: tuple[SchemaReference, ...] = ()


class NamedSchema(NamedTuple):
    """A schema that others refer to."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry, with what its response contains of its identity."""

    schema: Schema
    schema_id: int | None = None
    guid: UUID | None = None
    subject: str | None = None
    version: int | None = None
    encryption_rules: tuple[str, ...] = ()  # the names of rules that encrypt values


@dataclass(frozen=True, slots=True)
class ResolvedSchema:
    """A schema with all that it needs: each of ``dependencies`` is behind those that it refers to."""

    registered: RegisteredSchema
    dependencies: tuple[NamedSchema, ...] = ()

    @property
    def text(self) -> str:
        """The schema without its references."""
        return self.registered.schema.text

    @property
    def schema_type(self) -> str:
        """Return ``AVRO``, ``PROTOBUF`` or ``JSON``."""
        return self.registered.schema.schema_type

    def check_type(self, wanted: str, name: str, source: str) -> None:
        """Raise a SchemaError if the schema has another type; ``source`` is where it is from."""
        if self.schema_type != wanted:
            raise SchemaError(f"{source} is a schema of {self.schema_type}, not {name}")


def check_encryption(rules: Sequence[str], source: str) -> None:
    """Raise a SchemaError if there are rules that encrypt; ``source`` is where the schema is from."""
    if rules:
        raise SchemaError(
            f"{source} has rules that encrypt fields or values ({', '.join(map(repr, rules))}), which is not "
            "supported: they would be written without encryption, and read as encrypted bytes. Write or read these "
            "records as binary, or use a subject without such rules."
        )


def parse_registered_schema(content: Any, source: str) -> RegisteredSchema:
    """Parse a response with a schema; ``source`` begins errors."""
    if not isinstance(content, dict) or not isinstance(content.get("schema"), str):
        raise invalid_response(source, "without a schema")
    references = content.get("references") or []
    if not isinstance(references, list) or len(references) > MAX_REFERENCES:
        raise invalid_response(source, f"whose references are not a list of at most {MAX_REFERENCES}")
    return RegisteredSchema(
        schema=Schema(
            content["schema"],
            _name(content.get("schemaType") or "AVRO", source, "schemaType").upper(),
            tuple(_parse_reference(reference, source) for reference in references),
        ),
        schema_id=_optional_number(content, "id", source),
        guid=parse_guid(content.get("guid"), source),
        subject=None if content.get("subject") is None else _name(content["subject"], source, "subject"),
        version=_optional_number(content, "version", source),
        encryption_rules=_encryption_rules(content.get("ruleSet"), source),
    )


def parse_schema_id(content: Any, source: str) -> int:
    """Parse the response to a registration."""
    schema_id = _optional_number(content, "id", source) if isinstance(content, dict) else None
    if schema_id is None:
        raise invalid_response(source, "without an id")
    return schema_id


def parse_versions(content: Any, source: str) -> list[tuple[str, int]]:
    """Parse the subjects and versions of a schema; incomplete entries are left out, because only errors show them."""
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise invalid_response(source, "without versions")
    versions = [(entry.get("subject"), _optional_number(entry, "version", source)) for entry in content]
    return [(printable(subject), version) for subject, version in versions if isinstance(subject, str) and version]


def parse_guid(guid: Any, source: str) -> UUID | None:
    """Parse a GUID, which older registries do not have."""
    if guid is None:
        return None
    try:
        return UUID(guid)
    except (ValueError, TypeError, AttributeError):
        raise invalid_response(source, "whose guid is invalid") from None


def invalid_response(source: str, problem: str) -> SchemaRegistryError:
    """Return the error for a response that Confluent's API does not have."""
    return SchemaRegistryError(f"{source}: the registry returned a response {problem}; check schema.registry.url.")


def _parse_reference(reference: Any, source: str) -> SchemaReference:
    if not isinstance(reference, dict):
        raise invalid_response(source, "with an invalid reference")
    version = _optional_number(reference, "version", source)
    if version is None:
        raise invalid_response(source, "with a reference that has no version")
    name, subject = (_name(reference.get(key), source, f"{key} of a reference") for key in ("name", "subject"))
    return SchemaReference(name, subject, version)


def _name(value: Any, source: str, key: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME_CHARS:
        raise invalid_response(source, f"whose {key} is invalid")
    return value


def _optional_number(content: dict[str, Any], key: str, source: str) -> int | None:
    value = content.get(key)
    if value is not None and (type(value) is not int or not -_MAX_INT32 <= value <= _MAX_INT32):
        raise invalid_response(source, f"whose {key} is not an integer of 32 bits")
    return value


def _encryption_rules(rule_set: Any, source: str) -> tuple[str, ...]:
    """Return the names of rules that encrypt, of which an error shows some."""
    if rule_set is None:
        return ()
    if not isinstance(rule_set, dict):
        raise invalid_response(source, "whose ruleSet is invalid")
    names: list[str] = []
    for key in _RULE_LISTS:
        rules = rule_set.get(key) or []
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise invalid_response(source, f"whose {key} are invalid")
        names += [
            printable(str(rule.get("name")))
            for rule in rules
            if str(rule.get("type")).upper().startswith(_ENCRYPTION) and rule.get("disabled") is not True
        ]
    return tuple(names[:_MAX_SHOWN_RULES])
