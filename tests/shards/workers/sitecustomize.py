"""Each Python process of the integration tests runs this at its start; ``tests.shards.python`` puts it on the path.

Spark's Python processes import PySpark from archives, which contain no bytecode: each process compiles its imports for
more than half a second. If the archives are part of an installed PySpark, the same files exist with bytecode.
"""

from __future__ import annotations

import sys


def without_archives(places: list[str]) -> list[str]:
    """Return the paths without ``X/pyspark/python/lib/*.zip`` if ``X`` is one of the paths."""
    kept = []
    for place in places:
        installed_in, inside, _ = place.partition("/pyspark/python/lib/")
        if not (inside and installed_in in places):
            kept.append(place)
    return kept


sys.path[:] = without_archives(sys.path)
