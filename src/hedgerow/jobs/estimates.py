"""The time that an effort takes, and the convolutional networks that can be trained within it.

The constants are those of a reference machine (docs/measurements/estimates.md). How fast this machine is, and how busy
it is now, is measured before training starts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from hedgerow.config import STEP_PIXELS, AugmentConfig, ConvConfig, DeepConfig, RefineConfig, StackConfig
from hedgerow.deep.folds import SEARCH_FOLDS
from hedgerow.errors import ConfigError
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.growth_time import growing_costs
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.images.regions import Region
from hedgerow.progress import Report, Say, duration, quiet, silent
from hedgerow.threads import get_threads

if TYPE_CHECKING:
    from hedgerow.deep.recipe import Recipe
    from hedgerow.deep.refinement_search import RefinementChoice, Trial
    from hedgerow.network.stacknet import StackNet

REFINE_SECONDS = 0.4  # CPU seconds per step of refinement, with REFERENCE_TREES in all levels
REFERENCE_TREES, REFERENCE_PIXELS = 48, STEP_PIXELS
SCORE_SECONDS = 0.4  # CPU seconds per megapixel and tree, to score a network
PROBE_SECONDS = 0.018  # CPU seconds of the small forest that `measured_slowness` grows
PROBE_SIDE, N_PROBES = 96, 12  # pixels; small forests
ENCODER_IMPORT_SECONDS = 2.0  # to load PyTorch, on one thread
REFINEMENT_STEPS = 300  # steps of one refinement
LEAST_REFINEMENT_STEPS = 100
Effort = Literal["fast", "good", "best"]
EFFORTS = get_args(Effort)
BEST_MINUTES = 23.5  # effort "best" on a CPU without a time limit ends a little earlier
GPU_SECONDS = 200.0  # calculated, not timed: 15 networks of 1,500 steps, at the 4 to 15 ms per step of an H200
PLANNED_FRACTION = 0.9  # of the time left, for which steps are planned
FEWEST_STEPS, MOST_STEPS = 40, 1500
# Steps with which networks gain anything, and the least time on a GPU beside growing the stack again; not measured.
LEAST_STEPS, LEAST_GPU_SECONDS = 250, 300.0
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


def searched_refinement(trial: Trial, first: RefineConfig, **options: Any) -> RefinementChoice:
    """The settings of the refinement that score best in trials; arguments of `choose_refinement`."""
    from hedgerow.deep.refinement_search import choose_refinement

    return choose_refinement(trial, first, **options)


def measured_slowness() -> float:
    """How many times longer than on the reference machine a small forest takes to grow here and now.

    Kernels that were never compiled on this machine are compiled first, so that later estimates need not count that.
    """
    rng = np.random.default_rng(0)
    planes, target = rng.normal(size=(1, 64, 64)).astype(np.float32), rng.integers(0, 3, (64, 64), np.uint8)
    image = LabelledImage(planes, target)
    labelled = LabelledSet([image], (0, 1, 2))
    config = StackConfig(n_levels=1, n_trees=2 * get_threads(), held_out="none")
    seconds = []
    for _ in range(N_PROBES):
        begun = time.perf_counter()
        grow_stack(labelled, config, progress=silent)
        seconds.append(time.perf_counter() - begun)
    return slowness_of(seconds)


def slowness_of(seconds: Sequence[float]) -> float:
    """How many times longer than on the reference machine the small forests took.

    The first loads the kernels, and the longest may have met a pause. The mean of the others is what a busy machine
    leaves; their minimum was 1.7 times too short with eight processes on two cores (docs/measurements).
    """
    return float(np.clip(np.mean(sorted(seconds[1:])[:-1]) / PROBE_SECONDS, 0.2, 50.0))


def probe_net(labelled: LabelledSet, config: StackConfig) -> StackNet:
    """A network that reads the same features as that of the images, from a small part of one of them."""
    from hedgerow.network.mapping import to_convnet

    image = labelled.images[0]
    places = np.argwhere(image.target != UNLABELLED_INDEX)
    central = places[np.abs(places - np.median(places, axis=0)).sum(axis=1).argmin()]  # the window must hold labels
    top, left = (max(int(place) - PROBE_SIDE // 2, 0) for place in central)
    part = Region(top, top + PROBE_SIDE, left, left + PROBE_SIDE).clipped(Region.whole(image.size))
    planes, target = (np.ascontiguousarray(part.of(array)) for array in (image.planes, image.target))
    cut = replace(image, planes=planes, target=target)
    small = replace(config, n_levels=1, n_trees=1, held_out="none", reserve=0.0, augment=AugmentConfig())
    return to_convnet(grow_stack(replace(labelled, images=[cut]), small, progress=silent))


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of each stage, and the time limit in seconds; None: there is none.

    is_requested: whether the user set the limit
    choice:       estimated seconds to choose the settings, before the stages
    """

    stages: tuple[float, ...]
    limit: float | None
    is_requested: bool = False
    choice: float = 0.0

    def __str__(self) -> str:
        whole = self.choice + sum(self.stages)
        if self.limit is not None and whole > 0.9 * self.limit:
            return f"{'limited to' if self.is_requested else 'planned for'} about {duration(self.limit)}"
        return f"estimated time {duration(whole)}"


