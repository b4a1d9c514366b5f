"""``spark.kafka.clusters.*``: the driver's login, and which queries use the token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.options.parsed_security import CREDENTIALS, PLAIN_MODULE

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.kafka_params import parse_kafka_params
from pyspark_kafka_direct.options.read_options import parse_batch_options, parse_columns, parse_stream_options
from pyspark_kafka_direct.options.security_settings import DelegationTokenLogin, SaslSettings, Secret, SecuritySettings
from pyspark_kafka_direct.options.sink_options import parse_sink_options
from pyspark_kafka_direct.options.token_cluster_parser import TokenClusterConfig, parse_token_clusters
from pyspark_kafka_direct.options.token_clusters import TokenCluster

MAIN = DelegationTokenLogin("app", "main")
OTHER = DelegationTokenLogin("app", "other")
TOKEN = SaslSettings("SCRAM-SHA-512", token_login=MAIN)
JAAS = "kafka.sasl.jaas.config"
LOGIN = {"kafka.sasl.mechanism": "PLAIN", JAAS: f"{PLAIN_MODULE} required {CREDENTIALS}"}


def clusters(**settings: str) -> tuple[TokenClusterConfig, ...]:
    """Parse the cluster ``main``; ``_`` in names stands for a dot."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return parse_token_clusters(
        {f"spark.kafka.clusters.main.{name}": value for name, value in named.items()}, "app", []
    )


def security(options: dict[str, str], *token_clusters: TokenCluster) -> SecuritySettings:
    given = {"kafka.bootstrap.servers": "a:9093,b:9093", "subscribe": "t", **options}
    settings = parse_batch_options(given, token_clusters)
    assert parse_stream_options(given, token_clusters).connection == settings.connection
    without_topic = {name: value for name, value in given.items() if name != "subscribe"}
    assert parse_sink_options(without_topic, token_clusters, streaming=True).connection == settings.connection
    parse_columns(given, token_clusters)
    params = {name.removeprefix("kafka."): value for name, value in without_topic.items()}
    assert parse_kafka_params(params, token_clusters=token_clusters).connection.security == settings.connection.security
    return settings.connection.security


# Queries


def test_a_query_without_a_login_has_the_token_and_the_protocol_of_the_cluster() -> None:
    found = security({}, TokenCluster(MAIN))
    assert found.protocol == "SASL_SSL"
    assert found.sasl == TOKEN
    assert found.tls is not None
    found = security({}, TokenCluster(MAIN, "SASL_PLAINTEXT", "SCRAM-SHA-256"))
    assert (found.protocol, found.sasl) == ("SASL_PLAINTEXT", SaslSettings("SCRAM-SHA-256", token_login=MAIN))


def test_a_token_without_tls_causes_a_warning() -> None:
    def warnings(servers: str, protocol: str, **options: str) -> tuple[str, ...]:
        given = {"kafka.bootstrap.servers": servers, "subscribe": "t", **options}
        return parse_batch_options(given, [TokenCluster(MAIN, protocol)]).warnings  # type: ignore[arg-type]

    (warning,) = warnings("a:9093,localhost:9093", "SASL_PLAINTEXT")
    assert warning.endswith(
        "SASL_PLAINTEXT sends a hash that reveals weak passwords unencrypted over the network; use SASL_SSL"
    )
    assert warnings("a:9093", "SASL_SSL", **{"kafka.security.protocol": "SASL_PLAINTEXT"}) == (warning,)
    assert warnings("a:9093", "SASL_SSL") == warnings("localhost:9093,[::1]:1", "SASL_PLAINTEXT") == ()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_mechanism_of_the_cluster_applies_as_in_spark(mechanism: str) -> None:
    assert security({"kafka.sasl.mechanism": mechanism}, TokenCluster(MAIN)).sasl == TOKEN


def test_a_given_protocol_is_kept() -> None:
    assert security({"kafka.security.protocol": "SASL_PLAINTEXT"}, TokenCluster(MAIN)).sasl == TOKEN
    for protocol in ("PLAINTEXT", "SSL"):
        assert security({"kafka.security.protocol": protocol}, TokenCluster(MAIN)).sasl is None
    assert security({}, TokenCluster(MAIN, "SSL")).protocol == "SSL"
    assert security({}, TokenCluster(MAIN, "SSL")).sasl is None


