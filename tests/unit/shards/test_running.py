"""``python -m tests.shards`` shows every shard, and fails if one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

MAKE = """#!/bin/sh
# Takes the place of make: each target is told, and "bad" fails. A shard waits for the other one to begin.
shift 2
for target in "$@"; do
    touch "$0-$target"
    case $target in
        first) until [ -e "$0-second" ]; do sleep 0.05; done ;;
        second) until [ -e "$0-first" ]; do sleep 0.05; done ;;
    esac
    echo "this is $target"
    [ "$target" != bad ] || code=3
done
exit ${code:-0}
"""


def run(folder: Path, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    make = folder / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    options = arguments[:2] if arguments[0] == "--at-once" else ()
    command = [sys.executable, "-m", "tests.shards", *options, str(make), *arguments[len(options) :]]
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def test_shards_run_side_by_side(tmp_path: Path) -> None:
    done = run(tmp_path, "first", "second third")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.index("this is second") < done.stdout.index("this is third")
    last_lines = done.stdout.splitlines()[-2:]
    assert sorted(line.split("CPU min")[1].strip() for line in last_lines) == ["first", "second third"]
    assert all(line.startswith("passed") for line in last_lines)


@pytest.mark.parametrize("shards", [("bad", "good"), ("good", "bad better")])
def test_all_shards_are_reported_when_one_fails(tmp_path: Path, shards: tuple[str, ...]) -> None:
    done = run(tmp_path, *shards)
    assert done.returncode == 1
    for target in " ".join(shards).split():
        assert f"this is {target}\n" in done.stdout
    outcomes = {line.rpartition("   ")[2]: line.split()[0] for line in done.stdout.splitlines()[-2:]}
    assert outcomes == {shard: "FAILED" if "bad" in shard else "passed" for shard in shards}


def test_no_more_shards_run_than_may_run_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, "--at-once", "2", "first", "second", "third", "fourth")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 shards, 2 at once" in done.stdout
    assert done.stdout.index("this is third") < done.stdout.index("this is fourth")


def test_the_next_shard_begins_when_one_has_ended(tmp_path: Path) -> None:
    """The first one waits for the second one, which cannot begin beside it."""
    second = tmp_path / "make-second"
    with pytest.raises(subprocess.TimeoutExpired):
        run(tmp_path, "--at-once", "1", "first", "second", timeout=2)
    assert not second.exists()
    second.touch()  # lets the first one end, which outlived its shard
