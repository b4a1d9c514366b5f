"""Runs seeds in several processes, and starts another one for a process that hangs or crashes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tests.simulation.coverage import Coverage, merged
from tests.simulation.runner import draw_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulation.history import Size

HANG_SECONDS: Final = 300.0
"""How much real time a history may take."""
_CHUNK = 50  # seeds
_CHUNKS_OF_PROCESS = 40  # then another process is started, so that memory is bounded
_ROOT = Path(__file__).parents[2]
_STDERR_LINES = 40
_MOST_LOST = 10  # processes; then no further seeds are run
_HANGS = "Timeout ("  # the title of what faulthandler prints


class WorkerEndedError(Exception):
    """A process ended before it was done; the message is what it wrote to its standard error."""


class Worker:
    """One process (``worker.py``)."""

    def __init__(self, hash_seed: int, hang_seconds: float = HANG_SECONDS) -> None:
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        folders = [str(_ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.simulation.worker", str(hang_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(folders)},
            text=True,
            encoding="utf-8",
        )

    def results(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a request and return the results; the last one has ``done``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise WorkerEndedError(self._last_words()) from None
        for line in self._process.stdout:
            result: dict[str, Any] = json.loads(line)
            yield result
            if "done" in result:
                return
        raise WorkerEndedError(self._last_words())

    def result(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the last result."""
        *_, last = self.results(request)
        return last

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._stderr.seek(0)
        return f"the process ended with code {code}\n" + "".join(self._stderr.readlines()[-_STDERR_LINES:])


@dataclass
class Totals:
    """What many seeds have shown."""

    results: list[dict[str, Any]] = field(default_factory=list)
    """The summary of each history, in no order."""
    coverage: Coverage = field(default_factory=Counter)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Unexpected failures, by seed."""
        failed = [each for each in self.results if "kind" in each and each["issue"] is None]
        return sorted(failed, key=lambda each: int(each["seed"]))

    @property
    def digests(self) -> dict[int, str]:
        return {each["seed"]: each["digest"] for each in self.results if "digest" in each}


class SeedPool:
    """Processes that share a sequence of seeds."""

    def __init__(
        self,
        processes: int,
        *,
        scenario: str | None = None,
        size: Size | None = None,
        hash_seed: int = 1,
        hang_seconds: float = HANG_SECONDS,
        on_result: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._processes = processes
        self._options = {"scenario": scenario, "size": size}
        self._hash_seed = hash_seed
        self._hang_seconds = hang_seconds
        self._on_result = on_result
        self._lock = threading.Lock()
        self._stopped = False  # no further chunks
        self._closed = False  # the processes are killed
        self._lost = 0  # processes that hung or crashed
        self._error: BaseException | None = None
        self._workers: list[Worker] = []

    def run(self, seeds: Sequence[int]) -> Totals:
        """Run all seeds, or fewer if ``stop`` is called."""
        totals = Totals()
        chunks = iter([seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)])
        count = min(self._processes, -(-len(seeds) // _CHUNK))
        threads = [
            threading.Thread(target=self._serve, args=(chunks, totals, number), daemon=True) for number in range(count)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self.stop()
            self._closed = True
            for worker in tuple(self._workers):
                worker.close()
        if self._error is not None:
            raise self._error
        return totals

    def stop(self) -> None:
        """Start no further chunk of seeds."""
        self._stopped = True

    def _serve(self, chunks: Iterator[Sequence[int]], totals: Totals, number: int) -> None:
        worker: Worker | None = None
        try:
            for index in range(sys.maxsize):
                with self._lock:
                    chunk = None if self._stopped else next(chunks, None)
                if chunk is None:
                    return
                if worker is None or index % _CHUNKS_OF_PROCESS == 0:
                    worker = self._restarted(worker, number)
                left = list(chunk)
                while left and not self._run_chunk(worker, left, totals):
                    worker = self._restarted(worker, number)
        except BaseException as error:
            self._error = error
            self.stop()
        finally:
            if worker is not None:
                worker.close()

    def _run_chunk(self, worker: Worker, left: list[int], totals: Totals) -> bool:
        """Run seeds and remove them from the list; return False if the process has ended."""
        try:
            for result in worker.results({"task": "run", "seeds": left.copy(), **self._options}):
                if "done" in result:
                    counts = {(fault, request, outcome): n for fault, request, outcome, n in result["coverage"]}
                    with self._lock:
                        merged(counts, totals.coverage)
                else:
                    left.remove(result["seed"])
                    self._add(result, totals)
        except WorkerEndedError as error:
            if self._closed:
                return True
            self._add(self._ended(left.pop(0), str(error)), totals)
            self._lost += 1
            if self._lost >= _MOST_LOST:
                left.clear()
                self.stop()
            return False
        return True

    def _add(self, result: dict[str, Any], totals: Totals) -> None:
        with self._lock:
            totals.results.append(result)
            if self._on_result is not None:
                self._on_result(result)

    def _ended(self, seed: int, output: str) -> dict[str, Any]:
        scenario = self._options["scenario"] or draw_scenario(seed)
        return {
            "seed": seed,
            "scenario": scenario,
            "size": self._options["size"],
            "requests": 0,
            "ms": 0.0,
            "kind": f"{scenario}: {'it hangs' if _HANGS in output else 'the process ends'}",
            "traceback": output,
            "issue": None,
        }

    def _restarted(self, worker: Worker | None, number: int) -> Worker:
        if worker is not None:
            self._workers.remove(worker)
            worker.close()
        started = Worker(self._hash_seed + number, self._hang_seconds)
        self._workers.append(started)
        return started


def first_difference(one: Sequence[str], other: Sequence[str]) -> tuple[int, str, str] | None:
    """Return the index of the first line that differs, and the lines; an absent one is empty."""
    for index in range(max(len(one), len(other))):
        lines = (one[index] if index < len(one) else "", other[index] if index < len(other) else "")
        if lines[0] != lines[1]:
            return index, *lines
    return None
