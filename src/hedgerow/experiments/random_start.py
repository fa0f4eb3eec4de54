"""The paper's question whether the forests matter: the same network from random weights, by the paper's schedule.

    python -m hedgerow.experiments.random_start sparse --data somites --steps 200
    python -m hedgerow.experiments.random_start full --data somites --trees 2 --depth 5 --steps 200

"sparse" keeps the tree's connections and trains their weights; "full" connects every split with every leaf, which only
small networks can afford.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from hedgerow.config import UNALTERED, RefineConfig, StackConfig
from hedgerow.errors import HedgerowError
from hedgerow.experiments.data import load_set
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import fit_stack
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.evaluate import evaluate
from hedgerow.refinement.loop import refine

SIGMA = 0.01  # the paper's standard deviation


def random_start(stack: ForestStack, connections: str, seed: int, sigma: float = SIGMA) -> StackNet:
    """The network of a stack with every weight that trains drawn from a Gaussian, tanh splits as in the paper."""
    net = to_convnet(stack, "tanh", connections=connections)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in net.named_parameters():
            if not weights.requires_grad:  # the frozen tree
                continue
            drawn = sigma * torch.randn(weights.shape, generator=generator)
            # A probe that the forest does not have stays without weight.
            weights.copy_(torch.where(weights != 0, drawn, 0) if name.endswith("split_weight") else drawn)
    return net


def schedule(steps: int, seed: int) -> RefineConfig:
    """The paper's settings for a random start; it trained for 2,500 steps."""
    return RefineConfig(
        n_steps=steps, optimiser="sgd", learning_rate=3e-5, decay="halving", halving_steps=96.0, first_momentum=0.4,
        momentum_steps=96, max_momentum=0.99, loss="balanced", dice=0.0, stride=9, augment=UNALTERED, held_out=0.0,
        check_every=100, relax=1.0, tolerance=0.0, seed=seed,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Grow a stack for its shape, forget its weights, train, and print the scores on the test part as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("connections", choices=("sparse", "full"))
    parser.add_argument("--data", default="somites", help="somites, bodies, or a folder with images/, labels/, *.txt")
    parser.add_argument("--trees", type=int, default=16)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        config = schedule(given.steps, given.seed)
        preset = StackConfig.kinect() if given.data == "bodies" else StackConfig()
        shape = replace(preset, n_trees=given.trees, max_depth=given.depth, seed=given.seed)
        train, test = (load_set(given.data, part) for part in ("train", "test"))
        start = time.perf_counter()
        stack = fit_stack(train.images, train.labels, shape)
        net = random_start(stack, given.connections, given.seed)
        refined = refine(net, train.images, train.labels, config)
        result = {"connections": given.connections, "seed": given.seed, "steps": given.steps}
        for what, model in (("stack", stack), ("random", net), ("trained", refined)):
            result[what] = round(evaluate(model, test.images, test.labels).mean_dice, 4)
        print(json.dumps({**result, "seconds": round(time.perf_counter() - start, 1)}))
    except HedgerowError as error:
        print(f"hedgerow: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
