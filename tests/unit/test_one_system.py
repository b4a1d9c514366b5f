"""Clocks, sleeps, random numbers, sockets, threads and locks come from ``client/system.py``, which tests replace."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "pyspark_kafka_direct"
PACKAGES = (
    "client",
    "protocol",
    "payloads",
    "consumer",
    "producer",
    "options",
    "planning",
    "spark",
    "datasource",
    "direct",
    "continuous",
    "log",
)
SYSTEM_MODULE = "client/system.py"

MODULES = frozenset({"time", "random", "secrets", "select", "selectors", "sched", "asyncio", "multiprocessing"})
"""Modules that must not be imported."""

CALLS = {
    "socket": frozenset({"socket", "socketpair", "create_connection", "create_server", "getaddrinfo", "gethostbyname"}),
    "threading": frozenset(
        {
            "Thread",
            "Timer",
            "Event",
            "Lock",
            "RLock",
            "Condition",
            "Semaphore",
            "BoundedSemaphore",
            "Barrier",
            "local",
            "get_ident",
            "get_native_id",
            "current_thread",
            "enumerate",
        }
    ),
    "datetime": frozenset({"now", "utcnow", "today"}),
    "date": frozenset({"today"}),
    "os": frozenset({"urandom", "getrandom"}),
    "uuid": frozenset({"uuid1", "uuid4"}),
    "subprocess": frozenset({"run", "Popen", "check_output", "check_call"}),
    "futures": frozenset({"ThreadPoolExecutor", "ProcessPoolExecutor", "wait", "as_completed"}),
    "queue": frozenset({"Queue", "SimpleQueue"}),
    "request": frozenset({"urlopen", "urlretrieve"}),
    "client": frozenset({"HTTPConnection", "HTTPSConnection"}),
}
"""Forbidden calls, by the last name of their object.

Classes, except those of ``threading``, may be named as types and in except clauses.
"""

# `acquire` of these takes no lock: `System.acquire` waits on the system's clock, the others return a pooled resource.
_ACQUIRES_RESOURCES = ("system", "pool", "idle_producers")

ALLOWED = {
    "direct/checkpointed_stream.py": {"threading.Lock"},  # of the registry: no call of the system is made under it
    "direct/direct_stream.py": {"uuid.uuid4"},  # the id of a stream in its checkpoint, unique even in simulations
    "options/topic_pattern.py": {"time"},  # the CPU time of matching, which no simulation replaces
    "log/kafka_table.py": {"wait_for"},  # the log's own method, which waits through the system
    "spark/commit_offer.py": {"uuid.uuid4"},  # identifies a planner among the processes of a machine
    "spark/stop_at_signal.py": {"threading.Thread"},  # a thread that the interpreter waits for at its exit
}
"""Reviewed exceptions."""


def forbidden_uses(source: str) -> set[str]:
    """Return what a module uses of the machine without the system."""
    uses: set[str] = set()
    forbidden = {name: f"{owner}.{name}" for owner, names in CALLS.items() for name in names}
    imported: set[str] = set()
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:
        if isinstance(node, ast.Import):
            uses |= {alias.name for alias in node.names if alias.name.split(".")[0] in MODULES}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            if node.module.split(".")[0] in MODULES:
                uses.add(node.module)
            if not node.module.startswith("pyspark_kafka_direct"):
                imported |= {alias.asname or alias.name for alias in node.names}
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                last = (
                    owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
                )
                if name in CALLS.get(last, ()):
                    uses.add(f"{last}.{name}")
                elif name == "acquire" and (node.args or node.keywords) and not last.endswith(_ACQUIRES_RESOURCES):
                    uses.add("acquire with a timeout")
                elif name == "wait_for":
                    uses.add("wait_for")
                elif name == "wait" and last.endswith("changed"):
                    uses.add("wait for a condition")
                elif name == "result" and (node.args or node.keywords) and ast.unparse(node) != "super().result(0)":
                    uses.add("wait for a future")
                elif (last, name) == ("Deadline", "after") and not any(word.arg == "system" for word in node.keywords):
                    uses.add("Deadline.after without a system")
            case ast.Attribute(value=ast.Name(id="threading"), attr=name) if name in CALLS["threading"]:
                uses.add(f"threading.{name}")  # also as a default factory
            case ast.Call(func=ast.Name(id=name)) if name in imported and name in forbidden:
                uses.add(forbidden[name])
    return uses


def files() -> list[Path]:
    return sorted(file for package in PACKAGES for file in (SOURCE / package).rglob("*.py"))


@pytest.mark.parametrize("file", files(), ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_only_the_system_module_uses_the_machine(file: Path) -> None:
    name = file.relative_to(SOURCE).as_posix()
    uses = forbidden_uses(file.read_text(encoding="utf-8"))
    if name == SYSTEM_MODULE:
        assert {"time", "random", "select", "socket.socket", "socket.getaddrinfo", "threading.Thread"} <= uses
        assert "socket.create_server" in uses
    else:
        assert uses == ALLOWED.get(name, set())


def test_every_exception_names_an_existing_file() -> None:
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
        ("import threading\nthreading.Lock()", "threading.Lock"),
        ("import threading\nlock = field(default_factory=threading.RLock)", "threading.RLock"),
        ("from threading import Condition\nCondition()", "threading.Condition"),
        ("import threading\nthreading.get_ident()", "threading.get_ident"),
        ("self._changed.wait_for(f, 3)", "wait_for"),
        ("self._changed.wait(3)", "wait for a condition"),
        ("future.result(timeout=3)", "wait for a future"),
        ("from concurrent.futures import wait\nwait([future])", "futures.wait"),
        ("Deadline.after(3)", "Deadline.after without a system"),
        ("import urllib.request\nurllib.request.urlopen(url)", "request.urlopen"),
        ("import os\nos.urandom(8)", "os.urandom"),
    ],
)
def test_forbidden_uses_are_detected(line: str, use: str) -> None:
    assert forbidden_uses(line) == {use}


@pytest.mark.parametrize(
    "line",
    [
        "import socket\ndef f(sock: socket.socket) -> None:\n    sock.settimeout(socket.AF_INET)",
        "import socket\ntry:\n    f()\nexcept socket.gaierror:\n    pass",
        "import threading\nraise threading.ThreadError",
        "lock = self._system.lock()\nlock.acquire()",
        "self._system.wait_for_future(future, 3)\nfuture.result()\nself._system.wait(self._changed, 3)",
        "from uuid import UUID\nUUID(int=0)",
        "system.monotonic()\nself._system.sleep(1)\nself._system.acquire(lock, 3)\nself._looks.now(3)",
        "from datetime import datetime\ndatetime.fromisoformat(text)",
        "Deadline.after(3, system=self._system)",
    ],
)
def test_types_and_the_system_itself_may_be_used(line: str) -> None:
    assert forbidden_uses(line) == set()
