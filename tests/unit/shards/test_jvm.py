"""JVMs of the tests get archives of classes where these are, and keep the options that the environment has for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.shards import jvm

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_archives_are_used_where_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kafka, spark = tmp_path / "kafka.jsa", tmp_path / "spark.jsa"
    monkeypatch.setattr(jvm, "_KAFKA", kafka)
    monkeypatch.setattr(jvm, "_SPARK", spark)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dproxy=given")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "")
    monkeypatch.setenv("SPARK_DAEMON_JAVA_OPTS", "")
    kafka.touch()
    jvm.start_quickly()
    options = os.environ["JAVA_TOOL_OPTIONS"].split()
    assert options[0] == "-Dproxy=given"
    assert f"-XX:SharedArchiveFile={kafka}" in options
    assert os.environ["SPARK_SUBMIT_OPTS"] == os.environ["SPARK_DAEMON_JAVA_OPTS"] == jvm.executor_options() == ""
    spark.touch()
    jvm.start_quickly()
    for told in (os.environ["SPARK_SUBMIT_OPTS"], os.environ["SPARK_DAEMON_JAVA_OPTS"], jvm.executor_options()):
        assert f"-XX:SharedArchiveFile={spark}" in told.split()


def test_long_work_has_all_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dproxy=given")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "")
    monkeypatch.setenv("SPARK_DAEMON_JAVA_OPTS", "")
    jvm.start_quickly()
    options = os.environ["JAVA_TOOL_OPTIONS"].split()
    assert set(options) - set(jvm.for_long_work(os.environ["JAVA_TOOL_OPTIONS"]).split()) == {"-XX:TieredStopAtLevel=1"}
