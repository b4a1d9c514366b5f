"""Pauses between tries, and when retries end."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
from tests.unit.client.fake_systems import FakeTimeSystem, NoSleepSystem

from pyspark_kafka_direct.client.deadline import Backoff, Deadline, Retry
from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError

ERROR = BrokerUnreachableError("down")


def test_pauses_grow_to_the_maximum() -> None:
    system = NoSleepSystem()
    retry = Retry(Deadline.after(100, system=system), None, Backoff(0.1, 1.0))
    for _ in range(8):
        retry.wait_or_raise(ERROR)
    for pause, expected in zip(system.slept, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0], strict=True):
        assert 0.8 * expected <= pause <= 1.2 * expected
    assert retry.tries == 9


def test_number_of_retries_is_limited() -> None:
    system = NoSleepSystem()
    retry = Retry(Deadline.after(100, system=system), 2, Backoff(0.1, 0.1))
    error = BrokerUnreachableError("down")
    retry.wait_or_raise(error)
    retry.wait_or_raise(error)
    with pytest.raises(BrokerUnreachableError) as caught:
        retry.wait_or_raise(error)
    assert caught.value is error
    assert caught.value.__notes__ == ["Tried 3 times in 0 s (fetchOffset.numRetries)."]
    assert len(system.slept) == 2


def test_cause_is_raised_instead_of_timeout() -> None:
    retry = Retry(Deadline.after(100), 2, Backoff(0.001, 0.001))
    cause = BrokerUnreachableError("no leader")
    retry.wait_or_raise(BrokerTimeoutError("slow"))
    retry.wait_or_raise(cause)
    with pytest.raises(BrokerUnreachableError) as caught:
        retry.wait_or_raise(BrokerTimeoutError("no time left"))
    assert caught.value is cause


def test_error_without_retry_has_no_note() -> None:
    error = BrokerUnreachableError("down")
    with pytest.raises(BrokerUnreachableError) as caught:
        Retry(Deadline.after(100), 0, Backoff(0.1, 0.1)).wait_or_raise(error)
    assert not hasattr(caught.value, "__notes__")


def test_no_pause_exceeds_the_deadline() -> None:
    system = NoSleepSystem()
    with pytest.raises(BrokerUnreachableError):
        Retry(Deadline.after(0.05, system=system), None, Backoff(10.0, 10.0)).wait_or_raise(
            BrokerUnreachableError("down")
        )
    assert system.slept == []


def attempt(outcomes: list[BrokerUnreachableError | None], seconds: float, pause: float) -> tuple[int, NoSleepSystem]:
    """Try until an outcome is None; return the number of tries, and the system that recorded the pauses."""
    system = NoSleepSystem()
    retry = Retry(Deadline.after(seconds, system=system), None, Backoff(pause, pause))
    for outcome in outcomes:
        if outcome is None:
            return retry.tries, system
        retry.wait_or_raise(outcome)
    raise AssertionError("the outcomes have no end")


def test_first_try_succeeds() -> None:
    assert attempt([None], 100, 0.1)[0] == 1
    assert attempt([None], 0, 0.1)[0] == 1  # even without remaining time


def test_later_try_succeeds() -> None:
    tries, system = attempt([ERROR, ERROR, None], 100, 0.1)
    assert (tries, len(system.slept)) == (3, 2)


def test_retry_without_pause() -> None:
    tries, system = attempt([ERROR, ERROR, None], 100, 0)
    assert (tries, system.slept) == (3, [0, 0])


@pytest.mark.parametrize(("seconds", "pause"), [(0, 0.1), (0, 0), (0.01, 0.1)], ids=["time", "both", "long-pause"])
def test_no_retry_without_remaining_time(seconds: float, pause: float) -> None:
    error = BrokerUnreachableError("down")
    with pytest.raises(BrokerUnreachableError) as caught:
        attempt([error, None], seconds, pause)
    assert caught.value is error
    assert not hasattr(error, "__notes__")


def test_a_raised_error_is_in_no_reference_cycle() -> None:
    """Its traceback has all that the callers have, such as records."""
    gc.collect()
    gc.disable()
    try:
        assert _failed_retry()() is None
    finally:
        gc.enable()


def _failed_retry() -> weakref.ref[object]:
    """Return a reference to an object that only the frame of this call holds."""
    held = FakeTimeSystem()
    with contextlib.suppress(BrokerUnreachableError):
        Retry(Deadline.after(100), 0, Backoff(0.1, 0.1)).wait_or_raise(BrokerUnreachableError("down"))
    return weakref.ref(held)


def test_a_backoff_doubles_up_to_its_maximum() -> None:
    backoff = Backoff(0.1, 10.0)
    pauses = [backoff.without_jitter(tries) for tries in range(11)]
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses == sorted(pauses)
    assert pauses[-1] == backoff.without_jitter(10_000) == 10.0


def test_the_error_names_the_duration_and_the_option_that_limits_it() -> None:
    system = FakeTimeSystem()
    retry = Retry(Deadline.after(60, system=system), None, Backoff(1.0, 1.0))
    with pytest.raises(BrokerUnreachableError) as caught:
        _retry_until_it_fails(retry)
    assert caught.value.__notes__ == ["Tried 60 times in 59 s (kafka.default.api.timeout.ms)."]
    deadline = Deadline.after(60, system=system).limited_to(10, "kafka.socket.connection.setup.timeout.ms")
    with pytest.raises(BrokerUnreachableError) as caught:
        _retry_until_it_fails(Retry(deadline, None, Backoff(1.0, 1.0)))
    assert caught.value.__notes__ == ["Tried 10 times in 9 s (kafka.socket.connection.setup.timeout.ms)."]
    own = Deadline.after(5, "my.timeout", system).limited_to(10, "kafka.socket.connection.setup.timeout.ms")
    assert own.setting == "my.timeout"


@pytest.mark.parametrize("evidence", [[5.0], [20.0, 5.0], [5.0, 20.0, 5.0]], ids=str)
@pytest.mark.parametrize("pause", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("user_seconds", [0.5, 1000.0])
def test_evidence_of_a_loss_extends_a_retry_once(evidence: list[float], pause: float, user_seconds: float) -> None:
    """It uses up no retries before the confirmation is over, and does not start the confirmation again."""
    system, remaining = FakeTimeSystem(), list(evidence)
    retry = Retry(
        Deadline.after(user_seconds, system=system),
        2,
        Backoff(pause, pause),
        confirmation_seconds=lambda _: remaining.pop(0) if len(remaining) > 1 else remaining[0],
    )
    with pytest.raises(BrokerUnreachableError) as caught:
        _retry_until_it_fails(retry)
    elapsed = system.now - 1000.0
    assert max(evidence) + 3 <= elapsed <= max(evidence) + 10, "and the time for requests"
    assert "The brokers had %g s to confirm or refute a data loss" % (max(evidence) + 5) in caught.value.__notes__[-1]
    assert len(system.slept) < 500


def test_a_long_retry_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    retry = Retry(Deadline.after(60, system=FakeTimeSystem()), None, Backoff(1.0, 1.0))
    for _ in range(5):
        retry.wait_or_raise(BrokerUnreachableError("nothing listens there", broker="b:1"))
    assert caplog.messages == []
    with pytest.raises(BrokerUnreachableError):
        _retry_until_it_fails(retry)
    (message,) = caplog.messages
    assert message == (
        "still retrying after 5 s, for up to 55 s more (kafka.default.api.timeout.ms): nothing listens there "
        "[broker b:1]"
    )


def _retry_until_it_fails(retry: Retry) -> None:
    for _ in range(1000):
        retry.wait_or_raise(BrokerUnreachableError("nothing listens there", broker="b:1"))
