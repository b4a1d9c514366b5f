"""The DDL of a column, which an option has, and its Arrow type.

The data source's columns are parsed by Spark, as the DDL of all columns, so its errors would show a position in a text
that nobody wrote. Therefore ``checked_type`` checks the DDL before. What Spark accepts must pass; of what it rejects,
the frequent mistakes are found. ``arrow_type`` needs no Spark, and also rejects the others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.hints import did_you_mean
from pyspark_kafka_direct.payloads.json.json_values import variant_type

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPE: Final = re.compile(r"\s*(struct\s*<|variant\s*$)", re.IGNORECASE)  # otherwise, the fields of a struct
_OTHER_TYPE: Final = re.compile(
    r"\s*(?!variant\b)(\w+\s*(\([^)]*\))?|(array|map)\s*<.*>)\s*$", re.IGNORECASE | re.DOTALL
)
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    |(?P<comment>--[^\n]*|/\*(?:/\*.*?\*/|.)*?\*/)
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<string>[rR]?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))
    |(?P<name>\w+)
    |(?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_UTC_TIME: Final = pa.timestamp("us", "UTC")
_LOCAL_TIME: Final = pa.timestamp("us")
_PLAIN_TYPES: Final[dict[str, pa.DataType | None]] = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("ns"),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), _UTC_TIME),
    "timestamp_ntz": _LOCAL_TIME,
    "string": pa.string(),
    "binary": pa.binary(),
    **dict.fromkeys(("decimal", "dec", "numeric"), pa.decimal128(10, 0)),
    "interval": None,  # has an Arrow type with units
    "void": pa.null(),
    "null": None,
    "variant": variant_type(),
    **dict.fromkeys(("geometry", "geography")),
    **dict.fromkeys(("char", "character", "varchar")),
}
"""The Arrow types by name; None: keys and values cannot have the type."""

_WITH_LENGTH: Final = ("char", "character", "varchar")
_NESTED: Final = ("array", "map", "struct")
_DECIMALS: Final = ("decimal", "dec", "numeric")
_MAX_PRECISION: Final = 38
_MAX_TIME_PRECISION: Final = 6
# What may follow the type of a field, or belongs to it, such as DAY TO SECOND of an interval.
_AFTER_TYPE: Final = (
    *("not", "null", "comment", "collate", "without", "with", "local", "time", "zone", "to"),
    *("year", "month", "day", "hour", "minute", "second"),
)
_COLLATION: Final = r"(collate \S+( \. \S+)*)? *"
_MODIFIERS: Final = {
    "interval": r"((?P<days>day|hour|minute|second)( to (hour|minute|second))?|(year|month)( to month)?)? *",
    "time": "(without time zone)? *",
    "timestamp": "((without|with local) time zone)? *",
    **dict.fromkeys(("string", *_WITH_LENGTH), _COLLATION),
}
"""Patterns of the words that belong to a type, by its name."""
_OF_FIELD: Final = "(?P<not_null>not null)? *(comment( ')+)?"
_MAX_SHOWN: Final = 200


def is_no_row_type(ddl: str) -> bool:
    """Return whether DDL is a type that no row has: neither a struct, nor its fields, nor a VARIANT."""
    return _OTHER_TYPE.match(ddl) is not None


def as_type(ddl: str) -> str:
    """Return the type of DDL, which may be the fields of a struct."""
    return ddl if _TYPE.match(ddl) else f"struct<{ddl}>"


def checked_type(ddl: str, option: str) -> str:
    """Return the type of the DDL in an option, which may be the fields of a struct; an OptionError if it is invalid."""
    found, parser = _parser(ddl, option)
    parser.parse()
    return found


def arrow_type(ddl: str, option: str) -> pa.DataType:
    """Return the Arrow type of the DDL in an option, that of Spark's type; an OptionError if it is invalid."""
    return _parser(ddl, option)[1].arrow_type()


