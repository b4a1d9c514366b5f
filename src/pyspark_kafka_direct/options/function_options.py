"""Options of Spark's functions for JSON, Avro and Protobuf, which the formats of keys and values do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.hints import listed
from pyspark_kafka_direct.options.payload_formats import format_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.payload_settings import Side


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
