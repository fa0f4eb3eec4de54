"""Growth of forests on the workers of a cluster: a task grows several trees; the folds of a level grow in parallel.

A tree depends on its seed and its data, not on where it is grown: the model equals the one that a single process grows,
to the last byte.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.forest.autocontext import GrowAll, Seeds
from hedgerow.forest.grow import TreeTask, assembled, grow_tree
from hedgerow.forest.planes import PlaneForest, TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.scale import cluster

TASKS_PER_THREAD = 4  # so that faster workers can take more tasks


def on(client: Any) -> GrowAll:
    """Like `grow_in_turn`, but on the workers of a client; the planes are sent to each worker once per level."""

    def grow_all(
        planes: TrainingPlanes,
        samples: Samples,
        forests: list[list[np.ndarray]],
        n_classes: int,
        config: StackConfig,
        seeds: Seeds,
        advance: Callable[[], None],
    ) -> list[PlaneForest]:
        tasks = [
            TreeTask(skipped, (*seed, t))
            for seed, forest in zip(seeds, forests, strict=True)
            for t, skipped in enumerate(forest)
        ]
        client.submit(int, pure=False).result()  # wait for a worker: without one, nothing can be sent
        read = client.scatter((planes, samples), broadcast=True, hash=False)
        groups = _groups(len(tasks), TASKS_PER_THREAD * cluster.n_threads(client))
        grown_trees: dict[int, Any] = {}
        batches = [(numbers, [tasks[k] for k in numbers]) for numbers in groups]
        for (numbers, _), trees in cluster.side_by_side(client, _grow, batches, read, n_classes, config):
            for k, tree in zip(numbers, trees, strict=True):
                grown_trees[k] = tree
                advance()
        in_order = (grown_trees[k] for k in range(len(tasks)))
        return [assembled(list(islice(in_order, len(forest))), planes, config) for forest in forests]

    return grow_all


def _grow(
    batch: tuple[Sequence[int], list[TreeTask]],
    read: tuple[TrainingPlanes, Samples],
    n_classes: int,
    config: StackConfig,
) -> list[Any]:
    return [grow_tree(task, *read, n_classes, config) for task in batch[1]]


def _groups(n: int, most: int) -> list[range]:
    """The numbers below n in at most `most` ranges of about the same length."""
    each = -(-n // max(most, 1))
    return [range(first, min(first + each, n)) for first in range(0, n, each)]
