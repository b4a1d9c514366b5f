"""The buffer into which a connection reads one response after another; no I/O."""

from __future__ import annotations

import struct
from typing import Final

PREFIX: Final = struct.Struct(">ii")
"""The size of a response, and its correlation id, which counts towards the size."""

_INITIAL_SIZE: Final = 64 << 10  # most responses without records fit
_MIN_GROWTH: Final = 1 << 20
_MIN_RETAINED_SIZE: Final = 4 << 20


class ResponseBuffer:
    """Memory that grows with the received bytes of a response, not with the size that the response declares."""

    def __init__(self) -> None:
        self.prefix = bytearray(PREFIX.size)
        self.body_size: int | None = None  # after the prefix; None until that is complete
        self.received_size = 0  # of the prefix, or later of the body
        self._body = bytearray(_INITIAL_SIZE)
        self._retained_size = _MIN_RETAINED_SIZE

    @property
    def capacity(self) -> int:
        """The memory that is in use."""
        return len(self._body)

    def free_space(self) -> memoryview:
        """Return where the next bytes go; it is empty if the prefix, or the whole response, is complete."""
        if self.body_size is None:
            return memoryview(self.prefix)[self.received_size :]
        if self.received_size == len(self._body) < self.body_size:
            # The memory is replaced, not resized, because a caller may still have a view of it.
            larger = bytearray(min(self.body_size, max(2 * len(self._body), _MIN_GROWTH)))
            larger[: self.received_size] = self._body
            self._body = larger
        return memoryview(self._body)[self.received_size : self.body_size]

    def begin_body(self, size: int) -> None:
        """Continue with the rest of the response, whose prefix is complete."""
        self.body_size, self.received_size = size, 0
        if size <= self._retained_size < len(self._body):
            self._body = bytearray(self._retained_size)  # release the memory of an oversized record

    def take_body(self) -> memoryview:
        """Return the body of a complete response, which is valid until the next one is read."""
        body = memoryview(self._body)[: self.body_size].toreadonly()
        self.body_size, self.received_size = None, 0
        return body

    def reserve(self, size: int) -> None:
        """Retain memory for responses of about this size; at least a few MiB."""
        self._retained_size = max(_MIN_RETAINED_SIZE, size + _INITIAL_SIZE)

    def release(self) -> None:
        """Release the memory of large responses; a response that the caller still reads stays valid."""
        self._retained_size = _MIN_RETAINED_SIZE
        if len(self._body) > _INITIAL_SIZE:
            self._body = bytearray(_INITIAL_SIZE)
