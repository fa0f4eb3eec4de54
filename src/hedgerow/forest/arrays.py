"""Forests as flat arrays: the representation that every other part converts from or to.

A sample goes RIGHT iff value >= threshold, else left; the two children of a node are neighbours in the arrays.
A soft split sends it both ways, to the right with probability sigmoid(sharpness * (value - threshold)).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from hedgerow.config import ContextConfig, StackConfig
from hedgerow.errors import refuse_unless
from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.history import Known, Refinement
from hedgerow.images.classes import is_label
from hedgerow.images.legend import Legend
from hedgerow.kernels.constants import LEAF
from hedgerow.model_methods import ModelMethods, NotebookCard
from hedgerow.settings import limits_of

# Deeper than any tree grown here, because scikit-learn's may be; memory to walk soft splits grows with the depth.
MAX_DEPTH = 128
MAX_TREES = limits_of(StackConfig, "n_trees")[1]
MAX_PROBES = limits_of(ContextConfig, "n_probes")[1]
# Sums of votes over all leaves, trees and classes, and sums of weights, stay within float32.
MAX_VOTE, MAX_WEIGHT = 1e15, 1e25


@dataclass(frozen=True)
class Forest(NotebookCard):
    """T trees with N nodes and L leaves in total, over M input channels and C classes; a split has J probes.

    root:       (T,) int32, ascending, root[0] = 0; the nodes of tree t are root[t] to root[t+1] - 1
    left_child: (N,) int32, after the parent in the same tree; LEAF at a leaf. The right child is the next node
    threshold:  (N,) float32; 0 at a leaf
    channel:    (N,J) int32, input channel of each probe
    offset:     (N,J,3) float32, (slice, row, column) from the pixel to the probe
    radius:     (N,J) int32, of the box that the probe averages
    weight:     (N,J) float32; an unused probe has weight 0
    leaf_index: (N,) int32, row of `votes`; LEAF at a split
    votes:      (L,C) float32
    n_channels: M
    sharpness:  (N,) float32, of soft splits; None if all splits are hard
    """

    root: np.ndarray
    left_child: np.ndarray
    threshold: np.ndarray
    channel: np.ndarray
    offset: np.ndarray
    radius: np.ndarray
    weight: np.ndarray
    leaf_index: np.ndarray
    votes: np.ndarray
    n_channels: int
    sharpness: np.ndarray | None = None

    def __repr__(self) -> str:
        """One line, whatever the arrays hold."""
        kind = "" if self.sharpness is None else "soft splits, "
        return f"Forest({kind}{self.n_trees:,} trees, {self.n_nodes:,} nodes, {self.n_classes} classes)"

    @property
    def n_trees(self) -> int:
        return len(self.root)

    @property
    def n_nodes(self) -> int:
        return len(self.left_child)

    @property
    def n_leaves(self) -> int:
        return len(self.votes)

    @property
    def n_classes(self) -> int:
        return int(self.votes.shape[1])

    @property
    def is_split(self) -> np.ndarray:
        """(N,) bool"""
        return self.left_child != LEAF

    @property
    def right_child(self) -> np.ndarray:
        """(N,) int32; LEAF at a leaf"""
        return np.where(self.is_split, self.left_child + 1, LEAF)

    @cached_property
    def tree_depths(self) -> np.ndarray:
        """(T,) int64: the splits on the longest path of each tree; ModelError as soon as one exceeds MAX_DEPTH."""
        deepest, is_split = np.zeros(self.n_trees, np.int64), self.is_split
        nodes, trees = self.root.astype(np.int64), np.arange(self.n_trees)
        while True:
            going_on = is_split[nodes]
            nodes, trees = self.left_child[nodes[going_on]], trees[going_on]
            if not len(nodes):
                return deepest
            deepest[trees] += 1  # once per tree and round, however many of its nodes continue
            refuse_unless(int(deepest.max()) <= MAX_DEPTH, f"a tree is more than {MAX_DEPTH} splits deep")
            nodes, trees = np.concatenate([nodes, nodes + 1]), np.concatenate([trees, trees])

    @property
    def is_read(self) -> np.ndarray:
        """(N,J) bool: the probes that count for a decision."""
        read: np.ndarray = (self.weight != 0) & self.is_split[:, None]
        return read

    @cached_property
    def reach(self) -> int:
        """How far a probe reads from its pixel along rows or columns at most, including its box; offsets are not
        stretched yet."""
        far = np.abs(self.offset[..., 1:]).max(axis=2) + self.radius
        return int(np.ceil(far[self.is_read].max(initial=0)))

    @cached_property
    def reach_z(self) -> int:
        """How many slices away a probe reads at most; 0 for a forest that was grown on images."""
        return int(np.ceil(np.abs(self.offset[..., 0])[self.is_read].max(initial=0)))

    @cached_property
    def planes_read(self) -> tuple[np.ndarray, np.ndarray]:
        """(P,2) the pairs of channel and radius that splits read; and (N,J) int32 the plane of every probe."""
        base = int(self.radius.max()) + 1
        key = self.channel.astype(np.int64) * base + self.radius
        key[~self.is_read] = key[0, 0]  # any plane will do
        is_used = np.zeros(self.n_channels * base, bool)
        is_used[key] = True
        used = np.flatnonzero(is_used)
        plane = (np.cumsum(is_used) - 1)[key].astype(np.int32)
        return np.stack([used // base, used % base], axis=1), plane

    def select(self, trees: np.ndarray) -> Forest:
        """The forest of these trees (ascending tree numbers), with the votes of all trees."""
        ends = np.append(self.root[1:], self.n_nodes)
        keep = np.concatenate([np.arange(self.root[t], ends[t]) for t in trees])
        sizes = [ends[t] - self.root[t] for t in trees]
        moved = np.full(self.n_nodes + 1, LEAF, np.int32)
        moved[keep] = np.arange(len(keep), dtype=np.int32)
        names = ("threshold", "channel", "offset", "radius", "weight", "leaf_index")
        return replace(
            self,
            root=np.cumsum([0, *sizes[:-1]]).astype(np.int32),
            left_child=moved[self.left_child[keep]],
            sharpness=None if self.sharpness is None else self.sharpness[keep],
            **{name: getattr(self, name)[keep] for name in names},
        )

    def validate(self) -> None:
        """Raise ModelError unless the arrays describe trees that are safe to walk."""
        n, shape = self.n_nodes, self.channel.shape
        fits = n >= 1 and len(shape) == 2 and shape[0] == n and 1 <= shape[1] <= MAX_PROBES
        refuse_unless(fits, "probe arrays do not match")
        refuse_unless(
            self.votes.ndim == 2 and self.n_leaves >= 1 and self.n_classes >= 1,
            "votes are not (leaves, classes)",
        )
        for name, expected in {
            "threshold": (n,), "leaf_index": (n,), "offset": (*shape, 3), "radius": shape, "weight": shape,
        }.items():  # fmt: skip
            refuse_unless(getattr(self, name).shape == expected, f"{name} has the wrong shape")
        for name in ("threshold", "offset", "weight", "votes"):
            refuse_unless(bool(np.isfinite(getattr(self, name)).all()), f"{name} is not finite")
        if self.sharpness is not None:
            refuse_unless(self.sharpness.shape == (n,), "sharpness has the wrong shape")
            with np.errstate(over="ignore"):  # these products are the weights of the equivalent network
                weight, bias = self.sharpness[:, None] * self.weight, self.sharpness * self.threshold
            is_usable = np.isfinite(self.sharpness) & (self.sharpness > 0) & np.isfinite(bias)
            is_usable &= (np.abs(weight) <= MAX_WEIGHT).all(axis=1)
            refuse_unless(bool(is_usable.all()), "a sharpness is out of range")
        refuse_unless(bool((np.abs(self.votes) <= MAX_VOTE).all()), "a vote is out of range")
        refuse_unless(
            self.root.ndim == 1 and 1 <= self.n_trees <= MAX_TREES and self.root[0] == 0,
            "it has too many trees, or the first does not start at 0",
        )
        refuse_unless(bool((np.diff(self.root) > 0).all()) and self.root[-1] < n, "the trees are not in order")
        refuse_unless(bool(((self.channel >= 0) & (self.channel < self.n_channels)).all()), "a channel does not exist")
        refuse_unless(bool(((self.radius >= 0) & (self.radius <= 4096)).all()), "a radius is out of range")
        refuse_unless(bool((np.abs(self.offset) <= 1e6).all()), "an offset is out of range")
        self._validate_structure()

    def _validate_structure(self) -> None:
        splits = np.flatnonzero(self.is_split)
        left = self.left_child[splits].astype(np.int64)
        refuse_unless(
            bool((left > splits).all()) and bool((left + 1 < self.n_nodes).all()),
            "a child precedes its parent",
        )
        children = np.concatenate([left, left + 1])
        refuse_unless(len(np.unique(children)) == len(children), "a node has two parents")
        tree_of = np.searchsorted(self.root, np.arange(self.n_nodes), side="right")
        parents = np.concatenate([splits, splits])
        refuse_unless(bool((tree_of[children] == tree_of[parents]).all()), "a child lies in another tree")
        refuse_unless(len(children) + self.n_trees == self.n_nodes, "a node cannot be reached")
        leaves = self.leaf_index[~self.is_split]
        refuse_unless(bool(((leaves >= 0) & (leaves < self.n_leaves)).all()), "a leaf has no votes")
        refuse_unless(bool((self.leaf_index[splits] == LEAF).all()), "a split has votes")
        self.tree_depths  # noqa: B018  # refuses a tree that is too deep


OUTPUTS = ("normalise", "softmax")


@dataclass(frozen=True)
class ForestStack(ModelMethods):
    """K forests: level k reads the features and, from the second level on, the class probabilities of level k-1.

    classes:     (C,) class values as given in the user's labels
    unlabelled:  the label value that meant "no label"
    image_dtype: of the training images, to detect images on another scale
    settings:    how it was grown, and its held-out scores; for information, not for computation
    output:      how the summed votes of the last level become probabilities: "normalise", as in all other levels, or
                 "softmax", if they come from a network
    tolerance:   soft splits: a branch is entered only if the probability of reaching it exceeds this
    refinements: of the network that a soft forest was mapped from; empty for all others
    relaxed:     whether the network that a soft forest was mapped from had been softened for training, which happens
                 once
    device:      where it runs, "cpu" or "cuda"; not saved
    legend:      names and colours of the classes
    known:       the images that it has seen, and those that were reserved

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> stack.predict(images[0]).shape, stack.predict_proba(images[0]).shape
    ((40, 48), (22, 40, 48))
    """

    features: FeatureSet
    levels: tuple[Forest, ...]
    classes: tuple[int, ...]
    unlabelled: int = 255
    image_dtype: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    output: str = "normalise"
    tolerance: float = 0.0
    refinements: tuple[Refinement, ...] = ()
    relaxed: bool = False
    device: str = "cpu"
    legend: Legend = Legend()
    known: Known = Known()

    def __repr__(self) -> str:
        """One line: its size, its origin, and its score on pixels that were held out when it was grown."""
        trees = sorted({forest.n_trees for forest in self.levels})
        of = f"{trees[0]:,}" if len(trees) == 1 else f"{trees[0]:,} to {trees[-1]:,}"
        parts = [
            f"{self.n_levels} level{'s' * (self.n_levels != 1)} of {of} trees",
            f"{self.n_classes} classes",
            f"{self.features.n_features} {self.features.title} features",
        ]
        if "mapped_back" in self.settings:
            parts.append(f"mapped back ({self.settings['mapped_back']})")
        elif len(self.held_out_dice) >= self.n_levels:
            parts.append(f"held-out Dice {self.held_out_dice[self.n_levels - 1]:.3f}")
        return f"ForestStack({', '.join(parts)})"

    @property
    def held_out_dice(self) -> list[float]:
        """Mean Dice of each level on pixels that were held out when it was grown; empty if unknown. It includes levels
        that were left out."""
        return [score["mean_dice"] for score in self.settings.get("held_out", ())]

    @property
    def n_levels(self) -> int:
        return len(self.levels)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def level_reach(self, level: int) -> int:
        """How far from a pixel, in pixels, this level reads its channels."""
        return self.features.reach(self.levels[level].reach)

    def level_reach_z(self, level: int) -> int:
        """How many slices away this level reads its channels."""
        return self.levels[level].reach_z

    @property
    def receptive_field(self) -> int:
        """How far from a pixel, within its slice, the image can influence the prediction."""
        return self.features.halo + sum(self.level_reach(k) for k in range(self.n_levels))

    def is_softmax(self, level: int) -> bool:
        """Whether the summed votes of this level go through softmax; otherwise they are normalised."""
        return self.output == "softmax" and level + 1 == self.n_levels

    @property
    def is_soft(self) -> bool:
        """Whether the splits are soft, which is the same in all levels."""
        return self.levels[0].sharpness is not None

    def validate(self) -> None:
        """Raise ModelError unless every level fits the features, the classes and the previous level."""
        refuse_unless(self.output in OUTPUTS and 0 <= self.tolerance < 1, "its output or tolerance is out of range")
        refuse_unless(len({forest.sharpness is None for forest in self.levels}) <= 1, "only some levels are soft")
        refuse_unless(self.n_levels >= 1 and len(set(self.classes)) == self.n_classes, "levels or classes are missing")
        are_labels = all(map(is_label, (*self.classes, self.unlabelled)))
        refuse_unless(are_labels, "a class or the unlabelled value is not a possible label")
        refuse_unless(self.unlabelled not in self.classes, "its unlabelled value is one of its classes")
        named = {*self.legend.names, *self.legend.colours}
        refuse_unless(named <= {*self.classes, self.unlabelled}, "a name or a colour belongs to no class")
        for level, forest in enumerate(self.levels):
            refuse_unless(forest.n_classes == self.n_classes, "a level has different classes")
            expected = self.features.n_features + (self.n_classes if level else 0)
            refuse_unless(forest.n_channels == expected, "a level expects a different number of channels")
            forest.validate()
            # Features with constants outside the image are for images, not for volumes.
            is_flat = self.features.outside(self.n_classes) is None or not forest.offset[..., 0].any()
            refuse_unless(is_flat, "a split of depth features looks at another slice")
            # Votes of either sign come from a network, which ends in softmax: normalised, they are no probabilities.
            refuse_unless(self.output == "softmax" or bool((forest.votes >= 0).all()), "a vote is negative")
