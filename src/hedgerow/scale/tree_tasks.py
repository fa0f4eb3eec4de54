"""Forests grown on many machines: a group of trees is a task, and all folds of a level go side by side.

A tree depends on its seed and on what all trees read, not on where it is grown: the model is the same, to the last
byte, as the one that a single process grows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import HedgerowError
from hedgerow.forest.autocontext import GrowAll, Seeds
from hedgerow.forest.grow import TreeTask, assembled, grow_tree
from hedgerow.forest.planes import PlaneForest, TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.scale import cluster

TASKS_PER_THREAD = 4  # so that those who are quicker can do more


def on(client: Any) -> GrowAll:
    """Grows forests with the workers of a client; what trees read travels to each of them once for a level."""

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
        client.submit(int, pure=False).result()  # there is a worker: nothing can be sent before
        read = client.scatter((planes, samples), broadcast=True, hash=False)
        groups = _groups(len(tasks), TASKS_PER_THREAD * sum(client.nthreads().values()))
        found: dict[int, Any] = {}
        given = [(numbers, [tasks[k] for k in numbers]) for numbers in groups]
        for (numbers, _), trees in cluster.side_by_side(client, _grow, given, read, n_classes, config):
            if isinstance(trees, HedgerowError):
                raise trees
            for k, tree in zip(numbers, trees, strict=True):
                found[k] = tree
                advance()
        grown, first = [], 0
        for forest in forests:
            grown.append(assembled([found[k] for k in range(first, first + len(forest))], planes))
            first += len(forest)
        return grown

    return grow_all


def _grow(
    given: tuple[Sequence[int], list[TreeTask]],
    read: tuple[TrainingPlanes, Samples],
    n_classes: int,
    config: StackConfig,
) -> list[Any]:
    return [grow_tree(task, *read, n_classes, config) for task in given[1]]


def _groups(n: int, most: int) -> list[range]:
    """Numbers below n in at most so many runs of about the same length."""
    each = -(-n // max(most, 1))
    return [range(first, min(first + each, n)) for first in range(0, n, each)]
