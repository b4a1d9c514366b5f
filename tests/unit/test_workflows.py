"""The workflows are pinned, ask for few permissions, and call targets that the Makefile has."""

from __future__ import annotations

import re

import pytest
import yaml
from tests.documentation import ROOT, text_of

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("name", [file.name for file in WORKFLOWS])
def test_a_workflow(name: str) -> None:
    workflow = yaml.safe_load(text_of(f".github/workflows/{name}"))
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= set(workflow["jobs"])
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
            continue
        assert job["runs-on"]
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
            else:
                for target in re.findall(r"\bmake ([a-z-]+)", step["run"]):
                    assert target in TARGETS


def test_an_action_has_one_pin() -> None:
    pins = {use for file in WORKFLOWS for use in re.findall(r"uses: ([\w-]+/.*)", file.read_text(encoding="utf-8"))}
    actions = [pin.split("@")[0] for pin in pins]
    assert sorted(set(actions)) == sorted(actions)


def test_other_files_for_the_host_are_valid() -> None:
    for file in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(file.read_text(encoding="utf-8")), file
    ecosystems = {each["package-ecosystem"] for each in yaml.safe_load(text_of(".github/dependabot.yml"))["updates"]}
    assert ecosystems == {"github-actions", "cargo", "pip"}
