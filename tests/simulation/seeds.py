"""Runs many seeds and reports: failures by kind, other traces under another hash seed, times and coverage."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.simulation import coverage
from tests.simulation.expected import EXPECTED_FAILURES, ExpectedFailure
from tests.simulation.history import History
from tests.simulation.pool import SeedPool, Totals, Worker, WorkerEndedError, first_difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.simulation.history import Size

_ROOT = Path(__file__).parents[2]
SHRUNK: Final = _ROOT / "build" / "simulation"
"""Where shrunk histories are stored."""
_STORIES = 5  # kinds of failures that are shrunk
_OTHER_HASH_SEED = 1_000
_EVERY = 60.0  # seconds between lines of progress


def run_seeds(
    seeds: range,
    *,
    scenario: str | None = None,
    size: Size | None = None,
    processes: int = 2,
    hang_seconds: float,
    keep_going: bool = False,
    coverage_file: Path | None = None,
    expected: Iterable[ExpectedFailure] = EXPECTED_FAILURES,
) -> int:
    """Run seeds and print a report; return 1 if it has anything that must be fixed."""
    print(f"{len(seeds)} seeds from {seeds.start}, {processes} processes", flush=True)
    started_at = time.monotonic()
    progress = _Progress(len(seeds))
    pool = SeedPool(processes, scenario=scenario, size=size, hang_seconds=hang_seconds, on_result=progress.add)
    if not keep_going:
        progress.on_failure = pool.stop
    totals = pool.run(seeds)
    seconds = time.monotonic() - started_at
    different = _compare_digests(totals, processes, scenario, size, hang_seconds)
    mended = mended_seeds([each for each in expected if scenario in (None, each.scenario)], hang_seconds)
    _print_stories(totals.failures, scenario, size, hang_seconds)
    for line in summary(totals, seconds):
        print(line)
    for line in (*different, *mended):
        print(line)
    is_uncovered = False
    if coverage_file is not None:
        coverage.write(totals.coverage, len(totals.results), coverage_file)
    if scenario is None and size is None:
        lines, is_uncovered = coverage.report(totals.coverage, len(totals.results), coverage.all_cells())
        print("\n".join(lines))
    return 1 if totals.failures or different or mended or is_uncovered else 0


def mended_seeds(expected: Iterable[ExpectedFailure], hang_seconds: float) -> list[str]:
    """Return a line for each example of an expected failure that passes, or fails in another way."""
    lines: list[str] = []
    for each in expected:
        for seed, size in each.seeds:
            with Worker(1, hang_seconds) as worker:
                request = {"task": "run", "seeds": [seed], "scenario": each.scenario, "size": size}
                result = next(worker.results(request))
            if result.get("issue") != each.issue:
                how = f"fails in another way: {result['kind']}" if "kind" in result else "passes"
                lines.append(
                    f"MENDED: {each.scenario}, seed {seed} ({size}) {how}; remove it from tests/simulation/expected.py "
                    f"({each.issue})"
                )
    return lines


def summary(totals: Totals, seconds: float) -> list[str]:
    """Return the lines of the summary."""
    results = totals.results
    lines = [f"{len(results)} seeds in {seconds:.1f} s: {len(results) / max(seconds, 1e-9):.1f} seeds/s{_memory()}"]
    for size in ("short", "long"):
        times = sorted(each["ms"] for each in results if each["size"] == size)
        if times:
            requests = sorted(each["requests"] for each in results if each["size"] == size)
            lines.append(
                f"  {size:<6} {len(times):>7} histories: p50 {_quantile(times, 0.5):.1f} ms, "
                f"p95 {_quantile(times, 0.95):.1f} ms, max {times[-1]:.1f} ms; requests p50 "
                f"{_quantile(requests, 0.5)}, p95 {_quantile(requests, 0.95)}, max {requests[-1]}"
            )
    lines += [f"  {name:<16} {count:>7}" for name, count in sorted(Counter(_scenarios(results)).items())]
    expected = Counter(each["issue"] for each in results if each.get("issue") is not None)
    lines += [f"  expected failures: {count} ({issue})" for issue, count in sorted(expected.items())]
    failures = totals.failures
    if not failures:
        return [*lines, "no unexpected failures"]
    kinds = Counter(each["kind"] for each in failures)
    firsts = {each["kind"]: each for each in reversed(failures)}
    lines.append(f"{len(failures)} UNEXPECTED FAILURES of {len(kinds)} kinds:")
    lines += [f"  {count:>5}  {kind} (first: seed {firsts[kind]['seed']})" for kind, count in kinds.most_common()]
    return lines


class _Progress:
    """Prints a line every minute, and one for the first failure of each kind."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._count = 0
        self._kinds: set[str] = set()
        self._started_at = self._printed_at = time.monotonic()
        self.on_failure = _nothing

    def add(self, result: dict[str, Any]) -> None:
        self._count += 1
        if "kind" in result and result["issue"] is None:
            self.on_failure()
            if result["kind"] not in self._kinds:
                self._kinds.add(result["kind"])
                print(f"FAILED: seed {result['seed']}: {result['kind']}", flush=True)
        now = time.monotonic()
        if now - self._printed_at >= _EVERY:
            self._printed_at = now
            rate = self._count / (now - self._started_at)
            print(f"{self._count} of {self._seeds} seeds, {rate:.1f} seeds/s", flush=True)


