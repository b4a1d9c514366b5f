"""Character classes of Java regular expressions, as sets of the characters a topic's name can have.

Topic names have 65 characters to choose from, so each class comes down to a set of some of them. Unions, intersections
and negations are exact set arithmetic. The rules are those of ``java.util.regex.Pattern`` in Java 17, the oldest Java
that Spark 4 runs on.
"""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark_kafka_direct.planning.java_patterns._tokens import Cursor

Chars: TypeAlias = frozenset[str]

ALPHABET: Chars = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters of legal topic names."""

_LETTERS = frozenset(string.ascii_letters)
_LOWER = frozenset(string.ascii_lowercase)
_UPPER = frozenset(string.ascii_uppercase)
_DIGITS = frozenset(string.digits)
_PUNCT = frozenset("._-")
_NONE: Chars = frozenset()

_PREDEFINED = {"d": _DIGITS, "w": _LETTERS | _DIGITS | {"_"}, "s": _NONE, "h": _NONE, "v": _NONE}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_HEX = string.hexdigits
_OCTAL = "01234567"

_PROPERTIES = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ALPHABET,
    "Alpha": _LETTERS,
    "Digit": _DIGITS,
    "Alnum": _LETTERS | _DIGITS,
    "Punct": _PUNCT,
    "Graph": ALPHABET,
    "Print": ALPHABET,
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
_CATEGORIES = [
    "L",
    "Lu",
    "Ll",
    "Lt",
    "Lm",
    "Lo",
    "M",
    "N",
    "Nd",
    "Nl",
    "No",
    "P",
    "Pc",
    "Pd",
    "Ps",
    "Pe",
    "Po",
    "S",
    "Z",
]
for _category in _CATEGORIES:
    _PROPERTIES[_category] = _PROPERTIES[f"Is{_category}"] = frozenset(
        char for char in ALPHABET if unicodedata.category(char).startswith(_category)
    )
# Whether these follow (?i) changed between Java versions (JDK-8214245).
_CASED = {"Lower", "Upper", "Lu", "Ll", "Lt", "IsLu", "IsLl", "IsLt", "IsLowercase", "IsUppercase"}
_CASED |= {"javaLowerCase", "javaUpperCase"}


@dataclass(frozen=True, slots=True)
class Flags:
    """The inline flags that matter for topic names: names hold no line ends, so m, s and d change nothing."""

    ignore_case: bool = False
    unicode_case: bool = False


def literal(cursor: Cursor, char: str, flags: Flags) -> Chars:
    """Return the topic characters that a literal character matches."""
    return _between(cursor, char, char, flags)


def predefined(char: str) -> Chars | None:
    r"""Return the set of ``\d \D \w \W \s \S \h \H \v \V``, given the letter; ``None`` for other letters."""
    if char.lower() not in _PREDEFINED:
        return None
    chars = _PREDEFINED[char.lower()]
    return ALPHABET - chars if char.isupper() else chars


def property_class(cursor: Cursor, negated: bool, flags: Flags) -> Chars:
    r"""Read ``\p{name}``, ``\pL`` or, negated, ``\P{name}``; the cursor is behind the letter p or P."""
    start = cursor.position - 2
    if cursor.accept("{"):
        name = cursor.take_while(string.ascii_letters + string.digits + "_= ")
        if not cursor.accept("}"):
            cursor.refuse("unclosed or unsupported \\p{...}", start)
    else:
        name = cursor.take_while(string.ascii_letters, 1)
    if name not in _PROPERTIES:
        cursor.refuse(f"the property {name!r} is not supported", start)
    if name in _CASED and flags.ignore_case:
        cursor.refuse(f"the property {name!r} under (?i) means different things in different Java versions", start)
    return ALPHABET - _PROPERTIES[name] if negated else _PROPERTIES[name]


def escaped_char(cursor: Cursor, letter: str) -> str | None:
    r"""Read the character of an escape such as ``\t``, ``\x2E``, ``\u002E``, ``\056``, ``\cA`` or ``\.``.

    The cursor is behind the letter. ``None`` for escapes that are no single character.
    """
    start = cursor.position - 2
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if letter == "c":
        if cursor.peek() in ("", "\\"):
            cursor.refuse("illegal control escape", start)
        return chr(ord(cursor.take().char) ^ 64)
    if letter == "0":
        digits = cursor.take_while(_OCTAL, 3)
        if not digits:
            cursor.refuse("illegal octal escape", start)
        if len(digits) == 3 and digits[0] > "3":
            cursor.refuse("an octal escape of three digits above \\0377 is ambiguous", start)
        return chr(int(digits, 8))
    if letter == "x" and cursor.accept("{"):
        digits = cursor.take_while(_HEX)
        if not cursor.accept("}") or not digits or int(digits, 16) > 0x10FFFF:
            cursor.refuse("illegal \\x{...} escape", start)
        return chr(int(digits, 16))
    if letter in ("x", "u"):
        width = 2 if letter == "x" else 4
        digits = cursor.take_while(_HEX, width)
        if len(digits) < width:
            cursor.refuse(f"illegal \\{letter} escape", start)
        return chr(int(digits, 16))
    if letter.isascii() and letter.isalnum():
        return None
    return letter


def character_class(cursor: Cursor, flags: Flags) -> Chars:
    """Read a class in brackets; the cursor is behind the opening one."""
    start = cursor.position - 1
    negated = cursor.accept("^")
    left: Chars | None = None
    union: Chars | None = None
    while True:
        if cursor.at_end():
            cursor.refuse("unclosed character class", start)
        if cursor.peek() == "]" and union is not None:
            cursor.take()
            break
        if cursor.peek() == "&" and cursor.peek(1) == "&":
            cursor.take()
            cursor.take()
            if union is None or cursor.peek() in ("&", "]"):
                cursor.refuse("an intersection (&&) needs both of its sides")
            left, union = union if left is None else left & union, None
        elif cursor.accept("["):
            union = (union or _NONE) | character_class(cursor, flags)
        else:
            union = (union or _NONE) | _item(cursor, flags)
    chars = union if left is None else left & union
    return ALPHABET - chars if negated else chars


def _item(cursor: Cursor, flags: Flags) -> Chars:
    """Read one character, range or escape within a class."""
    start = cursor.position
    if cursor.peek() == "^" and cursor.previous() == "[":
        # Java looks at the character before ^ without asking whether it was escaped.
        cursor.refuse("'^' right after '[' within a class")
    first: str | None
    if cursor.accept("\\"):
        letter = cursor.take().char
        if letter in ("p", "P"):
            return property_class(cursor, letter == "P", flags)
        chars = predefined(letter)
        if chars is not None:
            if letter == "v" and cursor.peek() == "-":
                cursor.refuse("\\v followed by '-' is a vertical tab to Java", start)
            return chars
        first = escaped_char(cursor, letter)
        if first is None:
            cursor.refuse(f"\\{letter} is not supported within a class", start)
    else:
        first = cursor.take().char
    if cursor.peek() != "-" or cursor.peek(1) in ("[", "]"):
        return literal(cursor, first, flags)
    cursor.take()
    last = escaped_char(cursor, cursor.take().char) if cursor.accept("\\") else cursor.take().char
    if last is None or last < first:
        cursor.refuse("illegal character range", start)
    return _between(cursor, first, last, flags)


def _between(cursor: Cursor, first: str, last: str, flags: Flags) -> Chars:
    if flags.ignore_case and flags.unicode_case and not (first.isascii() and last.isascii()):
        cursor.refuse("characters outside ASCII with both (?i) and (?u)")
    return frozenset(
        char for char in ALPHABET if first <= char <= last or (flags.ignore_case and first <= char.swapcase() <= last)
    )
