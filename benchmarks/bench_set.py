"""A whole training set: the paper's zebrafish job at its own size.

The stack is StackConfig.zebrafish(): 3 levels of 16 trees on a filter bank, 22 classes, two rotated copies of
every image. So the job is 16 drawn embryos of 800 x 950, 48 images in all.
"""

from dataclasses import dataclass, fields

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.settings_choice import fit_stack
from hedgerow.images.metrics import Scores, confusion
from hedgerow.progress import silent
from hedgerow.synthetic import somites
from hedgerow.threads import set_threads, threads
from measure import (
    COST_HEADERS,
    THREADS,
    Cost,
    cost_cells,
    in_fresh_process,
    measure,
    require,
    seconds,
    table,
)

TITLE = "The zebrafish set"
CONFIG = StackConfig.zebrafish()
COPIES = 1 + CONFIG.augment.copies
JOBS = {False: (16, (800, 950)), True: (2, (128, 152))}
"""Images and their size; True: the small run."""
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
        """Megapixels of the training images, including copies."""
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
    """Raise CheckFailed unless one thread and several give the same model, and the model is good."""
    images, labels = somites(2, (96, 114))

    def grow(n_threads: int) -> ForestStack:
        with threads(n_threads):
            return fit_stack(images, labels, CONFIG, progress=silent)

    single, several = grow(1), grow(THREADS)
    for first, second in zip(single.levels, several.levels, strict=True):
        same = all(np.array_equal(getattr(first, f.name), getattr(second, f.name)) for f in fields(first))
        require(same, "the number of threads changes the model.")
    right = (single.predict(images[0], progress=silent) == labels[0]).mean()
    constant = (labels[0] == 0).mean()
    require(right > constant, f"of the training image {right:.3f} is right; {constant:.3f} is background.")


def _row(outcome: Outcome) -> str:
    headers = ["images", "size", "Mpixel", *COST_HEADERS, "CPU s / Mpixel", "added MB / Mpixel"]
    height, width = outcome.size
    cells = [
        f"{outcome.n_images} x {COPIES}",
        f"{height} x {width}",
        f"{outcome.megapixels:.2f}",
        *cost_cells(outcome.train),
        f"{outcome.train.cpu / outcome.megapixels:.2f}",
        f"{outcome.train.added / outcome.megapixels:.0f}",
        seconds(outcome.predict.cpu),
        f"{outcome.dice:.3f}",
    ]
    return table([*headers, "predict one, CPU s", "Dice"], [cells])


def run(small: bool = False) -> str:
    in_fresh_process(check_threads)
    outcome = in_fresh_process(run_set, *JOBS[small])
    fits = outcome.train.wall <= 60 * MINUTES and outcome.train.peak <= MEGABYTES
    return "\n".join(
        [
            f"StackConfig.zebrafish(), {THREADS} threads; with {COPIES - 1} rotated copies of every image:",
            "",
            _row(outcome),
            "",
            f"- {outcome.train.wall / 60:.1f} minutes and {outcome.train.peak / 1000:.2f} GB; promised "
            f"within {MINUTES} minutes and under {MEGABYTES / 1000:g} GB: {'kept' if fits else 'NOT KEPT'}.",
        ]
    )
