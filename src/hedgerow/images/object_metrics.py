"""Measures how well found objects agree with true ones: average precision, panoptic quality, splits and merges."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.array_checks import to_objects
from hedgerow.images.metrics import aligned, json_number, known_text
from hedgerow.model_methods import NotebookCard

OVERLAPS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Intersections over union beyond which a found object counts as a true one. From 0.5 on, no object has two matches."""


@dataclass(frozen=True, eq=False)
class ObjectScores(NotebookCard):
    """The agreement of found objects with true ones, over all images together; scores of images can be added.

    n_true, n_found: number of objects
    n_matched:       number of pairs with an intersection over union beyond 0.5, 0.6, 0.7, 0.8 and 0.9
    overlap:         sum of the intersections over union of the pairs beyond 0.5
    n_split:         true objects that hold at least two found ones: most of each of them, and a tenth of their own area
    n_merged:        found objects that hold at least two true ones in the same way

    >>> truth = np.zeros((8, 16), int)
    >>> truth[1:7, 1:7], truth[1:7, 9:15] = 1, 2
    >>> hr.object_scores([truth], [np.where(truth == 1, 5, 0)])
    ObjectScores(average precision 0.5000 at IoU 0.5, panoptic quality 0.6667, 1 of 2 objects found)
    """

    n_true: int
    n_found: int
    n_matched: tuple[int, ...]
    overlap: float
    n_split: int
    n_merged: int

    def __add__(self, other: "ObjectScores") -> "ObjectScores":
        return ObjectScores(
            self.n_true + other.n_true,
            self.n_found + other.n_found,
            tuple(a + b for a, b in zip(self.n_matched, other.n_matched, strict=True)),
            self.overlap + other.overlap,
            self.n_split + other.n_split,
            self.n_merged + other.n_merged,
        )

    @property
    def average_precision(self) -> dict[float, float]:
        """For each intersection over union, matches / (matches + missed + invented objects); NaN without objects."""
        either = self.n_true + self.n_found
        return {
            overlap: matched / (either - matched) if either else float("nan")
            for overlap, matched in zip(OVERLAPS, self.n_matched, strict=True)
        }

    @property
    def mean_precision(self) -> float:
        """Mean of the average precisions."""
        return float(np.mean(list(self.average_precision.values())))

    @property
    def panoptic_quality(self) -> float:
        """Sum of the matches' overlaps / (matches + half of the missed and invented objects), at IoU 0.5."""
        either = self.n_true + self.n_found
        return 2 * self.overlap / either if either else float("nan")

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values, ready for JSON; None stands for NaN."""
        return {
            "true_objects": self.n_true,
            "found_objects": self.n_found,
            "average_precision": {str(overlap): json_number(ap) for overlap, ap in self.average_precision.items()},
            "mean_precision": json_number(self.mean_precision),
            "panoptic_quality": json_number(self.panoptic_quality),
            "split": self.n_split,
            "merged": self.n_merged,
        }

    def __repr__(self) -> str:
        """One line; `print` shows the table."""
        return (
            f"ObjectScores(average precision {known_text(self.average_precision[0.5])} at IoU 0.5, panoptic quality"
            f" {known_text(self.panoptic_quality)}, {self.n_matched[0]:,} of {self.n_true:,} objects found)"
        )

    def __str__(self) -> str:
        """A table with the average precision for each overlap, then everything else in two lines."""
        rows = [("IoU beyond", *map(str, OVERLAPS), "mean")]
        precisions = (*self.average_precision.values(), self.mean_precision)
        rows.append(("average precision", *map(known_text, precisions)))
        return (
            f"{aligned(rows)}\npanoptic quality {known_text(self.panoptic_quality)}; {self.n_true:,} true objects,"
            f" {self.n_found:,} found, {self.n_matched[0]:,} matched\n{self.n_split:,} true objects were split,"
            f" {self.n_merged:,} found objects hold several true ones"
        )


def object_scores(truths: Sequence[np.ndarray], predicted: Sequence[np.ndarray]) -> ObjectScores:
    """Compare true with found objects: lists of arrays (H,W) or (Z,Y,X), 0 where there is no object and a number of its
    own for each object. The numbers need not agree.

    >>> truth = np.zeros((8, 16), int)
    >>> truth[1:7, 1:7], truth[1:7, 9:15] = 1, 2
    >>> hr.object_scores([truth], [np.where(truth == 1, 5, 0)]).average_precision[0.5]
    0.5
    """
    if len(truths) != len(predicted):
        raise InputError(
            f"there are {len(truths)} maps of true objects but {len(predicted)} of found ones; give one each."
        )
    total = ObjectScores(0, 0, (0,) * len(OVERLAPS), 0.0, 0, 0)
    for number, (true, own) in enumerate(zip(truths, predicted, strict=True), start=1):
        total += compare_objects(
            to_objects(true, f"the map of true objects {number}"),
            to_objects(own, f"the map of found objects {number}"),
        )
    return total


def compare_objects(truth: np.ndarray, predicted: np.ndarray) -> ObjectScores:
    """`object_scores` of one image, whose maps hold numbers from 0."""
    if truth.shape != predicted.shape:
        raise InputError(
            f"the map of true objects has shape {truth.shape} and that of found objects {predicted.shape}; give maps "
            "of the same image."
        )
    true_values, true_index = np.unique(truth, return_inverse=True)
    predicted_values, predicted_index = np.unique(predicted, return_inverse=True)
    keys = true_index.ravel() * len(predicted_values) + predicted_index.ravel()
    pairs, shared = np.unique(keys, return_counts=True)
    a, b = pairs // len(predicted_values), pairs % len(predicted_values)
    true_area = np.bincount(a, shared, len(true_values))
    predicted_area = np.bincount(b, shared, len(predicted_values))
    both = (true_values[a] > 0) & (predicted_values[b] > 0)
    a, b, shared = a[both], b[both], shared[both]
    iou = shared / (true_area[a] + predicted_area[b] - shared)
    return ObjectScores(
        int((true_values > 0).sum()),
        int((predicted_values > 0).sum()),
        tuple(int((iou > overlap).sum()) for overlap in OVERLAPS),
        float(iou[iou > OVERLAPS[0]].sum()),
        n_split=_n_holders(a, shared / predicted_area[b], shared / true_area[a]),
        n_merged=_n_holders(b, shared / true_area[a], shared / predicted_area[b]),
    )


def _n_holders(holders: np.ndarray, share_of_part: np.ndarray, share_of_holder: np.ndarray) -> int:
    """How many holders have at least two parts: most of the part is in them, and it is a tenth of them or more."""
    parts = holders[(share_of_part > 0.5) & (share_of_holder >= 0.1)]
    return int((np.bincount(parts) > 1).sum()) if len(parts) else 0
