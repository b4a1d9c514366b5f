"""Settings that several processes share in a compacted topic, as a table without a database.

    python examples/settings_table.py [HOST:PORT]

It starts a local Kafka broker, or uses the cluster at HOST:PORT. A process opens the table and changes
settings; another process follows the changes. Both get the same contents, and so does a table that is opened later.
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


def main(external: str | None = None) -> int:
    """Run the example; return 1 if the contents of the processes differ."""
    steps = Steps(4)
    topic = f"settings-{uuid.uuid4().hex[:8]}"
    with EmbeddedKafka(external=external) as kafka:
        params = {"bootstrap.servers": kafka.bootstrap_servers}
        with steps.step("Opening the table, which creates its topic"):
            table = KafkaTable(topic, params, create={"partitions": 1, "replication_factor": 1})
            table.start()
        with steps.step("Starting a process that follows the table"):
            follower = _start_follower(kafka.bootstrap_servers, topic)
        with steps.step(f"Writing settings of {JOBS:,} jobs, changing some and deleting others"):
            for number in range(JOBS):
                table.put(_name(number), json.dumps({"rate": 100}).encode())
            for number in range(0, JOBS, 2):
                table.put(_name(number), json.dumps({"rate": 200}).encode())
            for number in range(0, JOBS, 5):
                table.delete(_name(number))
            table.put(b"done", b"{}")
            table.read_to_end().result(60)  # wait until all changes are written and read back
            writer_summary = summary(table)
            steps.say(writer_summary)
        with steps.step("Comparing the other process and a table that is opened now"):
            follower_summary = follower.communicate(timeout=60)[0].strip()
            with KafkaTable(topic, params, read_only=True) as late:
                late_summary = summary(late)
            steps.say(f"{follower_summary}\n{late_summary}")
        table.stop()
    same = writer_summary == follower_summary == late_summary
    print(f"\nAll equal: {'yes' if same else 'NO'}")
    return 0 if same else 1


def follow(servers: str, topic: str) -> None:
    """Follow the table until the writer is done, and print a summary of it."""
    with KafkaTable(topic, {"bootstrap.servers": servers}, read_only=True) as table:
        print("following", flush=True)
        while b"done" not in table:
            table.read_to_end().result(60)
        print(summary(table))


def summary(table: KafkaTable[bytes, bytes]) -> str:
    """Return the number of jobs with each rate."""
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
        sys.exit(main(*sys.argv[1:]))
