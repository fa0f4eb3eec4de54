"""Fitting the votes of all trees together, so that the last forest of a stack predicts what the network predicts.

In Map Back 2 the votes of a leaf are the mean output of its tree there. A mean is flatter than the values it averages,
and this happens in all trees at once: their sum is too low where it should be high, and rare classes are outvoted. Here
the trees take turns, and each corrects the votes of its leaves by what the sum of all trees lacks there. The levels
below keep their means: fitting them too made classes harder to distinguish for the last level (docs/measurements).
"""

import math
from dataclasses import replace

import numpy as np

from hedgerow.forest.arrays import Forest
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import walk
from hedgerow.kernels.definition.outputs import softmax
from hedgerow.threads import map_threads

MAX_SAMPLES = 2**19  # pixels of all images together that votes are fitted to
N_PASSES = 3  # turns of each tree
STEP_FRACTION = 0.5  # part of the error that one turn corrects, since other trees correct it as well
PRIOR_SAMPLES = 16.0  # imagined samples per leaf that need no correction
MAX_CHANGE = 2.0  # limit on the change of a vote in one turn; in a leaf with certain classes it would have none


class FitSamples:
    """Pixels on a lattice, with the leaves that they reach and the network's output there."""

    def __init__(self, n_images: int, n_samples: int = MAX_SAMPLES) -> None:
        """n_samples: the most samples, of all images together"""
        self._n_per_image = max(1, n_samples // n_images)
        self._leaves: list[np.ndarray] = []
        self._outputs: list[np.ndarray] = []

    def add(self, size: tuple[int, ...], region: Region, leaves: np.ndarray, output: np.ndarray) -> None:
        """Add samples of a region of an image; size: (Z,H,W), of the image; leaves: (T,Z,h,w); output: (C,Z,h,w)"""
        step = int(np.ceil(np.sqrt(math.prod(size) / self._n_per_image)))
        rows, columns = slice(-region.top % step, None, step), slice(-region.left % step, None, step)
        self._leaves.append(leaves[..., rows, columns].reshape(len(leaves), -1))
        self._outputs.append(output[..., rows, columns].reshape(len(output), -1))

    def fitted(self, forest: Forest) -> Forest:
        """The forest with fitted votes, given that softmax follows their sum."""
        votes = fit_votes(forest.votes, np.concatenate(self._leaves, axis=1), np.concatenate(self._outputs, axis=1))
        return replace(forest, votes=votes)


def fit_votes(votes: np.ndarray, leaves: np.ndarray, output: np.ndarray) -> np.ndarray:
    """Votes (L,C) whose sums over leaves (T,n), after softmax, come close to output (C,n) in cross-entropy.

    A turn takes STEP_FRACTION of a Newton step in each leaf and class.
    """
    votes, total = votes.copy(), _summed(votes, leaves)
    for reached in [*leaves] * N_PASSES:
        proba = softmax(total)
        slope, curvature = (_leaf_sums(reached, each, len(votes)) for each in (output - proba, proba * (1 - proba)))
        change = np.clip(STEP_FRACTION * slope / (curvature + PRIOR_SAMPLES), -MAX_CHANGE, MAX_CHANGE)
        change = change.astype(np.float32)
        votes += change
        total += change[reached].T
    return votes


def _summed(votes: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """(C,n): the sum of the votes of all trees."""
    total = np.zeros((votes.shape[1], leaves.shape[1]), np.float32)
    for reached in leaves:
        total += votes[reached].T
    return total


def _leaf_sums(reached: np.ndarray, planes: np.ndarray, n_leaves: int) -> np.ndarray:
    """(L,C) float64: planes (C,n), summed over the samples that reach each leaf."""
    sums = np.zeros((len(planes), n_leaves))
    add_by_leaf(reached, planes, sums)
    return sums.T


def add_by_leaf(reached: np.ndarray, planes: np.ndarray, sums: np.ndarray) -> None:
    """Add planes (C,n) to sums (C,L) float64 at the leaf (n,) that each sample reaches.

    Each class is summed by one thread, in the order of the samples, so the result does not depend on their number.
    """
    rows = (slice(c, c + 1) for c in range(len(planes)))
    list(map_threads(lambda row: walk.add_by_leaf(reached, planes[row], sums[row]), rows))
