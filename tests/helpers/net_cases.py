"""Levels of the network for tests: a random forest, what it reads on a grid, and parameters near its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from hedgerow.forest.arrays import Forest
from hedgerow.kernels.cpu import level as cpu_level
from hedgerow.kernels.definition import level as definition
from hedgerow.kernels.wiring import Reads, Wiring, wire
from hedgerow.network.layout import Grid, Source, lattice, lay_out
from helpers.forests import random_forest

N_FEATURES = 2
EPS = np.finfo(np.float32).eps
BACKENDS = ("reference", "numba")
KINDS = [("hard", "step"), ("tanh", "sigmoid"), ("soft", "exp"), ("soft", "softmax"), ("crelu", "softmax")]
SMOOTH = KINDS[1:]
PARAMETERS = ("values", "split_weight", "split_bias", "vote_weight")
CASES = {
    "one pixel": {"size": (1, 1)},
    "one row": {"size": (1, 29), "n_classes": 1},
    "one column": {"size": (21, 1), "n_classes": 2},
    "a block and a bit": {"size": (9, 17), "n_classes": 2},
    "less than a block": {"size": (7, 13), "n_classes": 5, "n_probes": 2},
    "many classes": {"size": (33, 19), "n_classes": 23, "n_trees": 2},
    "leaves alone": {"size": (3, 18), "max_depth": 0},
    "some trees are a leaf": {"size": (5, 6), "n_trees": 8, "leaf_chance": 0.6},
    "deep": {"size": (9, 17), "n_trees": 2, "max_depth": 9, "leaf_chance": 0.1},
    "three pieces": {"size": (9, 17), "n_trees": 6, "max_depth": 15, "leaf_chance": 0.4, "n_classes": 6},
    "unused probes": {"size": (9, 5), "n_probes": 3, "unused": True},
    "far outside": {"size": (6, 7), "n_probes": 2, "reach": 40},
    "windows": {"size": (11, 18), "radii": (0, 1, 3)},
    "every second pixel": {"size": (9, 17), "step": 2, "corner": (1, 0), "radii": (0, 2)},
    "every third pixel": {"size": (5, 7), "step": 3, "corner": (1, 2), "n_probes": 2, "unused": True},
    "stretched": {"size": (9, 17), "stretched": True, "n_probes": 2, "unused": True},
    "stretched, one probe": {"size": (8, 16), "stretched": True, "radii": (0, 1)},
    "stretched lattice": {"size": (5, 7), "stretched": True, "step": 3, "corner": (1, 2), "n_probes": 2, "reach": 12},
    "first level": {"size": (9, 17), "n_carried": 0, "n_probes": 2, "unused": True, "radii": (0, 1)},
    "first level, every third pixel": {"size": (5, 7), "n_carried": 0, "step": 3, "corner": (1, 2), "radii": (0, 2)},
    "first level, stretched": {"size": (7, 13), "n_carried": 0, "stretched": True, "n_probes": 2, "radii": (0, 1)},
    "three slices": {"size": (3, 5, 7), "reach_z": 2, "n_probes": 2, "unused": True},
    "slices apart": {"size": (2, 9, 17), "reach_z": 0, "radii": (0, 1)},
    "slices, every third pixel": {"size": (5, 3, 4), "step": 3, "corner": (1, 2), "reach_z": 7, "radii": (0, 3)},
    "first level of one column": {"size": (9, 1, 1), "n_carried": 0, "reach_z": 20, "n_trees": 2},
}


@dataclass(frozen=True)
class Level:
    """One level on a grid; arrays are float32. values: (V,); the parameters as in `LevelNet`."""

    forest: Forest
    wiring: Wiring
    source: Source
    grid: Grid
    reads: Reads
    values: torch.Tensor
    split_weight: torch.Tensor
    split_bias: torch.Tensor
    vote_weight: torch.Tensor

    @property
    def channels(self):
        """(M,Z,H,W) float32: what the level reads, where every pixel of the image is on the grid."""
        return np.concatenate([self.source.features.numpy(), self.source.before.numpy()])

    @property
    def with_features(self):
        """The same level, whose features train as well."""
        return replace(self, reads=replace(self.reads, features_train=True))

    def on(self, grid):
        """The same level on another grid of its image."""
        values, reads = lay_out(self.forest, self.wiring, self.source, grid)
        return replace(self, grid=grid, values=values, reads=reads)


def level_case(
    seed=0, size=(7, 13), step=1, corner=(0, 0), stretched=False, outside=True, unused=False, sharpness=3.0,
    n_classes=3, n_carried=2, signed=True, **shape,
):  # fmt: skip
    """A level on a grid of this size, (h,w) or (Z,h,w), from `corner` on, of an image that ends a little after it.

    n_carried: channels of the level before; 0: there is none, this is the first level
    """
    rng = np.random.default_rng(seed)
    forest = random_forest(rng, n_channels=N_FEATURES + n_carried, n_classes=n_classes, **shape)
    if unused:
        forest.weight[rng.random(forest.weight.shape) < 0.4] = 0
    # As many pixels after the last of the lattice as there can be.
    depth, *size = size if len(size) == 3 else (1, *size)
    height, width = corner[0] + step * size[0], corner[1] + step * size[1]
    grid = lattice(height, width, step, *corner, depth)
    assert grid.size == (depth, *size)
    normal = lambda *dims: torch.from_numpy(rng.standard_normal(dims).astype(np.float32))  # noqa: E731
    source = Source(
        normal(N_FEATURES, depth, height, width),
        normal(n_carried, depth, *size) if n_carried else None,
        grid if n_carried else None,
        rng.uniform(0.2, 2.5, (height, width)).astype(np.float32) if stretched else None,
        rng.standard_normal(N_FEATURES + n_carried).astype(np.float32) if stretched and outside else None,
    )
    wiring = wire(forest.root, forest.left_child)
    values, reads = lay_out(forest, wiring, source, grid)
    votes = torch.from_numpy(forest.votes)
    return Level(
        forest, wiring, source, grid, reads, values,
        split_weight=sharpness * torch.from_numpy(forest.weight[wiring.node_split]),
        split_bias=-sharpness * torch.from_numpy(forest.threshold[wiring.node_split]),
        vote_weight=votes - 0.5 if signed else votes,
    )  # fmt: skip


def level_scores(backend, level, split, activation, leaf=1.0, tolerance=0.0):
    """Scores (C,S) by "reference" in the precision of the level's tensors, by "numba", or by "triton"."""
    given = (level.values, level.reads, level.wiring, level.split_weight, level.split_bias)
    if backend == "numba":
        return cpu_level.level_scores(*given, level.vote_weight, split, activation, leaf, tolerance)
    if backend == "triton":
        from hedgerow.kernels.gpu import level as gpu_level

        return gpu_level.level_scores(*given, level.vote_weight, split, activation, leaf, tolerance)
    edges = (edge.to(level.values.dtype) for edge in definition.mapped_edges(level.wiring, split, leaf))
    return definition.level_scores(*given, *edges, level.vote_weight, split, activation)


