"""Stacks for the export to C, compiled together into one library and called through ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from hedgerow.export.c import export_c
from hedgerow.features.channels import Channels
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.array_checks import to_planes
from helpers.forests import GROWN, grown_stack, random_forest

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
GUARD = 64  # bytes after the workspace that must not change


def compiler() -> str:
    """The C compiler; the test is skipped without one."""
    result = shutil.which("cc")
    if result is None:
        pytest.skip("no C compiler: there is no program called cc")
    return result


def compile_c(*arguments: str | Path) -> None:
    done = subprocess.run([compiler(), *STRICT, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[:4000]


def softened(stack: ForestStack, tolerance: float = 1e-4, output: str = "normalise") -> ForestStack:
    """The same stack with soft splits, each of its own sharpness."""
    rng = np.random.default_rng(1)
    sharpness = [rng.uniform(0.5, 20, forest.n_nodes).astype(np.float32) for forest in stack.levels]
    levels = [replace(forest, sharpness=own) for forest, own in zip(stack.levels, sharpness, strict=True)]
    return replace(stack, levels=tuple(levels), tolerance=tolerance, output=output)


def _grown(kind: str) -> ForestStack:
    return grown_stack(kind)[0]


def _soft(kind: str) -> ForestStack:
    return softened(_grown(kind))


def random_stack(
    kind: str, seed: int = 0, n_levels: int = 2, classes: tuple[int, ...] = (0, 1, 2), n_probes=(1,), **options
) -> ForestStack:
    """Random forests on the features of a grown stack; level k has n_probes[k % len(n_probes)] probes per split."""
    rng = np.random.default_rng(seed)
    features = channels(300) if kind == "many channels" else grown_stack(kind)[0].features
    levels = [
        random_forest(
            rng,
            n_channels=features.n_features + (len(classes) if k else 0),
            n_classes=len(classes),
            n_probes=n_probes[k % len(n_probes)],
            **options,
        )
        for k in range(n_levels)
    ]
    return ForestStack(features, tuple(levels), classes)


def channels(n: int) -> Channels:
    """Features that are the image's own n channels."""
    return Channels(n, mean=np.full(n, 0.1, np.float32), std=np.full(n, 1.7, np.float32))


def cancelling(stack: ForestStack) -> ForestStack:
    """Votes of both signs that nearly cancel, as refinement can leave them; leaves without any vote."""
    rng = np.random.default_rng(2)
    levels = []
    for forest in stack.levels:
        votes = rng.normal(0, 1, forest.votes.shape).astype(np.float32)
        votes[rng.random(votes.shape) < 0.5] = 0
        levels.append(replace(forest, votes=votes))
    return replace(stack, levels=tuple(levels), output="softmax")


def _first_level(stack: ForestStack) -> ForestStack:
    return replace(stack, levels=stack.levels[:1])


# Every kind of stack that there is; made when it is asked for, since growing takes a moment.
CASES: dict[str, Callable[[], ForestStack]] = {
    **{kind: partial(_grown, kind) for kind in GROWN},
    **{f"soft_{kind}": partial(_soft, kind) for kind in ("offsets", "windows", "depth")},
    "soft_oblique": lambda: softened(_grown("oblique"), tolerance=0.0, output="softmax"),
    "softmax": lambda: replace(_grown("colour"), output="softmax"),
    "one_level": lambda: _first_level(_grown("windows")),
    "depth_windows": lambda: random_stack("depth", n_levels=3, n_probes=(2, 1), radii=(0, 1, 3, 6), n_trees=8),
    "soft_depth_windows": lambda: softened(random_stack("depth", n_probes=(2,), radii=(0, 2)), output="softmax"),
    "far": lambda: random_stack("offsets", reach=40, radii=(0, 5)),
    "leaves_alone": lambda: random_stack("channels", max_depth=0),
    "some_leaves_alone": lambda: random_stack(
        "channels", n_levels=3, max_depth=4, leaf_chance=0.4, n_probes=(1, 4), n_trees=9
    ),
    "cancelling": lambda: cancelling(random_stack("channels", n_levels=4)),
    "other_classes": lambda: replace(_grown("offsets"), classes=(-2_147_483_648, 300, 7)),
    "large_classes": lambda: replace(_grown("offsets"), classes=(70_000, 300, 7)),
    "many_channels": lambda: random_stack("many channels", n_trees=6, max_depth=9, leaf_chance=0.05),
    "many_classes": lambda: random_stack("channels", n_levels=1, classes=tuple(range(255))),
    "many_nodes": lambda: random_stack("channels", n_levels=1, n_trees=4, max_depth=14, leaf_chance=0, reach=3),
}


