"""Parser of the security settings: the protocol, SASL mechanisms and credentials, and sources of OAUTHBEARER tokens."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import SplitResult, urlsplit

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.connection_definitions import HOST_PORT
from pyspark_kafka_direct.options.hints import either
from pyspark_kafka_direct.options.jaas import LoginModule, jaas_value, parse_jaas
from pyspark_kafka_direct.options.option_parser import environment_list, parse_config
from pyspark_kafka_direct.options.security_settings import (
    NO_SECRET,
    OAuthSettings,
    SaslSettings,
    Secret,
    SecurityProtocol,
    SecuritySettings,
    UnsecuredClaims,
    check_extensions,
)
from pyspark_kafka_direct.options.spark_definitions import TOKEN_PROVIDERS_VARIABLE, TOKEN_URLS_VARIABLE
from pyspark_kafka_direct.options.tls_parser import parse_tls
from pyspark_kafka_direct.options.unsupported_definitions import MSK_ADVICE
from pyspark_kafka_direct.options.user_factories import check_allowed
from pyspark_kafka_direct.options.value_types import invalid_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.security_settings import TlsSettings

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a setting's name
_SCOPE: Final = "sasl.oauthbearer.scope"
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
# Of a URL. urlsplit and http.client find different hosts in others, such as [::1].example.com, x[::1] and a@b.
UNAMBIGUOUS_NETLOC: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
_UNSECURED_PREFIX: Final = "unsecuredLogin"

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_MSK_MODULE: Final = "software.amazon.msk.auth.iam.IAMLoginModule"

# Login modules by class name. Databricks and others prefix the names of their relocated client ("kafkashaded.").
_MECHANISMS_BY_MODULE: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    "com.sun.security.auth.module.Krb5LoginModule": ("GSSAPI",),
    "com.ibm.security.auth.module.Krb5LoginModule": ("GSSAPI",),
    _MSK_MODULE: ("AWS_MSK_IAM",),
}
_MODULE_BY_MECHANISM: Final = {
    mechanism: name for name, mechanisms in _MECHANISMS_BY_MODULE.items() for mechanism in mechanisms
}

_REJECTED_MECHANISMS: Final = {
    "GSSAPI": (
        "Kerberos (GSSAPI) is not supported; use a listener with SCRAM-SHA-512, OAUTHBEARER, or client certificates "
        "(kafka.security.protocol=SSL with kafka.ssl.keystore.*)"
    ),
    "AWS_MSK_IAM": MSK_ADVICE,
}


def parse_security(parsed: ParsedConfig) -> tuple[SecuritySettings, tuple[str, ...]]:
    """Return the security settings, and warnings about options that have no effect or weaken security."""
    protocol = cast("SecurityProtocol", parsed.get_string("security.protocol"))
    warnings: list[str] = []
    tls = sasl = None
    if protocol in ("SSL", "SASL_SSL"):
        tls = parse_tls(parsed, warnings)
    else:
        warnings += _no_effect_warnings(parsed, protocol, prefix="ssl.", required_protocols="SSL or SASL_SSL")
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        sasl = _parse_sasl(parsed, warnings, is_encrypted=tls is not None)
    else:
        if "oauthTokenProvider" in parsed.given_names:
            name = parsed.name_of("security.protocol")
            raise OptionError(
                f"oauthTokenProvider requires SASL, but {name} is {protocol}; set {name}=SASL_SSL and "
                f"{parsed.name_of('sasl.mechanism')}=OAUTHBEARER"
            )
        warnings += _no_effect_warnings(
            parsed, protocol, prefix="sasl.", required_protocols="SASL_SSL or SASL_PLAINTEXT"
        )
    return SecuritySettings(protocol, tls, sasl), tuple(warnings)


def _no_effect_warnings(parsed: ParsedConfig, protocol: str, *, prefix: str, required_protocols: str) -> list[str]:
    """Return a warning if options with this prefix are given, which only other protocols use."""
    given_names = [given_name for name, given_name in parsed.given_names.items() if name.startswith(prefix)]
    if not given_names:
        return []
    verb = "has" if len(given_names) == 1 else "have"
    name = parsed.name_of("security.protocol")
    return [f"{', '.join(given_names)} {verb} no effect with {name}={protocol}; did you mean {required_protocols}?"]


def _parse_sasl(parsed: ParsedConfig, warnings: list[str], *, is_encrypted: bool) -> SaslSettings:
    module = _parse_login_module(parsed)
    mechanism = _parse_mechanism(parsed, module)
    if "oauthTokenProvider" in parsed.given_names and mechanism != "OAUTHBEARER":
        raise OptionError(
            f"oauthTokenProvider is for OAUTHBEARER, but {parsed.name_of('sasl.mechanism')} is {mechanism}; change or "
            "remove one of them"
        )
    if not is_encrypted and not _is_local(parsed):
        protocol = parsed.name_of("security.protocol")
        warnings.append(
            f"{protocol}=SASL_PLAINTEXT sends {_sent_credential(mechanism)} unencrypted over the network; use SASL_SSL"
        )
    if mechanism == "OAUTHBEARER":
        options = module.options if module else {}
        return SaslSettings(mechanism, oauth=_parse_oauth(parsed, options, warnings))
    username, password = _parse_credentials(parsed, module, mechanism)
    if mechanism.startswith("SCRAM"):
        # Only a login module can say that the credentials are those of a delegation token (KIP-48).
        is_token = module is not None and module.options.get("tokenauth", "").lower() == "true"
        return SaslSettings(mechanism, username, password, delegation_token=is_token)
    if "\0" in username + password.reveal():
        raise OptionError("the user name and the password for PLAIN cannot contain the character NUL (RFC 4616)")
    return SaslSettings(mechanism, username, password)


def _is_local(parsed: ParsedConfig) -> bool:
    """Return whether all bootstrap servers are on this host."""
    matches = [HOST_PORT.fullmatch(server) for server in parsed.get_list("bootstrap.servers")]
    return all(match is not None and match[1].lower() in LOOPBACK_HOSTS for match in matches)


def _sent_credential(mechanism: str) -> str:
    if mechanism.startswith("SCRAM"):
        return "a hash that reveals weak passwords"
    return "the password" if mechanism == "PLAIN" else "the token"


def _parse_login_module(parsed: ParsedConfig) -> LoginModule | None:
    config = parsed.get_secret("sasl.jaas.config")
    return None if config is None else parse_jaas(config.reveal(), parsed.name_of("sasl.jaas.config"))


def _parse_mechanism(parsed: ParsedConfig, module: LoginModule | None) -> str:
    """Return the mechanism, or raise an error if it is missing, not supported, or not that of the login module."""
    name, config = parsed.name_of("sasl.mechanism"), parsed.name_of("sasl.jaas.config")
    module_mechanisms = () if module is None else _module_mechanisms(module, config)
    value = parsed.get_string("sasl.mechanism")
    if module_mechanisms == _MECHANISMS_BY_MODULE[_MSK_MODULE]:  # with any mechanism, or none
        raise OptionError(f"{config}: {MSK_ADVICE}")
    if value is None:
        # Those of the login module, or all: Kerberos has a login module, but is not supported.
        supported = [mechanism for mechanism in module_mechanisms if mechanism in MECHANISMS] or list(MECHANISMS)
        raise OptionError(
            f"{name} is missing; set it to {' or '.join(supported)} (Java's default, GSSAPI, is not supported)"
        )
    mechanism = value.upper()
    if mechanism in _REJECTED_MECHANISMS:
        raise OptionError(f"{name}: {_REJECTED_MECHANISMS[mechanism]}")
    if mechanism not in MECHANISMS:
        raise invalid_value(name, value, either(MECHANISMS), candidates=MECHANISMS)
    if module_mechanisms and mechanism not in module_mechanisms:
        raise OptionError(
            f"{name} is {mechanism}, but {config} contains a login module for {' and '.join(module_mechanisms)}; "
            f"{mechanism} needs {_MODULE_BY_MECHANISM[mechanism]}"
        )
    return mechanism


def _module_mechanisms(module: LoginModule, config: str) -> tuple[str, ...]:
    """Return the mechanisms of a login module; ``config`` is the option's name, for errors."""
    for name, mechanisms in _MECHANISMS_BY_MODULE.items():
        if module.name == name or module.name.endswith(f".{name}"):
            return mechanisms
    supported = ", ".join(
        name for name, mechanisms in _MECHANISMS_BY_MODULE.items() if set(mechanisms) & set(MECHANISMS)
    )
    # The name may be a misplaced secret, so it is shown only if it looks like a class name.
    shown_name = f" {module.name!r}" if re.fullmatch(r"[\w$]+(?:\.[\w$]+)+", module.name) else ""
    raise OptionError(f"{config}: the login module{shown_name} is not supported; use one of {supported}")