def test_a_login_of_the_query_takes_precedence() -> None:
    found = security({"kafka.security.protocol": "SASL_SSL", **LOGIN}, TokenCluster(MAIN))
    assert found.sasl == SaslSettings("PLAIN", "alice", Secret("hunter2"))
    librdkafka = {"kafka.sasl.username": "u", "kafka.sasl.password": "p", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
    found = security({"kafka.security.protocol": "SASL_SSL", **librdkafka}, TokenCluster(MAIN))
    assert found.sasl == SaslSettings("SCRAM-SHA-512", "u", Secret("p"))
    # Without a protocol the login has no effect, as without tokens.
    assert security(LOGIN, TokenCluster(MAIN)).protocol == "PLAINTEXT"


@pytest.mark.parametrize(
    ("target", "matches"),
    [(".*", True), ("b:9093", True), ("(a|b):\\d+", True), ("c:.*", False), ("a", False), ("a:9093,b:9093", False)],
)
def test_one_server_has_to_match_as_a_whole_as_in_spark(target: str, matches: bool) -> None:
    found = security({}, TokenCluster(MAIN, target=target))
    assert (found.sasl == TOKEN) is matches
    assert found.protocol == ("SASL_SSL" if matches else "PLAINTEXT")


def test_an_expression_that_matches_no_server_of_a_query_without_a_login_is_an_error() -> None:
    with pytest.raises(OptionError) as caught:
        security({"kafka.security.protocol": "SASL_SSL"}, TokenCluster(MAIN, target="c:.*"))
    assert "target.bootstrap.servers.regex of no cluster in spark.kafka.clusters.* matches" in caught.value.message
    assert security({"kafka.security.protocol": "SASL_SSL", **LOGIN}, TokenCluster(MAIN, target="c:.*")).sasl


def test_a_keytab_under_librdkafkas_names_is_a_login_with_the_default_mechanism() -> None:
    """The default of Java and librdkafka is GSSAPI, so a query need not set the mechanism."""
    keytab = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.kerberos.service.name": "kafka",
        "kafka.sasl.kerberos.keytab": "alice.keytab",
        "kafka.sasl.kerberos.principal": "alice@EXAMPLE.COM",
    }
    for target in ("c:.*", ".*"):
        sasl = security(keytab, TokenCluster(MAIN, target=target)).sasl
        assert sasl is not None
        assert (sasl.mechanism, sasl.token_login) == ("GSSAPI", None)
    without_keytab = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.kerberos.service.name": "kafka"}
    assert security(without_keytab, TokenCluster(MAIN)).sasl == TOKEN, "as in Spark: no login"


@pytest.mark.parametrize("options", [{}, {"kafka.sasl.mechanism": "SCRAM-SHA-512"}])
def test_a_query_without_a_login_is_told_of_enable(options: dict[str, str]) -> None:
    """Without enable(spark), its planner does not know the clusters."""
    advice = r"For the delegation tokens of spark\.kafka\.clusters\.\*, call enable\(spark\) before the query"
    with pytest.raises(OptionError, match=advice):
        security({"kafka.security.protocol": "SASL_SSL", **options})
    params = {name.removeprefix("kafka."): value for name, value in options.items()}
    with pytest.raises(OptionError) as caught:  # a direct stream obtains the tokens itself
        parse_kafka_params({"bootstrap.servers": "a:9093", "security.protocol": "SASL_SSL", **params})
    assert "enable" not in caught.value.message


