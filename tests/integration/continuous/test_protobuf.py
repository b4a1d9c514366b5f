"""``valueFormat=protobuf`` in continuous queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct import OptionError

if TYPE_CHECKING:
    from tests.conftest import MakeTopic
    from tests.integration.continuous.continuous_queries import Queries

SCHEMA = 'syntax = "proto3"; message Other { int32 o = 1; } message N { int32 n = 1; string s = 2; }'


def test_protobuf_in_a_continuous_query(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, ["\x08\x05\x12\x01a", "\x08", "\x08\x06"])
    options = {"valueFormat": "protobuf", "valueSchema": SCHEMA, "valueMessage": "N", "mode": "DROPMALFORMED"}
    query = queries.start(queries.read(subscribe=source, **options).select("value").to_kafka(output))
    queries.expect(output, ['{"n":5,"s":"a"}', '{"n":6}'], query)


def test_the_id_of_the_schema_in_front_of_protobuf(queries: Queries, make_topic: MakeTopic) -> None:
    source, output = make_topic(), make_topic()
    queries.put(source, ["\0\0\0\0\x07\x02\x02\x08\x05", "\0\0\0\0\x08\x02\x02\x08\x06", "\x08\x07"])
    options = {"valueFormat": "protobuf", "valueSchema": SCHEMA, "valueMessage": "N", "mode": "DROPMALFORMED"}
    with pytest.raises(OptionError, match=r"valueFraming=confluent needs a registry.* or valueSchemaId"):
        queries.read(subscribe=source, **options, valueFraming="confluent")
    read = queries.read(subscribe=source, **options, valueSchemaId="7")
    query = queries.start(read.select("value").to_kafka(output))
    queries.put(source, ["\0\0\0\0\x07\x02\x02\x08\x08"])
    queries.expect(output, ['{"n":5}', '{"n":8}'], query)
