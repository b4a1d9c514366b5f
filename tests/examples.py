"""The number of examples of property tests."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Final

from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable

_THOROUGH_FACTOR: Final = 5


def examples(count: int) -> settings:
    """Return settings with this number of examples; with ``--thorough``, it is five times as high."""
    return settings(max_examples=_factor() * count)


def seeds(count: int) -> Callable[[Callable[[random.Random], None]], Callable[[], None]]:
    """Run a function with this number of random sources; with ``--thorough``, it is five times as high.

    For functions that take less time than hypothesis takes to draw their arguments. The first source has the least
    random numbers. A note of a failure has the seed of its source.
    """

    def decorate(check: Callable[[random.Random], None]) -> Callable[[], None]:
        @functools.wraps(check)
        def check_all() -> None:
            is_fixed = settings.default is not None and settings.default.derandomize
            check(_Zeros())
            for number in range(1, _factor() * count):
                seed = number if is_fixed else random.getrandbits(64)
                try:
                    check(random.Random(seed))
                except BaseException as error:
                    error.add_note(f"This is the example of random.Random({seed}).")
                    raise

        return check_all

    return decorate


class _Zeros(random.Random):
    def random(self) -> float:
        return 0.0

    def getrandbits(self, k: int, /) -> int:
        return 0


def _factor() -> int:
    thorough = settings.get_profile("thorough").max_examples
    is_thorough = settings.default is not None and settings.default.max_examples == thorough
    return _THOROUGH_FACTOR if is_thorough else 1
