"""No secret is shown: not in plans, errors, Spark's logs down to DEBUG, its event log or the pages of its UI."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.certificate_stores import KEY_PASSWORD, encrypted_client_key, java_keystore
from tests.integration.secrets_app import PAGES, REDACTED
from tests.integration.stream_queries import produce
from tests.integration.token_endpoint import TokenEndpoint
from tests.logins import OAUTH, PLAIN, SCRAM, jaas_text
from tests.shards.brokers import CAROL

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import MakeTopic

    from pyspark_kafka_direct.broker import EmbeddedKafka

WRONG = "hush-Zw9/wrong"
CLIENT_SECRET = "hush-Ce5/client"
STORE_PASSWORD = "hush-St7/store"
PASSPHRASE = "hush-Ph3/phrase"
OTHER_SECRETS = [CLIENT_SECRET, STORE_PASSWORD, PASSPHRASE]
SECURITY_PAGE = Path(__file__).parents[2] / "docs" / "security.md"
STRIMZI = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
URL = "kafka.sasl.oauthbearer.token.endpoint.url"

# Logins that fail, and the options of the login module. The token endpoint repeats the secret in its error.
LOGINS: dict[str, tuple[str, dict[str, str]]] = {
    "OAUTHBEARER": (
        f'{OAUTH} required clientId="client" clientSecret="{CLIENT_SECRET}" ssl.truststore.location="CA";',
        {URL: "ENDPOINT"},
    ),
    "OAUTHBEARER by Strimzi": (
        f'{OAUTH} required oauth.client.id="client" oauth.client.secret="{CLIENT_SECRET}" '
        'oauth.token.endpoint.uri="ENDPOINT" oauth.ssl.truststore.location="CA";',
        {"kafka.sasl.login.callback.handler.class": STRIMZI},
    ),
    "OAUTHBEARER by assertion": (
        f'{OAUTH} required ssl.truststore.location="CA";',
        {
            URL: "ENDPOINT",
            "kafka.sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "kafka.sasl.oauthbearer.assertion.algorithm": "ES256",
            "kafka.sasl.oauthbearer.assertion.private.key.pem": "PEM",
            "kafka.sasl.oauthbearer.assertion.private.key.passphrase": KEY_PASSWORD,
        },
    ),
    "SCRAM-SHA-512": (f'{SCRAM} required username="carol" password="{WRONG}";', {}),
    "PLAIN with the wrong password of a store": (
        f'{PLAIN} required username="carol" password="{WRONG}";',
        {"kafka.ssl.keystore.location": "KEYSTORE", "kafka.ssl.keystore.password": STORE_PASSWORD},
    ),
}


@pytest.mark.spark_app
def test_spark_shows_no_secret(
    secured_kafka: EmbeddedKafka, topics_on: Callable[[str], MakeTopic], tmp_path: Path
) -> None:
    kafka = secured_kafka
    certificates = kafka.certificates
    options = {
        "kafka.bootstrap.servers": kafka.listener("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": _login(CAROL.password),
        "kafka.ssl.truststore.location": str(certificates.ca),
        "kafka.ssl.keystore.certificate.chain": certificates.client.read_text(),
        "kafka.ssl.keystore.key": encrypted_client_key(certificates).read_text(),
        "kafka.ssl.key.password": KEY_PASSWORD,
        # PLAIN uses neither of these, but a view shows them.
        "kafka.sasl.oauthbearer.assertion.private.key.pem": encrypted_client_key(certificates).read_text(),
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase": PASSPHRASE,
        "subscribe": topics_on(kafka.bootstrap_servers)(partitions=2),
    }
    _allow_all(kafka.bootstrap_servers, options["subscribe"])
    produce(kafka.bootstrap_servers, options["subscribe"], range(3))
    (tmp_path / "events").mkdir()
    endpoint = TokenEndpoint(certificates, rejects=True)
    files = {"ENDPOINT": endpoint.url, "CA": str(certificates.ca), "KEYSTORE": str(java_keystore(certificates))}
    files["PEM"] = options["kafka.ssl.keystore.key"]
    others = [_options(login, options["subscribe"], kafka, files) for login in LOGINS]
    (tmp_path / "options.json").write_text(
        json.dumps([options, {**options, "kafka.sasl.jaas.config": _login(WRONG)}, *others]), encoding="utf-8"
    )
    app = subprocess.run(
        [sys.executable, Path(__file__).with_name("secrets_app.py"), tmp_path / "options.json", tmp_path],
        capture_output=True,
        check=False,
        timeout=900,
        cwd=tmp_path,
    )
    endpoint.close()
    outputs = {
        **{page: (tmp_path / f"page{number}").read_bytes() for number, page in enumerate(PAGES)},
        **{path.name: path.read_bytes() for path in (tmp_path / "events").rglob("*") if path.is_file()},
        **{str(path): path.read_bytes() for path in tmp_path.glob("checkpoint-*/**/*") if path.is_file()},
        **{str(path): path.read_bytes() for path in tmp_path.glob("local-files/**/*") if path.is_file()},
        "processes": (tmp_path / "processes").read_bytes(),
        "output": app.stdout,
        "errors and logs": app.stderr,
    }
    assert app.returncode == 0, app.stderr[-5000:].decode(errors="replace")
    assert b"RelationV2" in app.stdout
    assert b"AuthenticationError" in app.stdout
    assert b" DEBUG " in app.stderr
    assert app.stdout.count(b"AuthenticationError") > 1, "the batch, and the stream"
    assert app.stdout.count(b"invalid_client") == 3, "all requests to the token endpoint"
    (assertion,) = [form["assertion"][0] for form in endpoint.forms if "assertion" in form]
    assert b"daemon" in outputs["processes"], "Python workers"
    assert b'"numInputRows"' in app.stdout or b"'numInputRows'" in app.stdout
    assert b"Streaming Query" in outputs["StreamingQuery/"]
    assert any("checkpoint-right" in name and "commits" in name for name in outputs), "the stream has run"
    assert b"kafka-direct" in outputs["SQL/execution/?id=0"]
    assert sum(b"kafka-direct" in output for output in outputs.values()) > 5
    # JSON may separate the lines of a key, so each line is checked.
    key = [line for line in options["kafka.ssl.keystore.key"].splitlines() if len(line) > 40]
    secrets = [CAROL.password, WRONG, KEY_PASSWORD, *key]
    secrets += [base64.b64encode(each.encode()).decode() for each in (CAROL.password, WRONG)]
    secrets += [assertion, assertion.rpartition(".")[2]]
    secrets += [*OTHER_SECRETS, base64.b64encode(f"client:{CLIENT_SECRET}".encode()).decode()]
    for name, output in outputs.items():
        for secret in secrets:
            assert secret.encode() not in output, name


def test_the_documentation_names_the_setting() -> None:
    assert f"spark.sql.redaction.options.regex={REDACTED}" in SECURITY_PAGE.read_text(encoding="utf-8")


def _allow_all(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    principal, allow = f"User:{CAROL.username}", AclPermissionType.ALLOW
    acl = AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, principal, "*", AclOperation.ALL, allow)
    admin.create_acls([acl])[acl].result(600)


def _options(login: str, topic: str, kafka: EmbeddedKafka, files: dict[str, str]) -> dict[str, str]:
    """Return the options of a login, with files and URLs in place of their names."""
    jaas, more = LOGINS[login]
    options = {
        "kafka.bootstrap.servers": kafka.listener("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": login.split()[0],
        "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.location": "CA",
        **more,
    }
    for name, value in files.items():
        options = {option: text.replace(name, value) for option, text in options.items()}
    return {**options, "subscribe": topic}


def _login(password: str) -> str:
    return jaas_text("PLAIN", CAROL, password=password)