def test_several_matching_clusters_are_an_error_that_names_them() -> None:
    third = DelegationTokenLogin("app", "third")
    with pytest.raises(OptionError) as caught:
        security({}, TokenCluster(MAIN), TokenCluster(OTHER, target="b:.*"), TokenCluster(third))
    names = "main and spark.kafka.clusters.other and spark.kafka.clusters.third"
    assert f"spark.kafka.clusters.{names}; let" in caught.value.message
    with pytest.raises(OptionError) as caught:
        security({}, TokenCluster(MAIN), TokenCluster(OTHER))
    assert "spark.kafka.clusters.main and spark.kafka.clusters.other" in caught.value.message
    assert "target.bootstrap.servers.regex" in caught.value.message
    assert security({}, TokenCluster(MAIN), TokenCluster(OTHER, target="c:1")).sasl == TOKEN
    assert security({"kafka.security.protocol": "SASL_SSL", **LOGIN}, TokenCluster(MAIN), TokenCluster(OTHER)).sasl


def test_an_expression_that_takes_exponential_time_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"main\.target\.bootstrap\.servers\.regex takes more than 1 second"):
        TokenCluster(MAIN, target="(?:a|aa)+").matches(["a" * 200 + ":1"])


# The configuration


def test_the_defaults_are_those_of_spark() -> None:
    warnings: list[str] = []
    login = {f"spark.kafka.clusters.main.{name}": value for name, value in LOGIN.items()}
    (config,) = parse_token_clusters(
        {"spark.kafka.clusters.main.auth.bootstrap.servers": "a:1,b:2", **login, "spark.app.name": "x"}, "app", warnings
    )
    assert config.cluster == TokenCluster(MAIN, "SASL_SSL", "SCRAM-SHA-512", ".*")
    assert config.connection.bootstrap_servers == (("a", 1), ("b", 2))
    assert config.connection.security.protocol == "SASL_SSL"
    assert config.connection.security.sasl == SaslSettings("PLAIN", "alice", Secret("hunter2"))
    assert warnings == []
    assert "hunter2" not in repr(config)


def test_client_settings_take_precedence() -> None:
    (config,) = clusters(
        auth_bootstrap_servers="a:1",
        security_protocol="SASL_PLAINTEXT",
        sasl_token_mechanism="scram-sha-256",
        target_bootstrap_servers_regex="c:.*",
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="PLAIN",
        kafka_sasl_jaas_config=LOGIN["kafka.sasl.jaas.config"],
        kafka_request_timeout_ms="1234",
    )
    assert config.cluster == TokenCluster(MAIN, "SASL_PLAINTEXT", "SCRAM-SHA-256", "c:.*")
    assert config.connection.security.protocol == "SASL_SSL"
    assert config.connection.request_timeout_ms == 1234


@pytest.mark.parametrize("mechanism", [{}, {"kafka_sasl_mechanism": "GSSAPI"}])
def test_kerberos_is_the_default_with_the_keytab_of_the_application_or_the_ticket_cache(
    mechanism: dict[str, str],
) -> None:
    servers = {"spark.kafka.clusters.main.auth.bootstrap.servers": "a:1"}
    servers |= {f"spark.kafka.clusters.main.{name.replace('_', '.')}": value for name, value in mechanism.items()}
    keytab = {"spark.kerberos.keytab": "/etc/my keys", "spark.kerberos.principal": "me/host@EXAMPLE.COM"}
    before_spark_3 = {name.replace("kerberos", "yarn"): value for name, value in keytab.items()}
    assert parse_token_clusters(servers | keytab, "app", []) == parse_token_clusters(
        servers | before_spark_3, "app", []
    )
    (config,) = parse_token_clusters(servers | keytab, "app", [])
    sasl = config.connection.security.sasl
    assert sasl is not None
    assert sasl.mechanism == "GSSAPI"
    assert sasl.kerberos is not None
    assert (sasl.kerberos.keytab, sasl.kerberos.principal) == ("/etc/my keys", "me/host@EXAMPLE.COM")
    assert sasl.kerberos.service_name == "kafka"
    service = {"spark.kafka.clusters.main.sasl.kerberos.service.name": "brokers"}
    (config,) = parse_token_clusters(servers | service, "app", [])
    sasl = config.connection.security.sasl
    assert sasl is not None
    assert sasl.kerberos is not None
    assert (sasl.kerberos.keytab, sasl.kerberos.service_name) == (None, "brokers")
    assert sasl.kerberos.ticket_cache is not None