def _parse_credentials(parsed: ParsedConfig, module: LoginModule | None, mechanism: str) -> tuple[str, Secret]:
    """Return user name and password, from the login module or from librdkafka's options."""
    config = parsed.name_of("sasl.jaas.config")
    if module is not None:
        for option_name in ("sasl.username", "sasl.password"):
            if option_name in parsed.given_names:
                raise OptionError(
                    f"{config} and {parsed.name_of(option_name)} exclude each other; set only one of them"
                )
        username = jaas_value("sasl.username", module.options)
        password = Secret(jaas_value("sasl.password", module.options) or "")
    else:
        username = parsed.get_string("sasl.username")
        password = parsed.get_secret("sasl.password") or NO_SECRET
    if not username or not password:
        missing = "user name" if not username else "password"
        raise OptionError(
            f"{parsed.name_of('sasl.mechanism')} is {mechanism}, but the {missing} is missing; set {config}="
            f'{_MODULE_BY_MECHANISM[mechanism]} required username="..." password="...";'
        )
    return username, password


def _parse_oauth(parsed: ParsedConfig, jaas_options: Mapping[str, str], warnings: list[str]) -> OAuthSettings:
    """Parse OAUTHBEARER settings from options and from the options of the ``OAuthBearerLoginModule``."""
    extensions = _parse_extensions(parsed, jaas_options)
    url, provider = parsed.get_string(_URL), parsed.get_string("oauthTokenProvider")
    if provider:
        if url is not None:
            raise OptionError(f"oauthTokenProvider and {parsed.name_of(_URL)} exclude each other; set only one of them")
        _check_provider(provider)
        return OAuthSettings(provider=provider, extensions=extensions)
    if url is not None:
        return _parse_token_endpoint(url, parsed, jaas_options, extensions, warnings)
    if any(name.startswith(_UNSECURED_PREFIX) for name in jaas_options):
        config = parsed.name_of("sasl.jaas.config")
        warnings.append(f"{config} configures an unsigned token (unsecuredLogin...), which is for tests only")
        return OAuthSettings(unsecured=_parse_unsecured_claims(jaas_options, config), extensions=extensions)
    raise OptionError(
        f"{parsed.name_of('sasl.mechanism')} is OAUTHBEARER, but no source of tokens is configured; set "
        "oauthTokenProvider to module:factory (a Python function that returns a provider), or "
        f"{parsed.name_of(_URL)} with clientId and clientSecret in {parsed.name_of('sasl.jaas.config')}"
    )


