"""Helpers for messages: close matches and short lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


def did_you_mean(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    """Return ``"; did you mean 'earliest'?"`` for the closest candidate, ignoring case, or an empty string."""
    from difflib import get_close_matches  # slow to import

    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = get_close_matches(word.strip().lower(), by_lower, n=1, cutoff=0.7)
    return f"; did you mean {prefix + by_lower[close[0]]!r}?" if close else ""


def missing_topic_advice(topic: str, existing: Collection[str], servers: str) -> str:
    """Return the existing topic with the closest name, or else how to create the topic; it begins with a semicolon."""
    return did_you_mean(topic, existing) or (
        f"; none of the {len(existing)} topics that are visible at {servers} has a similar name. Check "
        f"bootstrap.servers, or create the topic (kafka-topics --bootstrap-server {servers} --create --topic {topic})"
    )


def is_misspelt(word: str, candidates: Iterable[str], cutoff: float = 0.9) -> bool:
    """Return whether a candidate is one edit from the word, or two in a long word; a swap of neighbours is one edit.

    A lower cutoff allows more edits.
    """
    from difflib import get_close_matches

    lower, lower_candidates = word.lower(), [candidate.lower() for candidate in candidates]
    return any(_is_one_edit_apart(lower, candidate) for candidate in lower_candidates) or bool(
        get_close_matches(lower, lower_candidates, n=1, cutoff=cutoff)
    )


def is_misspelt_setting(name: str, candidates: Iterable[str]) -> bool:
    """Return whether a name with dots has the words of a candidate, and only their spelling differs.

    A name with another word is another setting: vendors have some that Kafka lacks.
    """
    words = name.split(".")
    return len(words) > 1 and any(
        len(words) == len(others)
        and all(is_misspelt(word, [other], cutoff=0.8) for word, other in zip(words, others, strict=True))
        for others in (candidate.split(".") for candidate in candidates)
    )


def listed(items: Iterable[object], limit: int = 10, separator: str = ", ") -> str:
    """Return the items with separators, at most ``limit`` of them, and how many more there are."""
    strings = [str(item) for item in items]
    if not strings:
        return "none"
    rest = f" and {len(strings) - limit} more" if len(strings) > limit else ""
    return separator.join(strings[:limit]) + rest


def either(words: Sequence[str]) -> str:
    """Return words as alternatives: ``a, b or c``."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _is_one_edit_apart(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    first_difference = next(
        (index for index, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter)
    )
    if len(shorter) < len(longer):
        return shorter[first_difference:] == longer[first_difference + 1 :]  # a letter is missing or added
    end = first_difference + 2
    swapped = one[:first_difference] + one[first_difference:end][::-1] + one[end:]
    is_replaced = one[first_difference + 1 :] == other[first_difference + 1 :]
    return is_replaced or swapped == other
