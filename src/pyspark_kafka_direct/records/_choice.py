"""Which of the two decoders serves in this process."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.records._protocol import DecodeRequest, RecordDecoder

ENVIRONMENT_VARIABLE = "PYSPARK_KAFKA_DIRECT_DECODER"

_log = logging.getLogger("pyspark_kafka_direct.records")


@dataclass(frozen=True, slots=True)
class Implementation:
    """One of the two decoders."""

    name: Literal["native", "python"]
    create: Callable[[DecodeRequest], RecordDecoder]
    scan_next_offset: Callable[[memoryview | bytearray | bytes, int], int]
    scan_leader_epoch: Callable[[memoryview | bytearray | bytes], int]


def choose() -> Implementation:
    """Return the decoder the environment forces, else the native one, else the Python one.

    Raises:
        OptionError: The environment names no decoder, or the native one although it cannot be loaded.
    """
    forced = os.environ.get(ENVIRONMENT_VARIABLE)
    if forced:
        # Where nothing is forced, a worker does without the table of settings.
        from pyspark_kafka_direct.settings.environment import variable

        forced = variable(os.environ, ENVIRONMENT_VARIABLE)
    if forced == "python":
        return _python()
    try:
        return _native()
    except ImportError as error:
        if forced:
            raise OptionError(f"{ENVIRONMENT_VARIABLE} is 'native', but it cannot be loaded: {error}") from error
        return _reluctant_python(str(error))


def _native() -> Implementation:
    from pyspark_kafka_direct.records._native import scan_leader_epoch, scan_next_offset
    from pyspark_kafka_direct.records._native_decoder import NativeDecoder

    return Implementation("native", NativeDecoder, scan_next_offset, scan_leader_epoch)


def _python() -> Implementation:
    from pyspark_kafka_direct.records._python import PythonDecoder, scan_leader_epoch, scan_next_offset

    return Implementation("python", PythonDecoder, scan_next_offset, scan_leader_epoch)


def _reluctant_python(reason: str) -> Implementation:
    """Return the Python decoder; at its first use in a process it says that it is the slow one."""
    python = _python()
    said = False

    def create(request: DecodeRequest) -> RecordDecoder:
        nonlocal said
        if not said:
            said = True
            _log.warning(
                "Records are decoded in Python, many times slower than by the native decoder, which cannot be "
                "loaded (%s). Install the package from a wheel for this platform, or with a Rust toolchain.",
                reason,
            )
        return python.create(request)

    return Implementation("python", create, python.scan_next_offset, python.scan_leader_epoch)
