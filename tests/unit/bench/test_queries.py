from __future__ import annotations

import json

from bench.publish import RESULTS, with_versions
from bench.queries import Cost, render


def test_the_page_is_what_was_found() -> None:
    found = json.loads((RESULTS / "queries.json").read_text())
    costs = {peer: Cost(**cost) for peer, cost in found["costs"].items()}
    text = with_versions(render(costs, found["queries"]), found)
    assert (RESULTS / "queries.md").read_text() == f"# Many queries on one driver\n\n{text}\n"
