"""The schemas of writers in a registry, and what to change if one of them cannot be used."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from pyspark_kafka_direct.errors import SchemaError, SchemaNotFoundError
from pyspark_kafka_direct.payloads.registry.registry_client import registry_client
from pyspark_kafka_direct.payloads.writer_schemas import WriterSchemaError, schema_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.options.registry_settings import RegistrySettings
    from pyspark_kafka_direct.payloads.registry.registered_schema import ResolvedSchema

_T = TypeVar("_T")
_MAX_SHOWN: Final = 5


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


def check_new_parts(writer: Callable[[], str], source: str, fields: Iterator[str], values: Iterator[str]) -> None:
    """Raise a SchemaError if there are new fields or values; ``writer`` returns the id and versions of its schema."""
    # An error about new fields does not mention new values, because a new load() finds both.
    for kind, parts in (("fields", fields), ("values", values)):
        found = list(itertools.islice(parts, _MAX_SHOWN + 1))
        if found:
            shown = ", ".join(found[:_MAX_SHOWN]) + (", ..." if len(found) > _MAX_SHOWN else "")
            raise SchemaError(
                f"The schema of the writer ({writer()}) has {kind} that the schema of the query ({source}) lacks: "
                f"{shown}. To read them, start the query again with a new load(). To ignore them, set "
                "schemaEvolutionMode=none."
            )
