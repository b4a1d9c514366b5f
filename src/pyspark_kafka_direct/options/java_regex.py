r"""Translates Java regular expressions for topic names, and for ``host:port``, to PyPI's ``regex``.

Both have 68 characters, so each character, class or property becomes the set of those that it matches. This makes case,
Unicode and the operators of classes exact. The rules are those of ``java.util.regex.Pattern`` in Java 17,
the oldest version that Spark 4 supports. Other constructs that the engines match differently:

* A possessive group keeps the first match of each iteration in Java, so each iteration is made atomic.
* After an iteration without width Java leaves a loop, so what has assertions is not repeated two or more times.
* Java bounds the width of a look-behind, and ``regex`` matches it backwards, so it may not contain quantifiers.
* What a group holds after backtracking differs, so back references are rejected.

``regex`` copies what a quantifier repeats once more than its minimum, so the copies are limited.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, TypeAlias

from pyspark_kafka_direct.errors import OptionError

_CharacterSet: TypeAlias = frozenset[str]

_MAX_SIZE = 10_000  # characters of a pattern, also after copying
_MAX_DEPTH = 50  # of groups and classes, which are read and compiled recursively

_LOWER, _UPPER, _DIGITS = map(frozenset, (string.ascii_lowercase, string.ascii_uppercase, string.digits))
_LETTERS = _LOWER | _UPPER
_CHARACTERS = _LETTERS | _DIGITS | frozenset("._-:[]")  # topic names have the first three signs only
_NONE: _CharacterSet = frozenset()
_PREDEFINED = {"d": _DIGITS, "w": _LETTERS | _DIGITS | {"_"}, "s": _NONE, "h": _NONE, "v": _NONE}
_CASED = {  # whether (?i) applies to these differs between Java versions (JDK-8214245)
    "Lower Ll IsLl IsLowercase javaLowerCase": _LOWER,
    "Upper Lu IsLu IsUppercase javaUpperCase": _UPPER,
    "Lt IsLt": _NONE,
}
_UNCASED = {
    "Alpha L IsL IsAlphabetic IsLetter javaLetter": _LETTERS,
    "Digit N IsN Nd IsNd IsDigit javaDigit": _DIGITS,
    "Alnum javaLetterOrDigit": _LETTERS | _DIGITS,
    "XDigit": frozenset(string.hexdigits),
    "Punct P IsP": frozenset("._-:[]"),
    "Pc IsPc": frozenset("_"),
    "Pd IsPd": frozenset("-"),
    "Po IsPo": frozenset(".:"),
    "Ps IsPs": frozenset("["),
    "Pe IsPe": frozenset("]"),
    "ASCII Graph Print": _CHARACTERS,
    "Blank Cntrl Space Lm IsLm Lo IsLo M IsM Nl IsNl No IsNo S IsS Z IsZ": _NONE,
}
_PROPERTIES = {name: chars for names, chars in (_CASED | _UNCASED).items() for name in names.split()}

_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_HEX = "[0-9a-fA-F]"
# Atomic, because a part of an octal number is a number, too. Surrogates, which may form pairs, are not accepted.
_ESCAPED = (
    rf"\\(?>[^a-zA-Z0-9] | [tnrfae] | 0(?:[0-3][0-7]{{2}} | [0-7]{{1,2}}) | c[\ -\[\]-~]"
    rf" | x(?:{_HEX}{{2}} | \{{0*(?:10 | {_HEX})?{_HEX}{{1,4}}\}}) | u(?![dD][89a-fA-F]){_HEX}{{4}})"
)
_SET = r"\\(?P<set>[dDwWsShHV] | v(?!-)) | \\(?P<property>[pP](?:[A-Za-z] | \{[\w=\ ]*\}))"
_QUOTED = r"\\Q(?P<quoted>(?:(?!\\E).)+)"
_FLAGS = r"[dimsuU]*(?:-[dimsuU]*)?"
_TOKEN = re.compile(
    rf"""(?P<char>[^\\()\[|*+?{{^$.] | {_ESCAPED}) | {_SET} | {_QUOTED}(?:\\E | \Z) | (?P<any>\.) | (?P<class>\[\^?)
    | (?P<quantifier>(?P<counts>[*+?] | \{{(?P<min>[0-9]{{1,9}})(?:,(?P<max>[0-9]{{0,9}}))?\}})[+?]?)
    | (?P<branch>\|) | (?P<assertion>\^ | \$ | \\[bBAzZ]) | (?P<flags>\(\?{_FLAGS}\))
    | (?P<open>\((?: (?!\?) | \?[:>=!] | \?<[=!] | \?<(?P<name>[a-zA-Z][a-zA-Z0-9]*)> | \?{_FLAGS}: )) | (?P<close>\))
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_CLASS_TOKEN = re.compile(
    rf"""(?P<range>(?P<first>[^\\\[\]^&] | &(?!&) | {_ESCAPED})-(?P<last>[^\\\[\]] | {_ESCAPED}))
    | (?P<char>(?:[^\\\[\]^&] | &(?!&) | {_ESCAPED})(?!-[^\[\]])) | {_SET} | {_QUOTED}\\E(?!-)
    | (?P<class>\[\^?) | (?P<close>\]) | (?P<intersection>&&(?!&))""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def translate_java_regex(pattern: str, option: str) -> str:
    """Translate a Java regular expression to one for ``regex`` that matches the same topic names, or ``host:port``."""
    return _Translator(pattern, option).translate()


class _Repeatable(NamedTuple):
    """The last part of the translation, to which a quantifier would apply."""

    size: int
    has_assertions: bool = False


@dataclass(slots=True)
class _Group:
    """A group that is open, or the whole pattern."""

    opening: str
    position: int
    ignore_case_before: bool
    parts: list[str] = field(default_factory=list)  # the translation
    size: int = 1
    has_assertions: bool = False


class _Translator:
    def __init__(self, pattern: str, option: str) -> None:
        self._pattern = pattern
        self._option = option
        self._start = 0  # of the current token
        self._next = 0  # the position after it
        self._group = _Group(opening="", position=0, ignore_case_before=False, size=0)
        self._outer: list[_Group] = []  # the open groups around it, and the whole pattern first
        self._repeatable: _Repeatable | None = None  # None: a quantifier may not follow
        self._ignore_case = False
        self._depth = 0
        self._names: set[str] = set()

    def translate(self) -> str:
        if len(self._pattern) > _MAX_SIZE:
            self._reject(f"the pattern has more than {_MAX_SIZE} characters")
        while self._next < len(self._pattern):
            token = self._read(_TOKEN)
            match token.lastgroup:
                case "quantifier":
                    self._quantify(token)
                case "open":
                    self._open(token)
                case "close":
                    self._close()
                case "flags":
                    self._set_flags(token[0])
                    self._repeatable = None
                case "assertion":
                    self._group.has_assertions = True
                    # Java's \Z and \z differ only in front of a line end, which topic names do not have.
                    self._add(r"\Z" if token[0] == r"\z" else token[0], None)
                case "branch":
                    self._add("|", None)
                case _:
                    for chars in self._sets(token):
                        self._add(_any_of(chars), _Repeatable(size=1))
        if self._outer:
            self._reject("unclosed group", self._group.position)
        return "".join(self._group.parts)

    def _read(self, tokens: re.Pattern[str]) -> re.Match[str]:
        self._start = self._next
        token = tokens.match(self._pattern, self._start)
        if token is None:
            self._reject(f"{self._pattern[self._start :][:3]!r} is malformed or not supported here")
        self._next = token.end()
        return token

    def _add(self, part: str, repeatable: _Repeatable | None) -> None:
        self._group.parts.append(part)
        self._repeatable = repeatable
        self._grow(repeatable.size if repeatable else 1)

    def _grow(self, size: int) -> None:
        self._group.size += size
        if self._group.size > _MAX_SIZE:
            self._reject(f"the pattern has more than {_MAX_SIZE} characters after its repetitions are copied")

    def _nest(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._reject(f"groups or classes are nested deeper than {_MAX_DEPTH}")

    def _quantify(self, token: re.Match[str]) -> None:
        quantifier, counts = token[0], token["counts"]
        if self._repeatable is None:
            self._reject(f"{quantifier!r} has nothing to repeat")
        size, has_assertions = self._repeatable
        minimum = int(token["min"] or counts == "+")  # 1 for `+`, 0 for `*` and `?`
        is_possessive = quantifier == f"{counts}+"
        if token["max"] and int(token["max"]) < minimum:
            self._reject("illegal repetition range")
        if minimum > 1 and has_assertions:
            self._reject("an anchor or look-around in a repetition of two or more iterations")
        if self._is_in_look_behind:
            self._reject("a quantifier within a look-behind")
        body = self._group.parts[-1]
        self._group.parts[-1] = f"(?>(?>{body}){counts})" if is_possessive else f"(?:{body}){quantifier}"
        self._repeatable = None
        self._grow(size * minimum)  # `regex` copies the part this often

    @property
    def _is_in_look_behind(self) -> bool:
        return any(group.opening in ("(?<=", "(?<!") for group in (*self._outer, self._group))

    def _open(self, token: re.Match[str]) -> None:
        opening, name = token[0], token["name"]
        self._nest()
        if name in self._names:
            self._reject(f"the group name {name!r} is used twice")
        if opening == "(?>" and self._is_in_look_behind:
            self._reject("an atomic group within a look-behind")
        if name:
            self._names.add(name)
        self._outer.append(self._group)
        # "(", "(?<name>" and "(?i:" become "(?:", because nothing refers to a group and flags are applied here.
        is_plain = name is not None or opening[-1] in "(:"
        self._group = _Group("(?:" if is_plain else opening, self._start, self._ignore_case)
        self._repeatable = None
        if opening[-1] == ":":
            self._set_flags(opening)

    def _close(self) -> None:
        if not self._outer:
            self._reject("unmatched ')'")
        group, self._group = self._group, self._outer.pop()
        self._depth -= 1
        self._ignore_case = group.ignore_case_before
        is_look_around = group.opening[-1] in "=!"
        self._group.has_assertions |= group.has_assertions or is_look_around
        self._add(f"{group.opening}{''.join(group.parts)})", _Repeatable(group.size, group.has_assertions))
        if is_look_around:
            self._repeatable = None  # it has no width, so there is nothing to repeat

    def _set_flags(self, flags: str) -> None:
        # The other flags concern line ends and characters outside ASCII, which topic names do not have.
        on, _, off = flags.partition("-")
        self._ignore_case = (self._ignore_case or "i" in on) and "i" not in off

    def _sets(self, token: re.Match[str]) -> list[_CharacterSet]:
        """Return the characters that each character, class or escape of a token matches."""
        match token.lastgroup:
            case "any":
                return [_CHARACTERS]
            case "class":
                return [self._class(is_negated=token[0] == "[^")]
            case "set":
                return [_negated_if(token["set"].isupper(), _PREDEFINED[token["set"].lower()])]
            case "property":
                return [self._property(token["property"])]
            case "range":
                return [self._range(_character(token["first"]), _character(token["last"]))]
            case _:
                return [self._range(char, char) for char in token["quoted"] or _character(token["char"])]

    def _class(self, is_negated: bool) -> _CharacterSet:
        """Read a class after its opening."""
        position = self._start
        self._nest()
        left = _CHARACTERS  # the intersection of the operands before the last &&
        union: _CharacterSet | None = None  # the items after it, if any
        while True:
            if self._next == len(self._pattern):
                self._reject("unclosed character class", position)
            token = self._read(_CLASS_TOKEN)
            if token.lastgroup not in ("close", "intersection"):
                union = (union or _NONE).union(*self._sets(token))
            elif union is None:
                self._reject("an empty class or operand of &&")
            else:
                left, union = left & union, None
                if token.lastgroup == "close":
                    self._depth -= 1
                    return _negated_if(is_negated, left)

    def _property(self, text: str) -> _CharacterSet:
        r"""Return the characters with a property: ``p{L}``, or ``P{L}`` for those without it; ``pL`` is ``p{L}``."""
        name = text[1:].strip("{}")
        if name not in _PROPERTIES:
            self._reject(f"the property {name!r} is not supported")
        if self._ignore_case and any(name in names.split() for names in _CASED):
            self._reject(f"the property {name!r} with (?i) differs between Java versions")
        return _negated_if(text[0] == "P", _PROPERTIES[name])

    def _range(self, first: str, last: str) -> _CharacterSet:
        if last < first:
            self._reject("illegal character range")
        if self._ignore_case and not (first + last).isascii():
            self._reject("characters outside ASCII with (?i)")
        other_case = str.swapcase if self._ignore_case else str
        return frozenset(c for c in _CHARACTERS if first <= c <= last or first <= other_case(c) <= last)

    def _reject(self, reason: str, position: int | None = None) -> NoReturn:
        shown = self._pattern if len(self._pattern) <= 200 else f"{self._pattern[:200]}..."
        raise OptionError(
            f"{self._option}={shown!r}: {reason} (at position {self._start if position is None else position}); the "
            "pattern is a Java regular expression, and only constructs that match as in Java are accepted"
        )


def _character(text: str) -> str:
    """Return the character that a literal or an escape stands for."""
    if text[0] != "\\":
        return text
    kind, code = text[1], text[2:].strip("{}")
    match kind:
        case "0":
            return chr(int(code, 8))
        case "x" | "u":
            return chr(int(code, 16))
        case "c":
            return chr(ord(text[2]) ^ 64)
        case _:
            return _CONTROL_ESCAPES.get(kind, kind)


def _negated_if(is_negated: bool, chars: _CharacterSet) -> _CharacterSet:
    return _CHARACTERS - chars if is_negated else chars


def _any_of(chars: _CharacterSet) -> str:
    if not chars:
        return "(?!)"  # matches nothing
    others = _CHARACTERS - chars
    start, listed = ("[^", others) if len(others) < len(chars) else ("[", chars)
    return f"{start}{''.join(map(re.escape, sorted(listed)))}]" if others else "."