def _check_provider(provider: str) -> None:
    allowed = environment_list(os.environ, TOKEN_PROVIDERS_VARIABLE)
    check_allowed(
        "oauthTokenProvider",
        provider,
        allowed,
        variable=TOKEN_PROVIDERS_VARIABLE,
        where="the driver and the executors",
    )


def _parse_token_endpoint(
    url: str,
    parsed: ParsedConfig,
    jaas_options: Mapping[str, str],
    extensions: tuple[tuple[str, str], ...],
    warnings: list[str],
) -> OAuthSettings:
    """Return the endpoint with its credentials; options take precedence over those of the login module."""
    name, config = parsed.name_of(_URL), parsed.name_of("sasl.jaas.config")
    url_parts = parse_token_url(url, name, config)
    if url_parts.scheme == "file":  # contains a token, so no credentials are needed
        return OAuthSettings(token_endpoint_url=url, extensions=extensions)
    if url_parts.scheme == "http" and url_parts.hostname not in LOOPBACK_HOSTS:
        warnings.append(f"{name} sends the client secret unencrypted over the network; use https")
    client_id = parsed.get_string(_CLIENT_ID) or jaas_value(_CLIENT_ID, jaas_options)
    secret = parsed.get_secret(_CLIENT_SECRET) or Secret(jaas_value(_CLIENT_SECRET, jaas_options) or "")
    if not client_id or not secret:
        missing = "client id" if not client_id else "client secret"
        raise OptionError(
            f"{name} is set, but the {missing} is missing; set {config}="
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="..." clientSecret="...";'
        )
    return OAuthSettings(
        token_endpoint_url=url,
        client_id=client_id,
        client_secret=secret,
        scope=parsed.get_string(_SCOPE) or jaas_value(_SCOPE, jaas_options) or None,
        urlencode_header=parsed.get_boolean("sasl.oauthbearer.header.urlencode"),
        endpoint_tls=_parse_token_endpoint_tls(parsed, jaas_options, warnings),
        connect_timeout_ms=parsed.get_int("sasl.login.connect.timeout.ms"),
        read_timeout_ms=parsed.get_int("sasl.login.read.timeout.ms"),
        extensions=extensions,
    )


