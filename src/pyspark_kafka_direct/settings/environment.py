"""Settings of the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.settings._reader import read
from pyspark_kafka_direct.settings.row import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping


def variable(variables: Mapping[str, str], name: str) -> str | None:
    """Read a setting of the environment; ``None`` where the variable is not set, or empty.

    Args:
        variables: The environment.
        name: The variable.

    Raises:
        OptionError: Its value cannot be used.
    """
    given = {name: variables[name]} if variables.get(name) else {}
    return read(given, door="batch", origin=Origin.ENVIRONMENT).text(name)
