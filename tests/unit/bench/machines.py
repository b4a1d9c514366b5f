"""A machine as results name it."""

from __future__ import annotations

VERSIONS = ("pyspark", "pyarrow", "python", "java", "kafka broker", "confluent-kafka", "kafka-python", "librdkafka")
MACHINE = {
    "cpu": "A processor",
    "cores": 2,
    "memory_gib": 8.0,
    "system": "Linux",
    "decoder": "native",
    "commit": "abc",
    "versions": {**dict.fromkeys(VERSIONS, "1.2.3"), "JVM connector": ["group:artifact:4.2.0"]},
}
