"""Security settings: valid combinations, contradictions, unsupported settings, and secrets that are never shown."""

from __future__ import annotations

import itertools
import pickle
import re
from typing import TYPE_CHECKING

import pytest
from tests.settings import parse_client_params
from tests.unit.options.parsed_security import (
    CREDENTIALS,
    OAUTH_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    TOKEN_URL,
    error,
    oauth,
    parse,
    sasl,
    tls,
)

from pyspark_kafka_direct.options.option_parser import OPTION_TABLE
from pyspark_kafka_direct.options.security_settings import (
    ClientCredentials,
    EndpointTokens,
    OAuthSettings,
    ProviderTokens,
    SaslSettings,
    Secret,
    SecuritySettings,
    TlsSettings,
    UnsecuredTokens,
)
from pyspark_kafka_direct.options.spark_definitions import TOKEN_PROVIDERS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = {option.name: option for option in OPTION_TABLE.options if option.is_client}

JAVA_SECURITY = """
sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.protocol ssl.cipher.suites ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type
""".split()  # noqa: SIM905 - a word list reads better than a page of literals


@pytest.mark.parametrize("name", JAVA_SECURITY)
def test_the_table_knows_every_java_setting(name: str) -> None:
    assert name in SETTINGS


def test_plaintext_has_neither_tls_nor_sasl() -> None:
    assert parse({}) == (SecuritySettings("PLAINTEXT", None, None), ())


@pytest.mark.parametrize(
    ("protocol", "has_tls", "has_sasl"),
    [("ssl", True, False), ("Sasl_Plaintext", False, True), ("SASL_SSL", True, True)],
)
def test_protocol(protocol: str, has_tls: bool, has_sasl: bool) -> None:
    params = {"bootstrap.servers": "localhost:1", "security.protocol": protocol}
    if has_sasl:
        params |= {"sasl.mechanism": "scram-sha-256", "sasl.username": "u", "sasl.password": "p"}
    security, warnings = parse(params)
    assert warnings == ()
    assert security.protocol == protocol.upper()
    assert (security.tls is not None, security.sasl is not None) == (has_tls, has_sasl)


def test_settings_of_another_protocol_cause_a_warning() -> None:
    _, warnings = parse({"sasl.mechanism": "PLAIN", "ssl.ca.location": "/ca.pem"})
    assert warnings == (
        "kafka.ssl.ca.location has no effect with kafka.security.protocol=PLAINTEXT; did you mean SSL or SASL_SSL?",
        "kafka.sasl.mechanism has no effect with kafka.security.protocol=PLAINTEXT; did you mean SASL_SSL or "
        "SASL_PLAINTEXT?",
    )


def test_tls_settings_under_their_java_names() -> None:
    settings = tls(
        ssl_truststore_location="/trust.p12",
        ssl_truststore_password="t",
        ssl_truststore_type="pkcs12",
        ssl_keystore_location="/key.p12",
        ssl_keystore_password="k",
        ssl_key_password="q",
    )
    assert settings == TlsSettings(
        truststore_location="/trust.p12",
        truststore_password=Secret("t"),
        keystore_location="/key.p12",
        keystore_password=Secret("k"),
        key_password=Secret("q"),
    )


def test_tls_settings_under_librdkafka_names() -> None:
    settings = tls(ssl_ca_location="/ca.pem", ssl_certificate_location="/c.pem", ssl_key_location="/k.pem")
    assert settings == TlsSettings(truststore_location="/ca.pem", certificate_location="/c.pem", key_location="/k.pem")
    texts = tls(ssl_ca_pem="CA", ssl_certificate_pem="CERT", ssl_key_pem="KEY")
    assert texts == TlsSettings(truststore_certificates="CA", certificate_chain=Secret("CERT"), key=Secret("KEY"))


def test_probe_means_the_systems_cas() -> None:
    assert tls(ssl_ca_location="probe") == TlsSettings()


def test_an_empty_string_means_not_given() -> None:
    assert tls(ssl_truststore_location="", ssl_keystore_password=" ", ssl_truststore_certificates="") == TlsSettings()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ssl.truststore.location", "ssl.truststore.certificates"),
        ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
        ("ssl.keystore.location", "ssl.certificate.location"),
        ("ssl.keystore.key", "ssl.key.location"),
    ],
)
def test_settings_that_exclude_each_other(first: str, second: str) -> None:
    message = error({"security.protocol": "SSL", first: "a", second: "b"})
    assert f"kafka.{first}" in message
    assert f"kafka.{second}" in message


