"""The peak memory of a process that a test has started."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak_memory() -> int:
    """Return the peak memory of this program in bytes.

    On Linux, ``ru_maxrss`` is no less than the memory of the process that started the program, pytest.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
