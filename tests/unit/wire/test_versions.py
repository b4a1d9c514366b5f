"""ApiVersions written and read by hand, against the library's classes."""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from pyspark_kafka_direct.wire import _versions
from pyspark_kafka_direct.wire._cursor import MalformedError

UNSUPPORTED = 35
TABLE = {0: (3, 13), 1: (4, 18), 18: (0, 4)}


def response(version: int, error_code: int = 0) -> memoryview:
    keys = [
        ApiVersionsResponse.ApiVersion(version=version, api_key=key, min_version=low, max_version=high)
        for key, (low, high) in TABLE.items()
    ]
    encoded = ApiVersionsResponse(version=version, error_code=error_code, api_keys=keys, throttle_time_ms=0).encode()
    return memoryview(bytes(encoded))


@pytest.mark.parametrize("version", [0, 3])
def test_requests_are_those_of_the_library(version: int) -> None:
    request = ApiVersionsRequest(version=version, client_software_name="me", client_software_version="1.2")
    assert _versions.encode_request(version, "me", "1.2") == bytes(request.encode())


@pytest.mark.parametrize("version", [0, 3])
def test_answers_of_the_library_are_read(version: int) -> None:
    assert _versions.parse_response(response(version), version, UNSUPPORTED) == (0, TABLE)


def test_a_refused_version_is_answered_in_version_0() -> None:
    assert _versions.parse_response(response(0, UNSUPPORTED), 3, UNSUPPORTED) == (UNSUPPORTED, TABLE)


@pytest.mark.parametrize("version", [0, 3])
def test_an_answer_that_ends_early_is_malformed(version: int) -> None:
    whole = response(version)
    table_ends = len(whole) - (5 if version else 0)  # throttle time and features follow, which nobody needs
    for size in range(table_ends):
        with pytest.raises(MalformedError):
            _versions.parse_response(whole[:size], version, UNSUPPORTED)
