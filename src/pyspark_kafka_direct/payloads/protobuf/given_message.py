"""The message type of values whose schema the query has, and the ids and message indexes in front of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.payloads.framing import NO_MESSAGE
from pyspark_kafka_direct.payloads.protobuf.schema import ProtobufSource, source_schema
from pyspark_kafka_direct.payloads.writer_schemas import WriterSchemaError, other_id, schema_label

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from pyspark_kafka_direct.payloads.protobuf.proto_types import ProtobufSchema, ProtoMessage

_MAX_SHOWN_INDEXES: Final = 10


@dataclass(frozen=True, slots=True)
class GivenMessage:
    """Finds out whether values have the schema id and the message type of the query. Pickled into tasks."""

    reader: ProtobufSource
    schema_id: int | str

    def check(self, schema_id: int | str, indexes: tuple[int, ...], _wanted: Iterable[pa.Field]) -> None:
        """Raise a WriterSchemaError if messages cannot be read, regardless of the wanted fields."""
        if schema_id != self.schema_id:
            raise other_id(schema_id, self.schema_id)
        if indexes != NO_MESSAGE:  # otherwise, the framing has made the values malformed
            schema = source_schema(self.reader)
            named_message(schema, schema_id, indexes, schema.message(self.reader.message).name)


def named_message(schema: ProtobufSchema, schema_id: int | str, indexes: tuple[int, ...], name: str) -> ProtoMessage:
    """Return the message of a writer's schema with some indexes; a WriterSchemaError if it is not the one to read."""
    message = schema.message_at(indexes)
    if message is None:
        shown = ", ".join(map(str, indexes[:_MAX_SHOWN_INDEXES]))
        more = ", ..." if len(indexes) > _MAX_SHOWN_INDEXES else ""
        raise WriterSchemaError(
            f"schema id {schema_id} has no message with the indexes [{shown}{more}]",
            f"{schema_label(schema_id)} is not the schema that these messages were written with: compare the registry "
            "and the schema of the query with those of the writer",
        )
    if message.name != name:
        raise WriterSchemaError(
            f"the value is a message {message.name}, not {name}",
            f"{schema_label(schema_id)} has several messages: to read this one, set keyMessage or valueMessage to "
            f"{message.name} in a separate query",
        )
    return message
