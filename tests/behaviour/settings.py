"""The record of settings: what every door makes of every value, spelling and doubling.

A line of ``data/settings.jsonl`` is an object:

    for       settings that behave alike, without ``kafka.``
    context   what stands beside the setting, see ``contexts``
    values    what it was tried with, each a list of one text, or of two where the setting is written twice
    spelled   the ways to write it, see ``contexts.written``
    seen      outcome to where it was seen: ``*`` (at each door, in each way), or doors, each with its ways if not all

An outcome begins with ``=`` and the fields that changed, or is the error; ``warns:`` are the warnings. In it ``{name}``
stands for the setting's name, in whatever letters, ``{value}`` for its text in quotes, and secrets are masked.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING

from tests.behaviour.cases import Case, all_cases
from tests.behaviour.contexts import given, written
from tests.behaviour.doors import Seen, look
from tests.behaviour.store import DATA, Differences

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = DATA / "settings.jsonl"

_LONGEST = 400


def write() -> None:
    """Make the record."""
    rows: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for case in dict.fromkeys(all_cases()):
        row = {
            "context": case.context,
            "spelled": case.spelled,
            "doors": case.doors,
            "seen": _condensed(case, _outcomes(case)),
        }
        rows.setdefault((case.setting, _text(row)), []).append(case.values)
    alike: dict[str, list[str]] = {}
    for (setting, text), values in rows.items():
        alike.setdefault(_text({"values": values, **json.loads(text)}), []).append(setting)
    lines = [_text({"for": names, **json.loads(text)}) for text, names in alike.items()]
    FILE.write_text("\n".join(lines) + "\n", "utf-8")


def compare() -> Differences:
    """What is different from the record, and what is not in it."""
    differences: Differences = {}
    recorded = dict(_recorded())
    for case, seen in recorded.items():
        expected = _spread(case, seen)
        for (door, way), outcome in _outcomes(case).items():
            if outcome != expected[door, way]:
                name = f"{_shown(case)} {way} at {door}"
                differences[name] = f"\n      was {expected[door, way]}\n      is  {outcome}"
    for case in all_cases():
        if case not in recorded:
            differences[_shown(case)] = "not recorded"
    return differences


def outcomes_recorded() -> Iterator[str]:
    """Every outcome in the record."""
    for _, seen in _recorded():
        yield from seen


def _recorded() -> Iterator[tuple[Case, dict[str, str]]]:
    for line in FILE.read_text("utf-8").splitlines():
        row = json.loads(line)
        for name in row["for"]:
            for values in row["values"]:
                yield Case(name, row["context"], tuple(values), row["spelled"], row["doors"]), row["seen"]


def _outcomes(case: Case) -> dict[tuple[str, str], str]:
    """By door and way."""
    return {(door, way): _outcome(case, door, way) for door in case.doors.split() for way in case.spelled.split()}


def _outcome(case: Case, door: str, way: str) -> str:
    texts = given(door, case.context, case.setting, way, case.values)
    seen = look(door, texts)
    parts = [seen.refusal or _changes(seen, _beside(door, case.context, case.setting))]
    parts += [f"warns: {text}" for text in seen.warnings]
    text = _name_of(case.setting, way).sub("{name}", " | ".join(parts))
    for value in case.values:
        text = text.replace(repr(value), "{value}")
    return text


@functools.cache
def _name_of(setting: str, way: str) -> re.Pattern[str]:
    """A setting as messages may show it; the longest way of writing it first."""
    names = {setting, *(written(setting, one).strip() for one in way.split("+"))}
    names |= {name[6:] for name in names if name.lower().startswith("kafka.")}
    choice = "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
    return re.compile(rf"(?<!\w)({choice})(?!\w|\.\w)", re.IGNORECASE)


@functools.cache
def _beside(door: str, context: str, setting: str) -> Seen:
    """The context alone; where that cannot stand alone, the plainest one."""
    seen = look(door, given(door, context, setting))
    return look(door, given(door, "plain", "")) if seen.refusal else seen


def _changes(seen: Seen, beside: Seen) -> str:
    changed = [
        f"{path}={value!r}"[:_LONGEST]
        for path, value in seen.values.items()
        if path not in beside.values or beside.values[path] != value
    ]
    gone = [f"no {path}" for path in beside.values if path not in seen.values]
    return "= " + ("; ".join(changed + gone) or "as without")


def _condensed(case: Case, outcomes: dict[tuple[str, str], str]) -> dict[str, str]:
    doors, ways = case.doors.split(), case.spelled.split()
    condensed = {}
    for outcome in dict.fromkeys(outcomes.values()):
        places = []
        for door in doors:
            here = [way for way in ways if outcomes[door, way] == outcome]
            places += [door if here == ways else f"{door}:{','.join(here)}"] if here else []
        condensed[outcome] = "*" if places == doors else " ".join(places)
    return condensed


def _spread(case: Case, seen: dict[str, str]) -> dict[tuple[str, str], str]:
    """The reverse of ``_condensed``."""
    spread = {}
    for outcome, where in seen.items():
        for place in case.doors.split() if where == "*" else where.split():
            door, _, ways = place.partition(":")
            for way in ways.split(",") if ways else case.spelled.split():
                spread[door, way] = outcome
    return spread


def _shown(case: Case) -> str:
    return f"{case.setting} ({case.context}) {' and '.join(map(repr, case.values))}"


def _text(row: Mapping[str, object]) -> str:
    return json.dumps(row, ensure_ascii=False)
