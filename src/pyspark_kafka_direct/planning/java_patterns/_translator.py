r"""From Java's regular expressions to Python's, for topic names only: exactly alike, or refused.

Both are backtracking matchers with ordered choice, so most constructs mean the same once character classes are sets
of topic characters (``_classes``) and flags are resolved. What could differ is rewritten or refused:

* ``$``, ``\Z`` and ``\z`` are the end: a topic's name holds no line ends.
* A possessive quantifier on a group keeps each turn's first match in Java, so each turn is made atomic.
* A back reference is accepted only to a group outside quantifiers, look-arounds and atomic groups: what a group holds
  after backtracking out of those differs between the two.
* Look-behind needs a fixed width, as in Python.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

from pyspark_kafka_direct.planning.java_patterns._classes import (
    ALPHABET,
    Chars,
    Flags,
    character_class,
    escaped_char,
    literal,
    predefined,
    property_class,
)
from pyspark_kafka_direct.planning.java_patterns._tokens import Cursor

_MAX_REPEAT = (1 << 31) - 1
_NEVER = "[^\\x00-\\U0010ffff]"  # matches no character, but has the width of one
_NO_EFFECT_FLAGS = "dms"


def translate(pattern: str, option: str) -> str:
    """Translate a Java regular expression into one for ``re`` with ``re.ASCII``.

    Args:
        pattern: The Java regular expression.
        option: The option it comes from, for messages.

    Raises:
        OptionError: The pattern is malformed, or cannot be translated exactly; it names construct and position.
    """
    try:
        first = _Translator(Cursor(pattern, option), frozenset())
        first.translate()
        # The second pass makes groups capture only where a back reference needs it.
        return _Translator(Cursor(pattern, option), first.referenced).translate()
    except RecursionError:
        Cursor(pattern, option).refuse("groups are nested too deeply")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A translated part.

    Attributes:
        text: The translation.
        width: Its number of characters, if fixed.
        least: Its least number of characters.
        asserts: Whether it holds anchors, look-arounds or back references, which match here and not there.
        quantifiable: Whether a quantifier may follow.
    """

    text: str
    width: int | None
    least: int
    asserts: bool = False
    quantifiable: bool = True


