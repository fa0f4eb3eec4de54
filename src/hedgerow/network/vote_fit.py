"""Votes fitted together, so that the last forest of a stack says what the network says.

Map Back 2 gives a leaf the mean of what its own tree says there. A mean is flatter than the values it averages, and in
all trees at once: the sum falls short of the network where it should be high, and rare classes are outvoted. Here the
trees take turns: each corrects the votes of its leaves by what the sum of all trees still lacks there. The levels below
keep their means: when fitted too, they gave the last level less to tell classes apart by (docs/measurements).
"""

import math
from dataclasses import replace

import numpy as np

from hedgerow.forest.arrays import Forest
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import walk
from hedgerow.kernels.definition.outputs import softmax
from hedgerow.threads import map_threads

SAMPLES = 2**19  # pixels, over all images, that votes are fitted to
PASSES = 3  # turns of every tree
RATE = 0.5  # fraction of what is lacking that one turn corrects: the other trees will correct it as well
PRIOR = 16.0  # imagined samples in every leaf that need no correction
LARGEST = 2.0  # limit on a vote's change in one turn: a leaf where the classes are certain sets none of its own


class FitSamples:
    """Pixels on a lattice: the leaves they reach, and what the network says about them."""

    def __init__(self, n_images: int) -> None:
        self._most = max(1, SAMPLES // n_images)  # per image
        self._leaf: list[np.ndarray] = []
        self._said: list[np.ndarray] = []

    def add(self, size: tuple[int, ...], region: Region, leaf: np.ndarray, said: np.ndarray) -> None:
        """size: (Z,H,W) of the image; leaf (T,Z,h,w) and said (C,Z,h,w): in a region of it"""
        step = int(np.ceil(np.sqrt(math.prod(size) / self._most)))
        rows, columns = slice(-region.top % step, None, step), slice(-region.left % step, None, step)
        self._leaf.append(leaf[..., rows, columns].reshape(len(leaf), -1))
        self._said.append(said[..., rows, columns].reshape(len(said), -1))

    def fitted(self, forest: Forest) -> Forest:
        """The forest with fitted votes, assuming that softmax follows their sum."""
        votes = fit_votes(forest.votes, np.concatenate(self._leaf, axis=1), np.concatenate(self._said, axis=1))
        return replace(forest, votes=votes)


def fit_votes(votes: np.ndarray, leaf: np.ndarray, said: np.ndarray) -> np.ndarray:
    """Votes (L,C) whose sums over leaf (T,n), after softmax, come close to said (C,n) in cross-entropy.

    A turn takes RATE of a Newton step in each leaf and class.
    """
    votes, total = votes.copy(), _summed(votes, leaf)
    for reached in [*leaf] * PASSES:
        found = softmax(total)
        slope, curvature = (_leaf_sums(reached, each, len(votes)) for each in (said - found, found * (1 - found)))
        change = np.clip(RATE * slope / (curvature + PRIOR), -LARGEST, LARGEST).astype(np.float32)
        votes += change
        total += change[reached].T
    return votes


def _summed(votes: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    """(C,n): the votes of all trees together."""
    total = np.zeros((votes.shape[1], leaf.shape[1]), np.float32)
    for reached in leaf:
        total += votes[reached].T
    return total


def _leaf_sums(reached: np.ndarray, planes: np.ndarray, n_leaves: int) -> np.ndarray:
    """(L,C) float64: planes (C,n), summed over the samples that reach each leaf."""
    sums = np.zeros((len(planes), n_leaves))
    add_by_leaf(reached, planes, sums)
    return sums.T


def add_by_leaf(reached: np.ndarray, planes: np.ndarray, sums: np.ndarray) -> None:
    """Add planes (C,n) to sums (C,L) float64 at the leaf (n,) that each sample reaches.

    Each class is summed on its own, in the order of the samples, whichever thread does it.
    """
    rows = (slice(c, c + 1) for c in range(len(planes)))
    list(map_threads(lambda row: walk.add_by_leaf(reached, planes[row], sums[row]), rows))
