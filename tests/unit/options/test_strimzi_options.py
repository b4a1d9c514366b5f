"""The options of Strimzi's login callback handler configure the same client-credentials grant as Kafka's."""

from __future__ import annotations

import pytest
from tests.unit.options.parsed_security import OAUTH_MODULE, error, oauth, parse

from pyspark_kafka_direct.options.security_settings import (
    AssertionFile,
    ClientAssertion,
    ClientCredentials,
    EndpointTokens,
    FileTokens,
    OAuthSettings,
    Secret,
    TlsSettings,
)
from pyspark_kafka_direct.options.spark_definitions import TOKEN_URLS_VARIABLE

HANDLER = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
CREDENTIALS = 'oauth.client.id="me" oauth.client.secret="hunter2"'
URL = "https://idp.example.com/token"
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": HANDLER,
}


def strimzi(jaas: str) -> OAuthSettings:
    return oauth(
        f'oauth.token.endpoint.uri="{URL}" {CREDENTIALS} {jaas}', **{"sasl.login.callback.handler.class": HANDLER}
    )


def strimzi_error(jaas: str) -> str:
    return error({**LOGIN, "sasl.jaas.config": f"{OAUTH_MODULE} required {jaas};"})


def test_client_credentials() -> None:
    jaas = (
        'oauth.scope="kafka" oauth.audience="broker" oauth.ssl.truststore.location="/idp.p12" '
        'oauth.ssl.truststore.password="store" oauth.ssl.truststore.type="PKCS12" oauth.sasl.extension.pool="p-1"'
    )
    tls = TlsSettings(truststore_location="/idp.p12", truststore_password=Secret("store"))
    grant = ClientCredentials("me", Secret("hunter2"))
    source = EndpointTokens(URL, grant, scope="kafka", audience="broker", tls=tls)
    assert strimzi(jaas) == OAuthSettings(source, (("pool", "p-1"),))


def test_options_of_brokers_and_metrics_have_no_effect() -> None:
    jaas = 'oauth.username.claim="preferred_username" oauth.access.token.is.jwt="false" oauth.enable.metrics="true"'
    assert strimzi(jaas) == strimzi("")


def test_timeouts_have_other_names() -> None:
    jaas = f'oauth.token.endpoint.uri="{URL}" {CREDENTIALS} oauth.read.timeout.seconds="5"'
    _, (warning,) = parse({**LOGIN, "sasl.jaas.config": f"{OAUTH_MODULE} required {jaas};"})
    assert "oauth.read.timeout.seconds inside sasl.jaas.config is ignored" in warning
    assert "kafka.sasl.login.read.timeout.ms" in warning


def test_a_token_in_a_file_needs_the_permission_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    jaas = 'oauth.access.token.location="/var/run/token"'
    monkeypatch.delenv(TOKEN_URLS_VARIABLE, raising=False)
    assert "oauth.access.token.location inside sasl.jaas.config must be" in strimzi_error(jaas)
    monkeypatch.setenv(TOKEN_URLS_VARIABLE, "file:///var/run/token")
    source = oauth(jaas, **{"sasl.login.callback.handler.class": HANDLER}).source
    assert isinstance(source, FileTokens)
    assert source.path == "/var/run/token"


def test_a_client_assertion_in_a_file_needs_the_permission_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "oauth.client.assertion.location"
    type_of_jwt = 'oauth.client.assertion.type="urn:ietf:params:oauth:client-assertion-type:jwt-bearer"'
    jaas = f'oauth.token.endpoint.uri="{URL}" oauth.client.id="me" {name}="/assertion" {type_of_jwt}'
    monkeypatch.delenv(TOKEN_URLS_VARIABLE, raising=False)
    message = strimzi_error(jaas)
    assert f"{name} inside sasl.jaas.config is not in the environment variable {TOKEN_URLS_VARIABLE}" in message
    assert "must be urn:" in strimzi_error(jaas.replace("jwt-bearer", "saml2-bearer"))
    monkeypatch.setenv(TOKEN_URLS_VARIABLE, f"{URL},file:///assertion")
    source = oauth(jaas, **{"sasl.login.callback.handler.class": HANDLER}).source
    assertion = AssertionFile("/assertion", f"{name} inside sasl.jaas.config")
    assert source == EndpointTokens(URL, ClientAssertion(assertion, "me"))


@pytest.mark.parametrize(
    "name",
    [
        "oauth.access.token",
        "oauth.refresh.token",
        "oauth.refresh.token.location",
        "oauth.client.assertion",
        "oauth.password.grant.username",
        "oauth.password.grant.password",
        "oauth.unknown",
    ],
)
def test_other_grants_are_rejected(name: str) -> None:
    message = strimzi_error(f'oauth.token.endpoint.uri="{URL}" oauth.client.id="me" {name}="hunter2"')
    assert f"kafka.sasl.jaas.config: {name} is not supported" in message
    assert "oauth.client.secret" in message
    assert "oauthTokenProvider" in message


def test_errors_have_the_names_of_strimzi() -> None:
    message = strimzi_error('oauth.token.endpoint.uri="ftp://idp" oauth.client.id="me" oauth.client.secret="hunter2"')
    assert "oauth.token.endpoint.uri inside sasl.jaas.config is not a valid URL" in message
    message = strimzi_error(f'oauth.token.endpoint.uri="{URL}" oauth.client.id="me"')
    assert "the client secret is missing" in message
    message = strimzi_error("")
    assert "no source of tokens is configured" in message
