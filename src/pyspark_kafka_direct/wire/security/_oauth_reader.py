"""OAUTHBEARER settings: which of the three sources of tokens, and what it needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.settings.security import OAuthSettings, UnsecuredClaims
from pyspark_kafka_direct.wire._table import read_settings
from pyspark_kafka_direct.wire.security._tls_reader import read_tls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark_kafka_direct.settings.security import TlsSettings
    from pyspark_kafka_direct.wire._setting import Value

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a setting's name
_SCOPE: Final = "sasl.oauthbearer.scope"
_UNSECURED: Final = "unsecuredLogin"
_PROVIDER: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def read_oauth(
    values: Mapping[str, Value],
    given: Mapping[str, str],
    jaas: Mapping[str, str],
    provider: str | None,
    notes: list[str],
) -> OAuthSettings:
    """Build OAUTHBEARER settings.

    Args:
        values: Values by table name.
        given: Table name to the name it was given under.
        jaas: Options of the ``OAuthBearerLoginModule``: ``clientId``, ``clientSecret``, ``scope``, ``ssl.*``,
            ``extension_*``, ``unsecuredLogin*``.
        provider: The option ``oauthTokenProvider``.
        notes: Gets a line for what weakens security.

    Raises:
        OptionError: No source of tokens, or one that lacks something.
    """
    extensions = _extensions(values, given, jaas)
    url = cast("str | None", values.get(_URL))
    if provider:
        if url is not None:
            raise OptionError(
                f"options oauthTokenProvider and kafka.{given[_URL]} exclude each other; give one of them"
            )
        return OAuthSettings(provider=_checked_provider(provider), extensions=extensions)
    if url is not None:
        return _endpoint(url, values, given, jaas, extensions, notes)
    if any(name.startswith(_UNSECURED) for name in jaas):
        notes.append("kafka.sasl.jaas.config asks for an unsigned token (unsecuredLogin...), which is for tests only")
        return OAuthSettings(unsecured=_unsecured(jaas), extensions=extensions)
    raise OptionError(
        "kafka.sasl.mechanism is OAUTHBEARER, but nothing says where tokens come from; set the option "
        "oauthTokenProvider to module:factory (Python code that gives them), or "
        f"kafka.{_URL} with clientId and clientSecret in kafka.sasl.jaas.config"
    )


def _checked_provider(provider: str) -> str:
    provider = provider.strip()
    if _PROVIDER.fullmatch(provider) is None:
        raise OptionError(
            f"option oauthTokenProvider: {provider!r} is not allowed; write module:factory, for example "
            "my_tokens:provider"
        )
    return provider


def _endpoint(
    url: str,
    values: Mapping[str, Value],
    given: Mapping[str, str],
    jaas: Mapping[str, str],
    extensions: tuple[tuple[str, str], ...],
    notes: list[str],
) -> OAuthSettings:
    written_as = given[_URL]
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
            f"option kafka.{written_as} is not an address that can be used; write https://host/path (or "
            "file:///path to a file that holds a token), and credentials in kafka.sasl.jaas.config"
        )
    if parts.scheme == "http":
        notes.append(f"option kafka.{written_as} sends the client secret over the network in clear; use https")
    client_id = cast("str | None", values.get(_ID)) or jaas.get("clientId")
    secret = cast("Secret | None", values.get(_SECRET)) or Secret(jaas.get("clientSecret", ""))
    if not client_id or not secret:
        lacking = "client id" if not client_id else "client secret"
        raise OptionError(
            f"option kafka.{written_as} is set, but the {lacking} is missing; write kafka.sasl.jaas.config="
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="..." clientSecret="...";'
        )
    return OAuthSettings(
        token_endpoint_url=url,
        client_id=client_id,
        client_secret=secret,
        scope=cast("str | None", values.get(_SCOPE)) or jaas.get("scope") or None,
        urlencode_header=bool(values["sasl.oauthbearer.header.urlencode"]),
        endpoint_tls=_endpoint_tls(jaas, notes),
        connect_timeout_ms=cast("int", values["sasl.login.connect.timeout.ms"]),
        read_timeout_ms=cast("int", values["sasl.login.read.timeout.ms"]),
        extensions=extensions,
    )


def _endpoint_tls(jaas: Mapping[str, str], notes: list[str]) -> TlsSettings:
    # Java's JaasOptionsUtils: the endpoint is not the broker, so its TLS settings stand inside the JAAS options.
    try:
        read = read_settings({name: text for name, text in jaas.items() if name.startswith("ssl.")})
        own_notes = list(read.notes)
        settings = read_tls(read.values, read.given, own_notes)
    except OptionError as error:
        raise OptionError(f"inside kafka.sasl.jaas.config: {error.message}") from None
    notes += [f"inside kafka.sasl.jaas.config: {note}" for note in own_notes]
    return settings


def _extensions(
    values: Mapping[str, Value], given: Mapping[str, str], jaas: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    pairs = [
        (name.removeprefix(prefix), text)
        for prefix in ("extension_", "unsecuredLoginExtension_")
        for name, text in jaas.items()
        if name.startswith(prefix)
    ]
    for text in cast("tuple[str, ...]", values.get("sasl.oauthbearer.extensions", ())):
        name, sign, value = text.partition("=")
        if not sign:
            raise OptionError(
                f"option kafka.{given['sasl.oauthbearer.extensions']}: write key=value pairs separated by commas"
            )
        pairs.append((name.strip(), value.strip()))
    return check_extensions(pairs, "sasl.jaas.config")


def check_extensions(pairs: Iterable[tuple[str, str]], source: str) -> tuple[tuple[str, str], ...]:
    """Check SASL extensions: letters as a name (not ``auth``), printable ASCII as a value (RFC 7628, 3.1).

    Raises:
        OptionError: A pair is not allowed; its value is not shown.
    """
    checked = dict(pairs)
    for name, value in checked.items():
        if re.fullmatch(r"[A-Za-z]+", name) is None or name == "auth":
            raise OptionError(
                f"{source}: the SASL extension name {name!r} is not allowed; write letters only, not auth"
            )
        if re.fullmatch(r"[\x21-\x7E \t\r\n]+", value) is None:
            raise OptionError(f"{source}: the value of the SASL extension {name} is not allowed; write printable ASCII")
    return tuple(checked.items())


def _unsecured(jaas: Mapping[str, str]) -> UnsecuredClaims:
    claims: dict[str, str | float | tuple[str, ...]] = {}
    for option, text in jaas.items():
        if name := _claim(option, "String"):
            claims[name] = text
        elif name := _claim(option, "Number"):
            try:
                claims[name] = float(text)
            except ValueError:
                raise OptionError(f"kafka.sasl.jaas.config: {option} is not a number") from None
        elif name := _claim(option, "List"):
            # Java: the first character is the separator of the rest.
            claims[name] = tuple(text[1:].split(text[0])) if text else ()
    reserved = claims.keys() & {"iat", "exp"}
    if reserved:
        raise OptionError(
            f"kafka.sasl.jaas.config: the claim {min(reserved)} is set by the token itself; leave it out "
            "(unsecuredLoginLifetimeSeconds says how long the token is valid)"
        )
    principal = jaas.get("unsecuredLoginPrincipalClaimName") or "sub"
    if not claims.get(principal):
        raise OptionError(
            f"kafka.sasl.jaas.config: the unsigned token needs a user; write {_UNSECURED}StringClaim_{principal}"
        )
    lifetime = jaas.get("unsecuredLoginLifetimeSeconds") or "3600"
    if re.fullmatch(r"[0-9]{1,9}", lifetime) is None or int(lifetime) < 1:
        raise OptionError("kafka.sasl.jaas.config: unsecuredLoginLifetimeSeconds is not a whole number of 1 or more")
    return UnsecuredClaims(tuple(claims.items()), int(lifetime))


def _claim(option: str, kind: str) -> str:
    prefix = f"{_UNSECURED}{kind}Claim_"
    return option.removeprefix(prefix) if option.startswith(prefix) else ""
