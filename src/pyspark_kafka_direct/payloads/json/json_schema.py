"""JSON Schemas of any draft: which parts of one hold for a value, and what ``$ref`` refers to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urljoin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

CHOICES: Final = ("oneOf", "anyOf")


class Node(NamedTuple):
    """A schema or a part of one, which is usually an object, and may be anything in an invalid schema."""

    schema: Any
    document: Any  # in which its references are

    def inner(self, schema: Any) -> Node:
        """Return a schema within this one."""
        return Node(schema, self.document)

    def members(self, keyword: str) -> list[Node]:
        """Return the schemas in a list, such as that of ``allOf``."""
        schemas = self.schema.get(keyword)
        return [self.inner(schema) for schema in schemas] if isinstance(schemas, list) else []

    def choices(self, keyword: str) -> list[Node]:
        """Return the schemas in a list of which one holds for a value that is not null."""
        return [each for each in self.members(keyword) if not _is_null(each.schema)]


class JsonSchema:
    """A schema with those that it refers to."""

    def __init__(self, text: str, references: Sequence[tuple[str, str]]) -> None:
        document = _parse(text)
        self.root = Node(document, document)
        self._documents = {name: _parse(other) for name, other in references}
        # By the ids of parsed objects, all of which this object keeps alive.
        self._names: dict[int, Mapping[str, Any]] = {}  # of a document: its schemas by their names

    def parts(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """Yield the objects of keywords that hold together for a value that is not null."""
        pending, seen = [*nodes], set()
        for node in pending:  # which grows
            if not isinstance(node.schema, dict) or id(node.schema) in seen:
                continue
            seen.add(id(node.schema))
            yield node
            pending += [*node.members("allOf"), *self.references(node)]
            for keyword in CHOICES:
                others = node.choices(keyword)
                if len(others) == 1:  # of several ones, the schema does not say which one holds
                    pending += others

    def references(self, node: Node) -> Iterator[Node]:
        """Yield the schema of ``$ref``: a name and a path such as ``order.json#/definitions/id``, or an anchor.

        It is None if there is no such schema.
        """
        reference = node.schema.get("$ref")
        if not isinstance(reference, str):
            return
        name, _, fragment = reference.partition("#")
        document = self._document(name, node.document) if name else node.document
        if fragment and not fragment.startswith("/"):
            yield Node(self._named(document).get(f"#{fragment}"), document)
            return
        target = document
        for key in fragment.split("/")[1:]:
            key = unquote(key).replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        yield Node(target, document)

    def _document(self, name: str, document: Any) -> Any:
        """Return another document, or a part of this one that has an id."""
        if name in self._documents:
            return self._documents[name]
        names = self._named(document)
        base = document.get("$id") if isinstance(document, dict) else None
        return names.get(name, names.get(urljoin(base, name)) if isinstance(base, str) else None)

    def _named(self, document: Any) -> Mapping[str, Any]:
        """Return the schemas in a document by their ids, and by their anchors behind ``#``."""
        if id(document) not in self._names:
            named = self._names[id(document)] = {}
            pending = [document]
            while pending:
                part = pending.pop()
                if isinstance(part, dict):
                    anchors = (part.get("$anchor"), part.get("$dynamicAnchor"))
                    named |= {name: part for name in (part.get("$id"), part.get("id")) if isinstance(name, str)}
                    named |= {f"#{anchor}": part for anchor in anchors if isinstance(anchor, str)}
                pending += part.values() if isinstance(part, dict) else as_list(part)
        return self._names[id(document)]


def properties(parts: Iterable[Node], name: str) -> Iterator[Node]:
    """Yield the schemas of a property."""
    for part in parts:
        own = part.schema.get("properties")
        if isinstance(own, dict) and name in own:
            yield part.inner(own[name])
        elif "patternProperties" not in part.schema and isinstance(part.schema.get("additionalProperties"), dict):
            yield part.inner(part.schema["additionalProperties"])


def as_list(value: Any, otherwise: Sequence[Any] = ()) -> Sequence[Any]:
    """Return a list as it is, and something else for what is none."""
    return value if isinstance(value, list) else otherwise


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") in ("null", ["null"]) or schema.get("enum") == [None])


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return True
