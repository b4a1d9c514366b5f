"""Assertions: signed JWTs by which a client identifies itself at a token endpoint (RFC 7521, RFC 7523; KIP-1139).

They have the content that Kafka's ``DefaultAssertionCreator`` gives them. Options, a template file and the current time
are layers: a claim of a later layer replaces that of an earlier one.

    header   template, then alg and typ
    claims   aud, iss and sub of the options, then template, then iat, exp, nbf and jti
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

from pyspark_kafka_direct.client.security.jwt import base64url, json_object, unsigned_jwt
from pyspark_kafka_direct.client.security.keystore import read_pem
from pyspark_kafka_direct.client.security.token_file import read_jwt_file, read_text_file
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.security_settings import AssertionFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.client.system import System
    from pyspark_kafka_direct.options.security_settings import Assertion, Secret, SignedAssertion

_PREFIX: Final = "kafka.sasl.oauthbearer.assertion."
_PASSPHRASE: Final = f"{_PREFIX}private.key.passphrase"
_ES256_NUMBER_BYTES: Final = 32


def create_assertion(assertion: Assertion, system: System) -> str:
    """Return a new assertion; the files that the settings name are read each time because they can change."""
    if isinstance(assertion, AssertionFile):
        return read_jwt_file(assertion.path, assertion.option)
    header, claims = _read_template(assertion)
    now = int(system.wall_time())
    header |= {"alg": assertion.algorithm, "typ": "JWT"}
    claims = {
        **dict(assertion.claims),
        **claims,
        "iat": now,
        "exp": now + assertion.lifetime_seconds,
        "nbf": now - assertion.not_before_seconds,
        **({"jti": system.nonce()} if assertion.has_jti else {}),
    }
    content = unsigned_jwt(header, claims)
    signature = _signer(assertion)(content.encode())
    return f"{content}.{base64url(signature)}"


def _read_template(assertion: SignedAssertion) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the claims in the template file."""
    if assertion.template_file is None:
        return {}, {}
    option = f"{_PREFIX}template.file"
    template = json_object(read_text_file(assertion.template_file, option).encode())
    header, claims = ({}, {}) if template is None else (template.get("header", {}), template.get("payload", {}))
    if template is None or not isinstance(header, dict) or not isinstance(claims, dict):
        raise OptionError(
            f"option {option}: {assertion.template_file!r} on {socket.gethostname()} is not a template; write a JSON "
            'object like {"header": {"kid": "..."}, "payload": {"sub": "..."}} into it'
        )
    return header, claims


def _signer(assertion: SignedAssertion) -> Callable[[bytes], bytes]:
    """Return the function that signs with the private key."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    option = f"{_PREFIX}private.key.file" if assertion.key_file else f"{_PREFIX}private.key.pem"
    text = assertion.key.reveal() if assertion.key is not None else ""
    if assertion.key_file is not None:
        text = read_text_file(assertion.key_file, option)
    key = _load_private_key(text, option, assertion.key_passphrase)
    if assertion.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return lambda content: key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    if assertion.algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":

        def sign(content: bytes) -> bytes:
            numbers = decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
            return b"".join(number.to_bytes(_ES256_NUMBER_BYTES, "big") for number in numbers)  # RFC 7518, 3.4

        return sign
    needed = "an RSA key" if assertion.algorithm == "RS256" else "an EC key on the curve P-256"
    raise OptionError(
        f"option {option}: {_PREFIX}algorithm is {assertion.algorithm}, which needs {needed}; set the other algorithm "
        "(RS256 or ES256), or another key"
    )


def _load_private_key(text: str, option: str, passphrase: Secret | None) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    keys = [block.text for block in read_pem(text) if block.is_key]
    if len(keys) != 1:
        raise OptionError(f"option {option} must have one private key in PEM format (-----BEGIN PRIVATE KEY-----)")
    try:
        return load_pem_private_key(keys[0].encode(), passphrase.reveal().encode() if passphrase else None)
    except UnsupportedAlgorithm:
        problem = "its format or encryption is not supported; convert it with: openssl pkcs8 -topk8"
    except TypeError:  # the key is encrypted and there is no passphrase, or the reverse
        problem = f"it is not encrypted; remove {_PASSPHRASE}" if passphrase else f"it is encrypted; set {_PASSPHRASE}"
    except ValueError:
        problem = f"{_PASSPHRASE} is wrong, or the key is damaged" if passphrase else "it is damaged"
    raise OptionError(f"option {option}: the private key cannot be read, because {problem}") from None
