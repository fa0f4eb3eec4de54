"""Forests for tests: random ones of any shape the representation allows, and stacks grown on every kind of image."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

import hedgerow as hr
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.kernels.constants import LEAF

GROWN = ("offsets", "windows", "oblique", "depth", "colour", "opponent", "channels")
# Settings with which a stack grows in a fraction of a second.
SMALL = hr.StackConfig(
    drop_levels=False,
    n_levels=2,
    n_trees=3,
    max_depth=5,
    min_split=4,
    sigmas=(0.7, 1.6),
    context=hr.ContextConfig(window=9, n_offsets=2),
    sampling=hr.SamplingConfig(step=1),
)


def random_forest(
    rng: np.random.Generator,
    n_trees: int = 3,
    max_depth: int = 5,
    n_channels: int = 4,
    n_classes: int = 3,
    n_probes: int = 1,
    reach: int = 6,
    reach_z: int = 0,
    radii: tuple[int, ...] = (0,),
    leaf_chance: float = 0.2,
) -> Forest:
    left_child: list[int] = []
    roots = []
    for _ in range(n_trees):
        roots.append(len(left_child))
        left_child.append(LEAF)
        frontier = [(roots[-1], 0)]
        while frontier:
            node, depth = frontier.pop(0)
            if depth < max_depth and rng.random() >= leaf_chance:
                left_child[node] = len(left_child)
                left_child += [LEAF, LEAF]
                frontier += [(left_child[node], depth + 1), (left_child[node] + 1, depth + 1)]
    children = np.array(left_child, np.int32)
    is_leaf, n = children == LEAF, len(children)
    weight = np.ones((n, 1)) if n_probes == 1 else rng.standard_normal((n, n_probes))
    forest = Forest(
        root=np.array(roots, np.int32),
        left_child=children,
        threshold=np.where(is_leaf, 0, rng.standard_normal(n) / 2).astype(np.float32),
        channel=rng.integers(0, n_channels, (n, n_probes)).astype(np.int32),
        offset=np.pad(rng.integers(-reach, reach + 1, (n, n_probes, 2)), ((0, 0), (0, 0), (1, 0))).astype(np.float32),
        radius=rng.choice(radii, (n, n_probes)).astype(np.int32),
        weight=weight.astype(np.float32),
        leaf_index=np.where(is_leaf, np.cumsum(is_leaf) - 1, LEAF).astype(np.int32),
        votes=rng.random((int(is_leaf.sum()), n_classes)).astype(np.float32),
        n_channels=n_channels,
    )
    if reach_z:
        forest.offset[..., 0] = rng.integers(-reach_z, reach_z + 1, (n, n_probes))
    return forest


@cache
def grown_stack(kind: str) -> tuple[ForestStack, np.ndarray]:
    """A stack grown on images of a kind of GROWN, or "joined", and an image of whole numbers that it has not seen."""
    rng = np.random.default_rng(7)
    images, labels = [], []
    for _ in range(3):
        label = np.zeros((20, 24), np.int64)
        label[:, 8:], label[10:, 16:] = 1, 2
        image = (1000 * (1 + label) + 200 * rng.integers(-3, 4, label.shape)).astype(np.uint16)
        if kind == "depth":
            image[:, :2] = 0  # nothing seen
        if kind in ("colour", "opponent"):
            image = np.stack([image, image[::-1], rng.integers(0, 9, image.shape).astype(np.uint16)], axis=-1)
        if kind in ("channels", "joined"):
            image = np.stack([image, rng.integers(0, 3, image.shape).astype(np.uint16)]).astype(np.float32)
        images.append(image)
        labels.append(label)
    context = hr.ContextConfig(window=9, n_offsets=3)
    changes = {
        "offsets": {},
        "windows": {"context": replace(context, radii=(0, 1, 3))},
        "oblique": {"context": replace(context, n_probes=3)},
        "depth": {"features": "depth", "context": replace(context, offset_sigma=12.0)},
        "colour": {},
        "opponent": {"opponent": True},
        "channels": {"features": "channels"},
        "joined": {"features": ("bank", "channels")},
    }[kind]
    settings = {"n_levels": 3, "n_trees": 3, "max_depth": 6, "min_split": 3, "sigmas": (0.7, 1.6), "context": context}
    sampling = hr.SamplingConfig(step=1)
    config = hr.StackConfig(sampling=sampling, **{"drop_levels": False, **settings, **changes})
    return hr.fit_stack(images[:2], labels[:2], config), images[2]
