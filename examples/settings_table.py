"""Settings that several processes share, in a compacted topic: a table without a database.

    python examples/settings_table.py

It starts a Kafka of its own, or uses the one that KAFKA_BOOTSTRAP_SERVERS names. A process opens the table and changes
settings; another one follows them. Both come to the same, and so does a table that is opened afterwards.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

from _steps import Steps
from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.log import KafkaTable

JOBS = 1_000


def main() -> int:
    """Run the example; return 1 if the processes do not agree."""
    steps = Steps(4)
    topic = f"settings-{uuid.uuid4().hex[:8]}"
    with EmbeddedKafka() as kafka:
        params = {"bootstrap.servers": kafka.bootstrap_servers}
        with steps.step("Opening the table, which creates its topic"):
            table = KafkaTable(topic, params, create={"partitions": 3, "replication_factor": 1})
            table.start()
        with steps.step("Starting a process that follows"):
            follower = _start_follower(kafka.bootstrap_servers, topic)
        with steps.step(f"Writing settings of {JOBS:,} jobs, changing some and deleting others"):
            for number in range(JOBS):
                table.put(_name(number), json.dumps({"rate": 100}).encode())
            for number in range(0, JOBS, 2):
                table.put(_name(number), json.dumps({"rate": 200}).encode())
            for number in range(0, JOBS, 5):
                table.delete(_name(number))
            table.put(b"done", b"{}")
            table.read_to_end().result(60)  # what was sent is written, and read back
            here = summary(table)
            steps.say(here)
        with steps.step("What the other process has, and a table that is opened now"):
            there = follower.communicate(timeout=60)[0].strip()
            with KafkaTable(topic, params, read_only=True) as late:
                later = summary(late)
            steps.say(f"{there}\n{later}")
        table.stop()
    same = here == there == later
    print(f"\nAll equal: {'yes' if same else 'NO'}")
    return 0 if same else 1


def follow(servers: str, topic: str) -> None:
    """Follow the table until the writer is done, and print what is in it."""
    with KafkaTable(topic, {"bootstrap.servers": servers}, read_only=True) as table:
        print("following", flush=True)
        while b"done" not in table:
            table.read_to_end().result(60)
        table.read_to_end().result(60)  # of the other partitions, all that was written before
        print(summary(table))


def summary(table: KafkaTable) -> str:
    """Return how many jobs have which rate."""
    jobs = [json.loads(value) for key, value in table.snapshot().items() if key != b"done"]
    rates = {rate: sum(job["rate"] == rate for job in jobs) for rate in (100, 200)}
    return f"{len(jobs)} jobs, {rates[100]} with a rate of 100 and {rates[200]} with 200"


def _start_follower(servers: str, topic: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "follow", servers, topic]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "following\n"
    return process


def _name(number: int) -> bytes:
    return b"job-%d" % number


if __name__ == "__main__":
    if sys.argv[1:2] == ["follow"]:
        follow(*sys.argv[2:])
    else:
        sys.exit(main())
