"""Growth of forests on the workers of a cluster: a task grows several trees; the folds of a level grow in parallel.

A tree depends on its seed and on what all trees read, not on where it is grown: the model is the same, to the last
byte, as the one that a single process grows.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from hedgerow.config import StackConfig
from hedgerow.forest.autocontext import GrowAll
from hedgerow.forest.grow import TreeTask, grow_tree
from hedgerow.forest.planes import TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.kernels.cpu.grow import Grown
from hedgerow.scale import cluster

TASKS_PER_THREAD = 4  # so that faster workers can take more tasks


def on(client: Any) -> GrowAll:
    """Grows on the workers of a client what `grow_in_turn` grows; the planes are sent to each worker once per level."""

    def grow_all(
        tasks: Sequence[TreeTask], planes: TrainingPlanes, samples: Samples, n_classes: int, config: StackConfig
    ) -> Iterator[tuple[int, Grown]]:
        client.submit(int, pure=False).result()  # wait for a worker: before, nothing can be sent
        read = client.scatter((planes, samples), broadcast=True, hash=False)
        groups = _groups(len(tasks), TASKS_PER_THREAD * cluster.n_threads(client))
        batches = [(numbers, [tasks[k] for k in numbers]) for numbers in groups]
        for (numbers, _), trees in cluster.side_by_side(client, _grow, batches, read, n_classes, config):
            yield from zip(numbers, trees, strict=True)

    return grow_all


def _grow(
    batch: tuple[Sequence[int], list[TreeTask]],
    read: tuple[TrainingPlanes, Samples],
    n_classes: int,
    config: StackConfig,
) -> list[Any]:
    return [grow_tree(task, *read, n_classes, config) for task in batch[1]]


def _groups(n: int, most: int) -> list[range]:
    """Numbers below n in at most so many runs of about the same length."""
    each = -(-n // max(most, 1))
    return [range(first, min(first + each, n)) for first in range(0, n, each)]
