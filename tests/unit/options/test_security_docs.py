"""The examples of docs/security.md are valid, and its quoted errors exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pyspark_kafka_direct.options.config_option import ConfigSource
from pyspark_kafka_direct.options.option_parser import parse_config
from pyspark_kafka_direct.options.security_parser import parse_security
from pyspark_kafka_direct.options.spark_definitions import TOKEN_PROVIDERS_VARIABLE, TOKEN_URLS_VARIABLE

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = [block for block in BLOCKS if "options = {" in block]
TOKEN_URLS = ",".join(re.findall(rf"{TOKEN_URLS_VARIABLE}=(\S+)", PAGE))
QUOTED = re.findall(r"^\| (`[^|]*) \|", PAGE[PAGE.index("## Errors and what they mean") :], re.MULTILINE)
SOURCES = "".join(path.read_text(encoding="utf-8") for path in (Path(__file__).parents[3] / "src").rglob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_valid(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_text(name)
    monkeypatch.setenv(TOKEN_PROVIDERS_VARIABLE, "my_tokens:provider")
    monkeypatch.setenv(TOKEN_URLS_VARIABLE, TOKEN_URLS)
    scope: dict[str, dict[str, str]] = {}
    exec(compile(example, "docs/security.md", "exec"), scope)
    options = scope["options"]
    parsed = parse_config(options, api="batch", source=ConfigSource.OPTION)
    security, warnings = parse_security(parsed)
    assert parsed.warnings == ()
    assert security.protocol in ("SSL", "SASL_SSL")
    assert all("disables host name verification" in warning for warning in warnings)


@pytest.mark.parametrize("block", BLOCKS)
def test_other_blocks_are_python(block: str) -> None:
    compile(block, "docs/security.md", "exec")


@pytest.mark.parametrize("quoted", [text for cell in QUOTED for text in re.findall(r"`([^`]+)`", cell)])
def test_quoted_errors_exist(quoted: str) -> None:
    assert quoted in re.sub(r'"\s*\n\s*f?"', "", SOURCES)  # adjacent literals are one string


def test_the_page_has_examples_errors_and_valid_links() -> None:
    assert len(EXAMPLES) >= 9
    assert len(QUOTED) >= 7
    for title in re.findall(r"\]\(#([a-z0-9-]+)\)", PAGE):
        assert title in [
            re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in PAGE.splitlines()
            if line.startswith("#")
        ]


def test_the_table_of_logins_names_extras_that_exist() -> None:
    table = PAGE[PAGE.index("## Find your login") : PAGE.index("## Which protocol")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "](#" in line]
    extras = {extra.strip("`") for _, _, extra in rows if extra}
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extras == {"kerberos", "msk", "azure", "gcp"}
    assert extras <= project["optional-dependencies"].keys()
    assert [row for row in rows if not row[1]] == []
