"""The options of schema registries."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.client_parser import parse_connection
from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_parser import OPTION_TABLE, OptionTable, parse_config
from pyspark_kafka_direct.options.payload_settings import SidePayload
from pyspark_kafka_direct.options.registry_definitions import REGISTRY_OPTIONS, SUBJECT_OPTIONS
from pyspark_kafka_direct.options.registry_parser import parse_registry, parse_side
from pyspark_kafka_direct.options.registry_settings import (
    REGISTRY_TLS,
    RegistryCredentials,
    RegistrySettings,
)
from pyspark_kafka_direct.options.security_settings import ClientCredentials, EndpointTokens, Secret

if TYPE_CHECKING:
    from pyspark_kafka_direct.options.payload_settings import Side

URL = "https://one:8081"
OAUTH = {
    "bearer.auth.issuer.endpoint.url": "https://idp/token",
    "bearer.auth.client.id": "me",
    "bearer.auth.client.secret": "hunter2",
}
TABLE = OptionTable(
    {option.name: option for option in (*OPTION_TABLE.options, *REGISTRY_OPTIONS, *SUBJECT_OPTIONS)}.values()
)


def parse(**options: str) -> tuple[RegistrySettings | None, list[str]]:
    given = {"kafka.bootstrap.servers": "b:1", **options}
    parsed = parse_config(given, api="batch", source=ConfigSource.OPTION, table=TABLE)
    connection = parse_connection(parsed, [])
    warnings = list(parsed.warnings)
    return parse_registry(parsed, connection.security, warnings), warnings


def settings(**options: str) -> RegistrySettings:
    found, warnings = parse(**{"schema.registry.url": URL, **options})
    assert found is not None
    assert warnings == []
    return found


def credentials(**options: str) -> RegistryCredentials:
    return settings(**options).credentials


def token_endpoint(**options: str) -> EndpointTokens:
    oauth = credentials(**options).oauth
    assert oauth is not None
    assert isinstance(oauth.source, EndpointTokens)
    return oauth.source


def test_without_a_url_there_is_no_registry() -> None:
    assert parse() == (None, [])


def test_defaults() -> None:
    assert settings() == RegistrySettings((URL,), RegistryCredentials(), REGISTRY_TLS)
    assert pickle.loads(pickle.dumps(settings())) == settings()


def test_several_urls_times_and_paths() -> None:
    found = settings(
        **{
            "schema.registry.url": "https://one:8081/, https://two/apis/ccompat/v7/ ,https://one:8081",
            "schema.registry.http.read.timeout.ms": "5",
            "schema.registry.api.timeout.ms": "6",
            "schema.registry.retries.wait.ms": "7",
            "schema.registry.retries.max.wait.ms": "8",
        }
    )
    urls = ("https://one:8081", "https://two/apis/ccompat/v7")
    assert found == RegistrySettings(urls, RegistryCredentials(), REGISTRY_TLS, 5, 6, 7, 8)


@pytest.mark.parametrize(
    "options",
    [
        {"schema.registry.basic.auth.user.info": "me:a:b"},
        {"basic.auth.user.info": "me:a:b", "basic.auth.credentials.source": "USER_INFO"},
        {"schema.registry.url": "https://me:a%3Ab@one:8081"},
        {"schema.registry.url": "https://me:a:b@one:8081", "schema.registry.basic.auth.credentials.source": "url"},
        {
            "schema.registry.basic.auth.credentials.source": "SASL_INHERIT",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "me",
            "kafka.sasl.password": "a:b",
        },
    ],
)
def test_user_and_password(options: dict[str, str]) -> None:
    found = settings(**options)
    assert found.credentials == RegistryCredentials("me", Secret("a:b"))
    assert found.urls == (URL,)
    assert "a:b" not in repr(found)


def test_tokens() -> None:
    assert credentials(**{"schema.registry.bearer.auth.token": "abc"}) == RegistryCredentials(token=Secret("abc"))
    cloud = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
    headers = (("target-sr-cluster", "lsrc-1"), ("Confluent-Identity-Pool-Id", "pool-1"))
    assert credentials(**{"bearer.auth.token": "abc", **cloud}).headers == headers

    endpoint = token_endpoint(**OAUTH, **{"bearer.auth.scope": "read"})
    assert (endpoint.url, endpoint.scope, endpoint.tls) == ("https://idp/token", "read", REGISTRY_TLS)
    assert endpoint.grant == ClientCredentials("me", Secret("hunter2"))
    assert endpoint.url_option == "bearer.auth.issuer.endpoint.url"

    inherited = token_endpoint(
        **{
            "schema.registry.bearer.auth.credentials.source": "SASL_OAUTHBEARER_INHERIT",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            "kafka.sasl.oauthbearer.client.credentials.client.id": "me",
            "kafka.sasl.oauthbearer.client.credentials.client.secret": "hunter2",
        }
    )
    assert inherited.grant == ClientCredentials("me", Secret("hunter2"))


def test_tls() -> None:
    found = settings(
        **{
            "schema.registry.ssl.truststore.location": "/ca.pem",
            "schema.registry.ssl.keystore.location": "/client.p12",
            "schema.registry.ssl.keystore.password": "hunter2",
            "schema.registry.ssl.enabled.protocols": "TLSv1.3",
        }
    ).tls
    assert (found.truststore_location, found.keystore_location) == ("/ca.pem", "/client.p12")
    assert (found.keystore_password, found.minimum_version, found.prefix) == (
        Secret("hunter2"),
        "TLSv1.3",
        "schema.registry.",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"schema.registry.url": "", "basic.auth.user.info": "a:b"},
            "basic.auth.user.info needs a registry; set schem",
        ),
        *(
            ({"schema.registry.url": url}, "schema.registry.url must be URLs such as https://host:8081")
            for url in (
                "one:8081",
                "ftp://one",
                "https://",
                "https://one:x",
                "https://one?x=hunter2",
                "https://one#hunter2",
                "file:///etc/hunter2",
                "https://[::1].one",
                "https://o\u202ene",
                "http://one\\two",
            )
        ),
        ({"basic.auth.user.info": "hunter2"}, "basic.auth.user.info must be user:password"),
        ({"basic.auth.credentials.source": "USER_INFO"}, "basic.auth.user.info must be user:password"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "SASL_INHERIT needs kafka.sasl.username"),
        ({"basic.auth.credentials.source": "URL"}, "URL needs https://user:password@host:8081"),
        ({"basic.auth.credentials.source": "URL", "basic.auth.user.info": "a:hunter2"}, "user.info has no effect with"),
        ({"basic.auth.credentials.source": "FILE"}, "must be USER_INFO, URL or SASL_INHERIT, got 'FILE'"),
        ({"schema.registry.url": "https://a:hunter2@one,https://two"}, "password of all URLs must be the same"),
        ({"schema.registry.url": "https://a:hunter2@one", "basic.auth.user.info": "a:b"}, "contains a user, but"),
        ({"bearer.auth.token": "hunter2 x"}, "bearer.auth.token must be a token: printable ASCII without blanks"),
        ({"bearer.auth.token": "a", "basic.auth.user.info": "a:b"}, "exclude each other"),
        (
            {"bearer.auth.token": "a", "schema.registry.url": "https://a:b@one"},
            "the user in schema.registry.url exclude",
        ),
        ({"bearer.auth.token": "a", "bearer.auth.credentials.source": "OAUTHBEARER"}, "token has no effect with"),
        ({"bearer.auth.token": "a", "bearer.auth.logical.cluster": "a b"}, "logical.cluster must be printable ASCII"),
        ({"bearer.auth.client.id": "me"}, "schema.registry.bearer.auth.issuer.endpoint.url is missing"),
        ({**OAUTH, "bearer.auth.client.secret": ""}, "bearer.auth.client.secret is missing"),
        ({**OAUTH, "bearer.auth.issuer.endpoint.url": "http://idp/token"}, "must be an https: URL"),
        ({**OAUTH, "bearer.auth.issuer.endpoint.url": "https://["}, "is not a valid URL"),
        ({**OAUTH, "bearer.auth.issuer.endpoint.url": "https://me:hunter2@\u2100.example/"}, "is not a valid URL"),
        (
            {"bearer.auth.credentials.source": "SASL_OAUTHBEARER_INHERIT"},
            "SASL_OAUTHBEARER_INHERIT needs kafka.sasl.mechanism=OAUTHBEARER",
        ),
        (
            {"schema.registry.ssl.keystore.key": "hunter2"},
            "schema.registry.ssl.keystore.key is a private key without its certificate; also set "
            "schema.registry.ssl.keystore.certificate.chain",
        ),
        ({"schema.registry.api.timeout.ms": "0"}, "schema.registry.api.timeout.ms must be an integer from 1"),
        ({"schema.registry.urls": URL}, "schema.registry.urls is unknown"),
    ],
)
def test_invalid_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(**{"schema.registry.url": URL, **options})
    assert message in caught.value.message
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (
            {"schema.registry.url": "http://one:8081", "basic.auth.user.info": "a:b"},
            "schema.registry.url sends credentials unencrypted over the network; use https",
        ),
        *(
            (
                {"schema.registry.url": f"{first},http://two:8081", "basic.auth.user.info": "a:b"},
                "schema.registry.url sends credentials unencrypted over the network; use https",
            )
            for first in ("https://one:8081", "http://localhost:8081")
        ),
        (
            {"schema.registry.url": "http://one:8081", "schema.registry.ssl.truststore.location": "/ca.pem"},
            "No URL of schema.registry.url is https, so this has no effect: schema.registry.ssl.truststore.location",
        ),
    ],
)
def test_warnings(options: dict[str, str], warning: str) -> None:
    assert parse(**options)[1] == [warning]


def test_tls_settings_for_the_endpoint_of_tokens_have_an_effect() -> None:
    options = {
        "schema.registry.url": "http://localhost:8081",
        "schema.registry.ssl.truststore.location": "/ca.pem",
        "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.issuer.endpoint.url": "https://tokens/token",
        "bearer.auth.client.id": "me",
        "bearer.auth.client.secret": "hunter2",
    }
    assert parse(**options)[1] == []


def test_credentials_are_sent_to_this_host_without_a_warning() -> None:
    assert parse(**{"schema.registry.url": "http://localhost:8081", "basic.auth.user.info": "a:b"})[1] == []


def test_subjects() -> None:
    def parsed_side(side: Side, options: dict[str, str], registry: str = "https://r:8081") -> SidePayload:
        formats = {"keyFormat": "avro", "valueFormat": "avro", "schema.registry.url": registry}
        broker = {"kafka.bootstrap.servers": "b:1"}
        return parse_side(parse_config({**broker, **formats, **options}, api="batch", source=ConfigSource.OPTION), side)

    assert parsed_side("value", {}) == SidePayload("value", "avro", framing="confluent")
    assert parsed_side("value", {}, registry="") == SidePayload("value", "avro", framing="none")
    assert parsed_side("value", {"valueFormat": "json"}) == SidePayload("value", "json", framing="none")
    options = {"keySubject": "k", "valueSubjectNameStrategy": "Topic-Record", "valueSchemaVersion": "12"}
    found = parsed_side("value", {"valueFraming": "header", **options})
    assert found == SidePayload("value", "avro", framing="header", strategy="topic-record", version="12")
    assert parsed_side("key", options).subject == "k"
    for version in ("0", "-1", "newest", "1.5"):
        with pytest.raises(OptionError, match="valueSchemaVersion must be latest or the number of a version"):
            parsed_side("value", {"valueSchemaVersion": version})
