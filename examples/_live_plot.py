"""The picture of the live half: how far the query was behind, and how long its batches took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _meter import Batch, Sample

_LAG, _BATCH, _STOP = "#0072B2", "#D55E00", "#eeeeee"
_INK, _PALE = "#222222", "#8a8a8a"


def draw(samples: Sequence[Sample], batches: Sequence[Batch], stops: Sequence[tuple[float, float]], path: Path) -> None:
    """Draw records behind above and batch durations below, over time.

    Args:
        samples: In the order of time.
        batches: Of all runs of the query.
        stops: From when to when the query did not run.
        path: Of the PNG.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    style = {"font.family": "DejaVu Sans", "font.size": 11, "text.color": _INK, "axes.labelcolor": _INK}
    with plt.rc_context(style):
        figure, (lag, duration) = plt.subplots(
            2, 1, figsize=(11, 7.2), sharex=True, height_ratios=[1.6, 1], layout="constrained"
        )
        seconds, behind = [each.seconds for each in samples], [each.behind for each in samples]
        lag.fill_between(seconds, behind, color=_LAG, alpha=0.15, linewidth=0)
        lag.plot(seconds, behind, color=_LAG, linewidth=2.2)
        lag.set_title("Records written and not yet in a finished batch", loc="left", fontsize=12, color=_PALE)
        lag.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
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
        duration.set_title("Duration of the micro-batches, in seconds", loc="left", fontsize=12, color=_PALE)
        duration.set_xlabel("Seconds since the replay began")
        for axes in (lag, duration):
            _finish(axes, stops)
        for begin, end in stops:
            top = lag.get_ylim()[1]
            lag.text((begin + end) / 2, top * 0.97, "stopped", color=_PALE, ha="center", va="top")
        figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 0.92))
        title = {"x": 0.02, "y": 0.98, "ha": "left", "va": "top", "fontsize": 18, "fontweight": "bold"}
        figure.suptitle("Stopped half-way, and caught up", **title)
        figure.savefig(path, dpi=130, facecolor="white")
        plt.close(figure)


def _finish(axes: Any, stops: Sequence[tuple[float, float]]) -> None:
    for begin, end in stops:
        axes.axvspan(begin, end, color=_STOP, linewidth=0, zorder=0)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_PALE)
    axes.tick_params(length=0, colors=_PALE)
