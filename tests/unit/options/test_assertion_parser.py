"""Java's retrievers of tokens, and the settings of assertions (KIP-1139, KIP-1258)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.options.parsed_security import OAUTH_MODULE, TOKEN_URL, error, oauth, parse, sasl

from pyspark_kafka_direct.options.security_settings import (
    AssertionFile,
    ClientAssertion,
    ClientCredentials,
    EndpointTokens,
    FileTokens,
    JwtBearer,
    Secret,
    SignedAssertion,
)
from pyspark_kafka_direct.options.spark_definitions import TOKEN_PROVIDERS_VARIABLE, TOKEN_URLS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.security_settings import Grant

URL = "https://idp.example.com/oauth2/token"
PACKAGE = "org.apache.kafka.common.security.oauthbearer."
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
GRANT = "sasl.oauthbearer.grant.type"
ASSERTION = "sasl.oauthbearer.assertion."
JWT_BEARER = {TOKEN_URL: URL, RETRIEVER: f"{PACKAGE}JwtBearerJwtRetriever"}
CLIENT = 'clientId="me" clientSecret="hunter2"'
KEY = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"
FILES = {name: f"/etc/kafka/{name}" for name in ("file", "private.key.file", "template.file")}


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [URL, "file:///token", "file:///etc/my%20key", *(f"file://{path}" for path in FILES.values())]
    monkeypatch.setenv(TOKEN_URLS_VARIABLE, ", ".join(urls))


def assertion(**options: str) -> dict[str, str]:
    """Return options of assertions: ``claim_iss`` means ``sasl.oauthbearer.assertion.claim.iss``."""
    return {ASSERTION + name.replace("_", "."): value for name, value in options.items()}


def grant(params: Mapping[str, str], jaas: str = "") -> Grant:
    source = oauth(jaas, **params).source
    assert isinstance(source, EndpointTokens)
    assert source.url == URL
    return source.grant


def oauth_error(params: Mapping[str, str], jaas: str = "", provider: str | None = None) -> str:
    login = {"sasl.jaas.config": f"{OAUTH_MODULE} required {jaas};"}
    return error({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **login, **params}, provider)


@pytest.mark.parametrize("package", [PACKAGE, f"kafkashaded.{PACKAGE}"])
def test_retrievers_by_their_classes(package: str) -> None:
    def source(url: str, name: str) -> object:
        return oauth(CLIENT, **{TOKEN_URL: url, RETRIEVER: f"{package}{name}"}).source

    token_file = FileTokens("/token")
    endpoint = EndpointTokens(URL, ClientCredentials("me", Secret("hunter2")))
    assert source("file:///token", "FileJwtRetriever") == source("file:///token", "DefaultJwtRetriever") == token_file
    assert source(URL, "ClientCredentialsJwtRetriever") == source(URL, "DefaultJwtRetriever") == endpoint


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({TOKEN_URL: URL, RETRIEVER: f"{PACKAGE}FileJwtRetriever"}, "must be the file: URL of a token for FileJwtR"),
        (
            {TOKEN_URL: "file:///token", RETRIEVER: f"{PACKAGE}ClientCredentialsJwtRetriever"},
            f"must be an https: URL for ClientCredentialsJwtRetriever; set it, or remove kafka.{RETRIEVER}",
        ),
        ({TOKEN_URL: "file:///token", RETRIEVER: f"{PACKAGE}JwtBearerJwtRetriever"}, "must be an https: URL for Jwt"),
        ({TOKEN_URL: "file:///token", GRANT: "client_credentials"}, f"or remove kafka.{GRANT}"),
        ({RETRIEVER: f"{PACKAGE}FileJwtRetriever"}, f"kafka.{TOKEN_URL} is missing; FileJwtRetriever"),
        ({RETRIEVER: "com.example.MyJwtRetriever"}, "for another source of tokens, set the option oauthTokenProvider"),
        ({RETRIEVER: "JwtBearerJwtRetriever"}, "a retriever of Kafka, such as org.apache.kafka"),
        ({**JWT_BEARER, GRANT: "client_credentials"}, "is JwtBearerJwtRetriever, but kafka.sasl.oauthbearer.grant.ty"),
        ({TOKEN_URL: URL, GRANT: "password"}, "must be client_credentials or urn:ietf:params:oauth:grant-type:jwt-be"),
    ],
)
def test_contradictions_of_retriever_grant_and_url(params: Mapping[str, str], expected: str) -> None:
    assert expected in oauth_error(params, CLIENT)


def test_a_provider_excludes_a_retriever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_PROVIDERS_VARIABLE, "m:f")
    message = oauth_error({RETRIEVER: f"{PACKAGE}FileJwtRetriever"}, provider="m:f")
    assert f"oauthTokenProvider and kafka.{RETRIEVER} exclude each other" in message
    oauth(provider="m:f", **{RETRIEVER: f"{PACKAGE}DefaultJwtRetriever"})


def test_the_jwt_bearer_grant_with_settings_of_java() -> None:
    options = assertion(
        algorithm="es256",
        private_key_file=FILES["private.key.file"],
        private_key_passphrase="hunter2",
        template_file=FILES["template.file"],
        claim_aud="https://idp/",
        claim_iss="my-client",
        claim_sub="alice",
        claim_exp_seconds="600",
        claim_nbf_seconds="5",
        claim_jti_include="true",
    )
    assert grant({**JWT_BEARER, **options}) == JwtBearer(
        SignedAssertion(
            "ES256",
            key_file=FILES["private.key.file"],
            key_passphrase=Secret("hunter2"),
            template_file=FILES["template.file"],
            claims=(("aud", "https://idp/"), ("iss", "my-client"), ("sub", "alice")),
            lifetime_seconds=600,
            not_before_seconds=5,
            has_jti=True,
        )
    )


def test_the_jwt_bearer_grant_with_settings_of_librdkafka() -> None:
    options = {
        TOKEN_URL: URL,
        "sasl.oauthbearer.method": "oidc",
        GRANT: "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "sasl.oauthbearer.scope": "kafka",
        **assertion(private_key_pem=KEY, jwt_template_file=FILES["template.file"]),
    }
    source = sasl("OAUTHBEARER", **options).oauth
    assert source is not None
    expected = JwtBearer(SignedAssertion(key=Secret(KEY), template_file=FILES["template.file"]))
    assert source.source == EndpointTokens(URL, expected, scope="kafka")


def test_an_assertion_in_a_file_excludes_the_other_settings() -> None:
    options = {**JWT_BEARER, **assertion(file=FILES["file"])}
    assert grant(options) == JwtBearer(AssertionFile(FILES["file"]))
    more = assertion(claim_iss="me", private_key_file="/not/allowed")
    security, warnings = parse({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **options, **more})
    assert warnings == (
        f"kafka.{ASSERTION}claim.iss, kafka.{ASSERTION}private.key.file have no effect with kafka.{ASSERTION}file",
    )
    assert security.sasl is not None


def test_client_assertions_replace_the_secret_as_in_java() -> None:
    key = SignedAssertion(key_file="/etc/my key", claims=(("iss", "me"),))
    options = {TOKEN_URL: URL, **assertion(private_key_file="/etc/my key", claim_iss="me")}
    assert grant(options) == ClientAssertion(key)
    assert grant(options, CLIENT) == ClientAssertion(key, "me")
    assert grant({**options, "sasl.oauthbearer.client.credentials.client.id": "you"}, CLIENT) == ClientAssertion(
        key, "you"
    )
    from_file = {TOKEN_URL: URL, **assertion(file=FILES["file"])}
    assert grant(from_file, CLIENT) == ClientAssertion(AssertionFile(FILES["file"]), "me")


def test_a_key_without_an_issuer_has_no_effect_on_the_client_credentials_grant() -> None:
    options = {TOKEN_URL: URL, **assertion(private_key_file="/not/allowed", claim_sub="me")}
    login = {"sasl.jaas.config": f"{OAUTH_MODULE} required {CLIENT};"}
    security, (warning,) = parse({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **login, **options})
    assert f"have no effect without kafka.{ASSERTION}claim.iss or kafka.{ASSERTION}file" in warning
    assert security.sasl is not None
    assert security.sasl.oauth is not None
    assert isinstance(security.sasl.oauth.source, EndpointTokens)
    assert isinstance(security.sasl.oauth.source.grant, ClientCredentials)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, f"the private key of the assertion is missing; set kafka.{ASSERTION}private.key.file, or"),
        (
            assertion(private_key_file=FILES["private.key.file"], private_key_pem=KEY),
            f"kafka.{ASSERTION}private.key.file and kafka.{ASSERTION}private.key.pem exclude each other",
        ),
        (assertion(private_key_file=KEY), f"kafka.{ASSERTION}private.key.file has a private key"),
        (assertion(algorithm="HS256", private_key_pem=KEY), "must be RS256 or ES256, got 'HS256'"),
        (assertion(algorithm="none", private_key_pem=KEY), "must be RS256 or ES256, got 'none'"),
    ],
)
def test_errors_about_assertions(options: Mapping[str, str], expected: str) -> None:
    assert expected in oauth_error({**JWT_BEARER, **options})


@pytest.mark.parametrize("option", ["file", "private.key.file", "template.file"])
@pytest.mark.parametrize(
    "path",
    [
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "etc/kafka/file",
        "/etc/kafka/../kafka/file",
        "/etc/kafka/./private.key.file",
        "//etc/kafka/template.file",
        "file:///etc/kafka/file",
        "/oauth2/token",
        "/etc/my%20key",
    ],
)
def test_files_of_the_host_need_the_permission_of_the_driver(
    option: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {**JWT_BEARER, **assertion(private_key_pem=KEY), ASSERTION + option: path}
    if option == "private.key.file":
        del params[f"{ASSERTION}private.key.pem"]
    message = oauth_error(params)
    assert f"kafka.{ASSERTION}{option} is not in the environment variable {TOKEN_URLS_VARIABLE} of the" in message
    monkeypatch.setenv(TOKEN_URLS_VARIABLE, "https://[,file://[")  # no URLs
    assert TOKEN_URLS_VARIABLE in oauth_error(params)
    monkeypatch.delenv(TOKEN_URLS_VARIABLE)
    assert TOKEN_URLS_VARIABLE in oauth_error(params)


def test_an_allowed_file_is_sent_to_allowed_endpoints_only() -> None:
    params = {**JWT_BEARER, **assertion(file=FILES["file"]), TOKEN_URL: "https://attacker.example.com/token"}
    assert f"kafka.{TOKEN_URL} is not in the environment variable {TOKEN_URLS_VARIABLE}" in oauth_error(params)


def test_a_key_in_an_option_needs_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_URLS_VARIABLE)
    assert grant({**JWT_BEARER, **assertion(private_key_pem=KEY)}) == JwtBearer(SignedAssertion(key=Secret(KEY)))
