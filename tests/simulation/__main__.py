"""Runs seeds on the simulated cluster: ``make simulate SEEDS=100000``. See tests/evidence/simulation.md.

python -m tests.simulation --seeds 1000              # fresh seeds
python -m tests.simulation --seeds 1000 --first tree # seeds derived from the code: those of make test
python -m tests.simulation --seed 4711 --trace       # one history again
python -m tests.simulation --plan build/simulation/range_reads-4711.json
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import logging
import random
import sys
from pathlib import Path

from tests.simulation.history import History
from tests.simulation.pool import HANG_SECONDS
from tests.simulation.runner import draw_history, find_scenario, run_history, scenario_names
from tests.simulation.seeds import SHRUNK, run_seeds
from tests.simulation.shrink import Shrunk, shrink
from tests.simulation.story import format_line, story
from tests.simulation.worker import guarded

_ROOT = Path(__file__).parents[2]
_STDERR = 2


def main() -> int:
    """Run what the command line says; return 1 if a history failed unexpectedly."""
    parser = argument_parser()
    given = parser.parse_args()
    logging.getLogger("pyspark_kafka_direct").addHandler(logging.NullHandler())
    if given.scenario is None and given.plan is None and not scenario_names():
        parser.error("there are no scenarios; name a module with --scenario")
    if given.scenario is not None and "." not in given.scenario and given.scenario not in scenario_names():
        parser.error(f"no scenario {given.scenario}; there are: {', '.join(scenario_names())}")
    for name in [given.scenario] if given.scenario is not None else scenario_names():
        find_scenario(name)  # an import that fails is reported once
    if given.plan is not None:
        return replay(History.loads(given.plan.read_text("utf-8")), given.trace, given.hang_seconds)
    if given.seed is not None:
        return run_one(draw_history(given.seed, given.scenario, given.size), given.trace, given.hang_seconds)
    return run_seeds(
        range(given.first, given.first + given.seeds),
        scenario=given.scenario,
        size=given.size,
        processes=given.processes,
        hang_seconds=given.hang_seconds,
        keep_going=given.keep_going,
        coverage_file=given.coverage,
    )


def run_one(history: History, trace: bool, hang_seconds: float) -> int:
    """Run one history; shrink it if it fails, and print its story."""
    outcome = guarded(history, hang_seconds)
    if trace:
        for line in outcome.trace:
            print(format_line(line))
    if outcome.failure is None:
        print(
            f"seed {history.seed} passes: {history.scenario}, {history.size}, {len(history.plan.events)} events, "
            f"{outcome.requests} requests, {outcome.simulated_seconds:.1f} simulated seconds in "
            f"{outcome.seconds * 1000:.0f} ms, trace {outcome.digest}"
        )
        return 0
    shrunk = shrink(history, outcome.failure.kind, lambda each: guarded(each, hang_seconds))
    file = SHRUNK / f"{history.scenario}-{history.seed}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(shrunk.outcome.history.dumps(), "utf-8")
    print(story(shrunk, str(file.relative_to(_ROOT))))
    return 1


def replay(history: History, trace: bool, hang_seconds: float) -> int:
    """Run a stored history as it is."""
    faulthandler.dump_traceback_later(hang_seconds, exit=True, file=_STDERR)
    outcome = run_history(history)
    faulthandler.cancel_dump_traceback_later()
    if trace:
        for line in outcome.trace:
            print(format_line(line))
    print(story(Shrunk(outcome, len(history.plan.events), 1, reproducible=True, exhausted=False)))
    return 0 if outcome.failure is None else 1


def tree_seed() -> int:
    """Return a seed derived from the code of the package and of the simulation."""
    digest = hashlib.sha256()
    for folder in ("src", "tests/simulation"):
        for file in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(f"{file.relative_to(_ROOT).as_posix()}\n".encode())
            digest.update(file.read_bytes())
    return int(digest.hexdigest()[:12], 16) % 100_000_000


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run simulated histories.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seeds", type=_positive, default=1000, metavar="N", help="how many seeds (default 1000)")
    what.add_argument("--seed", type=int, metavar="N", help="run one seed; a failure is shrunk")
    what.add_argument("--plan", type=Path, metavar="FILE", help="run a stored history")
    parser.add_argument(
        "--first", type=_first, default="random", metavar="N", help="the first seed: a number, random (default) or tree"
    )
    parser.add_argument("--scenario", metavar="NAME", help="run this one only")
    parser.add_argument("--size", choices=("short", "long"), help="run histories of this size only")
    parser.add_argument("--processes", type=_positive, default=2, metavar="N", help="processes at once (default 2)")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, even if one has failed")
    parser.add_argument(
        "--coverage", type=Path, metavar="FILE", help="write the coverage as JSON, and as Markdown beside it"
    )
    parser.add_argument("--trace", action="store_true", help="print the trace of one history")
    parser.add_argument(
        "--hang-seconds", type=float, default=HANG_SECONDS, metavar="S", help="real time of a history (default 300)"
    )
    return parser


def _first(value: str) -> int:
    match value:
        case "random":
            return random.SystemRandom().randrange(1_000_000_000)
        case "tree":
            return tree_seed()
    return int(value)


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
