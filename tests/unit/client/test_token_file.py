"""OAUTHBEARER tokens from a file, and unsigned tokens from claims."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.jwt import read_claims
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.security_settings import FileTokens, OAuthSettings, UnsecuredTokens

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 120.0
NOW = 1_000_000.0
SECRET = "a secret of 64 characters or more, as the longest algorithm of them needs it"
RSA_KEY = rsa.generate_private_key(65537, 2048)
KEYS: dict[str, Any] = {
    "RS256": RSA_KEY,
    "PS256": RSA_KEY,
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    "HS256": SECRET,
    "HS384": SECRET,
    "HS512": SECRET,
    "none": None,
}


def token_of(subject: str, expires_at: float | None = NOW + 1000, *, algorithm: str = "RS256") -> str:
    claims = {"sub": subject} | ({} if expires_at is None else {"exp": int(expires_at)})
    return jwt.encode(claims, KEYS[algorithm], algorithm=algorithm)


class Login:
    """Reads the token of a file at a time."""

    def __init__(self, path: Path) -> None:
        self.oauth = OAuthSettings(FileTokens(str(path)))
        self.system = FakeTimeSystem(now=NOW)

    def __call__(self) -> str:
        return retrieve_token(self.oauth, Deadline.after(SECONDS, system=self.system), "broker").value.reveal()

    def error(self) -> str:
        with pytest.raises(OptionError) as caught:
            self()
        return caught.value.message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "the token"


@pytest.fixture
def login(path: Path) -> Login:
    return Login(path)


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_new_token_in_the_file_is_used_at_once(path: Path, login: Login, algorithm: str) -> None:
    for name in ("one", "two"):
        token = token_of(name, algorithm=algorithm)
        path.write_text(f"  {token}\n")
        assert login() == token


def test_a_missing_file_and_other_content(path: Path, login: Login) -> None:
    option = "option kafka.sasl.oauthbearer.token.endpoint.url"
    assert f"{option}: {str(path)!r} cannot be read on" in login.error()
    assert "(No such file or directory); the file must exist on the driver and on every executor" in login.error()
    for content in ("", "\n", "hunter2", "a.b.c", "hunter2.hunter2.hunter2", "{}", token_of("a") + "." + token_of("b")):
        path.write_text(content)
        assert "does not contain a complete JWT" in login.error()
        assert "hunter2" not in login.error()
    path.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in login.error()
    path.write_bytes(b"a" * ((1 << 20) + 1))
    assert "is larger than 1 MiB" in login.error()


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_token_that_is_being_written_is_not_used(
    path: Path, login: Login, algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = token_of("first", algorithm=algorithm), token_of("second", algorithm=algorithm)
    path.write_text(first)
    assert login() == first
    for length in range(len(second)):
        path.write_text(second[:length])
        assert login() == first
    (warning,) = caplog.messages
    assert "logins use the current one until it expires: option kafka.sasl.oauth" in warning
    assert first[:10] not in warning
    path.write_text(second)
    assert login() == second
    path.write_text(first[:-1])
    assert login() == second
    assert len(caplog.messages) == 2, "each time that the file is damaged has a warning"


def test_only_signatures_of_usual_sizes_are_complete() -> None:
    """RSA keys have 2048, 3072 or 4096 bits, so half a signature is seldom taken for one."""
    unsigned = jwt.encode({"sub": "me"}, RSA_KEY, algorithm="RS256").rpartition(".")[0]
    tokens = {size: f"{unsigned}.{base64.urlsafe_b64encode(bytes(size)).decode().rstrip('=')}" for size in range(600)}
    assert [size for size, token in tokens.items() if read_claims(token)] == [256, 384, 512]


def test_the_last_token_is_used_until_it_expires(path: Path, login: Login) -> None:
    path.write_text(token_of("me", NOW + 1000))
    token = login()
    path.unlink()
    login.system.now = NOW + 999
    assert login() == token
    login.system.now = NOW + 1000
    assert "cannot be read" in login.error()


@pytest.mark.parametrize("expires_at", [None, 1e12])
def test_a_token_whose_expiry_is_unknown_is_used_while_it_is_in_the_file(
    path: Path, login: Login, expires_at: float | None
) -> None:
    path.write_text(token_of("me", expires_at))
    assert login() == path.read_text()
    path.write_text("")
    assert "complete JWT" in login.error()


def test_an_unsigned_token() -> None:
    claims = (("sub", "alice"), ("scope", ("a", "b")), ("n", 1.5))
    oauth = OAuthSettings(UnsecuredTokens(claims, lifetime_seconds=60))

    def token() -> str:
        return retrieve_token(oauth, Deadline.after(SECONDS), "broker").value.reveal()

    header, content, signature = token().split(".")
    assert signature == ""
    assert json.loads(decode_base64url(header)) == {"alg": "none"}
    claims_sent = json.loads(decode_base64url(content))
    assert (claims_sent["sub"], claims_sent["scope"], claims_sent["n"]) == ("alice", ["a", "b"], 1.5)
    assert claims_sent["exp"] - claims_sent["iat"] == pytest.approx(60)
    assert abs(claims_sent["iat"] - time.time()) < SECONDS
    assert token() == token()


def decode_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
