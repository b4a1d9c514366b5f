"""Stores in Java's format JKS: their certificates and keys, wrong passwords, and damage."""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from tests.jks_files import damaged, jks, key, protect, protected_key, trusted
from tests.unit.client.certified_keys import BROKER, CA, CLIENT, OTHER_CA, CertifiedKey
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.tls_clients import client_name_seen_by_server, settings_for, tls_error_message

from pyspark_kafka_direct.client.security import jks as reader
from pyspark_kafka_direct.client.security.keystore import load_ca_certificates, load_client_certificate
from pyspark_kafka_direct.client.security.tls_contexts import tls_context
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.security_settings import Secret, TlsSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Neither ASCII nor Latin-1, with a character of two UTF-16 units.
PASSWORD = "geheim-ß-密-\U0001f511"


def new_file(folder: Path, data: bytes) -> str:
    path = folder / f"store{len(list(folder.iterdir()))}"  # a process loads a changed file a second later
    path.write_bytes(data)
    return str(path)


def truststore(folder: Path, data: bytes, password: str = "") -> dict[str, str]:
    settings = {"ssl_truststore_location": new_file(folder, data)}
    return settings | ({"ssl_truststore_password": password} if password else {})


def keystore(folder: Path, data: bytes, password: str = "", key_password: str = "") -> dict[str, str]:
    settings = {"ssl_keystore_location": new_file(folder, data)}
    settings |= {"ssl_keystore_password": password} if password else {}
    return settings | ({"ssl_key_password": key_password} if key_password else {})


def error_of(**settings: str) -> str:
    """Return the error of a first connection with these settings."""
    tls = settings_for(1, **settings).security.tls
    assert tls is not None
    with pytest.raises(OptionError) as caught:
        tls_context(tls, FakeTimeSystem(now=1e10))  # long after the files were written
    return caught.value.message


# Certificates


@pytest.mark.parametrize("version", [1, 2])
def test_truststore_with_and_without_password(serve_tls: Callable[..., int], tmp_path: Path, version: int) -> None:
    port = serve_tls()
    entries = [trusted("andere", OTHER_CA, version), trusted("größe 密\0\U0001f511", CA, version)]
    store = jks(PASSWORD, *entries, version=version)
    for password in (PASSWORD, ""):
        settings = truststore(tmp_path, store, password)
        assert client_name_seen_by_server(settings_for(port, **settings)) == "nobody"
    only_other = truststore(tmp_path, jks(PASSWORD, entries[0], version=version), PASSWORD)
    assert "not signed by a CA in kafka.ssl.truststore.location" in tls_error_message(settings_for(port, **only_other))


@pytest.mark.parametrize("declared", ["JKS", "PKCS12", "PEM"])
def test_the_declared_type_does_not_matter(serve_tls: Callable[..., int], tmp_path: Path, declared: str) -> None:
    port = serve_tls(clients=CA)
    types = {"ssl_truststore_type": declared, "ssl_keystore_type": declared}
    trust = truststore(tmp_path, jks("pw", trusted("ca", CA)), "pw")
    pkcs12 = keystore(tmp_path, CLIENT.pkcs12("pw", CA), "pw")
    assert client_name_seen_by_server(settings_for(port, **trust, **pkcs12, **types)) == "CN=client"
    java = keystore(tmp_path, jks("pw", key("client", "pw", CLIENT, CA)), "pw")
    assert client_name_seen_by_server(settings_for(port, **trust, **java, **types)) == "CN=client"


def test_the_certificate_of_a_key_is_trusted_but_not_its_issuer(serve_tls: Callable[..., int], tmp_path: Path) -> None:
    port = serve_tls()
    own = truststore(tmp_path, jks("pw", key("broker", "pw", BROKER, OTHER_CA)), "pw")
    assert client_name_seen_by_server(settings_for(port, **own)) == "nobody"
    second = truststore(tmp_path, jks("pw", key("client", "pw", CLIENT), key("broker", "pw", BROKER, OTHER_CA)), "pw")
    assert client_name_seen_by_server(settings_for(port, **second)) == "nobody"
    issuer = truststore(tmp_path, jks("pw", key("other", "pw", CLIENT, CA)), "pw")
    assert "not signed" in tls_error_message(settings_for(port, **issuer))


def test_chain_of_the_client(serve_tls: Callable[..., int], tmp_path: Path) -> None:
    between = CertifiedKey("between", CA)
    client = CertifiedKey("leaf", between, hosts="client")
    store = keystore(tmp_path, jks("pw", trusted("ca", CA), key("client", "pw", client, between, CA)), "pw")
    settings = settings_for(serve_tls(clients=CA), ssl_truststore_certificates=CA.pem, **store)
    assert client_name_seen_by_server(settings) == "CN=leaf"


# Keys