class _Translator:
    def __init__(self, cursor: Cursor, capturing: frozenset[int]) -> None:
        self._cursor = cursor
        self._capturing = capturing
        self._flags = Flags()
        self._opened = 0
        self._closed: set[int] = set()
        self._complex: set[int] = set()
        self._names: dict[str, int] = {}
        self._references: list[tuple[int, int]] = []

    @property
    def referenced(self) -> frozenset[int]:
        return frozenset(group for group, _ in self._references)

    def translate(self) -> str:
        whole = self._alternatives()
        if not self._cursor.at_end():
            self._cursor.refuse("unmatched ')'")
        for group, position in self._references:
            if group in self._complex:
                self._cursor.refuse(
                    "a back reference to a group within a quantifier, look-around or atomic group", position
                )
        return whole.text

    def _alternatives(self) -> _Piece:
        """Read alternatives, up to a closing parenthesis or the end."""
        branches = [self._sequence()]
        while self._cursor.accept("|"):
            branches.append(self._sequence())
        widths = {branch.width for branch in branches}
        return _Piece(
            "|".join(branch.text for branch in branches),
            widths.pop() if len(widths) == 1 else None,
            min(branch.least for branch in branches),
            any(branch.asserts for branch in branches),
        )

    def _sequence(self) -> _Piece:
        pieces = []
        while not self._cursor.at_end() and self._cursor.peek() not in ("|", ")"):
            groups_before = self._opened
            pieces.append(self._quantified(self._atom(), groups_before))
        widths = [piece.width for piece in pieces if piece.width is not None]
        return _Piece(
            "".join(piece.text for piece in pieces),
            sum(widths) if len(widths) == len(pieces) else None,
            sum(piece.least for piece in pieces),
            any(piece.asserts for piece in pieces),
        )

    def _atom(self) -> _Piece:
        start = self._cursor.position
        quoted = not self._cursor.peek()
        char = self._cursor.take().char
        if quoted:
            return _one_of(literal(self._cursor, char, self._flags))
        match char:
            case "(":
                return self._group(start)
            case "[":
                return _one_of(character_class(self._cursor, self._flags))
            case "\\":
                return self._escape(start)
            case ".":
                return _one_of(ALPHABET)
            case "^":
                return _assertion("\\A")
            case "$":
                return _assertion("\\Z")
            case "*" | "+" | "?" | "{":
                self._cursor.refuse(f"{char!r} has nothing to repeat", start)
        return _one_of(literal(self._cursor, char, self._flags))

    def _quantified(self, piece: _Piece, groups_before: int) -> _Piece:
        start = self._cursor.position
        count = self._count(start)
        if count is None:
            return piece
        if not piece.quantifiable:
            self._cursor.refuse("a quantifier on something without width", start)
        least, most = count
        if least > 1 and piece.least == 0 and piece.asserts:
            # Java goes on behind the loop after a turn of no width; Python makes the turns that are still missing.
            self._cursor.refuse("a repetition of two or more turns, of which some may be an assertion only", start)
        text = f"{{{least},{'' if most is None else most}}}"
        if self._cursor.accept("?"):
            text = f"(?:{piece.text}){text}?"
        elif self._cursor.accept("+"):
            text = f"(?>(?>{piece.text}){text})"
        else:
            text = f"(?:{piece.text}){text}"
        if self._cursor.peek() in ("*", "+", "?", "{"):
            self._cursor.refuse("a quantifier on a quantifier")
        self._complex.update(range(groups_before + 1, self._opened + 1))
        width = piece.width * least if piece.width is not None and least == most else None
        return _Piece(text, width, piece.least * least, piece.asserts)

    def _count(self, start: int) -> tuple[int, int | None] | None:
        """Read the quantifier at the cursor, if there is one: least and most turns (``None``: any number)."""
        if self._cursor.accept("*"):
            return 0, None
        if self._cursor.accept("+"):
            return 1, None
        if self._cursor.accept("?"):
            return 0, 1
        if not self._cursor.accept("{"):
            return None
        digits = self._cursor.take_while(string.digits)
        least = int(digits) if digits and len(digits) < 20 else -1
        most: int | None = least
        if self._cursor.accept(","):
            digits = self._cursor.take_while(string.digits, 20)
            most = int(digits) if digits else None
        if not self._cursor.accept("}") or not 0 <= least <= _MAX_REPEAT:
            self._cursor.refuse("illegal repetition", start)
        if most is not None and not least <= most <= _MAX_REPEAT:
            self._cursor.refuse("illegal repetition range", start)
        return least, most

    def _group(self, start: int) -> _Piece:
        """Read a group; the cursor is behind its opening parenthesis."""
        outer = self._flags
        groups_before = self._opened
        opening, number, simple = "(?:", 0, True
        if not self._cursor.accept("?"):
            number = self._open()
        elif self._cursor.accept(":"):
            pass
        elif self._cursor.accept(">"):
            opening, simple = "(?>", False
        elif self._cursor.peek() in ("=", "!"):
            opening, simple = f"(?{self._cursor.take().char}", False
        elif self._cursor.accept("<"):
            if self._cursor.peek() in ("=", "!"):
                opening, simple = f"(?<{self._cursor.take().char}", False
            else:
                number = self._open(self._name(start))
        else:
            self._read_flags(start)
            if self._cursor.accept(")"):
                return _Piece("", 0, 0, quantifiable=False)  # they hold to the end of the enclosing group
            if not self._cursor.accept(":"):
                self._cursor.refuse("unknown inline flag or kind of group", start)
        if number in self._capturing:
            opening = f"(?P<g{number}>"
        inner = self._alternatives()
        if not self._cursor.accept(")"):
            self._cursor.refuse("unclosed group", start)
        self._flags = outer
        if number:
            self._closed.add(number)
        if not simple:
            self._complex.update(range(groups_before + 1, self._opened + 1))
        if opening[2:] in ("<=", "<!") and inner.width is None:
            self._cursor.refuse("look-behind needs alternatives of one fixed width", start)
        text = f"{opening}{inner.text})"
        return _assertion(text) if opening[-1] in "=!" else _Piece(text, inner.width, inner.least, inner.asserts)

    def _open(self, name: str = "") -> int:
        self._opened += 1
        if name:
            self._names[name] = self._opened
        return self._opened

    def _name(self, start: int) -> str:
        name = self._cursor.take_while(string.ascii_letters + string.digits)
        if not name or name[0] in string.digits or not self._cursor.accept(">"):
            self._cursor.refuse("illegal group name", start)
        if name in self._names:
            self._cursor.refuse(f"the group name {name!r} is used twice", start)
        return name

    def _read_flags(self, start: int) -> None:
        ignore_case, unicode_case = self._flags.ignore_case, self._flags.unicode_case
        for flag in self._cursor.take_while(string.ascii_letters):
            if flag == "i":
                ignore_case = True
            elif flag in "uU":
                unicode_case = True
            elif flag not in _NO_EFFECT_FLAGS:
                self._cursor.refuse(f"the inline flag {flag!r} is not supported", start)
        if self._cursor.accept("-"):
            for flag in self._cursor.take_while(string.ascii_letters):
                if flag == "i":
                    ignore_case = False
                elif flag not in _NO_EFFECT_FLAGS + "xuU":
                    self._cursor.refuse(f"the inline flag {flag!r} is not supported", start)
        # -u is left without effect: it only decides whether characters outside ASCII are refused.
        self._flags = Flags(ignore_case, unicode_case)

    def _escape(self, start: int) -> _Piece:
        """Read an escape outside classes; the cursor is behind the backslash."""
        letter = self._cursor.take().char
        if letter in ("p", "P"):
            return _one_of(property_class(self._cursor, letter == "P", self._flags))
        chars = predefined(letter)
        if chars is not None:
            return _one_of(chars)
        if letter in "AzZbB":
            return _assertion({"z": "\\Z"}.get(letter, f"\\{letter}"))
        if letter == "k":
            name = self._name_reference(start)
            return self._reference(self._names.get(name, 0), start)
        if letter in "123456789":
            # Java takes further digits only as long as that many groups were opened before.
            number = int(letter)
            while self._cursor.peek() and self._cursor.peek() in string.digits:
                longer = number * 10 + int(self._cursor.peek())
                if longer > self._opened:
                    break
                number = longer
                self._cursor.take()
            return self._reference(number, start)
        char = escaped_char(self._cursor, letter)
        if char is None:
            self._cursor.refuse(f"\\{letter} is not supported", start)
        return _one_of(literal(self._cursor, char, self._flags))

    def _name_reference(self, start: int) -> str:
        name = ""
        if self._cursor.accept("<"):
            name = self._cursor.take_while(string.ascii_letters + string.digits)
        if not name or not self._cursor.accept(">"):
            self._cursor.refuse("illegal named back reference", start)
        return name

    def _reference(self, group: int, start: int) -> _Piece:
        if group not in self._closed:
            self._cursor.refuse("a back reference to a group that is not closed before it", start)
        self._references.append((group, start))
        text = f"(?P=g{group})" if group in self._capturing else ""
        return _Piece(f"(?i:{text})" if self._flags.ignore_case else text, None, 0, asserts=True)


def _assertion(text: str) -> _Piece:
    return _Piece(text, 0, 0, asserts=True, quantifiable=False)


def _one_of(chars: Chars) -> _Piece:
    if not chars:
        return _Piece(_NEVER, 1, 1)
    if len(chars) == 1:
        return _Piece(re.escape(next(iter(chars))), 1, 1)
    runs: list[list[str]] = []
    for char in sorted(chars):
        if runs and ord(char) == ord(runs[-1][-1]) + 1:
            runs[-1].append(char)
        else:
            runs.append([char])
    text = "".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else "".join(map(re.escape, run)) for run in runs)
    return _Piece(f"[{text}]", 1, 1)
