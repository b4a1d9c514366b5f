"""The kernel has the answers of the golden files; see ``tests/golden``."""

from __future__ import annotations

import pytest
from tests.golden.files import FOLDER, KINDS, MAX_BYTES, differences


@pytest.mark.parametrize("name", KINDS)
def test_the_kernel_has_the_right_answers(name: str) -> None:
    found = differences(name)
    assert not found, "\n\n".join([f"{len(found)} answers differ", *found[:3]])


def test_the_files_are_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= MAX_BYTES
