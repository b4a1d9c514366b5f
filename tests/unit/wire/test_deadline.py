"""Deadlines: how much time is left, and narrowing."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.wire.deadline import Deadline


def test_time_left_shrinks_and_never_turns_negative() -> None:
    deadline = Deadline.after(60)
    assert 0 < deadline.remaining() <= 60
    assert not deadline.expired
    deadline = Deadline.after(0.02)
    while not deadline.expired:
        time.sleep(0.001)
    assert deadline.remaining() == 0.0


def test_a_deadline_of_the_past_has_expired() -> None:
    assert Deadline.after(0).expired
    assert Deadline.after(-5).remaining() == 0.0


@given(st.floats(1, 100), st.floats(1, 100))
def test_sooner_never_lengthens(whole: float, step: float) -> None:
    deadline = Deadline.after(whole)
    narrowed = deadline.sooner(step)
    assert narrowed.at <= deadline.at
    assert narrowed.remaining() <= step
    assert narrowed.setting == deadline.setting
    if step > whole:
        assert narrowed == deadline
