"""The demo's chart of the streaming query: its lag, and the duration of its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _charts import PALE, draw_grid, format_thousands, hide_frame, set_panel_title, two_panels

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _progress_table import LagSample, MeasuredBatch

_LAG, _BATCH, _STOP = "#0072B2", "#D55E00", "#eeeeee"


def draw(
    samples: Sequence[LagSample], batches: Sequence[MeasuredBatch], stops: Sequence[tuple[float, float]], path: Path
) -> None:
    """Draw the lag in the upper panel and the batch durations in the lower one, over time.

    Args:
        samples: The lag, in the order of time.
        batches: The batches of all runs of the query.
        stops: The periods in which the query did not run.
        path: The path of the PNG.
    """
    with two_panels(path, "A query that stops, restarts and catches up", heights=(1.6, 1)) as (lag, duration):
        seconds, behind = [each.seconds for each in samples], [each.behind for each in samples]
        lag.fill_between(seconds, behind, color=_LAG, alpha=0.15, linewidth=0)
        lag.plot(seconds, behind, color=_LAG, linewidth=2.2)
        set_panel_title(lag, "Records that no finished batch contains")
        format_thousands(lag)
        # Each bar extends from the start to the end of a batch; its height is the duration.
        duration.bar(
            [each.seconds - each.duration for each in batches],
            [each.duration for each in batches],
            width=[each.duration for each in batches],
            align="edge",
            color=_BATCH,
            edgecolor="white",
            linewidth=0.6,
        )
        set_panel_title(duration, "Duration of the micro-batches, in seconds")
        duration.set_xlabel("Seconds since the start of the replay")
        for axes in (lag, duration):
            _decorate(axes, stops)
        if stops:
            _label_stops(lag)


def _label_stops(axes: Any) -> None:
    # Above the panel, because a label at a short stop would be wider than the stop and cover the line.
    from matplotlib.patches import Patch

    stopped = Patch(facecolor=_STOP, edgecolor=PALE, linewidth=0.8, label="the query is stopped")
    axes.legend(handles=[stopped], loc="lower right", bbox_to_anchor=(1, 1), frameon=False, labelcolor=PALE)


def _decorate(axes: Any, stops: Sequence[tuple[float, float]]) -> None:
    for begin, end in stops:
        axes.axvspan(begin, end, color=_STOP, linewidth=0, zorder=0)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    draw_grid(axes)
    hide_frame(axes)
