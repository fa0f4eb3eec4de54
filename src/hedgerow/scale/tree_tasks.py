"""Growth of forests on the workers of a cluster: a task grows several trees; the folds of a level grow in parallel.

A tree depends on its seed and its data, not on where it is grown: the model equals the one that a single process grows,
to the last byte.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from hedgerow.config import StackConfig
from hedgerow.forest.autocontext import GrowAll
from hedgerow.forest.grow import TreeTask, grow_tree
from hedgerow.forest.planes import TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.kernels.cpu.grow import Grown
from hedgerow.scale import cluster

TASKS_PER_THREAD = 4  # so that faster workers can take more tasks
Batch = Sequence[tuple[int, TreeTask]]  # numbered


def on(client: Any) -> GrowAll:
    """Like `grow_in_turn`, but on the workers of a client; the planes are sent to each worker once per level."""
    return partial(_grow_all, client)


def _grow_all(
    client: Any,
    tasks: Sequence[TreeTask],
    planes: TrainingPlanes,
    samples: Samples,
    n_classes: int,
    config: StackConfig,
) -> Iterator[tuple[int, Grown]]:
    client.submit(int, pure=False).result()  # wait for a worker: without one, nothing can be sent
    read = client.scatter((planes, samples), broadcast=True, hash=False)
    size = -(-len(tasks) // max(TASKS_PER_THREAD * cluster.n_threads(client), 1))
    numbered = list(enumerate(tasks))
    batches = [numbered[first : first + size] for first in range(0, len(tasks), size)]
    for batch, trees in cluster.side_by_side(client, _grow, batches, read, n_classes, config):
        for (number, _), tree in zip(batch, trees, strict=True):
            yield number, tree


def _grow(batch: Batch, read: tuple[TrainingPlanes, Samples], n_classes: int, config: StackConfig) -> list[Any]:
    return [grow_tree(task, *read, n_classes, config) for _, task in batch]
