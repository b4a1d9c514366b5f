"""Assertions at a token endpoint: signatures and claims, which PyJWT verifies, files that change, and errors."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote_plus

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.token_endpoint import Endpoint

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.assertion import create_assertion
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.errors import AuthenticationError, OptionError
from pyspark_kafka_direct.options.security_settings import (
    AssertionFile,
    ClientAssertion,
    EndpointTokens,
    Grant,
    JwtBearer,
    OAuthSettings,
    Secret,
    SignedAssertion,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.security_settings import Assertion

SECONDS = 120.0
KEYS: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
}
OTHER_KEY = rsa.generate_private_key(65537, 2048)
TEMPLATE_OPTION = "kafka.sasl.oauthbearer.assertion.template.file"


def pem(key: Any, passphrase: str | None = None, form: PrivateFormat = PrivateFormat.PKCS8) -> str:
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
    text: bytes = key.private_bytes(Encoding.PEM, form, encryption)
    return text.decode()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = Endpoint()
    served.add_response(200, {"access_token": "abc"})
    yield served
    served.close()


def send(endpoint: Endpoint, grant: Grant, system: System = SYSTEM, **more: Any) -> dict[str, str]:
    """Fetch a token, and return the form that the endpoint received."""
    oauth = OAuthSettings(EndpointTokens(endpoint.url, grant, **more))
    token = retrieve_token(oauth, Deadline.after(SECONDS, system=system), "broker")
    assert token.value == Secret("abc")
    headers, body = endpoint.requests[-1]
    assert "Authorization" not in headers
    return dict(parse_qsl(body, keep_blank_values=True, strict_parsing=True))


def verified(assertion: str, key: Any, algorithm: str = "RS256", audience: str | None = None) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(assertion, key.public_key(), [algorithm], audience=audience)
    return claims


def error(endpoint: Endpoint, assertion: Assertion) -> str:
    oauth = OAuthSettings(EndpointTokens(endpoint.url, JwtBearer(assertion)))
    with pytest.raises((OptionError, AuthenticationError)) as caught:
        retrieve_token(oauth, Deadline.after(SECONDS), "broker")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value.message


@pytest.mark.parametrize("algorithm", KEYS)
def test_the_jwt_bearer_grant(endpoint: Endpoint, algorithm: Any) -> None:
    key = KEYS[algorithm]
    claims = (("aud", "https://idp/"), ("iss", "my-client"), ("sub", "alice"))
    assertion = SignedAssertion(algorithm, key=Secret(pem(key)), claims=claims, has_jti=True)
    form = send(endpoint, JwtBearer(assertion), scope="kafka read")
    assert form.keys() == {"grant_type", "assertion", "scope"}
    assert (form["grant_type"], form["scope"]) == ("urn:ietf:params:oauth:grant-type:jwt-bearer", "kafka read")
    assert jwt.get_unverified_header(form["assertion"]) == {"alg": algorithm, "typ": "JWT"}
    sent = verified(form["assertion"], key, algorithm, "https://idp/")
    assert sent.keys() == {"aud", "iss", "sub", "iat", "exp", "nbf", "jti"}
    assert (sent["aud"], sent["iss"], sent["sub"]) == ("https://idp/", "my-client", "alice")
    assert abs(sent["iat"] - time.time()) < SECONDS
    assert (sent["exp"] - sent["iat"], sent["iat"] - sent["nbf"]) == (300, 60)
    again = send(endpoint, JwtBearer(assertion), scope="kafka read")["assertion"]
    assert verified(again, key, algorithm, "https://idp/")["jti"] != sent["jti"]


@pytest.mark.parametrize("numbers", [(1, 1 << 255), (1 << 255, 255), (256, 1)])
def test_the_numbers_of_a_signature_have_a_fixed_size(
    monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, int]
) -> None:
    """One in 128 signatures has a number with fewer bytes."""
    monkeypatch.setattr(
        "cryptography.hazmat.primitives.asymmetric.utils.decode_dss_signature", lambda signature: numbers
    )
    assertion = create_assertion(SignedAssertion("ES256", key=Secret(pem(KEYS["ES256"]))), SYSTEM)
    signature = jwt.utils.base64url_decode(assertion.rpartition(".")[2])
    assert (len(signature), int.from_bytes(signature[:32]), int.from_bytes(signature[32:])) == (64, *numbers)


@pytest.mark.parametrize("client_id", [None, "my client"])
def test_a_client_assertion(endpoint: Endpoint, client_id: str | None) -> None:
    assertion = SignedAssertion(key=Secret(pem(KEYS["RS256"])), claims=(("iss", "me"),), lifetime_seconds=5)
    form = send(endpoint, ClientAssertion(assertion, client_id))
    assert form.pop("client_id", None) == client_id
    assert form.keys() == {"grant_type", "client_assertion_type", "client_assertion"}
    assert form["grant_type"] == "client_credentials"
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    sent = verified(form["client_assertion"], KEYS["RS256"])
    assert sent.keys() == {"iss", "iat", "exp", "nbf"}
    assert sent["exp"] - sent["iat"] == 5


def test_a_template_replaces_claims_of_options_but_no_times(endpoint: Endpoint, tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text(
        json.dumps(
            {
                "header": {"kid": "key-1", "alg": "none"},
                "payload": {"sub": "from the template", "exp": 1, "groups": ["a", {"b": None}], "ü": 1.5},
            }
        )
    )
    assertion = SignedAssertion(
        key=Secret(pem(KEYS["RS256"])), template_file=str(template), claims=(("sub", "option"), ("iss", "me"))
    )
    sent = send(endpoint, JwtBearer(assertion))["assertion"]
    assert jwt.get_unverified_header(sent) == {"alg": "RS256", "typ": "JWT", "kid": "key-1"}
    claims = verified(sent, KEYS["RS256"])
    assert (claims["sub"], claims["iss"], claims["groups"]) == ("from the template", "me", ["a", {"b": None}])
    assert claims["ü"] == 1.5
    template.write_text('{"payload": {"sub": "changed"}}')
    assert verified(send(endpoint, JwtBearer(assertion))["assertion"], KEYS["RS256"])["sub"] == "changed"


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("passphrase", [None, "hunter2"])
def test_the_key_is_read_for_each_token(
    endpoint: Endpoint, tmp_path: Path, form: PrivateFormat, passphrase: str | None
) -> None:
    path = tmp_path / "key.pem"
    assertion = SignedAssertion(key_file=str(path), key_passphrase=Secret(passphrase) if passphrase else None)
    for key in (KEYS["RS256"], OTHER_KEY):
        path.write_text("Bag Attributes\n" + pem(key, passphrase, form))
        assert "exp" in verified(send(endpoint, JwtBearer(assertion))["assertion"], key)


def test_an_assertion_in_a_file_is_read_for_each_token(endpoint: Endpoint, tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    for subject in ("a", "b"):
        assertion = jwt.encode({"sub": subject}, KEYS["RS256"], algorithm="RS256")
        path.write_text(assertion + "\n")
        assert send(endpoint, JwtBearer(AssertionFile(str(path))))["assertion"] == assertion
    path.write_text("hunter2")
    message = error(endpoint, AssertionFile(str(path)))
    assert f"option kafka.sasl.oauthbearer.assertion.file: {str(path)!r} on" in message


def test_the_current_token_is_used_while_a_file_is_half_written(
    endpoint: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.responses = []
    endpoint.add_response(200, {"access_token": "abc", "expires_in": 100})
    path, system = tmp_path / "key.pem", FakeTimeSystem(now=1000.0)
    path.write_text(pem(KEYS["RS256"]))
    grant = JwtBearer(SignedAssertion(key_file=str(path)))
    send(endpoint, grant, system)
    path.write_text(pem(KEYS["RS256"])[:500])
    system.now = 1090.0
    send(endpoint, grant, system)
    assert len(endpoint.requests) == 1
    assert "must have one private key in PEM format" in caplog.text


@pytest.mark.parametrize(
    ("assertion", "expected"),
    [
        (SignedAssertion(key=Secret("hunter2")), "private.key.pem must have one private key in PEM format"),
        (SignedAssertion(key=Secret(pem(OTHER_KEY) * 2)), "must have one private key"),
        (SignedAssertion(key=Secret(pem(OTHER_KEY, "hunter2"))), "it is encrypted; set kafka.sasl.oauthbearer.ass"),
        (
            SignedAssertion(key=Secret(pem(OTHER_KEY, "hunter2")), key_passphrase=Secret("hunter2-not")),
            "private.key.passphrase is wrong, or the key is damaged",
        ),
        (
            SignedAssertion(key=Secret(pem(OTHER_KEY)), key_passphrase=Secret("hunter2")),
            "it is not encrypted; remove kafka.sasl.oauthbearer.assertion.private.key.passphrase",
        ),
        (
            SignedAssertion(key=Secret("-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n-----END PRIVATE KEY-----\n")),
            "it is damaged",
        ),
        (
            SignedAssertion("ES256", key=Secret(pem(OTHER_KEY))),
            "assertion.algorithm is ES256, which needs an EC key on the curve P-256",
        ),
        (SignedAssertion("RS256", key=Secret(pem(KEYS["ES256"]))), "RS256, which needs an RSA key"),
        (SignedAssertion("ES256", key=Secret(pem(ec.generate_private_key(ec.SECP384R1())))), "on the curve P-256"),
        (SignedAssertion(key_file="/no/such/hunter2"[:8]), "private.key.file: '/no/such' cannot be read on"),
    ],
)
def test_unusable_keys(endpoint: Endpoint, assertion: SignedAssertion, expected: str) -> None:
    assert expected in error(endpoint, assertion)
    assert endpoint.requests == []


@pytest.mark.parametrize("template", ["", "hunter2", "[]", '{"header": []}', '{"payload": "hunter2"}', "[" * 9999])
def test_unusable_templates(endpoint: Endpoint, tmp_path: Path, template: str) -> None:
    path = tmp_path / "template"
    path.write_text(template)
    message = error(endpoint, SignedAssertion(key=Secret(pem(OTHER_KEY)), template_file=str(path)))
    assert f"option {TEMPLATE_OPTION}: {str(path)!r} on" in message
    assert "is not a template" in message


def test_an_endpoint_that_rejects_and_echoes_the_assertion(
    endpoint: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "assertion"
    assertion = jwt.encode({"sub": "me"}, OTHER_KEY, algorithm="RS256")
    signature = assertion.rpartition(".")[2]
    path.write_text(assertion)
    caplog.set_level("DEBUG")
    for echoed in (assertion, quote_plus(assertion), signature, f"assertion={assertion}&scope="):
        endpoint.responses = []
        endpoint.add_response(400, {"error": "invalid_grant", "error_description": f"not {echoed} here"})
        message = error(endpoint, AssertionFile(str(path)))
        assert 'returned HTTP 400 "invalid_grant: not' in message
        assert "check the key and the claims of the assertion" in message
        assert signature not in message + caplog.text


def test_settings_do_not_show_keys() -> None:
    assertion = SignedAssertion(key=Secret("hunter2"), key_passphrase=Secret("hunter2"), claims=(("iss", "me"),))
    oauth = OAuthSettings(EndpointTokens("https://idp/", ClientAssertion(assertion)))
    assert "hunter2" not in repr(oauth)
    assert pickle.loads(pickle.dumps(oauth)) == oauth
    from_files = replace(assertion, key=None, key_file="/key.pem", key_passphrase=None)
    assert b"hunter2" not in pickle.dumps(from_files)
