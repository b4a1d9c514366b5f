"""The code behaves as recorded in ``tests/behaviour``; ``python -m tests.behaviour --write`` updates the record."""

from __future__ import annotations

import re

import pytest
from tests.behaviour import imports, option_outcomes, requests
from tests.behaviour.differences import report
from tests.behaviour.option_values import SECRET


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
