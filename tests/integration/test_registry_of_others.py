"""The client of a schema registry with one that others wrote, whose compilation takes half a minute of CPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.srfake import build_srfake, run_srfake

from pyspark_kafka_direct.errors import SchemaNotFoundError, SchemaRegistryError
from pyspark_kafka_direct.options.payload_settings import SidePayload
from pyspark_kafka_direct.options.registry_settings import RegistryCredentials, RegistrySettings
from pyspark_kafka_direct.options.security_settings import Secret
from pyspark_kafka_direct.options.sink_payloads import SinkPayloads
from pyspark_kafka_direct.payloads.registry.registered_schema import Schema, SchemaReference
from pyspark_kafka_direct.payloads.registry.registry_client import RegistryClient
from pyspark_kafka_direct.payloads.spark.writer_schemas import resolve_writer_schemas

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.soak

LEAF = '{"type": "record", "name": "Leaf", "fields": [{"name": "a", "type": "long"}]}'
ROOT = '{"type": "record", "name": "Root", "fields": [{"name": "leaf", "type": "Leaf"}]}'


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_srfake(tmp_path_factory.mktemp("srfake"))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_schemas_of_another_registry(program: Path) -> None:
    with run_srfake(program) as url:
        client = RegistryClient(RegistrySettings((url,)))
        leaf_id = client.register("leaf", Schema(LEAF))
        root = Schema(ROOT, references=(SchemaReference("Leaf", "leaf", 1),))
        root_id = client.register("a/b c-value", root)
        assert client.register("a/b c-value", root) == root_id != leaf_id

        found = client.schema_by_id(root_id)
        assert (found.text, found.schema_type) == (ROOT, "AVRO")
        assert [(each.name, each.text) for each in found.dependencies] == [("Leaf", LEAF)]
        assert client.schema_by_id(leaf_id).text == LEAF

        latest = client.schema_of_subject("a/b c-value").registered
        assert (latest.schema_id, latest.version, latest.subject) == (root_id, 1, "a/b c-value")
        assert client.schema_of_subject("leaf", 1).registered.schema_id == leaf_id
        assert client.look_up("leaf", Schema(LEAF)).version == 1
        assert client.versions_of_id(leaf_id) == [("leaf", 1)]
        if latest.guid is not None:
            assert client.schema_by_guid(latest.guid).text == ROOT

        proto = 'syntax = "proto3"; message A { int64 a = 1; }'
        proto_id = client.register("p-value", Schema(proto, "PROTOBUF"))
        assert client.schema_by_id(proto_id).schema_type == "PROTOBUF"


def test_the_schemas_that_a_sink_writes_with(program: Path) -> None:
    with run_srfake(program) as url:
        settings = RegistrySettings((url,))

        def prefix(schema: str | None, *, auto_register: bool = False) -> bytes:
            payload = SidePayload("value", "avro", schema, framing="confluent")
            payloads = SinkPayloads((payload,), settings, auto_register)
            return resolve_writer_schemas(payloads, None, "t")["value"].prefix

        for given in (LEAF, None):
            with pytest.raises(SchemaNotFoundError, match=r"Subject 't-value'.* auto.register.schemas=true"):
                prefix(given)
        registered = prefix(LEAF, auto_register=True)
        assert registered == b"\0" + RegistryClient(settings).register("t-value", Schema(LEAF)).to_bytes(4, "big")
        assert prefix(LEAF) == prefix(None) == registered


def test_what_another_registry_does_not_have(program: Path) -> None:
    with run_srfake(program) as url:
        client = RegistryClient(RegistrySettings((url,)))
        client.register("leaf", Schema(LEAF))
        with pytest.raises(SchemaNotFoundError, match=r"Schema id 77: .*does not have it .error 40403"):
            client.schema_by_id(77)
        with pytest.raises(SchemaNotFoundError, match=r"Subject 'other', version latest: .*error 40401"):
            client.schema_of_subject("other")
        with pytest.raises(SchemaNotFoundError, match=r"Subject 'leaf', version 2: .*error 40402"):
            client.schema_of_subject("leaf", 2)
        with pytest.raises(SchemaNotFoundError, match=r"error 40403"):
            client.look_up("leaf", Schema('"string"'))


def test_another_registry_that_requires_a_login(program: Path) -> None:
    with run_srfake(program, "Basic bWU6aHVudGVyMg==") as url:
        right, wrong = (
            RegistryClient(RegistrySettings((url,), RegistryCredentials("me", Secret(password))))
            for password in ("hunter2", "x")
        )
        assert right.schema_by_id(right.register("leaf", Schema(LEAF))).text == LEAF
        with pytest.raises(SchemaRegistryError, match=r"returned HTTP 403 .*check the credentials"):
            wrong.schema_of_subject("leaf")
