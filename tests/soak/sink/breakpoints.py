"""Breakpoints in the application's processes; the counterpart of ``hook/sitecustomize.py``."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.soak.sink.hook.sitecustomize import STEPS, VARIABLE

_HOOK = Path(__file__).with_name("hook")


class Breakpoint:
    """Suspends the first process that reaches a step."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._number = 0

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that the application needs."""
        paths = [str(_HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {VARIABLE: str(self._folder), "PYTHONPATH": os.pathsep.join(paths)}

    def arm(self, step: str, *, skip: int = 0, outlives: bool = False) -> None:
        """Suspend one process at a step.

        Each process may pass the step ``skip`` times. If ``outlives``, it survives the kill of its driver.
        """
        assert step in STEPS
        self._number += 1
        settings = {"number": self._number, "step": step, "skip": skip, "outlives": outlives}
        new_file = self._folder / "arming"
        new_file.write_text(json.dumps(settings))
        new_file.rename(self._folder / "armed")

    @property
    def held(self) -> int | None:
        """The process that was suspended last, if any."""
        reached = self._folder / f"reached-{self._number}"
        return int(reached.read_text()) if reached.exists() else None

    def release(self) -> None:
        """Resume the process, and disarm the breakpoint."""
        (self._folder / "armed").unlink(missing_ok=True)
        (self._folder / f"released-{self._number}").touch()

    def resume_until(self, step: str) -> None:
        """Resume the process, and suspend it again at another step."""
        number = self._number
        self.arm(step)
        (self._folder / f"released-{number}").touch()
