"""Avro's schema resolution: from a writer schema, a reader schema and the wanted fields to a program.

It follows the Avro specification: fields by name and aliases, promotions, defaults, unions of the writer and of the
reader. Only the wanted fields of the reader schema are decoded; the others of the writer schema are skipped. A part
that cannot be read is a FAIL operation, because only datums that have this part are malformed.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import printable
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
    unqualified,
    without_null,
)
from pyspark_kafka_direct.payloads.avro.avro_values import (
    MAX_PROGRAM_NUMBERS,
    NULL_FIRST,
    NULL_LAST,
    AvroProgram,
    Incompatibility,
    Op,
    Operation,
    Reason,
    child_fields,
    column_types,
)
from pyspark_kafka_direct.payloads.avro.defaults import Constants, default_operations
from pyspark_kafka_direct.payloads.avro.spark_types import logical_type
from pyspark_kafka_direct.payloads.avro.wanted_fields import find_field, kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}

_NUMBERS: Final = {
    ("int", "int32"): Op.INT,
    ("int", "date32[day]"): Op.INT,
    ("int", "int64"): Op.INT_TO_LONG,
    ("int", "float"): Op.INT_TO_FLOAT,
    ("int", "double"): Op.INT_TO_DOUBLE,
    ("long", "int64"): Op.LONG,
    ("long", "float"): Op.LONG_TO_FLOAT,
    ("long", "double"): Op.LONG_TO_DOUBLE,
    ("float", "float"): Op.FLOAT,
    ("float", "double"): Op.FLOAT_TO_DOUBLE,
    ("double", "double"): Op.DOUBLE,
    ("boolean", "bool"): Op.BOOLEAN,
}

_SKIPS: Final = {
    "null": [],
    "boolean": [[int(Op.SKIP_BOOLEAN)]],
    "int": [[int(Op.SKIP_VARINT)]],
    "long": [[int(Op.SKIP_VARINT)]],
    "float": [[int(Op.SKIP_BYTES), 4]],
    "double": [[int(Op.SKIP_BYTES), 8]],
    "bytes": [[int(Op.SKIP_LENGTH)]],
    "string": [[int(Op.SKIP_LENGTH)]],
}

_MAX_INCOMPATIBILITIES: Final = 100  # of a program

_MIN_SIZES: Final = {"null": 0, "float": 4, "double": 8}


def resolve(writer: AvroType, reader: AvroType, fields: pa.Schema) -> AvroProgram:
    """Return the program for the datums of a writer schema.

    Args:
        writer: The schema of the datums.
        reader: The schema whose fields, aliases and defaults count.
        fields: The wanted fields, which ``check_wanted`` accepts for the reader schema.

    Returns:
        The program.

    Raises:
        AvroSchemaError: The program is too large, or a default does not fit its type.
    """
    compiler = _Compiler()
    operations = compiler.root(writer, reader, list(fields))
    return AvroProgram(
        tuple(chain.from_iterable(operations)), compiler.constants.values(), tuple(compiler.incompatibilities)
    )


class _Compiler:
    def __init__(self) -> None:
        self.constants = Constants()
        self.incompatibilities: dict[Incompatibility, None] = {}
        self._numbers = 0
        self._routines: dict[str, int] = {}  # of the recursive records that are skipped
        self._path: list[str] = []  # of fields

    def root(self, writer: AvroType, reader: AvroType, fields: list[pa.Field]) -> list[Operation]:
        """Return the operations for whole datums, whose struct has no column."""
        if isinstance(writer, UnionType):
            return self._union([self.root(branch, reader, fields) for branch in writer.branches], writer)
        wanted = without_null(reader)
        if writer == NULL and wanted.nullable:
            return self._counted([[int(Op.NULL_VALUE)]])
        if not isinstance(writer, RecordType) or not isinstance(wanted.type, RecordType):
            return self._unreadable(writer, reader)
        return self._record(writer, wanted.type, fields, 0)

    def _value(self, writer: AvroType, reader: AvroType, data_type: pa.DataType, column: int) -> list[Operation]:
        """Return the operations that read a value into a column and those behind it."""
        if isinstance(writer, UnionType):
            programs = [self._value(branch, reader, data_type, column) for branch in writer.branches]
            return self._union(programs, writer)
        wanted = without_null(reader)
        if writer == NULL:
            return [] if wanted.nullable else self._unreadable(writer, reader)
        match wanted.type:
            case None:  # the reader's type is null only
                return self._unreadable(writer, reader)
            case UnionType(branches):
                return self._member(writer, branches, data_type, column)
            case reader_type:
                return self._same_kind(writer, reader_type, data_type, column)

    def _member(
        self, writer: AvroType, branches: tuple[AvroType, ...], data_type: pa.DataType, column: int
    ) -> list[Operation]:
        """Return the operations for a union that Spark reads as a struct with a field for each branch."""
        index = matching_branch(writer, branches)
        if index is None:
            return self._unreadable(writer, UnionType(branches))
        present = self._counted([[Op.PRESENT, column]])
        for field, child_column in _numbered(list(data_type), column + 1):
            if field.name == f"member{index}":
                return present + self._value(writer, branches[index], field.type, child_column)
        return present + self._skip(writer)  # the query does not read this member

    def _same_kind(self, writer: AvroType, reader: AvroType, data_type: pa.DataType, column: int) -> list[Operation]:
        """Return the operations for types that are not unions; types of different kinds are unreadable."""
        match writer, reader:
            case RecordType(), RecordType():
                present = self._counted([[Op.PRESENT, column]])
                return present + self._record(writer, reader, list(data_type), column + 1)
            case ArrayType(items), ArrayType(reader_items):
                body = self._value(items, reader_items, data_type.value_type, column + 1)
                return self._body([Op.ITEMS, column, min_size(items)], body)
            case MapType(values), MapType(reader_values):
                key = self._counted([[Op.BYTES, column + 1]])
                body = key + self._value(values, reader_values, data_type.item_type, column + 2)
                return self._body([Op.ITEMS, column, 1 + min_size(values)], body)  # a key has a length
            case EnumType(), EnumType() if same_name(writer, reader):
                return self._enum(writer, reader, column)
            case FixedType(), FixedType() if same_name(writer, reader) and writer.size == reader.size:
                return self._scalar(writer, reader, data_type, column)
            case PrimitiveType(name), PrimitiveType(reader_name) if (
                name == reader_name or reader_name in PROMOTIONS.get(name, ())
            ):
                return self._scalar(writer, reader, data_type, column)
        return self._unreadable(writer, reader)

    def _scalar(self, writer: AvroType, reader: AvroType, data_type: pa.DataType, column: int) -> list[Operation]:
        operation = _scalar_operation(writer, reader, data_type, column)
        return self._unreadable(writer, reader) if operation is None else self._counted([operation])

    def _record(
        self, writer: RecordType, reader: RecordType, fields: list[pa.Field], first_column: int
    ) -> list[Operation]:
        """Return the operations for the writer's fields in their order, then for defaults of missing ones."""
        columns = {field.name: (field.type, column) for field, column in _numbered(fields, first_column)}
        missing = {field.name: field for field in reader.fields if field.name in columns}  # until the writer has them
        targets: list[RecordField | None] = []  # of the writer's fields; None: the field is skipped
        for field in writer.fields:
            target = find_field(reader, field.name)
            # If two of the writer's fields are read as the same one, the first one counts.
            targets.append(None if target is None else missing.pop(target.name, None))
        without_default = [field.name for field in missing.values() if field.default is NO_DEFAULT]
        if without_default:
            names = ", ".join(".".join([*self._path, name]) for name in without_default)
            return self._fail(Reason.NO_DEFAULT, f"field {names} is missing and has no default")
        operations: list[Operation] = []
        for field, target in zip(writer.fields, targets, strict=True):
            if target is None:
                operations += self._skip(field.type)
            else:
                self._path.append(target.name)
                operations += self._value(field.type, target.type, *columns[target.name])
                self._path.pop()
        for field in missing.values():
            data_type, column = columns[field.name]
            operations += self._counted(default_operations(field, data_type, column, self.constants))
        return operations

    def _enum(self, writer: EnumType, reader: EnumType, column: int) -> list[Operation]:
        operation = [int(Op.ENUM), column, len(writer.symbols)]
        for symbol in writer.symbols:
            known = symbol if symbol in reader.symbols else reader.default
            operation.append(-1 if known is None else self.constants.add(known.encode()))
            if known is None:  # only a message: datums with another symbol can be read
                self._fail(Reason.SYMBOL, f"{self._part()}: the enum has no symbol {symbol} and no default")
        return self._counted([operation])

    def _skip(self, writer: AvroType) -> list[Operation]:
        match writer:
            case PrimitiveType(name):
                return self._counted([list(operation) for operation in _SKIPS[name]])
            case FixedType(_, _, size):
                return self._counted([[Op.SKIP_BYTES, size]] if size else [])
            case EnumType(_, _, symbols):
                return self._counted([[Op.SKIP_ENUM, len(symbols)]])
            case ArrayType(items):
                return self._body([Op.SKIP_ITEMS, min_size(items)], self._skip(items))
            case MapType(values):
                return self._body([Op.SKIP_ITEMS, 1 + min_size(values)], [[int(Op.SKIP_LENGTH)], *self._skip(values)])
            case RecordType(name, _, fields):
                if name in self._routines:
                    return self._counted([[Op.CALL, self._routines[name]]])
                if writer.is_recursive:  # before its fields, which call the routine
                    self._routines[name] = len(self._routines)
                operations = [operation for field in fields for operation in self._skip(field.type)]
                return self._body([Op.ROUTINE], operations) if writer.is_recursive else operations
            case UnionType(branches):
                return self._union([self._skip(branch) for branch in branches], writer)

    def _body(self, operation: Operation, body: list[Operation]) -> list[Operation]:
        """Return an operation with an inner program."""
        flat = list(chain.from_iterable(body))
        return self._counted([[*operation, len(flat), *flat]], inner=len(flat))

    def _union(self, programs: list[list[Operation]], writer: UnionType) -> list[Operation]:
        """Return one operation; in a union with null it is that of the other branch, or a group."""
        if len(programs) == 2 and NULL in writer.branches:
            null = writer.branches.index(NULL)
            value = programs[1 - null]
            if not programs[null]:  # null is read as null, and not as an error
                if len(value) != 1 or value[0][0] >= NULL_FIRST:  # no single operation that can take the flag
                    value = self._body([Op.GROUP], value)
                return [[value[0][0] + (NULL_LAST if null else NULL_FIRST), *value[0][1:]]]
        operation = [int(Op.UNION), len(programs)]
        for program in programs:
            flat = list(chain.from_iterable(program))
            operation += [len(flat), *flat]
        counted_before = len(operation) - 2 - len(programs)  # the programs without their lengths
        return self._counted([operation], inner=counted_before)

    def _unreadable(self, writer: AvroType, reader: AvroType) -> list[Operation]:
        text = f"{self._part()}: {_described(writer)} cannot be read as {_described(reader)}"
        return self._fail(Reason.UNREADABLE, text)

    def _fail(self, reason: Reason, text: str) -> list[Operation]:
        """Return the operation that makes a datum malformed, and note why for messages."""
        if len(self.incompatibilities) < _MAX_INCOMPATIBILITIES:
            self.incompatibilities[Incompatibility(reason, printable(text))] = None
        return [[int(Op.FAIL), int(reason)]]

    def _part(self) -> str:
        path = ".".join(self._path)
        return f"field {path}" if path else "the datum"

    def _counted(self, operations: list[Operation], inner: int = 0) -> list[Operation]:
        """Return operations after limiting the size of the program; ``inner`` was counted before."""
        self._numbers += sum(map(len, operations)) - inner
        if self._numbers > MAX_PROGRAM_NUMBERS:
            raise AvroSchemaError("the Avro schema is too large for its values to be decoded")
        return operations


