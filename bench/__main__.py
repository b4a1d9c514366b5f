"""``python -m bench``: measure, print the tables, write JSON, Markdown and a plot."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench import results
from bench.errors import BenchError
from bench.plot import draw
from bench.profiles import PARTS, PROFILES, narrowed
from bench.publish import RESULTS
from bench.report import render
from bench.run import say_to_stderr
from bench.session import measure
from bench.summary import PEERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.results import Results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 when a peer failed."""
    chosen = _parse(arguments)
    if chosen.render:
        found = results.read(chosen.render)
        return _publish(found, chosen.render.parent)
    peers = chosen.peers.split(",")
    profile = PROFILES[chosen.profile]()
    if chosen.only:
        profile = PARTS[chosen.only](profile)
    tried = (chosen.peers, chosen.scale, chosen.rounds) != (",".join(PEERS), 1.0, None)
    if tried:
        profile = narrowed(profile, peers=peers, scale=chosen.scale, rounds=chosen.rounds)
    folder = chosen.output or (Path(tempfile.gettempdir()) / "pyspark-kafka-direct-bench" if tried else RESULTS)
    try:
        found = measure(profile, peers, say_to_stderr)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    results.write(found, folder / f"{found.profile}.json")
    return _publish(found, folder)


def _publish(found: Results, folder: Path) -> int:
    print(render(found))
    (folder / f"{found.profile}.md").write_text(render(found, markdown=True))
    drawn = " and .png" if draw(found, folder / f"{found.profile}.png") else ""
    say_to_stderr(f"Written: {folder / found.profile}.json, .md{drawn}")
    return 1 if found.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare ways to read Kafka from Python.")
    parser.add_argument("--profile", choices=PROFILES, default="quick", help="quick: minutes; full: an hour or two")
    parser.add_argument("--full", action="store_const", dest="profile", const="full", help="the same as --profile full")
    parser.add_argument("--only", choices=PARTS, help="only this, which the profiles themselves do not have")
    parser.add_argument("--output", type=Path, help="folder for the results (default: bench/results)")
    parser.add_argument("--render", type=Path, metavar="JSON", help="only print and draw earlier results again")
    trying = parser.add_argument_group("for trying things out; results then go to a temporary folder")
    trying.add_argument("--peers", default=",".join(PEERS), help="only these, separated by commas (%(default)s)")
    trying.add_argument("--scale", type=float, default=1.0, help="of every number of records")
    trying.add_argument("--rounds", type=int, help="measured runs of each peer and case")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
