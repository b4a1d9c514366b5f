"""The demo's chart of departure delays by hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _charts import PALE, draw_grid, format_thousands, hide_frame, set_panel_title, two_panels

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Distinguishable with colour blindness (Okabe and Ito).
_COLOURS = {"EWR": "#0072B2", "JFK": "#D55E00", "LGA": "#009E73"}
_NAMES = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}


def draw(rows: Sequence[tuple[str, int, int, float]], path: Path) -> None:
    """Draw the delays in the upper panel and the departures in the lower one, by hour of the day.

    Args:
        rows: Origin, hour, departures, mean delay in minutes.
        path: The path of the PNG.
    """
    with two_panels(path, "Leave New York in the morning", heights=(2.6, 1)) as (delays, counts):
        hours = sorted({hour for _, hour, _, _ in rows})
        _delays(delays, rows)
        _counts(counts, rows, hours)
        set_panel_title(delays, "Mean departure delay of the flights of 2013, in minutes")
        set_panel_title(counts, "Departures")
        counts.set_xticks(hours, [f"{hour}:00" if hour % 3 == 0 else "" for hour in hours])
        counts.set_xlabel("Scheduled hour of departure")
        counts.set_xlim(min(hours) - 0.7, max(hours) + 2.1)


def _delays(axes: Any, rows: Sequence[tuple[str, int, int, float]]) -> None:
    ends: dict[str, tuple[int, float]] = {}
    for origin, colour in _COLOURS.items():
        # The mean of few flights is noise.
        points = [(hour, delay) for each, hour, count, delay in rows if each == origin and count >= 50]
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=2.6, marker="o", markersize=4.5)
        ends[origin] = points[-1]
    # Each line is labelled at its end; labels that would overlap are moved up.
    label_height = -1e9
    for origin, (hour, delay) in sorted(ends.items(), key=lambda end: end[1][1]):
        label_height = max(delay, label_height + 1.6)
        label = f"{_NAMES[origin]} ({origin})"
        axes.text(hour + 0.25, label_height, label, color=_COLOURS[origin], fontweight="bold", va="center")
    axes.axhline(0, color=PALE, linewidth=0.8)
    draw_grid(axes)
    hide_frame(axes)


def _counts(axes: Any, rows: Sequence[tuple[str, int, int, float]], hours: Sequence[int]) -> None:
    below = [0] * len(hours)
    for origin, colour in _COLOURS.items():
        by_hour = {hour: count for each, hour, count, _ in rows if each == origin}
        heights = [by_hour.get(hour, 0) for hour in hours]
        axes.bar(hours, heights, bottom=below, color=colour, width=0.78, edgecolor="white", linewidth=0.6)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    format_thousands(axes)
    axes.locator_params(axis="y", nbins=4)
    hide_frame(axes)
