"""Runs ``kafka-direct doctor`` in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafka_direct.cli.main import main

if TYPE_CHECKING:
    import pytest


class Diagnosis(NamedTuple):
    """The output of a run."""

    code: int
    findings: list[dict[str, str]]

    @property
    def not_ok(self) -> dict[tuple[str, str], str]:
        """The texts of findings that are not ok, by subject and check."""
        return {
            (finding["subject"], finding["check"]): finding["text"]
            for finding in self.findings
            if finding["result"] != "ok"
        }

    @property
    def problems(self) -> str:
        """The texts of all problems, joined."""
        return "\n".join(finding["text"] for finding in self.findings if finding["result"] == "problem")

    def texts(self, subject: str) -> dict[str, str]:
        """Return the texts about a subject by check."""
        return {finding["check"]: finding["text"] for finding in self.findings if finding["subject"] == subject}


def diagnose(capsys: pytest.CaptureFixture[str], *arguments: str) -> Diagnosis:
    """Run the command."""
    capsys.readouterr()
    code = main(["doctor", *arguments, "--json"])
    return Diagnosis(code, [json.loads(line) for line in capsys.readouterr().out.splitlines()])
