"""scripts/prepare installs what pyproject.toml requires, with old versions of bash too, and leaves nothing behind.

The set-up of ``make test`` leaves nothing behind, either.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]

JAVA = """#!/bin/sh
[ "$1" = -version ] && { echo 'openjdk version "17.0.1"' >&2; exit; }
echo "$$" > "$STARTED"
exec cat  # ends with its standard input, as the JVM of a gateway
"""
PYTHON = """#!/bin/sh
if [ "$2" = pip ]; then
    echo "Collecting $4"
    case "$*" in *" pip>="*) exit 1 ;; esac  # a mirror that has no newer pip
    case "$*" in *"$REFUSED"*) echo "no matching distribution"; exit 1 ;; esac
    printf '%s\\n' "$@" >> "$INSTALLED"
    exit
fi
exec "$REAL_PYTHON" "$@"
"""

TOOL = """#!/bin/sh
echo "${0##*/} 1.95.0"
"""

# Takes the place of the two runs of make that the set-up of ``make test`` starts.
MAKE = """#!/bin/sh
case $2 in
    classes) echo $$ > "$0-classes"; exec sleep 100 ;;
    newest) until [ -e "$0-end" ]; do sleep 0.05; done; eval "$END" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with another pip, another Java and another Rust."""
    for name in ("pyproject.toml", "scripts", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name, content in (
        ("java/bin/java", JAVA),
        (".venv/bin/python", PYTHON),
        ("toolchain/cargo", TOOL),
        ("toolchain/rustc", TOOL),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755)
    return tmp_path


def start(folder: Path, **environment: str) -> subprocess.Popen[str]:
    variables = {
        "PATH": f"{folder / 'toolchain'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "JAVA_HOME": str(folder / "java"),
        "PYTHON": sys.executable,
        "REAL_PYTHON": sys.executable,
        "INSTALLED": str(folder / "installed"),
        "STARTED": str(folder / "started"),
        "REFUSED": "nothing",
    }
    command = ["bash", "scripts/prepare", ".venv", "dev"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | variables | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def await_file(path: Path) -> str:
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, path
        time.sleep(0.05)
    return path.read_text()


@pytest.mark.parametrize(
    ("scripts", "reason"),
    [
        ({}, "cargo is not installed"),
        ({"cargo": TOOL, "rustc": "#!/bin/sh\nexit 1\n"}, "rustc --version fails"),
        ({"cargo": "#!/bin/sh\necho cargo 1.65.0\n", "rustc": TOOL}, "cargo is version 1.65"),
    ],
    ids=["missing", "broken", "too-old"],
)
def test_a_toolchain_that_cannot_build_is_named_in_the_first_line(
    folder: Path, scripts: dict[str, str], reason: str
) -> None:
    tools = folder / "tools"
    tools.mkdir()
    for name in ("bash", "basename"):
        (tools / name).symlink_to(str(shutil.which(name)))
    for name, content in scripts.items():
        (tools / name).write_text(content)
        (tools / name).chmod(0o755)
    with start(folder, PATH=str(tools)) as script:
        output, _ = script.communicate(timeout=300)
    oldest = re.search(r'rust-version = "(.+)"', (ROOT / "rust/Cargo.toml").read_text())
    assert script.returncode == 1
    assert oldest is not None
    assert output == (
        f"Rust {oldest[1]} or newer is needed (the native kernel is built with it), and {reason}. Install a toolchain "
        "(https://rustup.rs) and a C compiler.\n"
    )


def test_an_interruption_ends_the_download_of_kafka(folder: Path) -> None:
    without_mapfile = folder / "bash-3.2"
    without_mapfile.write_text("enable -n mapfile readarray\n")
    with start(folder, BASH_ENV=str(without_mapfile)) as script:
        java = psutil.Process(int(await_file(folder / "started")))
        script.send_signal(signal.SIGTERM)
        script.wait(120)
        java.wait(120)
        assert script.stdout is not None
        script.stdout.read()  # ends with the last process
    assert all(name.endswith(".lock") for name in os.listdir(folder / "cache" / "pyspark-kafka-direct"))
    installed = (folder / "installed").read_text()
    for requirement in ("setuptools>=", "pyspark==", "pandas>=", "pyarrow>="):  # build, pinned, package, extra
        assert f"\n{requirement}" in installed


def test_pip_is_seen_only_if_it_fails(folder: Path) -> None:
    with start(folder, REFUSED="--editable") as script:
        output, _ = script.communicate(timeout=300)
    assert script.returncode == 1
    before, after = output.split("  pyspark-kafka-direct ... failed")
    assert [line for line in before.splitlines() if line.startswith("  libraries ... ")]
    assert "Collecting" not in before
    assert "no matching distribution" in after
    assert f"This is the end of {folder}/build/set-up-of-.venv.log." in after


@pytest.mark.parametrize(("end", "error"), [("exit 3", "Error 3"), ("kill -s INT 0", "")])
def test_an_environment_that_cannot_be_created_ends_the_other_set_up_too(tmp_path: Path, end: str, error: str) -> None:
    """The second command is an interruption with Ctrl+C."""
    make, stamp = tmp_path / "make", tmp_path / "stamp"
    make.write_text(MAKE)
    make.chmod(0o755)
    variables = {"MAKE": str(make), "BIN": str(tmp_path), "VENV": str(stamp), "CLASSES": "classes", "NEWEST": "newest"}
    stamp.touch()
    with subprocess.Popen(
        ["make", "--old-file", stamp, "test", *(f"{name}={value}" for name, value in variables.items())],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "MAKEFLAGS"} | {"END": end},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as started:
        classes = psutil.Process(int(await_file(tmp_path / "make-classes")))
        try:
            (tmp_path / "make-end").touch()
            assert started.wait(120) != 0
            classes.wait(120)
        finally:
            if classes.is_running():
                classes.kill()
        assert started.stdout is not None
        output = started.stdout.read()
    assert error in output
    assert str(tmp_path / "python") not in output, "the shards are not started"
