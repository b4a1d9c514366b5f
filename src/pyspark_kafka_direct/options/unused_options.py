"""Rejects options that say how keys and values are read or written, and that nothing would use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.registry_settings import REGISTRY_PREFIX
from pyspark_kafka_direct.options.value_types import Enum

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.option_parser import ParsedConfig


class UnusedOptions:
    """Collects the options that have no effect, so that one error names all of them."""

    def __init__(self, parsed: ParsedConfig) -> None:
        self._parsed = parsed
        self._names_by_need: dict[str, list[str]] = {}

    def add(self, name: str, need: str) -> None:
        """Add an option if it is given, unless its value says what happens without it; ``need`` ends the message."""
        if name not in self._parsed.given_names:
            return
        # Options of the access to a registry are added with any value: without its URL, none has an effect.
        neutral_values = ("none", False, self._parsed.table.by_name[name].default)
        if name.startswith(REGISTRY_PREFIX) or self._parsed.values[name] not in neutral_values:
            self._names_by_need.setdefault(need, []).append(self._shown(name))

    def check(self) -> None:
        """Raise an error if there are any."""
        sentences = [
            f"{listed(names)} {'needs' if len(names) == 1 else 'need'} {need}, or remove "
            f"{'it' if len(names) == 1 else 'them'}"
            for need, names in self._names_by_need.items()
        ]
        if sentences:
            raise OptionError(". ".join(sentences))

    def _shown(self, name: str) -> str:
        """Return the name, with the value of an enum; other values may be long, or secret."""
        is_enum = isinstance(self._parsed.table.by_name[name].value_type, Enum)
        return self._parsed.given_names[name] + (f"={self._parsed.values[name]}" if is_enum else "")
