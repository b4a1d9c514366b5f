"""The encoders and decoders by ``kio`` and by the package's message tables give the same."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.examples import seeds
from tests.simulation import kio_codec
from tests.simulation.wire import APIS
from tests.unit.protocol.message_values import NEWER_THAN_LIBRARIES, plain, random_values

from pyspark_kafka_direct.protocol import messages
from pyspark_kafka_direct.protocol.codec import compile_reader, compile_writer
from pyspark_kafka_direct.protocol.messages import FETCH

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pyspark_kafka_direct.protocol.schema import ApiMessageType, StructSpec

EVERY = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in range(api.versions.lowest, api.versions.highest + 1)
    if (api.name, version) not in NEWER_THAN_LIBRARIES
]
EXAMPLES = seeds(5)


def encode_by_tables(api: ApiMessageType, of: StructSpec, version: int, given: dict[str, Any]) -> bytes:
    out = bytearray()
    compile_writer(of, version, flexible=api.is_flexible(version))(out, given)
    return bytes(out)


def decode_by_tables(api: ApiMessageType, of: StructSpec, version: int, body: bytes) -> Any:
    decoded: list[Any] = []
    assert compile_reader(of, version, flexible=api.is_flexible(version))(body, 0, decoded) == len(body)
    return decoded[0]


def drop_some(values: Any, source: random.Random) -> Any:
    """Return values without some fields, at every depth; all messages have their records."""
    if isinstance(values, dict):
        return {
            name: drop_some(each, source) for name, each in values.items() if name == "records" or source.random() < 0.7
        }
    return [drop_some(each, source) for each in values] if isinstance(values, list) else values


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_both_encode_the_same(api: ApiMessageType, version: int) -> None:
    @EXAMPLES
    def check(source: random.Random) -> None:
        request, response = (random_values(of, version, source) for of in (api.request, api.response))
        assert kio_codec.encode_request(api, version, request) == encode_by_tables(api, api.request, version, request)
        assert kio_codec.encode_body(api, version, response) == encode_by_tables(api, api.response, version, response)

    check()


# kio lacks the default null of the owner of a delegation token.
@pytest.mark.parametrize(("api", "version"), [each for each in EVERY if each.id != "CreateDelegationToken-3"])
def test_both_have_the_same_defaults(api: ApiMessageType, version: int) -> None:
    @EXAMPLES
    def check(source: random.Random) -> None:
        request, response = (
            drop_some(random_values(of, version, source), source) for of in (api.request, api.response)
        )
        assert kio_codec.encode_request(api, version, request) == encode_by_tables(api, api.request, version, request)
        assert kio_codec.encode_body(api, version, response) == encode_by_tables(api, api.response, version, response)

    check()


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_both_decode_the_same(api: ApiMessageType, version: int) -> None:
    @EXAMPLES
    def check(source: random.Random) -> None:
        request, response = (random_values(of, version, source) for of in (api.request, api.response))
        body = encode_by_tables(api, api.request, version, request)
        decoded = kio_codec.decode_body(api, version, body)
        assert isinstance(decoded, api.request.value_class)
        assert repr(decoded) == repr(decode_by_tables(api, api.request, version, body))
        body = encode_by_tables(api, api.response, version, response)
        decoded = kio_codec.decode_response(api, version, body)
        assert repr(decoded) == repr(decode_by_tables(api, api.response, version, body))

    check()


def test_named_tuples_are_values_too() -> None:
    request = kio_codec.decode_body(FETCH, 12, kio_codec.encode_request(FETCH, 12, {"topics": [{"topic": "t"}]}))
    assert kio_codec.encode_request(FETCH, 12, request) == kio_codec.encode_request(FETCH, 12, plain(request))


def test_unknown_field_names_are_rejected() -> None:
    with pytest.raises(ValueError, match="Topic has no field nam"):
        kio_codec.encode_request(messages.METADATA, 9, {"topics": [{"nam": "t"}]})


def test_only_ignorable_fields_are_dropped() -> None:
    with pytest.raises(ValueError, match="has no field include_topic_authorized_operations"):
        kio_codec.encode_request(messages.METADATA, 7, {"include_topic_authorized_operations": True})
    assert kio_codec.encode_request(FETCH, 12, {"topics": [{"topic": "t", "topic_id": UUID(int=7)}]})


def test_a_fetch_takes_few_calls() -> None:
    """The simulated cluster handles thousands of them in a history."""
    partitions = [{"partition": each, "fetch_offset": 7, "partition_max_bytes": 1 << 20} for each in range(4)]
    request = kio_codec.encode_request(FETCH, 12, {"topics": [{"topic": "t", "partitions": partitions}]})
    responses = [{"topic": "t", "partitions": [{"partition_index": each, "records": bytes(2000)} for each in range(4)]}]

    def fetch() -> None:
        kio_codec.decode_body(FETCH, 12, request)
        kio_codec.encode_body(FETCH, 12, {"responses": responses})

    fetch()  # creates the codecs
    assert calls_of(fetch) < 600


def calls_of(function: Callable[[], None]) -> int:
    """Return how many calls of Python functions there are."""
    events: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda _frame, event, _argument: events.update([event]))
    try:
        function()
    finally:
        sys.setprofile(before)
    return events["call"]
