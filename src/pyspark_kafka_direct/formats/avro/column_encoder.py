"""A column that is encoded as Avro: a writer schema, and the bytes in front of each datum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.formats.avro.avro_types import AvroSchemaError, type_name
from pyspark_kafka_direct.formats.avro.derived_schema import derived_schema
from pyspark_kafka_direct.formats.avro.encoder_program import compile_encoder
from pyspark_kafka_direct.formats.avro.schema import parse_avro_schema
from pyspark_kafka_direct.records import create_avro_encoder
from pyspark_kafka_direct.records.avro_encoding import MESSAGES, AvroEncoding, InvalidValueError
from pyspark_kafka_direct.records.json_types import encodable

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.formats.avro.schema import AvroSchema
    from pyspark_kafka_direct.records.avro_encoding import AvroEncoder

FORMAT_NAME: Final = "Avro"


@dataclass(frozen=True, slots=True)
class AvroWriteSettings:
    """How tasks encode a column. Pickled into them."""

    schema: AvroSchema
    prefix: bytes = b""  # in front of each datum
    header: tuple[str, bytes] | None = None  # of each record: a name and a value
    source: str = ""  # where the schema is from, for errors


class InvalidRowError(ValueError):
    """A row that the writer schema does not allow; ``row`` counts from the start of the array."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


class AvroColumnEncoder:
    """Encodes the batches of a task, whose column may change its type."""

    def __init__(self, column: str, settings: AvroWriteSettings) -> None:
        self._column = column
        self._settings = settings
        self._type: pa.DataType | None = None
        self._paths: tuple[str, ...] = ()
        self._encoder: AvroEncoder | None = None

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode each value of a column; a null value is null.

        Raises:
            AvroSchemaError: The schema does not fit the type of the column.
            InvalidRowError: It does not allow a value.
        """
        import pyarrow as pa

        values = encodable(values, FORMAT_NAME)
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), pa.binary())
        if self._encoder is None or values.type != self._type:
            program = compile_encoder(self._settings.schema.root, values.type, self._column)
            self._type, self._paths = values.type, program.paths
            self._encoder = create_avro_encoder(AvroEncoding(program.numbers, program.constants, self._settings.prefix))
        try:
            return self._encoder.encode(values)
        except InvalidValueError as error:
            raise InvalidRowError(error.row, f"{self._paths[error.node]} {MESSAGES[error.reason]}") from None


def derived_write_settings(data_type: pa.DataType) -> AvroWriteSettings:
    """Return the settings with the schema that Spark's ``to_avro`` gives a type."""
    import pyarrow as pa

    plain = encodable(pa.nulls(0, data_type), FORMAT_NAME).type
    return AvroWriteSettings(parse_avro_schema(derived_schema(plain, null_first=False)))


def check_encodable(column: str, settings: AvroWriteSettings, data_type: pa.DataType) -> None:
    """Raise an AvroSchemaError if a column of a type cannot be encoded."""
    import pyarrow as pa

    if pa.types.is_null(data_type):
        return  # each value is null, and stays null
    try:
        plain = encodable(pa.nulls(0, data_type), FORMAT_NAME).type
        compile_encoder(settings.schema.root, plain, column)
    except AvroSchemaError as error:
        source = settings.source or f"the Avro schema {type_name(settings.schema.root)}"
        raise AvroSchemaError(f"{error} ({source})") from None
