"""What stands beside a setting when it is tried, and how a setting can be written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, cast

from tests.behaviour.doors import SOURCE_DOORS
from tests.behaviour.values import SECRET

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
"""Options of the data source by context; elsewhere ``_SUBSCRIBED``."""

_ENABLED: Final = {"spark.streaming.backpressure.enabled": "true"}

# Options of the log-in module, where the setting is one of these.
_INSIDE: Final = {
    "inside jaas": {"clientId": "i", "clientSecret": f"{SECRET} too"},
    "inside jaas, unsigned": {"unsecuredLoginStringClaim_sub": "alice"},
}

# Names in a context that another name of the same setting takes the place of.
_SAME: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}


def given(door: str, context: str, setting: str, spelled: str = "", values: Sequence[str] = ()) -> dict[str, str]:
    """What a door is given: the context, without the setting, and then the setting as it is spelled.

    Args:
        door: See ``doors``.
        context: A name above.
        setting: Its name, without ``kafka.``.
        spelled: How it is written, see ``written``; two ways joined by ``+`` are two entries.
        values: One for each way.
    """
    beside = {name: text for name, text in _beside(door, context).items() if _bare(name) != _SAME.get(setting, setting)}
    ways = spelled.split("+") if spelled else []
    if context in _INSIDE:
        options = {name: text for name, text in _INSIDE[context].items() if name != setting}
        options.update((setting, text) for text in values)
        written_out = " ".join(f'{name}="{text}"' for name, text in options.items())
        return {**beside, "kafka.sasl.jaas.config": f"{_MODULE} required {written_out};"}
    added = {written(setting, way): _value(way, text) for way, text in zip(ways, values, strict=True)}
    return {**beside, **added}


def written(setting: str, way: str) -> str:
    """A setting's name: ``n`` as it is, ``k`` after ``kafka.``, ``N`` and ``K`` the same in capitals, ``_`` and ``k_``
    with underscores for dots, ``p`` between blanks, ``t`` without the last letter; ``j`` inside a JAAS text; ``v`` with
    a value that is no text but what its JSON says; ``=name`` is another name.
    """
    match way:
        case "n" | "j" | "v":
            return setting
        case "k":
            return f"kafka.{setting}"
        case "N":
            return setting.upper()
        case "K":
            return f"kafka.{setting}".upper()
        case "_":
            return setting.replace(".", "_")
        case "k_":
            return "kafka." + setting.replace(".", "_")
        case "p":
            return f" {setting} "
        case "t":
            return setting[:-1]
    assert way.startswith("="), way
    return way[1:]


def _value(way: str, text: str) -> str:
    # At some doors values may be numbers, booleans and lists; Python gives anything, whatever the types say.
    return cast("str", json.loads(text)) if way == "v" else text


def _beside(door: str, context: str) -> dict[str, str]:
    if door == "conf":
        return _ENABLED if context == "spark backpressure" else {}
    client = CLIENT[context]
    if door not in SOURCE_DOORS:
        return client
    return {**{f"kafka.{name}": text for name, text in client.items()}, **SOURCE.get(context, _SUBSCRIBED)}


def _bare(name: str) -> str:
    return name.removeprefix("kafka.")
