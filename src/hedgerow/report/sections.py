"""The sections of the page: what was measured, in pictures and tables. One without data is None."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.history import Check, Refinement
from hedgerow.forest.level_input import tiles
from hedgerow.images.labelled import LabelledImage
from hedgerow.images.pictures import painted
from hedgerow.predict.run import region_outputs
from hedgerow.report import charts, figures
from hedgerow.report.choices import LevelChoices, OffsetMap, stack_choices
from hedgerow.report.embed import Picture, figure_picture
from hedgerow.report.kinds import spoken
from hedgerow.report.layers import KeptLayers, Window
from hedgerow.report.measure import Measured
from hedgerow.report.members import members_table
from hedgerow.report.results import Table
from hedgerow.report.rows import LevelMaps, plan_rows
from hedgerow.report.same import same_stack
from hedgerow.report.shown import ShownClasses
from hedgerow.report.words import counted, listed

MOST_OPEN = 3  # models whose confusion is shown at once


@dataclass(frozen=True)
class Section:
    """A heading, a few sentences, and pictures that share out the width; `key`: text to CSS colour."""

    id: str
    title: str
    text: str
    pictures: tuple[Picture, ...]
    key: Mapping[str, str]
    is_wide: bool = False
    folded: tuple[Picture, ...] = ()
    folded_title: str = ""
    tables: tuple[Table, ...] = ()

    @property
    def width(self) -> int:
        """Of the widest picture, in CSS pixels."""
        return max((picture.width for picture in self.pictures), default=0)


def levels(measured: Sequence[Measured], colours: Mapping[str, str]) -> Section | None:
    """The score after each level, of models with more than one."""
    deep = [one for one in measured if one.model.n_levels > 1]
    if not deep:
        return None
    lines: dict[str, charts.Line] = {
        one.name: [(k, scores.mean_dice, 0.0) for k, scores in enumerate(one.per_level, 1)][shared(one, measured) :]
        for one in deep
    }
    told = "; ".join(f"{one.name} {', '.join(f'{scores.mean_dice:.3f}' for scores in one.per_level)}" for one in deep)
    alt = f"Mean Dice on the test images after each level: {told}"
    drawn = charts.line_chart(lines, "level", "mean Dice", alt, colours)
    text = f"Each level reads what the level before it said of the surroundings. Mean Dice after each: {told}."
    return Section("levels", "What each level adds", text, (drawn,), drawn.key)


def shared(one: Measured, measured: Sequence[Measured]) -> int:
    """How many points of a deep stack's line would lie on that of its network, if it is among the models."""
    n_levels = one.model.n_levels - 1
    mine = [scores.mean_dice for scores in one.per_level[:n_levels]]
    is_there = any([scores.mean_dice for scores in other.per_level] == mine for other in measured)
    return n_levels - 1 if one.members and is_there else 0


def members(measured: Sequence[Measured]) -> Section | None:
    """What the levels and the members of deep stacks are worth on these images."""
    tables = tuple(members_table(one, measured) for one in measured if one.members)
    if not tables:
        return None
    text = (
        "The last level of a deep stack is convolutional: the mean of what its members say, by their weights. Here is "
        "what each level and each member alone makes of the images of this page."
    )
    return Section("members", "What the convolutional level adds", text, (), {}, tables=tables)


def training(measured: Sequence[Measured], colours: Mapping[str, str]) -> Section | None:
    """Loss and score of every refinement that a model remembers."""
    histories: dict[str, list[Check]] = {}
    notes = []
    for one in measured:
        checks = joined_checks(one.model.refinements)
        if not checks or checks in histories.values():
            continue  # a soft forest remembers the refinement of the network that it was
        histories[one.name] = checks
        scores = one.model.refinements[-1].scores
        if scores:
            told = ", ".join(f"{_SCORED[what]} {score:.3f}" for what, score in scores.items())
            notes.append(f"{one.name}: mean Dice {told}.")
    pictures = []
    for what, label in (("loss", "loss"), ("mean_dice", "mean Dice")):
        lines: dict[str, charts.Line] = {}
        for name, checks in histories.items():
            known = [(check.step, getattr(check, what)) for check in checks]
            points = [(step, float(value), 0.0) for step, value in known if value is not None]
            if len(points) > 1:
                lines[name] = points
        if lines:
            told = "; ".join(f"{name} from {points[0][1]:.3g} to {points[-1][1]:.3g}" for name, points in lines.items())
            alt = f"{label} over the steps of refinement: {told}"
            pictures.append(charts.line_chart(lines, "step", label, alt, colours))
    if not pictures:
        return None
    text = "The loss is that of the training images."
    if notes or len(pictures) > 1:
        text += " Scores are of images that neither the forests nor the refinement saw, and not of those on this page."
    key = {name: colours[name] for name in histories}
    return Section("training", "Refinement", " ".join([text, *notes]), tuple(pictures), key)