def moved(level, device):
    """The level with every tensor on a device."""
    return replace(level, **{name: getattr(level, name).to(device) for name in PARAMETERS})


def precise(level):
    """The level with every tensor in float64."""
    return replace(level, **{name: getattr(level, name).double() for name in PARAMETERS})


def fitting(backend, level):
    """The level as the backend takes it: the definition is run in float64."""
    return precise(level) if backend == "reference" else level


def gradients(backend, level, split, activation, slope, leaf=1.0, tolerance=0.0):
    """Scores, and the gradients of PARAMETERS when the scores' own is `slope`, all as NumPy arrays."""
    leaves = {name: getattr(level, name).clone().requires_grad_() for name in PARAMETERS}
    scores = level_scores(backend, replace(level, **leaves), split, activation, leaf, tolerance)
    scores.backward(slope.to(scores))
    given = {name: tensor.grad if tensor.grad is not None else torch.zeros(()) for name, tensor in leaves.items()}
    return scores.detach().cpu().numpy(), {name: gradient.cpu().numpy() for name, gradient in given.items()}


def slope_of(level, seed=1):
    """A gradient for the scores, (C,S)."""
    n_pixels = level.reads.n_pixels
    return torch.randn(level.vote_weight.shape[1], n_pixels, generator=torch.Generator().manual_seed(seed))


