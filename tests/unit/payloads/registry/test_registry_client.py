"""The client of a schema registry: operations, references, retries, limits and the cache."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.fake_registry import FakeRegistry, Reply, Request

from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.errors import (
    SchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
)
from pyspark_kafka_direct.options.registry_settings import RegistrySettings
from pyspark_kafka_direct.payloads.registry import registry_client as client_module
from pyspark_kafka_direct.payloads.registry import single_flight_cache
from pyspark_kafka_direct.payloads.registry.registered_schema import Schema, SchemaReference
from pyspark_kafka_direct.payloads.registry.registry_client import RegistryClient, registry_client
from pyspark_kafka_direct.payloads.registry.single_flight_cache import SingleFlightCache

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = '"long"'
FAST = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5}


def client(*registries: FakeRegistry, **fields: Any) -> RegistryClient:
    return RegistryClient(RegistrySettings(tuple(each.url for each in registries), **{**FAST, **fields}))


def unavailable(caller: Callable[[], object]) -> str:
    with pytest.raises(SchemaRegistryUnavailableError) as caught:
        caller()
    return caught.value.message


def test_a_schema_is_requested_once_by_its_id(registry: FakeRegistry) -> None:
    schema_id = registry.add("t-value", LONG)
    reader = client(registry)
    found = reader.schema_by_id(schema_id)
    assert (found.text, found.schema_type, found.dependencies) == (LONG, "AVRO", ())
    registry.stop()
    assert reader.schema_by_id(schema_id) is found
    assert registry.paths == [f"GET /schemas/ids/{schema_id}"]


def test_a_schema_is_requested_once_by_its_guid(registry: FakeRegistry) -> None:
    guid = registry.guid_of(registry.add("t-value", "message A {}", schemaType="PROTOBUF"))
    reader = client(registry)
    assert [reader.schema_by_guid(guid).schema_type for _ in range(2)] == ["PROTOBUF"] * 2
    assert registry.paths == [f"GET /schemas/guids/{guid}"]


@pytest.mark.parametrize("content", [None, {"error_code": 404, "message": "HTTP 404 Not Found"}])
def test_a_registry_without_guids_has_none_of_them(registry: FakeRegistry, content: Any) -> None:
    """Apicurio returns an empty body, and old registries of Confluent an error code without a meaning."""
    registry.fault = lambda request: Reply(404, content) if "guids" in request.path else None
    reader = client(registry)
    with pytest.raises(
        SchemaNotFoundError, match=r"Schema 00.*: the registry localhost:\d+ does not find schemas by GU"
    ):
        reader.schema_by_guid(UUID(int=1))
    assert reader.schema_by_id(registry.add("t-value", LONG)).text == LONG


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (404, SchemaRegistryError, r"returned HTTP 404; check the path in schema\.registry\.url"),
        (403, SchemaRegistryError, r"returned HTTP 404; check the path in schema\.registry\.url"),
        (503, SchemaRegistryUnavailableError, "returned HTTP 503"),
    ],
)
def test_a_guid_is_not_missing_if_the_registry_does_not_have_ids_either(
    registry: FakeRegistry, status: int, error: type[SchemaRegistryError], message: str
) -> None:
    registry.fault = lambda request: Reply(404 if "guids" in request.path else status)
    with pytest.raises(SchemaRegistryError, match=message) as caught:
        client(registry, api_timeout_ms=3_000).schema_by_guid(UUID(int=1))
    assert type(caught.value) is error


def test_versions_of_a_subject(registry: FakeRegistry) -> None:
    ids = [registry.add("a/b-value", schema) for schema in (LONG, '"int"')]
    reader = client(registry)
    latest = reader.schema_of_subject("a/b-value").registered
    assert (latest.schema.text, latest.schema_id, latest.version, latest.subject) == ('"int"', ids[1], 2, "a/b-value")
    assert latest.guid == registry.guid_of(ids[1])
    assert reader.schema_of_subject("a/b-value", 1).registered.schema_id == ids[0]
    registry.add("a/b-value", '"string"')
    assert reader.schema_of_subject("a/b-value").registered.version == 3
    assert registry.paths[0] == "GET /subjects/a%2Fb-value/versions/latest"


def test_a_schema_is_registered_and_looked_up(registry: FakeRegistry) -> None:
    references = tuple(SchemaReference(f"{name}.proto", name, 1) for name in ("one", "two"))
    schema = Schema("message A {}", "PROTOBUF", references)
    for name in ("one", "two"):
        registry.add(name, f"message {name} {{}}", schemaType="PROTOBUF")
    writer = client(registry)
    with pytest.raises(SchemaNotFoundError, match=r"Subject 't-value': the registry localhost:.* does not have it"):
        writer.look_up("t-value", schema)
    schema_id = writer.register("t-value", schema)
    assert writer.register("t-value", schema) == schema_id
    found = writer.look_up("t-value", schema)
    assert (found.schema_id, found.version, found.schema) == (schema_id, 1, schema)


@pytest.mark.parametrize("entry", [7, {"subject": "b"}, {"subject": 5, "version": 2}])
def test_the_versions_of_a_schema(registry: FakeRegistry, entry: Any) -> None:
    versions = [{"subject": "a", "version": 1}, entry, {"subject": "c", "version": 3}]
    registry.fault = lambda _: Reply(content=versions)
    if entry == 7:
        with pytest.raises(SchemaRegistryError, match="without versions"):
            client(registry).versions_of_id(5)
    else:
        assert client(registry).versions_of_id(5) == [("a", 1), ("c", 3)]


def test_references_are_resolved_once_and_before_their_users(registry: FakeRegistry) -> None:
    registry.add("leaf", '"leaf"')
    leaf = {"name": "leaf", "subject": "leaf", "version": 1}
    for name in ("left", "right"):
        registry.add(name, f'"{name}"', references=[leaf])
    branches = [{"name": name, "subject": name, "version": 1} for name in ("left", "right")]
    schema_id = registry.add("root", '"root"', references=branches)
    found = client(registry).schema_by_id(schema_id)
    assert [schema.name for schema in found.dependencies] == ["leaf", "left", "right"]
    assert [schema.text for schema in found.dependencies] == ['"leaf"', '"left"', '"right"']
    assert sorted(registry.paths[1:]) == [f"GET /subjects/{name}/versions/1" for name in ("leaf", "left", "right")]


def test_references_that_are_hostile(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_REFERENCES", 150)
    monkeypatch.setattr(client_module, "_MAX_CHARS", 10_000)

    def respond(request: Request) -> Reply | None:
        *_, subject, _, version = request.path.split("/")
        if subject == "cycle":
            return Reply(content={"schema": LONG, "references": [{"name": "c", "subject": "cycle", "version": 1}]})
        if subject == "ring":
            return Reply(content={"schema": LONG, "references": [{"name": "o", "subject": "other", "version": 1}]})
        if subject == "other":
            return Reply(content={"schema": LONG, "references": [{"name": "r", "subject": "ring", "version": 1}]})
        if subject == "large":
            parts = [{"name": "p", "subject": "part", "version": number} for number in range(1, int(version) + 1)]
            return Reply(content={"schema": LONG, "references": parts})
        if subject == "part":
            return Reply(content={"schema": json.dumps("x" * 4900)})
        if subject == "deep":
            next_one = {"name": "d", "subject": "deep", "version": int(version) + 1}
            return Reply(content={"schema": LONG, "references": [next_one]})
        if subject == "many":
            number = int(version)
            many = [{"name": "m", "subject": "many", "version": 100 * number + digit} for digit in range(100)]
            return Reply(content={"schema": LONG, "references": many if number < 1000 else []})
        return None

    registry.fault = respond
    for subject, message in (
        ("cycle", "Subject 'cycle', version latest: its references refer to themselves by 'c'."),
        ("ring", "Subject 'ring', version 1: its references refer to themselves by 'o'."),
        ("deep", "its references are nested more than 100 levels deep."),
        ("many", "its references are more than 150, or larger than 0 MiB together."),
    ):
        with pytest.raises(SchemaError, match=message.replace(".", "[.]")):
            client(registry).schema_of_subject(subject, "latest" if subject == "cycle" else 1)
    assert len(client(registry).schema_of_subject("large", 2).dependencies) == 2
    with pytest.raises(SchemaError, match="or larger than 0 MiB together"):
        client(registry).schema_of_subject("large", 3)


@pytest.mark.parametrize("place", ["schema", "reference"])
def test_schemas_with_encrypted_fields_are_rejected(registry: FakeRegistry, place: str) -> None:
    rules = {
        "domainRules": [
            {"name": "check", "type": "CEL"},
            {"name": "pii", "type": "ENCRYPT"},
            {"name": "off", "type": "ENCRYPT", "disabled": True},
        ],
        "encodingRules": [{"name": "all", "type": "ENCRYPT_PAYLOAD"}],
    }
    if place == "schema":
        schema_id = registry.add("t-value", LONG, ruleSet=rules)
    else:
        registry.add("other", LONG, ruleSet=rules)
        references = [{"name": "other", "subject": "other", "version": 1}]
        schema_id = registry.add("t-value", '"other"', references=references)
    reader = client(registry)
    for _ in range(2):
        with pytest.raises(SchemaError, match=r"Schema id \d has rules that encrypt .*\('pii', 'all'\).*not supported"):
            reader.schema_by_id(schema_id)
    assert registry.paths.count(f"GET /schemas/ids/{schema_id}") == 1


def test_threads_wait_for_one_request(registry: FakeRegistry) -> None:
    schema_id = registry.add("t-value", LONG)
    registry.delay = 0.2
    reader = client(registry)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: reader.schema_by_id(schema_id), range(8)))
    assert all(each is found[0] for each in found)
    assert len(registry.requests) == 1


def test_threads_that_wait_get_the_error_and_later_ones_request_again(registry: FakeRegistry) -> None:
    schema_id = registry.add("t-value", LONG)
    registry.fault = lambda _: Reply(401, {"error_code": 401, "message": "no"}, pause=0.2)
    reader = client(registry)
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(reader.schema_by_id, schema_id) for _ in range(4)]
        errors = [call.exception() for call in calls]
    assert {type(error) for error in errors} == {SchemaRegistryError}
    assert len({id(error) for error in errors}) == 4
    assert len(registry.requests) == 1
    registry.fault = None
    assert reader.schema_by_id(schema_id).text == LONG


class SlowClock(RealSystem):
    """Its monotonic clock can be advanced."""

    advance = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.advance


def test_a_missing_id_is_requested_again_after_ten_seconds(registry: FakeRegistry) -> None:
    system = SlowClock()
    reader = RegistryClient(RegistrySettings((registry.url,)), system)

    def request_missing() -> None:
        message = r'Schema id 7: the registry localhost:\d+ does not have it \(error 40403 "Schema not found"\)[.]'
        with pytest.raises(SchemaNotFoundError, match=message):
            reader.schema_by_id(7)

    request_missing()
    system.advance = 9.5
    request_missing()
    assert len(registry.requests) == 1
    registry.add("t-value", LONG, schema_id=7)
    system.advance = 10.5
    assert reader.schema_by_id(7).text == LONG


def test_ids_that_no_registry_has_are_not_requested(registry: FakeRegistry) -> None:
    for schema_id in (-1, 2**31, 2**32 - 1):  # records can contain any four bytes
        with pytest.raises(SchemaNotFoundError):
            client(registry).schema_by_id(schema_id)
    assert registry.requests == []


class StoppedClock(RealSystem):
    """Its monotonic clock is stopped, but can be advanced."""

    advance = 0.0

    def monotonic(self) -> float:
        return self.advance


def test_records_with_any_ids_cause_few_requests(registry: FakeRegistry) -> None:
    system = StoppedClock()
    reader = RegistryClient(RegistrySettings((registry.url,)), system)
    known = registry.add("t-value", LONG, schema_id=1)
    assert reader.schema_by_id(known).text == LONG
    late = registry.add("u-value", '"int"', schema_id=2)

    def request_missing(ids: range) -> list[str]:
        messages = []
        for schema_id in ids:
            with pytest.raises(SchemaNotFoundError) as caught:
                reader.schema_by_id(schema_id)
            messages.append(caught.value.message)
        return messages

    messages = request_missing(range(1000, 1300))
    assert len(registry.requests) == 1 + 100
    assert messages[-1] == (
        "Schema id 1299 was not requested: the registry did not have 100 other ids, so this process requests one "
        "unknown id per second."
    )
    assert reader.schema_by_id(known).text == LONG
    with pytest.raises(SchemaNotFoundError, match=r"Schema 00000000-.* was not requested"):
        reader.schema_by_guid(UUID(int=1))
    system.advance = 3.5
    assert reader.schema_by_id(late).text == '"int"'
    request_missing(range(2000, 2100))
    assert len(registry.requests) == 1 + 100 + 1 + 3
    system.advance = 1000.0  # a pause allows no more than at first
    request_missing(range(3000, 3200))
    assert len(registry.requests) == 1 + 100 + 1 + 3 + 100
    system.advance = 1011.0  # after which they may be requested again, one per second
    request_missing(range(3000, 3200))
    assert len(registry.requests) == 1 + 100 + 1 + 3 + 100 + 11


def test_another_url_is_used_if_one_fails(registry: FakeRegistry) -> None:
    ids = [registry.add("t-value", schema) for schema in (LONG, '"int"')]
    with FakeRegistry() as broken:
        broken.fault = lambda _: Reply(500, {"error_code": 50002, "message": "leader unknown"})
        reader = client(broken, registry)
        assert [reader.schema_by_id(schema_id).text for schema_id in ids] == [LONG, '"int"']
        assert len(broken.requests) == 1  # the second request begins with the URL that responded
        with FakeRegistry() as third:
            third_id = third.add("u-value", '"bytes"', schema_id=9)
            reader = client(broken, registry, third)
            assert reader.schema_by_id(ids[0]).text == LONG
            registry.fault = broken.fault
            assert reader.schema_by_id(third_id).text == '"bytes"'
        registry.fault = None  # the others are requested again
        assert reader.schema_by_id(ids[1]).text == '"int"'
        registry.fault, broken.fault = broken.fault, None
        broken.add("v-value", '"float"', schema_id=8)
        assert reader.schema_by_id(8).text == '"float"'
    registry.stop()
    message = unavailable(lambda: client(broken, registry, api_timeout_ms=3_000).schema_by_id(ids[0]))
    assert message.count("cannot be reached (Connection refused)") == 2


def test_server_errors_are_retried(registry: FakeRegistry) -> None:
    schema_id = registry.add("t-value", LONG)
    statuses = iter([500, 503, 429, 408, 502])
    registry.fault = lambda _: next((Reply(status, "busy") for status in statuses), None)
    assert client(registry).schema_by_id(schema_id).text == LONG
    assert len(registry.requests) == 6


def test_the_error_names_reason_and_limit(registry: FakeRegistry) -> None:
    registry.fault = lambda _: Reply(500, {"error_code": 50001, "message": "store\nerror"})
    message = unavailable(lambda: client(registry, api_timeout_ms=3_000).schema_by_id(5))
    host = registry.url.removeprefix("http://")
    assert message == (
        f"Schema id 5: no schema registry of schema.registry.url is available: {host} returned HTTP 500 "
        '"store\\nerror". Start the query again when a registry is available: a stream continues from its checkpoint.'
    )


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(401, {"error_code": 401, "message": "Unauthorized"}), r'HTTP 401 "Unauthorized"; check the credentials'),
        (Reply(403, "no"), "returned HTTP 403; check the credentials"),
        (Reply(404, {"error_code": 404, "message": "HTTP 404 Not Found"}), "check the path in schema.registry.url"),
        (Reply(404, "<html>"), "returned HTTP 404; check the path"),
        (Reply(307, headers={"Location": "http://localhost:1/"}), "returned HTTP 307; redirects are not followed"),
        (Reply(409, {"error_code": 409, "message": "incompatible"}), 'HTTP 409 "incompatible"; the registry rejected'),
        (Reply(pieces=[b"<html>"]), "returned a response without a schema"),
        (Reply(pieces=[b"[" * 100_000]), "returned a response without a schema"),
        (Reply(content=[]), "without a schema"),
        (Reply(content={"schema": 5}), "without a schema"),
        (Reply(content={"schema": LONG, "schemaType": 5}), "whose schemaType is invalid"),
        (Reply(content={"schema": LONG, "references": 5}), "whose references are not a list"),
        (Reply(content={"schema": LONG, "references": [5]}), "with an invalid reference"),
        (Reply(content={"schema": LONG, "references": [{"name": "a", "subject": "b"}]}), "that has no version"),
        (Reply(content={"schema": LONG, "references": [{"name": "", "version": 1}]}), "name of a reference is invalid"),
        (Reply(content={"schema": LONG, "guid": "x"}), "whose guid is invalid"),
        (Reply(content={"schema": LONG, "id": 2**40}), "whose id is not an integer of 32 bits"),
        (Reply(content={"schema": LONG, "id": True}), "whose id is not an integer of 32 bits"),
        (Reply(content={"schema": LONG, "ruleSet": 5}), "whose ruleSet is invalid"),
        (Reply(content={"schema": LONG, "ruleSet": {"domainRules": [5]}}), "whose domainRules are invalid"),
        (Reply(content={"schema": LONG, "ruleSet": {"encodingRules": [{}, 5]}}), "whose encodingRules are invalid"),
        (Reply(pieces=(b"x" * (1 << 20) for _ in range(99))), "returned more than 8 MiB"),
    ],
)
def test_invalid_responses_are_final(registry: FakeRegistry, reply: Reply, message: str) -> None:
    registry.fault = lambda _: reply
    with pytest.raises(SchemaRegistryError, match=f"^Schema id 5: the registry .*{message}") as caught:
        client(registry).schema_by_id(5)
    assert type(caught.value) is SchemaRegistryError
    assert len(registry.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(pieces=[b"{}"], pause=5),
        Reply(pieces=[b'{"schema": '], declared_bytes=1000),  # the connection breaks
        Reply(500, pieces=[b"{"], declared_bytes=1000),
    ],
)
def test_slow_and_broken_responses_end_with_the_deadline(registry: FakeRegistry, reply: Reply) -> None:
    registry.fault = lambda _: reply
    message = unavailable(lambda: client(registry, read_timeout_ms=150, api_timeout_ms=400).schema_by_id(5))
    assert "did not respond in time (schema.registry." in message or "does not respond with HTTP" in message


def test_the_api_timeout_limits_the_first_request(registry: FakeRegistry) -> None:
    registry.delay = 1
    message = unavailable(lambda: client(registry, api_timeout_ms=100).schema_by_id(5))
    assert "did not respond in time (schema.registry.api.timeout.ms)" in message


def test_a_slow_url_does_not_use_up_the_deadline(registry: FakeRegistry) -> None:
    schema_id = registry.add("t-value", LONG)
    with FakeRegistry() as slow:
        slow.delay = 1
        assert client(slow, registry, read_timeout_ms=500).schema_by_id(schema_id).text == LONG


def test_a_slow_url_leaves_half_of_a_deadline_that_is_shorter_than_its_timeout(registry: FakeRegistry) -> None:
    schema_id = registry.add("t-value", LONG)
    with FakeRegistry() as slow:
        slow.delay = 5
        assert client(slow, registry, api_timeout_ms=4_000).schema_by_id(schema_id).text == LONG


def test_settings_are_picklable_and_a_process_has_one_client(registry: FakeRegistry) -> None:
    settings = RegistrySettings((registry.url,))
    again = pickle.loads(pickle.dumps(settings))
    assert again == settings
    assert registry_client(again) is registry_client(settings)
    assert registry_client(replace(settings, read_timeout_ms=5)) is not registry_client(settings)


def test_the_cache_is_bounded(registry: FakeRegistry) -> None:
    text = json.dumps("x" * (7 << 20))
    registry.fault = lambda _: Reply(content={"schema": text})
    reader = client(registry)
    for schema_id in range(1, 12):
        reader.schema_by_id(schema_id)
    requests = len(registry.requests)
    reader.schema_by_id(11)
    assert len(registry.requests) == requests
    reader.schema_by_id(1)  # was used first, so it was removed
    assert len(registry.requests) == requests + 1


def test_each_reference_counts_for_the_size_of_the_cache(registry: FakeRegistry) -> None:
    text = json.dumps("x" * (7 << 20))
    references = [{"name": name, "subject": name, "version": 1} for name in ("a", "b")]

    def respond(request: Request) -> Reply:
        is_by_id = request.path.startswith("/schemas/ids/")
        return Reply(content={"schema": LONG, "references": references} if is_by_id else {"schema": text})

    registry.fault = respond
    reader = client(registry)
    for schema_id in (*range(1, 7), 1):  # six times 14 MiB is more than the cache has
        reader.schema_by_id(schema_id)
    assert registry.paths.count("GET /schemas/ids/1") == 2


def test_the_cache_is_bounded_by_the_size_of_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_flight_cache, "_MAX_WEIGHT", 100)
    cache = SingleFlightCache[str](RealSystem(), len)

    def cached(value: str) -> list[bool]:
        assert cache.get(value[0], lambda: value, 1.0) == value
        return [cache.has(key) for key in "abcd"]

    assert cached("a" * 60) == [True, False, False, False]
    assert cached("b" * 40) == [True, True, False, False]
    assert cached("a" * 60) == [True, True, False, False], "then it was used last"
    assert cached("c" * 40) == [True, False, True, False]
    assert cached("d" * 101) == [False, False, False, True], "the newest value stays, even if it is larger"
    assert cached("a" * 60) == [True, False, False, False]
    assert cached("b" * 40) == [True, True, False, False]


def test_a_value_that_was_evicted_while_it_was_fetched_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_flight_cache, "_MAX_ENTRIES", 1)
    monkeypatch.setattr(single_flight_cache, "_MAX_WEIGHT", 100)
    cache = SingleFlightCache[str](RealSystem(), len)

    def fetch_slowly(*others: str, error: Exception | None = None) -> str:
        for other in others:
            cache.get(other[0], functools.partial(str, other), 1.0)
        if error is not None:
            raise error
        return "a" * 60

    assert cache.get("a", lambda: fetch_slowly("b" * 20), 1.0) == "a" * 60
    assert [cache.has(key) for key in "ab"] == [False, True]
    monkeypatch.setattr(single_flight_cache, "_MAX_ENTRIES", 9)
    cache.get("c", lambda: "c" * 80, 1.0)
    assert [cache.has(key) for key in "bc"] == [True, True], "the value of a does not count"
    monkeypatch.setattr(single_flight_cache, "_MAX_ENTRIES", 1)
    with pytest.raises(OSError, match="late"):
        cache.get("d", lambda: fetch_slowly("e", "d", error=OSError("late")), 1.0)
    assert cache.has("d"), "a later request has succeeded"


@pytest.mark.parametrize("outcomes", [(None,), (SchemaNotFoundError,), (SchemaError,), (None, SchemaNotFoundError)])
def test_the_cache_is_bounded_by_the_number_of_its_entries(
    monkeypatch: pytest.MonkeyPatch, outcomes: tuple[type[Exception] | None, ...]
) -> None:
    """Values and errors are entries."""
    monkeypatch.setattr(single_flight_cache, "_MAX_ENTRIES", 10)
    cache = SingleFlightCache[int](RealSystem(), lambda _: 1)

    def fetch(key: int) -> int:
        error = outcomes[key % len(outcomes)]
        if error is not None:
            raise error("no value")
        return key

    for key in range(50):
        with contextlib.suppress(SchemaError, SchemaNotFoundError):
            cache.get(key, functools.partial(fetch, key), 1.0)
        assert [each for each in range(50) if cache.has(each)] == list(range(max(key - 9, 0), key + 1))


class Batch:
    """Stands for a batch of values that a task decodes."""


@pytest.mark.parametrize("response", ["missing", "encrypted", "unavailable"])
def test_a_cached_error_retains_nothing_of_the_task_that_got_it(registry: FakeRegistry, response: str) -> None:
    ids = range(7, 10)
    if response == "encrypted":
        for schema_id in ids:
            registry.add(
                "t-value", LONG, schema_id=schema_id, ruleSet={"domainRules": [{"name": "a", "type": "ENCRYPT"}]}
            )
    if response == "unavailable":
        registry.stop()
    reader = client(registry, api_timeout_ms=100 if response == "unavailable" else 120_000)
    batches: list[weakref.ref[Batch]] = []

    def decode(schema_id: int) -> None:
        batch = Batch()
        batches.append(weakref.ref(batch))
        with contextlib.suppress(SchemaNotFoundError, SchemaError, SchemaRegistryUnavailableError):
            reader.schema_by_id(schema_id)

    gc.disable()  # nothing may be in a cycle, which would retain batches until the next collection
    try:
        for schema_id in ids:
            decode(schema_id)
        assert [batch() for batch in batches] == [None] * len(ids)
    finally:
        gc.enable()
