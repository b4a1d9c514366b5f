"""SCRAM against the RFCs' own examples, and against brokers that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.wire.security._scram import ScramClient, ScramError
from pyspark_kafka_direct.wire.system import SYSTEM

# RFC 7677, 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(username: str = "user", *, delegation_token: bool = False) -> ScramClient:
    return ScramClient("SCRAM-SHA-256", username, Secret("pencil"), NONCE, delegation_token=delegation_token)


class Broker:
    """The other side, written from the RFC once more; it knows the right password or another one."""

    def __init__(self, hash_name: str, password: str, *, iterations: int = 4096) -> None:
        self.hash = hash_name
        self.salt = b"salt and pepper"
        self.salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), self.salt, iterations)
        self.iterations = iterations
        self.first = ""

    def answer(self, client_first: bytes) -> bytes:
        bare = client_first.decode().removeprefix("n,,")
        nonce = next(part for part in bare.split(",") if part.startswith("r="))
        self.first = f"{nonce}SERVER,s={base64.b64encode(self.salt).decode()},i={self.iterations}"
        self.bare = bare
        return self.first.encode()

    def finish(self, client_final: bytes) -> bytes:
        """The signature, if the proof is right; else what Kafka's server says."""
        without_proof, _, proof = client_final.decode().rpartition(",p=")
        auth = f"{self.bare},{self.first},{without_proof}".encode()
        client_key = hmac.digest(self.salted, b"Client Key", self.hash)
        stored_key = hashlib.new(self.hash, client_key).digest()
        signature = hmac.digest(stored_key, auth, self.hash)
        shown = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash, shown).digest() != stored_key:
            return b"e=invalid-proof"
        server_key = hmac.digest(self.salted, b"Server Key", self.hash)
        return b"v=" + base64.b64encode(hmac.digest(server_key, auth, self.hash))


def test_the_example_of_rfc_7677() -> None:
    scram = client()
    assert scram.first() == f"n,,n=user,r={NONCE}".encode()
    assert scram.final(SERVER_FIRST) == CLIENT_FINAL
    scram.verify(SERVER_FINAL)


def test_names_are_escaped() -> None:
    assert client("a=b,c").first() == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()
    assert client("żółw").first() == f"n,,n=żółw,r={NONCE}".encode()


def test_a_delegation_token_is_marked() -> None:
    assert client(delegation_token=True).first() == f"n,,n=user,r={NONCE},tokenauth=true".encode()


def test_nonces_differ_and_hold_no_comma() -> None:
    firsts = [ScramClient("SCRAM-SHA-512", "u", Secret("p"), SYSTEM.nonce()).first() for _ in range(20)]
    assert len(set(firsts)) == 20
    assert all(first.count(b",") == 3 for first in firsts)


@settings(deadline=None, max_examples=25)
@given(
    mechanism=st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    username=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    password=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
)
def test_any_user_and_password(mechanism: str, username: str, password: str) -> None:
    scram = ScramClient(mechanism, username, Secret(password), SYSTEM.nonce())
    broker = Broker(mechanism.removeprefix("SCRAM-").replace("-", "").lower(), password)
    scram.verify(broker.finish(scram.final(broker.answer(scram.first()))))


def test_a_wrong_password_is_refused_by_the_broker() -> None:
    scram, broker = client(), Broker("sha256", "another")
    with pytest.raises(ScramError, match="it says invalid-proof"):
        scram.verify(broker.finish(scram.final(broker.answer(scram.first()))))


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    scram, impostor = client(), Broker("sha256", "guessed")
    scram.final(impostor.answer(scram.first()))
    # It could not check the proof; it only pretends to be content.
    with pytest.raises(ScramError, match="signature is wrong"):
        scram.verify(b"v=" + base64.b64encode(bytes(32)))


def test_a_signature_before_the_proof_is_no_signature() -> None:
    empty = hmac.digest(b"", b"", "sha256")
    for signature in (SERVER_FINAL, b"v=" + base64.b64encode(empty)):
        with pytest.raises(ScramError, match="signature is wrong"):
            client().verify(signature)


@pytest.mark.parametrize(
    ("server_first", "why"),
    [
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1000001"), "1000001 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-1"), "cannot be understood"),
        (SERVER_FIRST.replace(b"i=4096", b"i=9" + b"9" * 30), "cannot be understood"),
        (SERVER_FIRST.replace(NONCE.encode(), b"another"), "nonce"),
        (f"r={NONCE},s=AAAA,i=4096".encode(), "nonce"),
        (SERVER_FIRST.replace(b"s=W22Z", b"s=W22"), "base64"),
        (b"m=unknown," + SERVER_FIRST, "cannot be understood"),
        (b"e=unknown-user", "it says unknown-user"),
        (b"", "cannot be understood"),
        (b"\xff\xfe", "cannot be understood"),
    ],
)
def test_first_messages_that_do_not_hold(server_first: bytes, why: str) -> None:
    with pytest.raises(ScramError, match=why):
        client().final(server_first)


@pytest.mark.parametrize("server_final", [b"", b"v", b"v=!", b"x=1", b"\xff"])
def test_final_messages_that_do_not_hold(server_final: bytes) -> None:
    scram = client()
    scram.final(SERVER_FIRST)
    with pytest.raises(ScramError):
        scram.verify(server_final)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    scram = client()
    with pytest.raises(ScramError):
        scram.final(message)
    with pytest.raises(ScramError):
        scram.verify(message)
