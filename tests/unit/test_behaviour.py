"""The code behaves as recorded in ``tests/behaviour``; ``python -m tests.behaviour --write`` updates the record."""

from __future__ import annotations

import re

import pytest
from tests.behaviour import (
    collected_tests,
    imports,
    option_outcomes,
    requests,
)
from tests.behaviour.differences import report
from tests.behaviour.option_values import SECRET
from tests.shards.assignment import COLLECTED


@pytest.mark.slow
def test_options() -> None:
    assert not (message := report("options", option_outcomes.compare())), message


def test_secrets_are_recorded_masked() -> None:
    outcomes = list(option_outcomes.recorded_outcomes())
    assert any("********" in outcome for outcome in outcomes)
    assert not [outcome for outcome in outcomes if SECRET in outcome]


def test_values_are_recorded_without_the_classes_of_settings() -> None:
    values = [outcome for outcome in option_outcomes.recorded_outcomes() if outcome.startswith("=")]
    assert not [
        value for value in values if re.search(r"(?<![a-z])[A-Z]\w*(Settings|Options|Config|Parameters)\b", value)
    ]


def test_requests() -> None:
    assert not (message := report("requests", requests.compare())), message


def test_imports() -> None:
    assert not (message := report("imports", imports.compare(imports.package_imports()))), message


@pytest.mark.slow
def test_functions_and_their_assertions() -> None:
    assert not (message := report("tests", collected_tests.compare_functions())), message


def test_no_test_id_is_missing(request: pytest.FixtureRequest) -> None:
    folders = [folder for folder in collected_tests.UNIT if collected_tests.is_full_run(request.config, folder)]
    if not folders:
        pytest.skip("only a run of all unit tests has all ids")
    collected = [item.nodeid for item in request.config.stash[COLLECTED]]
    for folder in folders:
        assert not (message := report("tests", collected_tests.compare_ids(collected, folder))), message
