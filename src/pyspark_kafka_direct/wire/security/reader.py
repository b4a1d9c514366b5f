"""From client settings to security settings: what belongs together, what contradicts, what has no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings.security import Protocol, SecuritySettings
from pyspark_kafka_direct.wire.security._sasl_reader import read_sasl
from pyspark_kafka_direct.wire.security._tls_reader import read_tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.wire._setting import Value


def security_settings(
    values: Mapping[str, Value], given: Mapping[str, str], oauth_token_provider: str | None
) -> tuple[SecuritySettings, tuple[str, ...]]:
    """Build security settings from values of the table.

    Args:
        values: Values by table name.
        given: Table name to the name it was given under.
        oauth_token_provider: The option ``oauthTokenProvider``.

    Returns:
        The settings, and a note on each setting that has no effect or weakens security.

    Raises:
        OptionError: Settings are missing or contradict one another.
    """
    protocol = cast("Protocol", values["security.protocol"])
    notes: list[str] = []
    tls = sasl = None
    if protocol in ("SSL", "SASL_SSL"):
        tls = read_tls(values, given, notes)
    else:
        notes += _without_effect(protocol, given, "ssl.", "SSL or SASL_SSL")
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        sasl = read_sasl(values, given, oauth_token_provider, notes, encrypted=tls is not None)
    else:
        if oauth_token_provider:
            raise OptionError(
                f"option oauthTokenProvider needs a log-in, but kafka.security.protocol is {protocol}; write "
                "kafka.security.protocol=SASL_SSL and kafka.sasl.mechanism=OAUTHBEARER"
            )
        notes += _without_effect(protocol, given, "sasl.", "SASL_SSL or SASL_PLAINTEXT")
    return SecuritySettings(protocol, tls, sasl), tuple(notes)


def _without_effect(protocol: str, given: Mapping[str, str], prefix: str, needed: str) -> list[str]:
    names = [f"kafka.{original}" for name, original in given.items() if name.startswith(prefix)]
    if not names:
        return []
    verb = "has" if len(names) == 1 else "have"
    return [f"{', '.join(names)} {verb} no effect with kafka.security.protocol={protocol}; did you mean {needed}?"]
