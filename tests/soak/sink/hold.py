"""Where to hold a process of the application: what ``hook/sitecustomize.py`` is told, and tells."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.soak.sink.hook.sitecustomize import STEPS, VARIABLE

_HOOK = Path(__file__).with_name("hook")


class Hold:
    """Holds the first process that comes to a step.

    Args:
        folder: Of its own; made here.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._number = 0

    @property
    def environment(self) -> dict[str, str]:
        """What the application needs in its environment."""
        paths = [str(_HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {VARIABLE: str(self._folder), "PYTHONPATH": os.pathsep.join(paths)}

    def arm(self, step: str, *, skip: int = 0, outlives: bool = False) -> None:
        """Hold at a step, once.

        Args:
            step: One of ``STEPS``.
            skip: Of each process let so many calls pass.
            outlives: Whether the process is to live on when its driver is killed.
        """
        assert step in STEPS
        self._number += 1
        told = {"number": self._number, "step": step, "skip": skip, "outlives": outlives}
        new = self._folder / "arming"
        new.write_text(json.dumps(told))
        new.rename(self._folder / "armed")

    @property
    def held(self) -> int | None:
        """The process that was held last, if one came."""
        reached = self._folder / f"reached-{self._number}"
        return int(reached.read_text()) if reached.exists() else None

    def release(self) -> None:
        """Let it go, and hold nobody who has not come yet."""
        (self._folder / "armed").unlink(missing_ok=True)
        (self._folder / f"released-{self._number}").touch()
