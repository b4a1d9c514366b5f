"""Parser of the sources of OAUTHBEARER tokens."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, unquote, urlsplit

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.assertion_parser import parse_grant, parse_retriever, retriever_option
from pyspark_kafka_direct.options.cloud_parser import parse_vendor_tokens, token_vendor
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.connection_definitions import LOOPBACK_HOSTS
from pyspark_kafka_direct.options.jaas import jaas_value
from pyspark_kafka_direct.options.option_parser import environment_list, parse_config
from pyspark_kafka_direct.options.security_settings import (
    ClientCredentials,
    EndpointTokens,
    FileTokens,
    OAuthSettings,
    ProviderTokens,
    UnsecuredTokens,
    check_extensions,
)
from pyspark_kafka_direct.options.spark_definitions import TOKEN_PROVIDERS_VARIABLE, TOKEN_URLS_VARIABLE
from pyspark_kafka_direct.options.strimzi_options import TOKEN_URL, token_url_name, with_kafka_names
from pyspark_kafka_direct.options.tls_parser import parse_tls
from pyspark_kafka_direct.options.user_factories import check_allowed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.security_settings import TlsSettings, TokenSource

_SCOPE: Final = "sasl.oauthbearer.scope"
# Of a URL. urlsplit and http.client find different hosts in others, such as [::1].example.com, x[::1] and a@b.
UNAMBIGUOUS_NETLOC: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
_UNSECURED_PREFIX: Final = "unsecuredLogin"


def parse_oauth(
    parsed: ParsedConfig, jaas_options: Mapping[str, str], warnings: list[str], *, mechanism: str = "OAUTHBEARER"
) -> OAuthSettings:
    """Parse the settings of OAUTHBEARER, or AWS_MSK_IAM, from options and from the options of the login module."""
    kafka_options = with_kafka_names(jaas_options, parsed.name_of("sasl.jaas.config"), warnings)
    url_name = parsed.name_of(TOKEN_URL) if TOKEN_URL not in kafka_options else token_url_name(jaas_options)
    extensions = _parse_extensions(parsed, kafka_options)
    return OAuthSettings(_parse_source(parsed, kafka_options, url_name, warnings, mechanism=mechanism), extensions)


def _parse_source(
    parsed: ParsedConfig, jaas_options: Mapping[str, str], url_name: str, warnings: list[str], *, mechanism: str
) -> TokenSource:
    provider = parsed.get_string("oauthTokenProvider")
    url = parsed.get_string(TOKEN_URL) or jaas_options.get(TOKEN_URL)
    if selection := token_vendor(parsed, mechanism):
        vendor, option = selection
        if url is not None or provider not in (None, vendor):
            other = "oauthTokenProvider" if url is None else url_name
            raise OptionError(f"{option} and {other} exclude each other; set only one of them")
        return parse_vendor_tokens(vendor, parsed, jaas_options, warnings)
    if provider:
        if url is not None:
            raise OptionError(f"oauthTokenProvider and {url_name} exclude each other; set only one of them")
        if parse_retriever(parsed) != "DefaultJwtRetriever":
            raise OptionError(
                f"oauthTokenProvider and {retriever_option(parsed)} exclude each other; set only one of them"
            )
        _check_provider(provider)
        return ProviderTokens(provider)
    if url is not None:
        return _parse_url(url, url_name, parsed, jaas_options, warnings)
    if (retriever := parse_retriever(parsed)) != "DefaultJwtRetriever":
        raise OptionError(f"{parsed.name_of(TOKEN_URL)} is missing; {retriever} gets tokens from there")
    if any(name.startswith(_UNSECURED_PREFIX) for name in jaas_options):
        config = parsed.name_of("sasl.jaas.config")
        warnings.append(f"{config} configures an unsigned token (unsecuredLogin...), which is for tests only")
        return _parse_unsecured_tokens(jaas_options, config)
    raise OptionError(
        f"{parsed.name_of('sasl.mechanism')} is OAUTHBEARER, but no source of tokens is configured; set "
        "oauthTokenProvider to msk, azure, gcp or module:factory (a Python function that returns a provider), or "
        f"{parsed.name_of(TOKEN_URL)} with clientId and clientSecret in {parsed.name_of('sasl.jaas.config')}"
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


def _parse_url(
    url: str, name: str, parsed: ParsedConfig, jaas_options: Mapping[str, str], warnings: list[str]
) -> FileTokens | EndpointTokens:
    """Return a file, or an endpoint with its credentials; options take precedence over those of the login module."""
    config = parsed.name_of("sasl.jaas.config")
    url_parts = parse_token_url(url, name, config)
    is_file = url_parts.scheme == "file"
    retriever = parse_retriever(parsed)
    if retriever != "DefaultJwtRetriever" and is_file != (retriever == "FileJwtRetriever"):
        needed = "an https: URL" if is_file else "the file: URL of a token"
        raise OptionError(f"{name} must be {needed} for {retriever}; set it, or remove {retriever_option(parsed)}")
    if is_file:  # contains a token, so no credentials are needed
        return FileTokens(unquote(url_parts.path))
    grant = parse_grant(parsed, jaas_options, retriever, warnings, url_name=name)
    if url_parts.scheme == "http" and url_parts.hostname not in LOOPBACK_HOSTS:
        credential = "client secret" if isinstance(grant, ClientCredentials) else "assertion"
        warnings.append(f"{name} sends the {credential} unencrypted over the network; use https")
    return EndpointTokens(
        url,
        grant,
        scope=parsed.get_string(_SCOPE) or jaas_value(_SCOPE, jaas_options) or None,
        audience=jaas_options.get("audience") or None,
        tls=_parse_token_endpoint_tls(parsed, jaas_options, warnings),
        connect_timeout_ms=parsed.get_int("sasl.login.connect.timeout.ms"),
        read_timeout_ms=parsed.get_int("sasl.login.read.timeout.ms"),
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


def _parse_unsecured_tokens(jaas_options: Mapping[str, str], config: str) -> UnsecuredTokens:
    """Return the claims of unsigned tokens from ``unsecuredLogin...`` options, which have the types of JSON."""
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
    return UnsecuredTokens(tuple(claims.items()), int(lifetime))


def _claim_name(option: str, claim_type: str) -> str:
    """Return ``sub`` for ``unsecuredLoginStringClaim_sub``, or ``''`` if the option is no claim of this type."""
    prefix = f"{_UNSECURED_PREFIX}{claim_type}Claim_"
    return option.removeprefix(prefix) if option.startswith(prefix) else ""
