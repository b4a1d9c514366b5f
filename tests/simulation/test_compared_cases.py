"""The compared cases run on the simulated cluster, by both codecs; ``tests/integration`` runs them on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.simulation.compared_cases import COMPARED_CASES, run_simulated
from tests.simulation.log_cases import LOG_CASES

# Recorded with a broker of Kafka 4.3.0; its transaction.version was 2, then 0.
_TRANSCRIPTS = json.loads((Path(__file__).parent / "data" / "log_transcripts.json").read_text())


@pytest.mark.parametrize("transaction_version", [2, 0])
@pytest.mark.parametrize("name", LOG_CASES)
def test_logs_equal_those_of_a_real_broker(name: str, transaction_version: int) -> None:
    label = f"{name}-v{transaction_version}"
    assert run_simulated(name, label, transaction_version) == _TRANSCRIPTS[label]


@pytest.mark.parametrize("transaction_version", [2, 0])
@pytest.mark.parametrize("name", COMPARED_CASES)
def test_the_codec_makes_no_difference(name: str, transaction_version: int) -> None:
    transcript = run_simulated(name, name, transaction_version)
    assert transcript
    assert run_simulated(name, name, transaction_version, codec="kio") == transcript
