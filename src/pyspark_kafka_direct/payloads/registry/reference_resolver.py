"""Resolves the references of a schema recursively, within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_kafka_direct.errors import SchemaError, SchemaNotFoundError, printable
from pyspark_kafka_direct.payloads.registry.registered_schema import MAX_REFERENCES, NamedSchema, ResolvedSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.payloads.registry.registered_schema import RegisteredSchema, SchemaReference

_MAX_DEPTH: Final = 100
_MAX_CHARS: Final = 32 << 20  # of all schemas


class Resolution(NamedTuple):
    """A schema with its references, and the rules of all of them that encrypt."""

    schema: ResolvedSchema
    encryption_rules: tuple[str, ...]


def resolve_references(
    registered: RegisteredSchema, fetch: Callable[[SchemaReference], RegisteredSchema], source: str
) -> Resolution:
    """Fetch the schemas that a schema refers to, each once; ``source`` begins errors."""
    resolver = _Resolver(fetch, source)
    resolver.add_references(registered, ())
    rules = (*registered.encryption_rules, *resolver.encryption_rules)
    return Resolution(ResolvedSchema(registered, tuple(resolver.found.values())), rules)


class _Resolver:
    def __init__(self, fetch: Callable[[SchemaReference], RegisteredSchema], source: str) -> None:
        self._fetch = fetch
        self._source = source
        self._fetched = 0
        self._chars = 0
        self.found: dict[SchemaReference, NamedSchema] = {}  # each behind those that it refers to
        self.encryption_rules: list[str] = []

    def add_references(self, registered: RegisteredSchema, path: tuple[SchemaReference, ...]) -> None:
        """Add the references of a schema, which was reached by a path of references."""
        for reference in registered.schema.references:
            if reference in path:
                raise self._error(f"refer to themselves by {reference.name!r}")
            if reference in self.found:
                continue
            if len(path) >= _MAX_DEPTH:
                raise self._error(f"are nested more than {_MAX_DEPTH} levels deep")
            try:
                target = self._fetch(reference)
            except SchemaNotFoundError as error:
                message = f"{self._source}: its reference {printable(reference.name)!r} is missing. {error.message}"
                raise SchemaNotFoundError(message) from None
            self._fetched += 1
            self._chars += len(target.schema.text)
            if self._fetched > MAX_REFERENCES or self._chars > _MAX_CHARS:
                raise self._error(f"are more than {MAX_REFERENCES}, or larger than {_MAX_CHARS >> 20} MiB together")
            self.add_references(target, (*path, reference))
            self.found[reference] = NamedSchema(reference.name, target.schema.text)  # behind its own references
            self.encryption_rules += target.encryption_rules

    def _error(self, problem: str) -> SchemaError:
        return SchemaError(f"{self._source}: its references {problem}.")
