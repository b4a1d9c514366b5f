"""Run Kafka in the foreground: ``python -m pyspark_kafka_direct.broker``, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker.embedded import DEFAULT_VERSION, EmbeddedKafka
from pyspark_kafka_direct.errors import KafkaDirectError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT = 9092


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until interrupted; return the exit code: 1 when a broker could not be started, or ended by itself."""
    asked = _parser().parse_args(arguments)
    properties = dict(asked.property)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    try:
        with EmbeddedKafka(
            asked.brokers, version=asked.version, port=asked.port, properties=properties, reuse_running=False
        ) as kafka:
            print(kafka.bootstrap_servers, flush=True)
            _say(f"Kafka {asked.version} is up; its data is temporary. Ctrl-C stops it.")
            return _watch(kafka)
    except KeyboardInterrupt:
        _say("Stopped.")
        return 0
    except KafkaDirectError as error:
        _say(str(error))
        return 1


def _watch(kafka: EmbeddedKafka) -> int:
    nodes = list(kafka.pids)
    while True:
        for node in nodes:
            if not kafka.is_alive(node):
                _say(f"Broker {node} ended by itself; the end of its log:")
                _say("".join(kafka.log_file(node).read_text(errors="replace").splitlines(keepends=True)[-20:]))
                return 1
        time.sleep(0.5)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_kafka_direct.broker",
        description="Run a real Apache Kafka with temporary data on this machine until Ctrl-C. "
        "Its bootstrap servers are printed on standard output.",
    )
    parser.add_argument("--version", default=DEFAULT_VERSION, help="of Apache Kafka (default: %(default)s)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="default: %(default)s")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="of the first broker, the others follow (default: %(default)s)"
    )
    parser.add_argument(
        "--property", type=_property, action="append", default=[], metavar="NAME=VALUE", help="a broker property"
    )
    return parser


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
