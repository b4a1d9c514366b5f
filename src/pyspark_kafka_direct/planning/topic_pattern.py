r"""Topics by a Java regular expression (``subscribePattern``), translated to a Python one that matches exactly alike.

Both engines backtrack with ordered choice, so most constructs are equivalent once character classes are sets of topic
characters (``java_regex``) and flags are resolved. Constructs that could differ are rewritten or rejected:

* ``$``, ``\Z`` and ``\z`` are the end: a topic name has no line ends.
* A possessive quantifier on a group keeps the first match of each iteration in Java, so each iteration is made atomic.
* A back reference is accepted only to a group outside quantifiers, look-arounds and atomic groups: the content of a
  group after backtracking out of those differs.
* Look-behind needs a fixed width, as in Python.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field

from pyspark_kafka_direct.errors import InvalidOffsetsError
from pyspark_kafka_direct.planning.java_regex import (
    TOPIC_CHARACTERS,
    CharacterSet,
    RegexFlags,
    RegexScanner,
    character_class,
    escaped_char,
    literal_class,
    predefined_class,
    property_class,
)

_MAX_REPEAT = (1 << 31) - 1
_NEVER = "[^\\x00-\\U0010ffff]"  # matches no character, but has the width of one
_NO_EFFECT_FLAGS = "dms"  # they concern line ends, which topic names do not have
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def translate_java_regex(pattern: str, option: str) -> str:
    """Translate a Java regular expression into one for ``re`` with ``re.ASCII``."""
    try:
        first_pass = _Translator(RegexScanner(pattern, option), frozenset())
        first_pass.translate()
        # In the second pass only groups with a back reference capture.
        return _Translator(RegexScanner(pattern, option), first_pass.referenced).translate()
    except RecursionError:
        RegexScanner(pattern, option).reject("groups are nested too deeply")


@dataclass(frozen=True)
class TopicPattern:
    """A Java regular expression that matches topic names as ``java.util.regex`` does."""

    text: str
    option: str = field(default="subscribePattern", compare=False)
    _full_match: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _partial_match: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        translated = translate_java_regex(self.text, self.option)
        object.__setattr__(self, "_full_match", re.compile(f"(?:{translated})\\Z", re.ASCII))
        object.__setattr__(self, "_partial_match", re.compile(translated, re.ASCII))

    def matches(self, topic: str) -> bool:
        """Return whether the whole name matches (Java's ``matches``, as Kafka's own consumers do)."""
        return self._full_match.match(_legal_name(topic)) is not None

    def occurs_in(self, topic: str) -> bool:
        """Return whether some part of the name matches (Java's ``find``, as Spark's own source does)."""
        return self._partial_match.search(_legal_name(topic)) is not None


@dataclass(frozen=True, slots=True)
class _Fragment:
    """The translation of a part of a pattern."""

    text: str
    width: int | None  # number of characters, if fixed
    min_width: int
    has_assertions: bool = (
        False  # contains anchors, look-arounds or back references, which match only at certain positions
    )
    is_quantifiable: bool = True


class _Translator:
    """Translates one pattern; groups whose number is in ``capturing`` stay capturing groups."""

    def __init__(self, scanner: RegexScanner, capturing: frozenset[int]) -> None:
        self._scanner = scanner
        self._capturing = capturing
        self._flags = RegexFlags()
        self._opened_groups = 0  # number of capturing groups so far
        self._closed_groups: set[int] = set()  # numbers of groups that were read completely
        self._unreferenceable_groups: set[int] = set()  # groups within a quantifier, look-around or atomic group
        self._names: dict[str, int] = {}
        self._references: list[tuple[int, int]] = []  # group and position

    @property
    def referenced(self) -> frozenset[int]:
        return frozenset(group for group, _ in self._references)

    def translate(self) -> str:
        pattern = self._alternatives()
        if not self._scanner.at_end():
            self._scanner.reject("unmatched ')'")
        for group, position in self._references:
            if group in self._unreferenceable_groups:
                self._scanner.reject(
                    "a back reference to a group within a quantifier, look-around or atomic group", position
                )
        return pattern.text

    def _alternatives(self) -> _Fragment:
        """Read alternatives up to a closing parenthesis or the end."""
        branches = [self._sequence()]
        while self._scanner.accept("|"):
            branches.append(self._sequence())
        widths = {branch.width for branch in branches}
        return _Fragment(
            "|".join(branch.text for branch in branches),
            widths.pop() if len(widths) == 1 else None,
            min(branch.min_width for branch in branches),
            any(branch.has_assertions for branch in branches),
        )

    def _sequence(self) -> _Fragment:
        """Read one alternative."""
        fragments = []
        while not self._scanner.at_end() and self._scanner.peek() not in ("|", ")"):
            groups_before = self._opened_groups
            fragments.append(self._quantified(self._atom(), groups_before))
        widths = [fragment.width for fragment in fragments if fragment.width is not None]
        return _Fragment(
            "".join(fragment.text for fragment in fragments),
            sum(widths) if len(widths) == len(fragments) else None,
            sum(fragment.min_width for fragment in fragments),
            any(fragment.has_assertions for fragment in fragments),
        )

    def _atom(self) -> _Fragment:
        """Read one character, class, escape or group, without its quantifier."""
        start = self._scanner.position
        quoted = not self._scanner.peek()
        char = self._scanner.take().char
        if quoted:
            return _any_of(literal_class(self._scanner, char, self._flags))
        match char:
            case "(":
                return self._group(start)
            case "[":
                return _any_of(character_class(self._scanner, self._flags))
            case "\\":
                return self._escape(start)
            case ".":
                return _any_of(TOPIC_CHARACTERS)
            case "^":
                return _assertion("\\A")
            case "$":
                return _assertion("\\Z")
            case "*" | "+" | "?" | "{":
                self._scanner.reject(f"{char!r} has nothing to repeat", start)
        return _any_of(literal_class(self._scanner, char, self._flags))

    def _quantified(self, fragment: _Fragment, groups_before: int) -> _Fragment:
        """Apply the quantifier that follows a fragment, if any; groups after ``groups_before`` are within it."""
        start = self._scanner.position
        counts = self._iteration_counts(start)
        if counts is None:
            return fragment
        if not fragment.is_quantifiable:
            self._scanner.reject("a quantifier on something without width", start)
        minimum, maximum = counts
        if minimum > 1 and fragment.min_width == 0 and fragment.has_assertions:
            # After an iteration without width Java leaves the loop; Python runs the remaining iterations.
            self._scanner.reject("a repetition of two or more iterations that may be assertions only", start)
        text = f"{{{minimum},{'' if maximum is None else maximum}}}"
        if self._scanner.accept("?"):
            text = f"(?:{fragment.text}){text}?"
        elif self._scanner.accept("+"):
            text = f"(?>(?>{fragment.text}){text})"
        else:
            text = f"(?:{fragment.text}){text}"
        if self._scanner.peek() in ("*", "+", "?", "{"):
            self._scanner.reject("a quantifier on a quantifier")
        self._unreferenceable_groups.update(range(groups_before + 1, self._opened_groups + 1))
        width = fragment.width * minimum if fragment.width is not None and minimum == maximum else None
        return _Fragment(text, width, fragment.min_width * minimum, fragment.has_assertions)

    def _iteration_counts(self, start: int) -> tuple[int, int | None] | None:
        """Read a quantifier, if there is one: the minimum and maximum (``None``: unbounded) number of iterations."""
        if self._scanner.accept("*"):
            return 0, None
        if self._scanner.accept("+"):
            return 1, None
        if self._scanner.accept("?"):
            return 0, 1
        if not self._scanner.accept("{"):
            return None
        digits = self._scanner.take_while(string.digits)
        minimum = int(digits) if digits and len(digits) < 20 else -1
        maximum: int | None = minimum
        if self._scanner.accept(","):
            digits = self._scanner.take_while(string.digits, 20)
            maximum = int(digits) if digits else None
        if not self._scanner.accept("}") or not 0 <= minimum <= _MAX_REPEAT:
            self._scanner.reject("illegal repetition", start)
        if maximum is not None and not minimum <= maximum <= _MAX_REPEAT:
            self._scanner.reject("illegal repetition range", start)
        return minimum, maximum

    def _group(self, start: int) -> _Fragment:
        """Read a group, after its opening parenthesis."""
        outer = self._flags
        groups_before = self._opened_groups
        opening, number, is_referenceable = "(?:", 0, True  # number 0: a group that does not capture
        if not self._scanner.accept("?"):
            number = self._open_group()
        elif self._scanner.accept(":"):
            pass
        elif self._scanner.accept(">"):
            opening, is_referenceable = "(?>", False
        elif self._scanner.peek() in ("=", "!"):
            opening, is_referenceable = f"(?{self._scanner.take().char}", False
        elif self._scanner.accept("<"):
            if self._scanner.peek() in ("=", "!"):
                opening, is_referenceable = f"(?<{self._scanner.take().char}", False
            else:
                number = self._open_group(self._group_name(start))
        else:
            self._read_flags(start)
            if self._scanner.accept(")"):
                return _Fragment("", 0, 0, is_quantifiable=False)  # flags apply to the end of the enclosing group
            if not self._scanner.accept(":"):
                self._scanner.reject("unknown inline flag or kind of group", start)
        if number in self._capturing:
            opening = f"(?P<g{number}>"
        inner = self._alternatives()
        if not self._scanner.accept(")"):
            self._scanner.reject("unclosed group", start)
        self._flags = outer
        if number:
            self._closed_groups.add(number)
        if not is_referenceable:
            self._unreferenceable_groups.update(range(groups_before + 1, self._opened_groups + 1))
        if opening[2:] in ("<=", "<!") and inner.width is None:
            self._scanner.reject("look-behind needs alternatives of one fixed width", start)
        text = f"{opening}{inner.text})"
        return (
            _assertion(text)
            if opening[-1] in "=!"
            else _Fragment(text, inner.width, inner.min_width, inner.has_assertions)
        )

    def _open_group(self, name: str = "") -> int:
        """Return the number of a new capturing group."""
        self._opened_groups += 1
        if name:
            self._names[name] = self._opened_groups
        return self._opened_groups

    def _group_name(self, start: int) -> str:
        name = self._scanner.take_while(string.ascii_letters + string.digits)
        if not name or name[0] in string.digits or not self._scanner.accept(">"):
            self._scanner.reject("illegal group name", start)
        if name in self._names:
            self._scanner.reject(f"the group name {name!r} is used twice", start)
        return name

    def _read_flags(self, start: int) -> None:
        ignore_case, unicode_case = self._flags.ignore_case, self._flags.unicode_case
        for flag in self._scanner.take_while(string.ascii_letters):
            if flag == "i":
                ignore_case = True
            elif flag in "uU":
                unicode_case = True
            elif flag not in _NO_EFFECT_FLAGS:
                self._scanner.reject(f"the inline flag {flag!r} is not supported", start)
        if self._scanner.accept("-"):
            for flag in self._scanner.take_while(string.ascii_letters):
                if flag == "i":
                    ignore_case = False
                elif flag not in _NO_EFFECT_FLAGS + "xuU":
                    self._scanner.reject(f"the inline flag {flag!r} is not supported", start)
        # -u is ignored: it only decides whether characters outside ASCII are rejected.
        self._flags = RegexFlags(ignore_case, unicode_case)

    def _escape(self, start: int) -> _Fragment:
        """Read an escape outside classes, after the backslash."""
        letter = self._scanner.take().char
        if letter in ("p", "P"):
            return _any_of(property_class(self._scanner, letter == "P", self._flags))
        chars = predefined_class(letter)
        if chars is not None:
            return _any_of(chars)
        if letter in "AzZbB":
            return _assertion({"z": "\\Z"}.get(letter, f"\\{letter}"))
        if letter == "k":
            name = self._name_reference(start)
            return self._reference(self._names.get(name, 0), start)
        if letter in "123456789":
            # Java reads further digits only while that many groups were opened before.
            number = int(letter)
            while self._scanner.peek() and self._scanner.peek() in string.digits:
                extended = number * 10 + int(self._scanner.peek())
                if extended > self._opened_groups:
                    break
                number = extended
                self._scanner.take()
            return self._reference(number, start)
        char = escaped_char(self._scanner, letter)
        if char is None:
            self._scanner.reject(f"\\{letter} is not supported", start)
        return _any_of(literal_class(self._scanner, char, self._flags))

    def _name_reference(self, start: int) -> str:
        name = ""
        if self._scanner.accept("<"):
            name = self._scanner.take_while(string.ascii_letters + string.digits)
        if not name or not self._scanner.accept(">"):
            self._scanner.reject("illegal named back reference", start)
        return name

    def _reference(self, group: int, start: int) -> _Fragment:
        if group not in self._closed_groups:
            self._scanner.reject("a back reference to a group that is not closed before it", start)
        self._references.append((group, start))
        text = f"(?P=g{group})" if group in self._capturing else ""
        return _Fragment(f"(?i:{text})" if self._flags.ignore_case else text, None, 0, has_assertions=True)


def _any_of(chars: CharacterSet) -> _Fragment:
    """Return a fragment that matches one of these characters, with consecutive characters as ranges."""
    if not chars:
        return _Fragment(_NEVER, 1, 1)
    if len(chars) == 1:
        return _Fragment(re.escape(next(iter(chars))), 1, 1)
    runs: list[list[str]] = []
    for char in sorted(chars):
        if runs and ord(char) == ord(runs[-1][-1]) + 1:
            runs[-1].append(char)
        else:
            runs.append([char])
    text = "".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else "".join(map(re.escape, run)) for run in runs)
    return _Fragment(f"[{text}]", 1, 1)


def _assertion(text: str) -> _Fragment:
    return _Fragment(text, 0, 0, has_assertions=True, is_quantifiable=False)


def _legal_name(topic: str) -> str:
    # The translation is exact for legal names only.
    if not _LEGAL_NAME.fullmatch(topic):
        raise InvalidOffsetsError(f"{topic!r} is not a legal topic name, so a pattern cannot be applied to it")
    return topic
