"""JSON Schemas of any draft: which parts of one hold for a value, and what ``$ref`` refers to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urljoin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

CHOICES: Final = ("oneOf", "anyOf")

_MAX_INDEX_DIGITS: Final = 10


class Node(NamedTuple):
    """A schema or a part of one, which is usually an object, and may be anything in an invalid schema."""

    schema: Any
    document: Any  # in which its references are

    def inner(self, schema: Any) -> Node:
        """Return a schema within this one."""
        return Node(schema, self.document)

    def members(self, keyword: str) -> list[Node]:
        """Return the schemas in a list, such as that of ``allOf``."""
        return [self.inner(schema) for schema in as_list(self.schema.get(keyword))]

    def choices(self, keyword: str) -> list[Node]:
        """Return the schemas in a list of which one holds for a value that is not null."""
        return [each for each in self.members(keyword) if not _is_null(each.schema)]


class JsonSchema:
    """A schema with those that it refers to."""

    def __init__(self, text: str, references: Sequence[tuple[str, str]]) -> None:
        document = _parse(text)
        self.root = Node(document, document)
        self._documents = {name: _parse(other) for name, other in references}
        for other in list(self._documents.values()):
            self._documents.setdefault(_base(other).removesuffix("#"), other)
        # By the ids of parsed objects, all of which this object keeps alive.
        self._names: dict[int, Mapping[str, Any]] = {}  # of a document: its schemas by their names
        self._targets: dict[tuple[int, int], Node] = {}  # of a schema with a reference, and its document

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
        if isinstance(reference, str):
            key = id(node.schema), id(node.document)
            if key not in self._targets:  # many values may have one schema, and a reference may be long
                self._targets[key] = self._target(reference, node.document)
            yield self._targets[key]

    def _target(self, reference: str, document: Any) -> Node:
        name, _, fragment = reference.partition("#")
        document = self._document(name, document) if name else document
        if fragment and not fragment.startswith("/"):
            return Node(self._named(document).get(f"#{fragment}"), document)
        target = document
        for key in fragment.split("/")[1:]:
            target = _member(target, unquote(key).replace("~1", "/").replace("~0", "~"))
        return Node(target, document)

    def _document(self, name: str, document: Any) -> Any:
        """Return another document, or a part of this one that has an id."""
        names = self._named(document)
        for each in (name, _resolved(_base(document), name)):
            for schemas in (self._documents, names):
                if each in schemas:
                    return schemas[each]
        return None

    def _named(self, document: Any) -> Mapping[str, Any]:
        """Return the schemas in a document by their ids, and by their anchors behind ``#``."""
        if id(document) not in self._names:
            named = self._names[id(document)] = {}
            base, pending = _base(document), [document]
            while pending:
                part = pending.pop()
                if isinstance(part, dict):
                    anchors = (part.get("$anchor"), part.get("$dynamicAnchor"))
                    ids = [
                        each.removesuffix("#") for each in (part.get("$id"), part.get("id")) if isinstance(each, str)
                    ]
                    named |= {name: part for each in ids for name in (each, _resolved(base, each))}
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


def _base(document: Any) -> str:
    """Return the id of a document, to which other ids and references in it are relative, or an empty string."""
    found = document.get("$id", document.get("id")) if isinstance(document, dict) else None
    return found if isinstance(found, str) else ""


def _resolved(base: str, name: str) -> str:
    try:
        return urljoin(base, name)
    except ValueError:  # not the form of a URL
        return name


def _member(value: Any, key: str) -> Any:
    """Return a member of an object or list, or None."""
    if isinstance(value, list) and key.isdecimal() and len(key) < _MAX_INDEX_DIGITS:
        return next(iter(value[int(key) : int(key) + 1]), None)
    return value.get(key) if isinstance(value, dict) else None


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") in ("null", ["null"]) or schema.get("enum") == [None])


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return True
