"""Every kernel that a stroke needs, run once on noise: where they are not kept from an earlier start, they compile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hedgerow.features.registry import fit_features
from hedgerow.forest.codes import fit_edges
from hedgerow.paint.live import grow_on_codes, live_config
from hedgerow.paint.raster import covered
from hedgerow.paint.squares import Squares, Walkable

STEPS = 4


def run_all(noise: np.ndarray, step: Callable[[int], None]) -> None:
    """noise: (C,h,w) float32; step: is told how many of STEPS are done"""
    list(covered([[1, 1], [2, 3], [4, 2]], 1, (9, 9), is_polygon=True))  # first: a stroke may wait for these
    config = live_config(len(noise), 2)
    features, kept = fit_features([noise], config)
    step(1)
    flat = kept[0].reshape(features.n_features, -1)
    edges = np.stack([fit_edges(values) for values in flat])
    codes = Squares.of(np.ascontiguousarray(kept[0]), edges)
    step(2)
    target = np.arange(flat.shape[1]) % 2
    read = np.ascontiguousarray(codes.image().reshape(-1, len(flat)).T)
    forest = grow_on_codes(read, target, edges, 2, config)
    step(3)
    Walkable.of(forest).walked(codes)
    step(STEPS)
