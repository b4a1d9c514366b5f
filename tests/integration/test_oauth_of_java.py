"""Kafka's retrievers in Java and this client send the same requests for the same settings, field by field."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from tests.integration.java_process import JavaProcess
from tests.settings import parse_client_params
from tests.unit.client.token_endpoint import Endpoint

from pyspark_kafka_direct.broker.maven import kafka_jars
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.spark_definitions import TOKEN_URLS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SECONDS: Final = 120.0
PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
JWT_BEARER: Final = {"jwt.retriever.class": f"{PACKAGE}JwtBearerJwtRetriever"}
CLIENT: Final = {"clientId": "my id", "clientSecret": "s3cret/+"}
TIMES: Final = ("iat", "exp", "nbf")
TEMPLATE: Final = {
    "header": {"kid": "key-1", "alg": "HS256"},
    "payload": {"sub": "template", "iat": 1, "tenant": {"id": 5, "ü": [1.5, None, True]}, "aud": ["a", "b"]},
}

# Of the settings after "sasl.oauthbearer."; {folder} has the files of the fixture.
RS256: Final = {"assertion.private.key.file": "{folder}/rsa.pem"}
CASES: Final[dict[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "client secret": ({"scope": "a b"}, CLIENT),
    "client secret, by the class": ({"jwt.retriever.class": f"{PACKAGE}ClientCredentialsJwtRetriever"}, CLIENT),
    "client secret, URL-encoded": ({"header.urlencode": "true"}, CLIENT),
    "client secret, options before JAAS": (
        {"client.credentials.client.id": "other", "client.credentials.client.secret": "x", "scope": "s"},
        {**CLIENT, "scope": "t"},
    ),
    "JWT bearer": ({**JWT_BEARER, **RS256}, {}),
    "JWT bearer, ES256": (
        {**JWT_BEARER, "assertion.private.key.file": "{folder}/ec.pem", "assertion.algorithm": "ES256"},
        {},
    ),
    "JWT bearer, all claims": (
        {
            **JWT_BEARER,
            **RS256,
            "scope": "kafka read",
            "assertion.claim.aud": "https://idp/ü",
            "assertion.claim.iss": "me",
            "assertion.claim.sub": "alice",
            "assertion.claim.exp.seconds": "7",
            "assertion.claim.nbf.seconds": "0",
            "assertion.claim.jti.include": "true",
        },
        {},
    ),
    "JWT bearer, template": (
        {
            **JWT_BEARER,
            **RS256,
            "assertion.template.file": "{folder}/template.json",
            "assertion.claim.sub": "option",
            "assertion.claim.iss": "me",
        },
        {},
    ),
    "JWT bearer, empty template": ({**JWT_BEARER, **RS256, "assertion.template.file": "{folder}/empty.json"}, {}),
    "JWT bearer, encrypted key": (
        {
            **JWT_BEARER,
            "assertion.private.key.file": "{folder}/encrypted.pem",
            "assertion.private.key.passphrase": "key-secret",
        },
        {},
    ),
    "JWT bearer, assertion file": ({**JWT_BEARER, "assertion.file": "{folder}/assertion"}, {}),
    "client assertion": ({**RS256, "assertion.claim.iss": "me", "scope": "s"}, {}),
    "client assertion with an id": ({**RS256, "assertion.claim.iss": "me"}, CLIENT),
    "client assertion in a file": ({"assertion.file": "{folder}/assertion", "assertion.claim.iss": "me"}, CLIENT),
    "a key without an issuer": ({**RS256, "assertion.claim.sub": "me"}, CLIENT),
}

# Kafka and this client reject them.
REJECTED: Final[dict[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "no credentials": ({}, {}),
    "no secret": ({}, {"clientId": "me"}),
    "no key": (JWT_BEARER, {}),
    "a missing key": ({**JWT_BEARER, "assertion.private.key.file": "{folder}/missing"}, {}),
    "an issuer without a key": ({"assertion.claim.iss": "me"}, CLIENT),
    "a key of another algorithm": ({**JWT_BEARER, **RS256, "assertion.algorithm": "ES256"}, {}),
    "an unknown algorithm": ({**JWT_BEARER, **RS256, "assertion.algorithm": "HS256"}, {}),
    "no assertion": ({**JWT_BEARER, "assertion.file": "{folder}/rsa.pem"}, {}),
    "no template": ({**JWT_BEARER, **RS256, "assertion.template.file": "{folder}/rsa.pem"}, {}),
    "too long a lifetime": ({**JWT_BEARER, **RS256, "assertion.claim.exp.seconds": "86401"}, {}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, templates and an assertion."""
    folder = tmp_path_factory.mktemp("assertions")
    key = rsa.generate_private_key(65537, 2048)
    keys: dict[str, Any] = {"rsa": key, "ec": ec.generate_private_key(ec.SECP256R1())}
    for name, each in keys.items():
        (folder / f"{name}.pem").write_bytes(each.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    # Java 17 reads this encryption, but not the newer PBES2.
    openssl = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", "pass:key-secret"]
    subprocess.run([*openssl, "-in", folder / "rsa.pem", "-out", folder / "encrypted.pem"], check=True)
    (folder / "template.json").write_text(json.dumps(TEMPLATE))
    (folder / "empty.json").write_text("{}")
    (folder / "assertion").write_text(jwt.encode({"sub": "me"}, key, algorithm="RS256") + "\n")
    return folder


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProcess]:
    with closing(JavaProcess("Retrieve.java", kafka_jars("4.4.0"))) as process:
        yield process


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = Endpoint()
    served.add_response(200, {"access_token": "abc"})
    monkeypatch.setenv(TOKEN_URLS_VARIABLE, ",".join([served.url, *(path.as_uri() for path in folder.iterdir())]))
    yield served
    served.close()


