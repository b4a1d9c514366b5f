"""The number of examples of property tests."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_THOROUGH_FACTOR: Final = 5


def examples(count: int) -> settings:
    """Return settings with this number of examples; with ``--thorough``, it is five times as high."""
    thorough = settings.get_profile("thorough").max_examples
    is_thorough = settings.default is not None and settings.default.max_examples == thorough
    return settings(max_examples=_THOROUGH_FACTOR * count if is_thorough else count)