def _parser(ddl: str, option: str) -> tuple[str, _Parser]:
    """Return the type of DDL, and its parser."""
    # In the DDL of all columns, a comment up to the end of the line would hide the columns behind it.
    ddl = _TOKEN.sub(lambda found: " " if found.lastgroup == "comment" else found[0], ddl)
    found = ddl if is_no_row_type(ddl) else as_type(ddl)
    return found, _Parser(ddl, option, has_fields=found != ddl)


class _Parser:
    def __init__(self, ddl: str, option: str, *, has_fields: bool) -> None:
        self._ddl = ddl
        self._option = option
        self._has_fields = has_fields  # of a struct, instead of a type
        self._path: list[str] = []  # of the field whose type is parsed
        self._without_arrow_type: str | None = None  # the first problem that Spark reports itself, if it has it
        self._tokens = self._scan()
        self._kind, self._word = next(self._tokens)

    def parse(self) -> pa.DataType:
        """Return the type, in which null is in the place of what has no Arrow type."""
        try:
            if not self._has_fields:
                found = self._type(is_field=False).type
            else:
                found = pa.struct(self._fields() if self._kind else [])  # a struct may be empty
        except RecursionError:
            self._fail("its types have too many levels")
        if self._kind:
            self._fail(f"unexpected {self._word!r}")
        return found

    def arrow_type(self) -> pa.DataType:
        """Return the type."""
        found = self.parse()
        if self._without_arrow_type is not None:
            self._fail(self._without_arrow_type)
        return found

    def _fields(self) -> list[pa.Field]:
        """Parse fields up to the bracket behind them, or the end."""
        fields: list[pa.Field] = []
        while True:
            name = self._word
            if self._kind not in ("name", "quoted"):
                self._fail(f"expected the name of a field, not {self._shown()}")
            if self._kind == "name" and (name.isdecimal() or not name.isascii()):
                self._without(f"the name {name} has to be in backquotes")
            self._next()
            if self._word == ":":
                self._next()
            elif self._kind == "symbol" and self._word not in ",><(":
                self._fail(f"the name {name}{self._word}... has to be in backquotes")
            self._path.append(name)
            field = self._type(is_field=True)
            self._path.pop()
            fields.append(field.with_name(name[1:-1].replace("``", "`") if name.startswith("`") else name))
            if self._word != ",":
                return fields
            self._next()

    def _type(self, *, is_field: bool) -> pa.Field:
        """Parse a type, and what may be behind it in a field; return it without a name."""
        name = self._word.lower()
        if self._kind != "name":
            self._fail(f"{self._field()} has no type before {self._shown()}")
        self._next()
        found: pa.DataType | None = None
        if name in _NESTED and self._word == "<":
            found = self._nested(name)
        elif name in ("array", "map"):
            self._fail(
                f"{self._field()}: {name} needs the types of its elements, such as {name}<string"
                + (">" if name == "array" else ", int>")
            )
        elif name in _PLAIN_TYPES:
            found = self._with_parameters(name)
        elif name != "struct":
            hint = did_you_mean(name, [*_PLAIN_TYPES, *_NESTED])
            self._fail(
                f"{self._field()} has the unknown type {name!r}{hint}" if self._path else f"no type {name!r}{hint}"
            )
        return self._modified(name, found, is_field=is_field)

    def _nested(self, name: str) -> pa.DataType:
        """Parse the types or fields in angle brackets."""
        self._next()
        if name == "struct":
            found = pa.struct(self._fields() if self._word != ">" else [])  # a struct may be empty
        elif name == "array":
            found = pa.list_(self._type(is_field=False).with_name("element"))
        else:
            key = self._type(is_field=False).with_name("key").with_nullable(False)
            if key.type == pa.null():
                self._without(f"{self._field()}: keys of a map cannot be void")
            self._expect(",")
            found = pa.map_(key, self._type(is_field=False).with_name("value"))
        self._expect(">")
        return found

    def _with_parameters(self, name: str) -> pa.DataType | None:
        """Parse the numbers in parentheses behind the name of a type, and return the type."""
        if self._word != "(":
            if name in _WITH_LENGTH:
                self._fail(f"{self._field()}: {name} needs a length, such as {name}(20)")
            return _PLAIN_TYPES[name]
        self._next()
        words: list[str] = []
        while self._word != ")":
            words.append(self._word)
            self._next()
        self._next()
        shown = " ".join(words).replace(" ,", ",")
        invalid = f"{self._field()}: the type {name}({shown}) is not valid"
        numbers = [int(number) if number.isdecimal() else -1 for number in shown.split(", ")]
        if name in _DECIMALS:
            precision, scale = [*numbers, 0][:2]
            if not 0 <= scale <= precision <= _MAX_PRECISION or len(numbers) > 2:
                self._fail(invalid)
            if precision:
                return pa.decimal128(precision, scale)
        takes_numbers = _PLAIN_TYPES[name] is None
        if not takes_numbers and not (name == "time" and len(numbers) == 1 and 0 <= numbers[0] <= _MAX_TIME_PRECISION):
            self._without(invalid)
        return _PLAIN_TYPES[name]

    def _modified(self, name: str, found: pa.DataType | None, *, is_field: bool) -> pa.Field:
        """Parse what is behind a type, such as NOT NULL, and return the type."""
        words = self._rest()
        modifiers = re.fullmatch(_MODIFIERS.get(name, "") + (_OF_FIELD if is_field else ""), " ".join(words))
        groups = {} if modifiers is None else modifiers.groupdict()
        if modifiers is None:
            self._without(f"{self._field()}: unexpected {' '.join(words)} behind {name}")
        elif groups.get("days"):
            found = pa.duration("us")
        elif name == "timestamp" and words[:1] == ["without"]:
            found = _LOCAL_TIME
        if found is None or (found == pa.null() and groups.get("not_null")):
            self._without(f"{self._field()} cannot be {' '.join([name, *words])}")
            return pa.field("", pa.null())
        return pa.field("", found, nullable=not groups.get("not_null"))

    def _rest(self) -> list[str]:
        """Return the words behind a type, such as those of a comment, up to a comma or bracket; a string is a quote."""
        words = [""]
        while self._kind and self._word not in (",", ">"):
            # The name of a collation may be any word, or several with dots.
            is_collation = words[-1] in ("collate", ".") or self._word == "."
            if self._kind == "symbol" and not is_collation:
                self._fail(f"unexpected {self._word!r}")
            if self._kind != "string" and not is_collation and self._word.lower() not in _AFTER_TYPE:
                self._fail(f"there is no comma before {self._word!r}")
            words.append("'" if self._kind == "string" else self._word.lower())
            self._next()
        return words[1:]

    def _without(self, problem: str) -> None:
        """Remember the first reason why there is no Arrow type."""
        self._without_arrow_type = self._without_arrow_type or problem

    def _expect(self, symbol: str) -> None:
        if self._word != symbol:
            self._fail(f"{self._field()}: expected {symbol!r}, not {self._shown()}")
        self._next()

    def _next(self) -> None:
        if not self._kind:
            self._fail("it ends within a type")
        self._kind, self._word = next(self._tokens)

    def _scan(self) -> Iterator[tuple[str, str]]:
        for found in _TOKEN.finditer(self._ddl):
            if found.lastgroup != "space":
                yield found.lastgroup or "", found[0]
        yield "", ""  # the end

    def _field(self) -> str:
        return f"field {'.'.join(self._path)}" if self._path else "the type"

    def _shown(self) -> str:
        return repr(self._word) if self._kind else "the end"

    def _fail(self, problem: str) -> NoReturn:
        shown = self._ddl if len(self._ddl) <= _MAX_SHOWN else f"{self._ddl[:_MAX_SHOWN]}..."
        raise OptionError(f"{self._option} must be DDL such as 'id bigint, name string', got {shown!r}: {problem}")
