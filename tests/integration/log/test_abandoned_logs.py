"""Tables and logs that are not stopped, and records that are not acknowledged when the process ends."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.log.log_helpers import Recorder, params, wait_for_no_thread
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

if TYPE_CHECKING:
    from tests.integration.workbench import Workbench

_SCRIPT = """
import os, sys, threading
from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable
servers, topic, how = sys.argv[1:]
params = {"bootstrap.servers": servers}
written = threading.Event()

def write(record):
    written.set()
    for _ in range(20):
        print("x" * 1_000_000)
    print("written", file=sys.stderr)

if how in ("log", "write"):
    log = KafkaBasedLog(topic, params, on_record=print if how == "log" else write)
else:
    log = KafkaTable(topic, params)
log.start()
send = log.put if isinstance(log, KafkaTable) else log.send
for number in range(1 if how == "write" else 20_000):
    send(b"%d" % number, bytes(100))
if how == "fork":
    log.stop()
    table = KafkaTable(topic, params)
    table.start()
    if (child := os.fork()) == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    table.stop()
elif how == "flush":
    log.flush()
elif how == "stop":
    log.stop()
elif how == "write":
    written.wait()
"""


def run(bench: Workbench, how: str, *flags: str) -> str:
    """Run the script, and return what it has written to standard error."""
    topic = bench.make_topic(cleanup_policy="compact")
    command = [sys.executable, *flags, "-c", _SCRIPT, bench.bootstrap_servers, topic, how]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert process.returncode == 0, process.stderr
    return process.stderr.replace(topic, "TOPIC")


@pytest.mark.parametrize("how", ["table", "log"])
def test_records_without_an_acknowledgement_at_the_exit(bench: Workbench, how: str) -> None:
    (line,) = run(bench, how).splitlines()
    assert line.startswith("The process ends although the brokers have not acknowledged ")
    assert line.endswith(
        " records of TOPIC, which may be lost. Call flush() or stop() before, or wait for the futures."
    )


def test_a_callback_that_writes_at_the_exit(bench: Workbench) -> None:
    """The exit waits for it: Python aborts some processes that end while a thread writes to the standard output."""
    assert "written" in run(bench, "write").splitlines()


def test_a_log_that_is_not_stopped_at_the_exit(bench: Workbench) -> None:
    assert "ResourceWarning: The KafkaTable of topic TOPIC was not stopped." in run(bench, "flush", "-X", "dev")
    assert run(bench, "flush") == run(bench, "stop", "-W", "error") == run(bench, "fork", "-W", "error") == ""


@pytest.mark.parametrize("kind", [KafkaTable, KafkaBasedLog])
def test_an_abandoned_log_delivers_its_records_and_ends(
    bench: Workbench, kind: type[KafkaTable[bytes, bytes] | KafkaBasedLog]
) -> None:
    topic = bench.make_topic(cleanup_policy="compact")
    callback: dict[str, Any] = {"on_change": print} if kind is KafkaTable else {"on_record": Recorder()}
    opened: list[Any] = [kind(topic, params(bench.bootstrap_servers), **callback)]
    opened[0].start()
    send = opened[0].put if kind is KafkaTable else opened[0].send
    for number in range(1000):
        send(b"%d" % number, b"1")
    del send

    def abandon() -> None:
        opened.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match=f"The {kind.__name__} of topic {topic} was not stopped"):
        abandon()
    wait_for_no_thread(topic)
    with KafkaTable(topic, params(bench.bootstrap_servers), read_only=True) as reader:
        wait_until(lambda: len(reader) == 1000)
