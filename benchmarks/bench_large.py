"""Images larger than memory: what a pixel costs as images grow, what a worker holds, and what two of them gain.

An OME-Zarr is drawn shard by shard, so that it is never whole in memory. A stack of two levels of 16 trees with the
default filter bank predicts it into OME-Zarr with Dask workers in processes of their own, one thread each; ten random
crops of the result must equal what one process makes of them, bit for bit.

HEDGEROW_BENCH_FOLDER keeps images, and what was measured, in a folder: a run that is ended goes on there.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hedgerow as hr
from hedgerow.images.reading import open_image
from hedgerow.images.regions import Region
from hedgerow.predict.tiling import region_outputs
from hedgerow.progress import silent
from measure import in_fresh_process, require, table

TITLE = "Large images"
SIDES = {False: (4096, 8192, 32768), True: (1024, 2048)}
ALONE = 8192  # the largest side that one worker predicts, too
CROPS, CROP = 10, 96
PATCH, NOISE = 64, 12
MEGABYTES = 1000  # that a worker may hold
PART = 4096
HUGE = 100_000


@dataclass(frozen=True)
class Outcome:
    """What a run with so many workers needed. cpu: seconds of all workers; peak: megabytes of the largest of them."""

    side: int
    workers: int
    wall: float
    cpu: float
    peak: float

    @property
    def each(self) -> float:
        """CPU seconds per million pixels."""
        return self.cpu / (self.side**2 / 1e6)


def drawn(region: Region) -> np.ndarray:
    """(h,w) uint8: patches of three brightnesses, and noise, independent of other parts of the image."""
    rows, columns = (np.arange(*ends) // PATCH for ends in ((region.top, region.bottom), (region.left, region.right)))
    kind = ((rows[:, None] * 7919 + columns[None, :] * 104729) ** 2 // 31) % 3
    rng = np.random.default_rng((region.top, region.left))
    return (60 + 60 * kind + rng.normal(0, NOISE, kind.shape)).clip(0, 255).astype(np.uint8)


def write_image(path: Path, side: int) -> None:
    import zarr

    group = zarr.create_group(str(path), zarr_format=3)
    array = group.create_array("0", shape=(side, side), dtype="uint8", chunks=(512, 512), shards=(2048, 2048))
    for part in Region(0, side, 0, side).tiles(2048):
        array[part.top : part.bottom, part.left : part.right] = drawn(part)
    axes = [{"name": axis, "type": "space"} for axis in "yx"]
    scale = [{"type": "scale", "scale": [1.0, 1.0]}]
    datasets = [{"path": "0", "coordinateTransformations": scale}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}


def grown() -> Any:
    region = Region(0, 384, 0, 384)
    rows, columns = (np.arange(384) // PATCH for _ in range(2))
    kind = ((rows[:, None] * 7919 + columns[None, :] * 104729) ** 2 // 31) % 3
    config = hr.StackConfig(n_levels=2, n_trees=16, drop_levels=False)
    return hr.fit_stack(drawn(region), kind.astype(np.uint8), config, progress=silent)


def used() -> tuple[float, float, int]:
    """CPU seconds and peak megabytes of this process."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime, own.ru_maxrss / 1000, os.getpid()


def run_large(folder: str, side: int, workers: int, n_crops: int) -> Outcome:
    """Predict an image of this side with some workers, and compare crops."""
    from distributed import Client, LocalCluster

    image, output = Path(folder, f"image{side}.ome.zarr"), Path(folder, f"result{side}-{workers}.ome.zarr")
    if not image.exists():
        write_image(image, side)
    model = hr.load(Path(folder, "model.hedge"))
    os.environ["HEDGEROW_THREADS"] = "1"
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        small = Path(folder, f"warm{side}-{workers}.ome.zarr")
        hr.predict_large(
            model, image, small, region="0:1536,0:1536", shard=512, client=client, progress=silent, overwrite=True
        )  # loads, compiles
        before = client.run(used)
        begun = time.perf_counter()
        hr.predict_large(model, image, output, client=client, progress=silent)
        wall = time.perf_counter() - begun
        after = client.run(used)
    cpu = sum(after[item][0] - before[item][0] for item in after)
    check_crops(model, image, output, side, n_crops)
    shutil.rmtree(output)
    return Outcome(side, workers, wall, cpu, max(item[1] for item in after.values()))


