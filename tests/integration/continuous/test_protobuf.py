"""``valueFormat=protobuf`` in continuous queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
