"""What is left of a refined network when it is mapped back: forests, network, Map Back 1 and 2, and soft forests.

    python -m hedgerow.experiments.refining somites --save net.hedge
    python -m hedgerow.experiments.mapping_back somites net.hedge

Scores on the test images, CPU milliseconds an image (their median), and the size of the model's file. Votes are taken
from the training images.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hedgerow.errors import HedgerowError, InputError
from hedgerow.experiments.data import ImageSet, every_nth, load_set
from hedgerow.forest.arrays import ForestStack
from hedgerow.io.model_file import load, save
from hedgerow.network.mapping import to_forest
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.evaluate import evaluate
from hedgerow.progress import silent


@dataclass(frozen=True)
class Row:
    """One model: its scores, CPU milliseconds an image, bytes of its file, and how often it labels otherwise."""

    name: str
    mean_dice: float
    balanced_accuracy: float
    milliseconds: float
    n_bytes: int
    differs: float


def models(net: StackNet, train: ImageSet, tolerance: float) -> list[tuple[str, ForestStack | StackNet]]:
    """The stack, the network (nothing left out), and all that it is mapped back to."""
    exact = to_forest(net, method="soft", tolerance=0.0)
    return [
        ("DF", net.stack),
        ("ConvNet", net),
        ("MB1", to_forest(net, method="weights")),
        ("MB2", to_forest(net, train.images, "leaf_mean", progress=silent)),
        ("fitted", to_forest(net, train.images, "fitted", progress=silent)),
        (f"soft, tolerance {tolerance:g}", replace(exact, tolerance=tolerance)),
    ]


def compare(net: StackNet, train: ImageSet, test: ImageSet, tolerance: float) -> list[Row]:
    """A row a model, scored on `test`."""
    compared = models(net, train, tolerance)
    net.set_tolerance(0.0)
    expected = [net.predict(image, progress=silent) for image in test.images]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model in compared:
            model.predict(test.images[0], progress=silent)  # compiles, if it must
            found, seconds = [], []
            for image in test.images:
                start = time.process_time()
                found.append(model.predict(image, progress=silent))
                seconds.append(time.process_time() - start)
            scores = evaluate(model, test.images, test.labels, progress=silent)
            n_bytes = save(model, Path(folder) / "model.hedge")
            differs = [np.mean(a != b) for a, b in zip(expected, found, strict=True)]
            cost = 1e3 * float(np.median(seconds)), n_bytes
            rows.append(Row(name, scores.mean_dice, scores.balanced_accuracy, *cost, float(np.mean(differs))))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Markdown; gains are over the first row, the forests."""
    lines = [
        "| model | mean Dice | gain | balanced accuracy | CPU ms an image | MB | other labels than the network |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        gain = row.mean_dice / rows[0].mean_dice - 1
        lines.append(
            f"| {row.name} | {row.mean_dice:.3f} | {gain:+.1%} | {row.balanced_accuracy:.3f} | "
            f"{row.milliseconds:,.0f} | {row.n_bytes / 1e6:.1f} | {row.differs:.2%} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table for a data set and a refined network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="somites, bodies, or a folder with images/, labels/, train.txt and test.txt")
    parser.add_argument("net", help="a refined network that saw the training images only")
    parser.add_argument("--half", action="store_true", help="use the images at half resolution")
    parser.add_argument("--depth-images", action="store_true", help="these are depth images")
    parser.add_argument("--every", type=int, default=1, help="use every n-th training image for the votes")
    parser.add_argument("--every-test", type=int, default=1, help="score every n-th test image")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="of the soft forest")
    given = parser.parse_args(arguments)
    depth = given.depth_images or given.data == "bodies"
    try:
        net = load(given.net)
        if not isinstance(net, StackNet):
            raise InputError(f"{given.net} holds forests; give a network, e.g. of `hedgerow refine`.")
        parts = (("train", given.every), ("test", given.every_test))
        train, test = (every_nth(load_set(given.data, part, given.half, depth), n) for part, n in parts)
        print(table(compare(net, train, test, given.tolerance)))
    except HedgerowError as error:
        print(f"hedgerow: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
