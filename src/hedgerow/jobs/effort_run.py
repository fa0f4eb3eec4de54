"""The stages of efforts "good" and "best": forests, their refined network, and a convolutional level.

A stage is part of the model only if it improves the score on held-out images. A work folder stores finished stages
until the end of the run, so that an interrupted run resumes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hedgerow.config import DeepConfig, RefineConfig, StackConfig
from hedgerow.deep.any_model import parts_of
from hedgerow.deep.folds import search_folds
from hedgerow.deep.record import ENSEMBLE
from hedgerow.files import fingerprint
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.groups import HELD_OUT
from hedgerow.forest.samples import split_reserved
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.io import model_file
from hedgerow.jobs.estimates import Budget
from hedgerow.jobs.plan_progress import WholePlan
from hedgerow.predict.devices import check_device
from hedgerow.progress import Report, Say, duration, reporting
from hedgerow.work_folder import WorkFolder

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.deep.refinement_search import RefinementChoice
    from hedgerow.network.stacknet import StackNet

log = logging.getLogger("hedgerow")
FittedModel = TypeVar("FittedModel", bound="AnyModel")
BEST_PIXELS, BEST_PIXELS_CPU = 2**14, 2**12
"""Pixels per step of a refinement before a convolutional level, which repeats the refinement for every fold. On a CPU,
half the usual number leaves more time for networks (docs/measurements); the effect on a GPU was not measured."""
SEARCH_FRACTION = {"good": 0.25, "best": 0.15}  # of the time limit, for the search for settings of the refinement
REFINE_FRACTION = {"good": 0.5, "best": 0.1}  # of the time limit, for one refinement; "best" repeats it for each fold


@dataclass(frozen=True)
class Stage:
    """The outcome of a stage.

    before, after: mean Dice without and with the stage, on held-out images or parts of images; None: nothing was held
                   out
    kept:          whether the model includes the stage
    """

    name: str
    before: float | None
    after: float | None
    seconds: float
    kept: bool = True

    def __str__(self) -> str:
        time_taken = duration(self.seconds)
        if self.before is None or self.after is None:
            return f"{self.name}: not scored, since nothing was held out ({time_taken})"
        verdict = "" if self.kept else "; no gain on held-out images; stage discarded"
        return f"{self.name}: held-out mean Dice {self.before:.3f} -> {self.after:.3f} ({time_taken}){verdict}"


@dataclass(frozen=True)
class Trained:
    """The model, the outcome of each stage of an effort, and the size of its file."""

    model: AnyModel
    stages: Sequence[Stage] = ()
    n_bytes: int = 0

    @property
    def held_out(self) -> list[float]:
        """Held-out mean Dice of each level of forests, including levels that were discarded because they did not
        improve it; empty if nothing was held out."""
        return parts_of(self.model)[0].held_out_dice

    @property
    def unseen(self) -> str:
        """What was held out."""
        return HELD_OUT[self.model.settings["held"]]


def fit_in_stages(
    labelled: LabelledSet,
    config: StackConfig,
    budget: Budget,
    folder: Path | None,
    say: Say,
    progress: Report | None,
) -> Trained:
    """Fit a model by effort "good" or "best"; arguments as of `training.fit_labelled`."""
    check_device(budget.device, is_network=True)
    begun = budget.clock()
    reserved: list[LabelledImage] = []
    if config.reserve:
        trained, reserved = split_reserved(labelled, config.reserve, config.seed)
        labelled, config = replace(labelled, images=trained), replace(config, reserve=0.0)
    with reporting(progress) as report:
        files = WorkFolder(folder, None if folder is None else run_fingerprint(budget, config, labelled))
        plan = WholePlan(budget.stage_seconds(labelled), report)
        marks = tuple(image.mark for image in reserved)
        run = EffortRun(labelled, config, budget, marks, files, say, plan, begun, budget.seconds(labelled))
        fitted = run.fit()
    say("\n".join(map(str, fitted.stages)))
    say(f"total time {duration(budget.clock() - begun)}")
    return fitted


def run_fingerprint(budget: Budget, config: StackConfig, labelled: LabelledSet) -> str:
    """A fingerprint of everything that determines the model: only an identical run resumes."""
    arrays = [array for image in labelled for array in (image.planes, image.target)]
    settings = (budget.effort, budget.minutes, budget.device, config.to_dict(), list(labelled.classes))
    return fingerprint(*settings, *arrays)


@dataclass
class EffortRun:
    """A run of effort "good" or "best", whose methods are its stages.

    reserved: marks of the reserved images, which score the model and are not in `labelled`
    begun:    start time, by the clock of `budget`
    seconds:  time limit; None: no limit
    """

    labelled: LabelledSet
    config: StackConfig
    budget: Budget
    reserved: tuple[str, ...]
    files: WorkFolder
    say: Say
    plan: WholePlan
    begun: float
    seconds: float | None
    stages: list[Stage] = field(default_factory=list)

    @property
    def until(self) -> float | None:
        """The deadline, by the clock of `budget`."""
        return None if self.seconds is None else self.begun + self.seconds

    def fit(self) -> Trained:
        """The model of the effort."""
        stack = self._grow()
        if self.budget.effort == "good" or not self._has_time():
            net, _ = self._refine(stack, "good")
            return Trained(net if self.stages[-1].kept else stack, self.stages)
        net, choice = self._refine(stack, "best")
        before = net if self.stages[-1].kept else stack
        deep = self._deepen(net, is_turned=choice.is_turned)
        return Trained(deep if self.stages[-1].kept else before, self.stages)

    def _has_time(self) -> bool:
        """Whether the time limit allows a convolutional level; a limit that the user did not request is extended."""
        # From the recorded duration of the stack, so that a resumed run makes the same decision.
        needed, allowed = self.budget.seconds_for_networks(self.labelled, self.stages[0].seconds), self.seconds
        if allowed is None or needed <= allowed:
            return True
        if self.budget.minutes is not None:
            log.warning(
                "%s is too short for convolutional networks, so the run continues as effort good; effort best takes "
                "about %d minutes in all",
                duration(allowed),
                math.ceil(1.1 * needed / 60),
            )
            self.plan.change(2, allowed)
            return False
        self.seconds = needed
        self.plan.change(3, needed)
        self.say(f"forests took longer than estimated; the whole run now takes about {duration(needed)}")
        return True

    def _begin(self, stage: int) -> float:
        """Begin a stage; returns its start time."""
        self.plan.begin(stage)
        return self.budget.clock()

    def _grow(self) -> ForestStack:
        begun = self._begin(0)

        def grow() -> ForestStack:
            stack = grow_stack(self.labelled, self.config, progress=self.plan.report, say=self.say)
            return replace(stack, known=replace(stack.known, reserved=self.reserved))

        stack = self._saved("stack", grow)
        dice = stack.held_out_dice[: stack.n_levels]
        first, last = (dice[0], dice[-1]) if dice else (None, None)
        seconds = self.files.seconds("stack", self.budget.clock() - begun)
        self.stages.append(Stage("stack of forests", first, last, seconds))
        return stack

    def _refine(self, stack: ForestStack, effort: str) -> tuple[StackNet, RefinementChoice]:
        """The network of the stack, refined if that improves the held-out score."""
        from hedgerow.network.mapping import to_convnet
        from hedgerow.refinement.loop import refine_labelled

        begun = self._begin(1)
        choice = self._choose_refinement(effort, begun)
        net = to_convnet(stack).to(self.budget.device)
        helps = choice.refined > choice.stack
        if helps:
            checkpoint, report = self.files.path("refining.checkpoint"), self.plan.report
            refined = self._saved(
                "refined",
                lambda: refine_labelled(net, self.labelled, choice.config, checkpoint=checkpoint, progress=report),
            )
            net = refined.to(self.budget.device)
        self.stages.append(Stage("refinement", choice.stack, choice.refined, self.budget.clock() - begun, helps))
        return net, choice

    def _choose_refinement(self, effort: str, begun: float) -> RefinementChoice:
        """The settings of the refinement, read from the work folder if an interrupted run chose them."""
        from hedgerow.deep.refinement_search import RefinementChoice, Trial, choose_refinement

        # The time left is recorded, so that a resumed run makes the same decisions.
        until, report = self.until, self.plan.report
        left = self.files.seconds("left", 0.0 if until is None else max(until - begun, 0))
        first = replace(self.budget.first_refinement, seed=self.config.seed)
        if effort == "best":
            first = replace(first, pixels=BEST_PIXELS_CPU if self.budget.is_cpu else BEST_PIXELS)

        def choose() -> RefinementChoice:
            folds = search_folds(self.labelled, self.config.seed)
            stack = self._saved("held-out-stack", lambda: grow_stack(folds.training(0), self.config, progress=report))
            trial = Trial(folds, stack, self.budget.device, report, self.files.folder, self.budget.clock)
            return choose_refinement(
                trial,
                first,
                until=None if until is None else begun + SEARCH_FRACTION[effort] * left,
                seconds=REFINE_FRACTION[effort] * left,
                say=self.say,
            )

        def from_dict(values: dict[str, Any]) -> RefinementChoice:
            tried = [(name, dice) for name, dice in values["tried"]]
            config = RefineConfig.from_dict(values["config"])
            return RefinementChoice(config, values["stack"], values["refined"], tried)

        return self.files.record(
            "choice", choose, lambda choice: {**asdict(choice), "config": choice.config.to_dict()}, from_dict
        )

    def _deepen(self, net: StackNet, *, is_turned: bool) -> DeepStack:
        """The network with a convolutional level."""
        from hedgerow.deep.fitting import deepen_labelled, held_out_probabilities
        from hedgerow.deep.recipe import Recipe

        begun, folder, report, budget = self._begin(2), self.files.folder, self.plan.report, self.budget
        plan = budget.level_plan(net, self.labelled, is_turned, self.config.seed)
        stack_proba = held_out_probabilities(net, Recipe(plan, self.labelled), folder=folder, progress=report)
        # Recorded, since they depend on the speed of this machine.
        settings = self.files.record(
            "deep",
            lambda: budget.level_settings(plan, net, self.labelled, self.until, self.say, report),
            DeepConfig.to_dict,
            DeepConfig.from_dict,
        )
        recipe = Recipe(settings, self.labelled)
        self.say(
            f"convolutional networks: {len(recipe.tasks)} of {settings.conv.base} channels, "
            f"{settings.conv.n_steps} steps of {settings.conv.batch} crops of {settings.conv.crop} pixels"
        )
        deep = deepen_labelled(
            net, recipe, stack_proba=stack_proba, device=budget.device, folder=folder, progress=report
        )
        scores = deep.record.scores
        for name in (name for name in scores if name != ENSEMBLE):
            self.say(f"  {name}: {scores[name]:.3f}, weight {deep.weights.get(name, 0.0):g}")
        is_better = bool(deep.nets) and scores[ENSEMBLE] > scores["stack"]
        seconds = budget.clock() - begun
        self.stages.append(Stage("convolutional level", scores["stack"], scores[ENSEMBLE], seconds, is_better))
        return deep

    def _saved(self, name: str, fit: Callable[[], FittedModel]) -> FittedModel:
        """The model of a stage, read from the work folder if an interrupted run fitted it."""
        return cast("FittedModel", self.files.file(f"{name}.hedge", fit, model_file.save, model_file.load))
