"""A short run of the fuzzer (``tests/fuzz/fuzz_records.py`` is the long one); see also tests/golden.

Each run uses another seed, which a failure prints; ``RECORD_FUZZ_SEED`` repeats a run.
"""

from __future__ import annotations

import collections
import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.unit.records.decoding import request, run, run_in_steps
from tests.unit.records.mutations import ABORTED, LegacyMutator, Mutator, corpus, legacy_corpus

from pyspark_kafka_direct.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_kafka_direct.records import AbortedTransaction

BATCHES = 600  # of each kind


def test_undamaged_batches_are_decoded() -> None:
    for batch in corpus() + legacy_corpus():
        assert run(batch, request()).error is None


@pytest.mark.parametrize("create", [Mutator, LegacyMutator])
@pytest.mark.parametrize("aborted", [(), ABORTED])
def test_damaged_batches(create: Callable[[int], Mutator], aborted: tuple[AbortedTransaction, ...]) -> None:
    seed = int(os.environ.get("RECORD_FUZZ_SEED") or random.SystemRandom().getrandbits(32))
    print(f"RECORD_FUZZ_SEED={seed} repeats this run")  # pytest prints it if the test fails
    mutator = create(seed)
    outcome_counts: collections.Counter[type] = collections.Counter()
    for _ in range(BATCHES):
        data = mutator.response()
        outcome_counts[type(run_in_steps(data, mutator.request(), aborted).error)] += 1
    # The mutations must reach the records: some are harmless, most are detected.
    assert outcome_counts[type(None)] > 0
    assert outcome_counts[CorruptRecordError] > 0
