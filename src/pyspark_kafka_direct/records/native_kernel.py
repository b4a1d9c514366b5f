"""Loads the native kernel (``rust/``), or raises an error that says what to install."""

from __future__ import annotations

import sys
from typing import Final

from pyspark_kafka_direct.errors import KernelMissingError

_INTERFACE_VERSION: Final = 6
"""The same number as in ``rust/src/lib.rs``."""


def _missing(reason: str, advice: str = "") -> KernelMissingError:
    import platform

    host = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    return KernelMissingError(
        f"The native kernel of pyspark-kafka-direct cannot be loaded in {host} ({reason}): "
        + (
            advice
            or "install the wheel for this platform on each host, or ship an environment with this wheel to the "
            "executors with --archives (--py-files cannot contain native code)."
        )
    )


# The module would be found, and fail in ways that depend on the version of Python. Importing sysconfig takes longer.
if "t" in getattr(sys, "abiflags", ""):
    raise _missing("a free-threaded build", "use a build of Python with the GIL.")
try:
    import pyspark_kafka_direct.records._native as native
except ImportError as error:
    raise _missing(str(error)) from error
if getattr(native, "INTERFACE_VERSION", 1) != _INTERFACE_VERSION:
    raise _missing("it was built from other sources than this package", "install the package again.")

__all__ = ["native"]
