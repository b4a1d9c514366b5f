"""The start of ``kafka-direct``."""

from __future__ import annotations

import json
import subprocess
import sys

import pyspark_kafka_direct
from pyspark_kafka_direct.cli.main import COMMANDS

PROGRAM = """
import json, sys
before = set(sys.modules)
from pyspark_kafka_direct.cli.main import main
try:
    main(["--help"])
finally:
    print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""


def test_the_help_imports_no_slow_module() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "frozen_modules=on", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{PROGRAM}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    imported = json.loads(done.stderr)
    assert "commands:" in done.stdout
    ours = {name for name in imported if name.startswith("pyspark_kafka_direct")}
    assert ours == {
        "pyspark_kafka_direct",
        "pyspark_kafka_direct._version",
        "pyspark_kafka_direct.cli",
        "pyspark_kafka_direct.cli.help_formatter",
        "pyspark_kafka_direct.cli.main",
    }
    assert not {"typing", "dataclasses", "inspect", "json", "platform", "uuid"} & {*imported}


def test_the_help_of_each_command_imports_no_slow_module() -> None:
    program = """
import contextlib, sys
from pyspark_kafka_direct.cli.main import COMMANDS, main
for command in COMMANDS:
    with contextlib.suppress(SystemExit):
        main([command, "--help"])
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout.count("usage: kafka-direct ") == len(COMMANDS)
    assert not {"pyarrow", "numpy", "pyspark", "tomllib", "difflib"} & {*done.stderr.split()}


def test_each_public_name_can_be_imported() -> None:
    assert all(getattr(pyspark_kafka_direct, name).__name__ for name in pyspark_kafka_direct.__all__)
    assert pyspark_kafka_direct.errors.OptionError is pyspark_kafka_direct.OptionError
