"""What pyproject.toml cannot say: the native kernel, and a README that is read elsewhere.

The variable ``PYSPARK_KAFKA_DIRECT_ADDRESS`` is where people see this repository, as ``https://HOST/OWNER/NAME``. The
project's links and those of its README lead there. If it is not set, there are none: the project has no public address
of its own yet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.errors import OptionError
from setuptools_rust import Binding, RustExtension
from setuptools_rust.build import build_rust

ADDRESS = "PYSPARK_KAFKA_DIRECT_ADDRESS"

# With the metadata, which pip prepares before it downloads PySpark.
_BUILDS = frozenset(
    {"bdist_wheel", "build", "build_ext", "build_rust", "develop", "dist_info", "editable_wheel", "install"}
)
_KERNEL = RustExtension(
    "pyspark_kafka_direct.records._native",
    path="rust/Cargo.toml",
    binding=Binding.PyO3,
    debug=False,
    args=["--locked"],
    quiet=True,  # so that what cargo says is part of the error
    env=os.environ | {"PYO3_NO_PYTHON": "1"},  # the kernel is the same for every Python, so cargo builds it once
)


class BuildKernel(build_rust):
    """Build the native kernel, with the file name of the stable ABI also in an editable installation."""

    def get_dylib_ext_path(self, ext: RustExtension, target_fname: str) -> str:
        """Return the path of the kernel."""
        return str(Path(super().get_dylib_ext_path(ext, target_fname)).with_name("_native.abi3.so"))


class Wheel(bdist_wheel):
    """Add the bill of materials of the kernel and of Protobuf files (PEP 770)."""

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        """Write the metadata."""
        super().egg2dist(egginfo_path, distinfo_path)
        folder = Path(distinfo_path, "sboms")
        folder.mkdir()
        shutil.copy("rust/sbom.cdx.json", folder)


def check_toolchain() -> None:
    """End with one sentence, and before any other output, if the kernel cannot be built."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):  # the kernel is a module of the stable ABI
        sys.exit("pyspark-kafka-direct needs a build of Python with the GIL, and this one is free-threaded.")
    missing = _toolchain_error()
    if missing:
        sys.exit(
            f"pyspark-kafka-direct is built with Rust, but {missing}: install Rust {_oldest_rust()} or newer "
            "(https://rustup.rs) and a C compiler, or install the wheel for this platform."
        )


def _toolchain_error() -> str:
    """Return why Rust cannot be used, or an empty string."""
    if shutil.which(os.environ.get("CARGO", "cargo")) is None:
        return "cargo is not on the PATH"
    try:
        asked = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return "rustc is not on the PATH"
    if asked.returncode:
        return f"rustc --version failed ({(asked.stderr.strip().splitlines() or ['no message'])[0]})"
    version = re.search(r"(\d+)\.(\d+)\S*", asked.stdout)
    if version and (int(version[1]), int(version[2])) < tuple(map(int, _oldest_rust().split("."))):
        return f"rustc is version {version[0]}"  # older ones cannot read rust/Cargo.toml, and do not say what to do
    return ""


def _oldest_rust() -> str:
    return re.search(r'rust-version = "(.+)"', Path("rust/Cargo.toml").read_text())[1]


def readme(address: str, version: str) -> str:
    """Return README.md for readers who see it alone.

    Args:
        address: Where the repository is. What README links to there becomes plain text without it, and pictures go.
        version: The release. Links lead to the files of its tag.
    """
    text = Path("README.md").read_text(encoding="utf-8")
    if not address:
        text = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", text)
        return re.sub(r"\[([^]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)
    text = re.sub(r"(!\[[^]]*\])\((?!https?:)([^)]*)\)", rf"\1({address}/raw/v{version}/\2)", text)
    return re.sub(r"(\[[^]]*\])\((?!https?:|#)([^)]*)\)", rf"\1({address}/blob/v{version}/\2)", text)


def urls(address: str) -> dict[str, str]:
    """Return the project's links."""
    if not address:
        return {}
    return {
        "Source": address,
        "Documentation": f"{address}/tree/HEAD/docs",
        "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def _address() -> str:
    address = os.environ.get(ADDRESS, "").strip().rstrip("/")
    if address and not re.fullmatch(r"https://[^/\s]+/\S+", address):
        raise OptionError(f"{ADDRESS} must be like https://HOST/OWNER/NAME; it is {address!r}.")
    return address


if __name__ == "__main__":
    if _BUILDS.intersection(sys.argv):
        check_toolchain()
    _version = re.search(r'__version__ = "(.+)"', Path("src/pyspark_kafka_direct/_version.py").read_text())[1]
    setup(
        cmdclass={"build_rust": BuildKernel, "bdist_wheel": Wheel},
        rust_extensions=[_KERNEL],
        long_description=readme(_address(), _version),
        long_description_content_type="text/markdown",
        project_urls=urls(_address()),
    )