def check_crops(model: Any, image: Path, output: Path, side: int, n: int) -> None:
    lazy, result = open_image(image), open_image(output)
    rng = np.random.default_rng(side)
    values = np.array(model.classes)
    for _ in range(n):
        top, left = (int(rng.integers(0, side - CROP)) for _ in range(2))
        crop = Region(top, top + CROP, left, left + CROP)
        around = lazy.source_planes(crop.grown(model.receptive_field, lazy.whole))
        expected = values[region_outputs(model, around, crop)[-1].argmax(axis=0)]
        require(np.array_equal(result.read(crop)[0], expected), f"a crop at {top}, {left} differs from one process.")


def measured(folder: str, side: int, workers: int) -> Outcome:
    """`run_large`, or its stored result in this folder."""
    path = Path(folder, f"outcome{side}-{workers}.json")
    if not path.exists():
        found = in_fresh_process(run_large, folder, side, workers, CROPS)
        path.write_text(json.dumps(asdict(found)))
    return Outcome(**json.loads(path.read_text()))


def run(small: bool = False) -> str:
    sides = SIDES[small]
    largest = int(os.environ.get("HEDGEROW_BENCH_LARGEST", sides[-1]))
    sides = tuple(side for side in sides if side <= largest)
    with ExitStack() as rooms:
        folder = os.environ.get("HEDGEROW_BENCH_FOLDER") or rooms.enter_context(tempfile.TemporaryDirectory())
        model = Path(folder, "model.hedge")
        if not model.exists():
            hr.save(grown(), model)
        alone = [measured(folder, side, 1) for side in sides if side <= ALONE]
        outcomes = [measured(folder, side, 2) for side in sides]
    rows = [
        [
            f"{each.side:,}^2", str(each.workers), f"{each.wall:.1f}", f"{each.cpu:.1f}", f"{each.each:.3f}",
            f"{each.peak:.0f}",
        ]
        for each in (*alone, *outcomes)
    ]  # fmt: skip
    first, last = outcomes[0], outcomes[-1]
    apart = max(each.each for each in outcomes) / min(each.each for each in outcomes) - 1
    peak = max(each.peak for each in outcomes)
    gains = [item.wall / two.wall for item, two in zip(alone, outcomes, strict=False)]
    hours = last.each * HUGE**2 / 1e6 / 3600
    return "\n".join(
        [
            "uint8, two levels of 16 trees, 49 features; the result is labels with a pyramid:",
            "",
            table(["pixels", "workers", "wall s", "CPU s", "CPU s / Mpixel", "peak MB of a worker"], rows),
            "",
            f"- Cost per pixel from {first.side:,}^2 to {last.side:,}^2 differs by {apart:.1%}; promised within 10 %: "
            f"{'kept' if apart <= 0.1 else 'NOT KEPT'}.",
            f"- A worker holds at most {peak:.0f} MB; promised under {MEGABYTES} MB: "
            f"{'kept' if peak < MEGABYTES else 'NOT KEPT'}.",
            f"- Two workers take {', '.join(f'1/{gain:.2f}' for gain in gains)} of the time of one, at "
            f"{', '.join(f'{item.side:,}^2' for item in alone)}; promised 1/1.7 on idle cores: "
            f"{'kept' if min(gains) >= 1.7 else 'NOT KEPT in this run; other work on the machine counts against it'}.",
            f"- {CROPS} random crops of each result equal the in-process result bit for bit.",
            f"- On paper: {HUGE:,}^2 at the rate of the largest takes {hours:.1f} CPU hours.",
        ]
    )
