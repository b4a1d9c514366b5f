"""Follows the page First query in a clean environment with the wheel, then kills and restarts a stream.

    python -m tests.new_user --wheels dist --spark 4.2 --python python3.12

The page's commands run in an empty folder. The path has only Python, Java and shell tools: no compiler and no checkout,
so that ``pip install`` takes the wheel from the folder of wheels instead. ``--port`` is for machines on which port 9092
is in use.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = "kafka-direct"  # the name on the page

_TOOLS: Final = (
    "bash sh env java dirname basename uname hostname id whoami cat sed awk grep expr ps kill sleep nice setsid ls "
    "tr cut head tail sort stat test touch chmod ln mv cp readlink mkdir rmdir rm"
)
_KEPT: Final = ("HOME", "LANG", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "PYSPARK_KAFKA_DIRECT_IVY_SETTINGS", "SSL_CERT_FILE")
_FORBIDDEN: Final = ("cargo", "rustc", "gcc", "cc", "clang")
_MINUTES: Final = 10.0  # for each step, because the machine may be busy


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow the page and return the exit code."""
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all started processes are ended
    shell, python = first_blocks((ROOT / "docs/first-query.md").read_text(encoding="utf-8"))
    shell = shell.replace("pip install '.", "pip install 'pyspark-kafka-direct")
    if asked.port != 9092:
        shell = shell.replace("--sample flights", f"--sample flights --port {asked.port}")
        python = python.replace("localhost:9092", f"localhost:{asked.port}")
    with ExitStack() as stack:
        folder = (
            asked.folder.resolve()
            if asked.folder
            else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="new-user-")))
        )
        user = User(folder, asked.python, asked.wheels, asked.spark)
        user.follow(shell, python, asked.port)
    return 0


def first_blocks(page: str) -> tuple[str, str]:
    """Return the first shell block and the first Python block of a page."""
    shell = re.search(r"(?:^ {4}.*\n)+", page, re.MULTILINE)
    python = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shell is not None
    assert python is not None
    return textwrap.dedent(shell[0]), python[1]


class User:
    """A user who has a folder, Python, Java and a shell."""

    def __init__(self, folder: Path, python: str, wheels: Path, spark: str | None) -> None:
        self._folder = folder
        tools = folder / "tools"
        shutil.rmtree(tools, ignore_errors=True)
        shutil.rmtree(folder / "copies.checkpoint", ignore_errors=True)  # its Kafka cluster no longer exists
        tools.mkdir(parents=True)
        for tool in _TOOLS.split():
            found = shutil.which(tool)
            assert found is not None, f"{tool} is not on this machine"
            (tools / tool).symlink_to(found)
        _script(tools / "python3", f'#!/bin/sh\nexec {shutil.which(python)} "$@"\n')
        wanted = folder / "constraints.txt"
        wanted.write_text(f"pyspark=={spark}.*\n" if spark else "")
        self._environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | {
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            "PATH": str(tools),
            "PIP_FIND_LINKS": f"{wheels.resolve()} {os.environ.get('PIP_FIND_LINKS', '')}".strip(),
            "PIP_CONSTRAINT": str(wanted),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONUNBUFFERED": "1",  # as in a terminal
        }
        for tool in _FORBIDDEN:
            assert shutil.which(tool, path=str(tools)) is None

    def follow(self, shell: str, python: str, port: int) -> None:
        """Follow the page, then kill a stream and restart it."""
        assert not _answers(port), f"Port {port} is taken: --port names another one."
        print(f"$ {shell.strip()}", flush=True)
        with self._running("broker", shell) as broker:
            broker.wait_for(lambda told: "more per second" in told)
            print(self._told(self._activated(_VERSIONS)), flush=True)
            with self._running("paste", self._activated("exec python -i"), python) as paste:
                paste.wait_for(lambda told: len(totals(told)) >= 2)
            tables = totals(paste.told())
            print(paste.first_table(), f"{len(tables)} tables, of {tables} flights", sep="\n", flush=True)
            assert tables[0] >= 10_000
            assert tables[-1] > tables[0]
            self._kill_and_restart(f"localhost:{port}")

    def _kill_and_restart(self, servers: str) -> None:
        shutil.copy(Path(__file__).parent / "copies.py", self._folder)
        self._told(self._activated(_NEW_TOPIC.format(servers=servers)))
        program = self._activated(f"exec python copies.py {servers} {self._folder} ")
        with self._running("killed", program + "go") as killed:
            killed.wait_for(lambda told: "batch 2" in told)
            killed.signal(signal.SIGKILL)
        print(f"Killed after {killed.told().strip().splitlines()[-1]}; started again.", flush=True)
        self._told(program + "finish")
        told = self._told(program + "check")
        print(told, flush=True)
        assert "each copied once" in told

    def _activated(self, command: str) -> str:
        return f". {ENVIRONMENT}/bin/activate\n{command}"

    def _told(self, script: str) -> str:
        with self._running("command", script) as command:
            command.wait_for_end()
        return command.told().strip()

    @contextmanager
    def _running(self, name: str, script: str, typed: str = "") -> Iterator[Program]:
        program = Program(self._folder / f"{name}.out", f"set -e\n{script}", typed, self._folder, self._environment)
        try:
            yield program
        except BaseException:
            print(f"--- {name} said:", program.everything()[-6000:], sep="\n", file=sys.stderr)
            raise
        finally:
            program.end()


