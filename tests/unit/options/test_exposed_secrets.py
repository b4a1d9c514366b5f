"""Options that could weaken TLS, or send files and secrets of the host to brokers, are rejected."""

from __future__ import annotations

import pytest
from tests.unit.options.parsed_security import OAUTH_MODULE, TOKEN_URL, error, oauth, parse, tls

from pyspark_kafka_direct.options.security_settings import EndpointTokens, FileTokens, ProviderTokens
from pyspark_kafka_direct.options.tls_parser import CIPHER_SUITES

TOKEN_URLS = "PYSPARK_KAFKA_DIRECT_TOKEN_URLS"
TOKEN_PROVIDERS = "PYSPARK_KAFKA_DIRECT_TOKEN_PROVIDERS"
CLIENT = 'clientId="me" clientSecret="hunter2"'


def token_url(url: str) -> str:
    source = oauth(CLIENT, **{TOKEN_URL: url}).source
    assert isinstance(source, EndpointTokens)
    return source.url


def oauth_error(url: str) -> str:
    jaas = f"{OAUTH_MODULE} required {CLIENT};"
    params = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas}
    return error({**params, TOKEN_URL: url})


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file:/etc/passwd",
        "file://localhost/etc/passwd",
        "http://idp.example.com/token",
        "HTTP://169.254.169.254/latest/api/token",
        "http://localhost.example.com/token",
        "http://127.0.0.1.example.com/token",
        "http://2130706433/token",
    ],
)
def test_files_and_unencrypted_urls_need_the_permission_of_the_driver(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_URLS, raising=False)
    message = oauth_error(url)
    assert f"kafka.{TOKEN_URL} must be an https: URL" in message
    assert TOKEN_URLS in message
    monkeypatch.setenv(TOKEN_URLS, f"https://other/token, {url}")
    security, warnings = parse(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH_MODULE} required {CLIENT};",
            TOKEN_URL: url,
        }
    )
    assert security.sasl is not None
    assert security.sasl.oauth is not None
    assert isinstance(security.sasl.oauth.source, FileTokens if url.lower().startswith("file") else EndpointTokens)
    assert ["unencrypted" in warning for warning in warnings] == ([True] if url.lower().startswith("http") else [])


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]"])
def test_a_token_endpoint_on_this_host_needs_no_encryption(host: str) -> None:
    assert token_url(f"http://{host}/token") == f"http://{host}/token"


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:80%40idp.example.com/token",
        "http://localhost%2eexample.com/token",
        "http://127.0.0.1\\@idp.example.com/token",
        "http://[::1].example.com/token",
        "http://[::1]example.com/token",
        "http://example.com[::1]/token",
        "http://local\thost/token",
        "https://idp\r\n/token",
        "https://user:password@idp/token",
        "https://:443/token",
        "https://idp:port/token",
        "https:///token",
        "file:",
    ],
)
def test_ambiguous_token_urls_are_rejected(url: str) -> None:
    assert f"kafka.{TOKEN_URL} " in oauth_error(url)


def test_the_list_of_token_urls_excludes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_URLS, "https://idp/token,file:///token")
    assert token_url("https://idp/token") == "https://idp/token"
    for url in ("https://idp/token2", "https://internal/", "http://localhost/", "file:///token/../etc/passwd"):
        assert f"is not in the environment variable {TOKEN_URLS} of the driver" in oauth_error(url)


@pytest.mark.parametrize("allowed", [None, "", "my_tokens:other", "my_tokens", "my_tokens:provide,provider", "*"])
def test_a_token_provider_needs_the_permission_of_the_driver(
    allowed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_PROVIDERS, raising=False)
    if allowed is not None:
        monkeypatch.setenv(TOKEN_PROVIDERS, allowed)
    params = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    for provider in ("my_tokens:provider", "os:abort", "my_tokens:os.abort"):
        message = error(params, provider)
        assert f"oauthTokenProvider: {provider!r} is not allowed" in message
        assert TOKEN_PROVIDERS in message


def test_allowed_token_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_PROVIDERS, "company.tokens:Tokens.make, my_tokens:provider")
    for provider in ("my_tokens:provider", "company.tokens:Tokens.make"):
        assert oauth(provider=provider).source == ProviderTokens(provider)


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.certificate.chain",
        "ssl.certificate.pem",
        "ssl.truststore.certificates",
        "ssl.ca.pem",
        "ssl.keystore.location",
        "ssl.key.location",
        "ssl.truststore.type",
        "client.id",
    ],
)
@pytest.mark.parametrize("label", ["PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY"])
def test_a_private_key_is_rejected_where_it_would_not_be_masked(name: str, label: str) -> None:
    pem = f"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n-----BEGIN {label}-----\nhunter2"
    message = error({"security.protocol": "SSL", name: pem})
    assert f"kafka.{name} has a private key" in message
    assert "kafka.ssl.keystore.key" in message


