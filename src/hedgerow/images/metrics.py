"""Measures the agreement of predictions with labels: Dice, IoU and accuracies, all from the confusion matrix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.array_checks import UNLABELLED_INDEX, encode_labels, filled_labels, to_labels
from hedgerow.model_methods import NotebookCard

MEANS: Mapping[str, str] = {
    "mean_dice": "mean Dice",
    "mean_iou": "mean IoU",
    "accuracy": "pixel accuracy",
    "balanced_accuracy": "balanced accuracy",
}
"""Properties of Scores that measure a whole set of images, with their headings. `evaluate` prints and writes the
measures in this table, and reports show them."""


def confusion(truth: np.ndarray, predicted: np.ndarray, n_classes: int) -> np.ndarray:
    """Count pixels by true class (rows) and predicted class (columns): (C,C) int64.

    Both arrays hold class indices and have the same shape. Pixels whose truth is UNLABELLED_INDEX are ignored.
    """
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    if truth.shape != predicted.shape:
        raise InputError(f"the truth has shape {truth.shape} and the prediction {predicted.shape}, expected the same.")
    labelled = truth != UNLABELLED_INDEX
    rows = truth[labelled].astype(np.int64)
    columns = predicted[labelled].astype(np.int64)
    for indices, what in ((rows, "truth"), (columns, "prediction")):
        if indices.size and not (indices.min() >= 0 and indices.max() < n_classes):
            raise InputError(
                f"the {what} has class indices from {indices.min()} to {indices.max()}, expected 0 to"
                f" {n_classes - 1} wherever the truth is labelled."
            )
    return np.bincount(rows * n_classes + columns, minlength=n_classes**2).reshape(n_classes, n_classes)


@dataclass(frozen=True, eq=False)
class Scores(NotebookCard):
    """Measures of agreement over the labelled pixels of all images together.

    classes:   class values, in the order of every per-class array
    confusion: (C,C) int64 pixel counts; rows are the truth, columns the prediction
    names:     class value -> name, for classes that have one

    >>> hr.Scores(classes=(0, 1), confusion=np.array([[90, 10], [0, 100]]))
    Scores(mean Dice 0.9499, balanced accuracy 0.9500, accuracy 0.9500, 2 classes, 200 pixels)
    """

    classes: tuple[int, ...]
    confusion: np.ndarray
    names: Mapping[int, str] = field(default_factory=dict)

    @property
    def dice(self) -> np.ndarray:
        """Dice of each class, (C,): 2 |A and B| / (|A| + |B|); NaN for a class absent from both."""
        hits = np.diagonal(self.confusion)
        return ratio(2 * hits, self.confusion.sum(axis=0) + self.confusion.sum(axis=1))

    @property
    def mean_dice(self) -> float:
        """Mean of the classes' Dice, each class counting the same: the paper's class-balanced Dice score."""
        return _mean_of_known(self.dice)

    @property
    def iou(self) -> np.ndarray:
        """Intersection over union of each class, (C,): |A and B| / |A or B|; NaN for a class absent from both."""
        hits = np.diagonal(self.confusion)
        return ratio(hits, self.confusion.sum(axis=0) + self.confusion.sum(axis=1) - hits)

    @property
    def mean_iou(self) -> float:
        """Mean of the classes' intersection over union."""
        return _mean_of_known(self.iou)

    @property
    def recall(self) -> np.ndarray:
        """Fraction of each true class that is correct, (C,); NaN for a class absent from the truth."""
        return ratio(np.diagonal(self.confusion), self.confusion.sum(axis=1))

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes in the truth: the paper's class-balanced accuracy over all classes."""
        return _mean_of_known(self.recall)

    def balanced_accuracy_without(self, background: int) -> float:
        """Mean recall of all classes but one: the paper's Kinect measure, over foreground classes."""
        if background not in self.classes:
            known = ", ".join(str(value) for value in self.classes)
            raise InputError(f"the background {background} is not a class; expected one of {known}.")
        foreground = np.array([value != background for value in self.classes])
        return _mean_of_known(self.recall[foreground])

    @property
    def accuracy(self) -> float:
        """Fraction of the labelled pixels that are correct, whatever their class."""
        n_pixels = int(self.confusion.sum())
        return int(np.trace(self.confusion)) / n_pixels if n_pixels else float("nan")

    @property
    def means(self) -> dict[str, float]:
        """Every measure of MEANS."""
        return {name: getattr(self, name) for name in MEANS}

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values, ready for JSON; None stands for NaN."""
        return {
            "classes": list(self.classes),
            **{name: json_number(value) for name, value in self.means.items()},
            "dice": [json_number(value) for value in self.dice],
            "iou": [json_number(value) for value in self.iou],
            "recall": [json_number(value) for value in self.recall],
            "confusion": self.confusion.tolist(),
        }

    def __repr__(self) -> str:
        """One line; `print` shows the table."""
        means = {"mean Dice": self.mean_dice, "balanced accuracy": self.balanced_accuracy, "accuracy": self.accuracy}
        words = ", ".join(f"{name} {known_text(value)}" for name, value in means.items())
        return f"Scores({words}, {len(self.classes)} classes, {self.confusion.sum():,} pixels)"

    def __str__(self) -> str:
        """A table of the classes with pixels, Dice, IoU and recall, then every measure of MEANS."""
        rows: list[tuple[str, ...]] = [("class", "pixels", "Dice", "IoU", "recall")]
        pixels = self.confusion.sum(axis=1)
        for value, count, *each in zip(self.classes, pixels, self.dice, self.iou, self.recall, strict=True):
            rows.append((numbered_name(value, self.names), f"{count:,}", *map(known_text, each)))
        means = ", ".join(f"{MEANS[name]} {known_text(value)}" for name, value in self.means.items())
        return f"{aligned(rows)}\n{pixels.sum():,} pixels: {means}"


def scores(
    truths: Sequence[np.ndarray], predictions: Sequence[np.ndarray], classes: Sequence[int], unlabelled: int = 255
) -> Scores:
    """Compare label maps with predictions, both lists of class values (H,W), over all images together."""
    if len(truths) != len(predictions):
        raise InputError(f"there are {len(truths)} label maps but {len(predictions)} predictions; expected one each.")
    total = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for number, (truth, predicted) in enumerate(zip(truths, predictions, strict=True), start=1):
        true_name, predicted_name = f"label map {number}", f"prediction {number}"
        truth, predicted = to_labels(filled_labels(truth, unlabelled), true_name), to_labels(predicted, predicted_name)
        true_indices = encode_labels(truth, classes, unlabelled, true_name)
        predicted_indices = encode_labels(predicted, classes, None, predicted_name)
        total += confusion(true_indices, predicted_indices, len(classes))
    return Scores(tuple(int(value) for value in classes), total)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, (C,) float64, NaN where whole is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def _mean_of_known(values: np.ndarray) -> float:
    """Mean of the values that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def json_number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def known_text(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4f}"


def numbered_name(value: int, names: Mapping[int, str]) -> str:
    """A class value, followed by its name if it has one."""
    return f"{value} {names[value]}" if value in names else str(value)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, with each column aligned at its right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)
