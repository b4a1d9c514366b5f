r"""Parser of ``sasl.jaas.config``: a login module, a control flag, options and a semicolon.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="it's \"secret\"";

The grammar is that of Kafka's ``JaasConfig`` (Java's ``StreamTokenizer``):

    config  = { module flag { key "=" value } ";" }
    value   = word | string
    word    = anything but blanks, quotes, "=", ";" and "/"
    string  = quoted with " or ', on one line, with the escapes \n \t \r \b \f \a \v, \ooo (octal), and \ before any
              other character for itself

with comments in ``//`` and ``/* */``. Unlike Java, unquoted words can start with a digit. Messages never contain the
value of the option because it contains passwords.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE
from pyspark_kafka_direct.options.security_settings import MASK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_TOKEN: Final = re.compile(
    r"""(?P<blank> \s+ | //[^\r\n]* | /\*.*?\*/ )
      | (?P<string> "(?:[^"\\\r\n]|\\[^\r\n])*" | '(?:[^'\\\r\n]|\\[^\r\n])*' )
      | (?P<sign> [=;] )
      | (?P<word> [^\s"'=;/]+ )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPED_CHARACTERS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class LoginModule:
    """A login module and its options; ``repr`` masks their values, which can be secrets."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        masked_options = " ".join(f"{key}={MASK}" for key in self.options)
        return f"LoginModule({self.name} {masked_options})"


def parse_jaas(text: str, option_name: str = "kafka.sasl.jaas.config") -> LoginModule:
    """Parse exactly one login module, like Kafka's ``JaasContext``; its control flag has no effect."""
    tokens = _JaasTokens(text, option_name)
    module = tokens.next_word("the class name of a login module")
    flag = tokens.next_word("a control flag (required)")
    if flag == "{":
        raise tokens.error(
            expected="the login module of the JAAS file alone, without the name of its section and braces"
        )
    if flag.lower() not in _CONTROL_FLAGS:
        raise tokens.error(expected="a control flag: required, requisite, sufficient or optional")
    options: dict[str, str] = {}
    while not tokens.advance_to(";", expected="the name of an option, or ; at the end"):
        key = tokens.value
        if tokens.kind != "word":
            raise tokens.error(expected="the name of an option, or ; at the end")
        if not tokens.advance_to("=", expected="= after the name of an option"):
            raise tokens.error(
                expected="= after the name of an option (quote values with blanks or special characters)"
            )
        options[key] = tokens.next_word("the value of an option", allow_quoted=True)
    if tokens.advance():
        raise tokens.error(expected="nothing after the first login module")
    return LoginModule(module, options)


def jaas_value(option_name: str, options: Mapping[str, str]) -> str | None:
    """Return the value of a client setting that has another name among the options of a login module."""
    source_key = OPTION_TABLE.by_name[option_name].key_in(ConfigSource.JAAS)
    return None if source_key is None else options.get(source_key.name)


class _JaasTokens:
    """The tokens of a JAAS configuration; ``kind`` and ``value`` belong to the current token."""

    def __init__(self, text: str, option_name: str) -> None:
        self._option_name = option_name
        self._end = len(text)
        self._tokens = self._split(text)
        self._position = 0
        self.kind = ""  # a group of _TOKEN; empty before the first token and after the last one
        self.value = ""

    def advance(self) -> bool:
        """Move to the next token; return whether there is one."""
        token = next(self._tokens, None)
        if token is None:
            self._position, self.kind, self.value = self._end, "", ""
            return False
        self._position, self.kind, self.value = token
        return True

    def advance_to(self, sign: str, *, expected: str) -> bool:
        """Move to the next token, which must exist, and return whether it is this sign."""
        if not self.advance():
            raise self.error(expected=expected)
        return self.kind == "sign" and self.value == sign

    def next_word(self, expected: str, *, allow_quoted: bool = False) -> str:
        """Move to the next token, which must be a word (or, with ``allow_quoted``, a string), and return its value."""
        if not self.advance() or (self.kind != "word" and not (allow_quoted and self.kind == "string")):
            raise self.error(expected=expected)
        return self.value

    def error(self, *, expected: str) -> OptionError:
        """Return the error for the current token."""
        location = "at its end" if self._position >= self._end else f"at character {self._position + 1}"
        return OptionError(
            f"{self._option_name} is invalid {location}: expected {expected}; the format is "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
        )

    def _split(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Yield the position, kind and value of each token."""
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._position = position  # for the message of the error
                is_quote = text[position] in "\"'"
                expected = "a closing quote" if is_quote else "a quoted value (values with / need quotes)"
                raise self.error(expected=expected)
            kind = match.lastgroup or ""
            if kind == "string":
                yield position, kind, _ESCAPE.sub(_unescape, match[0][1:-1])
            elif kind != "blank":
                yield position, kind, match[0]
            position = match.end()


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPED_CHARACTERS.get(escape, escape)