def test_a_key_requires_its_certificate_and_a_certificate_its_key() -> None:
    assert "without its certificate" in error({"security.protocol": "SSL", "ssl.keystore.key": "hunter2"})
    message = error({"security.protocol": "SSL", "ssl.key.location": "/k.pem"})
    assert "kafka.ssl.key.location is a private key without its certificate" in message
    chain = "ssl.keystore.certificate.chain"
    assert "without its private key" in error({"security.protocol": "SSL", chain: "-----BEGIN CERTIFICATE-----"})


@pytest.mark.parametrize("text", ["", "none", "NONE"])
def test_host_name_verification_can_be_disabled_with_a_warning(text: str) -> None:
    security, warnings = parse({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": text})
    assert security.tls is not None
    assert not security.tls.check_hostname
    assert len(warnings) == 1
    assert "disables host name verification" in warnings[0]
    assert tls().check_hostname
    assert tls(ssl_endpoint_identification_algorithm="HTTPS").check_hostname


def test_certificate_verification_cannot_be_disabled() -> None:
    setting = "enable.ssl.certificate.verification"
    assert "ssl.truststore.certificates" in error({setting: "false"})
    assert parse({setting: "true"})[1] == ()


@pytest.mark.parametrize(
    ("given", "versions"),
    [
        ({}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.protocol": "TLSv1.2"}, ("TLSv1.2", "TLSv1.2")),
        ({"ssl.protocol": "TLS"}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.protocol": "SSL"}, ("TLSv1.2", "TLSv1.3")),  # Java's alias of TLS, which Databricks documents
        ({"ssl.enabled.protocols": "TLSv1.3"}, ("TLSv1.3", "TLSv1.3")),
        ({"ssl.enabled.protocols": " tlsv1.2 "}, ("TLSv1.2", "TLSv1.2")),
    ],
)
def test_tls_versions(given: dict[str, str], versions: tuple[str, str]) -> None:
    security, warnings = parse({"security.protocol": "SSL", **given})
    assert warnings == ()
    assert security.tls is not None
    assert (security.tls.minimum_version, security.tls.maximum_version) == versions


def test_old_tls_versions_are_ignored_or_rejected() -> None:
    _, warnings = parse({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"})
    assert "TLSv1.1 is too old" in warnings[0]
    old = {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1,SSLv3"}
    assert "set it to TLSv1.2,TLSv1.3" in error(old)
    unknown = {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv9"}
    assert "must be TLSv1.2, TLSv1.3 or both, got 'TLSv9'" in error(unknown)


@pytest.mark.parametrize("name", ["ssl.engine.factory.class", "ssl.crl.location", "ssl.providers"])
def test_unsupported_tls_settings_that_would_weaken_security_are_rejected(name: str) -> None:
    assert f"kafka.{name} cannot be used here" in error({"security.protocol": "SSL", name: "x"})


@pytest.mark.parametrize("shading", ["", "kafkashaded.", "org.apache.flink.kafka.shaded."])
def test_plain_from_jaas(shading: str) -> None:
    settings = sasl("PLAIN", f"{shading}{PLAIN_MODULE} required {CREDENTIALS}")
    assert settings == SaslSettings("PLAIN", "alice", Secret("hunter2"))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_from_jaas(mechanism: str) -> None:
    settings = sasl(mechanism, f"{SCRAM_MODULE} required {CREDENTIALS}")
    assert settings == SaslSettings(mechanism, "alice", Secret("hunter2"))


def test_a_delegation_token_from_jaas() -> None:
    settings = sasl("SCRAM-SHA-512", f'{SCRAM_MODULE} required username="id" password="hmac" tokenauth="true";')
    assert settings.is_delegation_token


def test_user_and_password_under_librdkafka_names() -> None:
    settings = sasl("PLAIN", **{"sasl.username": "alice", "sasl.password": " pass word "})
    assert settings == SaslSettings("PLAIN", "alice", Secret(" pass word "))


def test_the_error_about_a_missing_mechanism_names_those_of_the_login_module() -> None:
    jaas = {"security.protocol": "SASL_SSL", "sasl.jaas.config": f"{SCRAM_MODULE} required {CREDENTIALS}"}
    assert "kafka.sasl.mechanism is missing; set it to SCRAM-SHA-256 or SCRAM-SHA-512" in error(jaas)
    expected = "set it to PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512 or OAUTHBEARER"
    assert expected in error({"security.protocol": "SASL_SSL"})


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (
            {"sasl.mechanism": "DIGEST-MD5"},
            "be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM, got 'DIGEST-MD5'",
        ),
        ({"sasl.mechanism": "PLAIN"}, "the user name is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "alice"}, "the password is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a\0b", "sasl.password": "hunter2"}, "NUL"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM_MODULE} required {CREDENTIALS}"},
            f"for SCRAM-SHA-256 and SCRAM-SHA-512; PLAIN needs {PLAIN_MODULE}",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN_MODULE} required;", "sasl.username": "bob"},
            "kafka.sasl.jaas.config and kafka.sasl.username exclude each other",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN_MODULE} required;", "sasl.password": "hunter2"},
            "kafka.sasl.jaas.config and kafka.sasl.password exclude each other",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "com.example.MyModule required;"},
            "'com.example.MyModule' is not supported; use one of org.apache.kafka",
        ),
        *(
            ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "com.example.MyModule required;"}, module)
            for module in (PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE)
        ),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "hunter2 required;"}, "login module is not supported"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": "io.strimzi.X"},
            "oauthTokenProvider to module:factory",
        ),
        ({"sasl.login.class": "X"}, "oauthTokenProvider"),
    ],
)
def test_errors_about_sasl_settings(params: Mapping[str, str], expected: str) -> None:
    assert expected in error({"security.protocol": "SASL_SSL", **params})


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN_MODULE} required {CREDENTIALS}"}, "the password"),
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f"{SCRAM_MODULE} required {CREDENTIALS}"},
            "a hash that reveals weak passwords",
        ),
    ],
)
def test_unencrypted_credentials_cause_a_warning(params: Mapping[str, str], expected: str) -> None:
    for servers in ("a:1", "localhost:1,a:1", "127.0.0.1.example.com:1"):
        _, (warning,) = parse({"bootstrap.servers": servers, "security.protocol": "SASL_PLAINTEXT", **params})
        assert expected in warning
        assert "use SASL_SSL" in warning
    for servers in ("localhost:1", "127.0.0.1:1,[::1]:2"):
        assert parse({"bootstrap.servers": servers, "security.protocol": "SASL_PLAINTEXT", **params})[1] == ()


