"""Each test of the run is in exactly one shard."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.shards.assignment import COLLECTED, SHARDS, of_shard

if TYPE_CHECKING:
    import pytest


def test_each_test_is_in_one_shard(request: pytest.FixtureRequest) -> None:
    collected = request.config.stash[COLLECTED]
    runs = Counter(item.nodeid for shard in SHARDS for item in of_shard(collected, shard))
    assert runs == dict.fromkeys((item.nodeid for item in collected), 1)
