"""The DDL of a column, which an option has.

Spark parses it, as a part of the DDL of all columns, so its errors would show a position in a text that nobody wrote.
Therefore it is checked before. What Spark accepts must pass; of what it rejects, the frequent mistakes are found.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.hints import did_you_mean

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
_PLAIN_TYPES: Final = (
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double"),
    *("date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "binary", "decimal", "dec", "numeric"),
    *("interval", "void", "null", "variant", "geometry", "geography"),
)
_WITH_LENGTH: Final = ("char", "character", "varchar")
_NESTED: Final = {"array": 1, "map": 2, "struct": None}  # the number of types in angle brackets; None: fields
_DECIMALS: Final = ("decimal", "dec", "numeric")
_MAX_PRECISION: Final = 38
# What may follow the type of a field, or belongs to it, such as DAY TO SECOND of an interval.
_AFTER_TYPE: Final = (
    *("not", "null", "comment", "collate", "without", "with", "local", "time", "zone", "to"),
    *("year", "month", "day", "hour", "minute", "second"),
)
_MAX_SHOWN: Final = 200


def is_type(ddl: str) -> bool:
    """Return whether DDL is a type that is neither a struct nor a VARIANT."""
    return _OTHER_TYPE.match(ddl) is not None


def as_type(ddl: str) -> str:
    """Return the type of DDL, which may be the fields of a struct."""
    return ddl if _TYPE.match(ddl) else f"struct<{ddl}>"


def checked_type(ddl: str, option: str) -> str:
    """Return the type of the DDL in an option, which may be the fields of a struct; an OptionError if it is invalid."""
    # In the DDL of all columns, a comment up to the end of the line would hide the columns behind it.
    ddl = _TOKEN.sub(lambda found: " " if found.lastgroup == "comment" else found[0], ddl)
    found = ddl if is_type(ddl) else as_type(ddl)
    _Check(ddl, option).run(is_type=found == ddl)
    return found


class _Check:
    def __init__(self, ddl: str, option: str) -> None:
        self._ddl = ddl
        self._option = option
        self._path: list[str] = []  # of the field whose type is checked
        self._tokens = self._scan()
        self._kind, self._word = next(self._tokens)

    def run(self, *, is_type: bool) -> None:
        if is_type:
            self._type()
        elif self._kind:  # a struct may be empty
            self._fields()
        if self._kind:
            self._fail(f"unexpected {self._word!r}")

    def _fields(self) -> None:
        """Check fields up to the bracket behind them, or the end."""
        while True:
            name = self._word
            if self._kind not in ("name", "quoted"):
                self._fail(f"expected the name of a field, not {self._shown()}")
            self._next()
            if self._word == ":":
                self._next()
            elif self._kind == "symbol" and self._word not in ",><(":
                self._fail(f"the name {name}{self._word}... has to be in backquotes")
            self._path.append(name)
            self._type()
            self._path.pop()
            if self._word != ",":
                return
            self._next()

    def _type(self) -> None:
        name = self._word.lower()
        if self._kind != "name":
            self._fail(f"{self._field()} has no type before {self._shown()}")
        self._next()
        if name in _NESTED and self._word == "<":
            self._nested(name)
        elif name in ("array", "map"):
            self._fail(
                f"{self._field()}: {name} needs the types of its elements, such as {name}<string"
                + (">" if name == "array" else ", int>")
            )
        elif name in (*_PLAIN_TYPES, *_WITH_LENGTH):
            self._parameters(name)
        elif name != "struct":
            hint = did_you_mean(name, [*_PLAIN_TYPES, *_WITH_LENGTH, *_NESTED])
            self._fail(
                f"{self._field()} has the unknown type {name!r}{hint}" if self._path else f"no type {name!r}{hint}"
            )
        self._rest()

    def _nested(self, name: str) -> None:
        """Check the types or fields in angle brackets."""
        self._next()
        count = _NESTED[name]
        if count is None and self._word != ">":  # a struct may be empty
            self._fields()
        for index in range(count or 0):
            if index:
                self._expect(",")
            self._type()
        self._expect(">")

    def _parameters(self, name: str) -> None:
        """Check the numbers in parentheses behind a type."""
        numbers: list[str] = []
        if self._word == "(":
            self._next()
            while self._word != ")":
                numbers.append(self._word)
                self._next()
                if self._word == ",":
                    self._next()
            self._next()
        if name in _WITH_LENGTH and not numbers:
            self._fail(f"{self._field()}: {name} needs a length, such as {name}(20)")
        if name in _DECIMALS and numbers:
            precision, scale = (int(each) if each.isdecimal() else -1 for each in [*numbers, "0"][:2])
            if not 0 <= scale <= precision <= _MAX_PRECISION or len(numbers) > 2:
                self._fail(f"{self._field()}: the type {name}({', '.join(numbers)}) is not valid")

    def _rest(self) -> None:
        """Skip what may be behind a type, such as a comment, up to a comma or bracket."""
        before = ""
        while self._kind and self._word not in (",", ">"):
            # The name of a collation may be any word, or several with dots.
            is_collation = before in ("collate", ".") or self._word == "."
            if self._kind == "symbol" and not is_collation:
                self._fail(f"unexpected {self._word!r}")
            if self._kind != "string" and not is_collation and self._word.lower() not in _AFTER_TYPE:
                self._fail(f"there is no comma before {self._word!r}")
            before = self._word.lower()
            self._next()

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
