"""What stops a benchmark."""

from __future__ import annotations


class BenchError(Exception):
    """A step of the benchmark failed, or read something else than what was written."""
