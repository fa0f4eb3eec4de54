"""What refinement gains: the stack, its mapped network and the refined one, on images none of them has seen.

    python -m hedgerow.experiments.refining somites --seeds 0 1 2
    python -m hedgerow.experiments.refining FOLDER --half --seeds 0 1 2
    python -m hedgerow.experiments.refining DEPTH_FOLDER --depth-images --every 4 --seeds 0 1 2

One line of JSON a seed. With --develop the last quarter of the training images takes the place of the test images: that
is where settings are chosen.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hedgerow.config import RefineConfig, StackConfig
from hedgerow.errors import HedgerowError, InputError
from hedgerow.experiments.data import ImageSet, every_nth, load_set
from hedgerow.files import check_folder_writable
from hedgerow.forest.autocontext import fit_stack
from hedgerow.io.model_file import save
from hedgerow.network.mapping import to_convnet
from hedgerow.predict.evaluate import evaluate
from hedgerow.progress import silent
from hedgerow.refinement.loop import refine


def compare(
    train: ImageSet, test: ImageSet, stack_config: StackConfig, config: RefineConfig, split: str = "soft"
) -> tuple[dict[str, Any], Any]:
    """Grow, map and refine on `train`; scores on `test` with the seconds they took, and the refined network."""
    start = time.perf_counter()
    stack = fit_stack(train.images, train.labels, stack_config, progress=silent)
    grown = time.perf_counter()
    net = to_convnet(stack, split)
    refined = refine(net, train.images, train.labels, config, progress=silent)
    trained = time.perf_counter()
    result: dict[str, Any] = {"seed": config.seed, "split": split, "steps": config.n_steps}
    for what, model in (("stack", stack), ("mapped", net), ("refined", refined)):
        scores = evaluate(model, test.images, test.labels, progress=silent)
        result[what] = round(scores.mean_dice, 4)
        result[f"{what}_balanced_accuracy"] = round(scores.balanced_accuracy, 4)
    result["grow_s"], result["refine_s"] = round(grown - start, 1), round(trained - grown, 1)
    return result, refined


def _sets(data: str, half: bool, depth: bool, every: int, develop: bool) -> tuple[ImageSet, ImageSet]:
    """What is trained on, and what is scored on."""
    train = every_nth(load_set(data, "train", half, depth), every)
    if not develop:
        return train, load_set(data, "test", half, depth)
    n = len(train.images) * 3 // 4
    if n == 0:
        raise InputError("--develop needs at least two training images, to train on and to score on.")
    return ImageSet(train.images[:n], train.labels[:n]), ImageSet(train.images[n:], train.labels[n:])


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare for every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="somites, bodies, or a folder with images/, labels/, train.txt and test.txt")
    parser.add_argument("--half", action="store_true", help="use the images at half resolution")
    parser.add_argument(
        "--depth-images", action="store_true", help="depth images: two levels of 10 trees, as the paper"
    )
    parser.add_argument("--every", type=int, default=1, help="use every n-th training image")
    parser.add_argument("--develop", action="store_true", help="score on the last quarter of the training images")
    parser.add_argument("--split", default="soft", choices=("soft", "tanh", "crelu"))
    parser.add_argument("--config", help="settings of the refinement, .toml or .json")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--save", help="file for the last refined network")
    given = parser.parse_args(arguments)
    depth = given.depth_images or given.data == "bodies"
    try:
        base = RefineConfig.read(given.config) if given.config else RefineConfig()
        if given.save:
            check_folder_writable(Path(given.save).parent)
        train, test = _sets(given.data, given.half, depth, given.every, given.develop)
        for seed in given.seeds:
            stack = StackConfig.kinect(held_out="folds", seed=seed) if depth else StackConfig(seed=seed)
            result, net = compare(train, test, stack, replace(base, seed=seed), given.split)
            print(json.dumps({"data": given.data, **result}), flush=True)
            if given.save:
                save(net, given.save)
    except HedgerowError as error:
        print(f"hedgerow: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
