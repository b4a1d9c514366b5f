"""The subcommands of ``kafka-direct``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def subcommands_of(command: str) -> Mapping[str, str]:
    """Return the subcommands of a command and what they do."""
    subcommands: Mapping[str, str] = getattr(
        import_module(f"pyspark_kafka_direct.cli.{command}_command"), "SUBCOMMANDS", {}
    )
    return subcommands
