"""PEM text with the defects it has in real settings."""

from __future__ import annotations

import base64
import itertools
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.certified_keys import CLIENT, DAY, NOW

from pyspark_kafka_direct.client.security.keystore import read_pem, with_leaf_first

BODY = base64.b64encode(bytes(range(100))).decode()
LINES = "\n".join([BODY[:64], BODY[64:128], BODY[128:]])
CERTIFICATE = f"-----BEGIN CERTIFICATE-----\n{LINES}\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    "text",
    [
        CERTIFICATE,
        CERTIFICATE.replace("\n", "\r\n"),
        CERTIFICATE.replace("\n", " "),
        CERTIFICATE.replace("\n", ""),
        CERTIFICATE.replace("\n", "\\n"),
        CERTIFICATE.replace("\n", "\\r\\n"),
        CERTIFICATE.replace("\n", " \\\n"),
        CERTIFICATE.replace("\n", "\n   "),
        f"subject=CN = x\n\n{CERTIFICATE}and more text",
    ],
)
def test_line_breaks_are_normalized(text: str) -> None:
    (block,) = read_pem(text)
    assert block.label == "CERTIFICATE"
    assert block.text == CERTIFICATE
    assert block.is_certificate
    assert not block.is_key


def test_blocks_keep_their_order_and_labels() -> None:
    text = "".join(CERTIFICATE.replace("CERTIFICATE", label) for label in ("RSA PRIVATE KEY", "TRUSTED CERTIFICATE"))
    assert [(block.label, block.is_key, block.is_certificate) for block in read_pem(text)] == [
        ("RSA PRIVATE KEY", True, False),
        ("TRUSTED CERTIFICATE", False, True),
    ]


def test_header_lines_of_old_keys_are_kept() -> None:
    headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n"
    text = f"-----BEGIN RSA PRIVATE KEY-----\n{headers}{LINES}\n-----END RSA PRIVATE KEY-----\n"
    assert read_pem(text.replace("\n", "\r\n"))[0].text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/etc/ssl/ca.pem",
        "-----BEGIN CERTIFICATE-----",
        f"-----BEGIN CERTIFICATE-----\n{LINES}\n-----END PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE----------END CERTIFICATE-----",
    ],
)
def test_malformed_blocks_are_skipped(text: str) -> None:
    assert read_pem(text) == []


def test_repr_hides_content() -> None:
    assert BODY[:8] not in repr(read_pem(CERTIFICATE)[0])


@given(st.text(max_size=80), st.binary(min_size=1, max_size=200))
def test_text_around_a_block_is_ignored(surrounding_text: str, content: bytes) -> None:
    body = base64.b64encode(content).decode()
    blocks = read_pem(f"{surrounding_text}\n-----BEGIN X-----{body}-----END X-----\n{surrounding_text}")
    assert "".join(blocks[0].text.splitlines()[1:-1]) == body


def test_text_with_many_unfinished_blocks_is_read_in_linear_time() -> None:
    started = time.process_time()
    assert read_pem("-----BEGIN A-----x" * 200_000) == []
    assert time.process_time() - started < 120  # in quadratic time, it takes hours


@pytest.mark.slow
def test_a_long_chain_is_sorted_in_linear_time() -> None:
    """A file of 16 MiB has 40,000 certificates. No deadline interrupts their sort."""
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(number))]) for number in range(12_001)]
    builder = x509.CertificateBuilder(None, None, CLIENT.key.public_key(), 1).not_valid_before(NOW)
    builder = builder.not_valid_after(NOW + DAY)
    chain = [
        builder.subject_name(subject).issuer_name(issuer).sign(CLIENT.key, hashes.SHA256()).public_bytes(Encoding.PEM)
        for subject, issuer in itertools.pairwise(names)
    ]
    started = time.process_time()
    assert with_leaf_first(b"".join(reversed(chain))) == b"".join(chain)
    assert time.process_time() - started < 8
