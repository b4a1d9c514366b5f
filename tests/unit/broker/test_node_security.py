from __future__ import annotations

import base64
import itertools
import json
import time
from pathlib import Path

import pytest

from pyspark_kafka_direct.broker.certificate_authority import Certificates
from pyspark_kafka_direct.broker.node_config import (
    DEFAULT_USERS,
    Credentials,
    build_listeners,
    check_listener_names,
    needs_certificates,
    scram_users,
    unsecured_token,
)
from pyspark_kafka_direct.errors import OptionError


def test_listener_names_are_unique_and_known() -> None:
    assert check_listener_names(["SSL", "MTLS", "SSL"]) == ("SSL", "MTLS")
    with pytest.raises(OptionError, match="'TLS': an embedded Kafka supports SSL, MTLS, SASL_PLAINTEXT, SASL_SSL"):
        check_listener_names(["TLS"])


def test_only_tls_needs_certificates() -> None:
    assert not needs_certificates(["SASL_PLAINTEXT"])
    assert not needs_certificates([])
    for names in itertools.permutations(["SASL_PLAINTEXT", "SSL", "MTLS", "SASL_SSL"], 2):
        assert needs_certificates(names), names
        assert needs_certificates(names[:1]) == (names[0] != "SASL_PLAINTEXT")


def test_plaintext_always_exists_and_mutual_tls_requires_a_client_certificate() -> None:
    listeners = build_listeners(["SSL", "MTLS"], Certificates(Path("/c")), ())
    assert [(listener.name, listener.protocol) for listener in listeners] == [
        ("PLAINTEXT", "PLAINTEXT"),
        ("SSL", "SSL"),
        ("MTLS", "SSL"),
    ]
    assert listeners[1].properties["listener.name.ssl.ssl.client.auth"] == "none"
    assert listeners[2].properties["listener.name.mtls.ssl.client.auth"] == "required"


def test_passwords_are_quoted_for_jaas() -> None:
    [_, sasl] = build_listeners(["SASL_PLAINTEXT"], None, [Credentials("eve", 'a"b\\c')])
    config = sasl.properties["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert config.endswith(r'required user_eve="a\"b\\c";')


def test_scram_users_are_created_for_sasl_only() -> None:
    assert scram_users(["SSL"], DEFAULT_USERS) == ()
    assert "SCRAM-SHA-512=[name=bob,password=bob-secret]" in scram_users(["SASL_SSL"], DEFAULT_USERS)


def test_no_password_is_shown() -> None:
    shown = repr([DEFAULT_USERS, build_listeners(["SASL_SSL"], Certificates(Path("/c")), DEFAULT_USERS)])
    assert "alice" in shown
    assert "secret" not in shown


def test_a_token_has_a_subject_and_an_expiry() -> None:
    header, claims, signature = unsecured_token("olga", 60).split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    payload = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert payload["sub"] == "olga"
    assert 50 < payload["exp"] - time.time() <= 60
    assert signature == ""
