"""How long OAUTHBEARER tokens are used: clocks that are set, and lifetimes that contradict the token."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import jwt
import pytest
from tests.unit.client.fake_systems import FakeTimeSystem
from tests.unit.client.token_endpoint import Endpoint

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.client.security.oauth_login import renew_token, retrieve_token
from pyspark_kafka_direct.client.system import RealSystem
from pyspark_kafka_direct.errors import AuthenticationError, BrokerTimeoutError
from pyspark_kafka_direct.options.security_settings import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark_kafka_direct.client.security.oauth_tokens import OAuthBearerToken
    from pyspark_kafka_direct.client.system import Condition, Lock
    from pyspark_kafka_direct.options.security_settings import OAuthSettings

HOUR = 3600.0
DAY = 24 * HOUR


class SetClock(FakeTimeSystem):
    """A clock that shows another time than the real one."""

    ahead = 0.0

    def wall_time(self) -> float:
        return self.now + self.ahead


class HangingThreads(FakeTimeSystem):
    """While it hangs, no new thread runs, and waits for them end at the deadline when they are released."""

    is_hanging = False

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.is_waiting = threading.Event()
        self.is_released = threading.Event()

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        if not self.is_hanging:
            super().start_thread(run, name)

    def wait(self, condition: Condition, seconds: float | None) -> bool:
        if not self.is_hanging:
            return super().wait(condition, seconds)
        self.is_waiting.set()
        self.is_released.wait(120)
        return False


class CountedWaits(RealSystem):
    """The first request starts when 100 logins wait for the lock, or have it."""

    def __init__(self) -> None:
        self.logins = 0
        self.lock_of_count = threading.Lock()
        self.are_all_waiting = threading.Event()

    def acquire(self, lock: Lock, seconds: float) -> bool:
        with self.lock_of_count:
            self.logins += 1
            if self.logins == 100:
                self.are_all_waiting.set()
        return super().acquire(lock, seconds)

    def start_thread(self, run: Callable[[], None], name: str) -> None:
        self.are_all_waiting.wait(120)
        super().start_thread(run, name)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = Endpoint()
    yield served
    served.close()


def token_of(oauth: OAuthSettings, system: FakeTimeSystem) -> OAuthBearerToken:
    return retrieve_token(oauth, Deadline.after(120.0, system=system), "broker:9092")


def test_a_token_expires_although_the_clock_is_set_back(endpoint: Endpoint) -> None:
    endpoint.add_response(200, {"access_token": "t1", "expires_in": HOUR})
    endpoint.add_response(200, {"access_token": "t2", "expires_in": HOUR})
    oauth, system = endpoint.settings(), SetClock(now=1e9)
    system.ahead = 365 * DAY  # until the machine gets the time from a server

    def token_after(seconds: float) -> str:
        system.now += seconds
        return token_of(oauth, system).value.reveal()

    assert token_after(0) == "t1"
    system.ahead = 0.0
    assert token_after(0.79 * HOUR) == "t1"
    assert token_after(0.02 * HOUR) == "t2"


def test_a_token_expires_while_the_machine_sleeps(endpoint: Endpoint) -> None:
    """The monotonic clock may stop then."""
    endpoint.add_response(200, {"access_token": "t1", "expires_in": HOUR})
    endpoint.add_response(200, {"access_token": "t2", "expires_in": HOUR})
    oauth, system = endpoint.settings(), SetClock(now=1e9)
    assert token_of(oauth, system).value.reveal() == "t1"
    system.ahead = 0.81 * HOUR
    assert token_of(oauth, system).value.reveal() == "t2"


@pytest.mark.parametrize("lifetime", [HOUR * 1000, 1e300])
def test_a_lifetime_does_not_exceed_that_in_the_token(endpoint: Endpoint, lifetime: float) -> None:
    """An endpoint may return milliseconds."""
    expires_at = int(time.time() + HOUR)
    token = jwt.encode({"sub": "me", "exp": expires_at}, "a secret of 32 characters or more")
    endpoint.add_response(200, {"access_token": token, "expires_in": lifetime})
    assert token_of(endpoint.settings(), FakeTimeSystem(now=time.time())).expires_at == expires_at


def test_a_lifetime_may_be_shorter_than_that_in_the_token(endpoint: Endpoint) -> None:
    token = jwt.encode({"sub": "me", "exp": int(time.time() + HOUR)}, "a secret of 32 characters or more")
    endpoint.add_response(200, {"access_token": token, "expires_in": 60})
    assert token_of(endpoint.settings(), FakeTimeSystem(now=1e9)).expires_at == 1e9 + 60


def test_several_clusters_have_separate_tokens_that_are_all_reused(endpoint: Endpoint) -> None:
    clusters, system = [endpoint.settings(scope=f"cluster {number}") for number in range(6)], FakeTimeSystem(now=1e9)
    for number in range(len(clusters) + 1):
        endpoint.add_response(200, {"access_token": f"t{number}", "expires_in": HOUR})
    for _ in range(3):
        found = [token_of(oauth, system).value.reveal() for oauth in clusters]
        assert found == [f"t{number}" for number in range(6)]
    assert len(endpoint.requests) == 6


def test_a_rejected_token_is_replaced_once_and_not_at_once(endpoint: Endpoint) -> None:
    """Several connections report the same one, some of them late."""
    for number in range(1, 4):
        endpoint.add_response(200, {"access_token": f"t{number}", "expires_in": HOUR})
    oauth, system = endpoint.settings(), FakeTimeSystem(now=1e9)

    def used_after(seconds: float, *rejected: str) -> str:
        system.now += seconds
        for each in rejected:
            renew_token(oauth, Secret(each), Deadline.after(120.0, system=system), "broker:9092")
        return token_of(oauth, system).value.reveal()

    assert [used_after(0), used_after(1, "t1", "t1"), used_after(8), used_after(2)] == ["t1", "t1", "t1", "t2"]
    assert [used_after(1, "t1"), used_after(60, "t1", "other")] == ["t2", "t2"]
    assert [used_after(1, "t2"), used_after(100)] == ["t3", "t3"]


def test_a_token_that_was_just_requested_is_not_replaced_at_once(endpoint: Endpoint) -> None:
    for number in range(1, 4):
        endpoint.add_response(200, {"access_token": f"t{number}", "expires_in": 100})
    oauth, system = endpoint.settings(), FakeTimeSystem(now=1e9)
    found = []
    for seconds, rejected in ((0, "t0"), (85, "t1"), (2, "t2"), (5, "t2"), (4, "t2")):
        system.now += seconds
        found.append(token_of(oauth, system).value.reveal())
        renew_token(oauth, Secret(rejected), Deadline.after(120.0, system=system), "broker:9092")
    assert [*found, token_of(oauth, system).value.reveal()] == ["t1", "t2", "t2", "t2", "t3", "t3"]


@pytest.mark.parametrize("hours", [1.0, 1.5])
def test_logins_do_not_use_an_expired_token_while_another_one_waits_for_a_refresh(
    endpoint: Endpoint, hours: float
) -> None:
    endpoint.add_response(200, {"access_token": "t1", "expires_in": HOUR})
    oauth, system = endpoint.settings(), HangingThreads(now=1e9)
    assert token_of(oauth, system).value.reveal() == "t1"
    system.now += hours * HOUR
    system.is_hanging = True
    with ThreadPoolExecutor(1) as threads:
        refresh = threads.submit(token_of, oauth, system)
        assert system.is_waiting.wait(120)
        try:
            with pytest.raises(BrokerTimeoutError, match="returned no token in time") as caught:
                retrieve_token(oauth, Deadline.after(0.2, system=system), "another:9092")
            assert caught.value.broker == "another:9092"
        finally:
            system.is_released.set()
        with pytest.raises(BrokerTimeoutError):
            refresh.result(120)


def test_logins_use_a_valid_token_while_another_one_waits_for_a_refresh(endpoint: Endpoint) -> None:
    """A login with less time than the refresh takes would fail although its token is valid."""
    endpoint.add_response(200, {"access_token": "t1", "expires_in": HOUR})
    oauth, system = endpoint.settings(), HangingThreads(now=1e9)
    assert token_of(oauth, system).value.reveal() == "t1"
    system.now += 0.9 * HOUR
    system.is_hanging = True
    with ThreadPoolExecutor(1) as threads:
        refresh = threads.submit(token_of, oauth, system)
        assert system.is_waiting.wait(120)
        try:
            assert retrieve_token(oauth, Deadline.after(0.2, system=system), "broker:9092").value.reveal() == "t1"
            assert not refresh.done()
        finally:
            system.is_released.set()
        assert refresh.result(120).value.reveal() == "t1"


def test_logins_that_wait_for_a_rejected_request_do_not_repeat_it(endpoint: Endpoint) -> None:
    """Identity providers lock accounts after a number of failures."""
    endpoint.add_response(401, {"error": "invalid_client"})
    oauth, system = endpoint.settings(), CountedWaits()

    def error(number: int) -> str:
        with pytest.raises(AuthenticationError) as caught:
            retrieve_token(oauth, Deadline.after(120.0, system=system), f"broker-{number}:9092")
        assert caught.value.broker == f"broker-{number}:9092"
        return caught.value.message

    with ThreadPoolExecutor(100) as threads:
        messages = set(threads.map(error, range(100)))
    assert len(messages) == 1
    assert "invalid_client" in messages.pop()
    assert len(endpoint.requests) == 1
    error(0)
    assert len(endpoint.requests) == 2
