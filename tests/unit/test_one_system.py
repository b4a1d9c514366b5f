"""Clocks, pauses, chance, sockets and threads come from ``wire/system.py`` alone: so a simulation can replace them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "pyspark_kafka_direct"
ROOMS = ("wire", "reading", "writing", "planning", "runtime", "structured", "direct", "continuous", "log")
THE_ONE = "wire/system.py"

MODULES = frozenset({"time", "random", "secrets", "select", "selectors", "sched", "asyncio", "multiprocessing"})
"""What may not be imported at all."""

CALLS = {
    "socket": frozenset({"socket", "socketpair", "create_connection", "create_server", "getaddrinfo", "gethostbyname"}),
    "threading": frozenset({"Thread", "Timer", "Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"}),
    "datetime": frozenset({"now", "utcnow", "today"}),
    "date": frozenset({"today"}),
    "os": frozenset({"urandom", "getrandom"}),
    "uuid": frozenset({"uuid1", "uuid4"}),
    "subprocess": frozenset({"run", "Popen", "check_output", "check_call"}),
    "futures": frozenset({"ThreadPoolExecutor", "ProcessPoolExecutor"}),
    "queue": frozenset({"Queue", "SimpleQueue"}),
    "request": frozenset({"urlopen", "urlretrieve"}),
    "client": frozenset({"HTTPConnection", "HTTPSConnection"}),
}
"""What may not be called, by the last name of what has it. Classes may be named, as types and in except clauses."""

ALLOWED = {
    "continuous/_epoch_writer.py": {"threading.Condition"},  # waits for it through the system
    "continuous/_query_state.py": {"threading.Condition"},  # waits for it through the system
    "continuous/_spark_job.py": {"threading.Condition"},  # waits for it through the system
    "continuous/_watch.py": {"threading.Condition"},  # waits for it through the system
    "direct/_stopping.py": {"threading.Condition"},  # waits for it through the system
    "direct/stream.py": {"uuid.uuid4"},  # the id of a stream in the checkpoint: unlike any other, simulated or not
    "log/based_log.py": {"threading.Condition"},  # waits for it through the system
    "log/table.py": {"wait_for"},  # the log's own, which waits through the system
    "runtime/commit_choice.py": {"uuid.uuid4"},  # one planner's name among the processes of a machine
    "runtime/committer.py": {"threading.Condition"},  # waits for it through the system
    "writing/outbox.py": {"threading.Condition"},  # waits for it through the system
    "runtime/stop_at_signal.py": {"threading.Thread"},  # one that the interpreter waits for before it ends
    "runtime/shared_folder.py": {"uuid.uuid4"},  # the name of a file that no other process writes
}
"""Reviewed exceptions."""


def found(source: str) -> set[str]:
    """What of the machine a file uses by itself."""
    uses: set[str] = set()
    forbidden = {name: f"{owner}.{name}" for owner, names in CALLS.items() for name in names}
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            uses |= {alias.name for alias in node.names if alias.name.split(".")[0] in MODULES}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            if node.module.split(".")[0] in MODULES:
                uses.add(node.module)
            if not node.module.startswith("pyspark_kafka_direct"):
                imported |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                last = (
                    owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
                )
                if name in CALLS.get(last, ()):
                    uses.add(f"{last}.{name}")
                elif name == "acquire" and (node.args or node.keywords) and not last.endswith("system"):
                    uses.add("acquire with a timeout")
                elif name == "wait_for":
                    uses.add("wait_for")
                elif (last, name) == ("Deadline", "after") and not any(word.arg == "system" for word in node.keywords):
                    uses.add("Deadline.after without a system")
            case ast.Call(func=ast.Name(id=name)) if name in imported and name in forbidden:
                uses.add(forbidden[name])
    return uses


def files() -> list[Path]:
    return sorted(file for room in ROOMS for file in (SOURCE / room).rglob("*.py"))


@pytest.mark.parametrize("file", files(), ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_the_machine_is_asked_in_one_place_only(file: Path) -> None:
    name = file.relative_to(SOURCE).as_posix()
    uses = found(file.read_text(encoding="utf-8"))
    if name == THE_ONE:
        assert {"time", "random", "select", "socket.socket", "socket.getaddrinfo", "threading.Thread"} <= uses
        assert "socket.create_server" in uses
    else:
        assert uses == ALLOWED.get(name, set())


def test_every_exception_is_one_of_a_file_that_is_there() -> None:
    assert ALLOWED.keys() <= {file.relative_to(SOURCE).as_posix() for file in files()}


@pytest.mark.parametrize(
    ("line", "use"),
    [
        ("import time", "time"),
        ("def f():\n    from time import monotonic", "time"),
        ("import random as r", "random"),
        ("import socket\nsocket.create_connection(a)", "socket.create_connection"),
        ("import socket\nsock = socket.socket()", "socket.socket"),
        ("import socket\nsocket.create_server(a)", "socket.create_server"),
        ("from socket import socket\nsocket()", "socket.socket"),
        ("import threading\nthreading.Thread(target=f).start()", "threading.Thread"),
        ("import threading\nthreading.Event().wait(3)", "threading.Event"),
        ("from threading import Timer\nTimer(3, f)", "threading.Timer"),
        ("from datetime import datetime\ndatetime.now()", "datetime.now"),
        ("import datetime\ndatetime.datetime.now()", "datetime.now"),
        ("self._lock.acquire(timeout=3)", "acquire with a timeout"),
        ("self._changed.wait_for(f, 3)", "wait_for"),
        ("Deadline.after(3)", "Deadline.after without a system"),
        ("import urllib.request\nurllib.request.urlopen(url)", "request.urlopen"),
        ("import os\nos.urandom(8)", "os.urandom"),
    ],
)
def test_another_place_would_be_seen(line: str, use: str) -> None:
    assert found(line) == {use}


@pytest.mark.parametrize(
    "line",
    [
        "import socket\ndef f(sock: socket.socket) -> None:\n    sock.settimeout(socket.AF_INET)",
        "import socket\ntry:\n    f()\nexcept socket.gaierror:\n    pass",
        "import threading\nlock = threading.Lock()\nlock.acquire()",
        "from uuid import UUID\nUUID(int=0)",
        "system.monotonic()\nself._system.sleep(1)\nself._system.acquire(lock, 3)\nself._looks.now(3)",
        "from datetime import datetime\ndatetime.fromisoformat(text)",
        "Deadline.after(3, system=self._system)",
    ],
)
def test_types_locks_and_the_system_itself_may_be_used(line: str) -> None:
    assert found(line) == set()
