"""Assigns tests to shards. Shards run in parallel, each in a separate pytest process.

``spark``
    Tests that use a Spark session of the pytest process: ``spark`` or ``make_spark``.
``direct``
    Tests that use these fixtures and are in ``tests/integration/direct``.
``apps``
    Tests marked ``spark_app``, which start Spark in separate processes.
``soak``
    Tests marked ``soak``: the short forms of soaks, example applications, and tests that ``make test`` has no time for,
    because other tests show most of the same. ``make soak-short`` runs them, not ``make test``.
``cluster``
    Tests of other modules that use ``three_brokers``, one cluster for all of them.
``broker``
    Other tests that use ``stoppable_kafka``, one broker for all of them.
``plain``
    All other tests. They do not use Spark.

    pytest --shard plain tests/integration

A shard can be split into parts of whole modules. They take equally long, according to the durations in
``durations.json``:

    pytest --shard plain --part 1/4 tests/integration

A shard imports only the modules that ``durations.json`` records for it, and those that it records for no shard. A run
fails if an imported module has tests of another shard for which it is not recorded. The shard with
``tests/integration/test_shards.py`` imports all modules, because it checks the shards of all tests.

Unit tests have no shards, but parts. A part does not import the modules of the others:

    pytest --part 1/2 tests/unit tests/simulation

``make check`` leaves out the tests marked ``slow``:

    pytest -m 'not slow' --part 1/2 tests/unit
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from tests.shards.durations import ROOT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

SHARDS = ("spark", "direct", "apps", "cluster", "broker", "plain", "soak")

COLLECTED = pytest.StashKey["list[pytest.Item]"]()
"""All collected tests, including those of other shards."""

_MAKER = "make_spark"
_WITH_JARS = "session"  # the fixture of a session whose JVM has other jars
_CLUSTERS = {"three_brokers": "cluster", "stoppable_kafka": "broker"}  # fixtures, and their shards
_DIRECT = "direct"  # the shard, and its folder
_SECONDS_PER_TEST = 1.0  # of a module of a shard without a recorded duration
_SECONDS_PER_MODULE = 1.0  # of a module of unit tests without a recorded duration
_CHECKS_ALL_SHARDS = "tests/integration/test_shards.py"


def shard_of(item: pytest.Item) -> str:
    """Return the shard of a test."""
    if item.get_closest_marker("soak") is not None:
        return "soak"
    if item.get_closest_marker("spark_app") is not None:
        return "apps"
    fixtures = _fixtures(item)
    if _MAKER not in fixtures:
        return next((shard for fixture, shard in _CLUSTERS.items() if fixture in fixtures), "plain")
    return _DIRECT if item.path.parent.name == _DIRECT else "spark"


def of_shard(items: Sequence[pytest.Item], shard: str | None) -> list[pytest.Item]:
    """Return the tests of a shard in the order in which they run; ``None`` stands for all shards."""
    return _in_order([item for item in items if shard in (None, shard_of(item))])


def of_part(items: Sequence[pytest.Item], part: str | None, durations: Mapping[str, float]) -> list[pytest.Item]:
    """Return the tests of a part, ``2/3`` for example; for ``None`` all.

    Each module is in one part. Modules that need a JVM with other jars are all in the same one, so that one part adds
    them. A module without a recorded duration counts by its number of tests.
    """
    if part is None:
        return list(items)
    other_jars = {_module(item) for item in items if _WITH_JARS in _fixtures(item)}

    def unit(module: str) -> str:
        return _WITH_JARS if module in other_jars else module

    seconds: defaultdict[str, float] = defaultdict(float)
    for module, count in Counter(map(_module, items)).items():
        seconds[unit(module)] += durations.get(module, count * _SECONDS_PER_TEST)
    units = _modules_of_part(seconds, part)
    return [item for item in items if unit(_module(item)) in units]


def modules_to_import(files: Collection[Path], shard: str, recorded: Mapping[str, Collection[str]]) -> set[Path]:
    """Return those of some modules that may have tests of a shard, according to the recorded modules of each shard."""
    own = recorded.get(shard, ())
    if not own or _CHECKS_ALL_SHARDS in own:
        return set(files)
    others = _recorded_modules(recorded).difference(own)
    return {file for file in files if file.relative_to(ROOT).as_posix() not in others}


def missing_records(items: Sequence[pytest.Item], recorded: Mapping[str, Collection[str]]) -> list[tuple[str, str]]:
    """Return each recorded module, with a shard that has tests of it but does not import it."""
    modules = _recorded_modules(recorded)
    pairs = {(_module(item), shard_of(item)) for item in items}
    return sorted(
        (module, shard) for module, shard in pairs if module in modules and module not in recorded.get(shard, modules)
    )


def modules_of_unit_part(files: Collection[Path], part: str, durations: Mapping[str, float]) -> set[Path]:
    """Return those of some modules of unit tests that are in a part."""
    paths = {file.relative_to(ROOT).as_posix(): file for file in files}
    seconds = {module: durations.get(module, _SECONDS_PER_MODULE) for module in paths}
    return {paths[module] for module in _modules_of_part(seconds, part)}


def _recorded_modules(recorded: Mapping[str, Collection[str]]) -> set[str]:
    return {module for shard in SHARDS for module in recorded.get(shard, ())}


def _modules_of_part(seconds: Mapping[str, float], part: str) -> set[str]:
    """Assign modules one by one, the longest first, each to the part with the least work."""
    number, parts = map(int, part.split("/"))
    work = [0.0] * parts
    part_of: dict[str, int] = {}
    for module in sorted(seconds, key=lambda module: (-seconds[module], module)):
        part_of[module] = work.index(min(work))
        work[part_of[module]] += seconds[module]
    return {module for module, found in part_of.items() if found == number - 1}


def _module(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).as_posix()


def _in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with the modules that use the plain session first, so that it is created once.

    Modules that need a JVM with other jars come last, because jars cannot be removed. The tests of a module stay
    together, and modules otherwise keep their order.
    """
    special = {item.path for item in items if _has_special_session(item)}
    other_jars = {item.path for item in items if _WITH_JARS in _fixtures(item)}
    return sorted(items, key=lambda item: (item.path in other_jars, item.path in special))


def _has_special_session(item: pytest.Item) -> bool:
    fixtures = _fixtures(item)
    return _MAKER in fixtures and ("spark" not in fixtures or hasattr(getattr(item, "module", None), "spark"))


def _fixtures(item: pytest.Item) -> Sequence[str]:
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return names