class Program:
    """A script that a shell runs, and all processes that it starts."""

    def __init__(self, output: Path, script: str, typed: str, folder: Path, environment: dict[str, str]) -> None:
        self._output, self._errors = output, output.with_suffix(".err")
        with output.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(typed.encode())
        self._process.stdin.flush()

    def told(self) -> str:
        """Return its standard output."""
        return self._output.read_text(errors="replace")

    def everything(self) -> str:
        """Return its standard output and standard error."""
        return self.told() + self._errors.read_text(errors="replace")

    def first_table(self) -> str:
        """Return the first table that Spark printed."""
        found = re.search(r"(?:^[+|].*\n)+", self.told(), re.MULTILINE)
        return found[0] if found else ""

    def wait_for(self, there: Callable[[str], bool]) -> None:
        """Wait until the output fulfils a condition."""
        self._wait(lambda: there(self.everything()), can_end=False)

    def wait_for_end(self) -> None:
        """Wait until it has ended successfully."""
        self._wait(lambda: self._process.poll() is not None, can_end=True)
        assert self._process.returncode == 0, f"exit code {self._process.returncode}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the script and all processes that it started."""
        os.killpg(self._process.pid, number)

    def end(self) -> None:
        """End it with Ctrl-D, SIGINT, SIGTERM or SIGKILL, whichever succeeds first."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(timeout=30)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue

    def _wait(self, there: Callable[[], bool], *, can_end: bool) -> None:
        deadline = time.monotonic() + 60 * _MINUTES
        while not there():
            assert time.monotonic() < deadline, "it takes too long"
            assert "Traceback (most recent call last)" not in self.everything(), "it failed"
            assert can_end or self._process.poll() is None, f"it ended with exit code {self._process.returncode}"
            time.sleep(0.5)


_NEW_TOPIC: Final = """python - <<'END'
from pyspark_kafka_direct.cli.topic_arguments import create_topics, parse_topics
create_topics("{servers}", parse_topics(["copies:3"]))
END"""

_VERSIONS: Final = """python - <<'END'
import platform, pyspark, pyspark_kafka_direct.records
print("Python", platform.python_version(), "Spark", pyspark.__version__)
print(pyspark_kafka_direct.__file__)
END"""


def totals(told: str) -> list[int]:
    """Return the number of flights in each table of carriers."""
    tables = re.findall(r"\|carrier\|flights\|.*\n\+.*\n((?:\|.*\n)+)\+", told)
    return [sum(int(row.split("|")[2]) for row in table.splitlines()) for table in tables]


def _answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("localhost", port)) == 0


def _script(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.new_user", description="Follow the page First query.")
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", help="folder with the wheel (default: dist)")
    parser.add_argument("--spark", help="the PySpark version to install, such as 4.2 (default: the newest supported)")
    parser.add_argument("--python", default=sys.executable, help="the user's Python (default: this one)")
    parser.add_argument("--folder", type=Path, help="the working folder; reuses the installation of an earlier run")
    parser.add_argument("--port", type=int, default=9092, help="port of Kafka (default: the page's, 9092)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