def leaf_activations(backend, level, split, activation, leaf=1.0, tolerance=0.0):
    """a_H2 (L,S): every leaf votes for a class of its own."""
    level = replace(level, vote_weight=torch.eye(level.wiring.n_leaves, dtype=level.vote_weight.dtype))
    return level_scores(backend, fitting(backend, level), split, activation, leaf, tolerance).numpy()


def magnitudes(level, slope):
    """The size of one pixel's part in each gradient, before the slope of a split makes it small.

    Near saturation 1 - a is known to a rounding error of 1, not of itself; and a grid of one pixel has no other part
    that would show how large the errors of plain PyTorch usually are.
    """
    down = float((level.vote_weight.abs() @ slope.abs()).max()) if level.vote_weight.numel() else 0.0
    sizes = {
        name: float(getattr(level, name).abs().max()) if getattr(level, name).numel() else 0.0 for name in PARAMETERS
    }
    return {
        "values": down * sizes["split_weight"],
        "split_weight": down * sizes["values"],
        "split_bias": down,
        "vote_weight": float(slope.abs().max()),
    }


def assert_agrees(backend, level, split, activation, device="cpu"):
    """Scores and gradients are within twice and three times the error of plain PyTorch in float32.

    The gradients are those of all values where the level's features train; where they do not, theirs are 0.
    """
    leaf = 1.0 if split == "soft" else 1.7
    slope, first = slope_of(level), level.reads.first_trained
    exact, exact_gradients = gradients("reference", precise(level), split, activation, slope, leaf)
    plain32, plain_gradients = gradients("reference", level, split, activation, slope, leaf)
    ours, our_gradients = gradients(backend, moved(level, device), split, activation, slope, leaf)

    few = (2 + int(level.wiring.path_length.max())) * EPS  # a factor per split on the path
    largest = level.wiring.n_trees * float(level.vote_weight.abs().max())
    assert ours.shape == exact.shape
    assert np.abs(ours - exact).max() <= 2 * np.abs(plain32 - exact).max() + few * largest
    floor = magnitudes(level, slope)
    for name in PARAMETERS:
        exact_one, plain_one, our_one = exact_gradients[name], plain_gradients[name], our_gradients[name]
        assert our_one.shape == getattr(level, name).shape
        if name == "values":
            assert not our_one[:first].any(), "what does not train has no gradient"
            our_one = our_one[first:]
            if exact_one.ndim:  # hard decisions have none
                exact_one, plain_one = exact_one[first:], plain_one[first:]
        allowed = 3 * np.abs(plain_one - exact_one).max(initial=0) + few * floor[name]
        assert np.abs(our_one - exact_one).max(initial=0) <= allowed, name


def assert_only_what_trains_has_a_gradient(backend, level, device="cpu"):
    """Of the values; and those that have one have the same whatever else trains."""
    first, slope = level.reads.carried, slope_of(level)
    assert 0 < first < len(level.values)
    some, all_of_them = (
        gradients(backend, moved(one, device), "soft", "exp", slope)[1]["values"]
        for one in (level, level.with_features)
    )
    assert not some[:first].any()
    assert min(np.abs(part).max() for part in (some[first:], all_of_them[:first])) > 0.01
    np.testing.assert_allclose(all_of_them[first:], some[first:], rtol=0, atol=8 * EPS * np.abs(some).max())
