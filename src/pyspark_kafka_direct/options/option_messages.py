"""The errors and warnings about options."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.hints import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.config_option import ConfigSource, UnsupportedPolicy

LOST_OPTIONS: Final = (
    ". No option has arrived. Spark does not pass the options of a table (CREATE TABLE ... USING) to a Python data "
    "source: give them in each statement (SELECT ... FROM t WITH (`kafka.bootstrap.servers` = 'host:port', ...), "
    "INSERT INTO t WITH (...) ...), or replace the table by CREATE TEMPORARY VIEW v USING `kafka-direct` OPTIONS (...)"
)

_log = logging.getLogger("pyspark_kafka_direct.options")


def misplaced_private_key(name: str) -> OptionError:
    """Return the error for a private key in an option whose value Spark and this package may show."""
    return OptionError(
        f"{name} has a private key, which may be shown there; replace that key, and set the new one in "
        "kafka.ssl.keystore.key"
    )


def unsupported_option(source: ConfigSource, name: str, policy: UnsupportedPolicy) -> str:
    """Return what the error says about an option that an API rejects; it does not show the value."""
    return f"{source.value} {name} cannot be used here: {policy.reason}"


def misspelled_option(source: ConfigSource, name: str, hint: str) -> OptionError:
    """Return the error for an unknown name that is almost the name of an option."""
    return OptionError(f"{source.value} {name} is unknown{hint}")


def duplicate_option(first: str, second: str) -> OptionError:
    """Return the error for two different values of an option; it does not show them."""
    if first == second:
        return OptionError(f"{first} is given twice with different values; set it once")
    return OptionError(f"{first} and {second} are the same setting, but their values differ; set only one of them")


def unsupported_by_function(function: str, names: Sequence[str], advice: str) -> OptionError:
    """Return the error about all options that a function for DataFrames does not have."""
    are = "the option {} is" if len(names) == 1 else "the options {} are"
    return OptionError(f"{function}: {are.format(listed(names))} not supported{advice}")


def missing_option(name: str, expected: str, hint: str) -> OptionError:
    """Return the error for a required option that is not given."""
    return OptionError(f"{name} is missing or empty; set it to {expected}{hint}")


def ignored_warning(source: ConfigSource, name: str, reason: str) -> str:
    """Return the warning about an option that has no effect."""
    return f"{source.value} {name} is ignored: {reason}"


def unknown_warning(source: ConfigSource, name: str, hint: str) -> str:
    """Return the warning about an unknown name."""
    return f"{source.value} {name} is unknown and ignored{hint}"


@lru_cache(maxsize=1024)  # Spark creates several readers for one load()
def warn_once(warning: str) -> None:
    """Log a warning once per process."""
    _log.warning("%s", warning)
