"""Tickets that live for seconds are renewed before connections authenticate again.

Both sides tolerate a clock skew of one second only, so that expired tickets are rejected. The broker ends sessions
without reauthentication (KIP-368).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest
from tests.kerberos.clients import HANG, connect, send_request, settings, with_keytab
from tests.kerberos.conftest import start_kafka

from pyspark_kafka_direct.client.connection import Connection
from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kerberos.kdc import Kdc

    from pyspark_kafka_direct.broker import EmbeddedKafka

TICKET_SECONDS = 6
SESSION_SECONDS = 4


@pytest.fixture(scope="module")
def kafka(kdc: Kdc, krb5_conf: Path, broker_keytab: Path) -> Iterator[EmbeddedKafka]:
    """A broker with short sessions, and a configuration of both sides with ``clockskew = 1``."""
    conf = kdc.client_config("strict", kdc.port, "clockskew = 1")
    sessions = {"connections.max.reauth.ms": str(SESSION_SECONDS * 1000)}
    with pytest.MonkeyPatch.context() as patch, start_kafka(conf, broker_keytab, sessions) as kafka:
        patch.setenv("KRB5_CONFIG", str(conf))
        yield kafka


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    """The keytab of a principal whose tickets live for seconds."""
    return kdc.add("brief", "-maxlife", f"{TICKET_SECONDS}seconds")


def test_a_connection_outlives_many_tickets(
    kafka: EmbeddedKafka, keytab: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = settings(kafka, with_keytab("brief", keytab))
    end = time.monotonic() + 3.5 * TICKET_SECONDS
    with caplog.at_level(logging.DEBUG, "pyspark_kafka_direct.client"):
        connection = Connection.open(client, *client.bootstrap_servers[0], Deadline.after(HANG))
        while time.monotonic() < end:
            send_request(connection)
            time.sleep(0.05)
        connection.close()
    logins = [message for message in caplog.messages if "Kerberos login as brief@" in message]
    assert len(logins) >= 4
    assert logins[0].endswith(f", for {TICKET_SECONDS} seconds")


def test_new_connections_have_new_tickets(kafka: EmbeddedKafka, keytab: Path) -> None:
    client = settings(kafka, with_keytab("brief", keytab))
    end = time.monotonic() + 1.5 * TICKET_SECONDS
    while time.monotonic() < end:
        connect(client)
        time.sleep(0.05)


def test_a_broker_with_a_new_key(kdc: Kdc, krb5_conf: Path, alice: Path, tmp_path: Path) -> None:
    """The first login fails with the ticket for the old key, and the next one has a new ticket."""
    keytab = tmp_path / "broker.keytab"
    keytab.write_bytes(kdc.add("rotated/localhost").read_bytes())
    with start_kafka(krb5_conf, keytab, {}, "rotated") as kafka:
        client = settings(kafka, with_keytab("alice", alice), sasl_kerberos_service_name="rotated")
        connect(client)
        keytab.write_bytes(kdc.new_key("rotated/localhost").read_bytes())
        with pytest.raises(AuthenticationError, match="rejected the Kerberos principal"):
            connect(client)
        connect(client)
