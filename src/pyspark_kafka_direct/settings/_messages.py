"""What is said about settings: one wording for each thing that can be wrong."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.settings.row import Fate, Origin

_log = logging.getLogger("pyspark_kafka_direct.settings")

_LONGEST: Final = 200  # a file's content in place of its name, for instance


def bad_value(name: str, text: str, wanted: str, *, words: Sequence[str] = ()) -> OptionError:
    """Say that a value, which is no secret, cannot be used; a very long one is cut.

    Args:
        name: The setting as it was written.
        text: Its value.
        wanted: What is allowed.
        words: Words that may have been meant.
    """
    hint = did_you_mean(text, words) if words else ""
    shown = repr(text[:_LONGEST]) + ("..." if len(text) > _LONGEST else "")
    return OptionError(f"{name} must be {wanted}, got {shown}{hint}")


def refused(origin: Origin, name: str, fate: Fate, text: str = "") -> OptionError:
    """Say that a setting cannot be used at this door; its value decides which cure is named, and is not shown."""
    return OptionError(f"{origin.value} {name} cannot be used here: {fate.why_not(text)}")


def misspelt(origin: Origin, name: str, hint: str) -> OptionError:
    """Say that a name is so close to another that nothing else can be meant."""
    return OptionError(f"{origin.value} {name} is unknown{hint}")


def given_twice(first: str, second: str) -> OptionError:
    """Say that a setting has two values; they are not shown."""
    names = f"{first} and {second}" if first != second else first
    return OptionError(f"{names}: one setting is given twice with different values; write it once")


def missing(name: str, wanted: str, hint: str) -> OptionError:
    """Say that a setting is required."""
    return OptionError(f"{name} is missing or empty: write {wanted}{hint}")


def ignored(origin: Origin, name: str, why: str) -> str:
    """Say that a setting has no effect at this door."""
    return f"{origin.value} {name} is ignored: {why}"


def unknown(origin: Origin, name: str, hint: str) -> str:
    """Say that nobody knows a setting."""
    return f"{origin.value} {name} is unknown and ignored{hint}"


@lru_cache(maxsize=1024)
def warn_once(note: str) -> None:
    """Warn the user, once in a process: Spark builds a reader several times for one load()."""
    # The cache is the memory of what was said.
    _log.warning("%s", note)
