"""``kafka-direct doctor``: what prevents queries from reaching Kafka, here and on executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, check_seconds, client_settings
from pyspark_kafka_direct.cli.main import FOUND_PROBLEM
from pyspark_kafka_direct.cli.output import add_output_argument
from pyspark_kafka_direct.errors import OptionError

if TYPE_CHECKING:
    import argparse

DESCRIPTION: Final = """\
Check what a query needs: this Python and the package, and for each broker DNS, TCP, TLS, API versions, SASL and its
advertised address; permissions on topics and groups; and the clock. Each finding says what to do."""
EXAMPLES: Final = """
With --spark, the same is checked on every executor of a Spark cluster.

exit code 1: a problem was found. Warnings are no problems.

examples:
  kafka-direct doctor -b localhost:9092
  kafka-direct doctor -b localhost:9092 --topic flights --group flights-query
  kafka-direct doctor -b localhost:9092 --topic flights --write --json
  kafka-direct doctor -b localhost:9092 --topic flights --spark spark://master:7077
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="check a topic, and its ACLs")
    parser.add_argument("--group", metavar="GROUP", action="append", default=[], help="check a consumer group, too")
    parser.add_argument("--write", action="store_true", help="the query writes to the topics: check Write, not Read")
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="S", help="seconds for the checks of all brokers (10)"
    )
    parser.add_argument("--spark", metavar="MASTER", help="check every executor, too, of a session with this master")
    parser.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of this session, as spark-submit takes it, such as spark.archives",
    )
    add_output_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings."""
    from pyspark_kafka_direct.cli.doctor.broker_check import Wanted
    from pyspark_kafka_direct.cli.doctor.checks import check_all
    from pyspark_kafka_direct.cli.doctor.findings import Examined, has_problem, print_findings

    check_seconds("--timeout", arguments.timeout)
    settings = client_settings(arguments)
    wanted = Wanted(tuple(dict.fromkeys(arguments.topic)), tuple(dict.fromkeys(arguments.group)), arguments.write)
    conf = dict(map(_conf, arguments.conf))
    if conf and arguments.spark is None:
        raise OptionError("--conf needs --spark MASTER")
    examined = [Examined("driver", check_all(settings, wanted, arguments.timeout))]
    if arguments.spark is not None:
        from pyspark_kafka_direct.cli.doctor.spark_checks import check_executors, unchecked_executors

        if any(finding.check == "sasl" and finding.result == "problem" for finding in examined[0].findings):
            examined += unchecked_executors()
        else:
            examined += check_executors(arguments.spark, conf, settings, wanted, arguments.timeout)
    print_findings(examined, as_json=arguments.json)
    return FOUND_PROBLEM if has_problem(examined) else 0


def _conf(argument: str) -> tuple[str, str]:
    name, separator, value = argument.partition("=")
    if not separator or not name.startswith("spark."):
        raise OptionError(f"--conf needs spark.NAME=VALUE, got {name!r}")
    return name, value
