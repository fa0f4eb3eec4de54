"""Whether it helps to refine at every pixel: the paper trained on every 9th row and column, since more took too long.

    python -m hedgerow.experiments.resolution somites --strides 1 3 9 --seeds 0 1 2 --device cuda
    python -m hedgerow.experiments.resolution FOLDER --half --strides 1 6 9 --device cuda

The same stack is refined once a stride, with the same steps on the same altered images. One line of JSON a network,
with its score on the test images at every pixel and the seconds of its refinement.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hedgerow.config import RefineConfig, StackConfig
from hedgerow.errors import HedgerowError
from hedgerow.experiments.data import ImageSet, load_set
from hedgerow.forest.autocontext import fit_stack
from hedgerow.network.mapping import to_convnet
from hedgerow.predict.evaluate import evaluate
from hedgerow.progress import silent
from hedgerow.refinement.loop import refine


def compare(
    train: ImageSet,
    test: ImageSet,
    strides: Sequence[int],
    stack_config: StackConfig,
    config: RefineConfig,
    device: str,
) -> Iterator[dict[str, Any]]:
    """Scores on `test` of the stack, then of the network refined with each stride."""
    stack = fit_stack(train.images, train.labels, stack_config, progress=silent)
    yield {"seed": config.seed, "model": "DF", "mean_dice": _score(stack, test)}
    for stride in strides:
        net = to_convnet(stack).to(device)
        start = time.perf_counter()
        refined = refine(net, train.images, train.labels, replace(config, stride=stride), progress=silent)
        seconds = time.perf_counter() - start
        yield {
            "seed": config.seed,
            "model": "ConvNet",
            "stride": stride,
            "steps": config.n_steps,
            "mean_dice": _score(refined, test),
            "refine_s": round(seconds, 1),
        }


def _score(model: Any, test: ImageSet) -> float:
    return round(evaluate(model, test.images, test.labels, progress=silent).mean_dice, 4)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare for every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="somites, or a folder with images/, labels/, train.txt and test.txt")
    parser.add_argument("--half", action="store_true", help="use the images at half resolution")
    parser.add_argument("--strides", type=int, nargs="+", default=[1, 3, 9])
    parser.add_argument("--steps", type=int, default=RefineConfig().n_steps)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    try:
        train, test = (load_set(given.data, part, given.half) for part in ("train", "test"))
        for seed in given.seeds:
            # Nothing is held out, so that a step is all that is timed.
            config = RefineConfig(n_steps=given.steps, held_out=0.0, seed=seed)
            for row in compare(train, test, given.strides, StackConfig(seed=seed), config, given.device):
                print(json.dumps({"data": given.data, **row}), flush=True)
    except HedgerowError as error:
        print(f"hedgerow: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
