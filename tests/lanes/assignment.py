"""Which lane a test is in. Lanes run side by side, each in a pytest process of its own with a broker of its own.

``spark``
    Tests with the Spark session of pytest's process: they use ``spark`` or ``make_spark``.
``direct``
    Those of them that are in ``tests/integration/direct``.
``apps``
    Tests marked ``spark_app``: they start Spark in processes of their own.
``plain``
    All others: no Spark at all.

    pytest --lane plain tests/integration

Unit tests need no lanes. Two processes share them, each with every other module:

    pytest --part 1/2 tests/unit
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

LANES = ("spark", "direct", "apps", "plain")

COLLECTED = pytest.StashKey["list[pytest.Item]"]()
"""All tests of a run, those of other lanes among them."""

_MAKER = "make_spark"
_DIRECT = "direct"  # the lane, and its folder


def lane_of(item: pytest.Item) -> str:
    """Return the lane of a test."""
    if item.get_closest_marker("spark_app") is not None:
        return "apps"
    if _MAKER not in _fixtures(item):
        return "plain"
    return _DIRECT if item.path.parent.name == _DIRECT else "spark"


def of_lane(items: Sequence[pytest.Item], lane: str | None) -> list[pytest.Item]:
    """Return the tests of a lane in the order in which they run; with ``None`` of all lanes."""
    return _in_order([item for item in items if lane in (None, lane_of(item))])


def of_part(items: Sequence[pytest.Item], part: str | None) -> list[pytest.Item]:
    """Return the tests of a part: of ``2/3`` those of the second module, the fifth, and so on; with ``None`` all."""
    if part is None:
        return list(items)
    number, parts = map(int, part.split("/"))
    modules = {path: index for index, path in enumerate(dict.fromkeys(item.path for item in items))}
    return [item for item in items if modules[item.path] % parts == number - 1]


def _in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with those first whose module has the plain session, so that this one is made once.

    Modules stay together, and keep their order otherwise.
    """
    special = {item.path for item in items if _has_special_session(item)}
    return sorted(items, key=lambda item: item.path in special)


def _has_special_session(item: pytest.Item) -> bool:
    fixtures = _fixtures(item)
    return _MAKER in fixtures and ("spark" not in fixtures or hasattr(getattr(item, "module", None), "spark"))


def _fixtures(item: pytest.Item) -> Sequence[str]:
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return names
