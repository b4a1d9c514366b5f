"""The layer over kafka-python's protocol classes: versions, warm-up, ``python -O``, laziness, automatic topics."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.sasl import SaslAuthenticateRequest

from pyspark_kafka_direct.errors import ProtocolError, UnsupportedBrokerError
from pyspark_kafka_direct.wire import _protocol

if TYPE_CHECKING:
    from collections.abc import Callable

METADATA_KEY = MetadataRequest.API_KEY


@pytest.mark.parametrize(
    ("theirs", "most", "expected"),
    [((0, 13), None, 13), ((0, 99), None, 13), ((0, 9), None, 9), ((0, 13), 7, 7), ((4, 4), None, 4)],
)
def test_the_highest_version_both_sides_speak_is_chosen(
    theirs: tuple[int, int], most: int | None, expected: int
) -> None:
    assert _protocol.choose_version(MetadataRequest, {METADATA_KEY: theirs}, "b:1", least=4, most=most) == expected


@pytest.mark.parametrize("theirs", [(0, 3), (14, 20)])
def test_no_common_version_is_an_error_that_names_both_ranges(theirs: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedBrokerError, match=rf"speaks 4 to 13, the broker {theirs[0]} to {theirs[1]}"):
        _protocol.choose_version(MetadataRequest, {METADATA_KEY: theirs}, "b:1", least=4)


def test_an_unknown_request_is_an_error() -> None:
    with pytest.raises(UnsupportedBrokerError, match="does not know the request Metadata") as caught:
        _protocol.choose_version(MetadataRequest, {}, "b:1")
    assert caught.value.broker == "b:1"


@pytest.mark.parametrize("release", [release for release in BROKER_API_VERSIONS if release >= (0, 11)])
def test_brokers_from_0_11_on_are_accepted(release: tuple[int, ...]) -> None:
    _protocol.check_broker(BROKER_API_VERSIONS[release], "b:1", sasl=False)


@pytest.mark.parametrize("release", [release for release in BROKER_API_VERSIONS if (0, 10) <= release < (0, 11)])
def test_older_brokers_are_refused_by_name(release: tuple[int, ...]) -> None:
    name = ".".join(map(str, release))
    with pytest.raises(UnsupportedBrokerError, match=rf"looks like Kafka {name} .*0\.11\.0 .*oldest"):
        _protocol.check_broker(BROKER_API_VERSIONS[release], "b:1", sasl=False)


def test_with_sasl_the_oldest_is_1_0() -> None:
    with pytest.raises(UnsupportedBrokerError, match="SaslAuthenticate"):
        _protocol.check_broker(BROKER_API_VERSIONS[(0, 11)], "b:1", sasl=True)
    _protocol.check_broker(BROKER_API_VERSIONS[(1, 0)], "b:1", sasl=True)


def test_the_oldest_broker_needs_no_version_above_its_own() -> None:
    oldest = BROKER_API_VERSIONS[(0, 11)]
    assert _protocol.choose_version(MetadataRequest, oldest, "b:1", least=4) == 4
    assert _protocol.choose_version(ListOffsetsRequest, oldest, "b:1", least=2) == 2
    assert _protocol.choose_version(FetchRequest, oldest, "b:1", least=4) == 5


@pytest.mark.parametrize("version", range(14))
def test_requests_and_responses_survive_the_wire(version: int) -> None:
    topic = MetadataResponse.MetadataResponseTopic(error_code=0, name="flights", is_internal=True, partitions=[])
    response = MetadataResponse(version=version, brokers=[], controller_id=1, cluster_id="c", topics=[topic])
    response.with_header(correlation_id=7)
    body = memoryview(bytes(response.encode(header=True)))[4:]
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="flights")])
    frame = _protocol.encode(request, version, 7, "me")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    decoded = _protocol.decode(request, body, "b:1")
    assert [entry.name for entry in decoded.topics] == ["flights"]


@pytest.mark.parametrize("cut", range(1, 24))
def test_answers_that_end_early_are_protocol_errors(cut: int) -> None:
    response = MetadataResponse(
        version=1,
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=n, host="b", port=9092, rack=None) for n in range(3)],
        controller_id=1,
        topics=[],
    )
    body = bytes(response.encode())
    request = MetadataRequest(topics=[])
    _protocol.encode(request, 1, 1, "me")
    assert len(_protocol.decode(request, memoryview(body), "b:1").brokers) == 3
    with pytest.raises(ProtocolError, match="Metadata version 1"):
        _protocol.decode(request, memoryview(body)[: max(0, len(body) - cut)], "b:1")


def test_missing_topics_are_never_created() -> None:
    # The library's own default is the dangerous one; test_metadata proves what we send.
    assert MetadataRequest(version=4).allow_auto_topic_creation is True


def test_errors_do_not_show_the_request() -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"\0user\0hunter2")
    _protocol.encode(request, 1, 1, "me")
    assert "hunter2" in repr(request)
    with pytest.raises(ProtocolError) as caught:
        _protocol.decode(request, memoryview(b"\0"), "b:1")
    assert "hunter2" not in str(caught.value)


class SlowMessage:
    """Stands for a request class of the library and notices whether two threads are in it at the same time."""

    API_KEY = -7
    API_VERSION = 0
    name = "SlowRequest"

    def __init__(self, wait_for_company: float = 0.01) -> None:
        self.met_others = threading.Event()
        self.first_was_alone = True
        self._wait_for_company = wait_for_company
        self._inside = 0
        self.done = 0
        self._lock = threading.Lock()

    @property
    def header(self) -> SlowMessage:
        return self

    def get_response_class(self) -> SlowMessage:
        return self

    def with_header(self, **_: object) -> None:
        pass

    def flexible_version_q(self, _: int) -> bool:
        return False

    def encode(self, **_: object) -> bytearray:
        return self._work()

    def compile(self) -> Callable[[memoryview], bytes]:
        self._work()
        return bytes

    def _work(self) -> bytearray:
        with self._lock:
            self._inside += 1
            if self._inside > 1:
                self.met_others.set()
                self.first_was_alone = self.first_was_alone and self.done > 0
        self.met_others.wait(self._wait_for_company)  # makes room for an overlap, if one is possible
        with self._lock:
            self._inside -= 1
            self.done += 1
        return bytearray()


def run_in_threads(work: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_the_first_use_of_a_version_has_the_library_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_protocol, "_warm", set())
    monkeypatch.setattr(_protocol, "_decoders", {})
    sent, received, warm = SlowMessage(), SlowMessage(), SlowMessage(wait_for_company=30)
    monkeypatch.setattr(_protocol, "bounded_decoder", lambda *_: received.compile())
    run_in_threads(lambda: _protocol.encode(sent, 0, 1, "me"))
    run_in_threads(lambda: _protocol.decode(received, memoryview(b""), "b:1"))
    assert sent.first_was_alone
    assert (received.first_was_alone, received.done) == (True, 1)
    run_in_threads(lambda: _protocol.encode(warm, 0, 1, "me"))
    assert warm.met_others.is_set()


def test_python_without_assertions_is_refused() -> None:
    code = (
        "from pyspark_kafka_direct.wire.connection import Connection\n"
        "from pyspark_kafka_direct.wire.deadline import Deadline\n"
        "from pyspark_kafka_direct.wire.settings import ConnectionSettings\n"
        "from pyspark_kafka_direct.errors import KafkaDirectError\n"
        "try:\n"
        "    Connection.open(ConnectionSettings((('127.0.0.1', 1),)), '127.0.0.1', 1, Deadline.after(5))\n"
        "except KafkaDirectError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert plain.stdout.startswith("BrokerUnreachableError"), plain.stdout
    stripped = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert stripped.stdout.startswith("KafkaDirectError"), stripped.stdout
    assert "PYTHONOPTIMIZE" in stripped.stdout


def test_why_python_without_assertions_is_refused() -> None:
    """The library still misreads tagged structs then; when it no longer does, the refusal can go."""
    code = (
        "from kafka.protocol.metadata import ApiVersionsResponse as R\n"
        "feature = R.SupportedFeatureKey(name='a', min_version=1, max_version=2)\n"
        "other = R.SupportedFeatureKey(name='b', min_version=3, max_version=4)\n"
        "body = bytes(R(version=3, error_code=0, api_keys=[], supported_features=[feature, other]).encode())\n"
        "try:\n"
        "    print([entry.name for entry in R.decode(body, version=3).supported_features])\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n"
    )
    answers = [
        subprocess.run(
            [sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for flags in ([], ["-O"])
    ]
    assert answers[0].strip() == "['a', 'b']"
    assert answers[1] != answers[0]


def test_the_library_is_imported_only_when_a_connection_is_made() -> None:
    code = (
        "import sys\n"
        "import pyspark_kafka_direct.wire.cluster, pyspark_kafka_direct.wire.fetch, pyspark_kafka_direct.wire.pool\n"
        "print([name for name in ('kafka', 'pyarrow', 'pyspark', 'ssl', 'cryptography') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_loading_is_quiet_even_where_warnings_are_errors() -> None:
    code = "from pyspark_kafka_direct.wire import _protocol; _protocol.load()"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_loading_from_threads_at_once_is_safe() -> None:
    run_in_threads(_protocol.load)
