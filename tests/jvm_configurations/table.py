"""The table of documented configurations, which ``tests/evidence/jvm-configurations.md`` contains.

``tests/unit/options/test_jvm_configurations.py`` gives each configuration to the parsers of all APIs, and compares the
results with the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.jvm_configurations.clouds import CLOUDS
from tests.jvm_configurations.platforms import PLATFORMS

PAGE: Final = Path(__file__).parents[1] / "evidence" / "jvm-configurations.md"
CONFIGURATIONS: Final = (*CLOUDS, *PLATFORMS)
_HEADER: Final = "| configuration | documentation | compared | here | run |\n|---|---|---|---|---|\n"


def table() -> str:
    return _HEADER + "".join(
        f"| {each.name} | [{each.title}]({each.url}) | {each.compared or 'no'} | {each.result()} "
        f"| {'yes' if each.is_run else ''} |\n"
        for each in CONFIGURATIONS
    )


def with_table(page: str) -> str:
    """Return the page with the current table, which is at its end."""
    return page[: page.index(_HEADER)] + table()
