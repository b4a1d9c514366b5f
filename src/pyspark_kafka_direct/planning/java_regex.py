"""Scans Java regular expressions, and reads their character classes as sets of the characters of topic names.

Topic names have 65 characters, so each class is a subset of these, and unions, intersections and negations are exact.
The rules are those of ``java.util.regex.Pattern`` in Java 17, the oldest Java version that Spark 4 supports.
"""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, TypeAlias

from pyspark_kafka_direct.errors import OptionError

CharacterSet: TypeAlias = frozenset[str]

TOPIC_CHARACTERS: CharacterSet = frozenset(string.ascii_letters + string.digits + "._-")

_LETTERS = frozenset(string.ascii_letters)
_LOWER = frozenset(string.ascii_lowercase)
_UPPER = frozenset(string.ascii_uppercase)
_DIGITS = frozenset(string.digits)
_PUNCT = frozenset("._-")
_NONE: CharacterSet = frozenset()

_PREDEFINED = {"d": _DIGITS, "w": _LETTERS | _DIGITS | {"_"}, "s": _NONE, "h": _NONE, "v": _NONE}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_HEX = string.hexdigits
_OCTAL = "01234567"

_PROPERTIES = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": TOPIC_CHARACTERS,
    "Alpha": _LETTERS,
    "Digit": _DIGITS,
    "Alnum": _LETTERS | _DIGITS,
    "Punct": _PUNCT,
    "Graph": TOPIC_CHARACTERS,
    "Print": TOPIC_CHARACTERS,
    "Blank": _NONE,
    "Cntrl": _NONE,
    "XDigit": frozenset(_HEX),
    "Space": _NONE,
    "IsAlphabetic": _LETTERS,
    "IsLetter": _LETTERS,
    "IsDigit": _DIGITS,
    "IsLowercase": _LOWER,
    "IsUppercase": _UPPER,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "javaLetter": _LETTERS,
    "javaDigit": _DIGITS,
    "javaLetterOrDigit": _LETTERS | _DIGITS,
}
_CATEGORIES: tuple[str, ...] = ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "Nl", "No")
_CATEGORIES += ("P", "Pc", "Pd", "Ps", "Pe", "Po", "S", "Z")
for _category in _CATEGORIES:
    _PROPERTIES[_category] = _PROPERTIES[f"Is{_category}"] = frozenset(
        char for char in TOPIC_CHARACTERS if unicodedata.category(char).startswith(_category)
    )
# Whether (?i) applies to these differs between Java versions (JDK-8214245).
_CASED = {"Lower", "Upper", "Lu", "Ll", "Lt", "IsLu", "IsLl", "IsLt", "IsLowercase", "IsUppercase"}
_CASED |= {"javaLowerCase", "javaUpperCase"}


class RegexToken(NamedTuple):
    r"""One character of a pattern; a quoted one (from ``\Q...\E``) has no special meaning."""

    char: str
    quoted: bool
    position: int


@dataclass(frozen=True, slots=True)
class RegexFlags:
    """The inline flags that affect topic names: names have no line ends, so m, s and d have no effect."""

    ignore_case: bool = False
    unicode_case: bool = False


