"""Prints a failure as a readable story."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.runner import draw_scenario, draw_size, find_scenario, scenario_names
from tests.simulation.shrink import MOST_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.simulation.history import Event, History, Plan
    from tests.simulation.runner import Outcome
    from tests.simulation.shrink import Shrunk

TRACE_LINES: Final = 25
_TRACEBACK_LINES = 12
_ELEMENTS = 10  # of a sequence that is a parameter
_LINE_LENGTH = 400
_CODECS: Final = {"tables": "the package's message tables", "kio": "kio"}


def story(shrunk: Shrunk, saved: str | None = None) -> str:
    """Return the story of a shrunk failure; ``saved`` is the file with its history."""
    outcome = shrunk.outcome
    history = outcome.history
    lines = [_title(f"{history.scenario}, seed {history.seed}"), f"replay:  {replay_command(history)}"]
    if saved is not None:
        lines.append(f"shrunk:  python -m tests.simulation --plan {saved}")
    lines.append(
        f"history: {history.size}, encoded with {_CODECS[history.codec]}, {outcome.requests} requests in "
        f"{outcome.simulated_seconds:.1f} simulated seconds; faults stop at {history.plan.quiet_after:g} s"
    )
    if not shrunk.reproducible:
        lines.append("NOTE: the second run ended in another way, so the history depends on something besides its seed")
    lines += _parameters(history.plan)
    lines.append("")
    lines += _events(shrunk)
    lines += ["", "the end of the trace:"]
    lines += [f"  {format_line(line)}" for line in outcome.trace[-TRACE_LINES:]]
    lines.append("")
    lines += _failure(outcome)
    return "\n".join(lines)


def replay_command(history: History) -> str:
    """Return the command that replays a history as it was drawn."""
    command = f"SEED={history.seed} make simulate"
    if not scenario_names() or history.scenario != draw_scenario(history.seed):
        command += f" SCENARIO={history.scenario}"
    if history.size != draw_size(history.seed):
        command += f" SIZE={history.size}"
    return command


def format_line(line: Sequence[Any]) -> str:
    """Return a line of the trace: the time since the start, what happened, and facts."""
    time, kind, *facts = line
    return f"{time:12.6f}  {kind:<14} {' '.join(_fact(fact) for fact in facts)}".rstrip()


def request_names(trace: Iterable[Sequence[Any]]) -> dict[int, str]:
    """Return the names of requests by their numbers."""
    names: dict[int, str] = {}
    for line in trace:
        match line:
            case (_, "request" | "late request", int(number), _, _, str(name), *_) | (
                _,
                "fault",
                int(number),
                _,
                str(name),
            ):
                names[number] = name
    return names


def request_times(trace: Iterable[Sequence[Any]]) -> dict[int, float]:
    """Return when the trace first mentions each request."""
    times: dict[int, float] = {}
    for line in trace:
        match line:
            case (float(time), "request" | "late request" | "fault", int(number), *_):
                times.setdefault(number, time)
    return times


def _parameters(plan: Plan) -> Iterator[str]:
    describe = getattr(find_scenario(plan.scenario), "describe", None)
    if describe is not None:
        yield from (f"  {sentence}" for sentence in describe(plan))
    else:
        for name, value in plan.parameters.items():
            yield from _parameter(name.replace("_", " "), value)


def _parameter(name: str, value: Any) -> Iterator[str]:
    """Return a line, and one for each element of a sequence of mappings or sequences."""
    if not isinstance(value, tuple) or not any(isinstance(each, Mapping | tuple) for each in value):
        yield f"  {name}: {_fact(value)}"[:_LINE_LENGTH]
        return
    yield f"  {name}: {len(value)}"
    yield from (f"    {_fact(each)}"[:_LINE_LENGTH] for each in value[:_ELEMENTS])
    if len(value) > _ELEMENTS:
        yield f"    and {len(value) - _ELEMENTS} others"


def _events(shrunk: Shrunk) -> Iterator[str]:
    trace, events = shrunk.outcome.trace, shrunk.outcome.history.plan.events
    yield f"{len(events)} of {shrunk.events_drawn} events are left after {shrunk.runs} runs, in order of time:"
    if not shrunk.is_readable:
        reason = "the budget of runs is spent" if shrunk.exhausted else "removing any one of them changes the failure"
        yield f"  NOTE: more than {MOST_EVENTS} are left, because {reason}"
    names, times = request_names(trace), request_times(trace)
    for event in sorted(events, key=lambda event: _time(event, times)):
        yield f"  {_described(event, names, times)}"


def _time(event: Event, times: Mapping[int, float]) -> float:
    if event.at is not None:
        return event.at
    return times.get(event.request, float("inf")) if event.request is not None else 0.0


def _described(event: Event, names: Mapping[int, str], times: Mapping[int, float]) -> str:
    facts = "".join(f" {name}={_fact(value)}" for name, value in event.args.items())
    if event.request is None:
        when = f"{event.at:12.6f}" if event.at is not None else " " * 12
        return f"{when}  {event.kind}{facts}"
    if event.request not in names:
        return f"{'-':>12}  {event.kind} of number {event.request}{facts}"
    return f"{times[event.request]:12.6f}  {event.kind} of request {event.request} ({names[event.request]}){facts}"


def _failure(outcome: Outcome) -> Iterator[str]:
    failure = outcome.failure
    if failure is None:
        yield "It passes."
        return
    yield "the failure:"
    lines = failure.traceback.rstrip().splitlines()
    message = failure.message.splitlines()
    frames = lines[: len(lines) - len(message)] if message else lines[:-1]
    shown = frames[-_TRACEBACK_LINES:]
    if len(shown) < len(frames):
        yield f"  ({len(frames) - len(shown)} lines of the traceback are left out)"
    yield from (f"  {line}" for line in [*shown, *lines[len(frames) :]])
    yield f"kind:    {failure.kind}"


def _fact(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return f"[{', '.join(f'({_fact(each)})' if isinstance(each, Mapping) else _fact(each) for each in value)}]"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_fact(each)}" for name, each in value.items())
    return str(value)


def _title(text: str) -> str:
    return f" {text} ".center(100, "=")
