"""The functions that Spark calls for each batch."""

from __future__ import annotations

import functools
import pickle
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafka_direct.direct.direct_stream import DirectStreamReference, TransformKafkaRdd, batch_time_ms
from pyspark_kafka_direct.direct.streaming_context import describe_ranges
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.offsets import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable

TIME = datetime.fromtimestamp(1700000000.5)


class Sink:
    def of_rdd(self, rdd: Any) -> Any:
        return (rdd,)

    def of_time_and_rdd(self, time: Any, rdd: Any) -> Any:
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
        (Sink().of_rdd, False),
        (Sink().of_time_and_rdd, True),
        (Sink(), False),
        (functools.partial(Sink().of_time_and_rdd, "fixed"), False),
    ],
)
def test_functions_with_and_without_the_time(function: Callable[..., Any], with_time: bool) -> None:
    rdd: Any = "rdd"
    arguments = TransformKafkaRdd((None,), function)(TIME, rdd)
    assert arguments[-1] == "rdd"
    assert (TIME in arguments) is with_time


def test_functions_of_two_streams() -> None:
    one: Any = "one"
    two: Any = "two"
    assert TransformKafkaRdd((None, None), lambda a, b: (a, b))(TIME, one, two) == ("one", "two")
    assert TransformKafkaRdd((None, None), lambda t, a, b: (t, a, b))(TIME, one, two) == (TIME, "one", "two")


def test_functions_with_other_arguments_are_rejected() -> None:
    with pytest.raises(OptionError, match="takes 3"):
        TransformKafkaRdd((None,), lambda a, b, c: None)
    with pytest.raises(OptionError, match="takes 0"):
        TransformKafkaRdd((None,), lambda: None)


@given(st.integers(0, 4_000_000_000_000))
def test_the_batch_time_is_exact(time_ms: int) -> None:
    assert batch_time_ms(datetime.fromtimestamp(time_ms / 1000.0)) == time_ms


def test_the_description_in_sparks_ui() -> None:
    ranges = [OffsetRange("a", 0, 5, 6), OffsetRange("a", 1, 7, 7), OffsetRange("b", 0, 0, 10)]
    assert describe_ranges(ranges).splitlines() == [
        "topic: b\tpartition: 0\toffsets: 0 to 10\tcount: 10",
        "topic: a\tpartition: 0\toffsets: 5 to 6\tcount: 1",
    ]
    assert describe_ranges([]) == ""


def test_a_reference_to_an_unknown_stream_raises() -> None:
    reference = pickle.loads(pickle.dumps(DirectStreamReference("unknown")))
    with pytest.raises(OptionError, match="only be used on the driver"):
        reference.commitAsync([])