class RegexScanner:
    """The pattern and the position of the next character to read."""

    def __init__(self, pattern: str, option: str) -> None:
        self.pattern = pattern
        self.option = option
        self._tokens = _tokens(pattern)
        self._next = 0

    @property
    def position(self) -> int:
        """Index of the next character in the pattern."""
        return self._tokens[self._next].position if self._next < len(self._tokens) else len(self.pattern)

    def at_end(self) -> bool:
        """Return whether all characters were consumed."""
        return self._next >= len(self._tokens)

    def peek(self, ahead: int = 0) -> str:
        """Return the next character (or a later one) if it is not quoted, else ``""``."""
        index = self._next + ahead
        if index < len(self._tokens) and not self._tokens[index].quoted:
            return self._tokens[index].char
        return ""

    def take(self) -> RegexToken:
        """Consume the next character, quoted or not."""
        if self.at_end():
            self.reject("the pattern ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def accept(self, char: str) -> bool:
        """Consume the next character if it is this one and not quoted."""
        if self.peek() == char:
            self._next += 1
            return True
        return False

    def take_while(self, allowed: str, limit: int | None = None) -> str:
        """Consume unquoted characters in ``allowed``, at most ``limit``."""
        taken = ""
        while (limit is None or len(taken) < limit) and self.peek() and self.peek() in allowed:
            taken += self.take().char
        return taken

    def previous(self) -> str:
        """Return the last character consumed, quoted or not."""
        return self._tokens[self._next - 1].char if self._next else ""

    def reject(self, reason: str, position: int | None = None) -> NoReturn:
        """Raise the error for a construct that is malformed or cannot be translated exactly."""
        raise OptionError(
            f"{self.option}={self.pattern!r}: {reason} (at position "
            f"{self.position if position is None else position}); the pattern is a Java regular expression, and only "
            "constructs that Python matches identically are accepted"
        )


def literal_class(scanner: RegexScanner, char: str, flags: RegexFlags) -> CharacterSet:
    """Return the topic characters that a literal character matches."""
    return _character_range(scanner, char, char, flags)


def predefined_class(char: str) -> CharacterSet | None:
    r"""Return the set of ``\d \D \w \W \s \S \h \H \v \V`` by the letter; ``None`` for other letters."""
    if char.lower() not in _PREDEFINED:
        return None
    chars = _PREDEFINED[char.lower()]
    return TOPIC_CHARACTERS - chars if char.isupper() else chars


def property_class(scanner: RegexScanner, negated: bool, flags: RegexFlags) -> CharacterSet:
    r"""Read ``\p{name}``, ``\pL`` or, negated, ``\P{name}``, after the letter p or P."""
    start = scanner.position - 2
    if scanner.accept("{"):
        name = scanner.take_while(string.ascii_letters + string.digits + "_= ")
        if not scanner.accept("}"):
            scanner.reject("unclosed or unsupported \\p{...}", start)
    else:
        name = scanner.take_while(string.ascii_letters, 1)
    if name not in _PROPERTIES:
        scanner.reject(f"the property {name!r} is not supported", start)
    if name in _CASED and flags.ignore_case:
        scanner.reject(f"the property {name!r} with (?i) differs between Java versions", start)
    return TOPIC_CHARACTERS - _PROPERTIES[name] if negated else _PROPERTIES[name]


def escaped_char(scanner: RegexScanner, letter: str) -> str | None:
    r"""Read an escape such as ``\t``, ``\x2E``, ``\u002E``, ``\056``, ``\cA`` or ``\.``, after the letter.

    The result is ``None`` for escapes that are not a single character.
    """
    start = scanner.position - 2
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter == "c":
        if scanner.peek() in ("", "\\"):
            scanner.reject("illegal control escape", start)
        return chr(ord(scanner.take().char) ^ 64)
    if letter == "0":
        digits = scanner.take_while(_OCTAL, 3)
        if not digits:
            scanner.reject("illegal octal escape", start)
        if len(digits) == 3 and digits[0] > "3":
            scanner.reject("an octal escape of three digits above \\0377 is ambiguous", start)
        return chr(int(digits, 8))
    if letter == "x" and scanner.accept("{"):
        digits = scanner.take_while(_HEX)
        if not scanner.accept("}") or not digits or int(digits, 16) > 0x10FFFF:
            scanner.reject("illegal \\x{...} escape", start)
        return chr(int(digits, 16))
    if letter in ("x", "u"):
        width = 2 if letter == "x" else 4
        digits = scanner.take_while(_HEX, width)
        if len(digits) < width:
            scanner.reject(f"illegal \\{letter} escape", start)
        return chr(int(digits, 16))
    if letter.isascii() and letter.isalnum():
        return None
    return letter


def character_class(scanner: RegexScanner, flags: RegexFlags) -> CharacterSet:
    """Read a class in brackets, after the opening one."""
    start = scanner.position - 1
    negated = scanner.accept("^")
    left: CharacterSet | None = None  # the intersection of the operands before the last &&
    union: CharacterSet | None = None  # the items after it; None if there are none yet
    while True:
        if scanner.at_end():
            scanner.reject("unclosed character class", start)
        if scanner.peek() == "]" and union is not None:
            scanner.take()
            break
        if scanner.peek() == "&" and scanner.peek(1) == "&":
            scanner.take()
            scanner.take()
            if union is None or scanner.peek() in ("&", "]"):
                scanner.reject("an intersection (&&) needs both operands")
            left, union = union if left is None else left & union, None
        elif scanner.accept("["):
            union = (union or _NONE) | character_class(scanner, flags)
        else:
            union = (union or _NONE) | _class_item(scanner, flags)
    chars = union if left is None else left & union
    return TOPIC_CHARACTERS - chars if negated else chars


def _tokens(pattern: str) -> list[RegexToken]:
    r"""Return the characters of a pattern, without the ``\Q`` and ``\E`` around quoted ones."""
    tokens: list[RegexToken] = []
    index = 0
    while index < len(pattern):
        if pattern[index] == "\\" and pattern[index + 1 : index + 2] == "Q":
            end = pattern.find("\\E", index + 2)
            stop = len(pattern) if end < 0 else end
            tokens += [RegexToken(pattern[i], True, i) for i in range(index + 2, stop)]
            index = stop + 2
            continue
        # A backslash and the next character are one unit: in \\Q the second backslash does not start a quotation.
        width = 2 if pattern[index] == "\\" else 1
        tokens += [RegexToken(pattern[i], False, i) for i in range(index, min(index + width, len(pattern)))]
        index += width
    return tokens


def _class_item(scanner: RegexScanner, flags: RegexFlags) -> CharacterSet:
    """Read one character, range or escape within a class."""
    start = scanner.position
    if scanner.peek() == "^" and scanner.previous() == "[":
        # Java looks at the character before ^ even if that is escaped.
        scanner.reject("'^' right after '[' within a class")
    first: str | None
    if scanner.accept("\\"):
        letter = scanner.take().char
        if letter in ("p", "P"):
            return property_class(scanner, letter == "P", flags)
        chars = predefined_class(letter)
        if chars is not None:
            if letter == "v" and scanner.peek() == "-":
                scanner.reject("\\v followed by '-' is a vertical tab to Java", start)
            return chars
        first = escaped_char(scanner, letter)
        if first is None:
            scanner.reject(f"\\{letter} is not supported within a class", start)
    else:
        first = scanner.take().char
    if scanner.peek() != "-" or scanner.peek(1) in ("[", "]"):
        return literal_class(scanner, first, flags)
    scanner.take()
    last = escaped_char(scanner, scanner.take().char) if scanner.accept("\\") else scanner.take().char
    if last is None or last < first:
        scanner.reject("illegal character range", start)
    return _character_range(scanner, first, last, flags)


def _character_range(scanner: RegexScanner, first: str, last: str, flags: RegexFlags) -> CharacterSet:
    """Return the topic characters from ``first`` to ``last``, in both cases with (?i)."""
    if flags.ignore_case and flags.unicode_case and not (first.isascii() and last.isascii()):
        scanner.reject("characters outside ASCII with both (?i) and (?u)")
    return frozenset(
        char
        for char in TOPIC_CHARACTERS
        if first <= char <= last or (flags.ignore_case and first <= char.swapcase() <= last)
    )
