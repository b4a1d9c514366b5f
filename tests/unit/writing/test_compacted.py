"""How long the end of a compacted topic is waited for, and what is said when that is too long."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.wire.systems import Frozen

from pyspark_kafka_direct.errors import BrokerTimeoutError, OptionError
from pyspark_kafka_direct.wire.deadline import Deadline
from pyspark_kafka_direct.writing.compacted import CompactedPartition, Wording

WORDING = Wording("topic of things", "things", "What there is", "Stay apart.", OptionError)


class Brokers:
    """Tell an end of 9, and of what is committed what the test says; or nothing in time.

    Attributes:
        stable: The last stable offsets, one after the other; ``None``: no answer in time.
    """

    def __init__(self, stable: list[int | None]) -> None:
        self.stable = stable

    def offsets(self, wanted: Any, *, isolation_level: str, deadline: Deadline) -> Any:
        end = 9 if isolation_level == "read_uncommitted" else self.stable.pop(0)
        if end is None:
            raise BrokerTimeoutError("No answer to ListOffsets in time.")
        return dict.fromkeys(wanted, end)


def stable_end(stable: list[int | None], seconds: float) -> int:
    cluster: Any = Brokers(stable)
    return CompactedPartition(cluster, "t", WORDING).stable_end(Deadline.after(seconds, system=Frozen()))


def test_what_is_open_is_waited_for() -> None:
    assert stable_end([4, 4, 8, 9], 20) == 9


@pytest.mark.parametrize("looks", [[4] * 20, [4, 4, None]])
def test_a_transaction_that_stays_open_is_named(looks: list[int | None]) -> None:
    """Also where the last look begins so late that there is no time for an answer."""
    with pytest.raises(BrokerTimeoutError, match=r"a transaction of another writer is open from offset 4 on") as caught:
        stable_end(looks, 1)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 4)


def test_no_answer_at_all_is_what_it_is() -> None:
    with pytest.raises(BrokerTimeoutError, match="No answer to ListOffsets"):
        stable_end([None], 1)
