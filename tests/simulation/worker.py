"""A process that runs histories: ``pool.py`` starts it. Requests and results are lines of JSON.

A history that hangs ends the process with the tracebacks of its threads; ``pool.py`` continues with another process.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import resource
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.coverage import Cell
from tests.simulation.expected import expected_failure
from tests.simulation.history import History
from tests.simulation.runner import draw_history, run_history, run_seed
from tests.simulation.shrink import shrink
from tests.simulation.story import format_line, story

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.coverage import Coverage
    from tests.simulation.runner import Outcome

_STDERR = 2  # its descriptor, as another module may have replaced sys.stderr
HASH_EVERY: Final = 100
"""Every so many seeds the trace is compared with that of another process."""

_MAX_BYTES: Final = 6 << 30


def main() -> None:
    """Serve requests until the input ends."""
    # Warnings of the package are part of no trace, and logging prints them without a handler.
    logging.getLogger("pyspark_kafka_direct").addHandler(logging.NullHandler())
    limit = float(sys.argv[1])
    limit_memory()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)  # by default, garbage collections take a tenth of the time
    for line in sys.stdin:
        for result in _results(json.loads(line), limit):
            print(json.dumps(result, separators=(",", ":")), flush=True)


def limit_memory() -> None:
    """Let a history that never ends fail before it has taken the memory of the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


def guarded(history: History, limit: float) -> Outcome:
    """Run a history; if it takes more than some real seconds, end the process."""
    faulthandler.dump_traceback_later(limit, exit=True, file=_STDERR)
    try:
        return run_history(history)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _results(request: dict[str, Any], limit: float) -> Iterator[dict[str, Any]]:
    match request["task"]:
        case "run":
            yield from _run(request, limit)
        case "shrink":
            yield _shrink(request, limit)
        case "trace":
            outcome = run_seed(request["seed"], request["scenario"], request["size"])
            yield {"done": True, "trace": [*map(format_line, outcome.trace)]}


def _run(request: dict[str, Any], limit: float) -> Iterator[dict[str, Any]]:
    coverage: Coverage = Counter()
    for seed in request["seeds"]:
        faulthandler.dump_traceback_later(limit, exit=True, file=_STDERR)
        outcome = run_seed(seed, request["scenario"], request["size"])
        faulthandler.cancel_dump_traceback_later()
        coverage.update(Cell(*each) for each in outcome.coverage)  # one long history counts as much as a short one
        yield _summary(outcome)
    yield {"done": True, "coverage": [[*cell, count] for cell, count in coverage.items()]}


def _summary(outcome: Outcome) -> dict[str, Any]:
    history = outcome.history
    values: dict[str, Any] = {
        "seed": history.seed,
        "scenario": history.scenario,
        "size": history.size,
        "requests": outcome.requests,
        "ms": round(outcome.seconds * 1000, 2),
    }
    if history.seed % HASH_EVERY == 0:
        values["digest"] = outcome.digest
    if outcome.failure is not None:
        expected = expected_failure(history.scenario, outcome.failure.kind)
        values["kind"] = outcome.failure.kind
        values["traceback"] = outcome.failure.traceback if expected is None else ""
        values["issue"] = None if expected is None else expected.issue
    return values


def _shrink(request: dict[str, Any], limit: float) -> dict[str, Any]:
    if "history" in request:
        history = History.from_json(request["history"])
    else:
        history = draw_history(request["seed"], request["scenario"], request["size"])
    shrunk = shrink(history, request["kind"], lambda each: guarded(each, limit))
    return {"done": True, "story": story(shrunk, request["file"]), "history": shrunk.outcome.history.to_json()}


if __name__ == "__main__":
    main()
