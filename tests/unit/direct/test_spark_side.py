"""What of Spark a direct stream uses is found quickly."""

from __future__ import annotations

from typing import Any

from pyspark_kafka_direct.direct._spark_side import look_up_once


class Names:
    """Names in a JVM, as py4j has them: an attribute that is not there yet is a question to the JVM."""

    def __init__(self, asked: list[str], name: str = "") -> None:
        self.asked = asked
        self.name = name

    def __getattr__(self, part: str) -> Names:
        name = f"{self.name}.{part}".lstrip(".")
        self.asked.append(name)
        return Names(self.asked, name)


def test_the_jvm_is_asked_for_a_name_once() -> None:
    asked: list[str] = []
    jvm: Any = Names(asked)
    look_up_once(jvm)
    assert "py4j.reflection.TypeUtil" in asked
    assert len(set(asked)) == len(asked)
    asked.clear()
    assert jvm.py4j.reflection.TypeUtil.name == "py4j.reflection.TypeUtil"
    assert jvm.org.apache.spark.streaming.Time.name == "org.apache.spark.streaming.Time"
    assert jvm.PythonUtils.name == "PythonUtils"
    look_up_once(jvm)
    assert asked == []
    assert jvm.org.apache.spark.streaming.StreamingContext.name == "org.apache.spark.streaming.StreamingContext"
    assert asked == ["org.apache.spark.streaming.StreamingContext"], "others are asked for as before"