def test_a_token_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_PROVIDERS_VARIABLE, "my.tokens:provider")
    settings = oauth('extension_logicalCluster="lkc-1"', provider=" my.tokens:provider ")
    assert settings == OAuthSettings(ProviderTokens("my.tokens:provider"), extensions=(("logicalCluster", "lkc-1"),))


def test_a_token_provider_needs_no_jaas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_PROVIDERS_VARIABLE, "m:f")
    assert sasl("OAUTHBEARER", provider="m:f").oauth == OAuthSettings(ProviderTokens("m:f"))


def test_a_token_endpoint_with_settings_of_java() -> None:
    settings = oauth(
        'clientId="me" clientSecret="hunter2" scope="kafka" ssl.truststore.location="/idp.pem"',
        **{
            TOKEN_URL: "https://idp.example.com/token",
            "sasl.login.callback.handler.class": (
                "kafkashaded.org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
            ),
            "sasl.login.read.timeout.ms": "1234",
        },
    )
    assert settings == OAuthSettings(
        EndpointTokens(
            "https://idp.example.com/token",
            ClientCredentials("me", Secret("hunter2")),
            scope="kafka",
            tls=TlsSettings(truststore_location="/idp.pem"),
            read_timeout_ms=1234,
        )
    )


def test_a_token_endpoint_with_settings_of_librdkafka() -> None:
    settings = sasl(
        "OAUTHBEARER",
        **{
            "sasl.oauthbearer.method": "oidc",
            TOKEN_URL: "https://idp.example.com/token",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "hunter2",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
        },
    ).oauth
    assert settings == OAuthSettings(
        EndpointTokens("https://idp.example.com/token", ClientCredentials("me", Secret("hunter2")), scope="kafka"),
        extensions=(("logicalCluster", "lkc-1"), ("identityPoolId", "pool-2")),
    )


