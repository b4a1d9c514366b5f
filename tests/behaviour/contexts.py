"""The options that are given together with the option under test, and the spellings of a name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

from tests.behaviour.apis import SOURCE_APIS
from tests.behaviour.option_values import SECRET

if TYPE_CHECKING:
    from collections.abc import Sequence

_BROKERS: Final = {"bootstrap.servers": "b:9092"}
_SSL: Final = {**_BROKERS, "security.protocol": "SSL"}
_SASL: Final = {**_BROKERS, "security.protocol": "SASL_SSL"}
_OAUTH: Final = {**_SASL, "sasl.mechanism": "OAUTHBEARER"}
_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

CLIENT: Final[dict[str, dict[str, str]]] = {
    "plain": _BROKERS,
    "bare": _BROKERS,
    "from a timestamp": _BROKERS,
    "from committed": _BROKERS,
    "with a maximum": _BROKERS,
    "with backpressure": _BROKERS,
    "ssl": _SSL,
    "ssl, key": {**_SSL, "ssl.keystore.key": f"{SECRET} key"},
    "ssl, chain": {**_SSL, "ssl.keystore.certificate.chain": f"{SECRET} chain"},
    "ssl, key file": {**_SSL, "ssl.key.location": "/key.pem"},
    "ssl, chain file": {**_SSL, "ssl.certificate.location": "/chain.pem"},
    "password": {**_SASL, "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": f"{SECRET} too"},
    "jaas": {**_SASL, "sasl.mechanism": "PLAIN"},
    "oauth": {
        **_OAUTH,
        "sasl.oauthbearer.token.endpoint.url": "https://t/",
        "sasl.oauthbearer.client.credentials.client.id": "i",
        "sasl.oauthbearer.client.credentials.client.secret": f"{SECRET} too",
    },
    "oauth, no source": _OAUTH,
    "inside jaas": {**_OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://t/"},
    "inside jaas, unsigned": _OAUTH,
    "nothing": {},
    "spark backpressure": {},
}
"""Client settings by context."""

_SUBSCRIBED: Final = {"subscribe": "t"}
SOURCE: Final[dict[str, dict[str, str]]] = {
    "bare": {},
    "from a timestamp": {**_SUBSCRIBED, "startingTimestamp": "5"},
    "from committed": {**_SUBSCRIBED, "startingOffsets": "committed", "commitGroupId": "g"},
    "with a maximum": {**_SUBSCRIBED, "maxOffsetsPerTrigger": "10"},
    "with backpressure": {**_SUBSCRIBED, "backpressure": "true"},
}
"""Data source options by context, ``_SUBSCRIBED`` by default."""

_ENABLED: Final = {"spark.streaming.backpressure.enabled": "true"}

# Login module options by context.
_JAAS_OPTIONS: Final = {
    "inside jaas": {"clientId": "i", "clientSecret": f"{SECRET} too"},
    "inside jaas, unsigned": {"unsecuredLoginStringClaim_sub": "alice"},
}

# Aliases of options that a context contains.
_ALIASES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}


def given_options(api: str, context: str, option: str, spelled: str = "", values: Sequence[str] = ()) -> dict[str, str]:
    """The context without the option, and then the option in one spelling, or in two that are joined by ``+``."""
    context_options = {
        name: value
        for name, value in _context_options(api, context).items()
        if name.removeprefix("kafka.") != _ALIASES.get(option, option)
    }
    if context in _JAAS_OPTIONS:
        jaas_options = {name: value for name, value in _JAAS_OPTIONS[context].items() if name != option}
        jaas_options.update((option, value) for value in values)
        jaas = " ".join(f'{name}="{value}"' for name, value in jaas_options.items())
        return {**context_options, "kafka.sasl.jaas.config": f"{_MODULE} required {jaas};"}
    spellings = spelled.split("+") if spelled else []
    added = {
        spelled_name(option, spelling): _value(spelling, value)
        for spelling, value in zip(spellings, values, strict=True)
    }
    return {**context_options, **added}


def spelled_name(option: str, spelling: str) -> str:
    """A spelling of an option's name.

    n     as it is                       _     with underscores for dots
    N     in upper case                  k_    the same, prefixed with kafka.
    k     prefixed with kafka.           p     between blanks
    K     the same in upper case         t     without the last letter
    j     inside sasl.jaas.config        =x    another name, x
    v     with the value that the JSON represents
    """
    match spelling:
        case "n" | "j" | "v":
            return option
        case "k":
            return f"kafka.{option}"
        case "N":
            return option.upper()
        case "K":
            return f"kafka.{option}".upper()
        case "_":
            return option.replace(".", "_")
        case "k_":
            return "kafka." + option.replace(".", "_")
        case "p":
            return f" {option} "
        case "t":
            return option[:-1]
    assert spelling.startswith("="), spelling
    return spelling[1:]


def _value(spelling: str, value: str) -> str:
    # Callers can pass values of any type, also against the annotations.
    return cast("str", json.loads(value)) if spelling == "v" else value


def _context_options(api: str, context: str) -> dict[str, str]:
    if api == "conf":
        return _ENABLED if context == "spark backpressure" else {}
    client = CLIENT[context]
    if api not in SOURCE_APIS:
        return client
    return {**{f"kafka.{name}": value for name, value in client.items()}, **SOURCE.get(context, _SUBSCRIBED)}
