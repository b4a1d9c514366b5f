"""Tokens for OAUTHBEARER: from Python code, from an endpoint, from a file, and unsigned for tests."""

from __future__ import annotations

import base64
import io
import itertools
import json
import sys
import threading
import time
import urllib.error
from dataclasses import replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import pytest
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError, KafkaDirectError, OptionError
from pyspark_kafka_direct.settings.secret import Secret
from pyspark_kafka_direct.settings.security import OAuthSettings, UnsecuredClaims
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.wire.security._oauth import token_for
from pyspark_kafka_direct.wire.system import RealSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 20.0
BROKER = "broker:9092"
NUMBERS = itertools.count(1)


def ask(oauth: OAuthSettings, seconds: float = SECONDS) -> str:
    return token_for(oauth, Deadline.after(seconds), BROKER).value.reveal()


def refusal(oauth: OAuthSettings, seconds: float = SECONDS) -> KafkaDirectError:
    with pytest.raises(KafkaDirectError) as caught:
        ask(oauth, seconds)
    assert "hunter2" not in str(caught.value)
    return caught.value


# Python code


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], OAuthSettings]:
    """Writes a module with a function ``make`` and gives settings that name it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source: str) -> OAuthSettings:
        name = f"tokens_{next(NUMBERS)}"  # a module of its own: what is imported stays imported
        (tmp_path / f"{name}.py").write_text(source)
        return OAuthSettings(provider=f"{name}:make")

    return write


def test_a_function_that_gives_tokens(provider: Callable[[str], OAuthSettings]) -> None:
    assert ask(provider("def make():\n    return lambda: 'abc'")) == "abc"


def test_an_object_with_a_method_token(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(
        "class Tokens:\n"
        "    def token(self): return 'abc'\n"
        "    def extensions(self): return {'pool': 'p-1', 'cluster': 'mine'}\n"
        "def make(): return Tokens()\n"
    )
    token = token_for(replace(oauth, extensions=(("cluster", "theirs"), ("x", "y"))), Deadline.after(SECONDS), BROKER)
    assert token.value == Secret("abc")
    assert dict(token.extensions) == {"cluster": "mine", "x": "y", "pool": "p-1"}


COUNTING = "import itertools, time\nnumbers = itertools.count(1)\n"


def test_a_token_without_expiry_is_asked_for_each_time(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(COUNTING + "def make(): return lambda: f't{next(numbers)}'")
    assert [ask(oauth), ask(oauth)] == ["t1", "t2"]


@pytest.mark.parametrize("scale", [1, 1000])
def test_a_token_is_kept_while_it_is_good(provider: Callable[[str], OAuthSettings], scale: int) -> None:
    source = f"def make(): return lambda: (f't{{next(numbers)}}', (time.time() + 3600) * {scale})"
    oauth = provider(COUNTING + source)
    assert [ask(oauth), ask(oauth)] == ["t1", "t1"]


def test_a_token_is_renewed_before_it_expires(provider: Callable[[str], OAuthSettings]) -> None:
    # Good for a tenth of a second: whichever way the clock falls, it is asked for again soon.
    oauth = provider(COUNTING + "def make(): return lambda: (f't{next(numbers)}', time.time() + 0.1)")
    first = ask(oauth)
    deadline = time.monotonic() + 5
    while ask(oauth) == first:
        assert time.monotonic() < deadline


def test_the_factory_runs_once_per_process(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(COUNTING + "def make():\n    n = next(numbers)\n    return lambda: f'f{n}'")
    assert {ask(oauth) for _ in range(5)} == {"f1"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("make = 1", "is not a function"),
        ("def make(): return 'hunter2'", "must return a function that gives a token.*not str"),
        ("def make(): return lambda: None", "gave NoneType"),
        ("def make(): return lambda: b'hunter2'", "gave bytes"),
        ("def make(): return lambda: ('hunter2',)", "gave tuple"),
        ("def make(): return lambda: ('hunter2', 'soon')", "gave tuple"),
        ("def make(): return lambda: 'hunter2\\x01auth=x'", "no bearer token"),
        ("def make(): return lambda: ''", "no bearer token"),
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
def test_providers_that_cannot_be_used(provider: Callable[[str], OAuthSettings], source: str, expected: str) -> None:
    with pytest.raises(OptionError, match=expected) as caught:
        ask(provider(source))
    assert "oauthTokenProvider" in caught.value.message
    assert "hunter2" not in str(caught.value)


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(OptionError, match=r"'no_such:make' cannot be imported on .* every executor"):
        ask(OAuthSettings(provider="no_such:make"))


def test_a_module_that_fails_is_not_one_without_the_function(provider: Callable[[str], OAuthSettings]) -> None:
    error = refusal(provider("import os\nos.no_such_thing\ndef make(): return lambda: 'a'"))
    assert isinstance(error, AuthenticationError)
    assert "oauthTokenProvider failed with AttributeError" in error.message


def test_a_provider_that_fails(provider: Callable[[str], OAuthSettings]) -> None:
    error = refusal(provider("def make():\n    def token(): raise RuntimeError('hunter2')\n    return token"))
    assert isinstance(error, AuthenticationError)
    assert error.broker == BROKER
    assert "oauthTokenProvider failed with RuntimeError" in error.message
    assert isinstance(error.__cause__, RuntimeError)


def test_a_provider_that_hangs_meets_the_deadline(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(
        "import threading\nstop = threading.Event()\ndef make(): return lambda: stop.wait(60) and 'a' or 'b'"
    )
    error = refusal(oauth, 0.2)
    assert isinstance(error, BrokerTimeoutError)
    assert "gave no token in time" in error.message
    __import__(str(oauth.provider).partition(":")[0]).stop.set()


def test_threads_that_hang_do_not_pile_up(provider: Callable[[str], OAuthSettings]) -> None:
    oauth = provider(
        "import threading\nstop, calls = threading.Event(), []\n"
        "def make():\n"
        "    def token():\n"
        "        calls.append(1)\n"
        "        stop.wait(60)\n"
        "        return f't{len(calls)}'\n"
        "    return token\n"
    )
    for _ in range(3):
        assert isinstance(refusal(oauth, 0.05), BrokerTimeoutError)
    module: Any = __import__(str(oauth.provider).partition(":")[0])
    assert len(module.calls) == 1
    module.stop.set()
    assert ask(oauth) == "t1"  # it came too late for those, and not for this one
    assert ask(oauth) == "t2"


def test_a_thread_that_hangs_for_long_is_given_up(provider: Callable[[str], OAuthSettings]) -> None:
    class Later(RealSystem):
        ahead = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.ahead

    oauth = provider(
        "import threading\nstop, calls = threading.Event(), []\n"
        "def make():\n"
        "    def token():\n"
        "        calls.append(1)\n"
        "        if len(calls) == 1: stop.wait(60)\n"
        "        return f't{len(calls)}'\n"
        "    return token\n"
    )
    system = Later()
    with pytest.raises(BrokerTimeoutError):
        token_for(oauth, Deadline.after(0.05, system=system), BROKER)
    system.ahead = 61.0
    assert token_for(oauth, Deadline.after(0.3, system=system), BROKER).value == Secret("t2")
    __import__(str(oauth.provider).partition(":")[0]).stop.set()


@pytest.mark.parametrize("expires", ["float('nan')", "float('inf')", "10 ** 400"])
def test_an_expiry_that_is_none_keeps_no_token(provider: Callable[[str], OAuthSettings], expires: str) -> None:
    oauth = provider(COUNTING + f"def make(): return lambda: (f't{{next(numbers)}}', {expires})")
    assert [ask(oauth), ask(oauth)] == ["t1", "t2"]


# The endpoint


class Endpoint:
    """A token endpoint over HTTP. ``answers`` are served in turn, the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], str]] = []
        self.requests: list[tuple[dict[str, str], str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.requests.append((dict(self.headers), body))
                left = endpoint.answers
                status, headers, text = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def settings(self, **more: Any) -> OAuthSettings:
        return OAuthSettings(token_endpoint_url=self.url, client_id="me:x", client_secret=Secret("hunter2"), **more)

    def answer(self, status: int, content: object, **headers: str) -> None:
        self.answers.append((status, headers, content if isinstance(content, str) else json.dumps(content)))

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(SECONDS)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = Endpoint()
    yield served
    served.close()


def test_the_client_credentials_grant(endpoint: Endpoint) -> None:
    endpoint.answer(200, {"access_token": "abc", "expires_in": 3600})
    oauth = endpoint.settings(scope="kafka read", extensions=(("pool", "p-1"),))
    token = token_for(oauth, Deadline.after(SECONDS), BROKER)
    assert token.value == Secret("abc")
    assert token.extensions == (("pool", "p-1"),)
    assert token.expires_at is not None
    assert 3500 < token.expires_at - time.time() < 3700
    ((headers, body),) = endpoint.requests
    assert body == "grant_type=client_credentials&scope=kafka+read"
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"me:x:hunter2"
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert token_for(oauth, Deadline.after(SECONDS), BROKER) is token
    assert len(endpoint.requests) == 1


def test_the_header_can_be_url_encoded(endpoint: Endpoint) -> None:
    endpoint.answer(200, {"access_token": "abc"})
    ask(endpoint.settings(urlencode_header=True))
    header = endpoint.requests[0][0]["Authorization"]
    assert base64.b64decode(header.removeprefix("Basic ")) == b"me%3Ax:hunter2"


def test_an_endpoint_that_stumbles_is_asked_again(endpoint: Endpoint) -> None:
    endpoint.answer(503, "")
    endpoint.answer(429, "")
    endpoint.answer(200, {"id_token": "abc", "expires_in": "60"})
    assert ask(endpoint.settings()) == "abc"
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(
    ("status", "content", "expected", "attempts"),
    [
        (401, {"error": "invalid_client", "error_description": "no hunter2"}, 'HTTP 401 "invalid_client: no ***', 1),
        (400, "<html>", "HTTP 400; check client id, client secret and scope", 1),
        (404, "", "check the path", 1),
        (302, "", "it redirects, which is not followed", 1),
        (501, {"error": ["hunter2"]}, "HTTP 501; the endpoint has a problem of its own", 3),
        (200, {"token": "hunter2"}, "answered without an access_token", 1),
        (200, {"access_token": "hunter2\x01"}, "answered without an access_token", 1),
        (200, "[]", "answered without an access_token", 1),
    ],
)
def test_an_endpoint_that_refuses(
    endpoint: Endpoint, status: int, content: object, expected: str, attempts: int
) -> None:
    endpoint.answer(status, content, Location="http://127.0.0.1:1/elsewhere")
    error = refusal(endpoint.settings(connect_timeout_ms=200, read_timeout_ms=350))
    assert isinstance(error, AuthenticationError)
    assert expected in error.message
    assert "127.0.0.1 (kafka.sasl.oauthbearer.token.endpoint.url)" in error.message
    assert error.broker == BROKER
    assert len(endpoint.requests) == attempts


def test_a_refusal_that_is_cut_off_is_one_all_the_same(endpoint: Endpoint) -> None:
    endpoint.answer(401, "5\r\n{", **{"Transfer-Encoding": "chunked"})
    assert "answered HTTP 401; check client id" in refusal(endpoint.settings()).message


class Troubled(Frozen):
    """An endpoint that answers HTTP 503 until a time, and the clock of whoever asks it.

    Attributes:
        asked: How often it was asked.
    """

    def __init__(self, well_at: float) -> None:
        super().__init__()
        self.well_at = self.now + well_at
        self.asked = 0

    def open_url(self, opener: Any, request: Any, seconds: float) -> Any:
        self.asked += 1
        if self.now < self.well_at:
            raise urllib.error.HTTPError(request.full_url, 503, "", Message(), io.BytesIO())
        return io.BytesIO(b'{"access_token": "abc"}')


REMOTE = OAuthSettings(token_endpoint_url="https://idp.invalid/token", client_id="me", client_secret=Secret("hunter2"))


def test_an_endpoint_in_trouble_is_asked_for_seconds() -> None:
    system = Troubled(8)
    assert token_for(REMOTE, Deadline.after(SECONDS, system=system), BROKER).value == Secret("abc")
    assert 5 < system.asked < 15
    assert sorted(system.slept) == system.slept


@pytest.mark.parametrize("seconds", [5.0, 60.0])
def test_an_endpoint_that_stays_in_trouble_is_given_up_with_its_answer(seconds: float) -> None:
    system = Troubled(1000)
    with pytest.raises(AuthenticationError, match="HTTP 503; the endpoint has a problem of its own"):
        token_for(REMOTE, Deadline.after(seconds, system=system), BROKER)
    assert min(seconds, 10) / 2 < sum(system.slept) < min(seconds, 10)


@pytest.mark.parametrize(
    "lifetime",
    ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, '"nan"', "[]"],
    ids=["nan", "infinity", "-infinity", "1e999", "400 zeros", "text", "list"],
)
def test_a_lifetime_that_is_none_keeps_no_token(endpoint: Endpoint, lifetime: str) -> None:
    for number in (1, 2):
        endpoint.answer(200, f'{{"access_token": "t{number}", "expires_in": {lifetime}}}')
    oauth = endpoint.settings()
    token = token_for(oauth, Deadline.after(SECONDS), BROKER)
    assert token.expires_at is None
    assert ask(oauth) == "t2"


@pytest.mark.parametrize(
    "shown",
    [
        "hunter2/+",
        "hunter2%2F%2B",
        base64.b64encode(b"hunter2/+").decode(),
        base64.b64encode(b"hunter2/+").decode().rstrip("="),
        base64.b64encode(b"me:x:hunter2/+").decode(),
        "Basic%20" + quote_plus(base64.b64encode(b"me:x:hunter2/+").decode()),
    ],
    ids=["plain", "quoted", "base64", "unpadded", "header", "quoted header"],
)
@pytest.mark.parametrize("urlencode", [False, True], ids=["plain", "urlencoded"])
def test_a_secret_that_comes_back_in_any_form_is_not_shown(endpoint: Endpoint, shown: str, urlencode: bool) -> None:
    endpoint.answer(401, {"error": "invalid_client", "error_description": f"not {shown} here"})
    oauth = replace(endpoint.settings(urlencode_header=urlencode), client_secret=Secret("hunter2/+"))
    if urlencode:
        sent = quote_plus("me:x") + ":" + quote_plus("hunter2/+")
        endpoint.answers[0] = (401, {}, json.dumps({"error": base64.b64encode(sent.encode()).decode()}))
        shown = base64.b64encode(sent.encode()).decode()
    said = refusal(oauth).message
    assert shown.removeprefix("Basic%20") not in said
    assert "***" in said


def test_an_answer_of_brackets(endpoint: Endpoint) -> None:
    """As many as can be read, and more than can be shown."""
    limit = sys.getrecursionlimit()
    for depth in (*range(limit - 100, limit), 100_000):
        endpoint.answers = []
        endpoint.answer(401, '{"error": ' + "[" * depth + "]" * depth + "}")
        assert "HTTP 401; check client id" in refusal(endpoint.settings()).message


def test_an_endpoint_that_is_not_there(endpoint: Endpoint) -> None:
    endpoint.close()
    assert "cannot be reached (Connection refused)" in refusal(endpoint.settings()).message


def test_an_endpoint_that_hangs_meets_the_deadline() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        oauth = OAuthSettings(token_endpoint_url=url, client_id="me", client_secret=Secret("hunter2"))
        assert isinstance(refusal(oauth, 0.2), BrokerTimeoutError)
        impatient = replace(oauth, connect_timeout_ms=50, read_timeout_ms=50)
        assert "did not answer in time (kafka.sasl.login" in refusal(impatient).message


# A file, and claims


def test_a_token_in_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "the token"
    oauth = OAuthSettings(token_endpoint_url=path.as_uri())
    error = refusal(oauth)
    assert isinstance(error, OptionError)
    assert "the token file" in error.message
    path.write_text("one\n")
    assert ask(oauth) == "one"
    path.write_text("two\n")
    assert ask(oauth) == "two"
    path.write_text("\n")
    assert "holds no token" in refusal(oauth).message


def test_an_unsigned_token() -> None:
    claims = UnsecuredClaims((("sub", "alice"), ("scope", ("a", "b")), ("n", 1.5)), lifetime_seconds=60)
    oauth = OAuthSettings(unsecured=claims)
    header, content, signature = ask(oauth).split(".")
    assert signature == ""
    assert json.loads(unpadded(header)) == {"alg": "none"}
    said = json.loads(unpadded(content))
    assert (said["sub"], said["scope"], said["n"]) == ("alice", ["a", "b"], 1.5)
    assert said["exp"] - said["iat"] == pytest.approx(60)
    assert abs(said["iat"] - time.time()) < SECONDS
    assert ask(oauth) == ask(oauth)


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
