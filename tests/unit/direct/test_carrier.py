"""The functions Spark calls for each batch."""

from __future__ import annotations

import functools
import pickle
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.direct._carrier import OnKafkaRdd, milliseconds
from pyspark_kafka_direct.direct._input_info import description
from pyspark_kafka_direct.direct.stream import StreamReference
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable

TIME = datetime.fromtimestamp(1700000000.5)


class Sink:
    def one(self, rdd: Any) -> Any:
        return (rdd,)

    def two(self, time: Any, rdd: Any) -> Any:
        return (time, rdd)

    def __call__(self, rdd: Any) -> Any:
        return (rdd,)


@pytest.mark.parametrize(
    ("function", "with_time"),
    [
        (lambda rdd: (rdd,), False),
        (lambda time, rdd: (time, rdd), True),
        (lambda rdd, retries=3: (rdd,), False),
        (lambda *rdds: rdds, False),
        (Sink().one, False),
        (Sink().two, True),
        (Sink(), False),
        (functools.partial(Sink().two, "fixed"), False),
    ],
)
def test_functions_with_and_without_time(function: Callable[..., Any], with_time: bool) -> None:
    rdd: Any = "rdd"
    called = OnKafkaRdd((None,), function)(TIME, rdd)
    assert called[-1] == "rdd"
    assert (TIME in called) is with_time


def test_functions_of_two_streams() -> None:
    one: Any = "one"
    two: Any = "two"
    assert OnKafkaRdd((None, None), lambda a, b: (a, b))(TIME, one, two) == ("one", "two")
    assert OnKafkaRdd((None, None), lambda t, a, b: (t, a, b))(TIME, one, two) == (TIME, "one", "two")


def test_other_functions_are_refused() -> None:
    with pytest.raises(OptionError, match="takes 3"):
        OnKafkaRdd((None,), lambda a, b, c: None)
    with pytest.raises(OptionError, match="takes 0"):
        OnKafkaRdd((None,), lambda: None)


@given(st.integers(0, 4_000_000_000_000))
def test_the_time_of_a_batch_is_found_again(time_ms: int) -> None:
    assert milliseconds(datetime.fromtimestamp(time_ms / 1000.0)) == time_ms


def test_what_sparks_page_shows() -> None:
    ranges = [OffsetRange("a", 0, 5, 6), OffsetRange("a", 1, 7, 7), OffsetRange("b", 0, 0, 10)]
    assert description(ranges).splitlines() == [
        "topic: b\tpartition: 0\toffsets: 0 to 10\tcount: 10",
        "topic: a\tpartition: 0\toffsets: 5 to 6\tcount: 1",
    ]
    assert description([]) == ""


def test_a_stream_in_a_function_of_the_checkpoint_is_a_reference() -> None:
    back = pickle.loads(pickle.dumps(StreamReference("nobody")))
    with pytest.raises(OptionError, match="only be used on the driver"):
        back.commitAsync([])
