"""Fails a query when a writer's schema has more than the schema of the query."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_SHOWN: Final = 5


def check_new_parts(writer: Callable[[], str], source: str, fields: Iterator[str], values: Iterator[str]) -> None:
    """Raise a SchemaError if there are new fields or values; ``writer`` returns the id and versions of its schema."""
    # An error about new fields does not mention new values, because a new load() finds both.
    for kind, parts in (("fields", fields), ("values", values)):
        found = list(itertools.islice(parts, _MAX_SHOWN + 1))
        if found:
            shown = ", ".join(found[:_MAX_SHOWN]) + (", ..." if len(found) > _MAX_SHOWN else "")
            raise SchemaError(
                f"The schema of the writer ({writer()}) has {kind} that the schema of the query ({source}) lacks: "
                f"{shown}. To read them, start the query again with a new load(). To ignore them, set "
                "schemaEvolutionMode=none."
            )
