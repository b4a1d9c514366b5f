"""A schema registry that others wrote: ``srfake`` of franz-go, in a process of its own. It needs Go."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parent / "go" / "srfake"


def build_srfake(folder: Path) -> Path:
    """Compile the registry and return its path; skips the test if Go or the module is not available."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    program = folder / "srfake"
    # Without optimizations, debugging data and cgo, it compiles in half of the CPU time.
    command = [go, "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", str(program), "."]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    built = subprocess.run(
        command, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    if built.returncode:
        pytest.skip(f"srfake cannot be built: {built.stderr[-500:]}")
    return program


@contextmanager
def run_srfake(program: Path, authorization: str = "") -> Iterator[str]:
    """Run the registry and return its URL."""
    command = [str(program), *([authorization] if authorization else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
