"""Programs that encode an Arrow type by a writer schema, with the rules of Spark's ``to_avro``."""

from __future__ import annotations

import json
import struct
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from pyspark_kafka_direct.errors import printable
from pyspark_kafka_direct.payloads.avro.avro_encoding import NO_BRANCH, NO_COLUMN, Op, zigzag
from pyspark_kafka_direct.payloads.avro.avro_types import (
    NO_DEFAULT,
    NULL,
    ArrayType,
    AvroSchemaError,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    PrimitiveType,
    RecordField,
    RecordType,
    UnionType,
    type_name,
    without_null,
)
from pyspark_kafka_direct.payloads.avro.defaults import NOT_FINITE, Constants
from pyspark_kafka_direct.payloads.avro.derived_schema import derived_schema
from pyspark_kafka_direct.payloads.avro.schema import parse_avro_schema
from pyspark_kafka_direct.payloads.avro.spark_types import logical_type
from pyspark_kafka_direct.payloads.column_encoder import (
    EncoderProgram,
    EncoderSettings,
    SchemaMismatchError,
    encodable_type,
)
from pyspark_kafka_direct.payloads.encoded_values import AvroEncoder
from pyspark_kafka_direct.payloads.struct_fields import UnmatchedFieldError, match_fields

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafka_direct.payloads.avro.schema import AvroSchema
    from pyspark_kafka_direct.payloads.encoded_values import PayloadEncoder, PayloadEncoding

_OPERATIONS: Final = {
    "boolean": {"bool": Op.BOOLEAN},
    "int": dict.fromkeys(("int8", "int16", "int32", "date32[day]"), Op.INTEGER),
    "long": dict.fromkeys(("int8", "int16", "int32", "int64"), Op.INTEGER),
    "float": {"float": Op.FLOAT},
    "double": {"float": Op.DOUBLE, "double": Op.DOUBLE},
    "bytes": {"binary": Op.BYTES},
    "string": {"string": Op.BYTES},
}
"""The operations for Avro types by Arrow types."""

_TIMESTAMPS: Final = ("timestamp-millis", "timestamp-micros")
_LOCAL_TIMESTAMPS: Final = ("local-timestamp-millis", "local-timestamp-micros")


@dataclass(frozen=True, slots=True)
class AvroEncoderSettings(EncoderSettings):
    """Settings of an Avro schema."""

    _: KW_ONLY
    schema: AvroSchema

    format_name: ClassVar[str] = "Avro"

    @property
    def schema_name(self) -> str:
        """The schema, or where it is from, for errors."""
        return self.source or f"the Avro schema {type_name(self.schema.root)}"

    def compile(self, data_type: pa.DataType, column: str) -> EncoderProgram:
        """Return the program for a type."""
        try:
            return compile_encoder(self.schema.root, data_type, column)
        except AvroSchemaError as error:
            raise SchemaMismatchError(str(error)) from None

    def create_encoder(self, encoding: PayloadEncoding) -> PayloadEncoder:
        """Return the encoder of a program."""
        return AvroEncoder(encoding)


def derived_encoder_settings(data_type: pa.DataType) -> AvroEncoderSettings:
    """Return the settings with the schema that Spark's ``to_avro`` gives a type."""
    plain = encodable_type(data_type, AvroEncoderSettings.format_name)
    return AvroEncoderSettings(schema=parse_avro_schema(derived_schema(plain, null_first=False)))


def compile_encoder(writer: AvroType, data_type: pa.DataType, path: str) -> EncoderProgram:
    """Return the program that writes values of a type; ``path`` is the name of the column."""
    compiler = _Compiler()
    numbers = compiler.node(writer, data_type, path)
    return EncoderProgram(tuple(numbers), compiler.constants.values(), tuple(compiler.paths))


