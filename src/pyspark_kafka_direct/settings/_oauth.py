"""OAUTHBEARER settings: which of the three sources of tokens, and what it needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings._jaas import inside
from pyspark_kafka_direct.settings._reader import read as read_settings
from pyspark_kafka_direct.settings._tls import read_tls
from pyspark_kafka_direct.settings.extensions import check_extensions
from pyspark_kafka_direct.settings.row import Origin
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.settings.security import OAuthSettings, UnsecuredClaims

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.settings._reader import Read
    from pyspark_kafka_direct.settings.security import TlsSettings

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a setting's name
_SCOPE: Final = "sasl.oauthbearer.scope"
_UNSECURED: Final = "unsecuredLogin"


def read_oauth(read: Read, jaas: Mapping[str, str], notes: list[str]) -> OAuthSettings:
    """Build OAUTHBEARER settings.

    Args:
        read: What was given.
        jaas: Options of the ``OAuthBearerLoginModule``: ``clientId``, ``clientSecret``, ``scope``, ``ssl.*``,
            ``extension_*``, ``unsecuredLogin*``.
        notes: Gets a line for what weakens security.

    Raises:
        OptionError: No source of tokens, or one that lacks something.
    """
    extensions = _extensions(read, jaas)
    url, provider = read.text(_URL), read.text("oauthTokenProvider")
    if provider:
        if url is not None:
            raise OptionError(f"oauthTokenProvider and {read.name(_URL)} exclude each other; give one of them")
        return OAuthSettings(provider=provider, extensions=extensions)
    if url is not None:
        return _endpoint(url, read, jaas, extensions, notes)
    if any(name.startswith(_UNSECURED) for name in jaas):
        config = read.name("sasl.jaas.config")
        notes.append(f"{config} asks for an unsigned token (unsecuredLogin...), which is for tests only")
        return OAuthSettings(unsecured=_unsecured(jaas, config), extensions=extensions)
    raise OptionError(
        f"{read.name('sasl.mechanism')} is OAUTHBEARER, but nothing says where tokens come from; set "
        "oauthTokenProvider to module:factory (Python code that gives them), or "
        f"{read.name(_URL)} with clientId and clientSecret in {read.name('sasl.jaas.config')}"
    )


def _endpoint(
    url: str,
    read: Read,
    jaas: Mapping[str, str],
    extensions: tuple[tuple[str, str], ...],
    notes: list[str],
) -> OAuthSettings:
    name, config = read.name(_URL), read.name("sasl.jaas.config")
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme == "file" and parts.path:
        return OAuthSettings(token_endpoint_url=url, extensions=extensions)
    if parts.scheme not in ("https", "http") or not host or parts.username or parts.password:
        # The URL itself is not shown: somebody may have written credentials into it.
        raise OptionError(
            f"{name} is not an address that can be used; write https://host/path (or "
            f"file:///path to a file that holds a token), and credentials in {config}"
        )
    if parts.scheme == "http":
        notes.append(f"{name} sends the client secret over the network in clear; use https")
    client_id = read.text(_ID) or inside(_ID, jaas)
    secret = read.secret(_SECRET) or Secret(inside(_SECRET, jaas) or "")
    if not client_id or not secret:
        lacking = "client id" if not client_id else "client secret"
        raise OptionError(
            f"{name} is set, but the {lacking} is missing; write {config}="
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="..." clientSecret="...";'
        )
    return OAuthSettings(
        token_endpoint_url=url,
        client_id=client_id,
        client_secret=secret,
        scope=read.text(_SCOPE) or inside(_SCOPE, jaas) or None,
        urlencode_header=read.flag("sasl.oauthbearer.header.urlencode"),
        endpoint_tls=_endpoint_tls(read, jaas, notes),
        connect_timeout_ms=read.whole("sasl.login.connect.timeout.ms"),
        read_timeout_ms=read.whole("sasl.login.read.timeout.ms"),
        extensions=extensions,
    )


def _endpoint_tls(read: Read, jaas: Mapping[str, str], notes: list[str]) -> TlsSettings:
    # Java's JaasOptionsUtils: the endpoint is not the broker, so its TLS settings stand inside the JAAS options.
    of_endpoint = {name: text for name, text in jaas.items() if name.startswith("ssl.")}
    settings = read_settings(of_endpoint, door=read.door, origin=Origin.JAAS, table=read.table)
    notes += settings.notes
    return read_tls(settings, notes)


def _extensions(read: Read, jaas: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = [
        (name.removeprefix(prefix), text)
        for prefix in ("extension_", "unsecuredLoginExtension_")
        for name, text in jaas.items()
        if name.startswith(prefix)
    ]
    extensions = dict(check_extensions(pairs, read.name("sasl.jaas.config")))
    own = read.name("sasl.oauthbearer.extensions")
    for text in read.entries("sasl.oauthbearer.extensions"):
        name, sign, value = text.partition("=")
        if not sign:
            # The text is not shown: it may be a secret in the wrong place.
            raise OptionError(f"{own} must be key=value pairs separated by commas")
        extensions.update(check_extensions([(name.strip(), value.strip())], own))
    return tuple(extensions.items())


def _unsecured(jaas: Mapping[str, str], config: str) -> UnsecuredClaims:
    claims: dict[str, str | float | tuple[str, ...]] = {}
    for option, text in jaas.items():
        if name := _claim(option, "String"):
            claims[name] = text
        elif name := _claim(option, "Number"):
            try:
                claims[name] = float(text)
            except ValueError:
                raise OptionError(f"{config}: {option} is not a number") from None
        elif name := _claim(option, "List"):
            # Java: the first character is the separator of the rest.
            claims[name] = tuple(text[1:].split(text[0])) if text else ()
    reserved = claims.keys() & {"iat", "exp"}
    if reserved:
        raise OptionError(
            f"{config}: the claim {min(reserved)} is set by the token itself; leave it out "
            "(unsecuredLoginLifetimeSeconds says how long the token is valid)"
        )
    principal = jaas.get("unsecuredLoginPrincipalClaimName") or "sub"
    if not claims.get(principal):
        raise OptionError(f"{config}: the unsigned token needs a user; write {_UNSECURED}StringClaim_{principal}")
    lifetime = jaas.get("unsecuredLoginLifetimeSeconds") or "3600"
    if re.fullmatch(r"[0-9]{1,9}", lifetime) is None or int(lifetime) < 1:
        raise OptionError(f"{config}: unsecuredLoginLifetimeSeconds is not a whole number of 1 or more")
    return UnsecuredClaims(tuple(claims.items()), int(lifetime))


def _claim(option: str, kind: str) -> str:
    prefix = f"{_UNSECURED}{kind}Claim_"
    return option.removeprefix(prefix) if option.startswith(prefix) else ""
