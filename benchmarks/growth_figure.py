"""The figure of `bench_growth`: a column of panels for each thing that grows, a row for each cost; log-log."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STYLES = (("#0072B2", "o", 7.0), ("#009E73", "^", 5.0), ("#D55E00", "s", 4.5))
"""Colours that are told apart by everyone, and a marker each for print in grey; the first drawn is the largest."""


@dataclass(frozen=True)
class Curve:
    """costs: one for each size of its panel; none if the contender is not installed."""

    row: str
    contender: str
    costs: Sequence[float]


@dataclass(frozen=True)
class Panel:
    name: str
    sizes: Sequence[int]
    curves: Sequence[Curve]


def draw(panels: Sequence[Panel], rows: Sequence[str], contenders: Sequence[str], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure = Figure(figsize=(11, 9), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), len(panels), sharex="col", sharey="row", squeeze=False)
    for column, panel in enumerate(panels):
        for number, row in enumerate(rows):
            axes = grid[number, column]
            axes.set(xscale="log", yscale="log")
            axes.grid(color="#dddddd", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
            for curve in panel.curves:
                if curve.row == row and curve.costs:
                    colour, marker, size = STYLES[contenders.index(curve.contender)]
                    style = {"color": colour, "marker": marker, "markersize": size, "linewidth": 1.6}
                    axes.plot(panel.sizes, curve.costs, label=curve.contender, **style)
            axes.set_xticks(panel.sizes, [short(size) for size in panel.sizes])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        grid[-1, column].set_xlabel(panel.name)
    for number, row in enumerate(rows):
        grid[number, 0].set_ylabel(row)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(contenders), frameon=False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def short(size: int) -> str:
    """65536 as 66k."""
    for limit, letter in ((1_000_000, "M"), (1000, "k")):
        if size >= limit:
            return f"{size / limit:.0f}{letter}"
    return str(size)
