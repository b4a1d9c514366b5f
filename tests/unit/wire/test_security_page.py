"""The recipes of docs/security.md are read as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_kafka_direct.settings._reader import read as read_settings
from pyspark_kafka_direct.settings._security import security_settings
from pyspark_kafka_direct.settings.row import Origin

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
RECIPES = [block for block in BLOCKS if "options = {" in block]
SAID = re.findall(r"^\| (`[^|]*) \|", PAGE[PAGE.index("## Errors and what they mean") :], re.MULTILINE)
SOURCES = "".join(path.read_text(encoding="utf-8") for path in (Path(__file__).parents[3] / "src").rglob("*.py"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_accepted(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_text(name)
    scope: dict[str, dict[str, str]] = {}
    exec(compile(recipe, "docs/security.md", "exec"), scope)
    options = scope["options"]
    read = read_settings(options, door="batch", origin=Origin.OPTION)
    security, notes = security_settings(read)
    assert read.notes == ()
    assert security.protocol in ("SSL", "SASL_SSL")
    assert all("switches host name checks off" in note for note in notes)


@pytest.mark.parametrize("block", BLOCKS)
def test_other_blocks_are_python(block: str) -> None:
    compile(block, "docs/security.md", "exec")


@pytest.mark.parametrize("said", [text for cell in SAID for text in re.findall(r"`([^`]+)`", cell)])
def test_errors_are_quoted_as_they_are(said: str) -> None:
    assert said in re.sub(r'"\s*\n\s*f?"', "", SOURCES)  # literals that Python joins


def test_the_page_has_what_it_promises() -> None:
    assert len(RECIPES) > 10
    assert len(SAID) > 10
    for title in re.findall(r"\]\(#([a-z0-9-]+)\)", PAGE):
        assert title in [
            re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in PAGE.splitlines()
            if line.startswith("#")
        ]
