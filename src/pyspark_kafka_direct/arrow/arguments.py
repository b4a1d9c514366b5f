"""The arguments that ``read_arrow`` and ``write_arrow`` share."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafka_direct.errors import OptionError


def merged_arguments(params: object, options: Mapping[str, object]) -> dict[str, object]:
    """Return the client settings together with the options, none of which may be given twice."""
    if not isinstance(params, Mapping):
        raise OptionError(f"params must be a dict of client settings, got {type(params).__name__}")
    given_twice = sorted(params.keys() & options.keys())
    if given_twice:
        raise OptionError(f"{given_twice[0]} is given twice: in params and as an argument; remove one of them")
    return {**params, **options}
