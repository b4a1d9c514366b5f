"""The Avro schemas of a registry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import SchemaError, SchemaRegistryError
from pyspark_kafka_direct.payloads.avro.avro_types import AvroSchemaError
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.avro.schema_evolution import new_fields, new_values
from pyspark_kafka_direct.payloads.new_parts import check_new_parts
from pyspark_kafka_direct.payloads.registered_writers import fetch_writer_schema
from pyspark_kafka_direct.payloads.registry.registry_client import registry_client

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.registry_settings import RegistrySettings
    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema

_MAX_SHOWN_VERSIONS: Final = 5


@dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """A ``WriterSchemas``. With ``reader``, a writer schema that has what the reader's lacks fails the query."""

    settings: RegistrySettings
    reader: AvroSchema | None = None  # None: new fields and values do not matter
    source: str = ""  # where the reader is from, for errors

    def writer_schema(self, schema_id: int | str) -> AvroSchema:
        """Return the schema with an id or GUID, which a process requests once."""
        schema = fetch_writer_schema(self.settings, schema_id, avro_schema)
        if self.reader is not None:
            self._check_evolution(schema_id, schema, self.reader)
        return schema

    def _check_evolution(self, schema_id: int | str, writer: AvroSchema, reader: AvroSchema) -> None:
        roots = writer.root, reader.root
        check_new_parts(
            lambda: f"schema id {schema_id}{self._versions(schema_id)}",
            self.source,
            new_fields(*roots),
            new_values(*roots),
        )

    def _versions(self, schema_id: int | str) -> str:
        """Return the subjects and versions of a schema for an error, or nothing if they are not available."""
        if not isinstance(schema_id, int):
            return ""
        try:
            versions = registry_client(self.settings).versions_of_id(schema_id)
        except SchemaRegistryError:
            return ""
        return "".join(f", version {version} of {subject}" for subject, version in versions[:_MAX_SHOWN_VERSIONS])


def avro_schema(resolved: ResolvedSchema, source: str) -> AvroSchema:
    """Return the parsed schema; a SchemaError if it is not Avro."""
    resolved.check_type("AVRO", "of Avro", source)
    try:
        return _parse(resolved.text, tuple(dependency.text for dependency in resolved.dependencies))
    except AvroSchemaError as error:
        raise SchemaError(f"{source} cannot be used: {error}") from None


@lru_cache(maxsize=64)
def _parse(text: str, references: tuple[str, ...]) -> AvroSchema:
    return parse_avro_schema(text, references)