def parse_token_url(url: str, name: str, config: str) -> SplitResult:
    """Split a URL that a token may be fetched from; errors do not show it because it may contain credentials."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is not a number
    except ValueError:
        parts = urlsplit("")  # rejected below
    if parts.scheme == "file":
        is_valid = parts.path != ""
    else:
        has_host = url.isprintable() and UNAMBIGUOUS_NETLOC.fullmatch(parts.netloc) is not None
        is_valid = parts.scheme in ("https", "http") and has_host
    if not is_valid:
        raise OptionError(f"{name} is not a valid URL; set it to https://host/path, and set credentials in {config}")
    allowed_urls = environment_list(os.environ, TOKEN_URLS_VARIABLE)
    if allowed_urls:
        if url not in allowed_urls:
            raise OptionError(
                f"{name} is not in the environment variable {TOKEN_URLS_VARIABLE} of the driver, which lists the URLs "
                "that are allowed; use one of them, or add it there"
            )
    elif parts.scheme == "file" or (parts.scheme == "http" and parts.hostname not in LOOPBACK_HOSTS):
        # Users who may set options, but run no code on the driver, could otherwise send its files to their broker.
        raise OptionError(
            f"{name} must be an https: URL; to allow a file, or http: on another host, list the URL in the environment "
            f"variable {TOKEN_URLS_VARIABLE} of the driver"
        )
    return parts


def _parse_token_endpoint_tls(
    parsed: ParsedConfig, jaas_options: Mapping[str, str], warnings: list[str]
) -> TlsSettings:
    # As in Java's JaasOptionsUtils, the TLS settings of the endpoint are JAAS options, separate from the brokers'.
    endpoint_options = {name: value for name, value in jaas_options.items() if name.startswith("ssl.")}
    parsed_tls = parse_config(endpoint_options, api=parsed.api, source=ConfigSource.JAAS, table=parsed.table)
    warnings += parsed_tls.warnings
    return parse_tls(parsed_tls, warnings)


def _parse_extensions(parsed: ParsedConfig, jaas_options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the SASL extensions of the login module, and those of librdkafka's option, which take precedence."""
    pairs = [
        (name.removeprefix(prefix), value)
        for prefix in ("extension_", "unsecuredLoginExtension_")  # Java's names: for any token, for unsigned ones
        for name, value in jaas_options.items()
        if name.startswith(prefix)
    ]
    extensions = dict(check_extensions(pairs, parsed.name_of("sasl.jaas.config")))
    option_name = parsed.name_of("sasl.oauthbearer.extensions")
    for pair in parsed.get_list("sasl.oauthbearer.extensions"):
        name, separator, value = pair.partition("=")
        if not separator:
            # The pair is not shown because it may be a misplaced secret.
            raise OptionError(f"{option_name} must be key=value pairs separated by commas")
        extensions.update(check_extensions([(name.strip(), value.strip())], option_name))
    return tuple(extensions.items())


def _parse_unsecured_claims(jaas_options: Mapping[str, str], config: str) -> UnsecuredClaims:
    """Return the claims of an unsigned token from ``unsecuredLogin...`` options, which have the types of JSON."""
    claims: dict[str, str | float | tuple[str, ...]] = {}
    for option, value in jaas_options.items():
        if name := _claim_name(option, "String"):
            claims[name] = value
        elif name := _claim_name(option, "Number"):
            try:
                claims[name] = float(value)
            except ValueError:
                raise OptionError(f"{config}: {option} is not a number") from None
        elif name := _claim_name(option, "List"):
            # As in Java, the first character is the separator of the others.
            claims[name] = tuple(value[1:].split(value[0])) if value else ()
    reserved = claims.keys() & {"iat", "exp"}
    if reserved:
        raise OptionError(
            f"{config}: the claim {min(reserved)} is set automatically; remove it (unsecuredLoginLifetimeSeconds sets "
            "the lifetime of the token)"
        )
    user_claim = jaas_options.get("unsecuredLoginPrincipalClaimName") or "sub"
    if not claims.get(user_claim):
        raise OptionError(f"{config}: the unsigned token has no user; set {_UNSECURED_PREFIX}StringClaim_{user_claim}")
    lifetime = jaas_options.get("unsecuredLoginLifetimeSeconds") or "3600"
    if re.fullmatch(r"[0-9]{1,9}", lifetime) is None or int(lifetime) < 1:
        raise OptionError(f"{config}: unsecuredLoginLifetimeSeconds must be an integer of at least 1")
    return UnsecuredClaims(tuple(claims.items()), int(lifetime))


def _claim_name(option: str, claim_type: str) -> str:
    """Return ``sub`` for ``unsecuredLoginStringClaim_sub``, or ``''`` if the option is no claim of this type."""
    prefix = f"{_UNSECURED_PREFIX}{claim_type}Claim_"
    return option.removeprefix(prefix) if option.startswith(prefix) else ""
