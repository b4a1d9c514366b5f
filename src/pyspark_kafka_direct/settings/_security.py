"""From client settings to security settings: what belongs together, what contradicts, what has no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._sasl import read_sasl
from pyspark_kafka_direct.settings._tls import read_tls
from pyspark_kafka_direct.settings.security import Protocol, SecuritySettings

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings._reader import Read


def security_settings(read: Read) -> tuple[SecuritySettings, tuple[str, ...]]:
    """Build security settings.

    Args:
        read: What was given.

    Returns:
        The settings, and a note on each setting that has no effect or weakens security.

    Raises:
        OptionError: Settings are missing or contradict one another.
    """
    protocol = cast("Protocol", read.text("security.protocol"))
    notes: list[str] = []
    tls = sasl = None
    if protocol in ("SSL", "SASL_SSL"):
        tls = read_tls(read, notes)
    else:
        notes += _without_effect(read, protocol, "ssl.", "SSL or SASL_SSL")
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        sasl = read_sasl(read, notes, encrypted=tls is not None)
    else:
        if "oauthTokenProvider" in read.given:
            name = read.name("security.protocol")
            raise OptionError(
                f"oauthTokenProvider needs a log-in, but {name} is {protocol}; write {name}=SASL_SSL and "
                f"{read.name('sasl.mechanism')}=OAUTHBEARER"
            )
        notes += _without_effect(read, protocol, "sasl.", "SASL_SSL or SASL_PLAINTEXT")
    return SecuritySettings(protocol, tls, sasl), tuple(notes)


def _without_effect(read: Read, protocol: str, prefix: str, needed: str) -> list[str]:
    names = [written for name, written in read.given.items() if name.startswith(prefix)]
    if not names:
        return []
    verb = "has" if len(names) == 1 else "have"
    setting = read.name("security.protocol")
    return [f"{', '.join(names)} {verb} no effect with {setting}={protocol}; did you mean {needed}?"]
