"""OAUTHBEARER tokens: from Python code and from an endpoint, and their renewal."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import ssl
import sys
import threading
import time
import urllib.error
from dataclasses import replace
from email.message import Message
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import jwt
import pytest
from tests.integration.waiting import wait_until
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.token_endpoint import ME, Endpoint

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.oauth_login import retrieve_token
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, KafkaDirectError, OptionError
from pyspark_kafka_direct.options.security_settings import (
    EndpointTokens,
    OAuthSettings,
    ProviderTokens,
    Secret,
    TlsSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark_kafka_direct.client.system import Condition

SECONDS = 120.0
BROKER = "broker:9092"
NUMBERS = itertools.count(1)


def fetch_token(oauth: OAuthSettings, seconds: float = SECONDS) -> str:
    return retrieve_token(oauth, Deadline.after(seconds), BROKER).value.reveal()


def token_error(oauth: OAuthSettings, seconds: float = SECONDS) -> KafkaDirectError:
    with pytest.raises(KafkaDirectError) as caught:
        fetch_token(oauth, seconds)
    assert "hunter2" not in str(caught.value)
    return caught.value


# Python code


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], OAuthSettings]:
    """Write a module with a function ``make`` and return settings with its name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source: str) -> OAuthSettings:
        name = f"tokens_{next(NUMBERS)}"  # a new module each time, because imports are cached
        (tmp_path / f"{name}.py").write_text(source)
        return OAuthSettings(ProviderTokens(f"{name}:make"))

    return write


def test_provider_function(provider: Callable[[str], OAuthSettings]) -> None:
    assert fetch_token(provider("def make():\n    return lambda: 'abc'")) == "abc"


