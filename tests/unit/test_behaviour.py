"""The code behaves as ``tests/behaviour`` has recorded; ``python -m tests.behaviour --write`` makes the record anew."""

from __future__ import annotations

import pytest
from tests.behaviour import imports, inventory, requests, settings
from tests.behaviour.store import complaint
from tests.behaviour.values import SECRET
from tests.lanes.assignment import COLLECTED

from pyspark_kafka_direct.records import IMPLEMENTATION


def test_settings() -> None:
    assert not (said := complaint("settings", settings.compare())), said


def test_secrets_are_recorded_masked() -> None:
    outcomes = list(settings.outcomes_recorded())
    assert any("********" in outcome for outcome in outcomes)
    assert not [outcome for outcome in outcomes if SECRET in outcome]


def test_requests() -> None:
    assert not (said := complaint("requests", requests.compare())), said


def test_imports() -> None:
    assert not (said := complaint("imports", imports.compare(imports.of_package()))), said


def test_functions_and_their_assertions() -> None:
    assert not (said := complaint("tests", inventory.compare_functions())), said


@pytest.mark.skipif(IMPLEMENTATION != "native", reason="the record is of a machine with the native kernel")
def test_no_test_id_is_gone(request: pytest.FixtureRequest) -> None:
    if not inventory.is_whole_run(request.config, "tests/unit"):
        pytest.skip("only a run of all unit tests has all ids")
    collected = [item.nodeid for item in request.config.stash[COLLECTED]]
    assert not (said := complaint("tests", inventory.compare_ids(collected, "tests/unit"))), said
