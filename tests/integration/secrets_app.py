"""A separate Spark application for ``test_secrets``: queries with a password, and everything that Spark shows of them.

    python secrets_app.py options.json folder

It writes the pages of its UI, its event log, what its processes show and Spark's local files to ``folder``, and the
rest to standard output and standard error.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A command such as the creation of a view shows the options of its relation. Spark redacts options whose name or value
# looks like a password, but neither a private key in PEM text nor its passphrase, and not the user and password of a
# schema registry: the documentation recommends this setting.
REDACTED = "(?i)url|keystore[.]key|key[.]pem|passphrase|user[.]info"

PAGES = [
    "jobs/",
    "stages/",
    "environment/",
    "executors/",
    "SQL/",
    "SQL/execution/?id=0",
    "SQL/execution/?id=1",
    "StreamingQuery/",
    "api/v1/applications/{app}/environment",
    "api/v1/applications/{app}/sql?details=true&planDescription=true",
]


def main(options_file: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", Path(folder, "events").as_uri())
        .config("spark.local.dir", str(Path(folder, "local")))
        .config("spark.log.level", "DEBUG")
        .config("spark.sql.redaction.options.regex", REDACTED)
        .getOrCreate()
    )
    right, wrong, *others = json.loads(Path(options_file).read_text(encoding="utf-8"))
    processes = ShownProcesses()
    frame = spark.read.format("kafka-direct").options(**right).load().where("partition >= 0")
    frame.explain(True)
    frame.explain("formatted")
    print(frame, repr(frame), frame.collect())
    frame.createOrReplaceTempView("records")
    spark.sql("select count(*) from records").show()
    spark.sql("describe extended records").show(1000, truncate=False)
    for options in (wrong, *others):
        try:
            print(spark.read.format("kafka-direct").options(**options).load().collect())
        except Exception as error:
            print(f"rejected: {error}")
    for name, options in (("right", right), ("wrong", wrong)):
        stream_with(spark, options, Path(folder, f"checkpoint-{name}"))
    context = spark.sparkContext._jsc
    assert context is not None
    context.sc().listenerBus().waitUntilEmpty(60_000)  # the pages show events that the listener bus has delivered
    for number, page in enumerate(PAGES):
        address = f"{spark.sparkContext.uiWebUrl}/{page.format(app=spark.sparkContext.applicationId)}"
        with urllib.request.urlopen(address, timeout=900) as response:
            Path(folder, f"page{number}").write_bytes(response.read())
    Path(folder, "processes").write_text("\n".join(processes.stop()), encoding="utf-8")
    shutil.copytree(Path(folder, "local"), Path(folder, "local-files"))  # Spark removes them when it stops
    spark.stop()


class ShownProcesses:
    """Collects the command lines and the environments of this process and of all that it starts."""

    def __init__(self) -> None:
        self._shown: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> list[str]:
        self._stopped.set()
        self._thread.join()
        return sorted(self._shown)

    def _run(self) -> None:
        this = psutil.Process()
        while not self._stopped.wait(0.2):
            for process in (this, *this.children(recursive=True)):
                try:
                    self._shown |= {" ".join(process.cmdline()), str(process.environ())}
                except psutil.Error:  # it has ended
                    continue


def stream_with(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
    """Read and write a stream, and print everything it shows."""
    frame = spark.readStream.format("kafka-direct").options(**options, startingOffsets="earliest").load()
    frame.explain(True)
    connection_options = {name: value for name, value in options.items() if name.startswith("kafka.")}
    writer = (
        frame.select("value")
        .writeStream.format("kafka-direct")
        .options(**connection_options, topic=options["subscribe"])
    )
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        query.awaitTermination(600)
    except Exception as error:
        print(f"rejected: {error}")
    query.explain(True)
    print("stream:", query.status, query.recentProgress, repr(query.exception()), frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