def test_password_of_the_key(tmp_path: Path) -> None:
    same = jks(PASSWORD, key("client", PASSWORD, CLIENT))
    tls_context(settings_for(1, **keystore(tmp_path, same, PASSWORD)).security.tls or TlsSettings())
    own = jks(PASSWORD, key("client", "its own", CLIENT))
    tls_context(settings_for(1, **keystore(tmp_path, own, PASSWORD, "its own")).security.tls or TlsSettings())
    tls_context(settings_for(1, **keystore(tmp_path, own, "", "its own")).security.tls or TlsSettings())


def test_a_decrypted_key_is_not_shown() -> None:
    (opened,) = reader.open_keys(reader.read_jks(jks("pw", key("client", "pw", CLIENT)), "pw"), "pw")
    assert opened.key == pkcs8(CLIENT)
    assert repr(opened.key)[2:-1] not in repr(opened)
    assert "key=" not in repr(opened)


@pytest.mark.parametrize(
    ("passwords", "expected"),
    [
        (("wrong hunter2", ""), "the store cannot be opened; kafka.ssl.keystore.password is wrong, or the file is"),
        (("pw", ""), "the private key cannot be decrypted; check kafka.ssl.keystore.password"),
        (("pw", "hunter2"), "the private key cannot be decrypted; check kafka.ssl.key.password"),
        (("", ""), "the private key is encrypted; set kafka.ssl.keystore.password"),
    ],
)
def test_wrong_and_missing_passwords(tmp_path: Path, passwords: tuple[str, str], expected: str) -> None:
    message = error_of(**keystore(tmp_path, jks("pw", key("client", "of the key", CLIENT)), *passwords))
    assert message.startswith(f"option kafka.ssl.keystore.location: {expected}")
    assert "hunter2" not in message


def test_a_wrong_password_of_a_truststore_is_rejected(tmp_path: Path) -> None:
    message = error_of(**truststore(tmp_path, jks("pw", trusted("ca", CA)), "hunter2"))
    assert "kafka.ssl.truststore.password is wrong" in message
    assert "hunter2" not in message


def test_stores_without_what_is_wanted(tmp_path: Path) -> None:
    assert "the store has no CA certificate" in error_of(**truststore(tmp_path, jks("pw"), "pw"))
    only_trusted = keystore(tmp_path, jks("pw", trusted("ca", CA)), "pw")
    assert "the store has no private key with its certificate" in error_of(**only_trusted)
    without_chain = keystore(tmp_path, jks("pw", key("client", "pw", CLIENT)[: -len(trusted("", CLIENT)) + 14]), "pw")
    assert "damaged" in error_of(**without_chain)


@pytest.mark.parametrize("alias", ["one", "two", "three"])  # the first one for Java is "one"
def test_a_key_without_a_certificate_is_not_chosen(tmp_path: Path, alias: str) -> None:
    protected = protect(pkcs8(CLIENT), "pw")
    others = [protected_key(name, protected) for name in ("one", "two", "three") if name != alias]
    assert "the store has no private key with its certificate" in error_of(
        **keystore(tmp_path, jks("pw", *others), "pw")
    )
    for entries in ([*others, key(alias, "pw", CLIENT)], [key(alias, "pw", CLIENT), *others]):
        store = new_file(tmp_path, jks("pw", *entries))
        found = load_client_certificate(TlsSettings(keystore_location=store, keystore_password=Secret("pw")))
        assert found is not None
        assert found.pem.startswith(CLIENT.pem.encode())


def test_a_key_of_another_certificate(tmp_path: Path) -> None:
    entry = protected_key("client", protect(pkcs8(BROKER), "pw"), CLIENT)
    assert "does not belong to the certificate" in error_of(**keystore(tmp_path, jks("pw", entry), "pw"))


def test_another_encryption_of_the_key(tmp_path: Path) -> None:
    foreign = protect(pkcs8(CLIENT), "pw").replace(bytes.fromhex("2b060104012a02110101"), b"\x2b" + bytes(9))
    message = error_of(**keystore(tmp_path, jks("pw", protected_key("client", foreign, CLIENT)), "pw"))
    assert "the encryption of a private key is not that of JKS" in message


@pytest.mark.parametrize("kind", [b"\0\x05X.509", b"\0\x04X509"])
def test_the_names_of_the_type_of_certificates(kind: bytes) -> None:
    entry = trusted("ca", CA)
    assert entry.count(b"\0\x05X.509") == 1
    assert len(reader.read_jks(jks("pw", entry.replace(b"\0\x05X.509", kind)), "pw").certificates) == 1


def test_bytes_after_the_digest_are_ignored() -> None:
    """As in Java."""
    data = jks("pw", trusted("ca", CA), trusted("other", OTHER_CA))
    assert reader.read_jks(data + b"more" * 10, "pw") == reader.read_jks(data, "pw")


def test_the_last_of_two_entries_with_one_alias_counts(tmp_path: Path) -> None:
    store = truststore(tmp_path, jks("pw", trusted("a", OTHER_CA), trusted("a", CA)), "pw")
    assert load_ca_certificates(TlsSettings(truststore_location=store["ssl_truststore_location"])) == CA.pem


