"""The line chart of the report as a matplotlib figure, for picture files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.report.charts import LIGHT, MAX_MARKERS, MAX_NAMED_PLACES, Line, model_colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def line_figure(lines: Mapping[str, Line], x_label: str, y_label: str, log_x: bool = False) -> Figure:
    """Lines through points (x, y, spread); a band shows the spread, or a bar if a line has one point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4, 3.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LIGHT["rule"])
    axes.tick_params(colors=LIGHT["faint"], labelsize=9, length=3, width=0.8)
    axes.grid(color=LIGHT["rule"], linewidth=0.6)
    axes.set_axisbelow(True)
    colours = model_colours(list(lines))
    for number, (name, points) in enumerate(lines.items()):
        x, y, spread = np.array(points, np.float64).reshape(-1, 3).T
        marker = MARKERS[number % len(MARKERS)] if len(x) <= MAX_MARKERS else ""
        axes.plot(x, y, color=colours[name], marker=marker, markersize=4.5, linewidth=1.6, label=name)
        if (spread > 0).any() and len(x) > 1:
            axes.fill_between(x, y - spread, y + spread, color=colours[name], alpha=0.18, linewidth=0)
        elif (spread > 0).any():
            axes.errorbar(x, y, spread, color=colours[name], capsize=3, linewidth=1.2)
    places = sorted({float(x) for points in lines.values() for x, _, _ in points})
    if log_x:
        axes.set_xscale("log")
    if len(places) <= MAX_NAMED_PLACES:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    style: dict[str, Any] = {"fontsize": 9.5, "color": LIGHT["ink"], "parse_math": False}
    axes.set_xlabel(x_label, **style)
    axes.set_ylabel(y_label, **style)
    return figure
