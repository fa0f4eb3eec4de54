"""Growth of forests on the workers of a cluster: a task grows several trees; the folds of a level grow in parallel.

A tree depends on its seed and its data, not on where it is grown: the model equals the one that a single process grows,
to the last byte.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.forest.autocontext import GrowAll, Seeds
from hedgerow.forest.grow import TreeTask, assembled, grow_tree
from hedgerow.forest.planes import PlaneForest, TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.scale import cluster

TASKS_PER_THREAD = 4  # so that faster workers can take more tasks


Numbers = tuple[int, int]  # of a forest, and of a tree in it


def on(client: Any) -> GrowAll:
    """Like `grow_in_turn`, but on the workers of a client; the planes are sent to each worker once per level."""
    return partial(_grow_all, client)


def _grow_all(
    client: Any,
    planes: TrainingPlanes,
    samples: Samples,
    forests: list[list[np.ndarray]],
    n_classes: int,
    config: StackConfig,
    seeds: Seeds,
    advance: Callable[[], None],
) -> list[PlaneForest]:
    tasks = [
        ((f, t), TreeTask(skipped, (*seeds[f], t)))
        for f, forest in enumerate(forests)
        for t, skipped in enumerate(forest)
    ]
    client.submit(int, pure=False).result()  # wait for a worker: without one, nothing can be sent
    read = client.scatter((planes, samples), broadcast=True, hash=False)
    size = -(-len(tasks) // max(TASKS_PER_THREAD * cluster.n_threads(client), 1))
    batches = [tasks[first : first + size] for first in range(0, len(tasks), size)]
    grown: dict[Numbers, Any] = {}
    for batch, trees in cluster.side_by_side(client, _grow, batches, read, n_classes, config):
        for (numbers, _), tree in zip(batch, trees, strict=True):
            grown[numbers] = tree
            advance()
    return [assembled([grown[f, t] for t in range(len(forest))], planes, config) for f, forest in enumerate(forests)]


def _grow(
    batch: list[tuple[Numbers, TreeTask]], read: tuple[TrainingPlanes, Samples], n_classes: int, config: StackConfig
) -> list[Any]:
    return [grow_tree(task, *read, n_classes, config) for _, task in batch]
