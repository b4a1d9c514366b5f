"""Run by each Python process of the integration tests as it starts: ``tests.lanes.python`` has put it in its way.

Spark lets its Python processes import PySpark from archives, which hold no bytecode: each compiles what it imports, for
more than half a second. Where PySpark is installed around these archives, the same files are there with bytecode.
"""

from __future__ import annotations

import sys


def without_archives(places: list[str]) -> list[str]:
    """Leave out ``X/pyspark/python/lib/*.zip`` where ``X`` is among the places."""
    kept = []
    for place in places:
        installed_in, inside, _ = place.partition("/pyspark/python/lib/")
        if not (inside and installed_in in places):
            kept.append(place)
    return kept


sys.path[:] = without_archives(sys.path)
