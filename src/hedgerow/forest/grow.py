"""Growing one forest from samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.config import ContextConfig, StackConfig
from hedgerow.forest.arrays import Forest
from hedgerow.forest.planes import TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.kernels.constants import LEAF
from hedgerow.kernels.cpu import draw
from hedgerow.kernels.cpu import grow as kernels
from hedgerow.threads import map_threads


def grow_forest(
    planes: TrainingPlanes,
    samples: Samples,
    skipped_groups: list[np.ndarray],
    n_classes: int,
    config: StackConfig,
    seed: tuple[int, ...],
    advance: Callable[[], None] = lambda: None,
) -> Forest:
    """Grow a forest over planes; `advance` is called after each tree.

    skipped_groups: for each tree, the groups whose samples it must not see
    """
    trees = []
    tasks = [TreeTask(skipped, (*seed, t)) for t, skipped in enumerate(skipped_groups)]
    for tree in map_threads(lambda task: grow_tree(task, planes, samples, n_classes, config), tasks):
        trees.append(tree)
        advance()
    return joined_trees(trees, len(planes.array), config.votes)


@dataclass(frozen=True)
class TreeTask:
    """One tree: the groups whose samples it must not see, and the seed of its random numbers. Given the same planes and
    samples, a tree depends on nothing else: it is the same wherever it is grown."""

    skipped: np.ndarray
    seed: tuple[int, ...]


def grow_tree(
    task: TreeTask, planes: TrainingPlanes, samples: Samples, n_classes: int, config: StackConfig
) -> kernels.Grown:
    """One tree of a forest; children are numbered from its root, and counts are weighted by class."""
    rng = np.random.default_rng(task.seed)
    usable = np.flatnonzero(~np.isin(samples.group, task.skipped))
    count = np.ones(len(usable), np.int32)
    if config.bootstrap:
        count = np.bincount(rng.integers(0, len(usable), len(usable)), minlength=len(usable)).astype(np.int32)
    drawn, count = usable[count > 0], count[count > 0]
    slices, read = _by_slice(planes)
    fields = (samples.row, samples.column, slices[samples.image] + samples.z, samples.pixel, samples.target)
    table = np.stack([*(field[drawn] for field in fields), count]).astype(samples.pixel.dtype)
    class_weight = np.ones(n_classes)
    if config.balance:
        of_class = np.bincount(table[kernels.TARGET], count, n_classes)
        class_weight = count.sum() / (n_classes * np.maximum(of_class, 1))
    proposals, n_probes = _proposals(planes, config.context)
    # A split has samples on both sides, so there are fewer splits than samples.
    room = min(2 ** (config.max_depth + 1) - 1, 2 * len(count) - 1)
    grown = kernels.Grown(
        left_child=np.empty(room, np.int32),
        threshold=np.empty(room, np.float32),
        plane=np.empty((room, n_probes), np.int32),
        offset=np.empty((room, n_probes, 3), np.float32),
        weight=np.empty((room, n_probes), np.float32),
        counts=np.zeros((room, n_classes), np.int64),
    )
    limits = kernels.Limits(
        config.max_depth, config.min_split, config.min_leaf, config.search_samples, config.criterion == "entropy"
    )
    place = np.empty(len(count), np.dtype(f"u{table.itemsize}"))
    state = rng.integers(0, 2**63, 1, dtype=np.uint64)
    n_nodes = kernels.split_nodes(read, table, place, class_weight, limits, proposals, state, grown)
    tree = kernels.Grown(*(array[:n_nodes].copy() for array in grown))
    return tree._replace(counts=tree.counts * class_weight)


def _proposals(planes: TrainingPlanes, context: ContextConfig) -> tuple[draw.Proposals, int]:
    """The distribution that candidates for a split are drawn from, and the number of probes of a split."""
    is_depth = planes.proposals == "depth"
    recipe = draw.DEPTH if is_depth else draw.OBLIQUE if context.n_probes > 1 else draw.OFFSET
    n_channels, n_radii = planes.n_channels, len(planes.radii)
    n_depth = (context.depth_candidates or 0) if is_depth else 0
    n_others = n_channels - draw.N_DEPTH_CHANNELS if n_depth else n_channels
    n_drawn = min(context.n_channels or int(np.ceil(np.sqrt(n_others))), n_others)
    # No larger than a volume, so that a forest grown on images reads one slice.
    half_depth = min((context.window_z or 1) // 2, int(planes.depth.max()) - 1)
    # If nothing varies, all candidates on a channel are the same.
    varied = is_depth or context.window > 1 or half_depth > 0 or context.n_probes > 1 or n_radii > 1
    n_offsets = context.n_offsets if varied else 0
    if varied and context.n_candidates is not None:
        n_offsets = max(context.n_candidates // max(n_drawn, 1) - 1, 0)
    proposals = draw.Proposals(
        recipe, n_channels, n_radii, n_drawn, n_offsets, context.window // 2, half_depth, context.offset_sigma, n_depth
    )
    return proposals, 2 if is_depth else context.n_probes


def _by_slice(planes: TrainingPlanes) -> tuple[np.ndarray, kernels.Planes]:
    """The number of each image's first slice (I,), counted through all images; and the planes as kernels read them."""
    end = np.cumsum(planes.depth, dtype=np.int32)
    front = end - planes.depth
    within = np.arange(end[-1], dtype=np.int32) - np.repeat(front, planes.depth)
    start, height, width, first, back = (
        np.repeat(of_image, planes.depth) for of_image in (planes.start, planes.height, planes.width, front, end)
    )
    start = start + (within.astype(start.dtype) * height * width).astype(start.dtype)
    return front, kernels.Planes(
        planes.codes, planes.values, start, height, width, first, back, planes.stretch, planes.outside
    )


def joined_trees(trees: Sequence[kernels.Grown], n_channels: int, votes: str = "counts") -> Forest:
    """The forest of trees whose planes are channels; its leaves vote with their counts or with shares of these."""
    sizes = [len(tree.left_child) for tree in trees]
    root = np.cumsum([0, *sizes[:-1]]).astype(np.int32)
    left_child = np.concatenate(
        [np.where(t.left_child == LEAF, LEAF, t.left_child + r) for t, r in zip(trees, root, strict=True)]
    ).astype(np.int32)
    is_leaf = left_child == LEAF
    leaf_index = np.where(is_leaf, np.cumsum(is_leaf) - 1, LEAF).astype(np.int32)
    counts = np.concatenate([t.counts for t in trees])[is_leaf]
    if votes == "shares":
        # Half precision is finer than a leaf's counts warrant, and halves the model file.
        counts = (counts / counts.sum(axis=1, keepdims=True)).astype(np.float16)
    plane = np.concatenate([t.plane for t in trees])
    return Forest(
        root=root,
        left_child=left_child,
        threshold=np.concatenate([t.threshold for t in trees]),
        channel=plane,
        offset=np.concatenate([t.offset for t in trees]),
        radius=np.zeros_like(plane),
        weight=np.concatenate([t.weight for t in trees]),
        leaf_index=leaf_index,
        votes=counts.astype(np.float32),
        n_channels=n_channels,
    )