def _compare_digests(
    totals: Totals, processes: int, scenario: str | None, size: Size | None, hang_seconds: float
) -> list[str]:
    """Run seeds again in processes with other hash seeds; return what differs."""
    digests = totals.digests
    options = {"scenario": scenario, "size": size}
    pool = SeedPool(processes, scenario=scenario, size=size, hash_seed=_OTHER_HASH_SEED, hang_seconds=hang_seconds)
    again = pool.run(sorted(digests)).digests
    seeds = [seed for seed in sorted(digests) if again.get(seed) != digests[seed]]
    lines = [f"{len(digests)} seeds were run again with another PYTHONHASHSEED"] if seeds else []
    for number, seed in enumerate(seeds):
        lines.append(f"DIFFERENT: the trace of seed {seed} differs in another process")
        if number < _STORIES:
            lines += _difference({"task": "trace", "seed": seed, **options}, hang_seconds)
    return lines


def _difference(request: dict[str, Any], hang_seconds: float) -> list[str]:
    with Worker(1, hang_seconds) as one, Worker(_OTHER_HASH_SEED, hang_seconds) as other:
        difference = first_difference(one.result(request)["trace"], other.result(request)["trace"])
    if difference is None:
        return ["  New processes have equal traces: it depends on the seeds that ran before it in the process."]
    index, line, other_line = difference
    return [f"  line {index} of one:   {line}", f"  line {index} of other: {other_line}"]


def _print_stories(failures: Sequence[dict[str, Any]], scenario: str | None, size: Size | None, limit: float) -> None:
    firsts: dict[str, dict[str, Any]] = {}
    for each in failures:
        firsts.setdefault(each["kind"], each)
    for number, (kind, failure) in enumerate(firsts.items()):
        if number == _STORIES:
            print(f"{len(firsts) - _STORIES} other kinds of failures are not shrunk")
            return
        seed = failure["seed"]
        file = SHRUNK / f"{failure['scenario']}-{seed}.json"
        request = {"task": "shrink", "seed": seed, "scenario": scenario, "size": size, "kind": kind}
        try:
            with Worker(1, limit) as worker:
                result = worker.result({**request, "file": str(file.relative_to(_ROOT))})
        except WorkerEndedError as error:
            print(f"seed {seed} is not shrunk, because {error}\nThe failure:\n{failure['traceback']}")
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(History.from_json(result["history"]).dumps(), "utf-8")
        print(result["story"], flush=True)


def _memory() -> str:
    """Return the peak memory of the largest process that has ended."""
    try:
        import resource
    except ImportError:  # Windows
        return ""
    kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return f", at most {kilobytes / 1024:.0f} MB in a process"


def _scenarios(results: Iterable[dict[str, Any]]) -> list[str]:
    return [str(each["scenario"]) for each in results]


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]


def _nothing() -> None:
    pass
