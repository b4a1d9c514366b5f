"""Run Kafka in the foreground: ``python -m pyspark_kafka_direct.broker --sample flights``, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.broker.embedded import DEFAULT_VERSION, EmbeddedKafka
from pyspark_kafka_direct.cli.sample import FLIGHTS, RATE, Flights
from pyspark_kafka_direct.cli.topics import NewTopic, create_topics, parse_topics
from pyspark_kafka_direct.errors import KafkaDirectError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT = 9092

_TICK_S: Final = 0.5

_PASTE: Final = """\
import os, sys
from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers take the python3 of the PATH
spark = SparkSession.builder.getOrCreate()
records = (
    spark.read.format("kafka-direct")
    .option("kafka.bootstrap.servers", "{servers}")
    .option("subscribe", "{topic}")
    .load()
)
records.selectExpr("partition", "offset", "cast(key as string) key", "cast(value as string) value").show(truncate=False)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until interrupted; return the exit code: 1 when a broker could not be started, or ended by itself."""
    asked = parser().parse_args(arguments)
    properties = dict(asked.property)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    try:
        topics = parse_topics(asked.topic)
        if asked.sample and FLIGHTS.name not in [topic.name for topic in topics]:
            topics.insert(0, FLIGHTS)
        with ExitStack() as stack:
            kafka = stack.enter_context(
                EmbeddedKafka(
                    asked.brokers, version=asked.version, port=asked.port, properties=properties, reuse_running=False
                )
            )
            create_topics(kafka.bootstrap_servers, topics)
            sample = stack.enter_context(Flights(kafka.bootstrap_servers)) if asked.sample else None
            if sample is not None:
                sample.write_due()
            print(kafka.bootstrap_servers, flush=True)
            _say(f"Kafka {asked.version} is up; its data is temporary. Ctrl-C stops it.")
            _say(_next_steps(kafka.bootstrap_servers, topics, sample))
            return _watch(kafka, sample)
    except KeyboardInterrupt:
        _say("Stopped.")
        return 0
    except KafkaDirectError as error:
        _say(str(error))
        return 1


def paste(servers: str, topic: str) -> str:
    """Return the lines of Python that show a topic's records."""
    return _PASTE.format(servers=servers, topic=topic)


def parser() -> argparse.ArgumentParser:
    """Return the reader of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m pyspark_kafka_direct.broker",
        description="Run a real Apache Kafka with temporary data on this machine until Ctrl-C. "
        "Its bootstrap servers are printed on standard output.",
    )
    found.add_argument("--version", default=DEFAULT_VERSION, help="of Apache Kafka (default: %(default)s)")
    found.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="default: %(default)s")
    found.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="of the first broker, the others follow (default: %(default)s)"
    )
    found.add_argument(
        "--topic",
        "--topics",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME:PARTITIONS",
        help="create a topic; without a number it has one partition. May be repeated",
    )
    found.add_argument(
        "--sample",
        choices=(FLIGHTS.name,),
        help=f"create the topic {FLIGHTS.name!r} and write made-up ones to it: JSON keyed by carrier, {RATE} a second",
    )
    found.add_argument(
        "--property", type=_property, action="append", default=[], metavar="NAME=VALUE", help="a broker property"
    )
    return found


def _next_steps(servers: str, topics: Sequence[NewTopic], sample: Flights | None) -> str:
    if not topics:
        return "It has no topics yet: --topic orders:3 makes one, --sample flights one with records."
    lines = [f"Topic {topic.name} has {_partitions(topic)}." for topic in topics]
    if sample is not None:
        lines += [f"Topic {sample.topic} gets {sample.rate:g} flights a second; {sample.written} are there already."]
    chosen = topics[0].name if sample is None else sample.topic
    return "\n".join([*lines, "", "Paste this into a Python that has this package:", "", paste(servers, chosen)])


def _partitions(topic: NewTopic) -> str:
    return "1 partition" if topic.partitions == 1 else f"{topic.partitions} partitions"


def _watch(kafka: EmbeddedKafka, sample: Flights | None) -> int:
    nodes = list(kafka.pids)
    while True:
        for node in nodes:
            if not kafka.is_alive(node):
                _say(f"Broker {node} ended by itself; the end of its log:")
                _say("".join(kafka.log_file(node).read_text(errors="replace").splitlines(keepends=True)[-20:]))
                return 1
        if sample is not None:
            try:
                sample.write_due()
            except KafkaDirectError:
                if all(kafka.is_alive(node) for node in nodes):
                    raise
                continue  # the broker's log says more
        time.sleep(_TICK_S)


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
