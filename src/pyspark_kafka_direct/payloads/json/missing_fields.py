"""Wanted fields that no JSON value has, which are null without an error: their names may be misspelt."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pyspark_kafka_direct.payloads.json.json_values import is_variant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_Path = tuple[str, ...]

_SAMPLE: Final = 20  # of objects, which show that a name is missing although no other one is like it
_MAX_BYTES: Final = 64 << 10  # of a value in the sample
_MAX_NAMES: Final = 500  # that are compared with a field; more are data, as the keys of a map, and take seconds
_MAX_BATCHES: Final = 100  # in which a field is looked for


class MissingFields:
    """Finds fields that are null in all rows of a batch, and that none of its first values has.

    Each field is found once. One that has had a value costs nothing any more.
    """

    def __init__(self, fields: Iterable[pa.Field]) -> None:
        self._unseen = list(_paths(fields, ()))  # a struct before its fields
        self._wanted = frozenset(self._unseen)
        self._batches = 0  # with fields that were not seen before

    def find(self, values: pa.BinaryArray, structs: pa.StructArray) -> list[str]:
        """Return sentences about fields that are missing; ``structs`` are the decoded ``values``."""
        self._unseen = [path for path in self._unseen if _is_null(structs, path)]
        if not self._unseen:
            return []
        self._batches += 1
        if self._batches > _MAX_BATCHES:  # they may be rare: their warning is not worth the time of all batches
            self._unseen.clear()
            return []
        found: list[str] = []
        objects = _objects(values)
        for outer, paths in itertools.groupby(self._unseen.copy(), lambda path: path[:-1]):
            parents = [parent for each in objects if isinstance(parent := _inner(each, outer), dict)]
            names = {name for parent in parents for name in parent}
            others = {name for name in names if (*outer, name) not in self._wanted}
            advice = "; check its name" if others and len(parents) == _SAMPLE else ""
            for path in paths:
                if path[-1] in names:
                    self._unseen.remove(path)
                elif hint := _hint(path[-1], others) or advice:  # otherwise, later values may have it
                    found.append(f"no value has the field {'.'.join(path)!r}, so it is null{hint}")
                    self._unseen.remove(path)
        return found


def _hint(name: str, others: Collection[str]) -> str:
    if not 0 < len(others) <= _MAX_NAMES:
        return ""
    from pyspark_kafka_direct.options.hints import did_you_mean  # its imports take time, and most tasks need none

    return did_you_mean(name, others)


def _paths(fields: Iterable[pa.Field], outer: _Path) -> Iterator[_Path]:
    """Yield the paths of fields, without those in arrays and maps."""
    for field in fields:
        yield (*outer, field.name)
        if pa.types.is_struct(field.type) and not is_variant(field.type):
            yield from _paths(field.type, (*outer, field.name))


def _is_null(structs: pa.StructArray, path: _Path) -> bool:
    array: pa.Array = structs
    for name in path:
        array = array.field(name)
    return bool(array.null_count == len(array))


def _objects(values: pa.BinaryArray) -> list[Any]:
    """Return the first values that are not null, parsed as JSON; malformed ones are left out."""
    objects = []
    for value in values.drop_null()[:_SAMPLE]:
        data = value.as_buffer()
        if len(data) <= _MAX_BYTES:
            try:
                objects.append(json.loads(bytes(data)))
            except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
                continue
    return objects


def _inner(value: Any, path: _Path) -> Any:
    """Return what is at a path in an object, or None."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
