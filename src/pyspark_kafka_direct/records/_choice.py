"""Which of the two implementations serves in this process."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.records._encoding import EncodeRequest, RecordEncoder
    from pyspark_kafka_direct.records._protocol import DecodeRequest, RecordDecoder

ENVIRONMENT_VARIABLE = "PYSPARK_KAFKA_DIRECT_DECODER"

_Request = TypeVar("_Request")
_Made = TypeVar("_Made")

_log = logging.getLogger("pyspark_kafka_direct.records")


class Stamp(Protocol):
    """Writes into a batch who sends it; see ``records.stamp``."""

    def __call__(
        self, data: bytearray, producer_id: int, epoch: int, sequence: int, *, transactional: bool
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Implementation:
    """A decoder, an encoder, and what belongs to them."""

    name: Literal["native", "python"]
    create: Callable[[DecodeRequest], RecordDecoder]
    scan_next_offset: Callable[[memoryview | bytearray | bytes, int], int]
    scan_leader_epoch: Callable[[memoryview | bytearray | bytes], int]
    create_encoder: Callable[[EncodeRequest], RecordEncoder]
    stamp: Stamp
    split: Callable[[bytes | bytearray | memoryview], tuple[bytearray, bytearray]]
    native_absent: str = ""
    """Why it is not the native one; empty where it is, or where the environment says so."""


def choose() -> Implementation:
    """Return the implementation the environment forces, else the native one, else the Python one.

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
        reason = _why_absent(error)
        if forced:
            raise OptionError(f"{ENVIRONMENT_VARIABLE} is 'native', but {reason}") from error
        return _reluctant_python(reason)


def _why_absent(error: ImportError) -> str:
    """Return what the build has left in the package where it could not build the kernel, or else what Python said."""
    import pkgutil  # few need it

    try:
        left = pkgutil.get_data(__package__, "_native_absent.txt")  # also from a zip
    except OSError:
        left = None
    if left is None:
        return f"it cannot be loaded: {error}"
    return f"this package was built without it: {left.decode().strip()}"


def _native() -> Implementation:
    from pyspark_kafka_direct.records import _native as native
    from pyspark_kafka_direct.records._native_decoder import NativeDecoder
    from pyspark_kafka_direct.records._native_encoder import NativeEncoder

    return Implementation(
        "native",
        NativeDecoder,
        native.scan_next_offset,
        native.scan_leader_epoch,
        NativeEncoder,
        native.stamp,
        native.split,
    )


def _python() -> Implementation:
    from pyspark_kafka_direct.records import _python as python

    return Implementation(
        "python",
        python.PythonDecoder,
        python.scan_next_offset,
        python.scan_leader_epoch,
        python.PythonEncoder,
        python.stamp,
        python.split,
    )


def _reluctant_python(reason: str) -> Implementation:
    """Return the Python implementation; at its first use in a process it says that it is the slow one."""
    python = _python()
    return replace(
        python,
        native_absent=reason,
        create=_reluctant(python.create, "Records are decoded in Python", "decoder", reason),
        create_encoder=_reluctant(python.create_encoder, "Records are encoded in Python", "encoder", reason),
    )


def _reluctant(create: Callable[[_Request], _Made], what: str, native: str, reason: str) -> Callable[[_Request], _Made]:
    said = False

    def created(request: _Request) -> _Made:
        nonlocal said
        if not said:
            said = True
            _log.warning(
                "%s, many times slower than by the native %s (%s). "
                "Install the package from a wheel for this platform, or with a Rust toolchain and a C compiler.",
                what,
                native,
                reason,
            )
        return create(request)

    return created
