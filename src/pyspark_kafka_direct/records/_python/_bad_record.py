"""The one error inside the Python decoder."""

from __future__ import annotations


class BadRecordError(Exception):
    """Something that cannot be decoded.

    Args:
        message: What is wrong, without its place.
        kind: One of corrupt, unsupported, timestamp, large, memory.
        offset: The offset it is at, where that is known better than by the caller.
    """

    def __init__(self, message: str, *, kind: str = "corrupt", offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.offset = offset
