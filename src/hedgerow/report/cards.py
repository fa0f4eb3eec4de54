"""Models, scores and settings as Jupyter shows them: small tables of plain HTML.

Styles are inline and text has no colour, so that a card suits light and dark themes. There is no script; a viewer that
drops the styles still shows tables and numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.deep.any_model import AnyModel, parts_of
from hedgerow.deep.record import ENSEMBLE, held_out_words
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.images.legend import Legend, hex_of
from hedgerow.images.metrics import Scores
from hedgerow.report.formatting import cell, counted, setting_text
from hedgerow.settings import Checked

if TYPE_CHECKING:
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.stacknet import StackNet

MAX_CLASSES_SHOWN = 30  # shown with their colours; the others are only counted
MAX_COLUMNS = 64  # of a column chart; with more values, neighbours share a column
BAR_LENGTH, COLUMN_HEIGHT = 90, 34  # pixels, of a bar for the value 1, and of the highest column
LEAF_GREEN, RULE, TRACK = "#46a06b", "rgba(128,128,128,.35)", "rgba(128,128,128,.22)"
FAINT = "opacity:.68"
CARD_STYLE = (
    f"display:inline-block;box-sizing:border-box;max-width:100%;max-height:520px;overflow:auto;margin:2px 0;"
    f"padding:10px 14px 12px;border:1px solid {RULE};border-radius:8px;"
    "font:13px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;font-variant-numeric:tabular-nums;"
)
TABLE_STYLE = "border-collapse:collapse;border:none;margin:8px 0 0;font-size:13px;"
CELL_STYLE = "padding:2px 16px 2px 0;border:none;vertical-align:middle;background:none;"


def card(shown: Any) -> str:
    """The HTML of an object that has a card, see `model_methods.NotebookCard`."""
    tables = ((Forest, _forest), (Scores, _scores), (Legend, _legend), (Checked, _settings))
    other: Callable[[Any], list[str]] = _estimator if hasattr(shown, "get_params") else _model
    table = next((table for kind, table in tables if isinstance(shown, kind)), other)
    return f'<div style="{CARD_STYLE}">{"".join(table(shown))}</div>'


def _model(model: AnyModel) -> list[str]:
    stack, net, deep = parts_of(model)
    return _stack(stack) if net is None else _network(net) if deep is None else _deep(deep)


def _stack(stack: ForestStack) -> list[str]:
    known = stack.held_out_dice
    scores = [*known, *[math.nan] * (stack.n_levels - len(known))][: stack.n_levels]
    rows = [
        [number, forest.n_trees, forest.n_leaves, int(forest.tree_depths.max()), *([_bar(dice)] if known else [])]
        for number, (forest, dice) in enumerate(zip(stack.levels, scores, strict=True), 1)
    ]
    head = ["level", "trees", "leaves", "depth", *(["held-out Dice"] if known else [])]
    size = f"{counted(stack.n_levels, 'level')}, {counted(stack.n_classes, 'class', 'classes')}"
    kind = ", soft splits" if stack.is_soft else ""
    back = [f"mapped back: {stack.settings['mapped_back']}"] if "mapped_back" in stack.settings else []
    parts = [_title("ForestStack", size + kind), _table(head, rows)]
    return [*parts, _classes(stack.classes, stack.legend), _facts([*back, *_origin(stack)])]


def _network(net: StackNet) -> list[str]:
    return [*_network_tables(net), _classes(net.classes, net.legend), _facts(_network_facts(net))]


def _network_tables(net: StackNet) -> list[str]:
    rows = []
    for number in range(net.n_levels):
        level = net.level(number)
        splits, leaves, _ = level.layers(number + 1)
        rows.append(
            [number + 1, splits.neurons, leaves.neurons, sum(weights.numel() for weights in level.parameters())]
        )
    kinds = f"{net.split} splits, {counted(net.n_levels, 'level')}, {counted(net.n_classes, 'class', 'classes')}"
    parts = [_title("StackNet", kinds), _table(["level", "split neurons", "leaf neurons", "weights"], rows)]
    for record in net.refinements[-1:]:
        names = {"stack": "forests", "mapped": "network as mapped", "refined": "network refined"}
        scored = [[names[name], _bar(score)] for name, score in record.scores.items()]
        curve = [check.mean_dice for check in record.checks if check.mean_dice is not None]
        if scored:
            parts.append(_table(["", "Dice on unseen images"], scored))
        if len(curve) > 2:
            caption = f"Dice at {len(curve)} checks, from {curve[0]:.3f} to {curve[-1]:.3f}"
            parts.append(_columns(curve, caption))
    return parts


def _network_facts(net: StackNet) -> list[str]:
    steps = [f"refined for {counted(record.checks[-1].step, 'step')}" for record in net.refinements[-1:]]
    tuned = [] if net.tuned is None else ["encoder trained with it"]
    return [*(steps or ["not refined"]), *tuned, *_origin(net.stack), f"runs on {net.device}"]


def _deep(deep: DeepStack) -> list[str]:
    """The members of the convolutional level, then the network below it."""
    rows: list[list[Any]] = [
        [
            member.name,
            f"{member.weight:.3f}",
            counted(member.n_networks, "U-Net") if member.n_networks else "",
            "–".join(map(str, member.channels)),
            f"{member.n_weights:,}" if member.n_networks else "",
            _bar(math.nan if member.dice is None else member.dice),
        ]
        for member in deep.members
    ]
    rows.append([Html("<b>together</b>"), "", "", "", "", _bar(deep.record.scores.get(ENSEMBLE, math.nan))])
    size = f"{counted(deep.n_levels, 'level')}, the last convolutional, {counted(deep.n_classes, 'class', 'classes')}"
    head = ["member", "weight", "networks", "channels", "weights", "held-out Dice"]
    held = f"held out: {held_out_words(deep.record.held, deep.record.n_held)}"
    return [
        _title("DeepStack", size),
        _table(head, rows, total=True),
        _facts([held, f"receptive field of all levels: {deep.receptive_field} px"]),
        _below(_network_tables(deep.base)),
        _classes(deep.classes, deep.legend),
        _facts(_network_facts(deep.base)),
    ]


def _origin(stack: ForestStack) -> list[str]:
    """The input and the training images of a stack."""
    reads = f"{counted(stack.features.n_features, f'{stack.features.title} feature')} of "
    facts = [reads + counted(stack.features.n_inputs, "channel"), f"receptive field: {stack.receptive_field} px"]
    if "n_images" in stack.settings:
        kind = f" ({stack.image_dtype})" if stack.image_dtype else ""
        facts.append(f"trained on {counted(stack.settings['n_images'], 'image')}{kind}")
    return facts


def _forest(forest: Forest) -> list[str]:
    deepest, leaves = forest.tree_depths, np.add.reduceat((~forest.is_split).astype(np.int64), forest.root)
    size = f"{counted(forest.n_trees, 'tree')}, {counted(forest.n_classes, 'class', 'classes')}"
    kind = "" if forest.sharpness is None else ", soft splits"
    rows: list[list[Any]] = [
        ["nodes", forest.n_nodes],
        ["leaves", forest.n_leaves],
        ["depth", f"{deepest.min()} to {deepest.max()}"],
        ["reads", counted(forest.n_channels, "channel")],
        ["reach", counted(forest.reach, "pixel")],
    ]
    caption = f"leaves of each tree, from {leaves.min():,} to {leaves.max():,}"
    return [_title("Forest", size + kind), _table(None, rows), _columns(leaves.tolist(), caption)]


def _legend(legend: Legend) -> list[str]:
    known = sorted({*legend.names, *legend.colours})
    return [_title("Legend", counted(len(known), "class", "classes")), _classes(known, legend)]


def _scores(scores: Scores) -> list[str]:
    pixels = scores.confusion.sum(axis=1)
    rows: list[list[Any]] = [
        [_class_text(value, scores.names.get(value)), int(count), _bar(dice), cell(float(iou)), cell(float(recall))]
        for value, count, dice, iou, recall in zip(
            scores.classes, pixels, scores.dice, scores.iou, scores.recall, strict=True
        )
    ]
    means = [_bar(scores.mean_dice), cell(scores.mean_iou), cell(scores.balanced_accuracy)]
    rows.append([Html("<b>mean</b>"), int(pixels.sum()), *means])
    summary = f"mean Dice {cell(scores.mean_dice)}, accuracy {cell(scores.accuracy)}"
    head = ["class", "pixels", "Dice", "IoU", "recall"]
    return [_title("Scores", summary), _table(head, rows, total=True)]


def _settings(config: Checked) -> list[str]:
    rows = list(_settings_rows(config, type(config)()))
    changed, rest = ([row for is_changed, row in rows if is_changed is kind] for kind in (True, False))
    n_rows = counted(len(rows), "setting")
    summary = f"{len(changed)} of {n_rows} changed" if changed else "all settings at their defaults"
    parts = [_title(type(config).__name__, summary)]
    if changed:
        parts.append(_table(None, changed))
    if rest:
        label = "defaults" if changed else "show them"
        parts.append(
            f'<details style="margin-top:8px"><summary style="cursor:pointer;{FAINT}">{label}</summary>'
            f"{_table(None, rest)}</details>"
        )
    return parts


def _settings_rows(config: Checked, default: Checked, prefix: str = "") -> Iterable[tuple[bool, list[Any]]]:
    """Whether each setting is changed, and its cells; nested settings have names such as "sampling.step"."""
    for item in dataclasses.fields(config):  # type: ignore[arg-type]
        value, default_value = getattr(config, item.name), getattr(default, item.name)
        if isinstance(value, Checked):
            yield from _settings_rows(value, default_value or type(value)(), f"{prefix}{item.name}.")
        else:
            is_changed, text = value != default_value, escape(setting_text(value))
            about = Html(f'<span style="{FAINT}">{escape(item.metadata["about"])}</span>')
            yield is_changed, [f"{prefix}{item.name}", Html(f"<b>{text}</b>" if is_changed else text), about]


def _estimator(estimator: Any) -> list[str]:
    """A scikit-learn estimator, with its model if it is fitted."""
    model = getattr(estimator, "model_", None)
    parts = [_title(type(estimator).__name__, "fitted" if model is not None else "not fitted")]
    rows = [[name, Html(f"<b>{escape(setting_text(value))}</b>")] for name, value in estimator.changed().items()]
    if rows:
        parts.append(_table(None, rows))
    if model is None:
        return parts
    return [*parts, _below(_model(model))]


class Html(str):
    """Text that is HTML already."""


def _bar(score: float) -> Html:
    """A score from 0 to 1 as a bar with its number; NaN as a dash."""
    if math.isnan(score):
        return Html("–")
    length = round(BAR_LENGTH * min(max(score, 0), 1))
    inner = f'<span style="display:block;width:{length}px;height:8px;background:{LEAF_GREEN};border-radius:4px"></span>'
    track = (
        f'<span style="display:inline-block;width:{BAR_LENGTH}px;height:8px;margin-right:8px;background:{TRACK};'
        f'border-radius:4px;vertical-align:middle">{inner}</span>'
    )
    return Html(f'<span style="white-space:nowrap">{track}{score:.3f}</span>')


def _class_text(value: int, name: str | None) -> str:
    return str(value) if name is None else Html(f'<span style="{FAINT}">{value}</span> {escape(name)}')


def _below(parts: Iterable[str]) -> str:
    """Parts of a card under a line."""
    return f'<div style="margin-top:10px;padding-top:8px;border-top:1px solid {RULE}">{"".join(parts)}</div>'


def _title(kind: str, summary: str) -> str:
    return f'<div><b>{escape(kind)}</b> <span style="margin-left:6px;{FAINT}">{escape(summary)}</span></div>'


def _facts(facts: Iterable[str]) -> str:
    return f'<div style="margin-top:8px;font-size:12px;{FAINT}">{escape(" · ".join(facts))}</div>'


def _table(head: Sequence[str] | None, rows: Sequence[Sequence[Any]], total: bool = False) -> str:
    """Rows of cells; columns of whole numbers are aligned right. total: draw a line above the last row"""
    sides = [
        "right" if all(isinstance(value, int) for value in column) else "left" for column in zip(*rows, strict=True)
    ]
    lines = []
    if head is not None:
        cells = "".join(
            f'<th scope="col" style="{CELL_STYLE}text-align:{side};font-weight:normal;{FAINT}">{escape(name)}</th>'
            for name, side in zip(head, sides, strict=True)
        )
        lines.append(f'<tr style="background:none;border-bottom:1px solid {RULE}">{cells}</tr>')
    for number, row in enumerate(rows, 1):
        above = f"border-top:1px solid {RULE};" if total and number == len(rows) else ""
        cells = "".join(
            f'<td style="{CELL_STYLE}text-align:{side}">{_text(value)}</td>'
            for value, side in zip(row, sides, strict=True)
        )
        lines.append(f'<tr style="background:none;{above}">{cells}</tr>')
    return f'<table style="{TABLE_STYLE}">{"".join(lines)}</table>'


def _text(value: Any) -> str:
    if isinstance(value, Html):
        return value
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _classes(classes: Sequence[int], legend: Legend) -> str:
    """A square in the colour of each class, with its value and name."""
    palette = legend.palette(classes)
    longest = max((len(f"{value} {legend.names.get(value, '')}") for value in classes), default=0)
    # All have the same width, so that they form columns.
    chip = f"display:inline-block;min-width:{min(longest, 20) + 2}ch;margin:0 8px 2px 0;white-space:nowrap"
    square = (
        "display:inline-block;width:11px;height:11px;margin-right:5px;border-radius:3px;vertical-align:-1px;"
        f"border:1px solid {RULE};"
    )
    chips = [
        f'<span style="{chip}"><span style="{square}background:{hex_of(palette[value].tolist())}"></span>'
        f"{_class_text(value, legend.names.get(value))}</span>"
        for value in classes[:MAX_CLASSES_SHOWN]
    ]
    if len(classes) > MAX_CLASSES_SHOWN:
        chips.append(f'<span style="{FAINT}">and {len(classes) - MAX_CLASSES_SHOWN} more</span>')
    return f'<div style="margin-top:10px;max-width:560px">{" ".join(chips)}</div>'


def _columns(values: Sequence[float], caption: str) -> str:
    """Numbers as a column chart, with a caption."""
    groups = np.array_split(np.asarray(values, float), min(len(values), MAX_COLUMNS))
    means = np.array([group.mean() for group in groups])
    heights = np.maximum(np.round(COLUMN_HEIGHT * means / max(means.max(), 1e-12)), 1).astype(int)
    columns = "".join(
        f'<span style="display:inline-block;width:6px;height:{height}px;margin-right:2px;background:{LEAF_GREEN};'
        'border-radius:1px 1px 0 0;vertical-align:bottom"></span>'
        for height in heights.tolist()
    )
    style = f"margin-top:10px;line-height:{COLUMN_HEIGHT}px;white-space:nowrap"
    return (
        f'<div style="{style}" aria-hidden="true">{columns}</div>'
        f'<div style="font-size:12px;{FAINT}">{escape(caption)}</div>'
    )