_SCORED = {"stack": "of its forests", "mapped": "of the network before", "refined": "after"}


def joined_checks(refinements: Sequence[Refinement]) -> list[Check]:
    """The checks of successive refinements, their steps counted on; each begins where the one before ended."""
    checks: list[Check] = []
    for refinement in refinements:
        start = checks[-1].step if checks else 0
        # Before 0.2.0, scores came from images that the forests had seen.
        told = [c if refinement.n_scored else replace(c, mean_dice=None) for c in refinement.checks]
        checks += [replace(check, step=start + check.step) for check in told[bool(checks) :]]
    return checks


def confusions(
    measured: Sequence[Measured], best: Measured, known: ShownClasses, swatches: Sequence[str],
    colours: Mapping[str, str],
) -> Section:  # fmt: skip
    """Of every model; beyond a few, all but the first and the best are folded away. swatches: of the classes, CSS"""
    pictures: list[Picture] = []
    folded: list[Picture] = []
    for one in measured:
        worst = _mistakes(one, known.spoken)
        alt = f"Confusion matrix of {one.name}; rows are the true classes, each row sums to one. {worst}"
        drawn = charts.confusion_chart(
            one.scores.confusion, known.names, swatches, colours[one.name], alt, one.name, worst
        )
        is_open = len(measured) <= MOST_OPEN or one is measured[0] or one is best
        (pictures if is_open else folded).append(drawn)
    text = "Each row shows what the pixels of one true class were taken for. The diagonal is what is right."
    title = f"Those of the other {counted(len(folded), 'model')}"
    return Section("confusion", "What is mistaken for what", text, tuple(pictures), {}, False, tuple(folded), title)