def test_a_client_certificate_is_a_login() -> None:
    (config,) = clusters(
        auth_bootstrap_servers="a:1",
        security_protocol="SSL",
        ssl_truststore_location="/ca.pem",
        ssl_keystore_location="/client.p12",
        ssl_keystore_password="p",
        ssl_keystore_type="PKCS12",
    )
    tls = config.connection.security.tls
    assert tls is not None
    assert (tls.truststore_location, tls.keystore_location, tls.keystore_password) == (
        "/ca.pem",
        "/client.p12",
        Secret("p"),
    )
    assert config.connection.security.sasl is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security_protocol": "SASL_SSL"}, "main: auth.bootstrap.servers is missing; set it to the brokers"),
        ({"auth_bootstrap_servers": "a"}, "main: bootstrap.servers"),
        (
            {"sasl_token_mechanism": "PLAIN"},
            "main: sasl.token.mechanism is PLAIN, but brokers accept",
        ),
        ({"target_bootstrap_servers_regex": "(a"}, "main: spark.kafka.clusters.main.target.bootstrap.servers.regex"),
        (
            {
                "kafka_sasl_mechanism": "SCRAM-SHA-512",
                "kafka_sasl_jaas_config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required tokenauth=true "
                    'username="i" password="h";'
                ),
            },
            "main: the login is a delegation token (tokenauth), which cannot create another one",
        ),
    ],
)
def test_invalid_properties(settings: dict[str, str], message: str) -> None:
    login = {"kafka_sasl_mechanism": "PLAIN", "kafka_sasl_jaas_config": LOGIN["kafka.sasl.jaas.config"]}
    servers = {} if "security_protocol" in settings else {"auth_bootstrap_servers": "a:1"}
    with pytest.raises(OptionError) as caught:
        clusters(**servers | login | settings)
    assert f"spark.kafka.clusters.{message}" in caught.value.message


def test_other_protocols_and_unknown_names_are_warnings_as_in_spark() -> None:
    warnings: list[str] = []
    names = {"auth.bootstrap.servers": "a:1", "security.protocol": "PLAINTEXT", "auth.bootstrap.server": "a:1"}
    properties = {f"spark.kafka.clusters.main.{name}": value for name, value in {**names, "flavour": "x"}.items()}
    assert parse_token_clusters(properties, "app", warnings) == ()
    assert any("security.protocol is PLAINTEXT" in warning for warning in warnings)
    assert any("did you mean 'auth.bootstrap.servers'?" in warning for warning in warnings)
    assert any("flavour is unknown, and ignored" in warning for warning in warnings)


def test_each_warning_about_the_settings_of_a_client_is_returned() -> None:
    warnings: list[str] = []
    given = {**LOGIN, "auth.bootstrap.servers": "a:1", "kafka.flavour": "x", "kafka.colour": "y"}
    parse_token_clusters({f"spark.kafka.clusters.main.{name}": each for name, each in given.items()}, "app", warnings)
    assert [any(f"{name} is unknown" in each for each in warnings) for name in ("flavour", "colour")] == [True, True]


def test_tokens_can_be_switched_off() -> None:
    properties = {"spark.kafka.clusters.main.auth.bootstrap.servers": "a:1"}
    switch = {"spark.security.credentials.kafka.enabled": " False "}
    assert parse_token_clusters(properties | switch, "app", []) == ()
    assert parse_token_clusters({"spark.kafka.clusters.": "x", "spark.kafka.clusters.main": "x"}, "app", []) == ()


def test_two_clusters() -> None:
    login = {f"spark.kafka.clusters.{name}.{key}": value for name in ("a", "b") for key, value in LOGIN.items()}
    servers = {f"spark.kafka.clusters.{name}.auth.bootstrap.servers": f"{name}:1" for name in ("a", "b")}
    found = parse_token_clusters(login | servers, "app", [])
    assert [config.cluster.login.cluster for config in found] == ["a", "b"]


