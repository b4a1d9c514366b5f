"""SCRAM: prove to know a password without sending it, and have the broker prove it too (RFC 5802, RFC 7677).

    client-first   n,,n=<user>,r=<client nonce>[,tokenauth=true]
    server-first   r=<client nonce><server nonce>,s=<base64 salt>,i=<iterations>
    client-final   c=biws,r=<both nonces>,p=<base64 proof>
    server-final   v=<base64 server signature>        or e=<error>

    salted  = PBKDF2(password, salt, iterations)      stored = H(HMAC(salted, "Client Key"))
    auth    = client-first without "n,,", server-first and client-final without the proof, joined by commas
    proof   = HMAC(salted, "Client Key") xor HMAC(stored, auth)
    server signature = HMAC(HMAC(salted, "Server Key"), auth)

Two points where Kafka decides, not the RFC: passwords are taken as UTF-8 without SASLprep (``ScramFormatter.normalize``
does nothing else, and brokers stored what it gave, so preparing them would lock users out whose passwords change by
it), and ``tokenauth=true`` says that user and password are a delegation token (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark_kafka_direct.settings.secret import Secret

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

# RFC 7677, 4: fewer iterations would let whoever poses as the broker guess the password cheaply from the proof.
_FEWEST_ITERATIONS: Final = 4096
# A broker could keep this side busy for minutes; Kafka's tools allow 16384.
_MOST_ITERATIONS: Final = 1_000_000

_SERVER_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{0,9})(?:,.*)?"
)
_SERVER_FINAL: Final = re.compile(rb"v=(?P<signature>[A-Za-z0-9+/=]+)(?:,.*)?")


class ScramError(Exception):
    """The broker's side of the exchange does not hold; the text says why."""


class ScramClient:
    """One log-in: ``first()``, then ``final(server_first)``, then ``verify(server_final)``.

    Args:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        username: User name, as it is.
        password: Password.
        nonce: A text that nobody can guess.
        delegation_token: Whether these are a delegation token's id and HMAC.
    """

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: Secret,
        nonce: str,
        *,
        delegation_token: bool = False,
    ) -> None:
        self._hash = _HASHES[mechanism]
        self._password = password
        self._nonce = nonce.encode()
        user = username.replace("=", "=3D").replace(",", "=2C").encode()
        self._first = b"n=" + user + b",r=" + self._nonce + (b",tokenauth=true" if delegation_token else b"")
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return b"n,," + self._first

    def final(self, server_first: bytes) -> bytes:
        """Return the client's final message, with the proof.

        Raises:
            ScramError: The broker's message is malformed, its nonce is not made from ours, or its iterations are too
                few or too many.
        """
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise ScramError(_error_in(server_first) or "its first message cannot be understood")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("its nonce does not continue this client's")
        if not _FEWEST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
            raise ScramError(
                f"it asks for {iterations} iterations; {_FEWEST_ITERATIONS} to {_MOST_ITERATIONS} are accepted"
            )
        without_proof = b"c=biws,r=" + nonce  # biws is "n,," in base64
        auth = b",".join((self._first, server_first, without_proof))
        password = self._password.reveal().encode()
        salted = hashlib.pbkdf2_hmac(self._hash, password, _unbase64(match["salt"]), iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        proof = bytes(a ^ b for a, b in zip(client_key, self._hmac(stored_key, auth), strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), auth)
        return without_proof + b",p=" + base64.b64encode(proof)

    def verify(self, server_final: bytes) -> None:
        """Check that the broker knows the password too.

        Raises:
            ScramError: It does not, or says why it refuses.
        """
        match = _SERVER_FINAL.fullmatch(server_final)
        if match is None:
            raise ScramError(_error_in(server_final) or "its final message cannot be understood")
        if not self._server_signature or not hmac.compare_digest(_unbase64(match["signature"]), self._server_signature):
            raise ScramError(
                "its signature is wrong: it does not know the password, so it is not the broker it poses as"
            )

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


def _unbase64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("its message holds bad base64") from None


def _error_in(message: bytes) -> str | None:
    match = re.search(rb"(?:^|,)e=([\x20-\x2B\x2D-\x7E]{1,200})", message)
    return None if match is None else f"it says {match[1].decode()}"
