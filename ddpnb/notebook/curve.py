"""The curves of a run as one picture, for where no script draws them: each rank thin, their mean
thick, as in the live view.

Without pyplot, which belongs to the user's own cells: this is called from the watching thread.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["picture"]

_MOST_METRICS = 6
_COLUMNS = 3
_MOST_CHARACTERS = 40
_MOST = 1e100
_SIZE = (3.6, 2.1)
"""Width and height of one metric's curves, in inches."""
# Okabe and Ito's colours, told apart by colour-blind eyes.
_COLOURS = ("#2A8FD0", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8c8c2e", "#7f7f7f")


def picture(told: Iterable[Mapping[str, Any]]) -> bytes | None:
    """Return a PNG of the curves, or None where nothing makes a curve.

    Args:
        told: one metric of one rank each, as `Points.all` gives them: metric, rank, and points of
            step, time and value, which is None where it was not finite.
    """
    metrics: dict[str, dict[int, list[tuple[int, float]]]] = {}
    for one in told:
        line = [(step, _drawable(value)) for step, _, value in one["points"]]
        if sum(math.isfinite(value) for _, value in line) > 1:
            metrics.setdefault(one["metric"], {})[one["rank"]] = line
    if not metrics:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = list(metrics.items())[:_MOST_METRICS]
    columns = min(_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(_SIZE[0] * columns, _SIZE[1] * rows), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (name, lines) in enumerate(shown, start=1):
        axes = figure.add_subplot(rows, columns, place)
        for rank, line in sorted(lines.items()):
            colour = _COLOURS[rank % len(_COLOURS)]
            thin = 0.8 if len(lines) > 1 else 1.5
            axes.plot(*zip(*line, strict=True), color=colour, linewidth=thin)
        if len(lines) > 1 and (mean := _mean(lines)):
            axes.plot(*zip(*mean, strict=True), color="black", linewidth=1.8)
        axes.set_title(name[:_MOST_CHARACTERS], fontsize=9, parse_math=False)
        axes.tick_params(labelsize=7)
        axes.set_xlabel("step", fontsize=7)
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # of letters that the font lacks, into a cell
        figure.savefig(file, format="png")
    return file.getvalue()


def _drawable(value: float | None) -> float:
    """Return a value, or a gap where an axis would overflow."""
    return math.nan if value is None or abs(value) > _MOST else value


def _mean(lines: Mapping[int, list[tuple[int, float]]]) -> list[tuple[int, float]]:
    """Return the mean at each step that all ranks have logged."""
    values: dict[int, list[float]] = {}
    for line in lines.values():
        for step, value in line:
            values.setdefault(step, []).append(value)
    return [
        (step, sum(there) / len(there))
        for step, there in sorted(values.items())
        if len(there) >= len(lines)
    ]