def test_a_login_below_the_cluster_without_the_prefix_kafka_is_named_in_the_error() -> None:
    with pytest.raises(OptionError) as caught:
        clusters(
            auth_bootstrap_servers="a:1",
            flavour="x",
            sasl_mechanism="PLAIN",
            kafka_sasl_jaas_config=f"{PLAIN_MODULE} required;",
        )
    assert "main: sasl.mechanism is missing" in caught.value.message
    assert "main.sasl.mechanism is unknown, and ignored; did you mean 'kafka.sasl.mechanism'?" in caught.value.message


def test_the_protocol_of_the_client_settings_decides_on_kerberos_as_in_spark() -> None:
    (found,) = clusters(auth_bootstrap_servers="a:1", security_protocol="SSL", kafka_security_protocol="SASL_SSL")
    assert found.connection.security.sasl is not None
    assert found.connection.security.sasl.mechanism == "GSSAPI"
    (found,) = clusters(auth_bootstrap_servers="a:1", kafka_security_protocol="SSL")
    assert found.connection.security.sasl is None


def test_a_driver_with_a_keytab_under_librdkafkas_names() -> None:
    (found,) = clusters(auth_bootstrap_servers="a:1", kafka_sasl_kerberos_keytab="k", kafka_sasl_kerberos_principal="p")
    assert found.connection.security.sasl is not None
    assert found.connection.security.sasl.kerberos is not None
    assert found.connection.security.sasl.kerberos.principal == "p"


@pytest.mark.parametrize("name", ["credentials", "tokens"])
def test_the_old_names_of_sparks_switch(name: str) -> None:
    cluster = {"spark.kafka.clusters.main.auth.bootstrap.servers": "a:1"}
    old = {f"spark.yarn.security.{name}.kafka.enabled": "false"}
    assert parse_token_clusters(cluster | old, "app", []) == ()
    new = {"spark.security.credentials.kafka.enabled": "true"}
    assert len(parse_token_clusters(cluster | old | new, "app", [])) == 1


def test_secrets_that_sparks_ui_shows_are_warned_of() -> None:
    """Spark masks properties whose names or values contain "password", "secret" or "token", but no private keys."""
    key = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"
    settings = {"auth.bootstrap.servers": "a:1", "security.protocol": "SSL", "kafka.ssl.keystore.type": "PEM"}
    settings |= {"kafka.ssl.keystore.key": key, "kafka.ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----"}
    settings["kafka.sasl.oauthbearer.assertion.private.key.pem"] = key
    properties = {f"spark.kafka.clusters.main.{name}": value for name, value in settings.items()}

    def shown(**more: str) -> list[str]:
        warnings: list[str] = []
        parse_token_clusters(properties | more, "app", warnings)
        return [warning for warning in warnings if "is shown by Spark's UI and event log" in warning]

    of_key, of_assertion = shown()
    assert "main.kafka.ssl.keystore.key is shown" in of_key
    assert "main.kafka.sasl.oauthbearer.assertion.private.key.pem is shown" in of_assertion
    assert "spark.redaction.regex" in of_key
    assert shown(**{"spark.redaction.regex": "(?i)password|keystore[.]key"}) == []


@examples(30)
@given(
    keytab=st.text("ab\\\"'/=; ", min_size=1),
    principal=st.text("ab\\\"'/=;@ ", min_size=1),
    service=st.text("ab", min_size=1),
)
def test_the_keytab_of_the_application_may_have_any_name(keytab: str, principal: str, service: str) -> None:
    properties = {
        "spark.kafka.clusters.main.auth.bootstrap.servers": "a:1",
        "spark.kafka.clusters.main.sasl.kerberos.service.name": service,
        "spark.kerberos.keytab": keytab,
        "spark.yarn.keytab": "other",
        "spark.yarn.principal": principal,
    }
    (config,) = parse_token_clusters(properties, "app", [])
    sasl = config.connection.security.sasl
    assert sasl is not None
    assert sasl.kerberos is not None
    assert (sasl.kerberos.keytab, sasl.kerberos.principal) == (keytab, principal)
    assert (sasl.kerberos.service_name, sasl.kerberos.ticket_cache) == (service, None)
