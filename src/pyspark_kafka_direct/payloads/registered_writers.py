"""The schemas of writers in a registry, and what to change if one of them cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from pyspark_kafka_direct.errors import SchemaError, SchemaNotFoundError
from pyspark_kafka_direct.payloads.registry.registry_client import registry_client
from pyspark_kafka_direct.payloads.writer_schemas import WriterSchemaError, schema_label

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.options.registry_settings import RegistrySettings
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema

_T = TypeVar("_T")


def fetch_writer_schema(
    settings: RegistrySettings, schema_id: int | str, parse: Callable[[ResolvedSchema, str], _T]
) -> _T:
    """Return the parsed schema with an id or GUID; a registry that is not available is an error of the task.

    ``parse`` receives the schema and its name for errors, and may raise a ``SchemaError``.
    """
    client, label = registry_client(settings), schema_label(schema_id)
    try:
        if isinstance(schema_id, int):
            resolved = client.schema_by_id(schema_id)
        else:
            resolved = client.schema_by_guid(UUID(schema_id))
        return parse(resolved, f"schema id {schema_id}")
    except SchemaNotFoundError as error:
        advice = f"{label} has to be in the registry of schema.registry.url: register it there, or set the other URL"
        raise WriterSchemaError(error.message.rstrip("."), advice) from None
    except SchemaError as error:  # of the registry or of parse
        advice = (
            f"{label} cannot be used by this query: set keyFormat or valueFormat to the format of the schema, or to "
            "binary, or write with another schema"
        )
        raise WriterSchemaError(error.message.rstrip("."), advice) from None