def min_size(writer: AvroType) -> int:
    """Return how many bytes a value has at least, so that the decoder can reject a claim of too many items."""
    match writer:
        case PrimitiveType(name):
            return _MIN_SIZES.get(name, 1)
        case FixedType(_, _, size):
            return size
        case RecordType(_, _, fields, is_recursive):
            inner = (field.type for field in fields)
            # At least: a recursive record in another one counts as empty, so that the sum ends.
            return sum(0 if is_recursive and _is_recursive(each) else min_size(each) for each in inner)
    return 1


def _is_recursive(avro_type: AvroType) -> bool:
    return isinstance(avro_type, RecordType) and avro_type.is_recursive


def _scalar_operation(writer: AvroType, reader: AvroType, data_type: pa.DataType, column: int) -> Operation | None:
    kind, target = kind_of(writer), str(data_type)
    is_fixed = isinstance(writer, FixedType)
    size = [writer.size] if isinstance(writer, FixedType) else []
    if target.startswith("decimal"):
        logical = logical_type(writer)
        # As in Avro's specification, scales must be the same; bytes without a logical type are read with the reader's.
        if logical and logical.name == "decimal" and logical.scale != data_type.scale:
            return None
        return [Op.FIXED_DECIMAL if is_fixed else Op.DECIMAL, column, *size]
    if target.startswith("timestamp"):
        logical = logical_type(writer) or logical_type(reader)
        if is_nanos(writer):
            return None
        if logical and logical.name.endswith("-millis"):
            return [Op.MILLIS_TO_MICROS, column]
        target = "int64"  # the microseconds as they are
    if target in ("string", "binary"):
        return [Op.FIXED if is_fixed else Op.BYTES, column, *size]
    operation = _NUMBERS.get((kind, target))
    return None if operation is None else [int(operation), column]