def test_an_unsigned_token_for_tests() -> None:
    params = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": (
            f'{OAUTH_MODULE} required scope="s" unsecuredLoginStringClaim_sub="alice" '
            'unsecuredLoginNumberClaim_n="1.5" unsecuredLoginListClaim_scope="|a|b" '
            'unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_x="y";'
        ),
    }
    security, warnings = parse(params)
    assert "for tests only" in warnings[0]
    assert security.sasl is not None
    assert security.sasl.oauth is not None
    unsecured = security.sasl.oauth.source
    assert isinstance(unsecured, UnsecuredTokens)
    assert dict(unsecured.claims) == {"sub": "alice", "n": 1.5, "scope": ("a", "b")}
    assert unsecured.lifetime_seconds == 60
    assert security.sasl.oauth.extensions == (("x", "y"),)


@pytest.mark.parametrize(
    ("jaas", "others", "provider", "expected"),
    [
        ("", {}, None, "no source of tokens is configured"),
        ("", {TOKEN_URL: "https://idp/token"}, "m:f", "exclude each other"),
        ("", {}, "no_factory", "must be msk, azure, gcp or module:factory, got 'no_factory'"),
        ("", {}, "os; system:x", "or module:factory, got"),
        ("", {TOKEN_URL: "https://idp/token"}, None, "the client id is missing"),
        ('clientId="me"', {TOKEN_URL: "https://idp/token"}, None, "the client secret is missing"),
        ("", {TOKEN_URL: "ftp://idp/token"}, None, "not a valid URL"),
        ("", {TOKEN_URL: "https://me:hunter2@idp/token"}, None, "not a valid URL"),
        ('extension_auth="x"', {}, "m:f", "extension name 'auth'"),
        ('extension_a1="x"', {}, "m:f", "extension name 'a1'"),
        ('extension_a="x" extension_a1="x"', {}, "m:f", "extension name 'a1'"),
        (r'extension_a="\001"', {}, "m:f", "printable ASCII"),
        ("", {"sasl.oauthbearer.extensions": "hunter2"}, "m:f", "key=value"),
        ("", {"sasl.oauthbearer.extensions": "a1=x"}, "m:f", "kafka.sasl.oauthbearer.extensions: the SASL"),
        ('extension_a2="x"', {}, "m:f", "kafka.sasl.jaas.config: the SASL"),
        ('unsecuredLoginStringClaim_x="y"', {}, None, "unsecuredLoginStringClaim_sub"),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_exp="1"', {}, None, "the claim exp"),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_n="x"', {}, None, "Claim_n is not a number"),
        ('unsecuredLoginStringClaim_sub="a" unsecuredLoginLifetimeSeconds="-1"', {}, None, "LifetimeSeconds"),
        (
            'clientId="me" clientSecret="hunter2" ssl.protocol="x"',
            {TOKEN_URL: "https://idp/token"},
            None,
            "ssl.protocol inside sasl.jaas.config must be",
        ),
    ],
)
def test_errors_about_oauth_settings(jaas: str, others: Mapping[str, str], provider: str | None, expected: str) -> None:
    params = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH_MODULE} required {jaas};",
        **others,
    }
    assert expected in error(params, provider)


def test_a_token_provider_without_oauthbearer_is_an_error() -> None:
    params = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    assert "OAUTHBEARER" in error(params, "m:f")
    assert "kafka.security.protocol=SASL_SSL" in error({}, "m:f")


def test_secrets_are_masked_and_pickled() -> None:
    secrets = {
        "ssl.truststore.password": "hunter2-t",
        "ssl.keystore.certificate.chain": "hunter2-c PRIVATE KEY",
        "ssl.keystore.key": "hunter2-k",
        "ssl.key.password": "hunter2-p",
        "sasl.jaas.config": f"{SCRAM_MODULE} required {CREDENTIALS}",
    }
    settings = parse_client_params(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "ssl.truststore.location": "/ca.p12",
            **secrets,
        }
    ).connection
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)
    unpickled = pickle.loads(pickle.dumps(settings))
    assert unpickled == settings
    assert unpickled.security.sasl.password.reveal() == "hunter2"


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.secret])
def test_a_secret_given_twice_is_not_shown(name: str) -> None:
    for alias in SETTINGS[name].aliases:
        assert "two" not in error({name: "one-hunter2", alias: "two-hunter2"})


SUITES_OF_13 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
SUITE_OF_12 = "ECDHE-RSA-AES128-GCM-SHA256"