@dataclass(frozen=True)
class Budget:
    """The time that training with an effort may take.

    minutes: requested time limit; None: see `estimate`
    device:  where networks are trained
    first_refinement: the search for settings of the refinement starts from these
    cpu_plan:         settings of the convolutional level on a CPU, except the size of its networks
    best_seconds:     time limit of effort "best" on a CPU if none is requested
    least_steps:      steps with which networks on a CPU gain anything
    steps:            fewest and most training steps of a network
    slowness:         measures how much slower this machine is than the reference machine
    step_seconds:     measures the seconds per step of a convolutional network
    search:           chooses the settings of the refinement by their scores
    clock:            returns the time in seconds
    """

    effort: Effort
    minutes: float | None = None
    device: str = "cpu"
    # Many checks, at each of which the state is saved; nothing is scored at them.
    first_refinement: RefineConfig = RefineConfig(held_out=0.0, check_every=10)
    cpu_plan: DeepConfig = CPU_PLAN
    best_seconds: float = 60 * BEST_MINUTES
    least_steps: int = LEAST_STEPS
    steps: tuple[int, int] = (FEWEST_STEPS, MOST_STEPS)
    slowness: Callable[[], float] = measured_slowness
    step_seconds: Callable[[StackNet, Recipe, str], float] = measured_step
    search: Callable[..., RefinementChoice] = searched_refinement
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
    def gpu_seconds(self) -> float:
        """Estimated seconds to train the convolutional networks without a time limit."""
        return GPU_SECONDS

    def training_end(self, until: float) -> float:
        """When networks must be trained, so that they can be weighed and stored before the deadline."""
        return until - (1 - PLANNED_FRACTION) / 2 * max(until - self.clock(), 0.0)

    @property
    def plan(self) -> DeepConfig:
        """Settings of the convolutional level, except the size of its networks and their training time."""
        return self.cpu_plan if self.is_cpu else GPU_PLAN

    def estimate(self, labelled: LabelledSet, config: StackConfig, choice: float = 0.0) -> Estimate:
        """The time of each stage, from what a probe of this machine takes; raises ConfigError if the requested time is
        too short for the effort.

        choice: seconds on the reference machine to choose the settings
        """
        one_thread = self.slowness()
        slowness = one_thread / get_threads()
        choice *= slowness
        stack = slowness * growing_costs(labelled, config).total
        if "encoder" in ((config.features,) if isinstance(config.features, str) else config.features):
            stack += one_thread * ENCODER_IMPORT_SECONDS
        if self.effort == "fast":
            return Estimate((stack,), None, choice=choice)
        from hedgerow.deep.recipe import Recipe
        from hedgerow.deep.refinement_search import search_seconds

        step = slowness * _refine_seconds(labelled, config, self.first_refinement)
        held = sum(image.target.size for image in labelled) / SEARCH_FOLDS / 1e6
        score = slowness * SCORE_SECONDS * held * config.n_levels * config.n_trees
        trials = [seconds + score for seconds in search_seconds(self.first_refinement, step)]
        refinement = stack + score + sum(trials) + self.first_refinement.n_steps * step
        limit = None if self.minutes is None else 60 * self.minutes
        if self.effort == "good":
            if limit is not None:
                refinement = min(refinement, max(limit - choice - stack, 0.1 * limit))
            return Estimate((stack, refinement), limit, limit is not None, choice)
        refolds = Recipe(self.plan, labelled).n_regrown_stacks
        refined = REFINEMENT_STEPS * step
        networks = refolds * (stack + refined) + GPU_SECONDS
        if self.is_cpu or limit is not None:
            needed = self._needed_seconds(labelled, config, stack, step)
            if limit is None:
                limit = max(self.best_seconds, needed)
            elif limit < needed:
                minutes = math.ceil(needed / 60)
                raise ConfigError(
                    f"{duration(limit)} is too short for the convolutional networks of effort best, which need about "
                    f"{minutes} minutes for these images on this machine; give --minutes {minutes}, or use --effort "
                    f"good --minutes {self.minutes:g}."
                )
            refinement = min(refinement, 0.3 * limit)
            networks = max(limit - choice - stack - refinement, 0.1 * limit)
        return Estimate((stack, refinement, networks), limit, self.minutes is not None, choice)

    def _needed_seconds(self, labelled: LabelledSet, config: StackConfig, stack: float, refine_step: float) -> float:
        """The least time in which effort "best" gains from its networks.

        stack, refine_step: estimated seconds of the stack, and of a step of its refinement
        """
        from hedgerow.deep.recipe import Recipe, for_number

        n_stacks = Recipe(self.plan, labelled).n_regrown_stacks + 2  # the model's own, and one for the search
        if not self.is_cpu:
            return n_stacks * stack + LEAST_GPU_SECONDS
        net = probe_net(labelled, config)
        plan = self.level_plan(net, labelled, False, config.seed)
        plan = replace(plan, conv=replace(for_number(plan.conv, len(labelled)), base=min(SMALL_BASE, plan.conv.base)))
        step = self.step_seconds(net, Recipe(plan, labelled), self.device) if self.least_steps else 0.0
        training = _n_rounds(Recipe(plan, labelled)) * self.least_steps * step / PLANNED_FRACTION
        return n_stacks * (stack + LEAST_REFINEMENT_STEPS * refine_step) + training

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
        from hedgerow.deep.network_search import TRIED_SIZES, choose_network, in_words, n_tried
        from hedgerow.deep.recipe import Recipe, for_number

        if self.is_cpu:
            assert until is not None, "a CPU always has a time limit"
            return self._in_time(replace(plan, conv=for_number(plan.conv, len(labelled))), net, labelled, until)
        if until is not None:
            # The steps are those that the largest networks would have time for.
            largest = replace(plan, conv=for_number(replace(plan.conv, base=max(TRIED_SIZES)), len(labelled)))
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

        rounds = _n_rounds(Recipe(plan, labelled), self.is_cpu) + n_more

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


def _n_rounds(recipe: Recipe, is_cpu: bool = True) -> int:
    """How many networks are trained one after the other: a CPU trains several at once, but those that hold out a fold
    before the others."""
    n_judges = sum(task.fold is not None for task in recipe.tasks)
    at_once = get_threads() if is_cpu else 1
    return math.ceil(n_judges / at_once) + math.ceil((len(recipe.tasks) - n_judges) / at_once)


def _refine_seconds(labelled: LabelledSet, config: StackConfig, refinement: RefineConfig) -> float:
    """CPU seconds per step of a refinement on the reference machine."""
    pixels = min(refinement.pixels or STEP_PIXELS, max(image.target.size for image in labelled))
    return REFINE_SECONDS * pixels / REFERENCE_PIXELS * config.n_levels * config.n_trees / REFERENCE_TREES
