"""``kafka-direct lag --watch`` in a terminal of 80 columns, with rich and without it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.cli.program import PROGRAM

from pyspark_kafka_direct import write_arrow

if TYPE_CHECKING:
    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

WITHOUT_RICH = f"import sys; sys.modules['rich'] = sys.modules['rich.console'] = None; {PROGRAM}"
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def group(kafka: EmbeddedKafka, make_topic: MakeTopic) -> str:
    """A group that has read two topics: one with more partitions than a terminal has lines."""
    one, many = make_topic(1), make_topic(40)
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    write_arrow(one, pa.table({"value": [b"x"] * 10}), servers)
    rows = {"value": [b"x"] * 7, "partition": pa.array([30] * 7, pa.int32())}
    write_arrow(many, pa.table(rows), servers)
    consumer = Consumer({**servers, "group.id": one})
    committed = [TopicPartition(one, 0, 6), *(TopicPartition(many, number, 0) for number in range(40))]
    consumer.commit(offsets=committed, asynchronous=False)
    consumer.close()
    return one


class Terminal:
    """A program in a terminal of 80 columns and 24 lines."""

    def __init__(self, program: str, *arguments: str, **environment: str) -> None:
        self.text = ""
        self._file, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**inherited, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )
        os.close(terminal)

    def wait_for(self, text: str, times: int) -> None:
        """Read the output until the text has come so often."""
        deadline = time.monotonic() + 300
        while _CONTROL.sub("", self.text).count(text) < times:
            assert time.monotonic() < deadline, self.text
            self.text += os.read(self._file, 1 << 16).decode(errors="replace")

    def interrupt(self) -> int:
        """Send what Ctrl-C sends, and return the exit code."""
        self._process.send_signal(signal.SIGINT)
        try:
            while data := os.read(self._file, 1 << 16):
                self.text += data.decode(errors="replace")
        except OSError:  # the end of a terminal
            pass
        os.close(self._file)
        return self._process.wait(300)


@pytest.mark.parametrize("program", [PROGRAM, WITHOUT_RICH], ids=["with rich", "without rich"])
def test_a_terminal(kafka: EmbeddedKafka, group: str, program: str) -> None:
    arguments = ["lag", group, "--watch", "--interval", "0.3", "-b", kafka.bootstrap_servers]
    terminal = Terminal(program, *arguments)
    terminal.wait_for("more partitions with less lag", 3)
    assert terminal.interrupt() == 130
    assert "Traceback" not in terminal.text
    assert terminal.text.rfind(SHOW_CURSOR) >= terminal.text.rfind(HIDE_CURSOR)
    lines = [_CONTROL.sub("", line).rstrip() for line in re.split(r"\r?\n|\x1b\[H", terminal.text)]
    assert max(map(len, lines)) <= 80
    shown = [line.split() for line in lines if line.startswith(group[:4])]
    assert [line[-3] for line in shown[:3]] == ["7", "4", "0"]  # the lag: worst first


def test_a_pipe_has_no_control_characters(kafka: EmbeddedKafka, group: str) -> None:
    command = [sys.executable, "-c", PROGRAM, "lag", group, "--watch", "--interval", "0.2", "-b"]
    with subprocess.Popen([*command, kafka.bootstrap_servers], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(90)]
        process.kill()
    assert "\x1b" not in "".join(lines)
    assert sum(line.startswith("GROUP") for line in lines) >= 2
