"""What a broker returns for a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Response = Mapping[str, Any]
"""A response's values by field name."""


class Delayed(NamedTuple):
    """A response that waits: ``poll`` is called after each change of the cluster; at ``until`` it must respond."""

    until: float
    poll: Callable[[], Response | None]


class SharedElements(tuple[Mapping[str, Any], ...]):
    """Elements without error codes that many responses have; compared by identity, so that a cache finds them soon."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


Reply = Response | Delayed | None
"""None: the request has no response (Produce with acks=0)."""
