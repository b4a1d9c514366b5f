"""Logins with tokens of Amazon MSK and Google Cloud to a real broker, which verifies their signature and format.

The broker's validator is ``tests/java/CloudTokenHandler.java``. The services themselves are not available to tests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import botocore.auth
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.settings import parse_client_params
from tests.shards.brokers import FEW_THREADS, new_kafka
from tests.unit.client.http_services import HttpService, Request, SecurityTokenService
from tests.unit.client.test_google_tokens import use_service_account

from pyspark_kafka_direct import read_arrow
from pyspark_kafka_direct.broker.embedded_kafka import DEFAULT_VERSION
from pyspark_kafka_direct.broker.java import find_java
from pyspark_kafka_direct.broker.maven import kafka_jars
from pyspark_kafka_direct.client.cluster_client import ClusterClient
from pyspark_kafka_direct.errors import AuthenticationError, OptionError
from pyspark_kafka_direct.log import KafkaBasedLog
from pyspark_kafka_direct.options.spark_definitions import TOKEN_HOSTS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafka_direct.broker import EmbeddedKafka
    from pyspark_kafka_direct.options.settings import ConnectionSettings

pytestmark = pytest.mark.spark_app  # all in one shard, for each would start this module's broker

FIRST, SECOND = "cloud-first", "cloud-second"
SECRET = "hunter2/+="
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
IAM_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
GOOGLE_HANDLER = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
NUMBERS = itertools.count(1)
AZURE_TOKEN = "e30.e30.azure"
ROLE = "arn:aws:iam::123456789012:role/reader"


def agent_jar(folder: Path) -> Path:
    """Compile the validator and return its jar."""
    source = Path(__file__).parents[1] / "java" / "CloudTokenHandler.java"
    jars = kafka_jars(DEFAULT_VERSION)[0].parent
    javac = find_java().with_name("javac")
    subprocess.run([javac, "-nowarn", "-cp", f"{jars}/*", "-d", folder, source], check=True, timeout=600)
    jar = folder / "validator.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nPremain-Class: CloudTokenHandler\n")
        for file in folder.glob("*.class"):
            archive.write(file, file.name)
    return jar


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    listener = "listener.name.sasl_ssl.oauthbearer"
    roles = " ".join(f'key_ASIAROLE{number}="role-secret"' for number in range(1, 100))
    keys = f'key_AKIDEXAMPLE="{SECRET}" key_AKIDOTHER="another" {roles}'
    accepted = f'region="eu-west-1" {keys} google="ya29.a" azure="{AZURE_TOKEN}"'
    properties = {
        **FEW_THREADS,
        f"{listener}.sasl.server.callback.handler.class": "CloudTokenHandler",
        f"{listener}.sasl.jaas.config": (f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker" {accepted};'),
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JDK_JAVA_OPTIONS", f"-javaagent:{agent_jar(tmp_path_factory.mktemp('agent'))}")
        cluster = new_kafka(security=["SASL_SSL"], properties=properties).start()
    with contextlib.closing(cluster):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for future in admin.create_topics([NewTopic(name, 2, 1) for name in (FIRST, SECOND)]).values():
            future.result(120)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for value in ("a", "b", "c"):
            producer.produce(FIRST, value)
        assert producer.flush(120) == 0
        yield cluster


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv(TOKEN_HOSTS_VARIABLE, "localhost,127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


def params(kafka: EmbeddedKafka, jaas: str = "") -> dict[str, str]:
    """Return the settings of AWS's library for Java."""
    return {
        "bootstrap.servers": kafka.listener("SASL_SSL"),
        "ssl.truststore.location": str(kafka.certificates.ca),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f'{IAM_MODULE} required awsRegion="eu-west-1" {jaas};',
        "sasl.client.callback.handler.class": IAM_HANDLER,
    }


def settings(kafka: EmbeddedKafka, jaas: str = "", **others: str) -> ConnectionSettings:
    """Return the settings of a client of the test, which shares no connection and no token with other tests."""
    named = {name.replace("_", "."): value for name, value in others.items()}
    named["client.id"] = f"client-{next(NUMBERS)}"
    return parse_client_params(params(kafka, f'{jaas} awsMaxRetries="{next(NUMBERS)}"') | named).connection


def topics(connection: ConnectionSettings) -> set[str]:
    return set(ClusterClient(connection).topics([FIRST, SECOND]))


def rejection(connection: ConnectionSettings) -> str:
    with pytest.raises(AuthenticationError) as caught:
        topics(dataclasses.replace(connection, default_api_timeout_ms=600_000))
    assert SECRET not in str(caught.value)
    return caught.value.message


# Amazon MSK


def test_the_keys_of_the_environment(kafka: EmbeddedKafka) -> None:
    assert topics(settings(kafka)) == {FIRST, SECOND}


