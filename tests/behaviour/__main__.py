"""Compare the code with the record of its behaviour, or update the record.

    python -m tests.behaviour              # compare
    python -m tests.behaviour --write      # write the files of tests/behaviour/data
    python -m tests.behaviour --write options requests

The part ``workers`` starts a Kafka broker.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tests.behaviour import imports, option_outcomes, requests
from tests.behaviour.differences import report

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.behaviour.differences import Differences


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the code with the record of its behaviour.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(_PARTS)}; by default all")
    parser.add_argument("--write", action="store_true", help="update the record")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(_PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    reports = []
    for part in arguments.parts or _PARTS:
        write, compare = _PARTS[part]
        if arguments.write:
            write()
            print(f"{part}: written")
        else:
            message = report(part, compare())
            reports += [message] if message else []
            print(message or f"{part}: as recorded")
    return 1 if reports else 0


def _worker_imports() -> imports.Record:
    from tests.conftest import NewTopics

    from pyspark_kafka_direct.broker import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers
        record, _ = imports.batch_imports(imports.produce_records(servers, NewTopics(servers)()))
    return record


_PARTS: dict[str, tuple[Callable[[], None], Callable[[], Differences]]] = {
    "options": (option_outcomes.write, option_outcomes.compare),
    "requests": (requests.write, requests.compare),
    "imports": (lambda: imports.write(imports.package_imports()), lambda: imports.compare(imports.package_imports())),
    "workers": (lambda: imports.write(_worker_imports()), lambda: imports.compare(_worker_imports())),
}


if __name__ == "__main__":
    sys.exit(main())
