"""Compiling the kernels of the usual work before it is needed, for example while a container is built."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from hedgerow import extras
from hedgerow.config import AugmentConfig, ContextConfig, RefineConfig, StackConfig
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.images.given import labelled_set
from hedgerow.images.labelled import LabelledSet
from hedgerow.kernels.compiling import n_compiled
from hedgerow.progress import Report, Say, quiet, reporting, silent

NOISE = (2, 48, 48)  # two images
QUICK = StackConfig(n_levels=2, n_trees=2, augment=AugmentConfig(copies=1))


def warm_up(strokes: Callable[[np.ndarray], Iterable[int]], *, say: Say = quiet, progress: Report | None = None) -> int:
    """Run all kinds of work on tiny images, so that their kernels are compiled and cached; returns their number.

    Where PyTorch is not installed, those of networks are left out.
    strokes: runs what the page runs for a stroke, on an image (C,H,W), step by step
    """
    start, before = time.perf_counter(), n_compiled()
    random = np.random.default_rng(0)
    grey, labels = random.random(NOISE, np.float32), random.integers(0, 3, NOISE)
    depth = random.integers(500, 4000, NOISE).astype(np.uint16)
    kinds: list[tuple[str, np.ndarray, StackConfig]] = [
        ("images", grey, QUICK),
        ("oblique splits", grey, replace(QUICK, context=ContextConfig(n_probes=2))),
        ("depth images", depth, replace(QUICK, features="depth")),
    ]
    with reporting(progress) as report:
        for done, (name, images, config) in enumerate(kinds):
            report(f"compiling for {name}", done, len(kinds))
            labelled = labelled_set(list(images), list(labels))
            _run_all(grow_stack(labelled, config, progress=silent), labelled)
        list(strokes(grey[:1]))
        report("compiling", len(kinds), len(kinds))
    compiled = n_compiled() - before
    seconds = time.perf_counter() - start
    say(f"compiled {compiled} kernels in {seconds:.0f} s" if compiled else "all kernels had been compiled before")
    return compiled


def _run_all(stack: ForestStack, labelled: LabelledSet) -> None:
    """Predict with a stack, with its network, refined, and with the forests that it is mapped back to."""
    image = labelled.images[0].planes[0]
    stack.predict(image, progress=silent)
    if not extras.is_there("torch"):
        return
    from hedgerow.network.mapback import to_forest
    from hedgerow.network.mapping import to_convnet
    from hedgerow.refinement.loop import refine_labelled

    net = refine_labelled(to_convnet(stack), labelled, RefineConfig(n_steps=1, held_out=0.0), progress=silent)
    net.predict(image, progress=silent)
    for method in ("leaf_mean", "fitted", "soft"):
        to_forest(net, labelled.pictures(), method).predict(image, progress=silent)
