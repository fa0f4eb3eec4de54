"""Trees stored while a stack grows, so that an interrupted run grows only the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.forest.autocontext import grow_in_turn
from hedgerow.forest.grow import TreeTask
from hedgerow.forest.planes import TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.kernels.cpu.grow import Grown
from hedgerow.work_folder import read_arrays, write_arrays

SECONDS_BETWEEN_FILES = 20.0


class TreeStore:
    """Grows trees as `grow_in_turn` does, but those that an interrupted run has stored are read.

    path:  begins the names of the files, each of which holds the trees of some seconds; None: nothing is stored
    key:   fingerprint of everything that determines the trees, besides their seeds
    clock: returns the time in seconds
    """

    def __init__(self, path: Path | None, key: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._key, self._clock = path, key, clock
        self._stored: dict[str, dict[str, np.ndarray]] = {}
        self._new: dict[str, np.ndarray] = {}
        self._n_files, self._written = 0, clock()
        while path is not None and self._file(self._n_files).exists():
            with suppress(ValueError, OSError):  # the trees of a damaged file are grown again
                for name, array in read_arrays(self._file(self._n_files), key).items():
                    tree, field = name.split(".")
                    self._stored.setdefault(tree, {})[field] = array
            self._n_files += 1

    def __len__(self) -> int:
        """The number of stored trees."""
        return len(self._stored)

    def grow_all(
        self, tasks: Sequence[TreeTask], planes: TrainingPlanes, samples: Samples, n_classes: int, config: StackConfig
    ) -> Iterator[tuple[int, Grown]]:
        """`GrowAll`"""
        others = []
        for number, task in enumerate(tasks):
            if (fields := self._stored.get(_name(task))) is not None:
                yield number, Grown(**fields)
            else:
                others.append((number, task))
        for k, tree in grow_in_turn([task for _, task in others], planes, samples, n_classes, config):
            number, task = others[k]
            self._store(task, tree)
            yield number, tree

    def _store(self, task: TreeTask, tree: Grown) -> None:
        if self._path is None:
            return
        self._new |= {f"{_name(task)}.{field}": array for field, array in tree._asdict().items()}
        if self._clock() > self._written + SECONDS_BETWEEN_FILES:
            write_arrays(self._file(self._n_files), self._key, self._new)
            self._new, self._n_files, self._written = {}, self._n_files + 1, self._clock()

    def _file(self, number: int) -> Path:
        assert self._path is not None
        return self._path.with_name(f"{self._path.name}-{number}.array")


def _name(task: TreeTask) -> str:
    return "-".join(map(str, task.seed))
