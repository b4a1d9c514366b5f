"""The record of options: how each API parses each option with each value, spelling and duplicate.

A line of ``data/options.jsonl`` is an object:

    for       options with the same outcomes, without ``kafka.``
    context   the other options that are given, see ``contexts``
    values    a list of the values: each a list with one string, or two if the option is given twice
    spelled   the spellings of the name, see ``contexts.spelled_name``
    apis      the APIs that parse it
    seen      outcome to where it occurred: ``*`` (every API and spelling), or APIs, with spellings unless it is all

An outcome is ``=`` and the fields that changed, or an error; warnings follow ``warns:``. In it, ``{name}`` stands for
the name of the option in any spelling and ``{value}`` for its quoted value. Secrets are masked.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING

from tests.behaviour.apis import Outcome, parse_at
from tests.behaviour.cases import Case, all_cases
from tests.behaviour.contexts import given_options, spelled_name
from tests.behaviour.differences import DATA, Differences

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = DATA / "options.jsonl"

_MAX_SHOWN = 400


def write() -> None:
    values_by_row: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for case in dict.fromkeys(all_cases()):
        row = {
            "context": case.context,
            "spelled": case.spelled,
            "apis": case.apis,
            "seen": _condensed(case, _outcomes(case)),
        }
        values_by_row.setdefault((case.option, _json(row)), []).append(case.option_values)
    options_by_row: dict[str, list[str]] = {}
    for (option, row_json), values in values_by_row.items():
        options_by_row.setdefault(_json({"values": values, **json.loads(row_json)}), []).append(option)
    lines = [_json({"for": names, **json.loads(row_json)}) for row_json, names in options_by_row.items()]
    FILE.write_text("\n".join(lines) + "\n", "utf-8")


def compare() -> Differences:
    """The outcomes that differ from the record, and the cases that it does not contain."""
    differences: Differences = {}
    recorded = dict(_recorded())
    for case, seen in recorded.items():
        expected = _expanded(case, seen)
        for (api, spelling), outcome in _outcomes(case).items():
            if outcome != expected[api, spelling]:
                name = f"{_shown(case)} {spelling} at {api}"
                differences[name] = f"\n      was {expected[api, spelling]}\n      is  {outcome}"
    for case in all_cases():
        if case not in recorded:
            differences[_shown(case)] = "not recorded"
    return differences


def recorded_outcomes() -> Iterator[str]:
    for _, seen in _recorded():
        yield from seen


def _recorded() -> Iterator[tuple[Case, dict[str, str]]]:
    for line in FILE.read_text("utf-8").splitlines():
        row = json.loads(line)
        for name in row["for"]:
            for values in row["values"]:
                yield Case(name, row["context"], tuple(values), row["spelled"], row["apis"]), row["seen"]


def _outcomes(case: Case) -> dict[tuple[str, str], str]:
    """By API and spelling."""
    return {
        (api, spelling): _outcome(case, api, spelling) for api in case.apis.split() for spelling in case.spelled.split()
    }


def _outcome(case: Case, api: str, spelling: str) -> str:
    given = given_options(api, case.context, case.option, spelling, case.option_values)
    outcome = parse_at(api, given)
    parts = [outcome.error or _changes(outcome, _without_option(api, case.context, case.option))]
    parts += [f"warns: {warning}" for warning in outcome.warnings]
    message = " | ".join(parts)
    if any(name in message.lower() for name in _names(case.option, spelling)):
        message = _name_pattern(case.option, spelling).sub("{name}", message)
    for value in case.option_values:
        message = message.replace(repr(value), "{value}")
    return message


@functools.cache
def _names(option: str, spelling: str) -> frozenset[str]:
    """The spellings of an option in messages, in lower case."""
    names = {option.lower(), *(spelled_name(option, one).strip().lower() for one in spelling.split("+"))}
    return frozenset(names | {name.removeprefix("kafka.") for name in names})


@functools.cache
def _name_pattern(option: str, spelling: str) -> re.Pattern[str]:
    """Matches the spellings of an option in messages, the longest first."""
    names = sorted(_names(option, spelling), key=lambda name: (-len(name), name))
    alternatives = "|".join(map(re.escape, names))
    return re.compile(rf"(?<!\w)({alternatives})(?!\w|\.\w)", re.IGNORECASE)


@functools.cache
def _without_option(api: str, context: str, option: str) -> Outcome:
    """The outcome of the context alone or, if that is an error, of the context ``plain``."""
    outcome = parse_at(api, given_options(api, context, option))
    return parse_at(api, given_options(api, "plain", "")) if outcome.error else outcome


def _changes(outcome: Outcome, without: Outcome) -> str:
    changed = [
        f"{path}={value!r}"[:_MAX_SHOWN]
        for path, value in outcome.values.items()
        if path not in without.values or without.values[path] != value
    ]
    missing = [f"no {path}" for path in without.values if path not in outcome.values]
    return "= " + ("; ".join(changed + missing) or "as without")


def _condensed(case: Case, outcomes: dict[tuple[str, str], str]) -> dict[str, str]:
    apis, spellings = case.apis.split(), case.spelled.split()
    condensed = {}
    for outcome in dict.fromkeys(outcomes.values()):
        where = []
        for api in apis:
            matching = [spelling for spelling in spellings if outcomes[api, spelling] == outcome]
            where += [api if matching == spellings else f"{api}:{','.join(matching)}"] if matching else []
        condensed[outcome] = "*" if where == apis else " ".join(where)
    return condensed


def _expanded(case: Case, seen: dict[str, str]) -> dict[tuple[str, str], str]:
    """The reverse of ``_condensed``."""
    expanded = {}
    for outcome, where in seen.items():
        for api_spellings in case.apis.split() if where == "*" else where.split():
            api, _, spellings = api_spellings.partition(":")
            for spelling in spellings.split(",") if spellings else case.spelled.split():
                expanded[api, spelling] = outcome
    return expanded


def _shown(case: Case) -> str:
    return f"{case.option} ({case.context}) {' and '.join(map(repr, case.option_values))}"


def _json(row: Mapping[str, object]) -> str:
    return json.dumps(row, ensure_ascii=False)
