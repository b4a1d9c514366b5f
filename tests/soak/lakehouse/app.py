"""The application under test: the two queries of docs/lakehouse.md, in one driver. The arguments are one JSON string.

The code is that of the page, but for the names of places, and marks around each MERGE.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.documentation import fenced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HUNG = 600.0  # seconds; the driver is killed before

arguments = json.loads(sys.argv[1])
folder = Path(arguments["folder"])
options: dict[str, Any] = arguments["options"]
namespace: dict[str, Any] = {}


def run(text: str) -> None:
    """Run a block of the page, with the places of this run."""
    replaced = {
        '"/lake"': f'"{folder}/lake"',
        '"/checkpoints/': f'"{folder}/checkpoints/',
        "broker1:9092": options["servers"],
        '"subscribe", "orders"': f'"subscribe", "{options["topics"]}"',
        # The catalog of this session forgets its tables at each restart.
        "USING {table_format}": "USING {table_format}" + f" LOCATION '{folder}/lake/{{name}}'" * options["by_location"],
        ".load()": f".option('maxOffsetsPerTrigger', {options['per_batch']}).load()",
    }
    if arguments["to_the_end"]:
        replaced |= {".writeStream": ".writeStream.trigger(availableNow=True)"}
    for old, new in replaced.items():
        text = text.replace(old, new)
    exec(compile(text, "lakehouse.md", "exec"), namespace)


def marked_merge(batch: DataFrame, batch_id: int) -> None:
    """Merge, and store when it begins and ends; hang after it if the driver is to be killed there."""
    (folder / "begun").write_text(str(batch_id))
    page_merge(batch, batch_id)
    (folder / "merged").write_text(str(batch_id))
    if options["hang_after"] is not None and batch_id >= options["hang_after"]:
        time.sleep(_HUNG)


delta, iceberg, tables, append, merge, start = [block.text for block in fenced("docs/lakehouse.md")]
session = delta if options["format"] == "delta" else iceberg
settings = {
    "spark.master": "local[2,4]",
    "spark.jars": options["jars"],  # instead of the packages, so that no driver downloads them
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
run(re.sub(r'config\("spark.jars.packages", ".*?"\)', lambda _: f"config(map={settings})", session))
namespace["spark"].sparkContext.setLogLevel("ERROR")
run(tables)
run(merge)
page_merge = namespace["merge"]
namespace["merge"] = marked_merge
commits: set[Path] | None = None
while commits != (commits := set(folder.glob("checkpoints/*/commits/[0-9]*"))):  # one batch per run before Spark 4.2
    run(append)
    run(start)
    for query in (namespace["append_query"], namespace["merge_query"]):
        query.awaitTermination()
for name in ("order_log", "orders"):
    rows = namespace["spark"].table(f"{namespace['database']}.{name}")
    found = [list(row) for row in rows.selectExpr("topic", "partition", "offset", "hex(key)", "hex(value)").collect()]
    (folder / f"{name}.json").write_text(json.dumps(found))
namespace["spark"].stop()
