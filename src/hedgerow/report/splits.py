"""Sections on the input of splits: which channels they read, and at which offsets.

A model does not store how many samples reached a split. A split at depth d counts 2^-d instead: the fraction of pixels
that would reach it if every split above it were even. The probes of a split share its count in proportion to their
weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.report.charts import LETTER_WIDTH, SMALL_CHART, SvgAxes, SvgCanvas, ticks
from hedgerow.report.embed import EmbeddedImage
from hedgerow.report.formatting import counted, joined_words, percent, shortened
from hedgerow.report.sections import Comparison, Section

FEATURE_COLOUR, CLASS_COLOUR = "#5c9440", "#b34a80"  # of features, and of the probabilities of the level before
MAX_BARS, MAX_CHANNEL_NAME = 12, 20  # channels of a chart, letters of a channel's name
MAX_CELLS = 33  # on a side of a map of offsets; odd, so that one cell is the pixel itself


@dataclass(frozen=True)
class OffsetMap:
    """The offsets of a level. cells: (n,n) float64, sum 1, rows and columns between -extent and +extent.

    share:  the fraction of the level's weight that reads these channels
    median: half of the weight is within this distance from the pixel, in the units of the offsets
    """

    cells: np.ndarray
    extent: float
    share: float
    median: float


@dataclass(frozen=True)
class LevelChoices:
    """The channels and offsets that the splits of a level read.

    weighted, plain:         (M,) the share of each channel, weighted by depth, and by the number of probes
    of_features, of_classes: the offsets at which they read features, and the level before; None: they do not
    """

    weighted: np.ndarray
    plain: np.ndarray
    of_features: OffsetMap | None
    of_classes: OffsetMap | None


def node_depths(forest: Forest) -> np.ndarray:
    """(N,) int64: the number of splits above each node."""
    depth = np.zeros(forest.n_nodes, np.int64)
    nodes, level = forest.root[forest.is_split[forest.root]], 0
    while len(nodes):
        level += 1
        children = np.concatenate([forest.left_child[nodes], forest.left_child[nodes] + 1])
        depth[children] = level
        nodes = children[forest.is_split[children]]
    return depth


def probe_weights(forest: Forest) -> np.ndarray:
    """(N,J) float64: the weight of each probe. The sum is 1, or 0 for trees without splits."""
    size = np.abs(forest.weight.astype(np.float64)) * forest.is_split[:, None]
    total = size.sum(axis=1, keepdims=True)
    counts = np.divide(size, total, out=np.zeros_like(size), where=total > 0) * 2.0 ** -node_depths(forest)[:, None]
    return counts / max(counts.sum(), 1e-300)


def stack_choices(stack: ForestStack) -> list[LevelChoices]:
    """The channels and offsets of each level; all maps have the same extent, so that they can be compared."""
    extent = max(farthest(forest) for forest in stack.levels)
    choices = []
    for forest in stack.levels:
        weight = probe_weights(forest)
        used = (weight > 0).astype(np.float64)
        sums = [np.bincount(forest.channel.ravel(), w.ravel(), forest.n_channels) for w in (weight, used)]
        is_feature = forest.channel < stack.features.n_features
        maps = [offset_map(forest, np.where(mask, weight, 0), extent) for mask in (is_feature, ~is_feature)]
        choices.append(LevelChoices(sums[0], sums[1] / max(used.sum(), 1), *maps))
    return choices


def farthest(forest: Forest) -> float:
    """The largest offset in rows or columns that a split has."""
    return float(np.abs(forest.offset[forest.is_read][:, 1:]).max(initial=0.0))


def offset_map(forest: Forest, weight: np.ndarray, extent: float) -> OffsetMap | None:
    """The offsets in rows and columns of probes with `weight` (N,J), in any slice; None if all weights are 0."""
    share = float(weight.sum())
    if share <= 0:
        return None
    chosen = weight > 0
    offsets, counts = forest.offset[chosen][:, 1:].astype(np.float64), weight[chosen] / share
    # A cell is at least a pixel, and the middle one is centred on the pixel itself.
    half = min(int(np.ceil(extent)), MAX_CELLS // 2)
    edge = max(extent, 0.5) * (2 * half + 1) / max(2 * half, 1)
    edges = np.linspace(-edge, edge, 2 * half + 2)
    cells, _, _ = np.histogram2d(offsets[:, 0], offsets[:, 1], bins=(edges, edges), weights=counts)
    distance = np.hypot(offsets[:, 0], offsets[:, 1])
    order = np.argsort(distance, kind="stable")
    middle = min(int(np.searchsorted(np.cumsum(counts[order]), 0.5)), len(order) - 1)
    return OffsetMap(cells, float(edge), share, float(distance[order][middle]))


def split_choices(comparison: Comparison) -> list[Section]:
    """Which channels, and at which offsets, the forests of the first model read."""
    model = comparison.first
    stack, choices = model.stack, stack_choices(model.stack)
    if not any(level.weighted.any() for level in choices):
        return []
    n_features, unit = stack.features.n_features, stack.features.offset_unit
    names = (*stack.features.names, *comparison.classes.phrases)
    of_channels, of_offsets = [], []
    for number, level in enumerate(choices, 1):
        if level.weighted.any():
            of_channels.append(_channel_chart(number, level, names, n_features))
        of_offsets += [
            _offset_chart(number, offsets, is_feature, unit)
            for offsets, is_feature in ((level.of_features, True), (level.of_classes, False))
            if offsets is not None
        ]
    key = {"features of the image": FEATURE_COLOUR}
    key |= {"class probabilities of the level before": CLASS_COLOUR} if stack.n_levels > 1 else {}
    channels = (
        f"The channels that the splits of {model.name} read. In the bars, a split counts half as much as the one above "
        "it, as if each sent half of its pixels either way; the dashes mark the share of all splits, at any depth."
    )
    where = "The offsets from the pixel in the middle at which splits read their context. All maps have the same scale."
    if unit:
        where += f" The length of an offset in pixels depends on the pixel; the maps show it{unit}."
    radius = max(int(forest.radius.max()) for forest in stack.levels)
    if radius:
        where += f" The splits read means over boxes of up to {2 * radius + 1} pixels per side."
    return [
        Section("channels", "Which channels the forests chose", channels, of_channels, key),
        Section("offsets", "Which offsets the forests chose", where, of_offsets, key),
    ]


def _channel_chart(number: int, choices: LevelChoices, names: Sequence[str], n_features: int) -> EmbeddedImage:
    """Bars of the channels with the largest shares, weighted by depth; a dash marks the share of all splits."""
    weighted, plain = choices.weighted, choices.plain
    by_weight = np.argsort(-weighted, kind="stable")
    order = [int(c) for c in by_weight[:MAX_BARS] if weighted[c] > 0]
    caption = f"Most read: {joined_words([names[c] for c in order[:3]])}"
    if len(weighted) > n_features:
        caption += f"; {percent(weighted[n_features:].sum(), 0)} reads the level before"
    n_others = int((weighted > 0).sum()) - MAX_BARS
    if n_others > 0:
        caption += (
            f"; {percent(weighted[by_weight[MAX_BARS:]].sum(), 0)} goes to {counted(n_others, 'channel')} not shown"
        )
    alt = f"Bar chart of the channels that the splits of level {number} read. {caption}."
    labels = [shortened(names[c], MAX_CHANNEL_NAME) for c in order]
    left, bottom = 14 + 12 * LETTER_WIDTH * max(map(len, labels)), 10 + 23 * len(order)
    canvas = SvgCanvas(SMALL_CHART[0], bottom + 46)
    top = 1.05 * max(float(weighted[order].max()), float(plain[order].max()))
    axes = SvgAxes(canvas, (left, 6, SMALL_CHART[0] - 18, bottom), (0, top), (0, 1))
    axes.scales({value: percent(value) for value in ticks(0, top, 5)}, {}, "share of what the level reads")
    for place, channel in enumerate(order):
        y = 11 + 23 * place
        canvas.text(left - 8, y + 8, labels[place], anchor="end")
        fill = FEATURE_COLOUR if channel < n_features else CLASS_COLOUR
        canvas.rect(left, y, axes.x(float(weighted[channel])) - left, 16, fill, rounded=2)
        dash = axes.x(float(plain[channel]))
        canvas.line(dash, y - 2, dash, y + 18, css="ink", width=1.6)
    return canvas.image(alt, f"Level {number}", f"{caption}.")


def _offset_chart(number: int, offsets: OffsetMap, is_feature: bool, unit: str) -> EmbeddedImage:
    """A map of offsets around the pixel, where the lines cross; shades follow the square root."""
    title = f"Level {number}, {'features' if is_feature else 'classes'}"
    half = "at the pixel itself" if offsets.median < 0.5 else f"within {counted(round(offsets.median), 'pixel')}{unit}"
    caption = f"{percent(offsets.share, 0)} of its probes by weight, half of them {half}."
    alt = f"Map of the offsets at which splits read. {title}: {caption}"
    canvas, extent = SvgCanvas(316, 306), offsets.extent
    axes = SvgAxes(canvas, (56, 6, 306, 256), (-extent, extent), (extent, -extent))
    names = {value: text.replace("-", "\N{MINUS SIGN}") for value, text in ticks(-extent, extent, 5).items()}
    axes.scales(names, names, f"columns{unit}", f"rows{unit}")
    # The pixel itself is often read more than all others, which would be too pale to be seen.
    strongest = max(float(np.percentile(offsets.cells, 99)), 1e-12)
    colour, cell = FEATURE_COLOUR if is_feature else CLASS_COLOUR, 250 / len(offsets.cells)
    shades = np.minimum(offsets.cells / strongest, 1) ** 0.5
    for row, column in np.argwhere(shades > 0.02).tolist():
        canvas.rect(56 + column * cell, 6 + row * cell, cell, cell, colour, float(shades[row, column]))
    canvas.line(56, axes.y(0), 306, axes.y(0), css="faint", width=0.7)
    canvas.line(axes.x(0), 6, axes.x(0), 256, css="faint", width=0.7)
    return canvas.image(alt, title, caption)
