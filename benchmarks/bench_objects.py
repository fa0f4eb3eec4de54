"""Objects in probabilities: one image in memory beside scikit-image's watershed, and a large one in a Zarr."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import hedgerow as hr
from hedgerow import jobs
from hedgerow.threads import set_threads
from measure import THREADS, Cost, comparison, cost_cells, in_fresh_process, installed, measure, require, table, verdict

TITLE = "Objects"
OURS, PEER = "hedgerow", "scikit-image"
SIDE, LARGE_SIDE = 2048, 10_000
STEP, RADIUS = 22, 10.5  # of discs that nearly touch; noise joins them
NOISE, STRIPE = 0.08, 1024


def stripe(top: int, bottom: int, width: int) -> np.ndarray:
    """Rows of the probability (h,W) of belonging to one of many discs."""
    rows, columns = np.mgrid[top:bottom, :width].astype(np.float32)
    distance = np.hypot(rows % STEP - STEP / 2, columns % STEP - STEP / 2)
    noise = np.random.default_rng(top).normal(0, NOISE, distance.shape).astype(np.float32)
    return np.clip((RADIUS - distance) / 2 + 0.5 + noise, 0, 1)


def n_discs(side: int) -> int:
    """Those whose middle is in the image."""
    return int(np.ceil((side - STEP / 2) / STEP)) ** 2


def peer(proba: np.ndarray) -> np.ndarray:
    """As in scikit-image's gallery; it is told how far the middles of discs are apart."""
    from scipy import ndimage
    from skimage.feature import peak_local_max
    from skimage.morphology import remove_small_objects
    from skimage.segmentation import watershed

    mask = ndimage.binary_fill_holes(remove_small_objects(ndimage.gaussian_filter(proba, 0.7) > 0.5, max_size=20))
    distance = ndimage.gaussian_filter(ndimage.distance_transform_edt(mask), 1)
    regions, _ = ndimage.label(mask)
    peaks = peak_local_max(distance, min_distance=STEP // 3, labels=regions)
    seeds = np.zeros(mask.shape, np.int32)
    seeds[tuple(peaks.T)] = np.arange(1, len(peaks) + 1)
    return watershed(-distance, seeds, mask=mask)


FIND: dict[str, Callable[[np.ndarray], np.ndarray]] = {OURS: hr.objects, PEER: peer}


def in_memory(name: str, side: int) -> tuple[Cost, int]:
    set_threads(THREADS)
    proba = stripe(0, side, side)
    FIND[name](proba[:128, :128])
    cost, numbers = measure(lambda: FIND[name](proba), 3)
    return cost, len(np.unique(numbers)) - 1


def from_zarr(side: int) -> tuple[Cost, int]:
    """A Zarr of 8 bits, without its making."""
    import zarr

    set_threads(THREADS)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "proba.zarr"
        stored = zarr.create_array(path, shape=(side, side), chunks=(512, 512), dtype="uint8")
        for top in range(0, side, STRIPE):
            bottom = min(top + STRIPE, side)
            stored[top:bottom] = np.rint(stripe(top, bottom, side) * 255).astype(np.uint8)
        request = jobs.ObjectsRequest(path, Path(place) / "objects.zarr")
        cost, outcome = measure(lambda: jobs.find_objects(request))
        return cost, outcome.n_objects


def run(small: bool = False) -> str:
    side, large = (256, 600) if small else (SIDE, LARGE_SIDE)
    costs: dict[str, Cost | None] = {}
    notes = {}
    for name in FIND:
        costs[name] = None
        if name == OURS or installed("skimage"):
            costs[name], n = in_fresh_process(in_memory, name, side)
            notes[name] = f"{n:,}"
            require(abs(n - n_discs(side)) <= max(0.02 * n_discs(side), 30), f"{name} found {n} objects.")
    cost, n = in_fresh_process(from_zarr, large)
    require(abs(n - n_discs(large)) <= max(0.02 * n_discs(large), 60), f"{n} objects in the large image.")
    ours, other = costs[OURS], costs[PEER]
    assert ours is not None
    return "\n\n".join(
        [
            f"The objects in the probabilities of one {side} x {side} image of {n_discs(side):,} discs that touch in "
            "places. scikit-image is told how far their middles are apart; Hedgerow estimates their size.",
            comparison(costs, PEER, notes, "objects"),
            verdict("objects of one image", ours.cpu, other.cpu if other else None, 1),
            f"An image of {large:,} x {large:,} pixels in a Zarr, read and written in parts (`hedgerow objects`):",
            table(["", "wall s", "CPU s", "added MB", "peak MB", "objects"], [[OURS, *cost_cells(cost), f"{n:,}"]]),
        ]
    )
