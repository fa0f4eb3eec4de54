"""Time estimates of an effort, and the size and training time of the convolutional networks that fit into it.

The figures were measured on two cores (benchmarks/RESULTS.md, docs/measurements) and are rough elsewhere.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from hedgerow.config import ConvConfig, DeepConfig
from hedgerow.images.labelled import LabelledSet
from hedgerow.progress import Report, Say, duration, quiet
from hedgerow.threads import get_threads

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet

STACK_SECONDS = 75.0  # of a CPU, for a stack on a megapixel of grey images; it grows as the root of their channels
REFINE_SECONDS = 0.4  # of a CPU, for a step of refinement
SEARCH_STEPS = 1000  # of all refinements of effort "good", the search for their settings included
REFINEMENT_STEPS = 300  # of one refinement
Effort = Literal["fast", "good", "best"]
EFFORTS = get_args(Effort)
BEST_MINUTES = 23.5  # of effort "best" on a CPU without a time limit; it ends a little before
GPU_SECONDS = 200.0  # calculated, not timed: 15 networks of 1,500 steps, at the 4 to 15 ms per step of an H200
PLANNED_FRACTION = 0.9  # of the time left, for which steps are planned
FEWEST_STEPS, MOST_STEPS = 40, 1500
# Least time of refinements and of networks that gain anything, beside growing the stack again; calculated, not timed.
LEAST_CPU_SECONDS, LEAST_GPU_SECONDS = 600.0, 300.0
GPU_PLAN = DeepConfig(conv=ConvConfig(n_down=5))
CPU_PLAN = DeepConfig(
    # Of few steps, none may be spent on judges, or on a third member (docs/measurements).
    members=("reading", "pretrained"), n_folds=3, n_networks=1, judges=0,
    conv=ConvConfig(n_down=5, widest=256),
)  # fmt: skip
# Channels of networks if larger ones could not be trained for ENOUGH_STEPS: long training is worth more than size.
SMALL_BASE = 8
ENOUGH_STEPS = 1000


def time_estimate(labelled: LabelledSet, effort: str, minutes: float | None, device: str) -> str:
    """The time estimate in words."""
    if minutes is not None:
        return f"limited to about {duration(60 * minutes)}"
    return f"estimated time {duration(sum(stage_seconds(labelled, effort, minutes, device)))}"


def stage_seconds(labelled: LabelledSet, effort: str, minutes: float | None, device: str) -> list[float]:
    """Estimated seconds of each stage of an effort: forests, refinement, convolutional level."""
    stack, step = _stack_seconds(labelled), REFINE_SECONDS / get_threads()
    seconds = [stack, stack + SEARCH_STEPS * step, GPU_PLAN.n_folds * (stack + REFINEMENT_STEPS * step) + GPU_SECONDS]
    seconds = seconds[: EFFORTS.index(effort) + 1]
    allowed = allowed_seconds(labelled, effort, minutes, device)
    if allowed is not None:
        # The last stage gets the remaining time. A short limit also shortens the refinement, by an unknown amount.
        seconds[-1] = max(allowed - sum(seconds[:-1]), seconds[-1] / 10)
    return seconds


def seconds_for_networks(labelled: LabelledSet, device: str, stack_seconds: float) -> float:
    """Minimal seconds for "best" to gain from its networks.

    stack_seconds: duration of its stack, which is grown again for the search of settings and for every fold
    """
    from hedgerow.deep.recipe import Recipe

    plan = GPU_PLAN if device != "cpu" else CPU_PLAN
    least = LEAST_CPU_SECONDS if device == "cpu" else LEAST_GPU_SECONDS
    return (Recipe(plan, labelled).n_regrown_stacks + 2) * stack_seconds + least


def allowed_seconds(labelled: LabelledSet, effort: str, minutes: float | None, device: str) -> float | None:
    """The time limit of an effort; None: no limit. "best" on a CPU, whose networks could be trained for any time, has
    BEST_MINUTES, or more if its networks need more."""
    if minutes is not None:
        return 60 * minutes
    if effort != "best" or device != "cpu":
        return None
    return max(60 * BEST_MINUTES, seconds_for_networks(labelled, device, _stack_seconds(labelled)))


def deep_plan(net: StackNet, labelled: LabelledSet, is_turned: bool, device: str, seed: int) -> DeepConfig:
    """Settings of the convolutional level, except the size of its networks and their training time.

    is_turned: images have no upright orientation: they are rotated in training, and predictions are averaged over all
               orientations
    """
    from hedgerow.deep.recipe import Recipe, for_images
    from hedgerow.deep.refinement_search import TURNED

    plan = replace(GPU_PLAN if device != "cpu" else CPU_PLAN, seed=seed)
    if is_turned:
        plan = replace(plan, conv=replace(plan.conv, augment=TURNED, orientations=8))
    plan = replace(plan, members=tuple(Recipe(plan, labelled).members))  # type: ignore[arg-type]
    return replace(plan, conv=for_images(plan.conv, net.features.blank is not None))


def deep_settings(
    plan: DeepConfig,
    net: StackNet,
    labelled: LabelledSet,
    device: str,
    until: float | None,
    say: Say = quiet,
    progress: Report | None = None,
) -> DeepConfig:
    """The plan with its networks: on a GPU those that do best on held-out images; on a CPU as many steps as the time
    allows, which is measured first, of smaller ones if that is too few.

    until: the deadline, by `time.monotonic`; None, on a GPU only: no deadline
    """
    from hedgerow.deep.network_search import SIZES, choose_network, in_words, n_tried
    from hedgerow.deep.recipe import Recipe, for_number

    if device == "cpu":
        assert until is not None, "a CPU always has a time"
        plan = replace(plan, conv=for_number(plan.conv, len(labelled)))
        return _in_time(plan, net, labelled, device, until)
    if until is not None:
        # Calculated with the largest size that is tried.
        largest = replace(plan, conv=for_number(replace(plan.conv, base=max(SIZES)), len(labelled)))
        timed = _in_time(largest, net, labelled, device, until, n_tried(plan.conv, labelled)).conv
        plan = replace(plan, conv=replace(plan.conv, n_steps=timed.n_steps, check_every=timed.check_every))
    say("comparing convolutional networks by mean Dice on held-out images")
    plan, tried = choose_network(net, Recipe(plan, labelled), device, until is not None, progress)
    say(f"  {in_words(tried)}")
    # Smaller networks may train for more steps, larger crops must for fewer.
    return plan if until is None else _in_time(plan, net, labelled, device, until)


def _in_time(
    plan: DeepConfig, net: StackNet, labelled: LabelledSet, device: str, until: float, more: int = 0
) -> DeepConfig:
    """The plan with as many steps as the deadline allows; with smaller networks on a CPU if those are too few.

    more: number of networks that are trained beside those of the plan
    """
    from hedgerow.deep.fitting import seconds_of_a_step
    from hedgerow.deep.recipe import Recipe

    tasks = Recipe(plan, labelled).tasks
    n_judges = sum(task.fold is not None for task in tasks)
    # On a CPU several are trained at once, but those that leave a fold out before the others.
    at_once = get_threads() if device == "cpu" else 1
    rounds = math.ceil(n_judges / at_once) + math.ceil((len(tasks) - n_judges) / at_once) + more

    def affordable(plan: DeepConfig) -> int:
        step = seconds_of_a_step(net, Recipe(plan, labelled), device)
        return int(PLANNED_FRACTION * max(until - time.monotonic(), 1.0) / (rounds * step))

    steps = affordable(plan)
    if device == "cpu" and steps < ENOUGH_STEPS and plan.conv.base > SMALL_BASE:
        plan = replace(plan, conv=replace(plan.conv, base=SMALL_BASE))
        steps = affordable(plan)
    steps = min(max(steps, FEWEST_STEPS), MOST_STEPS)
    return replace(plan, conv=replace(plan.conv, n_steps=steps, check_every=max(steps // 10, 1)))


def _stack_seconds(labelled: LabelledSet) -> float:
    pixels = sum(image.target.size for image in labelled) / 1e6
    return 3 + STACK_SECONDS * pixels * len(labelled.images[0].planes) ** 0.5 / get_threads()
