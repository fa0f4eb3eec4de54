"""What the figure of internal layers shows: maps of levels, in rows, on scales that let them be compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from hedgerow.errors import ModelError

MAX_SHOWN = 8  # classes, where the user names none
MAX_SIDE = 1024  # pixels of a map that are drawn: more than a panel can show
NEGATIVE = -1e-3  # below it a value is an activation, not a probability with rounding errors
OUTLIERS = 99.8  # percentile at which a colour scale ends


@dataclass(frozen=True)
class LevelMaps:
    """One level's output. maps: (S,h,w) float32 of the S shown classes; labels: (h,w) the likeliest class values."""

    maps: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Scale:
    """What the ends of a colour map stand for: from 0 or, if it is signed, from -high to high."""

    high: float
    signed: bool = False

    @property
    def low(self) -> float:
        return -self.high if self.signed else 0.0


@dataclass(frozen=True)
class Row:
    """A level to be drawn. name: lines of text; scales: one per shown class"""

    name: tuple[str, ...]
    level: LevelMaps
    scales: tuple[Scale, ...]

    @property
    def is_signed(self) -> bool:
        return self.scales[0].signed


def most_frequent(counts: np.ndarray, classes: Sequence[int]) -> list[int]:
    """At most MAX_SHOWN class values, in the order of `classes`: those with the highest counts (C,)."""
    return [classes[k] for k in sorted(np.argsort(-counts, kind="stable")[:MAX_SHOWN])]


def level_maps(output: np.ndarray, classes: Sequence[int], shown: Sequence[int]) -> LevelMaps:
    """What is drawn of a level's output (C,H,W): the maps of some classes, and the likeliest of all; thinned."""
    step = thinning(output.shape[1:], MAX_SIDE)
    thin = output[:, ::step, ::step]
    return LevelMaps(thin[[classes.index(value) for value in shown]], np.array(classes)[thin.argmax(axis=0)])


def thinning(size: Sequence[int], most: int) -> int:
    """The n of which every n-th row and column of a picture (H,W,...) is drawn, so that a side has at most `most`."""
    return -(-max(size[:2]) // most)


def plan_rows(
    forests: Sequence[LevelMaps], nets: Sequence[LevelMaps], convolutional: LevelMaps | None = None
) -> list[Row]:
    """Rows of the figure: forest and network in turn, or forests alone; a convolutional level comes last.

    A class has one scale in all rows of probabilities, so that forest and network can be compared; and one of its own
    in the rows of activations, whose range can be any.
    """
    named = []
    for number, (forest, net) in enumerate(zip_longest(forests, nets), 1):
        named.append((("forest", "DF", f"level {number}"), forest))
        if net is not None:
            named.append((("network", "ConvNet", "output" if number == len(nets) else f"H{3 * number}"), net))
    if convolutional is not None:
        named.append((("convolutional", "Deep", f"level {len(nets) + 1}"), convolutional))
    for name, level in named:
        if not np.isfinite(level.maps).all():
            raise ModelError(f"{' '.join(name)} has NaN or infinite values; refine the network again, in smaller steps")
    signed = [bool(level.maps.min() < NEGATIVE) for _, level in named]
    scales = {
        kind: class_scales([level.maps for (_, level), one in zip(named, signed, strict=True) if one is kind], kind)
        for kind in set(signed)
    }
    return [Row(name, level, scales[kind]) for (name, level), kind in zip(named, signed, strict=True)]


def class_scales(rows: Sequence[np.ndarray], signed: bool) -> tuple[Scale, ...]:
    """The scale of each class over rows of maps (S,h,w): up to the largest value of any row, but for a few outliers."""
    sizes = [np.abs(maps).reshape(len(maps), -1) for maps in rows]
    most = np.max([size.max(axis=1) for size in sizes], axis=0)
    usual = np.max([np.percentile(size, OUTLIERS, axis=1) for size in sizes], axis=0)
    # A class so rare that it would be cut off whole keeps its largest value; one that is nowhere has no range.
    high = np.where(usual > most / 20, usual, most)
    return tuple(Scale(float(one) if one > 1e-6 else 1.0, signed) for one in high)


def has_outliers(rows: Sequence[Row]) -> bool:
    """Whether some values lie beyond the scale that they are drawn on, by more than an eye would see."""
    return any(
        bool(np.abs(panel).max() > 1.02 * scale.high)
        for row in rows
        for panel, scale in zip(row.level.maps, row.scales, strict=True)
    )
