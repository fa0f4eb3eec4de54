"""What an effort is expected to take, and convolutional networks as large and trained as long as the time allows.

The figures were measured on two cores (benchmarks/RESULTS.md, docs/deep.md) and are rough elsewhere.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hedgerow.config import ConvConfig, DeepConfig
from hedgerow.images.labelled import LabelledSet
from hedgerow.progress import duration
from hedgerow.threads import get_threads

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet

STACK_SECONDS = 75.0  # of a CPU, for a stack on a megapixel of grey images; it grows as the root of their channels
REFINE_SECONDS = 0.4  # of a CPU, for a step of refinement
TRIED = 1000  # steps of refinement in all, those that choose its settings included
REFINED = 300  # of one
BEST_MINUTES = 22.0  # of all of `best` on a CPU, if no time is given
GPU_SECONDS = 300.0  # of 8 networks, 1,500 steps each of 24 ms, as measured on an H200
SPARE = 0.9  # part of the time that steps are planned for
FEWEST_STEPS, MOST_STEPS = 40, 1500
GPU = DeepConfig(conv=ConvConfig(n_down=5))
CPU = DeepConfig(n_folds=3, n_networks=1, conv=ConvConfig(base=16, n_down=5, widest=256, batch=4))
SMALLER = 8  # channels, if larger networks could not be trained for ENOUGH steps: long training is worth more than size
ENOUGH = 1000


def expected(labelled: LabelledSet, effort: str, minutes: float | None, device: str) -> str:
    """In words: what it is expected to take."""
    if minutes is not None:
        return f"about {duration(60 * minutes)}, as asked for"
    stack, step = _stack_seconds(labelled) + 3, REFINE_SECONDS / get_threads()
    seconds = stack if effort == "fast" else 2 * stack + TRIED * step
    if effort == "best":
        on_gpu = seconds + GPU.n_folds * (stack + REFINED * step) + GPU_SECONDS
        seconds = max(60 * BEST_MINUTES, seconds) if device == "cpu" else on_gpu
    return f"expected to take about {duration(seconds)}"


def deep_settings(
    net: StackNet, labelled: LabelledSet, is_turned: bool, device: str, until: float | None, seed: int
) -> DeepConfig:
    """Of the convolutional level. On a GPU the default networks; on a CPU fewer and smaller ones, for as
    many steps as the time allows, which is measured first.

    until:     when it should be done, as `time.monotonic` counts; None, on a GPU: whenever it is
    is_turned: images have no up, so they are turned any way, and the mean over all orientations is predicted
    """
    from hedgerow.deep.adapting import TURNED
    from hedgerow.deep.fitting import is_few, members_of, seconds_of_a_step, tasks_of

    plan = replace(GPU if device != "cpu" else CPU, seed=seed)
    if is_turned:
        plan = replace(plan, conv=replace(plan.conv, augment=TURNED, orientations=8))
    plan = replace(plan, members=tuple(members_of(plan, labelled)))  # type: ignore[arg-type]
    if device != "cpu" and until is None:
        return plan
    assert until is not None, "a CPU always has a time"
    left = max(until - time.monotonic(), 1.0)
    again = 1 if is_few(plan, labelled) else plan.n_folds
    left -= again * _again_seconds(labelled, len(net.refinements))
    n_networks = len(tasks_of(plan, labelled))
    rounds = -(-n_networks // get_threads()) if device == "cpu" else n_networks

    def affordable(plan: DeepConfig) -> int:
        return int(SPARE * left / (rounds * seconds_of_a_step(net, labelled, plan, device)))

    steps = affordable(plan)
    if steps < ENOUGH and plan.conv.base > SMALLER:
        plan = replace(plan, conv=replace(plan.conv, base=SMALLER))
        steps = affordable(plan)
    steps = min(max(steps, FEWEST_STEPS), MOST_STEPS)
    return replace(plan, conv=replace(plan.conv, n_steps=steps, check_every=max(steps // 10, 1)))


def _again_seconds(labelled: LabelledSet, is_refined: int) -> float:
    """Of making the stack once more."""
    refining = REFINED * REFINE_SECONDS / get_threads()
    return _stack_seconds(labelled) + (refining if is_refined else 0)


def _stack_seconds(labelled: LabelledSet) -> float:
    pixels = sum(image.target.size for image in labelled) / 1e6
    return STACK_SECONDS * pixels * len(labelled.images[0].planes) ** 0.5 / get_threads()