@pytest.mark.parametrize(
    ("aliases", "expected"),  # as ``tests/java/KeyStores.java`` returned them
    [("two one three", "one"), ("kafka-old kafka-new", "kafka-new"), ("2025 2026", "2026"), ("größe 密", "größe")],
)
def test_the_key_that_java_chooses_is_first(aliases: str, expected: str) -> None:
    names = aliases.split()
    for order in (names, reversed(names)):
        store = reader.read_jks(jks("pw", *[key(name, "pw", CLIENT) for name in order]), "pw")
        assert reader.open_keys(store, "pw")[0].alias == expected


def test_java_prefers_an_ec_key_and_then_an_rsa_key() -> None:
    rsa_key, other_key = rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()
    ec_entry = key("two", "pw", CLIENT)
    rsa_entries = {name: protected_key(name, protect(der(rsa_key), "pw"), CLIENT) for name in ("one", "two")}
    other_entry = protected_key("one", protect(der(other_key), "pw"), CLIENT)
    for entries in ((rsa_entries["one"], ec_entry), (other_entry, ec_entry), (other_entry, rsa_entries["two"])):
        opened = reader.open_keys(reader.read_jks(jks("pw", *entries), "pw"), "pw")
        assert [each.alias for each in opened] == ["two", "one"]


# Other types


def test_jceks_is_rejected_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = truststore(tmp_path, b"\xce\xce\xce\xce" + bytes(40), "pw")
    message = error_of(**store)
    path = store["ssl_truststore_location"]
    assert (
        f"keytool -importkeystore -srckeystore {path} -srcstoretype JCEKS -destkeystore {path}.p12 "
        "-deststoretype PKCS12"
    ) in message


# Damage


STORE = jks("pw", key("client", "pw", CLIENT, CA), trusted("ca", CA), trusted("other", OTHER_CA))


def test_every_truncation_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "key.jks"
    for size in range(4, len(STORE), 7):
        path.write_bytes(STORE[:size])
        for load in (load_ca_certificates, load_client_certificate):
            with pytest.raises(OptionError, match=r"the JKS store is damaged \(it ends too early\)$"):
                load(TlsSettings(truststore_location=str(path), keystore_location=str(path)))


@given(
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=5),
    st.integers(0, 1 << 16) | st.just(len(STORE)),
    st.sampled_from(["pw", None]),
)
def test_random_damage_is_one_sentence(changes: list[tuple[int, int]], size: int, password: str | None) -> None:
    data = damaged(STORE, changes, size)
    try:
        store = reader.read_jks(data, password)
        reader.open_keys(store, "pw")
    except (reader.DamagedStoreError, reader.WrongPasswordError):
        return
    assert password is None or data == STORE


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">ii", 3, 0), "its version is 3"),
        (struct.pack(">iI", 2, 0xFFFF_FFFF), "more than 20000 entries"),
        (struct.pack(">iii", 2, 1, 3) + bytes(10), "an entry of the unknown type 3"),
        (struct.pack(">iiihqI", 2, 1, 1, 0, 0, 0xFFFF_FFFF), "it ends too early"),
        (struct.pack(">iiihqiI", 2, 1, 1, 0, 0, 0, 0xFFFF_FFFF), "more than 20000 entries or certificates"),
        (struct.pack(">iiihqh", 2, 1, 2, 0, 0, 3) + b"PGP" + bytes(8), "a certificate of an unknown type"),
    ],
)
def test_hostile_lengths(data: bytes, reason: str) -> None:
    with pytest.raises(reader.DamagedStoreError, match=reason):
        reader.read_jks(b"\xfe\xed\xfe\xed" + data, None)


def test_chains_of_all_entries_count_together() -> None:
    entry = struct.pack(">ihqii", 1, 0, 0, 0, 15_000) + (b"\0\x05X.509" + bytes(4)) * 15_000
    with pytest.raises(reader.DamagedStoreError, match="more than 20000"):
        reader.read_jks(jks("pw", entry, entry), None)


@pytest.mark.slow
def test_large_files_are_read_in_linear_time(tmp_path: Path) -> None:
    """16 MiB, the largest file: a key of 15 MiB is decrypted, and then a certificate of that size is not one."""
    path = tmp_path / "key.jks"
    path.write_bytes(jks("pw", protected_key("client", _huge_key(15 << 20), CLIENT)))
    tls = TlsSettings(keystore_location=str(path), keystore_password=Secret("pw"))
    started = time.process_time()
    with pytest.raises(OptionError, match="the private key cannot be decrypted"):
        load_client_certificate(tls)
    path.write_bytes(jks("pw", trusted("ca", os.urandom(15 << 20))))
    with pytest.raises(OptionError, match="unreadable certificate"):
        tls_context(TlsSettings(truststore_location=str(path)))
    assert time.process_time() - started < 60


def _huge_key(size: int) -> bytes:
    value = b"\x04\x84" + struct.pack(">I", size) + bytes(size)
    algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
    return b"\x30\x84" + struct.pack(">I", len(algorithm) + len(value)) + algorithm + value


def pkcs8(certified: CertifiedKey) -> Any:
    return der(certified.key)


def der(private_key: Any) -> Any:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return private_key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
