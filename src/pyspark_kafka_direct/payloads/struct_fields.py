"""Finds the fields of a schema among those of a struct that is written, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class UnmatchedFieldError(ValueError):
    """The names of a struct and of a schema do not fit each other."""


def match_fields(wanted: Sequence[str], names: Sequence[str], path: str, schema: str) -> dict[str, int]:
    """Return the indexes of a struct's fields by the ``wanted`` names of a schema, which may lack fields.

    As in Spark, a name without an exact match fits one that differs only in case. ``path`` is that of the struct, and
    ``schema`` the type in the schema, for errors.
    """
    exact = set(wanted).intersection(names)
    by_name: dict[str, list[int]] = {}
    by_lower_name: dict[str, list[int]] = {}  # of names that do not match exactly
    for index, name in enumerate(names):
        if name in exact:
            by_name.setdefault(name, []).append(index)
        else:
            by_lower_name.setdefault(name.lower(), []).append(index)
    indexes: dict[str, int] = {}
    used: set[int] = set()
    for wanted_name in wanted:
        is_exact = wanted_name in exact
        matches = by_name[wanted_name] if is_exact else by_lower_name.get(wanted_name.lower(), [])
        if len(matches) > 1:
            raise UnmatchedFieldError(f"{path}.{wanted_name} of {schema} fits several fields of the struct")
        if matches and matches[0] in used:
            raise UnmatchedFieldError(f"{path}.{names[matches[0]]} fits several fields of {schema}")
        if matches:
            indexes[wanted_name] = matches[0]
            used.add(matches[0])
    unknown = [name for index, name in enumerate(names) if index not in used]
    if unknown:
        raise UnmatchedFieldError(
            f"{schema} has no field for {path}.{unknown[0]}: remove it from the struct, or write with a schema that "
            "has it"
        )
    return indexes
