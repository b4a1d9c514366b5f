"""Deadlines: the remaining time, and limiting it."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.client.deadline import Cancellation, Deadline
from pyspark_kafka_direct.client.system import SYSTEM


def test_remaining_time_decreases_and_is_never_negative() -> None:
    deadline = Deadline.after(60)
    assert 0 < deadline.remaining() <= 60
    assert not deadline.expired
    deadline = Deadline.after(0.02)
    while not deadline.expired:
        time.sleep(0.001)
    assert deadline.remaining() == 0.0


def test_past_deadline_has_expired() -> None:
    assert Deadline.after(0).expired
    assert Deadline.after(-5).remaining() == 0.0


@given(st.floats(1, 100), st.floats(1, 100))
def test_limited_to_never_extends_the_deadline(seconds: float, limit: float) -> None:
    deadline = Deadline.after(seconds)
    limited = deadline.limited_to(limit)
    assert limited.at <= deadline.at
    assert limited.remaining() <= limit
    assert limited.setting == deadline.setting
    if limit > seconds:
        assert limited == deadline


def test_a_limited_deadline_is_cancelled_with_the_first_one() -> None:
    cancellation = Cancellation(SYSTEM)
    try:
        deadline = Deadline(SYSTEM.monotonic() + 60, "an.option", cancellation=cancellation)
        for limited in (deadline.limited_to(1), deadline.limited_to(100)):
            assert not limited.expired
            assert limited.wakeup_fds == (cancellation.fileno(),)
        limited = deadline.limited_to(1)
        assert not SYSTEM.readable(cancellation.fileno())
        cancellation.set()
        assert SYSTEM.readable(cancellation.fileno()), "waits for responses end"
        assert (limited.expired, limited.remaining()) == (True, 0.0)
    finally:
        cancellation.close()
