from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from pyspark_kafka_direct.broker._certificates import Certificates
from pyspark_kafka_direct.broker._security import (
    DEFAULT_USERS,
    Credentials,
    check_security,
    listeners,
    scram_users,
    unsecured_token,
    wants_certificates,
)
from pyspark_kafka_direct.errors import OptionError


def test_listeners_are_named_once_and_must_be_known() -> None:
    assert check_security(["SSL", "MTLS", "SSL"]) == ("SSL", "MTLS")
    with pytest.raises(OptionError, match="'TLS': an embedded Kafka has SSL, MTLS, SASL_PLAINTEXT, SASL_SSL"):
        check_security(["TLS"])


def test_certificates_are_wanted_by_tls_only() -> None:
    assert not wants_certificates(["SASL_PLAINTEXT"])
    assert all(wants_certificates([name]) for name in ("SSL", "MTLS", "SASL_SSL"))


def test_plaintext_is_always_there_and_mutual_tls_asks_the_client() -> None:
    made = listeners(["SSL", "MTLS"], Certificates(Path("/c")), ())
    assert [(listener.name, listener.protocol) for listener in made] == [
        ("PLAINTEXT", "PLAINTEXT"),
        ("SSL", "SSL"),
        ("MTLS", "SSL"),
    ]
    assert made[1].properties["listener.name.ssl.ssl.client.auth"] == "none"
    assert made[2].properties["listener.name.mtls.ssl.client.auth"] == "required"


def test_passwords_are_quoted_for_jaas() -> None:
    [_, sasl] = listeners(["SASL_PLAINTEXT"], None, [Credentials("eve", 'a"b\\c')])
    config = sasl.properties["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert config.endswith(r'required user_eve="a\"b\\c";')


def test_scram_users_are_made_for_sasl_only() -> None:
    assert scram_users(["SSL"], DEFAULT_USERS) == ()
    assert "SCRAM-SHA-512=[name=bob,password=bob-secret]" in scram_users(["SASL_SSL"], DEFAULT_USERS)


def test_no_password_is_shown() -> None:
    shown = repr([DEFAULT_USERS, listeners(["SASL_SSL"], Certificates(Path("/c")), DEFAULT_USERS)])
    assert "alice" in shown
    assert "secret" not in shown


def test_a_token_names_its_subject_and_its_end() -> None:
    header, claims, signature = unsecured_token("olga", 60).split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    told = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert told["sub"] == "olga"
    assert 50 < told["exp"] - time.time() <= 60
    assert signature == ""
