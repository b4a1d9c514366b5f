"""What a build says if its native kernel cannot be built, and what is in its metadata; setup.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_kafka_direct.payloads.protobuf.well_known_types import WELL_KNOWN_FILES

if TYPE_CHECKING:
    from email.message import Message
    from types import ModuleType

ROOT = Path(__file__).parents[2]
ADDRESS = "https://code.example/team/project"

NO_LINKER = """#!/bin/sh
echo 'error: linker `cc` not found' >&2
echo '  = note: No such file or directory (os error 2)' >&2
exit 101
"""
RUSTC = """#!/bin/sh
echo 'rustc 1.95.0 (59807616e 2026-04-14)'
"""
OLD_RUSTC = """#!/bin/sh
echo 'rustc 1.65.0 (Debian 1.65.0+dfsg1-2)'
"""
NO_DEFAULT = """#!/bin/sh
echo 'error: no default toolchain is configured' >&2
exit 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of a build with one room of the package."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)
    records = folder / "src/pyspark_kafka_direct/records"
    records.mkdir(parents=True)
    for name in ("__init__.py", "_version.py", "records/__init__.py"):
        shutil.copy(ROOT / "src/pyspark_kafka_direct" / name, records.parent / name)
    (folder / "rust").mkdir()
    for name in ("Cargo.toml", "THIRD-PARTY-LICENSES.txt", "sbom.cdx.json"):
        shutil.copy(ROOT / "rust" / name, folder / "rust")
    return folder


FREE_THREADED = """
import runpy, sys, sysconfig
sysconfig.get_config_vars()["Py_GIL_DISABLED"] = 1
sys.argv[0] = "setup.py"
runpy.run_path("setup.py", run_name="__main__")
"""

WITH_KERNEL = """
import runpy, sys
from setuptools_rust.build import build_rust
build_rust.run = lambda command: None  # cargo is content
sys.argv[0] = "setup.py"
runpy.run_path("setup.py", run_name="__main__")
"""


