"""Settings of Kafka's clients on a command line: a file of properties, a named profile, and ``-X name=value``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError, printable
from pyspark_kafka_direct.options.hints import did_you_mean

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyspark_kafka_direct.client.cluster_client import ClusterClient

PROFILES_VARIABLE: Final = "KAFKA_DIRECT_PROFILES"
_DEFAULT_PROFILES: Final = "~/.config/kafka-direct/profiles.toml"
_DAY: Final = 86_400

# Java's Properties.load: the key ends at the first unescaped blank, "=" or ":".
_ENTRY: Final = re.compile(r"((?:\\.|[^\\ \t\f=:])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how to connect."""
    group = parser.add_argument_group("connection")
    group.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT", help="brokers to connect to first")
    group.add_argument("--command-config", metavar="FILE", help="client settings in Kafka's properties format")
    group.add_argument(
        "--profile",
        metavar="NAME",
        help=f"a table of client settings in {_DEFAULT_PROFILES}, or in the file that {PROFILES_VARIABLE} names",
    )
    group.add_argument(
        "-X",
        dest="settings",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a client setting, or an option of the data source; it takes precedence over files. Secrets are rejected, "
        "because other users of the machine can see them",
    )


def has_connection(arguments: argparse.Namespace) -> bool:
    """Return whether an argument says how to connect."""
    return any((arguments.bootstrap_server, arguments.command_config, arguments.profile, arguments.settings))


def client_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the profile, the file and the command line; the later ones take precedence.

    Raises:
        OptionError: A file cannot be read, a setting of the command line is a secret, or no brokers are given.
    """
    settings: dict[str, str] = {}
    if arguments.profile is not None:
        settings |= _profile(arguments.profile)
    if arguments.command_config is not None:
        settings |= parse_properties(_read(arguments.command_config, "--command-config"))
    settings |= dict(map(_setting, arguments.settings))
    if arguments.bootstrap_server is not None:
        settings["bootstrap.servers"] = arguments.bootstrap_server
    if "bootstrap.servers" not in settings:
        raise OptionError(
            "No brokers are given; add -b HOST:PORT, or bootstrap.servers to the file of --command-config or to a "
            "profile"
        )
    return settings


def cluster_client(arguments: argparse.Namespace) -> ClusterClient:
    """Return a client with the settings of the command line; errors as ``client_settings``."""
    from pyspark_kafka_direct.client.cluster_client import ClusterClient
    from pyspark_kafka_direct.options.kafka_params import parse_kafka_params

    return ClusterClient(parse_kafka_params(client_settings(arguments)).connection)


def check_seconds(argument: str, seconds: float) -> None:
    """Raise an ``OptionError`` unless a number of seconds is a time to wait."""
    if not 0 < seconds <= _DAY:
        raise OptionError(f"{argument} must be more than 0 seconds, and at most {_DAY}")


def parse_properties(text: str) -> dict[str, str]:
    """Parse a file as ``java.util.Properties`` does; the last of several entries with one key counts.

    Raises:
        OptionError: An escape is half of a surrogate pair.
    """
    entries = [_ENTRY.fullmatch(line) for line in _logical_lines(text)]
    return {_unescaped(entry[1]): _unescaped(entry[2]) for entry in entries if entry is not None}


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments and blank lines; a line that ends with a backslash continues in the next one."""
    naturals = re.split(r"\r\n|\r|\n", text)
    if text.endswith(("\r", "\n")) and not text.endswith("\r\n"):
        naturals.pop()  # as in Java, there is no line behind the last end of one
    line = ""
    is_continued = False
    for natural in naturals:
        part = natural.lstrip(" \t\f")
        if not line and (not part or part[0] in "#!"):
            is_continued = False
            continue
        is_continued = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        line += part[:-1] if is_continued else part
        if not is_continued:
            yield line
            line = ""
    if is_continued:
        yield line


def _unescaped(text: str) -> str:
    unescaped = _ESCAPE.sub(_unescape, text)
    try:
        return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le")  # joins surrogate pairs, as Java does
    except UnicodeDecodeError:
        raise OptionError(
            r"--command-config: an escape such as \ud83d is half of a character; write both, such as \ud83d\ude00"
        ) from None


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPED.get(escape, escape)


def _setting(argument: str) -> tuple[str, str]:
    name, separator, value = argument.partition("=")
    if not separator or not name:
        raise OptionError(f"-X needs NAME=VALUE, got {name!r} without a value" if name else "-X needs NAME=VALUE")
    if _is_secret(name):
        raise OptionError(
            f"-X {name}: other users of this machine can see a command line; write the setting into a file, and name "
            "the file with --command-config"
        )
    return name, value


def _is_secret(name: str) -> bool:
    from pyspark_kafka_direct.options.option_parser import OPTION_TABLE
    from pyspark_kafka_direct.options.value_types import SECRET

    lower = name.lower().removeprefix("kafka.")
    secret_options = (option for option in OPTION_TABLE.options if option.value_type is SECRET)
    names = {name.lower() for option in secret_options for name in (option.name, *option.aliases)}
    return lower in names or any(word in lower for word in ("password", "secret", "passphrase", "jaas"))


def _profile(name: str) -> dict[str, str]:
    import tomllib  # slow to import

    path = os.environ.get(PROFILES_VARIABLE) or _DEFAULT_PROFILES
    try:
        profiles = tomllib.loads(_read(path, "--profile"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OptionError(f"--profile: {path} is not valid TOML: {error}") from None
    found = profiles.get(name)
    if not isinstance(found, dict):
        known = printable(", ".join(sorted(profiles)), 1000) or "none"
        raise OptionError(f"--profile: {path} has no table [{name}]{did_you_mean(name, profiles)} (it has: {known})")
    if nested := next((key for key, value in found.items() if isinstance(value, dict)), None):
        raise OptionError(f'--profile: write names with dots in quotes in {path}, such as "{nested}.servers" = "..."')
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in found.items()}


def _read(path: str, argument: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the user of ~user is unknown
        reason = "it is not UTF-8" if isinstance(error, ValueError) else getattr(error, "strerror", None) or error
        raise OptionError(f"{argument}: {path} cannot be read: {reason}") from None