class _Compiler:
    def __init__(self) -> None:
        self.constants = Constants()
        self._defaults = DefaultDatums()
        self.paths: list[str] = []

    def node(self, writer: AvroType, data_type: pa.DataType, path: str) -> list[int]:
        """Return the numbers of the node that writes a column."""
        import pyarrow as pa

        self.paths.append(path)
        if pa.types.is_null(data_type):
            return [Op.NULL, NO_BRANCH, _null_branch(writer, path)]
        if not isinstance(writer, UnionType):
            return self._operation(writer, null_branch=NO_BRANCH, branch=NO_BRANCH, data_type=data_type, path=path)
        null_branch = writer.branches.index(NULL) if NULL in writer.branches else NO_BRANCH
        inner = without_null(writer).type
        if isinstance(inner, UnionType):
            return self._union(writer, inner, null_branch, data_type, path)
        if inner is None:  # the union is null only, but the column is not
            _mismatch(writer, data_type, path)
        branch = _branch(writer, inner)
        return self._operation(inner, null_branch=null_branch, branch=branch, data_type=data_type, path=path)

    def _operation(
        self, writer: AvroType, *, null_branch: int, branch: int, data_type: pa.DataType, path: str
    ) -> list[int]:
        """Return the node that writes a column as a type; the branches are those of the union that the type is in."""
        import pyarrow as pa

        branches = [null_branch, branch]
        match writer:
            case RecordType() if pa.types.is_struct(data_type):
                return [Op.RECORD, *branches, *self._record(writer, data_type, path)]
            case ArrayType(items) if pa.types.is_list(data_type):
                return [Op.ARRAY, *branches, *self.node(items, data_type.value_type, f"{path}.element")]
            case MapType(values) if pa.types.is_map(data_type) and pa.types.is_string(data_type.key_type):
                return [Op.MAP, *branches, *self.node(values, data_type.item_type, f"{path}.value")]
            case EnumType(_, _, symbols) if pa.types.is_string(data_type):
                indexes = [self.constants.add(symbol.encode()) for symbol in symbols]
                return [Op.ENUM, *branches, len(indexes), *indexes]
            case FixedType(_, _, size) if pa.types.is_decimal128(data_type) and _is_decimal(writer, data_type):
                return [Op.FIXED_DECIMAL, *branches, size]
            case FixedType(_, _, size) if pa.types.is_binary(data_type):
                return [Op.FIXED, *branches, size]
            case PrimitiveType("bytes") if pa.types.is_decimal128(data_type) and _is_decimal(writer, data_type):
                return [Op.DECIMAL, *branches]
            case PrimitiveType("long") if pa.types.is_timestamp(data_type):
                return [_timestamp(writer, data_type, path), *branches]
            case PrimitiveType(name) if str(data_type) in _OPERATIONS.get(name, {}):
                return [_OPERATIONS[name][str(data_type)], *branches]
        return _mismatch(writer, data_type, path)

    def _record(self, record: RecordType, data_type: pa.StructType, path: str) -> list[int]:
        """Return the arguments of the operation: fields are found by name, as in Spark."""
        names = [field.name for field in data_type]
        try:
            children = match_fields(
                [field.name for field in record.fields], names, path, f"the Avro schema {record.name}"
            )
        except UnmatchedFieldError as error:
            raise AvroSchemaError(str(error)) from None
        numbers = [len(record.fields)]
        for field in record.fields:
            field_path = f"{path}.{field.name}"
            if field.name in children:
                child = children[field.name]
                numbers += [child, *self.node(field.type, data_type.field(child).type, field_path)]
            else:
                numbers += [NO_COLUMN, self.constants.add(self._default(field, field_path))]
        return numbers

    def _default(self, field: RecordField, path: str) -> bytes:
        """Return the datum of a field that the struct lacks."""
        if field.default is not NO_DEFAULT:
            return self._defaults.datum(field)
        if without_null(field.type).nullable:
            return self._defaults.null(field.type)
        raise AvroSchemaError(f"the struct lacks {path}, which has no default in the Avro schema: add it")

    def _union(
        self, writer: UnionType, inner: UnionType, null_branch: int, data_type: pa.DataType, path: str
    ) -> list[int]:
        """Return the node of a union of several types, whose column is a struct of ``member0``, ``member1``, ..."""
        import pyarrow as pa

        members = [f"member{index}" for index in range(len(inner.branches))]
        if not pa.types.is_struct(data_type) or {field.name for field in data_type} - set(members):
            _mismatch(writer, data_type, path)
        numbers = [int(Op.UNION), null_branch, NO_BRANCH, data_type.num_fields]
        for child, field in enumerate(data_type):
            member = inner.branches[members.index(field.name)]
            member_path = f"{path}.{field.name}"
            self.paths.append(member_path)
            branch = writer.branches.index(member)
            # Only a member that is not null is written. If all of them are null, the value of the union is null.
            node = self._operation(member, null_branch=NO_BRANCH, branch=branch, data_type=field.type, path=member_path)
            numbers += [child, *node]
        return numbers


def _branch(writer: UnionType, inner: AvroType) -> int:
    """Return the branch of values; of a union of int and long, that of long, which may have a logical type."""
    if inner in writer.branches or not isinstance(inner, PrimitiveType):
        return writer.branches.index(inner)
    names = [each.name if isinstance(each, PrimitiveType) else "" for each in writer.branches]
    return names.index(inner.name)


def _null_branch(writer: AvroType, path: str) -> int:
    """Return the branch of null, for a column that is always null."""
    if writer == NULL:
        return NO_BRANCH
    if isinstance(writer, UnionType) and NULL in writer.branches:
        return writer.branches.index(NULL)
    raise AvroSchemaError(f"{path} is always null, but {type_name(writer)} in the Avro schema, which cannot be null")