def matching_branch(writer: AvroType, branches: tuple[AvroType, ...]) -> int | None:
    """Return the index of the branch of a reader's union that a writer's type is read as."""
    kind = kind_of(writer)
    kinds = [kind_of(branch) for branch in branches]
    same_kind = [index for index, other in enumerate(kinds) if other == kind]
    if not isinstance(writer, RecordType | EnumType | FixedType):
        promoted = [index for index, other in enumerate(kinds) if other in PROMOTIONS.get(kind, ())]
        return next(iter(same_kind + promoted), None)
    # Of named types: the same full name, else the same name or an alias, else for records the same fields.
    for index in same_kind:
        if getattr(branches[index], "name", None) == writer.name:
            return index
    for index in same_kind:
        if same_name(writer, branches[index]):
            return index
    if kind == "record":
        fitting = [index for index in same_kind if _has_fields_of(branches[index], writer)]
        return next(iter(fitting or same_kind), None)
    return None


def _has_fields_of(reader: AvroType, writer: AvroType) -> bool:
    """Return whether each field of a reader's record has one of the writer's, or a default."""
    if not isinstance(reader, RecordType) or not isinstance(writer, RecordType):
        return False
    names = {field.name for field in writer.fields}
    return all(
        field.default is not NO_DEFAULT or not names.isdisjoint({field.name, *field.aliases}) for field in reader.fields
    )


def same_name(writer: AvroType, reader: AvroType) -> bool:
    """Return whether the reader's type has the writer's name, or an alias of it; namespaces do not count."""
    named = RecordType | EnumType | FixedType
    if not isinstance(writer, named) or not isinstance(reader, named):
        return False
    names = {unqualified(reader.name), *map(unqualified, reader.aliases)}
    return unqualified(writer.name) in names


def is_nanos(avro_type: AvroType) -> bool:
    """Return whether a type is a timestamp that Spark reads as a number."""
    logical = logical_type(avro_type)
    return logical is not None and logical.name.endswith("-nanos")


def _described(avro_type: AvroType) -> str:
    logical = logical_type(avro_type)
    if logical and logical.name == "decimal":
        return f"decimal({logical.precision}, {logical.scale})"
    size = f" of {avro_type.size} bytes" if isinstance(avro_type, FixedType) else ""
    return type_name(avro_type) + size


def _numbered(fields: Sequence[pa.Field], first_column: int) -> list[tuple[pa.Field, int]]:
    """Return fields with the numbers of their columns."""
    numbered = []
    for field in fields:
        numbered.append((field, first_column))
        first_column += 1 + len(column_types(child_fields(field.type)))
    return numbered
