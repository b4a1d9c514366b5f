"""The message type of values whose schema the query has, and the ids and message indexes in front of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.formats.protobuf.schema import source_schema
from pyspark_kafka_direct.formats.writer_schemas import other_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from pyspark_kafka_direct.config.payload_settings import ProtobufSource
    from pyspark_kafka_direct.formats.protobuf.proto_types import ProtobufSchema, ProtoMessage

_MAX_SHOWN_INDEXES: Final = 10


@dataclass(frozen=True, slots=True)
class GivenMessage:
    """Finds out whether values have the schema id and the message type of the query. Pickled into tasks."""

    reader: ProtobufSource
    schema_id: int | str

    def problem(self, schema_id: int | str, indexes: tuple[int, ...], _wanted: Iterable[pa.Field]) -> str | None:
        """Return why messages cannot be read, or None."""
        if schema_id != self.schema_id:
            return other_id(schema_id, self.schema_id)
        schema = source_schema(self.reader)
        found = named_message(schema, schema_id, indexes, schema.message(self.reader.message).name)
        return found if isinstance(found, str) else None


def named_message(
    schema: ProtobufSchema, schema_id: int | str, indexes: tuple[int, ...], name: str
) -> ProtoMessage | str:
    """Return the message of a writer's schema with some indexes, or why it is not the one that is read."""
    message = schema.message_at(indexes)
    if message is None:
        shown = ", ".join(map(str, indexes[:_MAX_SHOWN_INDEXES]))
        more = ", ..." if len(indexes) > _MAX_SHOWN_INDEXES else ""
        return f"schema id {schema_id} has no message with the indexes [{shown}{more}]"
    return message if message.name == name else f"the value is a message {message.name}, not {name}"