@pytest.mark.parametrize("enabled", ["", "TLSv1.2", "TLSv1.3", "TLSv1.3,TLSv1.2", "TLSv1,TLSv1.1,TLSv1.3"])
@pytest.mark.parametrize("protocol", ["", "TLSv1.2", "TLSv1.3", "TLS", "SSL"])
def test_versions_and_cipher_suites_limit_each_other(enabled: str, protocol: str) -> None:
    suites: tuple[str, ...]
    for suites in (
        (),
        (SUITE_OF_12,),
        SUITES_OF_13[:1],
        SUITES_OF_13[1:],
        SUITES_OF_13,
        (SUITE_OF_12, *SUITES_OF_13[:2]),
        (*SUITES_OF_13, SUITE_OF_12),
    ):
        given = {"security.protocol": "SSL"}
        given |= {"ssl.enabled.protocols": enabled} if enabled else {}
        given |= {"ssl.protocol": protocol} if protocol else {}
        given |= {"ssl.cipher.suites": ":".join(suites)} if suites else {}
        versions = {version for version in ("TLSv1.2", "TLSv1.3") if not enabled or version in enabled}
        if protocol == "TLSv1.2" and "TLSv1.2" in versions:
            versions = {"TLSv1.2"}
        suites_of_13 = [suite for suite in suites if suite in SUITES_OF_13]
        with_suite = {"TLSv1.2"} if SUITE_OF_12 in suites else set()
        with_suite |= {"TLSv1.3"} if suites_of_13 else set()
        usable = sorted(versions & with_suite if suites else versions)
        if not usable:
            assert f"has no suite for {min(versions)}" in error(given)
            continue
        security, warnings = parse(given)
        assert security.tls is not None
        assert (security.tls.minimum_version, security.tls.maximum_version) == (usable[0], usable[-1]), given
        assert security.tls.cipher_suites == ((SUITE_OF_12,) if SUITE_OF_12 in suites else ())
        others = [suite for suite in SUITES_OF_13 if suite not in suites_of_13]
        old = [version for version in enabled.split(",") if version in ("TLSv1", "TLSv1.1")]
        expected = [f": {version} is too old" for version in old]
        if suites_of_13 and others and usable[-1] == "TLSv1.3":
            expected.append(f"cannot select .* {', '.join(others)};")
        assert len(warnings) == len(expected), given
        assert all(re.search(pattern, warning) for pattern, warning in zip(expected, warnings, strict=True))


def test_only_one_option_has_the_certificate_and_one_the_key() -> None:
    locations = ("ssl.keystore.location", "ssl.certificate.location", "ssl.key.location")
    texts = ("ssl.keystore.certificate.chain", "ssl.keystore.key")
    groups = [
        {"ssl.truststore.location", "ssl.truststore.certificates"},
        {"ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.certificate.location"},
        {"ssl.keystore.location", "ssl.keystore.key", "ssl.key.location"},
    ]
    for pair in itertools.combinations(
        (*locations, *texts, "ssl.truststore.location", "ssl.truststore.certificates"), 2
    ):
        given = {"security.protocol": "SSL", **dict.fromkeys(pair, "x")}
        if any(set(pair) <= group for group in groups):
            message = error(given)
            assert message.endswith("exclude each other; set only one of them")
            assert all(f"kafka.{name}" in message for name in pair)
        elif set(pair) & {*texts, "ssl.key.location"} and len(set(pair) & {*texts, *locations}) == 1:
            assert "without its" in error(given)
        else:
            assert parse(given)[1] == ()


def test_options_take_precedence_over_those_of_the_login_module() -> None:
    names = {
        "client.credentials.client.id": "clientId",
        "client.credentials.client.secret": "clientSecret",
        "scope": "scope",
    }
    jaas = " ".join(f'{name}="jaas {name}"' for name in names.values())
    for count in range(4):
        for given in itertools.combinations(names, count):
            options = {f"sasl.oauthbearer.{name}": f"option {name}" for name in given}
            source = oauth(jaas, **{TOKEN_URL: "https://token:1/"}, **options).source
            assert isinstance(source, EndpointTokens)
            assert isinstance(source.grant, ClientCredentials)
            found = (source.grant.client_id, source.grant.client_secret.reveal(), source.scope)
            assert found == tuple(f"option {name}" if name in given else f"jaas {names[name]}" for name in names)
