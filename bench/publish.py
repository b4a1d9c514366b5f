"""Where results go, and how those of a benchmark with tables of its own get there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

RESULTS = Path(__file__).parent / "results"


def publish(folder: Path, name: str, title: str, text: str, found: Mapping[str, Any]) -> None:
    """Print the tables; write them as Markdown, and all that was found as JSON.

    Args:
        folder: Is made where missing.
        name: Of the files, without their endings.
        title: Of the page.
        text: The tables, as Markdown.
        found: What can be written as JSON, with ``machine.describe`` as ``machine``.
    """
    text = with_versions(text, found)
    print(text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / f"{name}.md").write_text(f"# {title}\n\n{text}\n")


def with_versions(text: str, found: Mapping[str, Any]) -> str:
    """Return the tables below a line with the versions that were measured."""
    machine = found["machine"]
    versions = machine["versions"]
    return (
        f"Spark {versions['pyspark']}, Kafka {versions['kafka broker']}, Python {versions['python']}, commit "
        f"{machine['commit']}\n\n{text}"
    )
