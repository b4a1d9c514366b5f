"""Histories that are sampled, unless the run is thorough."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")


class Sampled(Protocol):
    """Returns each ``step``-th element, of an exhaustive sequence, from the element ``phase`` modulo ``step`` on."""

    def __call__(self, elements: Iterable[T], step: int, phase: int = 0) -> Iterator[T]: ...


@pytest.fixture(scope="session")
def sampled(pytestconfig: pytest.Config) -> Sampled:
    """With ``--thorough``, it returns all elements."""
    is_thorough = pytestconfig.getoption("--thorough")

    def sample(elements: Iterable[T], step: int, phase: int = 0) -> Iterator[T]:
        return iter(elements) if is_thorough else islice(elements, phase % step, None, step)

    return sample
