"""Charts of the page, each small enough to be read on a phone; wide pages show several beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hedgerow.report.choices import OffsetMap, Shares
from hedgerow.report.embed import FAINT, INK, RULE, Picture, svg
from hedgerow.report.measure import Calibration
from hedgerow.report.words import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

# Of models, in their order: mid-tones that are seen on light and dark ground alike, and told apart without colour.
COLOURS = ("#3f7fb5", "#d1682c", "#3f9a63", "#a765b0", "#b08c1e", "#c2505f", "#5b8f99", "#858d86")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LEAF, BERRY = "#5c9440", "#b34a80"  # features, and the level before
SMALL = (4.4, 3.0)  # inches
MOST_BARS, LONGEST = 12, 16  # channels of a chart, letters of a name on an axis
MOST_NUMBERS = 8  # classes up to which a confusion matrix shows its numbers
MOST_TICKS = 8  # places along an axis that are all named

Line = Sequence[tuple[float, float, float]]


def model_colours(names: Sequence[str]) -> dict[str, str]:
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def line_chart(
    lines: Mapping[str, Line],
    x_label: str,
    y_label: str,
    alt: str,
    colours: Mapping[str, str] | None = None,
    log_x: bool = False,
) -> Picture:
    """`line_figure` for the page, which has its key beside it."""
    colours = colours or model_colours(list(lines))
    figure = line_figure(lines, x_label, y_label, colours, log_x)
    return svg(figure, alt, key={name: colours[name] for name in lines})


def line_figure(
    lines: Mapping[str, Line],
    x_label: str,
    y_label: str,
    colours: Mapping[str, str] | None = None,
    log_x: bool = False,
) -> Figure:
    """Lines through points (x, y, spread); a band, or a bar where there is one point, shows a spread above 0.

    colours: by name, more than the lines if they are shared with other charts
    """
    figure, axes = _axes()
    colours = colours or model_colours(list(lines))
    for name, points in lines.items():
        x, y, spread = np.array(points, np.float64).reshape(-1, 3).T
        marker = MARKERS[list(colours).index(name) % len(MARKERS)] if len(x) <= 30 else ""
        axes.plot(x, y, color=colours[name], marker=marker, markersize=4.5, linewidth=1.6, label=name)
        if (spread > 0).any() and len(x) > 1:
            axes.fill_between(x, y - spread, y + spread, color=colours[name], alpha=0.18, linewidth=0)
        elif (spread > 0).any():
            axes.errorbar(x, y, spread, color=colours[name], capsize=3, linewidth=1.2)
    places = sorted({float(x) for points in lines.values() for x, _, _ in points})
    if log_x:
        axes.set_xscale("log")
    if len(places) <= MOST_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    _name_axes(axes, x_label, y_label)
    return figure


def confusion_chart(
    matrix: np.ndarray, names: Sequence[str], colour: str, alt: str, title: str, caption: str
) -> Picture:
    """Confusion (C,C), rows the truth: the part of each row; colours follow the square root, so that little shows."""
    from matplotlib.colors import PowerNorm

    totals = matrix.sum(axis=1, keepdims=True)
    parts = np.divide(matrix, totals, out=np.zeros(matrix.shape), where=totals > 0)
    n, short = len(names), [shortened(name, LONGEST) for name in names]
    side = float(np.clip(0.17 * n, 2.7, 3.9))  # all lengths in inches: cells are squares, and names have their place
    size = float(np.clip(72 * side / n * 0.6, 6, 9))
    letters = max(map(len, short))
    is_upright = letters * size * 0.65 > 72 * side / n
    left, bottom = 0.4 + letters * size / 105, 0.4 + (letters * size / 105 if is_upright else size / 72)
    width, height = left + side + 0.75, bottom + side + 0.1
    figure = _figure((width, height), layout=None)
    axes = figure.add_axes((left / width, bottom / height, side / width, side / height))
    _quiet(axes, grid=False)
    drawn = axes.imshow(parts, cmap=_veil(colour), norm=PowerNorm(0.5, 0, 1), interpolation="nearest", aspect="auto")
    named = range(0, n, -(-int(n * size) // int(72 * side)))
    shown = [short[i] for i in named]
    axes.set_xticks(named, shown, fontsize=size, rotation=90 if is_upright else 0, parse_math=False)
    axes.set_yticks(named, shown, fontsize=size, parse_math=False)
    axes.tick_params(length=0)
    if n <= MOST_NUMBERS:
        for (row, column), part in np.ndenumerate(parts):
            ink = "white" if part > 0.25 else INK
            axes.text(column, row, f"{part:.2f}", ha="center", va="center", color=ink, fontsize=8)
    style: dict[str, Any] = {"fontsize": 9.5, "color": INK}
    figure.text((left + side / 2) / width, 0.05 / height, "predicted class", ha="center", va="bottom", **style)
    figure.text(0.05 / width, (bottom + side / 2) / height, "true class", rotation=90, va="center", **style)
    beside = figure.add_axes(((left + side + 0.12) / width, bottom / height, 0.1 / width, side / height))
    bar = figure.colorbar(drawn, cax=beside, ticks=[0, 0.05, 0.2, 0.5, 1])
    bar.outline.set_visible(False)
    _quiet(beside, grid=False)
    beside.set_yticklabels(["0", "5 %", "20 %", "50 %", "100 %"], fontsize=8)
    return svg(figure, alt, title, caption)


def reliability_chart(calibration: Calibration, colour: str, alt: str, title: str, caption: str) -> Picture:
    """Above: how often a confidence was right, beside the diagonal; below: how many pixels have it."""
    from matplotlib.ticker import PercentFormatter

    figure = _figure((3.3, 3.9))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for axes in (above, below):
        _quiet(axes)
    edges = np.linspace(0, 1, len(calibration.pixels) + 1)
    width = edges[1]
    above.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    known = calibration.pixels > 0
    x, y = calibration.mean_confidence[known], calibration.accuracy[known]
    above.plot(x, y, color=colour, marker="o", markersize=4, linewidth=1.6)
    above.vlines(x, np.minimum(x, y), np.maximum(x, y), color=colour, linewidth=3, alpha=0.25)
    above.set(xlim=(0, 1), ylim=(0, 1.02))
    below.bar(edges[:-1], calibration.pixels / calibration.pixels.sum(), width * 0.9, align="edge", color=colour)
    below.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    _name_axes(above, "", "share that is right")
    _name_axes(below, "confidence (winning probability)", "pixels")
    return svg(figure, alt, title, caption)


def channel_chart(shares: Shares, names: Sequence[str], n_features: int, alt: str, title: str, caption: str) -> Picture:
    """Bars of the channels that count most, weighted by depth; a dash marks their share of all splits."""
    from matplotlib.ticker import PercentFormatter

    largest = np.argsort(-shares.weighted, kind="stable")[:MOST_BARS]
    order = [int(c) for c in largest if shares.weighted[c] > 0]
    labels = [shortened(names[c], 20) for c in order]
    figure, axes = _axes((SMALL[0], 0.75 + 0.24 * len(labels)), grid=False)
    place = np.arange(len(labels))
    axes.barh(place, shares.weighted[order], 0.66, color=[LEAF if c < n_features else BERRY for c in order])
    axes.vlines(shares.plain[order], place - 0.42, place + 0.42, color=INK, linewidth=1.4)
    axes.set_yticks(place, labels, fontsize=9, parse_math=False)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.tick_params(axis="y", length=0)
    _name_axes(axes, "share of what the level looks at", "")
    return svg(figure, alt, title, caption)


def offset_chart(found: OffsetMap, is_feature: bool, unit: str, alt: str, title: str, caption: str) -> Picture:
    """A map of offsets around the pixel, where the lines cross; colours follow the square root."""
    from matplotlib.colors import PowerNorm

    figure, axes = _axes((3.3, 3.2), grid=False)
    limits = (-found.extent, found.extent, found.extent, -found.extent)
    colours = _veil(LEAF if is_feature else BERRY)
    # The pixel itself is often looked at more than all the rest, which would then be too pale to be seen.
    strongest = max(float(np.percentile(found.cells, 99)), 1e-12)
    axes.imshow(found.cells, colours, PowerNorm(0.5, 0, strongest), extent=limits, interpolation="nearest")
    axes.axhline(0, color=FAINT, linewidth=0.6)
    axes.axvline(0, color=FAINT, linewidth=0.6)
    _name_axes(axes, f"columns{unit}", f"rows{unit}")
    return svg(figure, alt, title, caption)


def _figure(size: tuple[float, float], layout: Literal["constrained"] | None = "constrained") -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def _axes(size: tuple[float, float] = SMALL, grid: bool = True) -> tuple[Figure, Axes]:
    figure = _figure(size)
    axes = figure.subplots()
    _quiet(axes, grid)
    return figure, axes


def _quiet(axes: Axes, grid: bool = True) -> None:
    """Axes that leave the eye to the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(RULE)
    for spine in axes.spines.values():
        spine.set_linewidth(0.8)
    axes.tick_params(colors=FAINT, labelsize=9, length=3, width=0.8)
    if grid:
        axes.grid(color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)


def _name_axes(axes: Axes, x: str, y: str) -> None:
    style: dict[str, Any] = {"fontsize": 9.5, "color": INK, "parse_math": False}
    axes.set_xlabel(x, **style)
    axes.set_ylabel(y, **style)


def _veil(colour: str) -> ListedColormap:
    """From nothing, whatever the ground, to a full colour."""
    from matplotlib.colors import ListedColormap, to_rgb

    shades = np.ones((256, 4))
    shades[:, :3] = to_rgb(colour)
    shades[:, 3] = np.linspace(0, 1, 256)
    return ListedColormap(shades)
