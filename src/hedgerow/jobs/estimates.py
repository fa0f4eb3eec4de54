"""The time that an effort takes, and the convolutional networks that can be trained within it.

The figures were measured on two cores (benchmarks/RESULTS.md, docs/measurements) and are rough elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from hedgerow.config import ConvConfig, DeepConfig, RefineConfig
from hedgerow.errors import ConfigError
from hedgerow.images.labelled import LabelledSet
from hedgerow.progress import Report, Say, duration, quiet
from hedgerow.threads import get_threads

if TYPE_CHECKING:
    from hedgerow.deep.recipe import Recipe
    from hedgerow.network.stacknet import StackNet

STACK_SECONDS = 75.0  # CPU seconds of a stack per megapixel of grey images; proportional to the root of their channels
REFINE_SECONDS = 0.4  # CPU seconds per step of refinement
SEARCH_STEPS = 1000  # steps of all refinements of effort "good", including the search for their settings
REFINEMENT_STEPS = 300  # steps of one refinement
Effort = Literal["fast", "good", "best"]
EFFORTS = get_args(Effort)
BEST_MINUTES = 23.5  # effort "best" on a CPU without a time limit ends a little earlier
GPU_SECONDS = 200.0  # calculated, not timed: 15 networks of 1,500 steps, at the 4 to 15 ms per step of an H200
PLANNED_FRACTION = 0.9  # of the time left, for which steps are planned
FEWEST_STEPS, MOST_STEPS = 40, 1500
# Least time in which refinements and networks gain anything, besides growing the stack again; calculated, not timed.
LEAST_CPU_SECONDS, LEAST_GPU_SECONDS = 600.0, 300.0
GPU_PLAN = DeepConfig(conv=ConvConfig(n_down=5))
CPU_PLAN = DeepConfig(
    # Where there are few steps, none may be spent on judges or a third member (docs/measurements).
    members=("reading", "pretrained"), n_folds=3, n_networks=1, judges=0,
    conv=ConvConfig(n_down=5, widest=256),
)  # fmt: skip
# Channels of the networks if larger ones could not be trained for ENOUGH_STEPS: long training is worth more than size.
SMALL_BASE = 8
ENOUGH_STEPS = 1000


def measured_step(net: StackNet, recipe: Recipe, device: str) -> float:
    """Seconds per training step of the slowest network of a recipe on this machine."""
    from hedgerow.deep.fitting import seconds_of_a_step

    return seconds_of_a_step(net, recipe, device)


@dataclass(frozen=True)
class Budget:
    """The time that training with an effort may take.

    minutes: requested time limit; None: see `seconds`
    device:  where networks are trained
    first_refinement: the search for settings of the refinement starts from these
    cpu_plan:         settings of the convolutional level on a CPU, except the size of its networks
    best_seconds:     time limit of effort "best" on a CPU if none is requested
    least_seconds:    least time on a CPU in which networks gain anything
    steps:            fewest and most training steps of a network
    step_seconds:     measures the seconds per step
    clock:            returns the time in seconds
    """

    effort: Effort
    minutes: float | None = None
    device: str = "cpu"
    first_refinement: RefineConfig = RefineConfig(held_out=0.0)
    cpu_plan: DeepConfig = CPU_PLAN
    best_seconds: float = 60 * BEST_MINUTES
    least_seconds: float = LEAST_CPU_SECONDS
    steps: tuple[int, int] = (FEWEST_STEPS, MOST_STEPS)
    step_seconds: Callable[[StackNet, Recipe, str], float] = measured_step
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise ConfigError(f"the effort is {self.effort!r}; choose one of {', '.join(EFFORTS)}.")
        if self.minutes is not None and not 0 < self.minutes <= 10**6:
            raise ConfigError(f"the time is {self.minutes:g} minutes; give a positive number.")

    @property
    def is_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def plan(self) -> DeepConfig:
        """Settings of the convolutional level, except the size of its networks and their training time."""
        return self.cpu_plan if self.is_cpu else GPU_PLAN

    def in_words(self, labelled: LabelledSet) -> str:
        """The time estimate in words."""
        if self.minutes is not None:
            return f"limited to about {duration(60 * self.minutes)}"
        return f"estimated time {duration(sum(self.stage_seconds(labelled)))}"

    def stage_seconds(self, labelled: LabelledSet) -> list[float]:
        """Estimated seconds of each stage of the effort: forests, refinement, convolutional level."""
        stack, step = _stack_seconds(labelled), REFINE_SECONDS / get_threads()
        network = GPU_PLAN.n_folds * (stack + REFINEMENT_STEPS * step) + GPU_SECONDS
        seconds = [stack, stack + SEARCH_STEPS * step, network][: EFFORTS.index(self.effort) + 1]
        allowed = self.seconds(labelled)
        if allowed is not None:
            # The last stage gets the time that is left. A short limit also shortens the refinement, which is ignored.
            seconds[-1] = max(allowed - sum(seconds[:-1]), seconds[-1] / 10)
        return seconds

    def seconds(self, labelled: LabelledSet) -> float | None:
        """The time limit; None: there is none. Effort "best" on a CPU, whose networks could be trained for any time,
        always has one, which grows with the time that its networks need."""
        if self.minutes is not None:
            return 60 * self.minutes
        if self.effort != "best" or not self.is_cpu:
            return None
        return max(self.best_seconds, self.seconds_for_networks(labelled, _stack_seconds(labelled)))

    def seconds_for_networks(self, labelled: LabelledSet, stack_seconds: float) -> float:
        """The least time in which effort "best" gains from its networks.

        stack_seconds: duration of its stack, which is grown again for the search of settings and for every fold
        """
        from hedgerow.deep.recipe import Recipe

        least = self.least_seconds if self.is_cpu else LEAST_GPU_SECONDS
        return (Recipe(self.plan, labelled).n_regrown_stacks + 2) * stack_seconds + least

    def level_plan(self, net: StackNet, labelled: LabelledSet, is_turned: bool, seed: int) -> DeepConfig:
        """`plan` for a network and its images.

        is_turned: the images have no upright orientation, so they are rotated in training, and predictions are averaged
                   over all orientations
        """
        from hedgerow.deep.recipe import Recipe, for_images
        from hedgerow.deep.refinement_search import TURNED

        plan = replace(self.plan, seed=seed)
        if is_turned:
            plan = replace(plan, conv=replace(plan.conv, augment=TURNED, orientations=8))
        plan = replace(plan, members=tuple(Recipe(plan, labelled).members))  # type: ignore[arg-type]
        return replace(plan, conv=for_images(plan.conv, net.features.blank is not None))

    def level_settings(
        self,
        plan: DeepConfig,
        net: StackNet,
        labelled: LabelledSet,
        until: float | None,
        say: Say = quiet,
        progress: Report | None = None,
    ) -> DeepConfig:
        """The plan with the size of its networks and their steps.

        On a GPU, the networks are those with the best score on held-out images. On a CPU, a step is timed, and the
        networks get as many steps as the time allows; if those are too few, the networks are made smaller.
        until: the deadline by `clock`; None, on a GPU only: there is none
        """
        from hedgerow.deep.network_search import SIZES, choose_network, in_words, n_tried
        from hedgerow.deep.recipe import Recipe, for_number

        if self.is_cpu:
            assert until is not None, "a CPU always has a time limit"
            return self._in_time(replace(plan, conv=for_number(plan.conv, len(labelled))), net, labelled, until)
        if until is not None:
            # The steps are those that the largest networks would have time for.
            largest = replace(plan, conv=for_number(replace(plan.conv, base=max(SIZES)), len(labelled)))
            timed = self._in_time(largest, net, labelled, until, n_tried(plan.conv, labelled)).conv
            plan = replace(plan, conv=replace(plan.conv, n_steps=timed.n_steps, check_every=timed.check_every))
        say("comparing convolutional networks by mean Dice on held-out images")
        plan, tried = choose_network(net, Recipe(plan, labelled), self.device, until is not None, progress)
        say(f"  {in_words(tried)}")
        # Now there may be time for more steps of smaller networks, or for fewer steps of larger crops.
        return plan if until is None else self._in_time(plan, net, labelled, until)

    def _in_time(
        self, plan: DeepConfig, net: StackNet, labelled: LabelledSet, until: float, n_more: int = 0
    ) -> DeepConfig:
        """The plan with as many steps as the deadline allows; on a CPU with smaller networks if those are too few.

        n_more: number of networks to train in addition to those of the plan
        """
        from hedgerow.deep.recipe import Recipe

        tasks = Recipe(plan, labelled).tasks
        n_judges = sum(task.fold is not None for task in tasks)
        # A CPU trains several networks at once, but those that hold out a fold before the others.
        at_once = get_threads() if self.is_cpu else 1
        rounds = math.ceil(n_judges / at_once) + math.ceil((len(tasks) - n_judges) / at_once) + n_more

        def affordable(plan: DeepConfig) -> int:
            step = self.step_seconds(net, Recipe(plan, labelled), self.device)
            return int(PLANNED_FRACTION * max(until - self.clock(), 1.0) / (rounds * step))

        steps = affordable(plan)
        if self.is_cpu and steps < ENOUGH_STEPS and plan.conv.base > SMALL_BASE:
            plan = replace(plan, conv=replace(plan.conv, base=SMALL_BASE))
            steps = affordable(plan)
        fewest, most = self.steps
        steps = min(max(steps, fewest), most)
        return replace(plan, conv=replace(plan.conv, n_steps=steps, check_every=max(steps // 10, 1)))


def _stack_seconds(labelled: LabelledSet) -> float:
    pixels = sum(image.target.size for image in labelled) / 1e6
    return 3 + STACK_SECONDS * pixels * len(labelled.images[0].planes) ** 0.5 / get_threads()
