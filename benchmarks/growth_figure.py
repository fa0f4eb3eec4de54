"""The figure of `bench_growth`: a column of panels for each thing that grows, a row for each cost; log-log.

`python benchmarks/growth_figure.py` draws how it goes on where data are larger than memory, from the tables of
RESULTS.md: training on up to a thousand scribbled images, and prediction of images with a thousand million pixels.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STYLES = (("#0072B2", "o", 7.0), ("#009E73", "^", 5.0), ("#D55E00", "s", 4.5))
"""Colours for readers with any colour vision, and markers for grey print; the first marker is the largest."""


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


@dataclass(frozen=True)
class Growing:
    """Sizes (n,) and their costs; promised: the most megabytes."""

    title: str
    name: str
    sizes: Sequence[float]
    seconds: Sequence[float]
    megabytes: Sequence[float]
    promised: float


def read_page(page: str) -> list[Growing]:
    """The values in the first tables of the sections "Training on much" and "Large images"."""
    strokes = [row for row in _rows(page, "Training on much") if row[1] == "1,000^2"]
    workers = [row for row in _rows(page, "Large images") if row[1] == "2"]
    return [
        Growing(
            "training on scribbles, one thread", "images of one megapixel",
            *([_number(row[k]) for row in strokes] for k in (0, 2, 4)), 2000,
        ),
        Growing(
            "prediction by two workers", "million pixels of one image",
            [_number(row[0].removesuffix("^2")) ** 2 / 1e6 for row in workers],
            *([_number(row[k]) for row in workers] for k in (3, 5)), 1000,
        ),
    ]  # fmt: skip


def _rows(page: str, title: str) -> list[list[str]]:
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\|(.*)\|$", section, flags=re.MULTILINE)[2:]
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def draw_large(growing: Sequence[Growing], path: Path) -> None:
    """A column for each; below CPU seconds the memory, beside what was promised. Dashed: in proportion to the last."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure = Figure(figsize=(8, 6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, len(growing), sharex="col", squeeze=False)
    colour, marker, size = STYLES[0]
    style = {"color": colour, "marker": marker, "markersize": size, "linewidth": 1.6}
    for column, series in enumerate(growing):
        time, memory = grid[:, column]
        ends = (series.sizes[0], series.sizes[-1])
        share = [series.seconds[-1] * size / series.sizes[-1] for size in ends]
        time.plot(ends, share, color="#888888", linestyle="--", linewidth=1.2, label="in proportion")
        time.plot(series.sizes, series.seconds, **style)
        time.set(xscale="log", yscale="log", title=series.title, ylabel="CPU s")
        time.legend(frameon=False)
        memory.axhline(series.promised, color="#D55E00", linewidth=1.2, label="promised at most")
        memory.plot(series.sizes, series.megabytes, **style)
        memory.set(xscale="log", ylim=(0, 1.1 * series.promised), xlabel=series.name, ylabel="peak MB of a process")
        memory.legend(frameon=False, loc="center left")
        memory.set_xticks(series.sizes, [f"{size:,.0f}" for size in series.sizes])
        time.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for axes in (time, memory):
            axes.xaxis.set_minor_locator(NullLocator())
            axes.grid(color="#dddddd", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def short(size: int) -> str:
    """65536 as 66k."""
    for limit, letter in ((1_000_000, "M"), (1000, "k")):
        if size >= limit:
            return f"{size / limit:.0f}{letter}"
    return str(size)


if __name__ == "__main__":
    here = Path(__file__).parent
    draw_large(read_page((here / "RESULTS.md").read_text(encoding="utf-8")), here / "growth_large.png")
