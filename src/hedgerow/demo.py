"""The demo: a stack grown on built-in images, and what each level gains on images it has not seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hedgerow import model_io, synthetic
from hedgerow.batch import write_sample
from hedgerow.config import StackConfig
from hedgerow.images import class_table, make_folder
from hedgerow.metrics import scores
from hedgerow.pictures import grey_picture, label_picture, save_sheet
from hedgerow.progress import silent
from hedgerow.stack import fit_stack

CONFIGS = {"somites": StackConfig(), "bodies": StackConfig.kinect(held_out="folds")}
BACKGROUND = {"somites": 0, "bodies": 19}
N_TRAIN, N_TEST = 16, 8


def run_demo(kind: str, folder: Path, say: Callable[[str], None]) -> None:
    """Train on built-in images of one kind, test on others, write images, model and picture into `folder`."""
    make_folder(folder)
    make = getattr(synthetic, kind)
    images, labels = make(n_images=N_TRAIN, seed=0)
    test_images, test_labels = make(n_images=N_TEST, seed=1)
    write_sample(kind, folder, N_TRAIN, 0)
    say(f"{N_TRAIN} images to learn from, {N_TEST} others to test on; classes and pixels of the labels:")
    say(str(class_table(labels)))

    start = time.perf_counter()
    stack = fit_stack(images, labels, CONFIGS[kind])
    trained = time.perf_counter() - start
    start = time.perf_counter()
    outputs = [stack.level_outputs(image, progress=silent) for image in test_images]
    predicted = time.perf_counter() - start

    values = np.array(stack.classes)
    say("\nmean Dice   images held out in training   test images")
    for level in range(stack.n_levels):
        found = [values[output[level].argmax(axis=0)] for output in outputs]
        held_out = stack.settings["held_out"][level]["mean_dice"]
        test = scores(test_labels, found, stack.classes).mean_dice
        say(f"level {level + 1}     {held_out:>25.3f}   {test:>11.3f}")
    size = model_io.save(stack, folder / "model.hedge")
    say(f"\ntrained in {trained:.1f} s, {predicted / N_TEST:.2f} s an image to predict, model {size / 1e6:.2f} MB")

    rows = []
    for image, truth, output in list(zip(test_images, test_labels, outputs, strict=True))[:4]:
        maps = [truth, *(values[proba.argmax(axis=0)] for proba in output)]
        rows.append([grey_picture(image), *(label_picture(m, stack.classes, BACKGROUND[kind]) for m in maps)])
    titles = ["image", "truth", *(f"level {k + 1}" for k in range(stack.n_levels))]
    save_sheet(folder / "levels.png", titles, rows)
    say(f"images, labels, model.hedge and the picture levels.png are in {folder}")
    say(f"next: hedgerow predict {folder / 'model.hedge'} {folder / 'images'} -o segmented/")
