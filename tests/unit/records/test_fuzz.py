"""A short run of the fuzzer (``tests/fuzz/fuzz_records.py`` is the long one), and what it once found.

Each run tries others; ``RECORD_FUZZ_SEED`` repeats one that failed and told its seed.
"""

from __future__ import annotations

import collections
import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.unit.records.decoding import agreed, disagreement, outcomes_of, request
from tests.unit.records.mutations import ABORTED, Mutator, corpus

from pyspark_kafka_direct.errors import CorruptRecordError

if TYPE_CHECKING:
    from pyspark_kafka_direct.records import AbortedTransaction

SECONDS = 4.0


def test_the_corpus_is_good() -> None:
    for batch in corpus():
        assert agreed(batch, request()).error is None


@pytest.mark.parametrize("aborted", [(), ABORTED])
def test_damaged_batches(aborted: tuple[AbortedTransaction, ...]) -> None:
    seed = int(os.environ.get("RECORD_FUZZ_SEED") or random.SystemRandom().getrandbits(32))
    print(f"RECORD_FUZZ_SEED={seed} repeats this run")  # pytest shows it where the test fails
    mutator = Mutator(seed)
    verdicts: collections.Counter[type] = collections.Counter()
    end = time.monotonic() + SECONDS / 2
    while time.monotonic() < end or verdicts.total() < 200:
        data = mutator.response()
        outcomes = outcomes_of(data, request(), aborted)
        assert disagreement(outcomes) != "decoder", (data.hex(), outcomes)
        verdicts[type(outcomes["python"].error)] += 1
    # The mutations reach behind the CRC: some change nothing that matters, most are seen.
    assert verdicts[type(None)] > 0
    assert verdicts[CorruptRecordError] > 0