def build(
    project: Path, command: str = "bdist_wheel", address: str = "", program: str = "", **tools: str
) -> subprocess.CompletedProcess[str]:
    """Build a wheel where no other tools than these are."""
    path = project / "tools"
    path.mkdir()
    for name, script in tools.items():
        (path / name).write_text(script)
        (path / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO", "PYTHON"))}
    environment |= {"PATH": str(path), "PYSPARK_KAFKA_DIRECT_ADDRESS": address}
    return subprocess.run(
        [sys.executable, *(("-c", program) if program else ("setup.py",)), command],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def the_wheel(project: Path) -> Path:
    (wheel,) = (project / "dist").iterdir()
    return wheel


def prepared_metadata(project: Path, address: str = "") -> Message:
    built = build(project, "dist_info", address, rustc=RUSTC, cargo=NO_LINKER)
    assert built.returncode == 0, built.stderr
    return message_from_bytes((project / "pyspark_kafka_direct-0.1.0.dist-info/METADATA").read_bytes())


@pytest.mark.parametrize(
    ("command", "tools", "reason"),
    [
        pytest.param("dist_info", {}, "cargo is not on the PATH", id="nothing"),
        pytest.param("editable_wheel", {"cargo": NO_LINKER}, "rustc is not on the PATH", id="no-compiler"),
        pytest.param(
            "bdist_wheel",
            {"rustc": NO_DEFAULT, "cargo": NO_DEFAULT},
            "rustc --version failed (error: no default toolchain is configured)",
            id="rustup-without-toolchain",
        ),
        pytest.param("dist_info", {"rustc": OLD_RUSTC, "cargo": NO_LINKER}, "rustc is version 1.65.0", id="too-old"),
    ],
)
def test_a_build_without_a_toolchain_says_first_what_to_install(
    project: Path, command: str, tools: dict[str, str], reason: str
) -> None:
    built = build(project, command, **tools)
    assert built.returncode != 0
    assert (built.stdout, built.stderr) == (
        "",
        f"pyspark-kafka-direct is built with Rust, but {reason}: install Rust 1.88 or newer (https://rustup.rs) and a "
        "C compiler, or install the wheel for this platform.\n",
    )
    assert not (project / "dist").exists()


@pytest.mark.slow
def test_a_build_that_cargo_fails_has_its_error(project: Path) -> None:
    built = build(project, rustc=RUSTC, cargo=NO_LINKER)
    assert built.returncode != 0
    assert "error: linker `cc` not found" in built.stderr
    assert not (project / "dist").exists()


def test_a_free_threaded_python_has_no_wheel(project: Path) -> None:
    built = build(project, program=FREE_THREADED, rustc=RUSTC, cargo=NO_LINKER)
    assert built.returncode != 0
    assert built.stderr == (
        "pyspark-kafka-direct needs a build of Python with the GIL, and this one is free-threaded.\n"
    )


@pytest.mark.slow
def test_a_wheel_with_the_kernel_has_the_bill_of_materials_of_its_crates(project: Path) -> None:
    built = build(project, program=WITH_KERNEL, rustc=RUSTC, cargo=NO_LINKER)
    assert built.returncode == 0, built.stderr
    wheel = the_wheel(project)
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as opened:
        sbom = opened.read("pyspark_kafka_direct-0.1.0.dist-info/sboms/sbom.cdx.json")
        assert sbom == (ROOT / "rust" / "sbom.cdx.json").read_bytes()
        assert b"dist-info/sboms/sbom.cdx.json,sha256=" in opened.read("pyspark_kafka_direct-0.1.0.dist-info/RECORD")
    assert "pyo3" in {each["name"] for each in json.loads(sbom)["components"]}


def test_licences_of_protobuf_files() -> None:
    """Each folder of the Protobuf files in the package has a licence text, and a component of the bill of materials."""
    components = json.loads((ROOT / "rust" / "sbom.cdx.json").read_text("utf-8"))["components"]
    descriptions = " ".join(each.get("description", "") for each in components)
    texts = (ROOT / "rust" / "THIRD-PARTY-LICENSES.txt").read_text("utf-8")
    for name in WELL_KNOWN_FILES:
        folder = "/".join(name.split("/")[: 2 if name.startswith("google/") else 1])
        assert folder in descriptions, folder
        assert folder in texts, folder
    assert "Copyright 2008 Google Inc.  All rights reserved." in texts


def test_the_kernel_of_an_editable_installation_is_loaded_by_every_python() -> None:
    build_kernel = setup_file().BuildKernel(import_module("setuptools").Distribution())
    build_kernel.plat_name = "linux-x86_64"
    kernel = build_kernel.get_dylib_ext_path(setup_file()._KERNEL, "pyspark_kafka_direct.records._native")
    assert Path(kernel).name == "_native.abi3.so"


def test_the_links_of_a_release(project: Path) -> None:
    told = prepared_metadata(project, ADDRESS)
    assert f"Source, {ADDRESS}" in told.get_all("Project-URL", [])
    text = str(told.get_payload())
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    ours = [target for target in targets if target.startswith(ADDRESS)]
    assert [target for target in ours if not (ROOT / re.sub(r".*/(blob|raw)/v0\.1\.0/|#.*", "", target)).exists()] == []


def test_without_an_address_there_are_no_links(project: Path) -> None:
    told = prepared_metadata(project)
    assert told.get_all("Project-URL") is None
    targets = re.findall(r"\]\(([^)]*)\)", str(told.get_payload()))
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_pictures_and_links_of_a_readme(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (project / "README.md").write_text(
        "![a picture](docs/a.png)\n\nSee [docs/b.md](docs/b.md#part), [this](#use) and [that](https://a.example/).\n"
    )
    setup = setup_file()
    assert setup.readme(ADDRESS, "1.2.3") == (
        f"![a picture]({ADDRESS}/raw/v1.2.3/docs/a.png)\n\n"
        f"See [docs/b.md]({ADDRESS}/blob/v1.2.3/docs/b.md#part), [this](#use) and [that](https://a.example/).\n"
    )
    assert setup.readme("", "1.2.3") == "See docs/b.md, [this](#use) and [that](https://a.example/).\n"


def setup_file() -> ModuleType:
    spec = spec_from_file_location("setup_of_the_project", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
