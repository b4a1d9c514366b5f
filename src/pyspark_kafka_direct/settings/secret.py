"""A text that never shows itself: passwords, private keys, client secrets."""

from __future__ import annotations

from typing import Final, final

MASK: Final = "********"


@final
class Secret:
    """A masked text. ``repr``, ``str`` and formatting give ``********``; only :meth:`reveal` gives the text.

    Secrets compare and hash by their text, so settings that hold them can key a cache. A pickled secret holds the
    text in clear, because settings travel from the driver to the executors inside Spark's tasks, over Spark's own
    channels. Turn on ``spark.network.crypto.enabled`` or ``spark.ssl.*`` where these cross an untrusted network.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Give the text itself. Call it only where the text is used, never to build a message."""
        return self._text

    def __repr__(self) -> str:
        return MASK

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        # A format spec could slice or pad the text; the mask is all there ever is.
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return (Secret, (self._text,))
