"""What a build says of its native kernel, and how its wheel is tagged; setup.py."""

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

if TYPE_CHECKING:
    from email.message import Message
    from types import ModuleType

ROOT = Path(__file__).parents[2]
REASON = "pyspark_kafka_direct/records/_native_absent.txt"
PURE = "pyspark_kafka_direct-0.1.0-py3-none-any.whl"
ADDRESS = "https://code.example/team/project"

NO_LINKER = """#!/bin/sh
echo 'error: linker `cc` not found' >&2
echo '  = note: No such file or directory (os error 2)' >&2
exit 101
"""
RUSTC = """#!/bin/sh
echo 'rustc 1.95.0 (59807616e 2026-04-14)'
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
    project: Path, native: str = "", address: str = "", program: str = "", **tools: str
) -> subprocess.CompletedProcess[str]:
    """Build a wheel where no other tools than these are."""
    path = project / "tools"
    path.mkdir()
    for name, script in tools.items():
        (path / name).write_text(script)
        (path / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO", "PYTHON"))}
    environment |= {
        "PATH": str(path),
        "PYSPARK_KAFKA_DIRECT_NATIVE": native,
        "PYSPARK_KAFKA_DIRECT_ADDRESS": address,
    }
    return subprocess.run(
        [sys.executable, *(("-c", program) if program else ("setup.py",)), "bdist_wheel"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def the_wheel(project: Path) -> Path:
    (wheel,) = (project / "dist").iterdir()
    return wheel


def left_reason(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as opened:
        return opened.read(REASON).decode()


def metadata(wheel: Path, name: str) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        return message_from_bytes(opened.read(f"pyspark_kafka_direct-0.1.0.dist-info/{name}"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("native", "tools", "reason"),
    [
        pytest.param("", {}, "there was no Rust toolchain (rustc is not on the PATH)", id="nothing"),
        pytest.param(
            "",
            {"rustc": NO_DEFAULT, "cargo": NO_DEFAULT},
            "there was no Rust toolchain (rustc --version failed: error: no default toolchain is configured)",
            id="rustup-without-toolchain",
        ),
        pytest.param(
            "", {"rustc": RUSTC, "cargo": NO_LINKER}, "cargo failed: error: linker `cc` not found", id="no-linker"
        ),
        pytest.param(
            "skip",
            {"rustc": RUSTC, "cargo": NO_LINKER},
            "the build was told to leave it out (PYSPARK_KAFKA_DIRECT_NATIVE=skip)",
            id="told-to",
        ),
    ],
)
def test_a_wheel_without_the_kernel_is_one_of_pure_python_and_says_why(
    project: Path, native: str, tools: dict[str, str], reason: str
) -> None:
    built = build(project, native, **tools)
    assert built.returncode == 0, built.stderr
    wheel = the_wheel(project)
    assert wheel.name == PURE
    assert left_reason(wheel) == f"{reason}\n"
    assert f"NOTE: the native kernel is not in this build: {reason}." in built.stdout
    tags = metadata(wheel, "WHEEL")
    assert (tags["Tag"], tags["Root-Is-Purelib"]) == ("py3-none-any", "true")


@pytest.mark.slow
def test_a_wheel_with_the_kernel_has_the_bill_of_materials_of_its_crates(project: Path) -> None:
    built = build(project, program=WITH_KERNEL)
    assert built.returncode == 0, built.stderr
    wheel = the_wheel(project)
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as opened:
        sbom = opened.read("pyspark_kafka_direct-0.1.0.dist-info/sboms/sbom.cdx.json")
        assert sbom == (ROOT / "rust" / "sbom.cdx.json").read_bytes()
        assert b"dist-info/sboms/sbom.cdx.json,sha256=" in opened.read("pyspark_kafka_direct-0.1.0.dist-info/RECORD")
    assert "pyo3" in {each["name"] for each in json.loads(sbom)["components"]}


@pytest.mark.slow
def test_a_free_threaded_python_builds_a_wheel_of_pure_python(project: Path) -> None:
    built = build(project, program=FREE_THREADED, rustc=RUSTC, cargo=NO_LINKER)
    assert built.returncode == 0, built.stderr
    wheel = the_wheel(project)
    assert wheel.name == PURE
    assert left_reason(wheel) == "free-threaded builds of Python cannot load the native kernel\n"


def test_a_free_threaded_python_cannot_require_the_kernel(project: Path) -> None:
    built = build(project, "require", program=FREE_THREADED, rustc=RUSTC, cargo=NO_LINKER)
    assert built.returncode != 0
    assert (
        "error: PYSPARK_KAFKA_DIRECT_NATIVE is require, but free-threaded builds of Python cannot load" in built.stderr
    )
    assert not (project / "dist").exists()


@pytest.mark.slow
def test_a_kernel_of_an_earlier_build_is_not_in_a_wheel_of_pure_python(project: Path) -> None:
    assert build(project, "skip").returncode == 0
    (kept,) = (project / "build").glob("lib*/pyspark_kafka_direct/records")
    (kept / "_native.abi3.so").write_bytes(b"an old kernel")
    shutil.rmtree(project / "tools")
    shutil.rmtree(project / "dist")
    assert build(project, "skip").returncode == 0
    wheel = the_wheel(project)
    assert wheel.name == PURE
    with zipfile.ZipFile(wheel) as opened:
        assert [name for name in opened.namelist() if name.endswith(".so")] == []


def test_the_reason_of_an_earlier_build_goes_when_there_is_a_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_KAFKA_DIRECT_NATIVE", raising=False)
    monkeypatch.setattr("setuptools_rust.build.build_rust.run", lambda command: None)  # cargo is content
    reason = tmp_path / "_native_absent.txt"
    reason.write_text("there was no Rust toolchain\n")
    command = setup_file().BuildKernel(import_module("setuptools").Distribution())
    monkeypatch.setattr(command, "_reason_file", lambda: reason)
    command.run()
    assert not reason.exists()
    assert command.distribution.native_absent == ""


def test_the_kernel_of_an_editable_installation_is_loaded_by_every_python() -> None:
    build_kernel = setup_file().BuildKernel(import_module("setuptools").Distribution())
    build_kernel.plat_name = "linux-x86_64"
    kernel = build_kernel.get_dylib_ext_path(setup_file()._KERNEL, "pyspark_kafka_direct.records._native")
    assert Path(kernel).name == "_native.abi3.so"


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        pytest.param({}, "can't find Rust compiler", id="nothing"),
        pytest.param({"rustc": RUSTC, "cargo": NO_LINKER}, "error: linker `cc` not found", id="no-linker"),
    ],
)
def test_a_build_that_requires_the_kernel_fails_without_it(project: Path, tools: dict[str, str], said: str) -> None:
    built = build(project, "require", **tools)
    assert built.returncode != 0
    assert said in built.stderr
    assert not (project / "dist").exists()


def test_another_word_is_refused(project: Path) -> None:
    built = build(project, "required")
    assert built.returncode != 0
    assert "PYSPARK_KAFKA_DIRECT_NATIVE must be require or skip, or not be set; it is 'required'." in built.stderr


def test_the_links_of_a_release(project: Path) -> None:
    assert build(project, "skip", ADDRESS).returncode == 0
    told = metadata(the_wheel(project), "METADATA")
    assert f"Source, {ADDRESS}" in told.get_all("Project-URL", [])
    text = str(told.get_payload())
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    ours = [target for target in targets if target.startswith(ADDRESS)]
    assert [target for target in ours if not (ROOT / re.sub(r".*/(blob|raw)/v0\.1\.0/|#.*", "", target)).exists()] == []


def test_without_an_address_there_are_no_links(project: Path) -> None:
    assert build(project, "skip").returncode == 0
    told = metadata(the_wheel(project), "METADATA")
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
