"""Arguments and settings that the subcommands of ``kafka-direct dlq`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.cli.connection_arguments import add_connection_arguments, client_settings
from pyspark_kafka_direct.cli.output import add_output_argument

if TYPE_CHECKING:
    import argparse

_MAX_DIGITS: Final = 18


def add_letter_arguments(parser: argparse.ArgumentParser, *, default_start: str) -> None:
    """Add the arguments that say which dead letters are read, and how."""
    parser.add_argument("topic", metavar="TOPIC", help="the topic of the dead letters")
    parser.add_argument(
        "-o", "--offset", metavar="FROM:TO", help=f"where to start and end, as in consume ({default_start})"
    )
    parser.add_argument("-n", "--num", type=positive_number, metavar="N", help="at most N dead letters")
    add_output_argument(parser)
    add_connection_arguments(parser)


def letter_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings for reading dead letters."""
    settings = client_settings(arguments) | {"isolation.level": "read_committed"}
    settings.setdefault("failOnDataLoss", "false")
    return settings


def positive_number(text: str) -> int:
    """Parse a number of dead letters."""
    from argparse import ArgumentTypeError

    if not text.isascii() or not text.isdecimal() or len(text) > _MAX_DIGITS or int(text) < 1:
        raise ArgumentTypeError(f"a number of at least 1 is needed, got {text!r}")
    return int(text)
