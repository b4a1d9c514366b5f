"""One picture of the results: how many times as fast as the JVM connector, and at how much of its processor time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bench.goals import GOALS
from bench.spark_peers import AGGREGATE, MAP_IN_ARROW, NOOP, SINK_LABELS, TLS, VALUE
from bench.summary import CONFLUENT, JVM, KAFKA_PYTHON, OURS, PEER_LABELS, Series, ratio
from bench.topics import SIZES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.results import Results

Metric = Literal["speed", "cpu"]

# What a colour stands for: a sink of this data source, or a client (whose only "sink" is Arrow).
_COLOURS = {NOOP: "#0b4f6c", VALUE: "#2a87a5", AGGREGATE: "#74b6c9", MAP_IN_ARROW: "#b5d8e1", TLS: "#4c5c96"}
_COLOURS |= {CONFLUENT: "#e0a458", KAFKA_PYTHON: "#bdbdbd"}
_LABELS = {sink: f"kafka-direct, {label}" for sink, label in SINK_LABELS.items()}
_LABELS |= {CONFLUENT: PEER_LABELS[CONFLUENT], KAFKA_PYTHON: PEER_LABELS[KAFKA_PYTHON]}
_INK, _MUTED, _GRID, _GOAL = "#222222", "#666666", "#ececec", "#c2410c"
_BAR = 0.86  # of the room for one bar
_GAP = 0.9  # between topics, in bars
_CUT = 1.2  # bars of the clients end at so many times our longest one; their number says how long they are


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio to the JVM connector.

    Attributes:
        kind: A sink (this data source) or a client; it has a colour.
        goal: What the ratio is meant to reach, if there is a goal for it.
    """

    kind: str
    value: float
    position: float
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one topic, side by side."""

    label: str
    bars: tuple[Bar, ...]

    @property
    def centre(self) -> float:
        """Middle of its bars."""
        return (self.bars[0].position + self.bars[-1].position) / 2


def draw(results: Results, path: Path) -> bool:
    """Draw the ratios to a PNG; nothing, and false, without the JVM connector's figures."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    speed, cpu = groups(results.series, "speed"), groups(results.series, "cpu")
    if not speed:
        return False
    width = min(18.0, max(7.0, 0.8 + 0.3 * sum(len(group.bars) + _GAP for group in speed)))
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9, "text.color": _INK}):
        figure, axes = plt.subplots(2, 1, figsize=(width, 7.4), sharex=True, height_ratios=(3, 2))
        _panel(axes[0], speed, "Records per second, times the JVM connector's (higher is better)")
        _panel(axes[1], cpu, "Processor time per record, times the JVM connector's (lower is better)")
        axes[1].set_xticks(
            [group.centre for group in cpu], ["\n".join(group.label.rsplit(maxsplit=1)) for group in cpu]
        )
        _surround(figure, results, speed, width)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
        plt.close(figure)
    return True


def groups(everything: Sequence[Series], metric: Metric) -> list[Group]:
    """Return the topics the JVM connector read, each with a bar for every other series, from left to right."""
    bases = {(series.topic, series.sink): series for series in everything if series.peer == JVM}
    found = []
    position = 0.0
    for topic in dict.fromkeys(series.topic for series in everything):
        bars = []
        present = {_kind(series): series for series in everything if series.topic == topic and series.peer != JVM}
        for kind in _COLOURS:
            series = present.get(kind)
            base = bases.get((topic, series.sink)) if series is not None else None
            if series is None or base is None:
                continue
            goal = _goal(topic, series.sink, metric) if series.peer == OURS else None
            bars.append(Bar(kind, getattr(ratio(series, base), metric), position, goal))
            position += 1
        if bars:
            found.append(Group(topic, tuple(bars)))
            position += _GAP
    return found


def _kind(series: Series) -> str:
    return series.sink if series.peer == OURS else series.peer


def _goal(topic: str, sink: str, metric: Metric) -> float | None:
    for goal in GOALS:
        if (f"{SIZES[goal.value_bytes]} {goal.codec}", goal.sink, goal.metric) == (topic, sink, metric):
            return goal.bound
    return None


def _panel(axis: Any, shown: Sequence[Group], title: str) -> None:
    bars = [bar for group in shown for bar in group.bars]
    own = [max(bar.value, bar.goal or 0) for bar in bars if bar.kind in SINK_LABELS]
    top = max([1.0, *own]) * _CUT
    for bar in bars:
        cut = bar.value > top
        height = top if cut else bar.value
        axis.bar(bar.position, height, _BAR, color=_COLOURS[bar.kind], zorder=2)
        told = f"{bar.value:.1f} ↑" if cut else f"{bar.value:.2f}"
        goal_is_near = bar.goal is not None and 0 < bar.goal - height < top / 12
        axis.annotate(
            told,
            (bar.position, bar.goal if goal_is_near else height),
            xytext=(0, -3 if cut else 3),
            textcoords="offset points",
            ha="center",
            va="top" if cut else "bottom",
            size=7 if len(bars) <= 40 else 6,
            zorder=5,
        )
        if bar.goal is not None:
            axis.hlines(bar.goal, bar.position - 0.5, bar.position + 0.5, color=_GOAL, linewidth=2, zorder=4)
    axis.axhline(1, color=_INK, linewidth=1, zorder=3)
    axis.set_ylim(0, max(1.0, *(max(min(bar.value, top), bar.goal or 0) for bar in bars)) * 1.06)
    axis.set_xlim(-0.9, bars[-1].position + 0.9)
    axis.set_title(title, loc="left", size=9.5, pad=8)
    axis.grid(axis="y", color=_GRID, zorder=0)
    axis.tick_params(length=0, labelcolor=_INK)
    for side in axis.spines.values():
        side.set_visible(False)


def _surround(figure: Any, results: Results, shown: Sequence[Group], width: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    present = {bar.kind for group in shown for bar in group.bars}
    handles: list[Any] = [Patch(color=_COLOURS[kind], label=_LABELS[kind]) for kind in _COLOURS if kind in present]
    handles.append(Line2D([], [], color=_INK, linewidth=1, label="Spark's JVM connector = 1"))
    handles.append(Line2D([], [], color=_GOAL, linewidth=2, label="goal"))
    columns = max(2, int(width / 3.5))
    left = 0.12 / width
    figure.suptitle(
        "Reading Kafka from Python, against Spark's JVM connector", x=left, ha="left", size=13, weight="bold"
    )
    legend = {"ncols": columns, "frameon": False, "fontsize": 8, "handlelength": 1.2, "borderpad": 0}
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(left, 0.945), **legend)
    machine = results.machine
    figure.text(
        left,
        0.012,
        f"Profile {results.profile}, {results.started[:10]}. {machine['cpu']}, {machine['cores']} cores shared with "
        f"the broker. Spark {machine['versions']['pyspark']}, Kafka {machine['versions']['kafka broker']}. "
        f"Medians of {results.rounds}.",
        color=_MUTED,
        size=7.5,
    )
    rows = -(-len(handles) // columns)
    figure.tight_layout(rect=(0, 0.03, 1, 0.97 - 0.025 * rows))
