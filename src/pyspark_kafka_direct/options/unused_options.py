"""Rejects options that say how keys and values are read or written, and that nothing would use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.payload_formats import format_row
from pyspark_kafka_direct.options.registry_settings import REGISTRY_PREFIX
from pyspark_kafka_direct.options.value_types import Enum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.payload_settings import Side


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


def check_function_options(parsed: ParsedConfig, formats: Mapping[Side, str]) -> None:
    """Reject unknown options that would change keys or values if a function of Spark decoded or encoded them."""
    given = {name.lower().removeprefix("kafka."): option.value.lower() for name, option in parsed.unknown.items()}
    for side, payload_format in formats.items():
        row = format_row(payload_format)
        # An option with the value that changes nothing is accepted, like one that is not given.
        rejected = [name for name, neutral in row.spark_options.items() if given.get(name.lower(), neutral) != neutral]
        if rejected:
            raise OptionError(
                f"{side}Format={payload_format} does not have {listed(rejected)}, which {row.spark_functions} of "
                f"Spark have; use these functions without {side}Format, or remove what does not apply"
            )
