"""Stores that ``keytool`` writes in the format JKS, and Java's own reading of stores and of damaged ones.

``keytool`` and the reading are those of the Java that runs the tests, 17 or newer. The format has not changed since
Java 1.2.
"""

from __future__ import annotations

import base64
import os
import random
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.jks_files import damaged, jks, key, trusted
from tests.unit.client.certified_keys import BROKER, CA, CLIENT, OTHER_CA

from pyspark_kafka_direct.broker.java import find_java
from pyspark_kafka_direct.client.security.jks import (
    DamagedStoreError,
    WrongPasswordError,
    open_keys,
    read_jks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "geheim-ß-密-\U0001f511"
_KEYTOOL_IS_EXPORTED = ["--add-exports", "java.base/sun.security.tools.keytool=ALL-UNNAMED"]


class Found(NamedTuple):
    """The content of a store."""

    keys: dict[str, tuple[str, str]]  # by alias: the key ("wrong" if the password does not open it), and its chain
    certificates: list[str]  # sorted
    chosen: str  # the alias that Java's client uses


NOTHING = Found({}, [], "")


class JavaStores:
    """The program ``tests/java/KeyStores.java``."""

    def __init__(self) -> None:
        program = Path(__file__).parents[1] / "java" / "KeyStores.java"
        self._process = subprocess.Popen(
            [find_java(), "-XX:TieredStopAtLevel=1", "-Xmx256m", *_KEYTOOL_IS_EXPORTED, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="ascii",
            env={**os.environ, "PASSWORD": PASSWORD, "LC_ALL": "C.UTF-8"},
        )

    def read(self, file: bytes, password: str | None, key_password: str | None) -> Found | None:
        """Return what Java finds in a file, or None if it rejects the file."""
        fields = [file, *(None if each is None else each.encode() for each in (password, key_password))]
        answer = self._answer(" ".join("-" if each is None else encoded(each) for each in fields))
        *entries, marker, chosen = answer.split("\t")
        if entries == [] and marker == "error":
            return None
        keys, certificates = {}, []
        for entry in entries:
            alias, private_key, chain = entry.split(":")
            if private_key:
                keys[decoded(alias)] = (private_key, chain)
            else:
                certificates.append(chain)
        return Found(keys, sorted(certificates), decoded(chosen))

    def keytool(self, *arguments: str) -> None:
        """Run ``keytool`` with ``PASSWORD`` as the password that ``$PASSWORD`` stands for."""
        answer = self._answer(" ".join(["keytool", *(encoded(each.encode()) for each in arguments)]))
        assert answer == "done", "keytool has printed an error to standard error"

    def close(self) -> None:
        self._process.communicate(timeout=600)

    def _answer(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")


@pytest.fixture(scope="module")
def java() -> Iterator[JavaStores]:
    with closing(JavaStores()) as program:
        yield program


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def read_here(file: bytes, password: str | None, key_password: str) -> Found | None:
    """Return what this package finds, or None if it rejects the file."""
    try:
        store = read_jks(file, password)
        opened = open_keys(store, key_password)
    except (DamagedStoreError, WrongPasswordError):
        return None
    keys = {each.alias: (encoded(each.key), ",".join(map(encoded, each.chain))) for each in opened}
    return Found(keys, sorted(map(encoded, store.certificates)), opened[0].alias if opened else "")


# Stores of keytool


@pytest.fixture(scope="module")
def store_of_keytool(java: JavaStores, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An RSA, a DSA and an EC key, two signed by a CA and an issuer between, and the CA as a trusted certificate."""
    folder = tmp_path_factory.mktemp("keytool")
    store, authority = folder / "client.jks", folder / "ca.jks"
    opens = ["-storetype", "JKS", "-storepass:env", "PASSWORD", "-keypass:env", "PASSWORD"]
    with_authority, with_store = ["-keystore", str(authority), *opens], ["-keystore", str(store), *opens]
    request, reply, chain = folder / "request", folder / "reply", folder / "chain.pem"

    def sign(alias: str, signer: str, keystore: list[str], *extensions: str) -> None:
        java.keytool("-certreq", "-alias", alias, "-file", str(request), *keystore)
        given = ["-infile", str(request), "-outfile", str(reply), "-rfc"]
        java.keytool("-gencert", "-alias", signer, *given, *extensions, *with_authority)
        chain.write_text(reply.read_text() + chain.read_text())
        java.keytool("-importcert", "-noprompt", "-alias", alias, "-file", str(chain), *keystore)

    is_authority = ["-ext", "BasicConstraints:critical=ca:true"]
    for alias in ("ca", "between"):
        java.keytool(
            "-genkeypair", "-keyalg", "EC", "-alias", alias, "-dname", f"CN={alias}", *is_authority, *with_authority
        )
    java.keytool("-exportcert", "-rfc", "-alias", "ca", "-file", str(chain), *with_authority)
    java.keytool("-importcert", "-noprompt", "-alias", "größe-密", "-file", str(chain), *with_store)
    sign("between", "ca", with_authority, *is_authority)
    issuers = chain.read_text()
    for alias, algorithm in (("rsa", "RSA"), ("ec-ß-密", "EC")):
        java.keytool("-genkeypair", "-keyalg", algorithm, "-alias", alias, "-dname", f"CN={alias}", *with_store)
        chain.write_text(issuers)
        sign(alias, "between", with_store)
    java.keytool("-genkeypair", "-keyalg", "DSA", "-alias", "dsa", "-dname", "CN=dsa", *with_store)
    return store


def test_stores_of_keytool(java: JavaStores, store_of_keytool: Path) -> None:
    file = store_of_keytool.read_bytes()
    found = java.read(file, PASSWORD, PASSWORD)
    assert found is not None
    assert found.keys.keys() == {"rsa", "dsa", "ec-ß-密"}
    assert [found.keys[alias][1].count(",") for alias in ("rsa", "ec-ß-密", "dsa")] == [2, 2, 0]
    assert len(found.certificates) == 1
    assert found.chosen == "ec-ß-密"
    assert read_here(file, PASSWORD, PASSWORD) == found
    assert read_here(file, None, PASSWORD) == java.read(file, None, PASSWORD) == found
    assert read_here(file, "wrong", PASSWORD) is java.read(file, "wrong", PASSWORD) is None


def test_a_key_with_its_own_password(java: JavaStores, store_of_keytool: Path, tmp_path: Path) -> None:
    store = tmp_path / "own.jks"
    store.write_bytes(store_of_keytool.read_bytes())
    java.keytool(
        *["-keypasswd", "-alias", "rsa", "-keystore", str(store), "-storetype", "JKS", "-storepass:env", "PASSWORD"],
        *["-keypass:env", "PASSWORD", "-new", "its own"],
    )
    expected = java.read(store.read_bytes(), PASSWORD, "its own")
    found = read_here(store.read_bytes(), PASSWORD, "its own")
    assert expected is not None
    assert found is not None
    assert expected.keys["dsa"][0] == "wrong"
    assert found.keys == {"rsa": expected.keys["rsa"]}


# Random stores


def test_java_chooses_the_same_key(java: JavaStores) -> None:
    """Java's choice depends on the aliases of all keys, and seldom on the order in the file: see ``open_keys``."""
    random_source = random.Random(1)
    differences = 0
    for _ in range(300):
        letters = random_source.choice(["abcdefgh", "0123456789-", "aß密\U0001f511"])
        count = random_source.choice([2, 3, 5, 20])
        names = {"".join(random_source.choices(letters, k=random_source.randint(1, 12))) for _ in range(count)}
        file = jks("pw", *[key(name, "pw", CLIENT, CA) for name in random_source.sample(sorted(names), len(names))])
        found = java.read(file, "pw", "pw")
        assert found is not None
        here = read_here(file, "pw", "pw")
        assert here is not None
        assert here[:2] == found[:2]
        differences += here.chosen != found.chosen
    assert differences <= 3


@pytest.mark.parametrize("version", [1, 2])
def test_damaged_stores(java: JavaStores, version: int) -> None:
    """Java parses certificates when it reads them. Here OpenSSL does that later."""
    random_source = random.Random(version)
    entries = [key("client", "pw", CLIENT, CA, version=version), trusted("ca", CA, version)]
    entries += [key("broker", "pw", BROKER, version=version), trusted("other", OTHER_CA, version)]
    file = jks("pw", *entries, version=version)
    assert read_here(file, "pw", "pw") == java.read(file, "pw", "pw") is not None
    accepted = 0
    for _ in range(500):
        changes = [
            (random_source.randrange(random_source.choice([200, len(file)])), random_source.randrange(256))
            for _ in range(random_source.randint(0, 3))
        ]
        size = random_source.choice([random_source.randrange(len(file)), len(file), len(file)])
        changed = damaged(file, changes, size)
        assert read_here(changed, "pw", "pw") == java.read(changed, "pw", "pw")
        without_password = java.read(changed, None, "pw")
        # Without a password, Java does not miss the digest, and reads a negative number of entries as none.
        if without_password not in (None, NOTHING) and size >= len(file):
            store = read_jks(changed, None)
            assert sorted(map(encoded, store.certificates)) == without_password.certificates
            assert len(store.keys) == len(without_password.keys)
            accepted += 1
    assert accepted > 20
