"""Small helpers for messages: close matches and lists that stay short. Planning and settings use them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    """Return ``"; did you mean 'earliest'?"`` for the closest candidate (case does not count), or nothing.

    Args:
        word: What was given.
        candidates: What there is.
        prefix: What to show before the candidate.
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.strip().lower(), by_lower, n=1, cutoff=0.7)
    return f"; did you mean {prefix + by_lower[close[0]]!r}?" if close else ""


def is_misspelt(word: str, candidates: Iterable[str]) -> bool:
    """Tell whether only a candidate can be meant by the word: it is a letter apart, in a long one two.

    Two neighbours that have changed places count as one letter.
    """
    given, meant = word.lower(), [candidate.lower() for candidate in candidates]
    return any(_is_a_letter_apart(given, each) for each in meant) or bool(
        difflib.get_close_matches(given, meant, 1, 0.9)
    )


def listed(items: Iterable[object], most: int = 10) -> str:
    """Return the items in a row, at most ``most`` of them and how many more there are."""
    texts = [str(item) for item in items]
    if not texts:
        return "none"
    rest = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + rest


def _is_a_letter_apart(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    at = next((at for at, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter))
    if len(shorter) < len(longer):
        return shorter[at:] == longer[at + 1 :]
    swapped = one[:at] + one[at : at + 2][::-1] + one[at + 2 :]
    return one[at + 1 :] == other[at + 1 :] or swapped == other
