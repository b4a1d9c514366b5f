from __future__ import annotations

import operator
import os
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from bench.errors import BenchError
from bench.host import Host

if TYPE_CHECKING:
    from pathlib import Path


def test_functions_run_on_the_context_of_another_process(tmp_path: Path) -> None:
    with Host(partial(nullcontext, 40), tmp_path / "log") as host:
        assert host.call(operator.add, 2) == 42
        assert host.call(operator.sub, 4) == 36


def test_a_function_that_fails_leaves_the_process_usable(tmp_path: Path) -> None:
    with Host(partial(nullcontext, 1), tmp_path / "log") as host:
        with pytest.raises(BenchError, match="ZeroDivisionError"):
            host.call(operator.truediv, 0)
        assert host.call(operator.add, 1) == 2


def test_output_goes_to_the_file(tmp_path: Path) -> None:
    with Host(partial(nullcontext, "echo said by a child"), tmp_path / "log") as host:
        host.call(cast("Any", os.system))
    assert (tmp_path / "log").read_text() == "said by a child\n"


def test_a_context_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="start failed"):
        Host(partial(cast("Any", operator.truediv), 1, 0), tmp_path / "log")


def test_a_process_that_dies_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with Host(partial(nullcontext, "echo goodbye; kill -9 $PPID"), tmp_path / "log") as host:
        with pytest.raises(BenchError, match=r"died in system(.|\n)*goodbye"):
            host.call(cast("Any", os.system))
        with pytest.raises(BenchError, match=r"had ended before|died"):
            host.call(cast("Any", os.system))
