"""What pyproject.toml cannot say: a native kernel that a build may be without, and a README that is read elsewhere.

Two variables of the environment steer a build:

``PYSPARK_KAFKA_DIRECT_NATIVE``
    ``require``: a build without the native kernel fails. ``skip``: the kernel is not built. If it is not set, the
    kernel is built where that works. Where it does not, the wheel is tagged as one of pure Python and says why.
``PYSPARK_KAFKA_DIRECT_ADDRESS``
    Where people see this repository, as ``https://HOST/OWNER/NAME``. The project's links and those of its README lead
    there. If it is not set, there are none: the project has no public address of its own yet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.errors import OptionError
from setuptools_rust import Binding, RustExtension
from setuptools_rust.build import build_rust

NATIVE = "PYSPARK_KAFKA_DIRECT_NATIVE"
ADDRESS = "PYSPARK_KAFKA_DIRECT_ADDRESS"

_FREE_THREADED = "free-threaded builds of Python cannot load the native kernel"  # it is a module of the stable ABI
_REASON = "_native_absent.txt"  # beside the module that is absent; records/implementation.py reads it
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
    """Build the native kernel, or say in a file why it is not there."""

    def run(self) -> None:
        """Build it, unless the environment says to leave it out."""
        self.distribution.native_absent = ""
        try:
            if _native() == "skip":
                self._leave_out(f"the build was told to leave it out ({NATIVE}=skip)")
            elif _free_threaded():
                self._leave_out(_FREE_THREADED)
            else:
                super().run()
                self._reason_file().unlink(missing_ok=True)
        except OptionError:
            raise
        except Exception as error:
            if _native() == "require":
                raise
            print(error)
            self._leave_out(_what_failed(str(error)))

    def get_dylib_ext_path(self, ext: RustExtension, target_fname: str) -> str:
        """Return the path of the kernel, whose name is also in an editable installation that of the stable ABI."""
        return str(Path(super().get_dylib_ext_path(ext, target_fname)).with_name("_native.abi3.so"))

    def _leave_out(self, reason: str) -> None:
        print(f"NOTE: the native kernel is not in this build: {reason}. Records are decoded in Python, which is slow.")
        self.distribution.native_absent = reason
        file = self._reason_file()
        for stale in file.parent.glob("_native*.so"):
            stale.unlink()
        file.write_text(f"{reason}\n")

    def _reason_file(self) -> Path:
        package = "pyspark_kafka_direct.records"
        if self.inplace:
            folder = Path(self.get_finalized_command("build_py").get_package_dir(package))
        else:
            folder = Path(self.get_finalized_command("build_py").build_lib, *package.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        return folder / _REASON


class Wheel(bdist_wheel):
    """Tag the wheel by what is in it, and add the bill of materials of the kernel (PEP 770)."""

    def finalize_options(self) -> None:
        """Complete the options; setuptools rejects the stable ABI for free-threaded builds of Python."""
        if _free_threaded():
            self.py_limited_api = ""
        super().finalize_options()

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        """Write the metadata."""
        super().egg2dist(egginfo_path, distinfo_path)
        if not getattr(self.distribution, "native_absent", True):  # no attribute: only the metadata is prepared
            folder = Path(distinfo_path, "sboms")
            folder.mkdir()
            shutil.copy("rust/sbom.cdx.json", folder)

    def run_command(self, command: str) -> None:
        """Run a command; after the build it is known whether the wheel is for one platform or for all."""
        super().run_command(command)
        if command == "build" and self.distribution.native_absent:
            self.distribution.has_ext_modules = lambda: False
            self.root_is_pure = True
            self.plat_name_supplied = False


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


def _native() -> str:
    value = os.environ.get(NATIVE, "").strip()
    if value not in ("", "require", "skip"):
        raise OptionError(f"{NATIVE} must be require or skip, or not be set; it is {value!r}.")
    if value == "require" and _free_threaded():
        raise OptionError(f"{NATIVE} is require, but {_FREE_THREADED}: use a build of Python with the GIL.")
    return value


def _free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _address() -> str:
    address = os.environ.get(ADDRESS, "").strip().rstrip("/")
    if address and not re.fullmatch(r"https://[^/\s]+/\S+", address):
        raise OptionError(f"{ADDRESS} must be like https://HOST/OWNER/NAME; it is {address!r}.")
    return address


def _what_failed(error: str) -> str:
    """Return one line for what setuptools-rust says in many."""
    if error.startswith("can't find Rust compiler"):
        return f"there was no Rust toolchain ({_toolchain_error()})"
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("error")), lines[0] if lines else "no message")
    return f"cargo failed: {said.rstrip('.')}"


def _toolchain_error() -> str:
    """Return why there is none: setuptools-rust says the same of a compiler that is missing and of one that fails."""
    try:
        asked = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return "rustc is not on the PATH"
    return f"rustc --version failed: {(asked.stderr.strip().splitlines() or ['no message'])[0]}"


if __name__ == "__main__":
    _version = re.search(r'__version__ = "(.+)"', Path("src/pyspark_kafka_direct/_version.py").read_text())[1]
    setup(
        cmdclass={"build_rust": BuildKernel, "bdist_wheel": Wheel},
        rust_extensions=[_KERNEL],
        long_description=readme(_address(), _version),
        long_description_content_type="text/markdown",
        project_urls=urls(_address()),
    )
