r"""The text of ``sasl.jaas.config``: a log-in module, a control flag, options, a semicolon.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="it's \"secret\"";

The grammar is that of Kafka's ``JaasConfig`` (Java's ``StreamTokenizer``):

    config  = { module flag { key "=" value } ";" }
    value   = word | string
    word    = anything but blanks, quotes, "=", ";" and "/"
    string  = quoted with " or ', on one line, with the escapes \n \t \r \b \f \a \v, \ooo (octal), and \ before any
              other character for itself

with comments in ``//`` and ``/* */``. Java reads fewer words without quotes (none that start with a digit); the rest
is the same. No message here ever quotes the text: it holds passwords.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._table import TABLE
from pyspark_kafka_direct.settings.row import Origin
from pyspark_kafka_direct.settings.secret import MASK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_TOKEN: Final = re.compile(
    r"""(?P<blank> \s+ | //[^\r\n]* | /\*.*?\*/ )
      | (?P<string> "(?:[^"\\\r\n]|\\[^\r\n])*" | '(?:[^'\\\r\n]|\\[^\r\n])*' )
      | (?P<sign> [=;] )
      | (?P<word> [^\s"'=;/]+ )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class LoginModule:
    """One log-in module with its options (which may be secrets: ``repr`` shows their names only)."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        shown = " ".join(f"{key}={MASK}" for key in self.options)
        return f"LoginModule({self.name} {shown})"


def parse_jaas(text: str, name: str = "kafka.sasl.jaas.config") -> LoginModule:
    """Parse the value of ``sasl.jaas.config``.

    Args:
        text: The configuration; exactly one log-in module, as Kafka's ``JaasContext`` wants it.
        name: The setting as it was written, for messages.

    Raises:
        OptionError: The text does not follow the grammar; says where and what was expected, never what stands there.
    """
    tokens = _Tokens(text, name)
    module = tokens.word("a log-in module's class name")
    flag = tokens.word("a control flag (required)")
    if flag.lower() not in _FLAGS:
        raise tokens.error("a control flag: required, requisite, sufficient or optional")
    options: dict[str, str] = {}
    while not tokens.next_is(";", "an option's name, or ; at the end"):
        key = tokens.value
        if tokens.kind != "word":
            raise tokens.error("an option's name, or ; at the end")
        if not tokens.next_is("=", "= after an option's name"):
            raise tokens.error("= after an option's name (quote values that hold blanks or signs)")
        options[key] = tokens.word("an option's value", quoted=True)
    if tokens.more():
        raise tokens.error("nothing after the first log-in module")
    return LoginModule(module, options)


def inside(setting: str, options: Mapping[str, str]) -> str | None:
    """Return the text of a setting that has a name of its own among a log-in module's options."""
    way = TABLE.by_name[setting].written(Origin.JAAS)
    return None if way is None else options.get(way.name)


class _Tokens:
    """The tokens of a text one by one; ``kind`` and ``value`` are those of the last one."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._end = len(text)
        self._tokens = self._split(text)
        self._position = 0
        self.kind = ""
        self.value = ""

    def more(self) -> bool:
        """Step to the next token, if there is one."""
        token = next(self._tokens, None)
        if token is None:
            self._position, self.kind, self.value = self._end, "", ""
            return False
        self._position, self.kind, self.value = token
        return True

    def next_is(self, sign: str, expected: str) -> bool:
        """Step to the next token, which must be there, and tell whether it is this sign."""
        if not self.more():
            raise self.error(expected)
        return self.kind == "sign" and self.value == sign

    def word(self, expected: str, *, quoted: bool = False) -> str:
        """Step to the next token, which must be a word (or, with ``quoted``, a string), and give its text."""
        if not self.more() or (self.kind != "word" and not (quoted and self.kind == "string")):
            raise self.error(expected)
        return self.value

    def error(self, expected: str) -> OptionError:
        """Say what was expected at the last token."""
        where = "at its end" if self._position >= self._end else f"at character {self._position + 1}"
        return OptionError(
            f"{self._name} cannot be read {where}: expected {expected}; the form is "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
        )

    def _split(self, text: str) -> Iterator[tuple[int, str, str]]:
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._position = position
                what = (
                    "a closing quote" if text[position] in "\"'" else "a quoted value (one that holds / needs quotes)"
                )
                raise self.error(what)
            kind = match.lastgroup or ""
            if kind == "string":
                yield position, kind, _ESCAPE.sub(_unescape, match[0][1:-1])
            elif kind != "blank":
                yield position, kind, match[0]
            position = match.end()


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPED.get(escape, escape)
