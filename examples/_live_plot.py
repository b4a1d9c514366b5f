"""The picture of the live half: how far the query was behind, and how long its batches took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _picture import PALE, bare, grid, say, thousands, two_panels

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _meter import Batch, Sample

_LAG, _BATCH, _STOP = "#0072B2", "#D55E00", "#eeeeee"


def draw(samples: Sequence[Sample], batches: Sequence[Batch], stops: Sequence[tuple[float, float]], path: Path) -> None:
    """Draw records behind above and batch durations below, over time.

    Args:
        samples: In the order of time.
        batches: Of all runs of the query.
        stops: From when to when the query did not run.
        path: Of the PNG.
    """
    with two_panels(path, "Stopped half-way, and caught up", heights=(1.6, 1)) as (lag, duration):
        seconds, behind = [each.seconds for each in samples], [each.behind for each in samples]
        lag.fill_between(seconds, behind, color=_LAG, alpha=0.15, linewidth=0)
        lag.plot(seconds, behind, color=_LAG, linewidth=2.2)
        say(lag, "Records written and not yet in a finished batch")
        thousands(lag)
        # From a batch's beginning to its end, as high as it is long.
        duration.bar(
            [each.seconds - each.duration for each in batches],
            [each.duration for each in batches],
            width=[each.duration for each in batches],
            align="edge",
            color=_BATCH,
            edgecolor="white",
            linewidth=0.6,
        )
        say(duration, "Duration of the micro-batches, in seconds")
        duration.set_xlabel("Seconds since the replay began")
        for axes in (lag, duration):
            _finish(axes, stops)
        for begin, end in stops:
            lag.text((begin + end) / 2, lag.get_ylim()[1] * 0.97, "stopped", color=PALE, ha="center", va="top")


def _finish(axes: Any, stops: Sequence[tuple[float, float]]) -> None:
    for begin, end in stops:
        axes.axvspan(begin, end, color=_STOP, linewidth=0, zorder=0)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    grid(axes)
    bare(axes)