@cache
def stack_of(case: str) -> ForestStack:
    return CASES[case]()


def picture(stack: ForestStack, height: int, width: int, seed: int = 0) -> np.ndarray:
    """An image for a stack, with few values, so that ties are common, but for some noise in one corner."""
    rng = np.random.default_rng([seed, height, width])
    features = stack.features
    values = rng.integers(-8, 9, (features.n_inputs, height, width)).astype(np.float32) / 4
    values[:, : height // 2, : width // 2] += rng.normal(0, 0.1, (height // 2, width // 2)).astype(np.float32)
    if features.layout == "planes":
        return features.mean[:, None, None] + features.std[:, None, None] * values
    return np.moveaxis(2000 + 1000 * values, 0, 2)


class CModel:
    """A stack in a compiled library, called as Python's own."""

    def __init__(self, library: ctypes.CDLL, name: str, stack: ForestStack, header: str) -> None:
        self.library, self.name, self.stack, self.header = library, name, stack, header
        self.workspace_size = self.function("workspace")
        self.workspace_size.restype = ctypes.c_size_t

    def function(self, name: str):
        return getattr(self.library, f"{self.name}_{name}")

    def predict(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(H,W) labels and (C,H,W) probabilities, filters in C."""
        return self._call("predict", to_planes(image, layout=self.stack.features.layout))

    def predict_features(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same with Python's features."""
        features = self.stack.features
        planes = to_planes(image, layout=features.layout)
        stretch = features.stretch(planes)
        return self._call("predict_features", features.compute(planes), *([] if stretch is None else [stretch]))

    def _call(self, name: str, *given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        height, width = given[0].shape[1:]
        classes = self.stack.classes
        labels = np.zeros((height, width), np.uint8 if min(classes) >= 0 and max(classes) <= 255 else np.int32)
        proba = np.zeros((len(classes), height, width), np.float32)
        workspace = np.full(self.workspace_size(height, width) + GUARD, 0xFF, np.uint8)  # floats there are NaN
        result = self.function(name)(*map(pointer, given), height, width, *map(pointer, (labels, proba, workspace)))
        assert result == 0
        assert (workspace[-GUARD:] == 0xFF).all(), "more than the workspace was written"
        return labels, proba


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return array.ctypes.data_as(ctypes.c_void_p)


def build(folder: Path, names: Iterable[str], filters: bool = True) -> dict[str, CModel]:
    """Stacks of CASES in one library, each under its name."""
    return compiled_stacks(folder, {name: stack_of(name) for name in names}, filters)


def compiled_stacks(folder: Path, stacks: dict[str, ForestStack], filters: bool = True) -> dict[str, CModel]:
    """Any stacks in one library, each under its name."""
    compiler()
    sources = {name: export_c(stack, folder / f"{name}.c", name, filters) for name, stack in stacks.items()}
    library = folder / "models.so"
    compile_c("-O1", "-shared", "-fPIC", *(source for source, _ in sources.values()), "-o", library, "-lm")
    loaded = ctypes.CDLL(str(library))
    return {name: CModel(loaded, name, stacks[name], header.read_text()) for name, (_, header) in sources.items()}
