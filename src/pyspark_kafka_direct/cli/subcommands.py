"""Subcommands such as ``kafka-direct checkpoint show``: each one is a module with its arguments and its help."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pyspark_kafka_direct.cli.help_formatter import HelpFormatter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def add_subcommands(parser: argparse.ArgumentParser, command: str, summaries: Mapping[str, str]) -> None:
    """Add the subcommands of a command; the chosen one is ``arguments.run``.

    The module of a subcommand is ``COMMAND_NAME``, with ``DESCRIPTION``, ``EXAMPLES``, ``add_arguments`` and ``run``
    like that of a command.
    """
    subparsers = parser.add_subparsers(metavar="SUBCOMMAND", required=True)
    for name, summary in summaries.items():
        module = import_module(f"pyspark_kafka_direct.cli.{command}_{name}")
        subparser = subparsers.add_parser(
            name,
            help=summary,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
