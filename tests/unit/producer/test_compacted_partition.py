"""Waiting for the stable end of a compacted topic."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.fake_systems import FakeTimeSystem

from pyspark_kafka_direct.client.deadline import Deadline
from pyspark_kafka_direct.errors import BrokerTimeoutError, OptionError
from pyspark_kafka_direct.producer.compacted_partition import CompactedPartition, TopicErrorText

ERROR_TEXT = TopicErrorText("topic of things", "things", "What there is", "Stay apart.", OptionError)


class FakeCluster:
    """Returns a high watermark of 9 and the given last stable offsets in turn; ``None`` is a timeout."""

    def __init__(self, stable: list[int | None]) -> None:
        self.stable = stable

    def offsets(self, partitions: Any, *, isolation_level: str, deadline: Deadline) -> Any:
        end = 9 if isolation_level == "read_uncommitted" else self.stable.pop(0)
        if end is None:
            raise BrokerTimeoutError("No response to ListOffsets in time.")
        return dict.fromkeys(partitions, end)


def wait_for_stable_end(stable: list[int | None], seconds: float) -> int:
    cluster: Any = FakeCluster(stable)
    return CompactedPartition(cluster, "t", ERROR_TEXT).wait_for_stable_end(
        Deadline.after(seconds, system=FakeTimeSystem())
    )


def test_open_transactions_are_waited_for() -> None:
    assert wait_for_stable_end([4, 4, 8, 9], 20) == 9


@pytest.mark.parametrize("stable", [[4] * 20, [4, 4, None]])
def test_the_error_names_the_offset_of_a_transaction_that_stays_open(stable: list[int | None]) -> None:
    """Also if too little time is left for the last request."""
    with pytest.raises(BrokerTimeoutError, match=r"a transaction of another writer is open from offset 4 on") as caught:
        wait_for_stable_end(stable, 1)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 4)


def test_a_request_timeout_is_raised_unchanged() -> None:
    with pytest.raises(BrokerTimeoutError, match="No response to ListOffsets"):
        wait_for_stable_end([None], 1)
