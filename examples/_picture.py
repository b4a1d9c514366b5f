"""What the demo's pictures have in common: one panel above another, few lines, one title."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_INK, PALE = "#222222", "#8a8a8a"


@contextmanager
def two_panels(path: Path, title: str, *, heights: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """Axes above and below; what was drawn on them is a PNG afterwards.

    Args:
        path: Of the PNG.
        title: Above both.
        heights: How they share the height.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    style = {"font.family": "DejaVu Sans", "font.size": 11, "text.color": _INK, "axes.labelcolor": _INK}
    with plt.rc_context(style):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(11, 7.2), sharex=True, height_ratios=heights, layout="constrained"
        )
        yield above, below
        figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 0.92))
        figure.suptitle(title, x=0.02, y=0.98, ha="left", va="top", fontsize=18, fontweight="bold")
        figure.savefig(path, dpi=130, facecolor="white")
        plt.close(figure)


def say(axes: Any, title: str) -> None:
    """Write the title of one panel."""
    axes.set_title(title, loc="left", fontsize=12, color=PALE)


def thousands(axes: Any) -> None:
    """Numbers up the side with commas."""
    axes.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")


def grid(axes: Any) -> None:
    """Pale lines to read heights by."""
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def bare(axes: Any) -> None:
    """No frame but the ground line."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    axes.tick_params(length=0, colors=PALE)
