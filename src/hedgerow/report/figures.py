"""The paper's figure of internal activation layers: stack beside network, level by level, class by class."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow import extras
from hedgerow.errors import InputError, ModelError
from hedgerow.features.protocol import FeatureSet
from hedgerow.files import PathLike, atomic_path, check_folder_writable
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.arrays import check_pair, to_labels, to_planes
from hedgerow.images.legend import Legend
from hedgerow.images.pictures import grey_picture, painted
from hedgerow.report.words import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hedgerow.network.stacknet import StackNet

ENDINGS = (".png", ".pdf", ".svg")
MAX_SHOWN = 8  # classes, where the user names none
PER_BLOCK = 10  # classes beside each other; more would make a figure too wide to read
MAX_NAME = 12  # letters of a class's name
MAX_SIDE = 1024  # pixels of a map that are drawn: more than a panel can show
NEGATIVE = -1e-3  # below it a value is an activation, not a probability with rounding errors
# Both are black at zero and even in lightness, so that in every row what is bright is strong.
SEQUENTIAL, DIVERGING = "magma", "berlin"
SCREEN = 80  # dots per inch in a notebook, whose files hold what is shown
FONT, LINE = 9, 0.19  # points, and inches of a line
MARGIN, GAP, NAME, BAR = 0.12, 0.06, 0.42, 0.9  # inches: between panels, for a row's name, for a colour bar


@dataclass(frozen=True)
class Scale:
    """The range of a colour bar; a diverging one is centred at zero."""

    low: float
    high: float
    diverging: bool = False


@dataclass(frozen=True)
class Row:
    """One level's output. maps: (S,H,W) float32 of the S shown classes; labels: (H,W) the likeliest class values."""

    name: str
    unit: str
    maps: np.ndarray
    labels: np.ndarray
    scale: Scale


def look(
    model: ForestStack | StackNet,
    image: np.ndarray,
    path: PathLike | None = None,
    *,
    classes: Sequence[int] | None = None,
    truth: np.ndarray | None = None,
    title: str = "",
) -> Drawing:
    """Draw what each level of a stack, or of a network and the stack it came from, makes of an image.

    The drawing shows itself in Jupyter, and can be saved; with `path`, it is.
    image:   (H,W[,C]), or (F,H,W) for a model of the user's own channels, as for `predict`
    path:    a name that ends in .png, .pdf or .svg
    classes: class values to show, in this order; None: the most frequent in the prediction, at most MAX_SHOWN
    truth:   (H,W) class values

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> hr.look(stack, images[0], "inside.png", truth=labels[0]).save("inside.pdf")
    """
    if path is not None:
        check_ending(path)
    for value in classes or ():
        if value not in model.classes:
            raise InputError(
                f"class {value} is not one of the model's; choose from {', '.join(map(str, model.classes))}"
            )
    planes = to_planes(image, layout=model.features.layout)
    sides = {"image": input_picture(planes, model.features)}
    if truth is not None:
        truth = to_labels(truth, "the truth")
        check_pair(planes, truth, "the truth")
        sides["truth"] = painted(truth, model.legend.palette(model.classes))
    extras.require("matplotlib", "a figure")
    if path is not None:
        check_folder_writable(Path(path).parent)  # before the prediction, which may take minutes

    outputs = model.level_outputs(image)
    forests, nets = (outputs, []) if isinstance(model, ForestStack) else (model.stack.level_outputs(image), outputs)
    shown = list(dict.fromkeys(classes or most_frequent(outputs[-1], model.classes)))
    rows = plan_rows(forests, nets, model.classes, shown)
    drawing = Drawing(draw(rows, shown, model.classes, sides, title, None, model.legend))
    if path is not None:
        drawing.save(path)
    return drawing


@dataclass(frozen=True)
class Drawing:
    """A figure of matplotlib that shows itself in Jupyter, whichever backend is chosen there."""

    figure: Figure

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"Drawing({width:.1f} x {height:.1f} inches)"

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=SCREEN)
        return file.getvalue()

    def save(self, path: PathLike) -> None:
        """Write the figure; the name ends in .png, .pdf or .svg."""
        ending = check_ending(path)
        with atomic_path(path) as temporary:
            self.figure.savefig(temporary, format=ending[1:])