def test_the_short_form(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    given = params(kafka)
    del given["sasl.jaas.config"], given["sasl.client.callback.handler.class"]
    connection = parse_client_params({**given, "sasl.mechanism": "OAUTHBEARER"}, oauth_token_provider="msk").connection
    assert topics(connection) == {FIRST, SECOND}


def test_a_role(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    with SecurityTokenService() as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        connection = settings(kafka, f'awsRoleArn="{ROLE}" awsRoleExternalId="ext"')
        with ThreadPoolExecutor(20) as threads:
            found = list(threads.map(lambda _: topics(connection), range(20)))
        assert found == [{FIRST, SECOND}] * 20
        assert [request.form["ExternalId"] for request in sts.requests] == ["ext"]


def test_a_wrong_secret(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")
    message = rejection(settings(kafka))
    assert message.startswith('The broker rejected the token (OAUTHBEARER): "')
    assert "Access denied" in message
    assert "Amazon MSK gives no reason. Check that the IAM policy allows kafka-cluster:Connect" in message
    assert "that the cluster is in eu-west-1, and the clock of " in message


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_wrong_clock(kafka: EmbeddedKafka, hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = datetime.now(UTC) + timedelta(hours=hours)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: wrong.replace(tzinfo=None))
    assert "Access denied" in rejection(settings(kafka))


def test_another_region(kafka: EmbeddedKafka) -> None:
    jaas = f'{IAM_MODULE} required awsRegion="us-east-1";'
    assert "that the cluster is in us-east-1" in rejection(settings(kafka, sasl_jaas_config=jaas))


def test_the_broker_receives_no_token_if_its_host_is_not_allowed(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_HOSTS_VARIABLE)
    with pytest.raises(OptionError, match="is no host of Amazon MSK"):
        settings(kafka)


def test_reads_and_logs_outside_spark(kafka: EmbeddedKafka) -> None:
    with read_arrow(FIRST, params(kafka), start="earliest") as records:
        values = records.read_all()["value"].to_pylist()
    assert sorted(values) == [b"a", b"b", b"c"]
    received: list[bytes | None] = []
    with KafkaBasedLog(FIRST, params(kafka), on_record=lambda record: received.append(record.value)):
        pass  # the start reads the log
    assert sorted(value or b"" for value in received) == [b"a", b"b", b"c"]


def test_a_spark_application(kafka: EmbeddedKafka, tmp_path: Path, source_runner_variables: dict[str, str]) -> None:
    jaas = f'awsRoleArn="{ROLE}" awsRoleAccessKeyId="AKIDGIVEN" awsRoleSecretAccessKey="{SECRET}"'
    options = {f"kafka.{name}": value for name, value in params(kafka, jaas).items()}
    options |= {"subscribe": FIRST, "startingOffsets": "earliest"}
    (tmp_path / "options.json").write_text(json.dumps([options, SECOND]))
    with SecurityTokenService() as sts:
        app = subprocess.run(
            [sys.executable, Path(__file__).with_name("cloud_login_app.py"), tmp_path / "options.json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
            cwd=tmp_path,
            env={**os.environ, **source_runner_variables, "AWS_ENDPOINT_URL_STS": sts.url},
        )
        assert len(sts.requests) > 1  # the driver and the workers have separate sessions
    assert app.returncode == 0, app.stderr[-5000:]
    assert "['a', 'b', 'c']" in app.stdout
    for secret in (SECRET, "role-secret", "role-session"):
        assert secret not in app.stdout + app.stderr


# Google Cloud


@pytest.mark.parametrize("is_valid", [True, False])
def test_a_service_account_of_google(
    kafka: EmbeddedKafka, *, is_valid: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = json.dumps({"access_token": "ya29.a" if is_valid else "ya29.b", "expires_in": 3600})
    with HttpService(lambda _: (200, token)) as google:
        use_service_account(google.url, monkeypatch, tmp_path)
        given = params(kafka) | {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{OAUTH_MODULE} required extension_test="{is_valid}";',
            "sasl.login.callback.handler.class": GOOGLE_HANDLER,
        }
        del given["sasl.client.callback.handler.class"]
        connection = parse_client_params(given).connection
        if is_valid:
            assert topics(connection) == {FIRST, SECOND}
        else:
            message = rejection(connection)
            assert "Check that the service account has the role roles/managedkafka.client" in message
            assert "ya29" not in message


# Azure


def test_a_managed_identity_of_azure(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    def respond(request: Request) -> tuple[int, str]:
        assert request.form["resource"] == "https://127.0.0.1"  # the host of the broker
        expires_on = str(int(time.time()) + 3600)
        return 200, json.dumps({"access_token": AZURE_TOKEN, "expires_on": expires_on, "token_type": "Bearer"})

    given = params(kafka) | {"sasl.mechanism": "OAUTHBEARER"}
    del given["sasl.client.callback.handler.class"], given["sasl.jaas.config"]
    with HttpService(respond) as identities:
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
        monkeypatch.setenv("IDENTITY_ENDPOINT", identities.url)
        monkeypatch.setenv("IDENTITY_HEADER", "secret")
        assert topics(parse_client_params(given, oauth_token_provider="azure").connection) == {FIRST, SECOND}
