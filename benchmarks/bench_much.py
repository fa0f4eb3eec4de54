"""Training on much: scribbles on up to a thousand images of one megapixel, and a few strokes on one of 20,000 x 20,000.

Images are drawn into files before the clock starts, and read from there. Settings are those for strokes: one level of
64 trees on the filter bank. A process of its own for each; its peak is what the system counts as resident.

HEDGEROW_BENCH_FOLDER keeps images, and what was measured, in a folder: a run that is ended goes on there.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench_large import drawn
from hedgerow import jobs
from hedgerow.images.regions import Region
from hedgerow.progress import silent
from hedgerow.scale import sparse_growth
from hedgerow.threads import set_threads
from measure import Cost, exponent, in_fresh_process, measure, table

TITLE = "Training on much"
COUNTS = {False: (25, 50, 100, 200, 400, 1000), True: (4, 8)}
SIDES = {False: (1000, 20_000), True: (300, 1500)}
N_STROKES, LENGTH, WIDTH = 40, 60, 3
MEGABYTES = 2000


@dataclass(frozen=True)
class Outcome:
    n_images: int
    side: int
    cost: Cost


def strokes(side: int, seed: int) -> np.ndarray:
    """(side,side) uint8: strokes over patches of three kinds, 255 elsewhere."""
    rng = np.random.default_rng(seed)
    labels = np.full((side, side), 255, np.uint8)
    for k in range(N_STROKES):
        row, column = rng.integers(0, side - LENGTH, 2)
        labels[row : row + WIDTH, column : column + LENGTH] = k % 3
    return labels


def write_set(folder: Path, n_images: int, side: int) -> None:
    for kind in ("images", "labels"):
        (folder / kind).mkdir(exist_ok=True, parents=True)
    for i in range(n_images):
        if not (folder / "labels" / f"{i:04}.npy").exists():
            np.save(folder / "images" / f"{i:04}.npy", _picture(side, i))
            np.save(folder / "labels" / f"{i:04}.npy", strokes(side, i))


def _picture(side: int, i: int) -> np.ndarray:
    picture = np.empty((side, side), np.uint8)
    for part in Region(0, side, 0, side).tiles(2000):
        part.of(picture)[...] = drawn(Region(part.top + i * side, part.bottom + i * side, part.left, part.right))
    return picture


def train_on(folder: str, n_images: int, side: int) -> Outcome:
    set_threads(1)
    names = [f"{i:04}.npy" for i in range(n_images)]
    images, labels = ([str(Path(folder, kind, name)) for name in names] for kind in ("images", "labels"))
    sparse_growth.LARGE_SET_PIXELS = 0  # few images are trained on in the same way
    changes = {"features": "bank"}
    request = jobs.TrainRequest(images, labels, Path(folder, "model.hedge"), changes=changes)
    cost, _ = measure(lambda: jobs.train(request, progress=silent))
    return Outcome(n_images, side, cost)


def measured(folder: Path, n_images: int, side: int) -> Outcome:
    """`train_on`, or its stored result in this folder."""
    path = folder / f"outcome{n_images}-{side}.json"
    if not path.exists():
        images = folder / f"of-{side}"
        write_set(images, n_images, side)
        found = in_fresh_process(train_on, str(images), n_images, side)
        path.write_text(json.dumps(asdict(found)))
    known = json.loads(path.read_text())
    return Outcome(n_images, side, Cost(**known["cost"]))


def run(small: bool = False) -> str:
    most = int(os.environ.get("HEDGEROW_BENCH_IMAGES", COUNTS[small][-1]))
    counts, (side, large) = [count for count in COUNTS[small] if count <= most], SIDES[small]
    with ExitStack() as rooms:
        folder = Path(os.environ.get("HEDGEROW_BENCH_FOLDER") or rooms.enter_context(tempfile.TemporaryDirectory()))
        outcomes = [measured(folder, count, side) for count in counts]
        outcomes.append(measured(folder, 1, large))
    rows = [
        [
            str(item.n_images), f"{item.side:,}^2",
            f"{item.cost.cpu:.1f}", f"{item.cost.wall:.1f}", f"{item.cost.peak:.0f}",
        ]
        for item in outcomes
    ]  # fmt: skip
    power = exponent(counts, [item.cost.cpu for item in outcomes[:-1]])
    peak = max(item.cost.peak for item in outcomes)
    return "\n".join(
        [
            f"{N_STROKES} strokes of {LENGTH} x {WIDTH} pixels an image, settings for strokes, one thread:",
            "",
            table(["images", "size", "CPU s", "wall s", "peak MB"], rows),
            "",
            f"- CPU seconds grow as the number of images to the power of {power:.2f}; promised linear.",
            f"- At most {peak:.0f} MB; promised within {MEGABYTES} MB: {'kept' if peak <= MEGABYTES else 'NOT KEPT'}.",
        ]
    )
