"""Finds the fields of a schema among those of a struct that is written, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class UnmatchedFieldError(ValueError):
    """The names of a struct and of a schema do not fit each other."""


def match_fields(wanted: Sequence[str], names: Sequence[str], path: str, schema: str) -> dict[str, int]:
    """Return the indexes of a struct's fields by the names in a schema; as in Spark, case matters only if it has to.

    ``path`` is that of the struct, and ``schema`` the type in the schema, for errors.
    """
    exact = set(wanted).intersection(names)
    found: dict[str, int] = {}
    for each in wanted:
        matches = [child for child, name in enumerate(names) if name == each]
        if each not in exact:
            lower = each.lower()
            matches = [child for child, name in enumerate(names) if name.lower() == lower and name not in exact]
        if len(matches) > 1:
            raise UnmatchedFieldError(f"{path}.{each} of {schema} fits several fields of the struct")
        if matches and matches[0] in found.values():
            raise UnmatchedFieldError(f"{path}.{names[matches[0]]} fits several fields of {schema}")
        if matches:
            found[each] = matches[0]
    unknown = [name for child, name in enumerate(names) if child not in found.values()]
    if unknown:
        raise UnmatchedFieldError(
            f"{schema} has no field for {path}.{unknown[0]}: remove it from the struct, or write with a schema that "
            "has it"
        )
    return found
