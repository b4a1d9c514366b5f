"""Parser of the grants of a token endpoint: a client secret, or an assertion (KIP-1139, KIP-1258)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, cast

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.jaas import jaas_value
from pyspark_kafka_direct.options.option_parser import environment_list, file_url_path, format_name
from pyspark_kafka_direct.options.security_settings import (
    AssertionFile,
    ClientAssertion,
    ClientCredentials,
    JwtBearer,
    Secret,
    SignedAssertion,
)
from pyspark_kafka_direct.options.spark_definitions import TOKEN_URLS_VARIABLE
from pyspark_kafka_direct.options.strimzi_options import ASSERTION_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.option_parser import ParsedConfig
    from pyspark_kafka_direct.options.security_settings import Assertion, Grant

Retriever = Literal["DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever", "JwtBearerJwtRetriever"]

_RETRIEVER_CLASS: Final = "sasl.oauthbearer.jwt.retriever.class"
_GRANT_TYPE: Final = "sasl.oauthbearer.grant.type"
_PREFIX: Final = "sasl.oauthbearer.assertion."
_FILE: Final = f"{_PREFIX}file"
_KEY_FILE: Final = f"{_PREFIX}private.key.file"
_KEY: Final = f"{_PREFIX}private.key.pem"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a setting's name


def parse_retriever(parsed: ParsedConfig) -> Retriever:
    """Return which of Kafka's retrievers gets the tokens; librdkafka has a grant type instead."""
    retriever = cast("Retriever", (parsed.get_string(_RETRIEVER_CLASS) or "").rpartition(".")[2])
    grant_type = parsed.get_string(_GRANT_TYPE)
    if grant_type is None:
        return retriever
    of_grant: Retriever = (
        "ClientCredentialsJwtRetriever" if grant_type == "client_credentials" else "JwtBearerJwtRetriever"
    )
    if retriever not in ("DefaultJwtRetriever", of_grant):
        raise OptionError(
            f"{parsed.name_of(_RETRIEVER_CLASS)} is {retriever}, but {parsed.name_of(_GRANT_TYPE)} is {grant_type}; "
            "set only one of them"
        )
    return of_grant


def retriever_option(parsed: ParsedConfig) -> str:
    """Return the name of the option that selects the retriever."""
    return parsed.name_of(_RETRIEVER_CLASS if _RETRIEVER_CLASS in parsed.given_names else _GRANT_TYPE)


def parse_grant(
    parsed: ParsedConfig, jaas_options: Mapping[str, str], retriever: Retriever, warnings: list[str], *, url_name: str
) -> Grant:
    """Return the grant of an endpoint; options take precedence over those of the login module."""
    if retriever == "JwtBearerJwtRetriever":
        return JwtBearer(_parse_assertion(parsed, warnings))
    client_id = parsed.get_string(_CLIENT_ID) or jaas_value(_CLIENT_ID, jaas_options) or ""
    # As Java's ClientCredentialsRequestFormatterFactory.
    if parsed.get_string(_FILE) or parsed.get_string(f"{_PREFIX}claim.iss"):
        return ClientAssertion(_parse_assertion(parsed, warnings), client_id or None)
    if path := jaas_options.get(ASSERTION_FILE):
        option = format_name(ConfigSource.JAAS, ASSERTION_FILE)
        return ClientAssertion(AssertionFile(_allowed_file(path, option), option), client_id or None)
    _warn_of_unused(
        parsed,
        warnings,
        because=f"without {parsed.name_of(f'{_PREFIX}claim.iss')} or {parsed.name_of(_FILE)}, and without "
        "JwtBearerJwtRetriever",
    )
    secret = parsed.get_secret(_CLIENT_SECRET) or Secret(jaas_value(_CLIENT_SECRET, jaas_options) or "")
    if not client_id or not secret:
        missing = "client id" if not client_id else "client secret"
        raise OptionError(
            f"{url_name} is set, but the {missing} is missing; set {parsed.name_of('sasl.jaas.config')}="
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="..." clientSecret="...";'
        )
    return ClientCredentials(client_id, secret, parsed.get_boolean("sasl.oauthbearer.header.urlencode"))


def _parse_assertion(parsed: ParsedConfig, warnings: list[str]) -> Assertion:
    if parsed.get_string(_FILE):
        _warn_of_unused(parsed, warnings, because=f"with {parsed.name_of(_FILE)}")
        return AssertionFile(_allowed_file_of(parsed, _FILE) or "")
    key = parsed.get_secret(_KEY)
    has_file = bool(parsed.get_string(_KEY_FILE))
    if has_file == bool(key):
        names = (parsed.name_of(_KEY_FILE), parsed.name_of(_KEY))
        raise OptionError(
            f"{names[0]} and {names[1]} exclude each other; set only one of them"
            if key
            else f"the private key of the assertion is missing; set {names[0]}, or {parsed.name_of(_FILE)} for "
            "assertions that another program signs"
        )
    claims = ((claim, parsed.get_string(f"{_PREFIX}claim.{claim}")) for claim in ("aud", "iss", "sub"))
    return SignedAssertion(
        algorithm=cast("Literal['RS256', 'ES256']", parsed.get_string(f"{_PREFIX}algorithm")),
        key_file=_allowed_file_of(parsed, _KEY_FILE),
        key=key or None,
        key_passphrase=parsed.get_secret(f"{_PREFIX}private.key.passphrase") or None,
        template_file=_allowed_file_of(parsed, f"{_PREFIX}template.file"),
        claims=tuple((claim, value) for claim, value in claims if value),
        lifetime_seconds=parsed.get_int(f"{_PREFIX}claim.exp.seconds"),
        not_before_seconds=parsed.get_int(f"{_PREFIX}claim.nbf.seconds"),
        has_jti=parsed.get_boolean(f"{_PREFIX}claim.jti.include"),
    )


def _allowed_file_of(parsed: ParsedConfig, name: str) -> str | None:
    path = parsed.get_string(name)
    return _allowed_file(path, parsed.name_of(name)) if path else None


def _allowed_file(path: str, option: str) -> str:
    """Return the path of an option, which the environment of the driver must list as the URL of a file."""
    # Users who may set options, but run no code on the driver, could otherwise log in with any key of its host, or send
    # its files to their endpoint. With a list, the URL of the endpoint must be in it, too.
    if path not in map(file_url_path, environment_list(os.environ, TOKEN_URLS_VARIABLE)):
        raise OptionError(
            f"{option} is not in the environment variable {TOKEN_URLS_VARIABLE} of the driver; to allow "
            "the file, list its URL (such as file:///etc/kafka/key.pem) and that of the token endpoint there"
        )
    return path


def _warn_of_unused(parsed: ParsedConfig, warnings: list[str], *, because: str) -> None:
    given = [given for name, given in parsed.given_names.items() if name.startswith(_PREFIX) and name != _FILE]
    if given:
        warnings.append(f"{', '.join(given)} {'has' if len(given) == 1 else 'have'} no effect {because}")
