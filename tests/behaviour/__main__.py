"""Compare the code with its record, or make the record anew.

    python -m tests.behaviour              # compare
    python -m tests.behaviour --write      # make the files of tests/behaviour/data
    python -m tests.behaviour --write settings requests

The part ``workers`` starts a Kafka.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tests.behaviour import imports, inventory, requests, settings
from tests.behaviour.store import complaint

from pyspark_kafka_direct.records import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.behaviour.store import Differences


def main() -> int:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description="Compare the code with the record of its behaviour.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(_PARTS)}; by default all")
    parser.add_argument("--write", action="store_true", help="make the record anew")
    given = parser.parse_args()
    unknown = set(given.parts) - set(_PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if IMPLEMENTATION != "native" and not {"workers", "tests"}.isdisjoint(given.parts or _PARTS):
        parser.error("the native kernel is not built or not current (run make): imports and test ids would be others")
    complaints = []
    for part in given.parts or _PARTS:
        write, compare = _PARTS[part]
        if given.write:
            write()
            print(f"{part}: written")
        else:
            said = complaint(part, compare())
            complaints += [said] if said else []
            print(said or f"{part}: as recorded")
    return 1 if complaints else 0


def _of_workers() -> imports.Record:
    from tests.conftest import topic_maker

    from pyspark_kafka_direct.broker import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers
        found, _ = imports.of_batch(imports.prepare(servers, topic_maker(servers)()))
    return found


_PARTS: dict[str, tuple[Callable[[], None], Callable[[], Differences]]] = {
    "settings": (settings.write, settings.compare),
    "requests": (requests.write, requests.compare),
    "imports": (lambda: imports.write(imports.of_package()), lambda: imports.compare(imports.of_package())),
    "workers": (lambda: imports.write(_of_workers()), lambda: imports.compare(_of_workers())),
    "tests": (inventory.write, inventory.compare_functions),
}


if __name__ == "__main__":
    sys.exit(main())
