"""When to try again, and when to give up."""

from __future__ import annotations

import pytest
from tests.unit.wire.systems import Sleepless

from pyspark_kafka_direct.errors import BrokerTimeoutError, BrokerUnreachableError
from pyspark_kafka_direct.wire._retry import Retry
from pyspark_kafka_direct.wire.deadline import Deadline

ERROR = BrokerUnreachableError("down")


def test_pauses_grow_up_to_the_longest() -> None:
    system = Sleepless()
    retry = Retry(Deadline.after(100, system=system), None, 0.1, 1.0)
    for _ in range(8):
        retry.after(ERROR)
    for pause, expected in zip(system.slept, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0], strict=True):
        assert 0.8 * expected <= pause <= 1.2 * expected
    assert retry.tries == 9


def test_the_number_of_retries_is_kept() -> None:
    system = Sleepless()
    retry = Retry(Deadline.after(100, system=system), 2, 0.1, 0.1)
    error = BrokerUnreachableError("down")
    retry.after(error)
    retry.after(error)
    with pytest.raises(BrokerUnreachableError) as caught:
        retry.after(error)
    assert caught.value is error
    assert caught.value.__notes__ == ["Tried 3 times."]
    assert len(system.slept) == 2


def test_the_error_that_says_why_is_raised_not_the_one_that_says_time_is_up() -> None:
    retry = Retry(Deadline.after(100), 2, 0.001, 0.001)
    why = BrokerUnreachableError("no leader")
    retry.after(BrokerTimeoutError("slow"))
    retry.after(why)
    with pytest.raises(BrokerUnreachableError) as caught:
        retry.after(BrokerTimeoutError("no time left"))
    assert caught.value is why


def test_no_retry_at_all_says_nothing_of_tries() -> None:
    error = BrokerUnreachableError("down")
    with pytest.raises(BrokerUnreachableError) as caught:
        Retry(Deadline.after(100), 0, 0.1, 0.1).after(error)
    assert not hasattr(caught.value, "__notes__")


def test_no_pause_reaches_beyond_the_deadline() -> None:
    system = Sleepless()
    with pytest.raises(BrokerUnreachableError):
        Retry(Deadline.after(0.05, system=system), None, 10.0, 10.0).after(BrokerUnreachableError("down"))
    assert system.slept == []


def attempt(outcomes: list[BrokerUnreachableError | None], seconds: float, pause: float) -> tuple[int, Sleepless]:
    """Try until an outcome is none; return after how many tries, and who slept."""
    system = Sleepless()
    retry = Retry(Deadline.after(seconds, system=system), None, pause, pause)
    for outcome in outcomes:
        if outcome is None:
            return retry.tries, system
        retry.after(outcome)
    raise AssertionError("there is no end")


def test_a_try_that_succeeds_at_once_is_the_only_one() -> None:
    assert attempt([None], 100, 0.1)[0] == 1
    assert attempt([None], 0, 0.1)[0] == 1  # with no time at all too


def test_tries_that_succeed_in_the_end() -> None:
    tries, system = attempt([ERROR, ERROR, None], 100, 0.1)
    assert (tries, len(system.slept)) == (3, 2)


def test_without_a_pause_it_is_tried_again_at_once() -> None:
    tries, system = attempt([ERROR, ERROR, None], 100, 0)
    assert (tries, system.slept) == (3, [0, 0])


@pytest.mark.parametrize(("seconds", "pause"), [(0, 0.1), (0, 0), (0.01, 0.1)], ids=["time", "both", "long-pause"])
def test_without_time_for_another_try_there_is_none(seconds: float, pause: float) -> None:
    error = BrokerUnreachableError("down")
    with pytest.raises(BrokerUnreachableError) as caught:
        attempt([error, None], seconds, pause)
    assert caught.value is error
    assert not hasattr(error, "__notes__")
