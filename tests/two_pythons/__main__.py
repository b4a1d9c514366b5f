"""Runs a driver on one minor version of Python, and Spark's own Python processes on another.

    python -m tests.two_pythons --wheels dist --workers python3.12

The driver runs on this Python. The other Python gets a separate environment with the wheel but without PySpark, which
comes from the driver, as on a cluster. With a real broker, the program checks what must work and what PySpark itself
rejects. docs/install.md has the supported combinations.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.cli.topic_arguments import create_topics, parse_topics
from pyspark_kafka_direct.direct import KafkaUtils
from pyspark_kafka_direct.offsets import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

ROOT: Final = Path(__file__).parents[2]
RECORDS: Final = 1000

_SECONDS: Final = 300  # long, because a busy machine is slow
_VERSION: Final = "import platform; print(platform.python_version())"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.two_pythons", description="Mix minor versions of Python.")
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", help="folder with the wheel (default: dist)")
    parser.add_argument("--workers", required=True, help="Python of the planner and the workers, as python3.12")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="two-pythons-") as folder:
        workers = _install(Path(folder) / "workers", asked.workers, asked.wheels)
        version = subprocess.check_output([workers, "-c", _VERSION], text=True).strip()
        assert version.split(".")[:2] != [str(part) for part in sys.version_info[:2]], f"both are {version}"
        print(f"The driver has Python {sys.version.split()[0]}, planner and workers have {version}.", flush=True)
        os.environ.update(PYSPARK_PYTHON=str(workers), SPARK_LOCAL_IP="127.0.0.1")
        os.environ.pop("PYSPARK_DRIVER_PYTHON", None)
        with EmbeddedKafka() as kafka:
            create_topics(kafka.bootstrap_servers, parse_topics(["numbers", "copies"]))
            _try(Job(kafka.bootstrap_servers, Path(folder)))
    return 0


class Job:
    """The queries of a user's job.

    Args:
        servers: The broker.
        folder: The folder of its checkpoints.
    """

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
        self._spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")

    def write(self) -> None:
        """Write a topic."""
        numbers = self._spark.range(RECORDS).selectExpr("cast(id as string) value")
        self._kafka(numbers.write).option("topic", "numbers").mode("append").save()

    def read(self, topic: str) -> int:
        """Return the number of distinct records in a topic."""
        reader = self._kafka(self._spark.read).option("kafka.isolation.level", "read_committed")
        frame: DataFrame = reader.option("subscribe", topic).load()
        return frame.selectExpr("cast(value as string)").distinct().count()

    def copy(self) -> None:
        """Copy the topic with an exactly-once stream."""
        writer = self._kafka(self._numbers().select("value").writeStream).option("topic", "copies")
        writer = writer.option("deliveryGuarantee", "exactly-once").option("transactionalIdPrefix", "copies")
        self._run(writer, "copy")

    def count_batches(self) -> int:
        """Return the number of records that ``foreachBatch`` received."""
        counts: list[int] = []
        self._run(self._numbers().writeStream.foreachBatch(lambda batch, _: counts.append(batch.count())), "count")
        return sum(counts)

    def refusal(self) -> str:
        """Return PySpark's error for a ``KafkaRDD`` with a function of the driver; empty if there is none."""
        ranges = [OffsetRange("numbers", 0, 0, RECORDS)]
        rdd: Any = KafkaUtils.createRDD(self._spark.sparkContext, {"bootstrap.servers": self._servers}, ranges)
        try:
            rdd.map(lambda record: len(record.value)).count()
        except Exception as error:
            return str(error)
        return ""

    def _numbers(self) -> DataFrame:
        reader = self._kafka(self._spark.readStream).option("startingOffsets", "earliest")
        frame: DataFrame = reader.option("subscribe", "numbers").load()
        return frame

    def _kafka(self, place: Any) -> Any:
        return place.format("kafka-direct").option("kafka.bootstrap.servers", self._servers)

    def _run(self, writer: Any, name: str) -> None:
        query = writer.option("checkpointLocation", str(self._folder / name)).trigger(availableNow=True).start()
        assert query.awaitTermination(_SECONDS), f"{name} did not end"


def _try(job: Job) -> None:
    job.write()
    assert job.read("numbers") == RECORDS
    print(f"A batch wrote {RECORDS} records, and one read them.", flush=True)
    job.copy()
    assert job.read("copies") == RECORDS
    print("An exactly-once stream copied them.", flush=True)
    assert job.count_batches() == RECORDS
    print("foreachBatch was given them.", flush=True)
    assert "PYTHON_VERSION_MISMATCH" in job.refusal(), "functions travel now: docs/install.md says that they do not"
    print("A KafkaRDD is refused by PySpark: PYTHON_VERSION_MISMATCH.", flush=True)


def _install(environment: Path, python: str, wheels: Path) -> Path:
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    installed = environment / "bin" / "python"
    pip = [str(installed), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--find-links", str(wheels), "pyspark-kafka-direct"], check=True)
    return installed


if __name__ == "__main__":
    sys.exit(main())
