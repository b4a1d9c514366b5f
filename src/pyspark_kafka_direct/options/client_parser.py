"""Parser of client settings: connections and producers.

It does not access the network or files. Import it on the driver only; the typed settings are sent to Python workers.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.connection_definitions import HOST_PORT
from pyspark_kafka_direct.options.option_parser import parse_value
from pyspark_kafka_direct.options.security_parser import parse_security
from pyspark_kafka_direct.options.settings import ConnectionSettings, ProducerSettings
from pyspark_kafka_direct.options.value_types import invalid_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.token_clusters import TokenCluster

_ACKS: Final[dict[str | None, Literal[-1, 0, 1]]] = {"all": -1, "-1": -1, "1": 1, "0": 0}
_MAX_LABEL: Final = 63  # characters between the dots of a host name
_MAX_IN_FLIGHT: Final = 5  # brokers retain the sequence numbers of this many batches (ProducerStateEntry)


def parse_connection(
    parsed: ParsedConfig, warnings: list[str], token_clusters: Sequence[TokenCluster] = ()
) -> ConnectionSettings:
    """Return the settings of connections, and add warnings."""
    try:
        security, security_warnings = parse_security(parsed, token_clusters)
    except OptionError as error:
        unknown = chain.from_iterable(option.warnings for option in parsed.unknown.values())
        # A missing option may be given under a misspelled name, and the warning about it is not logged after an error.
        raise OptionError(" ".join([error.message, *(f"({warning})" for warning in unknown)])) from None
    warnings += security_warnings
    return ConnectionSettings(
        bootstrap_servers=_bootstrap_servers(parsed),
        security=security,
        **parsed.fields_for(ConnectionSettings, roles=["connect"]),
    )


def parse_producer(parsed: ParsedConfig, warnings: list[str]) -> ProducerSettings:
    """Parse the producer settings; add a warning if one of them disables another."""
    acks = _ACKS[parsed.get_string("acks")]
    fields = parsed.fields_for(ProducerSettings, roles=["produce"])
    return ProducerSettings(
        acks=acks,
        idempotent=_parse_idempotence(parsed, acks, fields["max_in_flight"], warnings),
        level=_compression_level(parsed, fields["codec"]),
        **fields,
    )


def _bootstrap_servers(parsed: ParsedConfig) -> tuple[tuple[str, int], ...]:
    addresses: dict[tuple[str, int], None] = {}  # keeps the order and removes duplicates
    for address in parsed.get_list("bootstrap.servers"):
        match = HOST_PORT.fullmatch(address)
        if match is None or not 0 < int(match[2]) < 65_536:
            raise invalid_value(parsed.name_of("bootstrap.servers"), address, "host:port with a port from 1 to 65535")
        if not all(0 < len(label) <= _MAX_LABEL for label in match[1].removesuffix(".").split(".")):
            # No name server can ever resolve it, so it is not retried.
            raise invalid_value(parsed.name_of("bootstrap.servers"), address, "host:port with a legal host name")
        addresses[match[1], int(match[2])] = None
    return tuple(addresses)


def _parse_idempotence(parsed: ParsedConfig, acks: int, max_in_flight: int, warnings: list[str]) -> bool:
    """Return whether the producer is idempotent (``ProducerConfig.postProcessAndValidateIdempotenceConfigs``)."""
    name = parsed.name_of("enable.idempotence")
    if not parsed.get_boolean("enable.idempotence"):
        return False
    if acks != -1:
        acks_name = parsed.name_of("acks")
        given_acks = parsed.get_string("acks")
        if "enable.idempotence" in parsed.given_names:
            raise OptionError(f"{name}=true requires {acks_name}=all, got {given_acks}; remove one of them")
        warnings.append(
            f"{acks_name}={given_acks} disables idempotence: records may be lost, or duplicated by retried requests"
        )
        return False
    if max_in_flight > _MAX_IN_FLIGHT:
        raise OptionError(
            f"{parsed.name_of('max.in.flight.requests.per.connection')} must be at most {_MAX_IN_FLIGHT} with "
            f"idempotence, got {max_in_flight}; lower it, or set {name}=false"
        )
    return True


def _compression_level(parsed: ParsedConfig, codec: str) -> int | None:
    """Return the level of the codec in use; as in Java, the levels of other codecs are ignored."""
    option = parsed.table.by_name.get(f"compression.{codec}.level")
    if option is None:
        return None
    level = parsed.get_optional_int(option.name)
    if option.name in parsed.given_names:
        # In Java -1 is gzip's default level (Deflater.DEFAULT_COMPRESSION), but one of zstd's negative, fast levels.
        return None if codec == "gzip" and level == -1 else level
    # librdkafka's option for all codecs, in which -1 is the default level of each.
    common_level = parsed.strings.get("compression.level")
    if common_level is None or common_level.strip() == "-1":
        return level
    # The value was parsed with the limits of all codecs; here those of the codec in use apply.
    return cast("int", parse_value(option, common_level, parsed.name_of("compression.level")))