def java_config(settings: Mapping[str, str], folder: Path, url: str) -> dict[str, str]:
    named = {f"sasl.oauthbearer.{name}": value.replace("{folder}", str(folder)) for name, value in settings.items()}
    return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": url, **named}


def token_of(config: Mapping[str, str], jaas: Mapping[str, str]) -> str:
    """Return a token of this client."""
    options = "".join(f' {name}="{value}"' for name, value in jaas.items())
    params = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": f"{PACKAGE}OAuthBearerLoginModule required{options};",
    }
    sasl = parse_client_params({**params, **config}).connection.security.sasl
    assert sasl is not None
    assert sasl.oauth is not None
    return retrieve_token(sasl.oauth, Deadline.after(SECONDS), "broker").value.reveal()


def request(endpoint: Endpoint, folder: Path) -> dict[str, Any]:
    """Return the last request, without the values that differ between any two requests."""
    headers, body = endpoint.requests.pop()
    names = ("Authorization", "Content-Type", "Accept")
    fields: dict[str, Any] = {"headers": {name: headers.get(name) for name in names}, **dict(parse_qsl(body))}
    for name in ("assertion", "client_assertion"):
        if name in fields:
            fields[name] = assertion_content(fields[name], folder)
    return fields


def assertion_content(assertion: str, folder: Path) -> object:
    if assertion == (folder / "assertion").read_text().strip():
        return "as in the file"
    header = jwt.get_unverified_header(assertion)
    pem = (folder / ("ec.pem" if header["alg"] == "ES256" else "rsa.pem")).read_bytes()
    key = jwt.algorithms.get_default_algorithms()[header["alg"]].prepare_key(pem)
    claims = jwt.decode(assertion, key.public_key(), [header["alg"]], options={"verify_aud": False})
    at = claims["iat"]
    times = {name: claims[name] - at for name in TIMES}
    has_id = bool(claims.pop("jti", None))
    types = {name: type(claims[name]) for name in TIMES}
    return header, {**claims, **times}, types, has_id


@pytest.mark.parametrize("case", CASES)
def test_both_send_the_same_request(case: str, java: JavaProcess, endpoint: Endpoint, folder: Path) -> None:
    settings, jaas = CASES[case]
    config = java_config(settings, folder, endpoint.url)
    assert java.order(config=config, jaas=jaas) == {"token": "abc"}
    of_java = request(endpoint, folder)
    assert token_of(config, jaas) == "abc"
    assert request(endpoint, folder) == of_java
    assert ("assertion" in of_java) == case.startswith("JWT bearer")
    assert ("client_assertion" in of_java) == case.startswith("client assertion")


@pytest.mark.parametrize("case", REJECTED)
def test_both_reject_the_same_settings(case: str, java: JavaProcess, endpoint: Endpoint, folder: Path) -> None:
    settings, jaas = REJECTED[case]
    config = java_config(settings, folder, endpoint.url)
    with pytest.raises(AssertionError, match=r"Exception"):
        java.order(config=config, jaas=jaas)
    with pytest.raises(OptionError):
        token_of(config, jaas)
    assert endpoint.requests == []


@pytest.mark.parametrize("content", ["{token}", " {token}\n", "", "{half}", "a.b.c", "abc"])
@pytest.mark.parametrize("retriever", ["FileJwtRetriever", "DefaultJwtRetriever"])
def test_both_accept_the_same_token_files(
    retriever: str, content: str, java: JavaProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = jwt.encode({"sub": "me", "exp": 9_999_999_999}, "a secret of 32 characters or more")
    path = tmp_path / "token"
    path.write_text(content.format(token=token, half=token[: len(token) // 2]))
    monkeypatch.setenv(TOKEN_URLS_VARIABLE, path.as_uri())
    config = java_config({"jwt.retriever.class": f"{PACKAGE}{retriever}"}, tmp_path, path.as_uri())
    if "{token}" in content:
        assert java.order(config=config, jaas={}) == {"token": token}
        assert token_of(config, {}) == token
    else:
        with pytest.raises(AssertionError, match=r"Exception"):
            java.order(config=config, jaas={})
        with pytest.raises(OptionError):
            token_of(config, {})
