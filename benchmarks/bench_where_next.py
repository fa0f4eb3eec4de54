"""Where next: a simulated hand paints the truth at places that the page suggests, or at random ones.

Both begin with two strokes, on the two most common classes. Each further stroke is at most 32 pixels long and 5 wide,
through the place, of the class that the truth has there and nowhere outside it. What is scored is the quick forest of
the page on all that is not painted. Random places are uniform among unpainted pixels, and drawn three times.

HEDGEROW_BENCH_DATA: a folder that holds vnc_sstem/images and vnc_sstem/labels, if those are to take part.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow import synthetic
from hedgerow.images.metrics import scores
from hedgerow.images.reading import read_image
from hedgerow.images.regions import Region
from hedgerow.paint.code_cache import CodeCache, MemoryCache
from hedgerow.paint.image_files import image_files
from hedgerow.paint.project import Project
from hedgerow.paint.raster import covered
from hedgerow.paint.segmenter import Segmenter
from hedgerow.threads import set_threads
from measure import THREADS, in_fresh_process, require, table

TITLE = "Where to paint next"
COUNTED = (5, 10, 20)  # strokes after which it is scored
N_RANDOM = 3
ABOUT = """\
Does it help to paint where the page suggests? A simulated user paints the true labels at suggested or at random places,
beginning with two strokes. The table shows the mean Dice on all unpainted pixels, over 6 seeds that were not used to
choose the constants:"""
LENGTH, RADIUS = 32.0, 2.0
CROP = 512  # of large images
Labelled = tuple[np.ndarray, np.ndarray]
Choose = Callable[["Hand"], tuple[int, int]]


class Nobody:
    """A link to no worker."""

    def broadcast(self, message: dict[str, Any]) -> None: ...
    def progress(self, *values: Any) -> None: ...
    def show(self, *values: Any) -> None: ...
    def newest(self, image: int) -> None: ...
    def has_urgent_work(self) -> bool:
        return False


class Hand:
    """Paints the truth (H,W) on an image (H,W), stroke by stroke."""

    def __init__(self, image: np.ndarray, truth: np.ndarray, seed: int, folder: Path) -> None:
        np.save(folder / "image.npy", image)
        self.truth, self.rng = truth, np.random.default_rng(seed)
        self.project = Project(folder / "project", image_files(folder / "image.npy")[0])
        self.segmenter = Segmenter(self.project, CodeCache(self.project, MemoryCache()))
        values, counts = np.unique(truth[truth != 255], return_counts=True)
        self.classes = values.tolist()
        for value in values[np.argsort(-counts)[:2]]:
            places = np.argwhere(truth == value)
            self.paint(*places[self.rng.integers(len(places))].tolist())

    def paint(self, row: int, column: int) -> None:
        """A stroke through a place, in the direction in which it stays longest inside its class."""
        value = self.truth[row, column]
        if value == 255:
            return
        best = max((self._run(row, column, angle) for angle in self.rng.random(8) * np.pi), key=lambda ends: ends[0])
        region = Region(0, self.truth.shape[0], 0, self.truth.shape[1])
        mask = np.zeros(self.truth.shape, bool)
        for part, inside in covered(best[1], RADIUS, self.truth.shape):
            part.of(mask)[...] |= inside
        self.project.labels[0].paint([(region, mask & (self.truth == value))], int(value))

    def _run(self, row: int, column: int, angle: float) -> tuple[float, list[list[float]]]:
        ends = []
        for sign in (-1, 1):
            at = (row, column)
            for step in np.arange(1, LENGTH / 2 + 1):
                new = round(row + sign * step * np.sin(angle)), round(column + sign * step * np.cos(angle))
                inside = 0 <= new[0] < self.truth.shape[0] and 0 <= new[1] < self.truth.shape[1]
                if not inside or self.truth[new] != self.truth[row, column]:
                    break
                at = new
            ends.append([float(at[0]), float(at[1])])
        return float(np.hypot(*np.subtract(*ends))), ends

    def dice(self) -> float:
        """Mean Dice of all classes on the unpainted pixels."""
        height, width = self.truth.shape
        forest, _ = self.segmenter.forest(Nobody(), 0, 0)
        tiles = self.segmenter.predict(Nobody(), 0, forest, 0, Region(0, height, 0, width), {})
        predicted = np.empty(self.truth.shape, np.uint8)
        for (row, column), tile in tiles.items():
            part = np.array(forest.classes, np.uint8)[tile.classes]
            predicted[row * 256 : row * 256 + part.shape[0], column * 256 : column * 256 + part.shape[1]] = part
        rest = np.where(self.project.labels[0].whole() == 255, self.truth, 255)
        return float(scores([rest], [predicted], self.classes).mean_dice)


def suggested(hand: Hand) -> tuple[int, int]:
    place = hand.segmenter.where_next(Nobody(), 0, 0)
    return place["row"], place["col"]


def at_random(hand: Hand) -> tuple[int, int]:
    free = np.argwhere((hand.project.labels[0].whole() == 255) & (hand.truth != 255))
    row, column = free[hand.rng.integers(len(free))].tolist()
    return row, column


def painted(data: Labelled, choose: Choose, seed: int, counted: tuple[int, ...] = COUNTED) -> list[float]:
    """Mean Dice after each number of strokes."""
    with tempfile.TemporaryDirectory() as folder:
        hand = Hand(*data, seed, Path(folder))
        dice = []
        for n in range(3, counted[-1] + 1):
            hand.paint(*choose(hand))
            if n in counted:
                dice.append(hand.dice())
        hand.project.close()
        return dice


def somites(seed: int) -> Labelled:
    images, labels = synthetic.somites(1, (256, 256), seed)
    return images[0], labels[0]


def somites_or_not(seed: int) -> Labelled:
    image, labels = somites(seed)
    return image, (labels > 0).astype(np.uint8)


def bodies(seed: int) -> Labelled:
    images, labels = synthetic.bodies(1, (240, 320), seed)
    return images[0], labels[0]


def nerve_cord(seed: int) -> Labelled:
    """A part of an image of electron microscopy, at half resolution."""
    folder = Path(os.environ["HEDGEROW_BENCH_DATA"]) / "vnc_sstem"
    # The constants of `suggestions` were chosen on the first four images, and seeds from 100.
    path = sorted((folder / "images").iterdir())[(10 + seed) % 20]
    image = read_image(path).astype(np.float32)
    image = image.reshape(CROP, 2, CROP, 2).mean(axis=(1, 3)).round().astype(np.uint8)
    return image, read_image(folder / "labels" / path.name)[::2, ::2]


DATA = {
    "somites, 22 classes": somites,
    "somites, somite or not": somites_or_not,
    "bodies as grey, 20 classes": bodies,
    "vnc_sstem, half resolution, 5 classes": nerve_cord,
}


def compare(name: str, seeds: tuple[int, ...], counted: tuple[int, ...]) -> dict[str, list[list[float]]]:
    """Dice by seed and number of strokes, for each way to choose places."""
    set_threads(THREADS)
    dice: dict[str, list[list[float]]] = {"suggested": [], "random": []}
    for seed in seeds:
        data = DATA[name](seed)
        dice["suggested"].append(painted(data, suggested, seed, counted))
        random = [painted(data, at_random, 1000 * seed + k, counted) for k in range(N_RANDOM)]
        dice["random"].append(np.mean(random, axis=0).tolist())
    return dice


def run(small: bool = False) -> str:
    seeds, counted = ((0,), (5,)) if small else (tuple(range(6)), COUNTED)
    names = [name for name in DATA if not (name.startswith("vnc") and "HEDGEROW_BENCH_DATA" not in os.environ)]
    rows = []
    for name in names:
        dice_of = in_fresh_process(compare, name, seeds, counted)
        require(all(len(one) == len(seeds) for one in dice_of.values()), "a simulated hand did not finish.")
        better = np.array(dice_of["suggested"]) - np.array(dice_of["random"])
        for way, dice in dice_of.items():
            rows.append([f"{name}, {way}", *(f"{mean:.3f}" for mean in np.mean(dice, axis=0))])
        won = (better > 0).sum(axis=0)
        rows.append([f"{name}, seeds won", *(f"{n} of {len(seeds)}" for n in won.tolist())])
    return f"{ABOUT}\n\n{table(['mean Dice after strokes', *map(str, counted)], rows)}"
