"""The paper's fourth contribution: a comparison of the inner layers of the network with the outputs of the forests.

The paper finds the layers H3 and H6 "less thresholded" than the outputs of the forests: they also respond to
neighbouring parts, as if smoothed. Here, this is measured for each level on the test images, and drawn for one of them.
"""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from experiments.bench import Bench, Row
from hedgerow.errors import InputError
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledSet
from hedgerow.images.regions import Region
from hedgerow.io.model_file import load
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.tiling import region_outputs

NEGATIVE = -1e-3  # a smaller value is a negative activation, not a probability with a rounding error
TOUCHING = 20  # two classes are neighbours if at least this many pairs of their pixels touch in the truth
FARTHEST = 2  # measured responses: up to this many steps from a pixel's own class, along chains of neighbours


class LayerMeasures:
    """Measures of the activations (C,H,W) of a layer, summed over images.

    neighbour:  sums over pairs of neighbouring pixels, for a correlation: n, x, y, xx, yy, xy
    strongest:  at foreground pixels, sum of the largest activation's share of all activations, and number of pixels
    negative:   number of negative values, and number of values
    response:   (FARTHEST + 1,2) by distance from the pixel's own class: sum of activations, and their number
    """

    def __init__(self, distance: np.ndarray) -> None:
        """distance: (C,C) steps between classes along chains of neighbours"""
        self.distance = distance
        self.neighbour, self.strongest, self.negative = np.zeros(6), np.zeros(2), np.zeros(2)
        self.response = np.zeros((FARTHEST + 1, 2))

    def add(self, activation: np.ndarray, target: np.ndarray, background: int | None) -> None:
        """activation: (C,H,W); target: (H,W) class indices; background: index of a class to leave out, or None"""
        values = activation.astype(np.float64)
        foreground = (target != UNLABELLED_INDEX) & (target != background)
        for first, second in ((values[:, 1:], values[:, :-1]), (values[:, :, 1:], values[:, :, :-1])):
            x, y = first.ravel(), second.ravel()
            self.neighbour += [x.size, x.sum(), y.sum(), x @ x, y @ y, x @ y]
        sizes = np.abs(values[:, foreground])
        self.strongest += [(sizes.max(axis=0) / np.maximum(sizes.sum(axis=0), 1e-12)).sum(), foreground.sum()]
        self.negative += [(values < NEGATIVE).sum(), values.size]
        steps = self.distance[target[foreground]].T  # (C,S)
        for far in range(FARTHEST + 1):
            at = steps == far
            self.response[far] += [values[:, foreground][at].sum(), at.sum()]

    def result(self) -> dict[str, float]:
        n, x, y, xx, yy, xy = self.neighbour
        spread = np.sqrt(max(n * xx - x * x, 0) * max(n * yy - y * y, 0))
        total, count = self.response.T
        mean = total / np.maximum(count, 1)
        return {
            "neighbour_correlation": float((n * xy - x * y) / spread) if spread else 1.0,
            "strongest_share": float(self.strongest[0] / max(self.strongest[1], 1)),
            "negative_share": float(self.negative[0] / self.negative[1]),
            **{f"response_{far}": float(mean[far] / mean[0]) for far in range(1, FARTHEST + 1) if mean[0]},
        }


def class_distance(targets: Iterable[np.ndarray], n_classes: int, background: int | None) -> np.ndarray:
    """(C,C) number of steps between two classes along chains of classes that touch in the truth; the background, an
    index, counts as touching nothing."""
    pairs = np.zeros((n_classes, n_classes), np.int64)
    for target in targets:
        for a, b in ((target[1:], target[:-1]), (target[:, 1:], target[:, :-1])):
            known = (a != UNLABELLED_INDEX) & (b != UNLABELLED_INDEX) & (a != b)
            np.add.at(pairs, (a[known], b[known]), 1)
    touching = pairs + pairs.T >= TOUCHING
    if background is not None:
        touching[background] = touching[:, background] = False
    distance = np.full((n_classes, n_classes), n_classes, np.int64)
    np.fill_diagonal(distance, 0)
    reached = np.eye(n_classes, dtype=bool)
    for far in range(1, n_classes):
        further = (reached.astype(np.int64) @ touching.astype(np.int64) > 0) & ~reached
        distance[further] = far
        reached |= further
    return distance


def inner(bench: Bench) -> list[Row]:
    """For each layer of the network of the part `paper`, and of its forests: Dice of the strongest class, measures."""
    path = bench.model_path("paper", "ConvNet")
    if not path.exists():
        raise InputError("the part inner needs the network of the part paper; run that part too.")
    net = cast(StackNet, load(path)).to(bench.device)
    test, background = bench.test, _index(bench.test, bench.protocol.background)
    distance = class_distance((image.target for image in test), net.n_classes, background)
    rows: list[Row] = []
    for model, layer in ((net.stack, "DF"), (net, "H")):
        measures = [LayerMeasures(distance) for _ in range(net.n_levels)]
        predicted: list[list[np.ndarray]] = [[] for _ in range(net.n_levels)]
        for done, image in enumerate(test):
            bench.progress("inner layers", done, len(test))
            for level, output in enumerate(region_outputs(model, image.planes, Region.whole(image.size))):
                measures[level].add(output, image.target, background)
                predicted[level].append(output.argmax(axis=0).astype(np.uint8))
        for level in range(net.n_levels):
            name = f"DF, level {level + 1}" if layer == "DF" else _layer_name(level, net.n_levels)
            rows.append(_row(bench, name, test, predicted[level], measures[level]))
    return rows


def _layer_name(level: int, n_levels: int) -> str:
    return "ConvNet, output" if level + 1 == n_levels else f"ConvNet, H{3 * (level + 1)}"


def _index(labelled: LabelledSet, value: int | None) -> int | None:
    return None if value is None else labelled.classes.index(value)


def _row(bench: Bench, name: str, test: LabelledSet, predicted: list[np.ndarray], measures: LayerMeasures) -> Row:
    scores = test.score(predicted)
    found: dict[str, Any] = {"part": "inner", "model": name, "seed": bench.seed, "device": bench.device}
    return {**found, "mean_dice": scores.mean_dice, **measures.result()}