def check_ending(path: PathLike) -> str:
    """The ending of a figure's name, which tells its format."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"cannot write {path}: the name of a figure must end in {', '.join(ENDINGS)}")
    return ending


def input_picture(planes: np.ndarray, features: FeatureSet) -> np.ndarray:
    """(H,W,3) uint8 of an image (C,H,W) that these features read."""
    return grey_picture(planes, features.blank)


def most_frequent(output: np.ndarray, classes: Sequence[int]) -> list[int]:
    """At most MAX_SHOWN class values, in the order of `classes`: those that most pixels of an output (C,H,W) have."""
    counts = np.bincount(output.argmax(axis=0).ravel(), minlength=len(classes))
    return [classes[k] for k in sorted(np.argsort(-counts, kind="stable")[:MAX_SHOWN])]


def plan_rows(
    forests: Sequence[np.ndarray], nets: Sequence[np.ndarray], classes: Sequence[int], shown: Sequence[int]
) -> list[Row]:
    """Rows of the figure from the levels' outputs, each (C,H,W): forest and network in turn, or forests alone."""
    step = thinning(forests[0].shape[1:], MAX_SIDE)
    chosen = [classes.index(value) for value in shown]
    common = scale_of(np.concatenate([output[chosen, ::step, ::step] for output in forests]))
    rows = []
    for number, (forest, net) in enumerate(zip_longest(forests, nets), 1):
        named = [(f"DF level {number}", "probability", forest)]
        if net is not None and number == len(nets):
            named.append(("ConvNet output", "probability", net))
        elif net is not None:
            named.append((f"ConvNet H{3 * number}", "activation", net))
        for name, unit, output in named:
            if not np.isfinite(output).all():
                raise ModelError(f"{name} has NaN or infinite values; refine the network again, in smaller steps")
            maps = output[chosen, ::step, ::step]
            own = scale_of(maps)
            labels = np.array(classes)[output[:, ::step, ::step].argmax(axis=0)]
            rows.append(Row(name, unit, maps, labels, common if output is forest or alike(own, common) else own))
    return rows


