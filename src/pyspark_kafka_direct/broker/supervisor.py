"""A program that runs one broker and ends it when the process that started it exits.

    python supervisor.py FOLDER COMMAND...

Its standard input is a pipe from that process. The line ``stop`` shuts the broker down, ``kill`` kills it. When the
pipe is closed or the parent changes, the parent has exited (perhaps by ``kill -9``): the broker is killed and FOLDER,
the cluster's temporary folder, is removed. On Linux the broker also dies with this program. The broker's process id is
printed to standard output; the exit code is the broker's (128 plus the signal number if a signal ended it).

As the broker's parent, this program cannot signal another process that reuses the broker's id. It has a single thread,
which makes ``preexec_fn`` safe (and ``PR_SET_PDEATHSIG`` correct, which applies to threads, not processes).
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

# A process forked from the parent may keep the pipe open. Then only a changed parent id shows that the parent exited.
PARENT_CHECK_INTERVAL_S = 1.0


def main(folder: str, command: list[str]) -> int:
    """Run ``command`` until it ends, and return its exit code."""
    parent = os.getppid()
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only with a handler, the end of the broker writes to the pipe
    before_exec = _die_with_parent if sys.platform == "linux" else None
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=before_exec)
    print(child.pid, flush=True)
    commands = sys.stdin.fileno()
    while child.poll() is None:
        ready, _, _ = select.select([commands, wakeup_read], [], [], PARENT_CHECK_INTERVAL_S)
        if wakeup_read in ready:
            os.read(wakeup_read, 64)
        if os.getppid() != parent:
            return _kill_orphan(child, folder)
        if commands in ready:
            received = os.read(commands, 64)
            if not received:  # the pipe is closed
                return _kill_orphan(child, folder)
            child.send_signal(signal.SIGKILL if b"kill" in received else signal.SIGTERM)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _kill_orphan(child: subprocess.Popen[bytes], folder: str) -> int:
    child.kill()
    child.wait()
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