def _is_decimal(writer: AvroType, data_type: pa.Decimal128Type) -> bool:
    logical = logical_type(writer)
    return (
        logical is not None
        and logical.name == "decimal"
        and logical.scale == data_type.scale
        and logical.precision >= data_type.precision
    )


def _timestamp(writer: AvroType, data_type: pa.TimestampType, path: str) -> Op:
    """Return the operation of a timestamp; as in Spark, a long without a logical type has milliseconds."""
    logical = logical_type(writer)
    name = "" if logical is None else logical.name
    names = _LOCAL_TIMESTAMPS if data_type.tz is None else _TIMESTAMPS
    if name and name not in names:
        _mismatch(writer, data_type, path)
    return Op.INTEGER if name.endswith("-micros") else Op.MICROS_TO_MILLIS


def _mismatch(writer: AvroType, data_type: pa.DataType, path: str) -> NoReturn:
    raise AvroSchemaError(
        f"{path} is {data_type}, which is not written as {type_name(writer)} of the Avro schema: cast it in the query"
    )


_MAX_COST: Final = 1 << 16  # of all defaults of a schema: one for each value, and for each 64 bytes
_BYTES_OF_COST: Final = 64
_RANGES: Final = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}
_FORMATS: Final = {"float": "<f", "double": "<d"}


class _InvalidDefaultError(Exception):
    pass


class DefaultDatums:
    """Writes the defaults of one schema; a default may contain others, so that a small schema can have huge ones."""

    def __init__(self) -> None:
        self._cost = 0

    def datum(self, field: RecordField) -> bytes:
        """Return the default of a field as a datum; an AvroSchemaError if it does not have the type of the field."""
        try:
            return self._datum(field.type, field.default)
        # UnicodeEncodeError: a character that is no byte, or half of a surrogate pair. OverflowError: a number that is
        # too large for a float. RecursionError: the default of a record that contains itself.
        except (_InvalidDefaultError, UnicodeEncodeError, OverflowError, RecursionError):
            text = printable(json.dumps(field.default)[:200])
            raise AvroSchemaError(f"the default of field {field.name!r} does not have its type: {text}") from None

    def null(self, avro_type: AvroType) -> bytes:
        """Return null as a datum of a type that may be null."""
        return self._datum(avro_type, None)

    def _datum(self, avro_type: AvroType, value: Any) -> bytes:
        """Return a value of JSON as a datum; an _InvalidDefaultError if it does not have the type."""
        self._cost += 1 + (len(value) // _BYTES_OF_COST if isinstance(value, str) else 0)
        if self._cost > _MAX_COST:
            raise AvroSchemaError("the defaults of the fields that the struct lacks are too large")
        match avro_type:
            case UnionType(branches):
                return self._union(branches, value)
            case PrimitiveType(name):
                return _primitive(name, value)
            case FixedType(_, _, size) if isinstance(value, str) and len(value) == size:
                return value.encode("latin-1")
            case EnumType(_, _, symbols) if value in symbols:
                return zigzag(symbols.index(value))
            case RecordType(_, _, fields) if isinstance(value, dict):
                members = [(field.type, value.get(field.name, field.default)) for field in fields]
                return b"".join(self._datum(member_type, member) for member_type, member in members)
            case ArrayType(items) if isinstance(value, list):
                return _block([self._datum(items, each) for each in value])
            case MapType(values) if isinstance(value, dict):
                entries = value.items()
                return _block([_with_length(key.encode()) + self._datum(values, each) for key, each in entries])
        return _fail()

    def _union(self, branches: tuple[AvroType, ...], value: Any) -> bytes:
        """Return the datum in the first branch that the value fits."""
        for index, branch in enumerate(branches):
            if (branch == NULL) != (value is None):  # only null is null
                continue
            try:
                return zigzag(index) + self._datum(branch, value)
            except (_InvalidDefaultError, UnicodeEncodeError, OverflowError):
                continue
        return _fail()


def _primitive(name: str, value: Any) -> bytes:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)  # in Python, booleans are integers
    if name == "null" and value is None:
        return b""
    if name == "boolean" and isinstance(value, bool):
        return bytes([value])
    if name in _RANGES and is_number and isinstance(value, int) and value in _RANGES[name]:
        return zigzag(value)
    if name in _FORMATS and is_number:
        return struct.pack(_FORMATS[name], value)
    if name in _FORMATS and value in NOT_FINITE:  # JSON has no such numbers; Java writes strings
        return struct.pack(_FORMATS[name], float(value))
    if name in ("bytes", "string") and isinstance(value, str):
        return _with_length(value.encode("latin-1" if name == "bytes" else "utf-8"))
    return _fail()


def _block(items: list[bytes]) -> bytes:
    return (zigzag(len(items)) + b"".join(items) if items else b"") + b"\0"


def _with_length(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _fail() -> NoReturn:
    raise _InvalidDefaultError
