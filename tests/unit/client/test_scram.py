"""SCRAM against the examples of the RFCs, and against impostors."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_direct.client.security.sasl_authenticator import ScramClient, ScramError
from pyspark_kafka_direct.client.system import SYSTEM
from pyspark_kafka_direct.options.security_settings import Secret

# RFC 7677, 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(username: str = "user", *, delegation_token: bool = False) -> ScramClient:
    return ScramClient("SCRAM-SHA-256", username, Secret("pencil"), NONCE, is_delegation_token=delegation_token)


class Broker:
    """The server side, written independently from the RFC."""

    def __init__(self, hash_name: str, password: str, *, iterations: int = 4096) -> None:
        self.hash = hash_name
        self.salt = b"salt and pepper"
        self.salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), self.salt, iterations)
        self.iterations = iterations
        self.first = ""

    def respond(self, client_first: bytes) -> bytes:
        bare = client_first.decode().removeprefix("n,,")
        nonce = next(part for part in bare.split(",") if part.startswith("r="))
        self.first = f"{nonce}SERVER,s={base64.b64encode(self.salt).decode()},i={self.iterations}"
        self.bare = bare
        return self.first.encode()

    def finish(self, client_final: bytes) -> bytes:
        """Return the signature if the proof is right, or else the error of Kafka's server."""
        without_proof, _, proof = client_final.decode().rpartition(",p=")
        auth = f"{self.bare},{self.first},{without_proof}".encode()
        client_key = hmac.digest(self.salted, b"Client Key", self.hash)
        stored_key = hashlib.new(self.hash, client_key).digest()
        signature = hmac.digest(stored_key, auth, self.hash)
        client_key_from_proof = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash, client_key_from_proof).digest() != stored_key:
            return b"e=invalid-proof"
        server_key = hmac.digest(self.salted, b"Server Key", self.hash)
        return b"v=" + base64.b64encode(hmac.digest(server_key, auth, self.hash))


def test_the_example_of_rfc_7677() -> None:
    scram = client()
    assert scram.first_message() == f"n,,n=user,r={NONCE}".encode()
    assert scram.final_message(SERVER_FIRST) == CLIENT_FINAL
    scram.verify(SERVER_FINAL)


def test_user_names_are_escaped() -> None:
    assert client("a=b,c").first_message() == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()
    assert client("żółw").first_message() == f"n,,n=żółw,r={NONCE}".encode()


def test_a_delegation_token_is_marked() -> None:
    assert client(delegation_token=True).first_message() == f"n,,n=user,r={NONCE},tokenauth=true".encode()


def test_nonces_are_unique_and_have_no_comma() -> None:
    first_messages = [ScramClient("SCRAM-SHA-512", "u", Secret("p"), SYSTEM.nonce()).first_message() for _ in range(20)]
    assert len(set(first_messages)) == 20
    assert all(first.count(b",") == 3 for first in first_messages)


@settings(deadline=None, max_examples=25)
@given(
    mechanism=st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    username=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
)
def test_any_user_and_password(mechanism: str, username: str, password: str) -> None:
    scram = ScramClient(mechanism, username, Secret(password), SYSTEM.nonce())
    broker = Broker(mechanism.removeprefix("SCRAM-").replace("-", "").lower(), password)
    scram.verify(broker.finish(scram.final_message(broker.respond(scram.first_message()))))


def test_extensions_of_the_broker_are_ignored() -> None:
    """RFC 5802, 7: optional ones follow the attributes that this client reads."""
    scram, broker = client(), Broker("sha256", "pencil")
    broker.respond(scram.first_message())
    broker.first += ",x=an extension,y=2"
    scram.verify(broker.finish(scram.final_message(broker.first.encode())) + b",x=another")


def test_wrong_password_is_rejected_by_the_broker() -> None:
    scram, broker = client(), Broker("sha256", "another")
    with pytest.raises(ScramError, match="it returned invalid-proof"):
        scram.verify(broker.finish(scram.final_message(broker.respond(scram.first_message()))))


def test_broker_without_the_password_is_detected() -> None:
    scram, impostor = client(), Broker("sha256", "guessed")
    scram.final_message(impostor.respond(scram.first_message()))
    # It cannot check the proof, but claims success.
    with pytest.raises(ScramError, match="signature is wrong"):
        scram.verify(b"v=" + base64.b64encode(bytes(32)))


def test_signature_before_the_proof_is_rejected() -> None:
    empty = hmac.digest(b"", b"", "sha256")
    for signature in (SERVER_FINAL, b"v=" + base64.b64encode(empty)):
        with pytest.raises(ScramError, match="signature is wrong"):
            client().verify(signature)


@pytest.mark.parametrize(
    ("server_first", "message"),
    [
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1000001"), "1000001 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-1"), "is malformed"),
        (SERVER_FIRST.replace(b"i=4096", b"i=9" + b"9" * 30), "is malformed"),
        (SERVER_FIRST.replace(NONCE.encode(), b"another"), "nonce"),
        (f"r={NONCE},s=AAAA,i=4096".encode(), "nonce"),
        (SERVER_FIRST.replace(b"s=W22Z", b"s=W22"), "base64"),
        (b"m=unknown," + SERVER_FIRST, "is malformed"),
        (b"e=unknown-user", "it returned unknown-user"),
        (b"", "is malformed"),
        (b"\xff\xfe", "is malformed"),
    ],
)
def test_invalid_first_messages(server_first: bytes, message: str) -> None:
    with pytest.raises(ScramError, match=message):
        client().final_message(server_first)


@pytest.mark.parametrize("server_final", [b"", b"v", b"v=!", b"x=1", b"\xff"])
def test_invalid_final_messages(server_final: bytes) -> None:
    scram = client()
    scram.final_message(SERVER_FIRST)
    with pytest.raises(ScramError):
        scram.verify(server_final)


@given(st.binary(max_size=60))
def test_random_bytes_are_rejected(message: bytes) -> None:
    scram = client()
    with pytest.raises(ScramError):
        scram.final_message(message)
    with pytest.raises(ScramError):
        scram.verify(message)
