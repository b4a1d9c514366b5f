"""JVM names are resolved once."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from pyspark_kafka_direct.direct.streaming_context import accessible_field, cache_jvm_names
from pyspark_kafka_direct.errors import SparkVersionError


class FakeJvmNames:
    """py4j's view of JVM names: an attribute that is not set yet is resolved in the JVM."""

    def __init__(self, resolved: list[str], name: str = "") -> None:
        self.resolved = resolved
        self.name = name

    def __getattr__(self, part: str) -> FakeJvmNames:
        name = f"{self.name}.{part}".lstrip(".")
        self.resolved.append(name)
        return FakeJvmNames(self.resolved, name)


def test_each_jvm_name_is_resolved_once() -> None:
    resolved: list[str] = []
    jvm: Any = FakeJvmNames(resolved)
    cache_jvm_names(jvm)
    assert "py4j.reflection.TypeUtil" in resolved
    assert len(set(resolved)) == len(resolved)
    resolved.clear()
    assert jvm.py4j.reflection.TypeUtil.name == "py4j.reflection.TypeUtil"
    assert jvm.org.apache.spark.streaming.Time.name == "org.apache.spark.streaming.Time"
    assert jvm.PythonUtils.name == "PythonUtils"
    cache_jvm_names(jvm)
    assert resolved == []
    assert jvm.org.apache.spark.streaming.StreamingContext.name == "org.apache.spark.streaming.StreamingContext"
    assert resolved == ["org.apache.spark.streaming.StreamingContext"], "other names are resolved as before"


class JavaPackage:
    """py4j's object for a name that it does not find."""

    def __getattr__(self, _: str) -> JavaPackage:
        return JavaPackage()


def test_a_class_that_spark_lacks_is_named() -> None:
    with pytest.raises(SparkVersionError, match=r"This package uses the class org\.apache\.spark\.New of Spark"):
        cache_jvm_names(JavaPackage(), ["org.apache.spark.New"])


def test_a_field_that_spark_lacks_is_named() -> None:
    class JavaClass:
        def getDeclaredField(self, name: str) -> None:
            raise Py4JJavaError.__new__(Py4JJavaError)

        def getName(self) -> str:
            return "org.apache.spark.Graph"

    with pytest.raises(
        SparkVersionError, match=r"uses the field names of the class org\.apache\.spark\.Graph of Spark"
    ):
        accessible_field(JavaClass(), "names")
