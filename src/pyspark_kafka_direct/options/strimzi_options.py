"""Options of Strimzi's login callback handler, inside ``sasl.jaas.config``, by the names of Kafka's handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_messages import ignored_warning
from pyspark_kafka_direct.options.option_parser import format_name

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - a setting's name

_PREFIX: Final = "oauth."
_EXTENSION_PREFIX: Final = "oauth.sasl.extension."
ASSERTION_FILE: Final = "oauth.client.assertion.location"
_ASSERTION_TYPE: Final = "oauth.client.assertion.type"
_JWT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_URL: Final = "oauth.token.endpoint.uri"
_TOKEN_FILE: Final = "oauth.access.token.location"  # noqa: S105 - an option's name
_KAFKA_NAMES: Final = {
    "oauth.client.id": "clientId",
    "oauth.client.secret": "clientSecret",
    "oauth.scope": "scope",
    "oauth.audience": "audience",
    _URL: TOKEN_URL,
}
_OTHER_SETTINGS: Final = {
    "oauth.connect.timeout.seconds": "kafka.sasl.login.connect.timeout.ms",
    "oauth.read.timeout.seconds": "kafka.sasl.login.read.timeout.ms",
}
# They concern the name of the principal, which brokers determine, metrics of the handler, or the expiry of tokens.
_WITHOUT_EFFECT: Final = (
    "oauth.access.token.is.jwt",
    "oauth.config.id",
    "oauth.enable.metrics",
    "oauth.fallback.username.claim",
    "oauth.fallback.username.prefix",
    "oauth.force.jsonpath.username.extraction",
    "oauth.http.retries",
    "oauth.http.retry.pause.millis",
    "oauth.include.accept.header",
    "oauth.max.token.expiry.seconds",
    "oauth.tokens.not.jwt",
    "oauth.username.claim",
    "oauth.username.prefix",
)


def with_kafka_names(options: Mapping[str, str], config: str, warnings: list[str]) -> Mapping[str, str]:
    """Return the options of a login module with Kafka's names; ``config`` is the option that contains them."""
    renamed: dict[str, str] = {}
    for name, value in options.items():
        if not name.startswith(_PREFIX):
            renamed[name] = value
        elif name in _KAFKA_NAMES:
            renamed[_KAFKA_NAMES[name]] = value
        elif name.startswith("oauth.ssl."):
            renamed[name.removeprefix(_PREFIX)] = value
        elif name.startswith(_EXTENSION_PREFIX):
            renamed["extension_" + name.removeprefix(_EXTENSION_PREFIX)] = value
        elif name == _TOKEN_FILE:
            renamed[TOKEN_URL] = "file://" + quote(value)
        elif name == ASSERTION_FILE:
            renamed[name] = value
        elif name == _ASSERTION_TYPE:
            if value != _JWT_ASSERTION:
                raise OptionError(f"{config}: {name} must be {_JWT_ASSERTION}; other assertions are not supported")
        elif name in _OTHER_SETTINGS:
            display_name = format_name(ConfigSource.JAAS, name)
            warnings.append(ignored_warning(ConfigSource.JAAS, display_name, f"set {_OTHER_SETTINGS[name]}"))
        elif name not in _WITHOUT_EFFECT:
            raise OptionError(
                f"{config}: {name} is not supported; set oauth.client.id, oauth.client.secret and {_URL}, or the "
                "option oauthTokenProvider to module:factory, a Python function that returns a provider of tokens"
            )
    return renamed


def token_url_name(options: Mapping[str, str]) -> str:
    """Return the name of the option of a login module that is the URL of tokens."""
    return format_name(ConfigSource.JAAS, _TOKEN_FILE if _TOKEN_FILE in options else _URL)
