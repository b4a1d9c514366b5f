"""The common layout of the demo's charts: two panels under one title."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_INK, PALE = "#222222", "#8a8a8a"


@contextmanager
def two_panels(path: Path, title: str, *, heights: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """Yield the axes of the upper and the lower panel, and save them as a PNG at the end.

    Args:
        path: The path of the PNG.
        title: The title above both panels.
        heights: The height ratio of the panels.
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


def set_panel_title(axes: Any, title: str) -> None:
    """Set the title of one panel."""
    axes.set_title(title, loc="left", fontsize=12, color=PALE)


def format_thousands(axes: Any) -> None:
    """Format the numbers of the y axis with commas."""
    axes.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")


def draw_grid(axes: Any) -> None:
    """Draw pale horizontal lines."""
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def hide_frame(axes: Any) -> None:
    """Hide the frame except for the bottom line."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    axes.tick_params(length=0, colors=PALE)
