"""The conda recipe has the version and the dependencies of the Python package."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from packaging.requirements import Requirement

from pyspark_kafka_direct._version import __version__

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recipe() -> Any:
    return yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def metadata() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version(recipe: Any) -> None:
    assert recipe["context"]["version"] == __version__


def test_the_dependencies(recipe: Any, metadata: Any) -> None:
    requirements = recipe["requirements"]
    assert set(requirements["run"]) - {"python"} == set(map(_conda, metadata["project"]["dependencies"]))
    spark = metadata["project"]["optional-dependencies"]["spark"]
    assert set(map(_parsed, requirements["run_constraints"])) == set(map(_parsed, spark))
    assert set(requirements["host"]) - {"python", "pip"} == set(map(_conda, metadata["build-system"]["requires"]))


def test_python_versions(recipe: Any, metadata: Any) -> None:
    oldest = metadata["project"]["requires-python"].removeprefix(">=")
    assert f'match(python, "<{oldest}")' in recipe["build"]["skip"]


def test_its_files_exist(recipe: Any, metadata: Any) -> None:
    assert recipe["about"]["license_file"] == metadata["project"]["license-files"]
    assert (ROOT / "packaging/conda" / recipe["source"]["path"]).resolve() == ROOT


def _conda(requirement: str) -> str:
    parsed = Requirement(requirement)
    return f"{parsed.name} {parsed.specifier}"


def _parsed(requirement: str) -> tuple[str, SpecifierSet]:
    parsed = Requirement(requirement)
    return parsed.name, parsed.specifier