def test_provider_object(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(
        "class Tokens:\n"
        "    def token(self): return 'abc'\n"
        "    def extensions(self): return {'pool': 'p-1', 'cluster': 'mine'}\n"
        "def make(): return Tokens()\n"
    )
    token = retrieve_token(
        replace(oauth, extensions=(("cluster", "theirs"), ("x", "y"))), Deadline.after(SECONDS), BROKER
    )
    assert token.value == Secret("abc")
    assert dict(token.extensions) == {"cluster": "mine", "x": "y", "pool": "p-1"}


@pytest.mark.parametrize("extensions", ["None", "{}", "[]"])
def test_a_provider_without_extensions(provider: Callable[[str], OAuthSettings], extensions: str) -> None:
    oauth = provider(
        "class Tokens:\n"
        "    def token(self): return 'abc', None\n"
        f"    def extensions(self): return {extensions}\n"
        "def make(): return Tokens()\n"
    )
    token = retrieve_token(replace(oauth, extensions=(("x", "y"),)), Deadline.after(SECONDS), BROKER)
    assert (token.value, token.expires_at, token.extensions) == (Secret("abc"), None, (("x", "y"),))


def module_of(oauth: OAuthSettings) -> Any:
    assert isinstance(oauth.source, ProviderTokens)
    return __import__(oauth.source.name.partition(":")[0])


COUNTING = "import itertools, time\nnumbers = itertools.count(1)\n"


def test_token_without_expiry_is_requested_each_time(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(COUNTING + "def make(): return lambda: f't{next(numbers)}'")
    assert [fetch_token(oauth), fetch_token(oauth)] == ["t1", "t2"]


@pytest.mark.parametrize("scale", [1, 1000])
def test_valid_token_is_cached(provider: Callable[[str], OAuthSettings], scale: int) -> None:
    source = f"def make(): return lambda: (f't{{next(numbers)}}', (time.time() + 3600) * {scale})"
    oauth = provider(COUNTING + source)
    assert [fetch_token(oauth), fetch_token(oauth)] == ["t1", "t1"]


def test_a_token_is_renewed_before_it_expires(provider: Callable[[str], OAuthSettings]) -> None:
    # Valid for a tenth of a second, so it is requested again soon.
    oauth = provider(COUNTING + "def make(): return lambda: (f't{next(numbers)}', time.time() + 0.1)")
    first = fetch_token(oauth)
    deadline = time.monotonic() + 120
    while fetch_token(oauth) == first:
        assert time.monotonic() < deadline


def test_the_factory_runs_once_per_process(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(COUNTING + "def make():\n    n = next(numbers)\n    return lambda: f'f{n}'")
    assert {fetch_token(oauth) for _ in range(5)} == {"f1"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("make = 1", "is not a function"),
        ("def make(): return 'hunter2'", "must return a function that returns a token.*not str"),
        ("def make(): return lambda: None", "returned NoneType"),
        ("def make(): return lambda: b'hunter2'", "returned bytes"),
        ("def make(): return lambda: ('hunter2',)", "returned tuple"),
        ("def make(): return lambda: ('hunter2', 'soon')", "returned tuple"),
        ("def make(): return lambda: 'hunter2\\x01auth=x'", "not a bearer token"),
        ("def make(): return lambda: ''", "not a bearer token"),
        ("other = 1", "has no make"),
        ("import no_such_module_anywhere", "No module named 'no_such_module_anywhere'"),
        (
            "class P:\n"
            "    def token(self): return 'a'\n"
            "    def extensions(self): return {'auth': 'x'}\n"
            "def make(): return P()",
            "extension name 'auth'",
        ),
    ],
)
def test_invalid_providers(provider: Callable[[str], OAuthSettings], source: str, expected: str) -> None:
    with pytest.raises(OptionError, match=expected) as caught:
        fetch_token(provider(source))
    assert "oauthTokenProvider" in caught.value.message
    assert "hunter2" not in str(caught.value)


def test_missing_provider_module() -> None:
    with pytest.raises(OptionError, match=r"'no_such:make' cannot be imported on .* every executor"):
        fetch_token(OAuthSettings(ProviderTokens("no_such:make")))


def test_failing_provider_module(provider: Callable[[str], OAuthSettings]) -> None:
    error = token_error(provider("import os\nos.no_such_thing\ndef make(): return lambda: 'a'"))
    assert isinstance(error, AuthenticationError)
    assert "oauthTokenProvider failed with AttributeError" in error.message


def test_failing_provider(provider: Callable[[str], OAuthSettings]) -> None:
    error = token_error(provider("def make():\n    def token(): raise RuntimeError('hunter2')\n    return token"))
    assert isinstance(error, AuthenticationError)
    assert error.broker == BROKER
    assert "oauthTokenProvider failed with RuntimeError" in error.message
    assert isinstance(error.__cause__, RuntimeError)


def test_hanging_provider_times_out(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(
        "import threading\nstop = threading.Event()\ndef make(): return lambda: stop.wait(120) and 'a' or 'b'"
    )
    error = token_error(oauth, 0.2)
    assert isinstance(error, BrokerTimeoutError)
    assert "returned no token in time" in error.message
    module_of(oauth).stop.set()


def test_hanging_threads_do_not_accumulate(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(
        "import threading\nstop, calls = threading.Event(), []\n"
        "def make():\n"
        "    def token():\n"
        "        calls.append(1)\n"
        "        stop.wait(120)\n"
        "        return f't{len(calls)}'\n"
        "    return token\n"
    )
    for _ in range(5):
        assert isinstance(token_error(oauth, 0.05), BrokerTimeoutError)
    module = module_of(oauth)
    wait_until(lambda: len(module.calls) >= 2, "the calls")
    module.stop.set()
    assert fetch_token(oauth) == "t2"  # too late for the earlier requests, but in time for this one
    assert len(module.calls) == 2


class ControlledThreads(FakeTimeSystem):
    """Threads run when the test runs them, or during a wait; without one that runs, a wait takes its whole time."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[Callable[[], None]] = []
        self.run_in_wait: int | None = None  # the index of a thread

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        self.threads.append(run)

    def wait(self, condition: Condition, seconds: float | None) -> bool:
        if self.run_in_wait is not None:
            self.threads[self.run_in_wait]()
            return True
        self.now += seconds or 0.0
        return False


@pytest.mark.parametrize("fast_thread", [0, 1])
def test_a_request_that_hangs_takes_no_time_from_the_next_one(
    provider: Callable[[str], OAuthSettings], fast_thread: int
) -> None:
    oauth, system = provider("def make(): return lambda: 'abc'"), ControlledThreads()
    with pytest.raises(BrokerTimeoutError):
        retrieve_token(oauth, Deadline.after(30.0, system=system), BROKER)
    system.run_in_wait = fast_thread
    began_at = system.now
    assert retrieve_token(oauth, Deadline.after(30.0, system=system), BROKER).value == Secret("abc")
    assert system.now == began_at
    assert len(system.threads) == 2


def test_requests_that_hang_are_forgotten_after_a_minute(provider: Callable[[str], OAuthSettings]) -> None:
    oauth, system = provider("def make(): return lambda: 'abc'"), ControlledThreads()
    for _ in range(3):
        with pytest.raises(BrokerTimeoutError):
            retrieve_token(oauth, Deadline.after(1.0, system=system), BROKER)
    assert len(system.threads) == 2
    system.now += 60.0
    system.run_in_wait = 2
    assert retrieve_token(oauth, Deadline.after(1.0, system=system), BROKER).value == Secret("abc")


REFRESHED = (
    "numbers, failing = iter(range(1, 100)), []\n"
    "def make():\n"
    "    def token():\n"
    "        number = next(numbers)\n"
    "        if failing: raise RuntimeError('hunter2')\n"
    "        return f't{number}', 1000.0 + 100 * number\n"
    "    return token\n"
)


def test_a_failing_refresh_uses_the_current_token_until_it_expires(
    provider: Callable[[str], OAuthSettings], caplog: pytest.LogCaptureFixture
) -> None:
    oauth, system = provider(REFRESHED), FakeTimeSystem(now=1000.0)

    def token_at(now: float) -> str:
        system.now = now
        return retrieve_token(oauth, Deadline.after(SECONDS, system=system), BROKER).value.reveal()

    assert [token_at(1000), token_at(1079)] == ["t1", "t1"]
    module = module_of(oauth)
    module.failing.append(1)
    assert [token_at(1080), token_at(1089), token_at(1091), token_at(1099)] == ["t1"] * 4
    (warning,) = caplog.records
    assert "logins use the current one until it expires" in warning.getMessage()
    assert "oauthTokenProvider failed with RuntimeError" in warning.getMessage()
    assert "hunter2" not in caplog.text
    with pytest.raises(AuthenticationError, match="RuntimeError"):
        token_at(1100)
    assert next(module.numbers) == 5  # requests at 1000, 1080, 1091 and 1100
    module.failing.clear()
    assert token_at(1500) == "t6"


def test_a_refresh_that_hangs_leaves_half_of_the_time_for_the_login(provider: Callable[[str], OAuthSettings]) -> None:
    oauth, system = provider("def make(): return lambda: ('abc', 1100.0)"), ControlledThreads()
    system.run_in_wait = 0
    retrieve_token(oauth, Deadline.after(30.0, system=system), BROKER)
    system.run_in_wait, system.now = None, 1080.0
    assert retrieve_token(oauth, Deadline.after(10.0, system=system), BROKER).value == Secret("abc")
    assert system.now == 1085.0


def test_thread_that_hangs_for_long_is_abandoned(provider: Callable[[str], OAuthSettings]) -> None:
    class AdvancedClock(RealSystem):
        offset_seconds = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.offset_seconds

    oauth = provider(
        "import threading\nstop, calls = threading.Event(), []\n"
        "def make():\n"
        "    def token():\n"
        "        calls.append(1)\n"
        "        if len(calls) == 1: stop.wait(120)\n"
        "        return f't{len(calls)}'\n"
        "    return token\n"
    )
    system = AdvancedClock()
    with pytest.raises(BrokerTimeoutError):
        retrieve_token(oauth, Deadline.after(0.05, system=system), BROKER)
    system.offset_seconds = 61.0
    tokens: list[Secret] = []

    def has_token() -> bool:
        with contextlib.suppress(BrokerTimeoutError):
            tokens.append(retrieve_token(oauth, Deadline.after(0.1, system=system), BROKER).value)
        return bool(tokens)

    wait_until(has_token, "a token of another thread")
    assert tokens == [Secret("t2")]
    module_of(oauth).stop.set()


@pytest.mark.parametrize("expires", ["float('nan')", "float('inf')", "10 ** 400"])
def test_invalid_expiry_disables_caching(provider: Callable[[str], OAuthSettings], expires: str) -> None:
    oauth = provider(COUNTING + f"def make(): return lambda: (f't{{next(numbers)}}', {expires})")
    assert [fetch_token(oauth), fetch_token(oauth)] == ["t1", "t2"]


# The endpoint


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = Endpoint()
    yield served
    served.close()


def test_the_client_credentials_grant(endpoint: Endpoint) -> None:
    endpoint.add_response(200, {"access_token": "abc", "expires_in": 3600})
    oauth = replace(endpoint.settings(scope="kafka read"), extensions=(("pool", "p-1"),))
    token = retrieve_token(oauth, Deadline.after(SECONDS), BROKER)
    assert token.value == Secret("abc")
    assert token.extensions == (("pool", "p-1"),)
    assert token.expires_at is not None
    assert 3000 < token.expires_at - time.time() < 3700
    ((headers, body),) = endpoint.requests
    assert body == "grant_type=client_credentials&scope=kafka+read"
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"me:x:hunter2"
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert retrieve_token(oauth, Deadline.after(SECONDS), BROKER) is token
    assert len(endpoint.requests) == 1


def test_the_header_can_be_url_encoded(endpoint: Endpoint) -> None:
    endpoint.add_response(200, {"access_token": "abc"})
    fetch_token(endpoint.settings(urlencode_header=True))
    header = endpoint.requests[0][0]["Authorization"]
    assert base64.b64decode(header.removeprefix("Basic ")) == b"me%3Ax:hunter2"


def test_failing_endpoint_is_retried(endpoint: Endpoint) -> None:
    endpoint.add_response(503, "")
    endpoint.add_response(429, "")
    endpoint.add_response(200, {"id_token": "abc", "expires_in": "60"})
    token = retrieve_token(endpoint.settings(), Deadline.after(SECONDS), BROKER)
    assert token.value == Secret("abc")
    assert token.expires_at == pytest.approx(time.time() + 60, abs=50)
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(
    ("status", "content", "expected", "attempts"),
    [
        (401, {"error": "invalid_client", "error_description": "no hunter2"}, 'HTTP 401 "invalid_client: no ***', 1),
        (400, "<html>", "HTTP 400; check client id, client secret and scope", 1),
        (403, "", "HTTP 403; check client id, client secret and scope", 1),
        (402, "", "HTTP 402; the endpoint itself failed", 1),
        (404, "", "check the path", 1),
        (408, "", "HTTP 408; the endpoint itself failed", 3),
        (429, "", "HTTP 429; the endpoint itself failed", 3),
        (399, "", "redirects are not followed", 1),
        (499, "", "HTTP 499; the endpoint itself failed", 1),
        (500, "", "HTTP 500; the endpoint itself failed", 3),
        (302, "", "redirects are not followed", 1),
        (501, {"error": ["hunter2"]}, "HTTP 501; the endpoint itself failed", 3),
        (200, {"token": "hunter2"}, "returned no access_token", 1),
        (200, {"access_token": "hunter2\x01"}, "returned no access_token", 1),
        (200, "[]", "returned no access_token", 1),
    ],
)
def test_endpoint_errors(endpoint: Endpoint, status: int, content: object, expected: str, attempts: int) -> None:
    endpoint.add_response(status, content, Location="http://127.0.0.1:1/elsewhere")
    oauth = endpoint.settings(connect_timeout_ms=200, read_timeout_ms=350)
    with pytest.raises(AuthenticationError) as caught:
        retrieve_token(oauth, Deadline.after(SECONDS, system=SlowEndpointSystem()), BROKER)
    error = caught.value
    assert "hunter2" not in str(error)
    assert expected in error.message
    assert "127.0.0.1 (kafka.sasl.oauthbearer.token.endpoint.url)" in error.message
    assert error.broker == BROKER
    assert len(endpoint.requests) == attempts


def test_truncated_error_response(endpoint: Endpoint) -> None:
    endpoint.add_response(401, "5\r\n{", **{"Transfer-Encoding": "chunked"})
    assert "returned HTTP 401; check client id" in token_error(endpoint.settings()).message


class SlowEndpointSystem(FakeTimeSystem):
    """The machine, but only sleeps take time, so that a slow response cannot exceed a timeout."""

    def open_url(self, opener: Any, request: Any, seconds: float) -> Any:
        return super().open_url(opener, request, SECONDS)


class FailingEndpointSystem(FakeTimeSystem):
    """An endpoint that returns HTTP 503 until a time, and its clock; counts its requests."""

    def __init__(self, recovers_after: float) -> None:
        super().__init__()
        self.recovery_time = self.now + recovers_after
        self.request_count = 0

    def open_url(self, opener: Any, request: Any, seconds: float) -> Any:
        self.request_count += 1
        if self.now < self.recovery_time:
            raise urllib.error.HTTPError(request.full_url, 503, "", Message(), io.BytesIO())
        return io.BytesIO(b'{"access_token": "abc"}')


REMOTE = OAuthSettings(EndpointTokens("https://idp.invalid/token", ME))


UNTRUSTED = ssl.SSLCertVerificationError(1, "verify failed")
UNTRUSTED.verify_message = "self-signed\ncertificate"


@pytest.mark.parametrize(
    ("reason", "expected", "requests"),
    [
        (ConnectionRefusedError(111, "Connection refused"), r"cannot be reached \(Connection refused\)", 3),
        (UNTRUSTED, r"has a certificate that cannot be verified \(self-signed\\ncertificate\); ", 1),
    ],
)
def test_a_failed_connection_to_the_endpoint_is_retried_twice(reason: OSError, expected: str, requests: int) -> None:
    class RefusingSystem(FakeTimeSystem):
        requests = 0

        def open_url(self, opener: Any, request: Any, seconds: float) -> Any:
            self.requests += 1
            raise urllib.error.URLError(reason)

    system = RefusingSystem()
    with pytest.raises(AuthenticationError, match=expected):
        retrieve_token(REMOTE, Deadline.after(SECONDS, system=system), BROKER)
    assert system.requests == requests


def test_endpoint_is_retried_for_seconds() -> None:
    system = FailingEndpointSystem(8)
    assert retrieve_token(REMOTE, Deadline.after(SECONDS, system=system), BROKER).value == Secret("abc")
    assert 5 < system.request_count < 15
    assert sorted(system.slept) == system.slept


@pytest.mark.parametrize("seconds", [5.0, 60.0])
def test_permanently_failing_endpoint_raises_its_status(seconds: float) -> None:
    system = FailingEndpointSystem(1000)
    with pytest.raises(AuthenticationError, match="HTTP 503; the endpoint itself failed"):
        retrieve_token(REMOTE, Deadline.after(seconds, system=system), BROKER)
    assert min(seconds, 10) / 2 < sum(system.slept) < min(seconds, 10)


@pytest.mark.parametrize(
    "lifetime",
    ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, '"nan"', "[]"],
    ids=["nan", "infinity", "-infinity", "1e999", "400 zeros", "text", "list"],
)
def test_invalid_lifetime_disables_caching(endpoint: Endpoint, lifetime: str) -> None:
    for number in (1, 2):
        endpoint.add_response(200, f'{{"access_token": "t{number}", "expires_in": {lifetime}}}')
    oauth = endpoint.settings()
    token = retrieve_token(oauth, Deadline.after(SECONDS), BROKER)
    assert token.expires_at is None
    assert fetch_token(oauth) == "t2"


@pytest.mark.parametrize("fraction", [0, 0.5])
def test_without_a_lifetime_the_expiry_time_in_the_token_counts(endpoint: Endpoint, fraction: float) -> None:
    expires_at = int(time.time()) + 1000 + fraction
    token = jwt.encode({"sub": "me", "exp": expires_at}, "a secret of 32 characters or more")
    endpoint.add_response(200, {"access_token": token})
    oauth = endpoint.settings()
    assert retrieve_token(oauth, Deadline.after(SECONDS), BROKER).expires_at == expires_at
    assert fetch_token(oauth) == token
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "echoed",
    [
        "hunter2/+",
        "hunter2%2F%2B",
        base64.b64encode(b"hunter2/+").decode(),
        base64.b64encode(b"hunter2/+").decode().rstrip("="),
        base64.b64encode(b"me:x:hunter2/+").decode(),
        base64.b64encode(b"me:x:hunter2/+").decode().rstrip("="),
        "Basic%20" + quote_plus(base64.b64encode(b"me:x:hunter2/+").decode()),
    ],
    ids=["plain", "quoted", "base64", "unpadded", "header", "unpadded header", "quoted header"],
)
@pytest.mark.parametrize("urlencode", [False, True], ids=["plain", "urlencoded"])
def test_echoed_secret_is_redacted(endpoint: Endpoint, echoed: str, urlencode: bool) -> None:
    endpoint.add_response(401, {"error": "invalid_client", "error_description": f"not {echoed} here"})
    oauth = endpoint.settings("hunter2/+", urlencode_header=urlencode)
    if urlencode:
        sent = quote_plus("me:x") + ":" + quote_plus("hunter2/+")
        endpoint.responses[0] = (401, {}, json.dumps({"error": base64.b64encode(sent.encode()).decode()}))
        echoed = base64.b64encode(sent.encode()).decode()
    message = token_error(oauth).message
    assert echoed.removeprefix("Basic%20") not in message
    assert "***" in message


def test_deeply_nested_error_response(endpoint: Endpoint) -> None:
    """As many brackets as can be parsed, and more than can be formatted."""
    limit = sys.getrecursionlimit()
    for depth in (*range(limit - 100, limit), 100_000):
        endpoint.responses = []
        endpoint.add_response(401, '{"error": ' + "[" * depth + "]" * depth + "}")
        assert "HTTP 401; check client id" in token_error(endpoint.settings()).message


def test_endpoint_connection_refused(endpoint: Endpoint) -> None:
    endpoint.close()
    assert "cannot be reached (Connection refused)" in token_error(endpoint.settings()).message


def test_a_proxy_cannot_add_lines_to_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def respond(listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client:
            client.recv(4096)
            client.sendall(b"HTTP/1.1 403 no\x1b[31m\rERROR\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        thread = threading.Thread(target=respond, args=(listener,), daemon=True)
        thread.start()
        message = token_error(OAuthSettings(EndpointTokens("https://idp.test/", ME))).message
        thread.join(SECONDS)
    assert "the proxy 127.0.0.1:" in message
    assert message.endswith(" returned HTTP 403.")
    assert message.isprintable()


def test_hanging_endpoint_times_out() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert isinstance(token_error(OAuthSettings(EndpointTokens(url, ME)), 0.2), BrokerTimeoutError)
        short_timeouts = OAuthSettings(EndpointTokens(url, ME, connect_timeout_ms=50, read_timeout_ms=50))
        assert "did not respond in time (kafka.sasl.login" in token_error(short_timeouts).message


def test_an_endpoint_whose_ca_file_is_missing(tmp_path: Path) -> None:
    missing = TlsSettings(truststore_location=str(tmp_path / "ca.pem"))
    error = token_error(OAuthSettings(EndpointTokens("https://idp.invalid/token", ME, tls=missing)))
    assert isinstance(error, OptionError)
    assert "cannot be read" in error.message
