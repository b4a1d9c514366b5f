"""Runs Kafka in the foreground until Ctrl-C: ``python -m pyspark_kafka_direct.broker --sample flights``."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION, EmbeddedKafka
from pyspark_kafka_direct.cli.sample_flights import FLIGHTS_TOPIC, RECORDS_PER_SECOND, FlightsProducer
from pyspark_kafka_direct.cli.topic_arguments import NewTopic, create_topics, parse_topics
from pyspark_kafka_direct.errors import KafkaDirectError, TransientBrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT = 9092

_POLL_INTERVAL_S: Final = 0.5

_EXAMPLE_CODE: Final = """\
import os, sys
from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise Spark's workers use python3 from PATH
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
    """Run the cluster until interrupted; return 0, or 1 if a broker cannot be started or exits by itself."""
    args = argument_parser().parse_args(arguments)
    properties = dict(args.property)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # handled like Ctrl-C
    try:
        topics = parse_topics(args.topic)
        if args.sample and FLIGHTS_TOPIC.name not in [topic.name for topic in topics]:
            topics.insert(0, FLIGHTS_TOPIC)
        with ExitStack() as stack:
            kafka = stack.enter_context(
                EmbeddedKafka(
                    args.brokers,
                    version=args.version,
                    port=args.port,
                    properties=properties,
                    verify_jars=not args.unverified_jars,
                )
            )
            create_topics(kafka.bootstrap_servers, topics)
            producer = stack.enter_context(FlightsProducer(kafka.bootstrap_servers)) if args.sample else None
            if producer is not None:
                _produce_due(kafka, producer)  # so that the topic has flights when its name is printed
            print(kafka.bootstrap_servers, flush=True)
            _print_status(f"Kafka {args.version} is running with temporary data. Press Ctrl-C to stop it.")
            _print_status(_usage_message(kafka.bootstrap_servers, topics, producer))
            return _run_until_exit(kafka, producer)
    except KeyboardInterrupt:
        _print_status("Stopped.")
        return 0
    except KafkaDirectError as error:
        _print_status(str(error))
        return 1


def example_code(servers: str, topic: str) -> str:
    """Return Python code that shows a topic's records."""
    return _EXAMPLE_CODE.format(servers=servers, topic=topic)


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_kafka_direct.broker",
        description="Run a real Apache Kafka with temporary data on this machine until Ctrl-C. "
        "Its bootstrap servers are printed to standard output.",
    )
    parser.add_argument("--version", default=DEFAULT_VERSION, help="version of Apache Kafka (default: %(default)s)")
    parser.add_argument(
        "--unverified-jars",
        action="store_true",
        help="run jars without comparing their checksums, which only some versions have",
    )
    parser.add_argument(
        "--brokers", type=int, choices=(1, 3), default=1, help="number of brokers (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help="port of the first broker; the others use the next ports (default: %(default)s)",
    )
    parser.add_argument(
        "--topic",
        "--topics",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME:PARTITIONS",
        help="create a topic, with one partition by default; may be repeated",
    )
    parser.add_argument(
        "--sample",
        choices=(FLIGHTS_TOPIC.name,),
        help=f"create the topic {FLIGHTS_TOPIC.name!r} and produce {RECORDS_PER_SECOND} generated flights per second: "
        "JSON keyed by carrier",
    )
    parser.add_argument(
        "--property",
        type=_parse_property,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a broker property",
    )
    return parser


def _usage_message(servers: str, topics: Sequence[NewTopic], producer: FlightsProducer | None) -> str:
    if not topics:
        return "It has no topics: --topic orders:3 creates one, --sample flights creates one with records."
    lines = [f"Topic {topic.name} has {_partition_count(topic)}." for topic in topics]
    if producer is not None:
        lines += [f"Topic {producer.topic} has {producer.written} flights and gets {producer.rate:g} more per second."]
    topic = topics[0].name if producer is None else producer.topic
    return "\n".join([*lines, "", "Run this code in a Python with this package:", "", example_code(servers, topic)])


def _partition_count(topic: NewTopic) -> str:
    return "1 partition" if topic.partitions == 1 else f"{topic.partitions} partitions"


def _run_until_exit(kafka: EmbeddedKafka, producer: FlightsProducer | None) -> int:
    """Produce the sample until Ctrl-C, or until a broker exits by itself; then return the exit code."""
    nodes = list(kafka.pids)
    while True:
        for node in nodes:
            if not kafka.is_alive(node):
                _print_status(f"Broker {node} exited; the end of its log:")
                _print_status("".join(kafka.log_file(node).read_text(errors="replace").splitlines(keepends=True)[-20:]))
                return 1
        if producer is not None:
            _produce_due(kafka, producer)
        time.sleep(_POLL_INTERVAL_S)


def _produce_due(kafka: EmbeddedKafka, producer: FlightsProducer) -> None:
    """Produce the flights that are due; after a transient error, the next call retries."""
    try:
        producer.produce_due()
    except KafkaDirectError as error:
        if not all(kafka.is_alive(node) for node in kafka.pids):
            return  # the caller prints the broker's log
        if not isinstance(error, TransientBrokerError):
            raise
        _print_status(f"{error}\nThe broker is running, and the sample retries: flights may be there twice.")
        producer.reconnect()


def _parse_property(argument: str) -> tuple[str, str]:
    name, equals, value = argument.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{argument!r} is not NAME=VALUE")
    return name, value


def _print_status(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
