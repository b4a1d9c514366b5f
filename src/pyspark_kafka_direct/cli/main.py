"""The command ``kafka-direct``, which inspects, explains and repairs what is between Kafka and Spark.

Exit codes: 0 done, 1 a problem was found, 2 wrong usage or settings, 3 Kafka or the network failed, 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from importlib import import_module

from pyspark_kafka_direct._version import __version__
from pyspark_kafka_direct.cli.help_formatter import HelpFormatter

TYPE_CHECKING = False  # as type checkers know it; the module typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

FOUND_PROBLEM: Final = 1
WRONG_USAGE: Final = 2
FAILED: Final = 3
_INTERRUPTED: Final = 130

_POSITION: Final = re.compile(r"-[0-9]")
_OPTION: Final = re.compile(r"-[A-Za-z]|--[a-z-]+")

COMMANDS: Final = {
    "audit": "compare a topic with the output of a query, by source offsets",
    "checkpoint": "inspect and compare checkpoints of streaming queries",
    "consume": "print records of topics",
    "dlq": "show dead letters, and write them to their topics again",
    "doctor": "find why queries cannot reach Kafka, here and on executors",
    "lag": "show how far consumer groups and queries are behind",
    "transactions": "show open transactions, and which one holds back readers",
}
"""The commands and what they do. The module of a command, which has its name, is imported when it runs.

It has ``DESCRIPTION`` and ``EXAMPLES``, and either ``add_arguments`` and ``run``, or ``SUBCOMMANDS``.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that the encoding of a terminal lacks
    parser = _parser()
    chosen = parser.parse_args(given[:1])
    module = import_module(f"pyspark_kafka_direct.cli.{chosen.command}_command")
    command_parser = argparse.ArgumentParser(
        prog=f"kafka-direct {chosen.command}",
        description=module.DESCRIPTION,
        epilog=module.EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    if hasattr(module, "SUBCOMMANDS"):
        from pyspark_kafka_direct.cli.subcommands import add_subcommands

        add_subcommands(command_parser, chosen.command, module.SUBCOMMANDS)
    else:
        module.add_arguments(command_parser)
        command_parser.set_defaults(run=module.run)
    command_arguments = command_parser.parse_args(_with_joined_positions(given[1:]))
    from pyspark_kafka_direct.errors import InvalidOffsetsError, KafkaDirectError, OptionError

    try:
        code: int = command_arguments.run(command_arguments)
        sys.stdout.flush()
        return code
    except OptionError as error:
        return _fail(chosen.command, str(error), WRONG_USAGE)
    except InvalidOffsetsError as error:  # such as those of a damaged checkpoint
        return _fail(chosen.command, str(error), FOUND_PROBLEM)
    except KafkaDirectError as error:
        return _fail(chosen.command, str(error), FAILED)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        _discard_unwritable_output()
        return 0
    except OSError as error:  # such as a full disk
        _discard_unwritable_output()
        return _fail(chosen.command, f"{type(error).__name__}: {error}", FAILED)


def _discard_unwritable_output() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python's exit fails to flush


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafka-direct",
        description="Inspect, explain and repair what is between Kafka and Spark.",
        usage="%(prog)s COMMAND ...",
        epilog="\n".join(
            [
                "commands:",
                *(f"  {name:14}{summary}" for name, summary in COMMANDS.items()),
                "",
                "Help and examples of a command: kafka-direct COMMAND --help",
                "",
                "Exit codes: 0 done, 1 a problem was found, 2 wrong usage or settings, 3 Kafka or the network failed, "
                "130 interrupted.",
            ]
        ),
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kafka-direct {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def _with_joined_positions(arguments: Sequence[str]) -> list[str]:
    """Join an option with a value such as -1h, which argparse would take for an option: -o-1h, --to-time=-1h."""
    joined: list[str] = []
    for argument in arguments:
        if _POSITION.match(argument) and joined and _OPTION.fullmatch(joined[-1]):
            joined[-1] += f"={argument}" if joined[-1].startswith("--") else argument
        else:
            joined.append(argument)
    return joined


def _fail(command: str, message: str, code: int) -> int:
    from pyspark_kafka_direct.cli.output import to_stderr

    to_stderr(f"kafka-direct {command}: {message}")
    return code