@pytest.mark.parametrize(
    ("text", "suites", "versions"),
    [
        (
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384",
            ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-SHA384"),
            ("TLSv1.2", "TLSv1.2"),
        ),
        (
            "TLS_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_128_CBC_SHA,TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            ("AES128-SHA", "DHE-RSA-CHACHA20-POLY1305"),
            ("TLSv1.2", "TLSv1.3"),
        ),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", ("ECDHE-ECDSA-AES128-CCM8",), ("TLSv1.2", "TLSv1.2")),
        ("TLS_AES_128_GCM_SHA256", (), ("TLSv1.3", "TLSv1.3")),
        (
            "ECDHE-RSA-AES256-GCM-SHA384:SSL_RSA_WITH_AES_128_GCM_SHA256",
            ("ECDHE-RSA-AES256-GCM-SHA384", "AES128-GCM-SHA256"),
            ("TLSv1.2", "TLSv1.2"),
        ),
    ],
)
def test_cipher_suites(text: str, suites: tuple[str, ...], versions: tuple[str, str]) -> None:
    settings = tls(ssl_cipher_suites=text)
    assert settings.cipher_suites == suites
    assert (settings.minimum_version, settings.maximum_version) == versions


@pytest.mark.parametrize(
    "suite",
    [
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "TLS_DHE_RSA_WITH_AES_128_CCM",
    ],
)
def test_openssl_supports_the_converted_names(suite: str) -> None:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    (name,) = tls(ssl_cipher_suites=suite).cipher_suites
    context.set_ciphers(f"{name}:@SECLEVEL=0")
    assert name in [cipher["name"] for cipher in context.get_ciphers()]


@pytest.mark.parametrize("name", CIPHER_SUITES.values())
def test_openssl_knows_every_suite_with_authentication_and_encryption(name: str) -> None:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(f"{name}:@SECLEVEL=0")
    (cipher,) = (cipher for cipher in context.get_ciphers() if cipher["name"] == name)
    assert "Au=None" not in cipher["description"]
    assert "Enc=None" not in cipher["description"]


@pytest.mark.parametrize(
    "suite",
    [
        "@SECLEVEL=0",
        "aNULL",
        "eNULL",
        "ALL",
        "DEFAULT",
        "EXPORT",
        "!aNULL",
        "-ECDHE",
        "ECDHE+AESGCM",
        "HIGH",
        "ADH-AES128-SHA",
        "AECDH-AES128-SHA",
        "NULL-SHA256",
        "PSK-AES128-GCM-SHA256",
        "TLS_DH_anon_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_NULL_SHA256",
        "TLS_RSA_WITH_RC4_128_MD5",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA384",
    ],
)
def test_only_named_cipher_suites_are_accepted(suite: str) -> None:
    suites = f"ECDHE-RSA-AES128-GCM-SHA256:{suite}"
    message = error({"security.protocol": "SSL", "ssl.cipher.suites": suites})
    assert f"kafka.ssl.cipher.suites: the cipher suite {suite!r} is not supported" in message


def test_suites_of_tls_1_3_that_cannot_be_excluded_are_warned_of() -> None:
    def warnings(suites: str, **others: str) -> tuple[str, ...]:
        return parse({"security.protocol": "SSL", "ssl.cipher.suites": suites, **others})[1]

    (warning,) = warnings("TLS_AES_256_GCM_SHA384,ECDHE-RSA-AES128-SHA")
    assert "may also use TLS_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256; to exclude them" in warning
    assert warnings("TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256") == ()
    assert warnings("ECDHE-RSA-AES128-SHA") == ()
    only_old = {"ssl.enabled.protocols": "TLSv1.2"}
    assert warnings("TLS_AES_256_GCM_SHA384,ECDHE-RSA-AES128-SHA", **only_old) == ()


def test_cipher_suites_and_tls_versions_that_exclude_each_other_are_rejected() -> None:
    ssl_only = {"security.protocol": "SSL"}
    contradiction = {"ssl.cipher.suites": "AES128-SHA", "ssl.enabled.protocols": "TLSv1.3"}
    assert "no suite for TLSv1.3" in error(ssl_only | contradiction)
