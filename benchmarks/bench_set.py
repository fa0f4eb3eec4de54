"""A whole training set: how time and memory grow with the images, and the paper's zebrafish job at full size.

The stack is StackConfig.zebrafish(): 3 levels of 16 trees on a filter bank, 22 classes, two rotated copies of
every image. So the full job is 16 drawn embryos of 800 x 950, 48 images in all.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, fields

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.metrics import Scores, confusion
from hedgerow.progress import silent
from hedgerow.stack import fit_stack
from hedgerow.synthetic import somites
from hedgerow.threads import set_threads, threads
from hedgerow.trees import ForestStack
from measure import (
    SMALL_WARNING,
    THREADS,
    CheckFailed,
    Cost,
    cost_cells,
    in_fresh_process,
    measure,
    require,
    seconds,
    table,
)

TITLE = "A training set"
CONFIG = StackConfig.zebrafish()
COPIES = 1 + CONFIG.augment.copies
FULL_IMAGES, FULL_SIZE = 16, (800, 950)
SIZES = ((200, 238), (400, 475), (800, 950))
COUNTS = (2, 4, 8)
MINUTES, MEGABYTES = 20, 8000


@dataclass(frozen=True)
class Outcome:
    """train, predict: costs of the set and of one new image; dice: mean over the classes on that image."""

    n_images: int
    size: tuple[int, int]
    train: Cost
    predict: Cost
    dice: float

    @property
    def megapixels(self) -> float:
        """What is trained on, copies included."""
        return COPIES * self.n_images * self.size[0] * self.size[1] / 1e6


def run_set(n_images: int, size: tuple[int, int]) -> Outcome:
    """Train on a drawn set and predict one image more."""
    set_threads(THREADS)
    few, few_labels = somites(1, (64, 64))
    fit_stack(few, few_labels, CONFIG, progress=silent).predict(few[0], progress=silent)  # compiles
    images, labels = somites(n_images + 1, size)
    train, stack = measure(lambda: fit_stack(images[:-1], labels[:-1], CONFIG, progress=silent))
    predict, predicted = measure(lambda: stack.predict(images[-1], progress=silent))
    n_classes = int(max(label.max() for label in labels)) + 1
    scores = Scores(tuple(range(n_classes)), confusion(labels[-1], predicted, n_classes))
    return Outcome(n_images, size, train, predict, float(scores.mean_dice))


def check_threads() -> None:
    """A set must give the same model on one thread and on several, and must have been learned."""
    images, labels = somites(2, (96, 114))

    def grow(n_threads: int) -> ForestStack:
        with threads(n_threads):
            return fit_stack(images, labels, CONFIG, progress=silent)

    one, several = grow(1), grow(THREADS)
    for first, second in zip(one.levels, several.levels, strict=True):
        same = all(np.array_equal(getattr(first, f.name), getattr(second, f.name)) for f in fields(first))
        require(same, "the number of threads changes the model.")
    right = (one.predict(images[0], progress=silent) == labels[0]).mean()
    constant = (labels[0] == 0).mean()
    require(right > constant, f"of the training image {right:.3f} is right; {constant:.3f} is background.")


def _rows(outcomes: list[Outcome]) -> str:
    headers = ["images", "size", "Mpixel", "wall s", "CPU s", "added MB", "peak MB", "CPU s / Mpixel"]
    headers += ["added MB / Mpixel", "predict one, CPU s", "Dice"]
    rows = []
    for outcome in outcomes:
        height, width = outcome.size
        rows.append(
            [
                f"{outcome.n_images} x {COPIES}",
                f"{height} x {width}",
                f"{outcome.megapixels:.2f}",
                *cost_cells(outcome.train),
                f"{outcome.train.cpu / outcome.megapixels:.2f}",
                f"{outcome.train.added / outcome.megapixels:.0f}",
                seconds(outcome.predict.cpu),
                f"{outcome.dice:.3f}",
            ]
        )
    return table(headers, rows)


def _growth(what: str, outcomes: list[Outcome]) -> str:
    """The power of the number of pixels that fits best: 1 is in proportion."""
    pixels = np.log([outcome.megapixels for outcome in outcomes])
    cpu = np.polyfit(pixels, np.log([outcome.train.cpu for outcome in outcomes]), 1)[0]
    memory = np.polyfit(pixels, np.log([outcome.train.added for outcome in outcomes]), 1)[0]
    return f"- with {what}: CPU seconds grow as pixels to the {cpu:.2f}, added memory to the {memory:.2f}."


def run_full(n_images: int = FULL_IMAGES, size: tuple[int, int] = FULL_SIZE) -> str:
    """The paper's job at its own size."""
    in_fresh_process(check_threads)
    outcome = in_fresh_process(run_set, n_images, size)
    fits = outcome.train.wall <= 60 * MINUTES and outcome.train.peak <= MEGABYTES
    return "\n".join(
        [
            f"The zebrafish job at full size, {THREADS} threads:",
            "",
            _rows([outcome]),
            "",
            f"- {outcome.train.wall / 60:.1f} minutes and {outcome.train.peak / 1000:.2f} GB; promised "
            f"within {MINUTES} minutes and under {MEGABYTES / 1000:g} GB: {'kept' if fits else 'NOT KEPT'}.",
        ]
    )


def run(small: bool = False) -> str:
    """Growth with the number of images and with their size."""
    in_fresh_process(check_threads)
    counts, sizes = (COUNTS[:2], ((64, 76), (128, 152))) if small else (COUNTS, SIZES)
    count, size = counts[1], sizes[1]
    measured = {
        job: in_fresh_process(run_set, *job)
        for job in dict.fromkeys([*((n, size) for n in counts), *((count, s) for s in sizes)])
    }
    by_count = [measured[n, size] for n in counts]
    by_size = [measured[count, s] for s in sizes]
    return "\n".join(
        [
            f"StackConfig.zebrafish(), {THREADS} threads; with {COPIES - 1} rotated copies of every image.",
            "",
            "More images:",
            "",
            _rows(by_count),
            "",
            "Larger images:",
            "",
            _rows(by_size),
            "",
            _growth("the number of images", by_count),
            _growth("the size of the images", by_size),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="growth with images and size (the default)")
    size.add_argument("--full", action="store_true", help="the zebrafish job at full size")
    size.add_argument("--small", action="store_true", help="small sizes, to see that it works")
    options = parser.parse_args()
    try:
        if options.small:
            print(SMALL_WARNING + "\n")
        print(run_full() if options.full else run(options.small))
    except CheckFailed as failure:
        sys.exit(f"refused to time: {failure}")


if __name__ == "__main__":
    main()
