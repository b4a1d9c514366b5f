"""Generates tests/evidence/mistakes.md, which shows the error messages of common mistakes.

    python -m tests.mistakes --write      # regenerate the page, which takes a minute

``tests/integration/test_mistakes.py`` compares the page with the current output.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.integration.sessions import SparkSessions
from tests.shards.brokers import new_kafka
from tests.shards.jvm import start_quickly
from tests.shards.python import import_quickly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark_kafka_direct.broker import EmbeddedKafka

PAGE: Final = Path(__file__).parent / "evidence" / "mistakes.md"
TOPIC: Final = "flights"
TLS: Final = "SASL_SSL"

_HEAD: Final = """# Error messages of common mistakes

`python -m tests.mistakes --write` generates this page by making each mistake, and a test checks that it is up to date.
Each section shows the relevant options, and the last lines that Python prints, from the name of Spark's exception on.
Ids, ports and times are replaced.

`error_of` returns the [original error of this package](../../docs/structured-streaming.md#which-error-it-was).

If a section has one message, it is the same for batches, streams and Spark Connect. With Spark Connect, the
exception's class is in `pyspark.errors.exceptions.connect`, and the server's stack trace follows the message. To omit
the stack trace, call `spark.conf.set("spark.sql.connect.serverStacktrace.enabled", "false")`.
"""
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SECONDS: Final = 600
_RECORDS: Final = 5
_WAYS: Final = [
    ("plain", "batch", "A batch"),
    ("connect", "batch", "A batch over Spark Connect"),
    ("plain", "stream", "A stream"),
    ("connect", "stream", "A stream over Spark Connect"),
]


@dataclass(frozen=True)
class Mistake:
    """A mistake of a user.

    Attributes:
        title: What is wrong.
        options: The options that the page shows. ``BROKER`` and ``TLS-BROKER`` stand for servers.
        writes: Whether it is a mistake of a write.
        format: The format of the data source.
        hidden: Further options, which shorten timeouts or provide the CA.
    """

    title: str
    options: Mapping[str, str]
    writes: bool = False
    format: str = "kafka-direct"
    hidden: Mapping[str, str] = field(default_factory=dict)


_AT: Final = {"kafka.bootstrap.servers": "BROKER"}
_READ: Final = {**_AT, "subscribe": TOPIC}
_SOON: Final = {"kafka.default.api.timeout.ms": "2000"}

MISTAKES: Final = [
    Mistake("No servers", {"subscribe": TOPIC}),
    Mistake("No broker at this address", {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": TOPIC}, hidden=_SOON),
    Mistake("A topic's name is misspelt", {**_AT, "subscribe": "flihgts"}),
    Mistake("An option's name is misspelt", {**_READ, "startingOffset": "earliest"}),
    Mistake("An option's name with underscores", {"kafka_bootstrap_servers": "BROKER", "subscribe": TOPIC}),
    Mistake("A list of topics without commas", {**_AT, "subscribe": "flights orders"}),
    Mistake(
        "The path of a schema instead of its text",
        {**_READ, "valueFormat": "avro", "valueSchema": "schemas/flight.avsc"},
    ),
    Mistake("Two options that select topics", {**_READ, "assign": '{"flights":[0]}'}),
    Mistake("Offsets that are not JSON", {**_READ, "startingOffsets": '{"flights":{"0":5}'}),
    Mistake("Offsets outside the log", {**_READ, "startingOffsets": '{"flights":{"0":100}}'}),
    Mistake("An unsupported setting of Kafka's consumer", {**_READ, "kafka.auto.offset.reset": "latest"}),
    Mistake("A port that uses TLS", {"kafka.bootstrap.servers": "TLS-BROKER", "subscribe": TOPIC}, hidden=_SOON),
    Mistake(
        "A wrong password",
        {
            "kafka.bootstrap.servers": "TLS-BROKER",
            "subscribe": TOPIC,
            "kafka.security.protocol": TLS,
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{_PLAIN} required username="alice" password="...";',
        },
        hidden={"kafka.ssl.truststore.location": "CA"},
    ),
    Mistake("A write without a topic", _AT, writes=True),
    Mistake("A write to a missing topic", {**_AT, "topic": "flihgts"}, writes=True, hidden=_SOON),
    Mistake("The name of Spark's own source, without its jar", _READ, format="kafka"),
]


class Bench:
    """A broker, and one Spark application with a session of each kind.

    Args:
        kafka: A broker with a listener ``SASL_SSL``, and without a topic ``flights``.
        plain: A session.
        remote: A session over Spark Connect.
        folder: The folder for checkpoints.

    Attributes:
        kafka: The broker.
        sessions: The sessions, ``plain`` and ``connect``.
    """

    def __init__(self, kafka: EmbeddedKafka, plain: Any, remote: Any, folder: Path) -> None:
        self.kafka = kafka
        self.sessions = {"plain": plain, "connect": remote}
        self._folder = folder
        _fill(kafka)
        for session in self.sessions.values():
            # Spark looks for data sources at the first use. A second thread does not wait for that and finds none.
            reader = session.read.format("kafka-direct").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            assert reader.option("subscribe", TOPIC).load().count() == _RECORDS

    def page(self) -> str:
        """Make all mistakes, and return the page with what is printed."""
        runs: dict[tuple[str, str, str], Callable[[], str]] = {}
        for mistake in MISTAKES:
            for kind, session in self.sessions.items():
                runs[mistake.title, kind, "batch"] = partial(self._said, self._batch, mistake, session)
                runs[mistake.title, kind, "stream"] = partial(self._said, self._stream, mistake, session)
        # Spark's writers look for data sources in the active session, which a new thread does not have.
        writing = {mistake.title for mistake in MISTAKES if mistake.writes}
        said = {name: run() for name, run in runs.items() if name[0] in writing}
        reading = {name: run for name, run in runs.items() if name not in said}
        with ThreadPoolExecutor(4) as pool:
            said |= zip(reading, pool.map(lambda run: run(), reading.values()), strict=True)
        text = _HEAD
        for mistake in MISTAKES:
            text += f"\n## {mistake.title}\n\n{_shown(mistake)}\n"
            shown: set[str] = set()
            for kind, way, what in _WAYS:
                printed = said[mistake.title, kind, way]
                if printed not in shown:
                    text += f"\n{what}:\n\n```text\n{printed}\n```\n"
                shown.add(printed)
        return text

    def _said(self, run: Callable[[Mistake, Any], object], mistake: Mistake, session: Any) -> str:
        try:
            run(mistake, session)
        except Exception as error:
            return self._normal(f"{type(error).__name__}: {error}")
        raise AssertionError(f"{mistake.title}: no error")

    def _batch(self, mistake: Mistake, session: Any) -> None:
        if mistake.writes:
            frame = session.range(1).selectExpr("cast(id as string) value")
            frame.write.format(mistake.format).mode("append").options(**self._options(mistake)).save()
        else:
            session.read.format(mistake.format).options(**self._options(mistake)).load().collect()

    def _stream(self, mistake: Mistake, session: Any) -> None:
        if mistake.writes:
            rows = session.readStream.format("rate").load().selectExpr("cast(value as string) value")
            writer = rows.writeStream.format(mistake.format).options(**self._options(mistake))
        else:
            rows = session.readStream.format(mistake.format).options(**self._options(mistake)).load()
            writer = rows.writeStream.format("noop")
        query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=self._folder)).start()
        try:
            assert query.awaitTermination(_SECONDS), f"{mistake.title}: no error in {_SECONDS} s"
        finally:
            query.stop()

    def _options(self, mistake: Mistake) -> dict[str, str]:
        stands_for = {
            "BROKER": self.kafka.bootstrap_servers,
            "TLS-BROKER": self.kafka.listener(TLS),
            "CA": str(self.kafka.certificates.ca),
        }
        return {name: stands_for.get(text, text) for name, text in {**mistake.options, **mistake.hidden}.items()}

    def _normal(self, text: str) -> str:
        """Return the text without parts that vary between runs, and without what Spark appends to the message."""
        text = re.split(r"\n\nJVM stacktrace:|\n=== Streaming Query ===", text)[0]
        for place, port in ((self.kafka.bootstrap_servers, 9092), (self.kafka.listener(TLS), 9093)):
            text = text.replace(place, f"broker:{port}")
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "...", text)
        text = re.sub(r"\nTried \d+ times in \d+ s", "\nTried 5 times in 2 s", text)
        return "\n".join(line.rstrip() for line in text.strip().splitlines())


@contextmanager
def connected(make_spark: SparkSessions) -> Iterator[tuple[Any, Any]]:
    """Yield a session, and one over Spark Connect whose server is in the same JVM."""
    import socket

    from pyspark.sql.connect.session import SparkSession as RemoteSession

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    plain = make_spark(
        {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
        }
    )
    remote = RemoteSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    try:
        yield plain, remote
    finally:
        remote.stop()


def _fill(kafka: EmbeddedKafka) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(600)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(_RECORDS):
        producer.produce(TOPIC, str(number).encode())
    assert producer.flush(300) == 0


def _shown(mistake: Mistake) -> str:
    calls = [f'.format("{mistake.format}")'] + [
        f".option({_quoted(name)}, {_quoted(text)})" for name, text in mistake.options.items()
    ]
    return "```text\n" + "\n".join(calls) + "\n```"


def _quoted(text: str) -> str:
    text = {"BROKER": "broker:9092", "TLS-BROKER": "broker:9093"}.get(text, text)
    return f"'{text}'" if '"' in text else f'"{text}"'


def main() -> None:
    """Generate the page; print it, or write it with ``--write``."""
    parser = argparse.ArgumentParser(description="Show the error messages of common mistakes.")
    parser.add_argument("--write", action="store_true", help=f"write it to {PAGE.name}")
    write = parser.parse_args().write
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    start_quickly()
    import_quickly()
    with tempfile.TemporaryDirectory() as folder, new_kafka(security=[TLS]) as kafka:
        sessions = SparkSessions(Path(folder))
        with connected(sessions) as (plain, remote):
            page = Bench(kafka, plain, remote, Path(folder)).page()
        sessions.stop_jvm()
    if write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
