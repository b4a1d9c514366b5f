"""A column that is written as Avro, Protobuf or JSON: a schema, and the bytes in front of each value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import pyarrow as pa

from pyspark_kafka_direct.payloads.encoded_values import InvalidReason, InvalidValueError, PayloadEncoding
from pyspark_kafka_direct.payloads.json.json_types import encodable
from pyspark_kafka_direct.payloads.type_names import spark_struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.payloads.encoded_values import PayloadEncoder

_PART_BYTES: Final = 2 << 20

_CONVERSIONS: Final = {"variant": "to_json", "geometry": "st_asbinary", "geography": "st_asbinary"}
"""Of Spark's types that are structs only in Arrow."""

_ALLOW_VALUE: Final = "Filter out such rows, or write with a schema that allows the value."
_SMALLER_VALUE: Final = "Filter out such rows, or write smaller values."
_FEWER_ROWS: Final = (
    "Write fewer rows in a batch (spark.sql.execution.arrow.maxRecordsPerBatch), or with a schema whose values are "
    "smaller."
)


class EncoderProgram(NamedTuple):
    """A program, and the paths of its nodes for errors."""

    numbers: tuple[int, ...]
    constants: tuple[bytes, ...]
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EncoderSettings(ABC):
    """Settings with which tasks encode a column. Pickled into them."""

    prefix: bytes = b""  # the bytes in front of each value, such as its schema id
    header: tuple[str, bytes] | None = None  # name and value of the header with the schema id of each record
    source: str = ""  # where the schema is from, for errors

    format_name: ClassVar[str]  # Avro, Protobuf or JSON

    @property
    def schema_name(self) -> str:
        """Return the schema, or where it is from, for errors."""
        return self.source

    @abstractmethod
    def compile(self, data_type: pa.DataType, column: str) -> EncoderProgram:
        """Return the program for a type, or raise a ``SchemaMismatchError``."""

    @abstractmethod
    def create_encoder(self, encoding: PayloadEncoding) -> PayloadEncoder:
        """Return the encoder of a program."""


class SchemaMismatchError(ValueError):
    """A schema does not fit the type of a column."""


class InvalidRowError(ValueError):
    """A row that the schema does not allow; ``row`` counts from the start of the array."""

    def __init__(self, row: int, reason: str, advice: str = _ALLOW_VALUE) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason
        self.advice = advice


class ColumnEncoder:
    """Encodes the batches of a task, whose column may change its type."""

    def __init__(self, column: str, settings: EncoderSettings) -> None:
        self._column = column
        self._settings = settings
        # Of the last batch, and changed together.
        self._type: pa.DataType | None = None
        self._paths: tuple[str, ...] = ()  # of the nodes of the program, for errors
        self._encoder: PayloadEncoder | None = None

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode each value of a column; a null value is null.

        Raises:
            SchemaMismatchError: The schema does not fit the type of the column.
            InvalidRowError: It does not allow a value.
        """
        format_name = self._settings.format_name
        values = encodable(values, format_name)
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), pa.binary())  # each value is null, and stays null
        if self._encoder is None or values.type != self._type:
            _check_spark_types(values.type, self._column)
            program = self._settings.compile(values.type, self._column)
            self._type, self._paths = values.type, program.paths
            encoding = PayloadEncoding(program.numbers, program.constants, self._settings.prefix)
            self._encoder = self._settings.create_encoder(encoding)
        try:
            return self._encoder.encode(values)
        except InvalidValueError as error:
            raise self._invalid_row(error, values) from None

    def _invalid_row(self, error: InvalidValueError, values: pa.Array) -> InvalidRowError:
        """Return the error with advice: a row may be too large itself, or only together with the rows before it."""
        message = error.message(self._paths, self._settings.format_name)
        if error.reason is not InvalidReason.LIMIT:
            return InvalidRowError(error.row, message)
        if len(values) > 1 and self._can_encode(values.slice(error.row, 1)):
            return InvalidRowError(error.row, message, _FEWER_ROWS)
        message = message.removesuffix(" together with the rows before it")
        return InvalidRowError(error.row, message, _SMALLER_VALUE)

    def _can_encode(self, row: pa.Array) -> bool:
        assert self._encoder is not None
        try:
            self._encoder.encode(row)
        except InvalidValueError:
            return False
        return True


def check_encodable(column: str, settings: EncoderSettings, data_type: pa.DataType) -> None:
    """Raise a SchemaMismatchError if a column of a type cannot be encoded."""
    if pa.types.is_null(data_type):
        return  # each value is null, and stays null
    plain = encodable_type(data_type, settings.format_name, column)
    try:
        settings.compile(plain, column)
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{error} ({settings.schema_name})") from None


def encodable_type(data_type: pa.DataType, format_name: str, column: str = "value") -> pa.DataType:
    """Return the type that is encoded of a column of a type, or raise a ValueError that names what is not encoded."""
    plain = encodable(pa.nulls(0, data_type), format_name).type
    _check_spark_types(plain, column)
    return plain


def encode_all(encoder: ColumnEncoder, values: pa.Array) -> pa.BinaryArray:
    """Encode a column that may be larger than the rows that a sink encodes together."""
    parts = [encoder.encode(part) for part in _parts(values)]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts or [pa.array([], pa.binary())])


def _check_spark_types(data_type: pa.DataType, path: str) -> None:
    """Raise a SchemaMismatchError for a type of Spark that other readers would see as Spark's internal struct."""
    if not pa.types.is_nested(data_type):
        return
    name = spark_struct(data_type)
    if name is not None:
        raise SchemaMismatchError(
            f"{path} is {name}, which is only written as its text or bytes: convert it with {_CONVERSIONS[name]} in "
            "the query"
        )
    for field in (data_type.field(index) for index in range(data_type.num_fields)):
        # The name of an element, or of the entries of a map, is not one that the user has given.
        _check_spark_types(field.type, f"{path}.{field.name}" if pa.types.is_struct(data_type) else path)


def _parts(values: pa.Array) -> Iterator[pa.Array]:
    """Yield slices of some MiB, or of one row: large rows may be next to each other."""
    if len(values) <= 1 or values.nbytes <= 2 * _PART_BYTES:
        if len(values):
            yield values
        return
    rows = max(1, len(values) * _PART_BYTES // values.nbytes)  # if all rows were equally large
    for start in range(0, len(values), rows):
        yield from _parts(values.slice(start, rows))
