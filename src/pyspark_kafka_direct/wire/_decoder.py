"""kafka-python's decoders of responses, bounded: their time and memory follow the bytes at hand, whatever these say.

The library writes a Python function for each response and version, and compiles it. Two things in it are quadratic, and
a broker, or whatever poses as one, can hang its client with them past every deadline:

- a varint may go on for ever, and each byte shifts all that came before: a megabyte of 0xff takes more than a minute;
- a struct with tagged fields copies everything that follows it, and an answer may hold a million such structs.

So the function is compiled here, from the library's own text with those two places written anew. The library itself is
left as it is, for whoever else uses it in this process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Where a varint goes on: `_sh2 += 7`, the last line of its loop.
_NEXT_GROUP: Final = re.compile(r"^( +)(\w+) \+= 7$", re.MULTILINE)
_VARINT_ENDS: Final = r'\g<0>\n\1if \2 > 28: raise ValueError("a varint of more than 32 bits")'

_COPY: Final = "_BytesIO(bytes(data[pos:]))"
_NO_COPY: Final = "_Tail(data, pos)"


def bounded_decoder(response_class: Any, version: int) -> Callable[[memoryview], Any]:
    """Compile the decoder of one version of a response. Not to be called by two threads at a time.

    Args:
        response_class: A response class of kafka-python.
        version: The version.

    Returns:
        A function from the body of a response to the response. What it raises for bytes that are none is of many kinds.
    """
    from kafka.protocol.schemas.fields.codegen import CodegenContext

    flexible = response_class.flexible_version_q(version)
    struct = response_class._struct
    context = CodegenContext()
    context.lines.append("def decode(data, pos=0):")
    # What the struct knows is a weak proxy of its class, which makes no objects; the library lends it the class too.
    proxy, struct._data_class = struct._data_class, response_class[None]
    try:
        struct.emit_decode_from(context, "obj", "    ", version=version, compact=flexible, tagged=flexible)
    finally:
        struct._data_class = proxy
    context.emit("    ", "return obj")
    names: dict[str, Any] = {**context.globs, "_Tail": _Tail}
    exec(compile(bounded(context.source()), f"<{struct.name} version {version}>", "exec"), names)  # noqa: S102
    decode: Callable[[memoryview], Any] = names["decode"]
    return decode


def bounded(source: str) -> str:
    """The text of a decoder with an end to its varints, and without the copies."""
    return _NEXT_GROUP.sub(_VARINT_ENDS, source).replace(_COPY, _NO_COPY)


class _Tail:
    """What the library reads tagged fields from: the bytes from a position on, as a file, not copied."""

    def __init__(self, data: memoryview, start: int) -> None:
        self._data = data
        self._start = self._position = start

    def read(self, size: int) -> bytes:
        """The next bytes; fewer at the end."""
        chunk = bytes(self._data[self._position : self._position + max(size, 0)])
        self._position += len(chunk)
        return chunk

    def tell(self) -> int:
        """How many bytes were read."""
        return self._position - self._start
