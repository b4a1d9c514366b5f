"""Programs that encode an Arrow type by a writer schema, with the rules of Spark's ``to_avro``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from pyspark_kafka_direct.payloads.avro.avro_encoding import NO_BRANCH, NO_COLUMN, Op
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
from pyspark_kafka_direct.payloads.avro.default_datum import DefaultDatums
from pyspark_kafka_direct.payloads.avro.defaults import Constants
from pyspark_kafka_direct.payloads.avro.spark_types import logical_type
from pyspark_kafka_direct.payloads.column_encoder import EncoderProgram
from pyspark_kafka_direct.payloads.struct_fields import UnmatchedFieldError, match_fields

if TYPE_CHECKING:
    import pyarrow as pa

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