def _mistakes(one: Measured, names: Sequence[str]) -> str:
    """The most frequent mistakes in words, as parts of their true class."""
    matrix = one.scores.confusion
    totals = np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    parts = matrix / totals
    np.fill_diagonal(parts, 0)
    order = np.argsort(-parts, axis=None, kind="stable")[:3]
    found = [(int(i) // len(names), int(i) % len(names)) for i in order if parts.flat[i] >= 0.005]
    if not found:
        return "Hardly anything is mistaken."
    told = [f"{names[row]} for {names[column]} ({parts[row, column]:.0%})" for row, column in found]
    return f"Most often it takes {listed(told)}.".replace("%", " %")


def layers(
    chosen: Measured,
    measured: Sequence[Measured],
    image: LabelledImage,
    window: Window,
    truth: np.ndarray,
    known: ShownClasses,
) -> Section:
    """The figure of `look`, of what was kept of one image; truth: (h,w) class values of the window"""
    from hedgerow.report import panels

    is_forest = isinstance(chosen.model, ForestStack)
    forests, above = (
        (chosen.layers, ()) if is_forest else (forest_layers(chosen, measured, image, window), chosen.layers)
    )
    n_levels = len(forests)
    sides = {
        "image": figures.input_picture(window.thinned(image.planes), chosen.model.features),
        "truth": painted(truth, known.palette),
    }
    drawn = panels.draw(plan_rows(forests, above[:n_levels], *above[n_levels:]), window.shown, known, sides)
    what = (
        "probabilities after each level" if is_forest else "probabilities of the forests beside layers of the network"
    )
    what += ", and the convolutional level" if len(above) > n_levels else ""
    alt = f"Class by class, the {what} of {chosen.name} on {image.name}"
    text = (
        f"What every level of {spoken(chosen.name)} makes of {image.name}, class by class. "
        "Bright is strong; the first column shows the likeliest class."
    )
    size = (window.region.height, window.region.width)
    if size != image.size:
        text += f" Drawn is the middle of the image, {size[0]} by {size[1]} pixels."
    return Section("layers", "Inside the model", text, (figure_picture(figure=drawn, alt=alt),), {}, is_wide=True)


def forest_layers(
    network: Measured, measured: Sequence[Measured], image: LabelledImage, window: Window
) -> tuple[LevelMaps, ...]:
    """What the forests of a network make of the image: as measured, if they are among the models, else they run."""
    for one in measured:
        if isinstance(one.model, ForestStack) and same_stack(one.model, network.stack):
            return one.layers
    kept = KeptLayers(window, network.stack)
    for region in tiles(network.stack, image.size):
        kept.add(region_outputs(network.stack, image.planes, region), region)
    return kept.levels()


def calibration(measured: Sequence[Measured], colours: Mapping[str, str]) -> Section:
    pictures = []
    for one in measured:
        found = one.calibration
        sure = float(found.confidence.sum() / found.pixels.sum())
        caption = f"Expected calibration error {found.expected_error:.3f}; mean confidence {sure:.3f}, "
        caption += f"pixels right {one.scores.accuracy:.3f}."
        alt = f"Reliability diagram and histogram of confidence of {one.name}. {caption}"
        pictures.append(charts.reliability_chart(found, colours[one.name], alt, one.name, caption))
    text = (
        "A model is calibrated if, of the pixels that it is 80 % sure of, 80 % are right: points on the dashed line. "
        "Above the line it is better than it believes, below it is too sure. The bars count the labelled pixels."
    )
    return Section("calibration", "How well calibrated they are", text, tuple(pictures), {})


def choices(one: Measured, classes: Sequence[str]) -> list[Section]:
    """Which channels, and which offsets, the forests of a model chose; classes: their names"""
    stack = one.stack
    found = stack_choices(stack)
    if not any(level.shares.weighted.any() for level in found):
        return []
    n_features, names = stack.features.n_features, (*stack.features.names, *classes)
    unit = stack.features.offset_unit
    of_channels, of_offsets = [], []
    for number, level in enumerate(found, 1):
        if level.shares.weighted.any():
            of_channels.append(_channel_picture(number, level, names, n_features))
        of_offsets += [
            _offset_picture(number, part, is_feature, unit)
            for part, is_feature in ((level.of_features, True), (level.of_classes, False))
            if part is not None
        ]
    key = {"features of the image": charts.LEAF}
    key |= {"classes, as the level before sees them": charts.BERRY} if stack.n_levels > 1 else {}
    counts = (
        f"The splits of {one.name}. For the bars, a split counts half as much as the one above it, as if each sent "
        "half of its pixels either way. The dashes mark the share of all splits, wherever they are in their tree."
    )
    radius = max(int(forest.radius.max()) for forest in stack.levels)
    where = "Where splits look, seen from the pixel in the middle: the context they use. All maps have one scale. "
    if unit:
        where += f"How many pixels long an offset is depends on the pixel; it is drawn as it is{unit}. "
    if radius:
        where += f"They read means over boxes of up to {2 * radius + 1} pixels per side."
    return [
        Section("channels", "Which channels the forests chose", counts, tuple(of_channels), key),
        Section("offsets", "Which offsets the forests chose", where.strip(), tuple(of_offsets), key),
    ]


def _channel_picture(number: int, level: LevelChoices, names: Sequence[str], n_features: int) -> Picture:
    weighted = level.shares.weighted
    order = np.argsort(-weighted, kind="stable")
    n_others = int((weighted > 0).sum()) - charts.MOST_BARS
    caption = f"Above all {listed([names[c] for c in order[:3] if weighted[c] > 0])}"
    if len(weighted) > n_features:
        caption += f"; {weighted[n_features:].sum():.0%} reads the level before"
    if n_others > 0:
        rest = weighted[order[charts.MOST_BARS :]].sum()
        caption += f"; {rest:.0%} goes to {counted(n_others, 'channel')} not shown"
    caption = f"{caption}.".replace("%", " %")
    alt = f"Bar chart of the channels that the splits of level {number} read. {caption}"
    return charts.channel_chart(level.shares, names, n_features, alt, f"Level {number}", caption)


def _offset_picture(number: int, part: OffsetMap, is_feature: bool, unit: str) -> Picture:
    title = f"Level {number}, {'features' if is_feature else 'classes'}"
    half = "at the pixel itself" if part.median < 0.5 else f"within {counted(round(part.median), 'pixel')}{unit}"
    caption = f"{part.share:.0%} of its probes by weight, half of them {half}.".replace("%", " %")
    alt = f"Map of the offsets at which splits look. {title}: {caption}"
    return charts.offset_chart(part, is_feature, unit, alt, title, caption)
