r"""Reading a Java regular expression character by character, with ``\Q...\E`` taken out first as Java does."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from pyspark_kafka_direct.errors import OptionError


class Token(NamedTuple):
    r"""One character of a pattern; a quoted one (from ``\Q...\E``) has no special meaning."""

    char: str
    quoted: bool
    position: int


class Cursor:
    """A place in a pattern.

    Args:
        pattern: The Java regular expression.
        option: The option it comes from, for messages.
    """

    def __init__(self, pattern: str, option: str) -> None:
        self.pattern = pattern
        self.option = option
        self._tokens = _tokens(pattern)
        self._next = 0

    @property
    def position(self) -> int:
        """Index in the pattern of the next character."""
        return self._tokens[self._next].position if self._next < len(self._tokens) else len(self.pattern)

    def at_end(self) -> bool:
        """Tell whether nothing is left."""
        return self._next >= len(self._tokens)

    def peek(self, ahead: int = 0) -> str:
        """Return the next character (or a later one) if it is not quoted, else ``""``."""
        index = self._next + ahead
        if index < len(self._tokens) and not self._tokens[index].quoted:
            return self._tokens[index].char
        return ""

    def take(self) -> Token:
        """Consume the next character, quoted or not."""
        if self.at_end():
            self.refuse("the pattern ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def accept(self, char: str) -> bool:
        """Consume the next character if it is this one and not quoted."""
        if self.peek() == char:
            self._next += 1
            return True
        return False

    def take_while(self, allowed: str, most: int | None = None) -> str:
        """Consume unquoted characters out of ``allowed``, at most ``most``."""
        taken = ""
        while (most is None or len(taken) < most) and self.peek() and self.peek() in allowed:
            taken += self.take().char
        return taken

    def previous(self) -> str:
        """Return the last character consumed, quoted or not."""
        return self._tokens[self._next - 1].char if self._next else ""

    def refuse(self, reason: str, position: int | None = None) -> NoReturn:
        """Raise the error for a construct that is malformed or cannot be translated."""
        at = self.position if position is None else position
        raise OptionError(
            f"{self.option}={self.pattern!r}: {reason} (at position {at}); "
            "the pattern is a Java regular expression, and only what Python can match exactly alike is accepted"
        )


def _tokens(pattern: str) -> list[Token]:
    tokens: list[Token] = []
    index = 0
    while index < len(pattern):
        if pattern[index] == "\\" and pattern[index + 1 : index + 2] == "Q":
            end = pattern.find("\\E", index + 2)
            stop = len(pattern) if end < 0 else end
            tokens += [Token(pattern[at], True, at) for at in range(index + 2, stop)]
            index = stop + 2
            continue
        # A backslash and what follows belong together, so that in \\Q the second backslash quotes nothing.
        width = 2 if pattern[index] == "\\" else 1
        tokens += [Token(pattern[at], False, at) for at in range(index, min(index + width, len(pattern)))]
        index += width
    return tokens