def thinning(size: Sequence[int], most: int) -> int:
    """The n of which every n-th row and column of a picture (H,W,...) is drawn, so that a side has at most `most`."""
    return -(-max(size[:2]) // most)


def scale_of(maps: np.ndarray) -> Scale:
    """The range of maps (S,H,W) without the outermost 0.5 % of each; centred at zero if any value is negative."""
    if maps.min() < NEGATIVE:
        limit = np.percentile(np.abs(maps), 99.5, axis=(1, 2)).max() or np.abs(maps).max()
        return Scale(-float(limit), float(limit), diverging=True)
    # Of each map, not of all together: a small class would be lost among the zeros of the others.
    low, high = np.percentile(maps, (0.5, 99.5), axis=(1, 2))
    if high.max() - low.min() < 1e-6:  # one value everywhere has no range of its own
        return Scale(0.0, max(1.0, float(high.max())))
    return Scale(float(low.min()), float(high.max()))


def alike(scale: Scale, common: Scale) -> bool:
    """Whether maps of one range can be read on the other: no sign lost, neither all dark nor all bright."""
    return not scale.diverging and common.high / 2 <= scale.high <= common.high * 2


def beyond(rows: Sequence[Row]) -> str:
    """At which ends of the rows' one colour bar values lie beyond it, in matplotlib's words."""
    scale = rows[0].scale
    slack = 0.01 * (scale.high - scale.low)  # what no eye would see is not worth an arrow
    low = any(row.maps.min() < scale.low - slack for row in rows)
    high = any(row.maps.max() > scale.high + slack for row in rows)
    return "both" if low and high else "min" if low else "max" if high else "neither"


def draw(
    rows: Sequence[Row],
    shown: Sequence[int],
    classes: Sequence[int],
    sides: Mapping[str, np.ndarray],
    title: str = "",
    background: int | None = None,
    legend: Legend | None = None,
) -> Figure:
    """The figure: at the left pictures (H,W,3) by name, then blocks of rows, at most PER_BLOCK classes each, and a key.

    `background` is a class that is drawn near black. Lengths are in inches and follow from the panels: text stays
    legible however many there are.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    legend = legend or Legend()
    palette = legend.palette(classes, background)
    n_blocks = -(-len(shown) // PER_BLOCK)
    across = -(-len(shown) // n_blocks)
    slope = np.sqrt(np.clip(np.divide(*rows[0].labels.shape), 1 / 4, 4))
    size = np.clip(12 / (across + 2), 1.3, 2.4)
    cell = np.array([size / slope, max(size * slope, 0.7)]) + GAP
    side = cell * np.clip(min(len(rows) / len(sides), 2.7 / cell[0]), 1, 2)
    left = MARGIN + NAME / 2 + side[0] + NAME
    width = left + cell[0] * (1 + across) + BAR
    heading = textwrap.wrap(title, int(9 * width))
    top = MARGIN + 1.3 * LINE * len(heading) + LINE
    below = top + n_blocks * (cell[1] * len(rows) + LINE) - LINE
    called = {value: shortened(legend.name(value), MAX_NAME) for value in classes}
    step = 0.35 + 0.08 * max(map(len, called.values()))
    per_line = max(1, int((width - left - MARGIN) / step))
    notes = notes_on(rows, len(shown), len(classes))
    bottom = below + LINE * (-(-len(classes) // per_line) + len(notes))
    height = max(bottom, top + side[1] * len(sides)) + MARGIN
    figure = Figure(figsize=(width, height), dpi=150)
    FigureCanvasAgg(figure)

    for number, line in enumerate(heading):
        _write(figure, MARGIN, MARGIN + 1.3 * LINE * number, line, fontsize=FONT + 2)
    for number, (name, panel) in enumerate(sides.items()):
        axes = _axes(figure, MARGIN + NAME / 2, top + number * side[1], *(side - GAP))
        every = thinning(panel.shape, MAX_SIDE)
        axes.imshow(panel[::every, ::every])
        axes.set_ylabel(name, fontsize=FONT)
    for block in range(n_blocks):
        part = slice(block * across, (block + 1) * across)
        some = [replace(row, maps=row.maps[part]) for row in rows]
        names = [called[value] if value in legend.names else f"class {value}" for value in shown[part]]
        colours = [palette[value] for value in shown[part]]
        above = top + block * (cell[1] * len(rows) + LINE)
        _draw_block(figure, some, list(zip(names, colours, strict=True)), palette, left, above, cell)
    for number, value in enumerate(classes):
        place = left + step * (number % per_line), below + LINE * (number // per_line)
        _write_class(figure, *place, called[value], palette[value])
    for number, note in enumerate(notes):
        _write(figure, left, bottom - LINE * (len(notes) - number), note)
    return figure


def notes_on(rows: Sequence[Row], n_shown: int, n_classes: int) -> list[str]:
    """What a reader must know to trust the figure."""
    notes = ["Colours follow the square root of a value, so that weak responses show."]
    if n_shown < n_classes:
        notes.insert(0, f"{n_classes - n_shown} of {n_classes} classes are left out of the panels.")
    if any(beyond([row]) != "neither" for row in rows):
        notes.append("Where a colour bar ends in an arrow, some values lie beyond it.")
    return notes


def _draw_block(
    figure: Figure,
    rows: Sequence[Row],
    shown: Sequence[tuple[str, np.ndarray]],
    palette: Mapping[int, np.ndarray],
    left: float,
    top: float,
    cell: np.ndarray,
) -> None:
    """Label map and class maps of each row in cells (width, height), and a colour bar for each run of one scale.

    shown: name and colour of each class in this block
    """
    from matplotlib.colors import FuncNorm

    _write(figure, left, top - LINE, "labels")
    for column, (name, colour) in enumerate(shown, 1):
        _write_class(figure, left + column * cell[0], top - LINE, name, colour)
    for scale, run in groupby(rows, key=lambda row: row.scale):
        same = list(run)
        cmap = DIVERGING if scale.diverging else SEQUENTIAL
        norm = FuncNorm((_signed_root, _signed_square), scale.low, scale.high)
        for number, row in enumerate(same):
            axes = _axes(figure, left, top + number * cell[1], *(cell - GAP))
            axes.imshow(painted(row.labels, palette))
            axes.set_ylabel(row.name.replace(" ", "\n", 1), fontsize=FONT)
            for column, panel in enumerate(row.maps, 1):
                axes = _axes(figure, left + column * cell[0], top + number * cell[1], *(cell - GAP))
                drawn = axes.imshow(panel, cmap=cmap, norm=norm)
        place = _axes(figure, left + (1 + len(shown)) * cell[0], top, 0.12, len(same) * cell[1] - GAP)
        bar = figure.colorbar(drawn, cax=place, extend=beyond(same))
        bar.set_label(" or ".join(dict.fromkeys(row.unit for row in same)), fontsize=FONT)
        bar.ax.tick_params(labelsize=FONT - 1)
        top += len(same) * cell[1]


def _signed_root(values: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.sqrt(np.abs(values))


def _signed_square(values: np.ndarray) -> np.ndarray:
    return values * np.abs(values)


def _axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes without ticks whose top left corner is (x, y) inches from the figure's."""
    across, down = figure.get_size_inches()
    axes = figure.add_axes((x / across, 1 - (y + height) / down, width / across, height / down))
    axes.set(xticks=[], yticks=[])
    return axes


def _write(figure: Figure, x: float, y: float, text: str, **style: Any) -> None:
    """Text whose top left corner is (x, y) inches from the figure's; a dollar sign in a title is no formula."""
    across, down = figure.get_size_inches()
    figure.text(x / across, 1 - y / down, text, va="top", parse_math=False, **{"fontsize": FONT} | style)


def _write_class(figure: Figure, x: float, y: float, name: str, colour: np.ndarray) -> None:
    """What a class is called, behind a square of its colour."""
    _write(figure, x, y, "\N{BLACK SQUARE}", color=colour / 255)
    _write(figure, x + 0.14, y, name)
