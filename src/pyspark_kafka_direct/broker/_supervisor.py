"""A program: run one broker and make sure that it never outlives the process that wanted it.

    python _supervisor.py FOLDER COMMAND...

Its standard input is a pipe from that process. ``stop`` on a line asks the broker to shut down, ``kill`` kills it. When
the pipe ends or the parent changes, the parent is gone (even by ``kill -9``): the broker is killed and FOLDER, the
cluster's temporary folder, is removed. On Linux the broker also dies with this program. The broker's process id is
printed on standard output; the exit code is the broker's (128 and the signal's number where a signal ended it).

Being the broker's parent, this program can never signal a process that merely got the broker's old id. It has one
thread only, which makes ``preexec_fn`` safe (and ``PR_SET_PDEATHSIG`` right, which counts threads, not processes).
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

PARENT_CHECK_SECONDS = 1.0  # a forked sibling may hold the pipe open; then only the parent's id tells


def main(folder: str, command: list[str]) -> int:
    """Run ``command`` until it ends, and return its exit code."""
    parent = os.getppid()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    prepare = _die_with_parent if sys.platform == "linux" else None
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=prepare)
    print(child.pid, flush=True)
    commands = sys.stdin.fileno()
    while child.poll() is None:
        ready, _, _ = select.select([commands, woken], [], [], PARENT_CHECK_SECONDS)
        if woken in ready:
            os.read(woken, 64)
        if os.getppid() != parent:
            return _abandoned(child, folder)
        if commands in ready:
            told = os.read(commands, 64)
            if not told:
                return _abandoned(child, folder)
            child.send_signal(signal.SIGKILL if b"kill" in told else signal.SIGTERM)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _abandoned(child: subprocess.Popen[bytes], folder: str) -> int:
    child.kill()
    child.wait()
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
