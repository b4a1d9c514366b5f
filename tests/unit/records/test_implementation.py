"""Selection of the implementation, and its warnings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pyspark_kafka_direct.records import IMPLEMENTATION

DECODE = """
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
{before}
from pyspark_kafka_direct.records import IMPLEMENTATION, NATIVE_MISSING_REASON, create_decoder
print("implementation", IMPLEMENTATION)
if NATIVE_MISSING_REASON:
    print("absent", NATIVE_MISSING_REASON)
for partition in (0, 1):
    create_decoder(topic="t", partition=partition, from_offset=0, until_offset=1, columns=["value"])
"""
NO_NATIVE = 'sys.modules["pyspark_kafka_direct.records._native"] = None  # as if it was not built'


def python(forced: str | None = None, before: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_KAFKA_DIRECT_DECODER"}
    if forced is not None:
        environment["PYSPARK_KAFKA_DIRECT_DECODER"] = forced
    code = DECODE.format(before=before)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)


def test_selected_python_does_not_warn() -> None:
    found = python("python")
    assert found.stdout.splitlines() == ["implementation python"]


@pytest.mark.skipif(IMPLEMENTATION != "native", reason="the native decoder was not built (no Rust toolchain)")
def test_native_is_used_if_built() -> None:
    for forced in (None, "", "native"):
        assert python(forced).stdout.splitlines() == ["implementation native"]


def test_fallback_decoder_warns_once() -> None:
    lines = python(before=NO_NATIVE).stdout.splitlines()
    assert lines[0] == "implementation python"
    assert lines[1].startswith("absent it cannot be loaded: ")
    (said,) = lines[2:]
    assert said.startswith("pyspark_kafka_direct.records WARNING Records are decoded in Python, many times slower")


def test_fallback_encoder_warns_once() -> None:
    after = """
from pyspark_kafka_direct.records import create_encoder
for codec in ("none", "lz4"):
    create_encoder(topic="t", partitions=1, codec=codec)
"""
    code = DECODE.format(before=NO_NATIVE) + after
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_KAFKA_DIRECT_DECODER"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    _, _, _, said = found.stdout.splitlines()
    assert said.startswith("pyspark_kafka_direct.records WARNING Records are encoded in Python, many times slower")


LEFT = f"""{NO_NATIVE}
import pkgutil
pkgutil.get_data = lambda package, name: {{
    ("pyspark_kafka_direct.records", "_native_absent.txt"): b"cargo failed: error: linker `cc` not found\\n"
}}[package, name]
"""


def test_fallback_reports_the_reason_of_the_build() -> None:
    _, absent, said = python(before=LEFT).stdout.splitlines()
    assert absent == "absent this package was built without it: cargo failed: error: linker `cc` not found"
    assert "(this package was built without it: cargo failed: error: linker `cc` not found). Install" in said


def test_selected_native_reports_the_reason_of_the_build() -> None:
    stderr = python("native", LEFT).stderr
    assert "is 'native', but this package was built without it: cargo failed: error: linker `cc` not found" in stderr


def test_selected_native_must_be_loadable() -> None:
    found = python("native", NO_NATIVE)
    assert found.returncode != 0
    assert "OptionError: PYSPARK_KAFKA_DIRECT_DECODER is 'native', but it cannot be loaded" in found.stderr


FREE_THREADED = 'sys.abiflags = "t"'


@pytest.mark.parametrize("before", [FREE_THREADED, f"{LEFT}{FREE_THREADED}"], ids=["kernel", "no-kernel"])
def test_free_threaded_builds_of_python_do_not_load_the_kernel(before: str) -> None:
    """Python 3.14 finds the module, and initializes it with a SystemError."""
    reason = "free-threaded builds of Python cannot load the native kernel"
    implementation, absent, said = python(before=before).stdout.splitlines()
    assert (implementation, absent) == ("implementation python", f"absent {reason}")
    assert said.endswith(f"the native decoder ({reason}). Use a build of Python with the GIL.")
    assert f"OptionError: PYSPARK_KAFKA_DIRECT_DECODER is 'native', but {reason}" in python("native", before).stderr


OLD_NATIVE = """
import types
name = "pyspark_kafka_direct.records._native"
sys.modules[name] = types.ModuleType(name)
"""


@pytest.mark.parametrize("version", ["", "sys.modules[name].INTERFACE_VERSION = 1"])
def test_older_kernel_is_not_used(version: str) -> None:
    """An update of an editable installation does not build its kernel again."""
    reason = "it cannot be loaded: the native kernel was built from other sources than this package; build it again"
    old_native = OLD_NATIVE + version
    assert f"OptionError: PYSPARK_KAFKA_DIRECT_DECODER is 'native', but {reason}" in python("native", old_native).stderr
    implementation, absent, _ = python(before=old_native).stdout.splitlines()
    assert implementation == "implementation python"
    assert absent.startswith(f"absent {reason}")


def test_unknown_implementation_is_rejected() -> None:
    assert "must be native or python, got 'rust'" in python("rust").stderr
