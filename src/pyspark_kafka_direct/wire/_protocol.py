"""kafka-python's protocol classes, behind four functions.

Only the request and response classes of kafka-python are used (they are generated from Kafka's own message files),
never its clients. What to know about them, each checked by a test:

- importing them takes about a fifth of a second, so it happens when a broker is first talked to;
- encoding and decoding a version for the first time compiles it, and that is not thread-safe: it runs under a lock;
- its decoders know no bounds: ours are made from them in ``_decoder``;
- under ``python -O`` an ``assert`` that consumes a byte disappears and tagged structs decode wrongly: refused;
- the ``repr`` of a request shows passwords: requests are never logged and never put into an error.
"""

from __future__ import annotations

import struct
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from pyspark_kafka_direct.errors import KafkaDirectError, ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.wire._cursor import Cursor, MalformedError
from pyspark_kafka_direct.wire._decoder import bounded_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Versions a broker must reach for this package to be correct, by API key, and the Kafka release that brought them:
#   Fetch 4         message format v2 and the isolation level (KIP-98)                                          0.11.0
#   ListOffsets 2   isolation level: without it the end of a read_committed range would be wrong (KIP-98)       0.11.0
#   Metadata 4      allow_auto_topic_creation: without it asking for a missing topic creates it (KIP-204)       0.11.0
# With SASL also SaslAuthenticate (KIP-152), which came with 1.0.0.
OLDEST_BROKER = "0.11.0 (1.0.0 with SASL)"
_REQUIRED = {1: ("Fetch", 4), 2: ("ListOffsets", 2), 3: ("Metadata", 4)}
_SASL_AUTHENTICATE = 36

_ASSERTS_STRIPPED = (
    "Python runs with -O (or PYTHONOPTIMIZE is set): the Kafka protocol library then misreads some answers. "
    "Start Python without it, also on the executors (spark.executorEnv.PYTHONOPTIMIZE)."
)

_lock = threading.Lock()
_warm: set[tuple[int, int]] = set()  # API keys and versions whose requests were encoded before
_decoders: dict[tuple[int, int], Callable[[memoryview], Any]] = {}


def load() -> None:
    """Import the protocol classes, once; whoever needs one does this first.

    Raises:
        KafkaDirectError: Assertions are stripped in this process (``python -O``).
    """
    check_interpreter()
    with _lock, warnings.catch_warnings():
        # The library reads its message files in a way that Python 3.11 and 3.12 call deprecated (3.13 no longer does);
        # nobody who turns warnings into errors should fail for it.
        warnings.filterwarnings("ignore", r"(read|open)_text is deprecated", DeprecationWarning)
        import kafka
        import kafka.protocol.broker_version_data
        import kafka.protocol.sasl  # noqa: F401


def check_interpreter() -> None:
    """Refuse ``python -O``; every connection does so before it is made.

    Raises:
        KafkaDirectError: Assertions are stripped in this process.
    """
    if sys.flags.optimize:
        raise KafkaDirectError(_ASSERTS_STRIPPED)


def choose_version(
    request_class: Any,
    api_versions: Mapping[int, tuple[int, int]],
    broker: str,
    *,
    least: int = 0,
    most: int | None = None,
) -> int:
    """The highest version of a request that both sides speak.

    Args:
        request_class: A request class of kafka-python, or a request.
        api_versions: What the broker answered to ApiVersions: API key to lowest and highest version.
        broker: ``host:port``, for the error.
        least: Lowest version that will do.
        most: Highest version to use; by default the library's.

    Raises:
        UnsupportedBrokerError: There is no such version.
    """
    key, name = request_class.API_KEY, request_class.name.removesuffix("Request")
    highest = request_class.max_version if most is None else min(most, request_class.max_version)
    return intersect(key, name, (max(least, request_class.valid_versions[0]), highest), api_versions, broker)


def intersect(
    api_key: int, name: str, ours: tuple[int, int], api_versions: Mapping[int, tuple[int, int]], broker: str
) -> int:
    """The highest version of ``ours`` (lowest, highest) that the broker speaks too.

    Raises:
        UnsupportedBrokerError: The ranges do not meet, or the broker does not know the API.
    """
    if api_key not in api_versions:
        raise UnsupportedBrokerError(f"The broker does not know the request {name}.", broker=broker)
    lowest, highest = api_versions[api_key]
    version = min(ours[1], highest)
    if version < max(ours[0], lowest):
        raise UnsupportedBrokerError(
            f"No version of the request {name} suits both sides: this package speaks {ours[0]} to {ours[1]}, "
            f"the broker {lowest} to {highest} (it looks like Kafka {_release(api_versions)}).",
            broker=broker,
        )
    return version


def check_broker(api_versions: Mapping[int, tuple[int, int]], broker: str, *, sasl: bool) -> None:
    """Refuse a broker that is too old, by name.

    Raises:
        UnsupportedBrokerError: A request that cannot be done without is missing or too old.
    """
    lacking = [
        f"{name} {version}" for key, (name, version) in _REQUIRED.items() if api_versions.get(key, (0, -1))[1] < version
    ]
    if sasl and _SASL_AUTHENTICATE not in api_versions:
        lacking.append("SaslAuthenticate 0")
    if lacking:
        raise UnsupportedBrokerError(
            f"The broker is too old: it looks like Kafka {_release(api_versions)} and lacks {', '.join(lacking)}. "
            f"Kafka {OLDEST_BROKER} is the oldest that works.",
            broker=broker,
        )


def encode(request: Any, version: int, correlation_id: int, client_id: str) -> bytearray:
    """One framed request, header included."""
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    key = (request.API_KEY, version)
    if key in _warm:
        return _frame(request)
    with _lock:
        frame = _frame(request)
        _warm.add(key)
        return frame


def decode(request: Any, body: memoryview, broker: str) -> Any:
    """The response to ``request``.

    Args:
        request: The request as it was encoded; it knows its version.
        body: What followed the correlation id.
        broker: ``host:port``, for the error.

    Raises:
        ProtocolError: The bytes are not a response of that version.
    """
    version = request.API_VERSION
    try:
        # Flexible versions put a tag buffer after the correlation id (KIP-482).
        if request.flexible_version_q(version):
            cursor = Cursor(body)
            cursor.tags()
            body = body[cursor.position :]
        return _decoder(request.header.get_response_class(), request.API_KEY, version)(body)
    except (MalformedError, ValueError, IndexError, TypeError, OverflowError, EOFError, struct.error) as error:
        name = request.name.removesuffix("Request")
        raise ProtocolError(
            f"The answer to {name} version {version} cannot be decoded ({type(error).__name__}): is this a Kafka "
            "broker?",
            broker=broker,
        ) from error


def _frame(request: Any) -> bytearray:
    frame: bytearray = request.encode(header=True, framed=True)
    return frame


def _decoder(response_class: Any, api_key: int, version: int) -> Callable[[memoryview], Any]:
    key = (api_key, version)
    with _lock:
        if key not in _decoders:
            _decoders[key] = bounded_decoder(response_class, version)
        return _decoders[key]


def _release(api_versions: Mapping[int, tuple[int, int]]) -> str:
    load()
    from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

    return ".".join(str(part) for part in infer_broker_version_from_api_versions(dict(api_versions)))
