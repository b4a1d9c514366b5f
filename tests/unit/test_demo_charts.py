"""The demo's chart of the lag, and its table."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("seconds", [30, 300])
def test_the_label_of_a_short_stop_is_not_in_the_chart(
    seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    chart, table = importlib.import_module("_lag_chart"), importlib.import_module("_progress_table")
    boxes: dict[str, Any] = {}

    def save(figure: Figure, path: Path, **_: Any) -> None:
        figure.canvas.draw()
        boxes["panel"] = figure.axes[0].get_window_extent()
        for text in figure.findobj(Text):
            assert isinstance(text, Text)
            boxes[text.get_text()] = text.get_window_extent()

    monkeypatch.setattr(Figure, "savefig", save)
    samples = [table.LagSample(seconds * share / 100, 20_000) for share in range(100)]
    batches = [table.MeasuredBatch(seconds / 4, 2.0, 1000)]
    chart.draw(samples, batches, [(seconds / 2, seconds / 2 + 4)], tmp_path / "live.png")
    (label,) = [box for name, box in boxes.items() if "stopped" in name]
    assert label.y0 >= boxes["panel"].y1
    assert label.x0 > boxes["Records that no finished batch contains"].x1
    assert label.y1 < boxes["A query that stops, restarts and catches up"].y0


def test_a_live_row_does_not_wrap(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    table = importlib.import_module("_progress_table").ProgressTable(SimpleNamespace(written=1000))
    monkeypatch.setenv("COLUMNS", "200")
    table.show_until(None, lambda: True, 1)
    assert "\u2588" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    table.show_until(None, lambda: True, 1)
    lines = re.split(r"[\r\n]+", capsys.readouterr().out)
    assert 70 < max(map(len, lines)) < 80
    assert len(table.header) == 73
