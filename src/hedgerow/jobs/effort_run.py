"""The stages of efforts "good" and "best": forests, their refined network, and a convolutional level.

A stage is part of the model only if it improves the score on held-out images. A work folder stores finished stages
until the end of the run, so that an interrupted run resumes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.config import DeepConfig, RefineConfig, StackConfig
from hedgerow.deep.record import ENSEMBLE
from hedgerow.files import fingerprint
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.samples import split_reserved
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.io import model_file
from hedgerow.jobs.estimates import (
    Effort,
    allowed_seconds,
    deep_plan,
    deep_settings,
    seconds_for_networks,
    stage_seconds,
)
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
BEST_PIXELS, BEST_PIXELS_CPU = 2**14, 2**12
"""Pixels per step of a refinement before a convolutional level, which repeats the refinement for every fold. On a CPU,
half the usual number leaves more time for networks (docs/measurements); the effect on a GPU was not measured."""
FIRST_REFINEMENT = RefineConfig(held_out=0.0)  # the search for better settings starts from these
SEARCH_FRACTION = {"good": 0.25, "best": 0.15}  # of the time allowed: search for the settings of the refinement
REFINE_FRACTION = {"good": 0.5, "best": 0.1}  # of the time allowed: one refinement; "best" repeats it for each fold


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


@dataclass
class Fitted:
    """The model, and the outcome of each stage."""

    model: ForestStack | StackNet | DeepStack
    stages: list[Stage] = field(default_factory=list)


def fit_in_stages(
    labelled: LabelledSet,
    config: StackConfig,
    effort: Effort,
    minutes: float | None,
    device: str,
    folder: Path | None,
    say: Say,
    progress: Report | None,
) -> Fitted:
    """Fit a model by effort "good" or "best"; arguments as of `training.fit_labelled`."""
    check_device(device, is_network=True)
    begun = time.monotonic()
    reserved: list[LabelledImage] = []
    if config.reserve:
        trained, reserved = split_reserved(labelled, config.reserve, config.seed)
        labelled, config = replace(labelled, images=trained), replace(config, reserve=0.0)
    limit = TimeLimit(begun, allowed_seconds(labelled, effort, minutes, device), minutes is not None)
    with reporting(progress) as report:
        run_id = None if folder is None else run_fingerprint(effort, minutes, device, config, labelled)
        plan = WholePlan(stage_seconds(labelled, effort, minutes, device), report)
        marks = tuple(image.mark for image in reserved)
        run = EffortRun(labelled, config, marks, device, limit, WorkFolder(folder, run_id), say, plan)
        fitted = run.fit(effort)
    say("\n".join(map(str, fitted.stages)))
    say(f"total time {duration(time.monotonic() - begun)}")
    return fitted


def run_fingerprint(effort: str, minutes: float | None, device: str, config: StackConfig, labelled: LabelledSet) -> str:
    """Of everything that determines the model: only an identical run resumes."""
    arrays = [array for image in labelled for array in (image.planes, image.target)]
    return fingerprint(effort, minutes, device, config.to_dict(), list(labelled.classes), *arrays)


@dataclass
class TimeLimit:
    """The time limit of a run.

    begun:        start time, by `time.monotonic`
    seconds:      None: no limit
    is_requested: whether the user set it
    """

    begun: float
    seconds: float | None
    is_requested: bool

    @property
    def until(self) -> float | None:
        """The deadline, by `time.monotonic`."""
        return None if self.seconds is None else self.begun + self.seconds


@dataclass
class EffortRun:
    """A run of effort "good" or "best", whose methods are its stages.

    reserved: marks of images that score the model and are not among those of `labelled`
    """

    labelled: LabelledSet
    config: StackConfig
    reserved: tuple[str, ...]
    device: str
    limit: TimeLimit
    files: WorkFolder
    say: Say
    plan: WholePlan
    stages: list[Stage] = field(default_factory=list)

    def fit(self, effort: str) -> Fitted:
        """The model of this effort."""
        stack = self._grow()
        if effort == "good" or not self._has_time():
            net, _ = self._refine(stack, "good")
            return Fitted(net if self.stages[-1].kept else stack, self.stages)
        net, choice = self._refine(stack, "best")
        before = net if self.stages[-1].kept else stack
        deep = self._deepen(net, is_turned=choice.is_turned)
        return Fitted(deep if self.stages[-1].kept else before, self.stages)

    def _has_time(self) -> bool:
        """Whether the time limit allows a convolutional level. A limit that the user did not set is extended."""
        # The recorded duration of the stack is used, so that a resumed run makes the same decision.
        needed, allowed = seconds_for_networks(self.labelled, self.device, self.stages[0].seconds), self.limit.seconds
        if allowed is None or needed <= allowed:
            return True
        if self.limit.is_requested:
            log.warning(
                "%s is too short for convolutional networks, so the run continues as effort good; effort best takes "
                "about %d minutes in all",
                duration(allowed),
                math.ceil(1.1 * needed / 60),
            )
            self.plan.change(2, allowed)
            return False
        self.limit.seconds = needed
        self.plan.change(3, needed)
        self.say(f"forests took longer than estimated; the whole run now takes about {duration(needed)}")
        return True

    def _begin(self, stage: int) -> float:
        """Begin a stage; returns its start time."""
        self.plan.begin(stage)
        return time.monotonic()

    def _grow(self) -> ForestStack:
        begun = self._begin(0)

        def grow() -> ForestStack:
            stack = grow_stack(self.labelled, self.config, progress=self.plan.report, say=self.say)
            return replace(stack, known=replace(stack.known, reserved=self.reserved))

        stack = self._saved_stack("stack", grow)
        dice = stack.held_out_dice[: stack.n_levels]
        first, last = (dice[0], dice[-1]) if dice else (None, None)
        seconds = self.files.seconds("stack", time.monotonic() - begun)
        self.stages.append(Stage("stack of forests", first, last, seconds))
        return stack

    def _refine(self, stack: ForestStack, effort: str) -> tuple[StackNet, RefinementChoice]:
        """The network of the stack, refined if that improves the held-out score."""
        from hedgerow.network.mapping import to_convnet
        from hedgerow.network.stacknet import StackNet
        from hedgerow.refinement.loop import refine_labelled

        begun = self._begin(1)
        choice = self._choose_refinement(effort, begun)
        net = to_convnet(stack).to(self.device)
        helps = choice.refined > choice.stack
        if helps:
            checkpoint = self.files.path("refining.checkpoint")
            refined = self._saved_model(
                "refined",
                lambda: refine_labelled(
                    net, self.labelled, choice.config, checkpoint=checkpoint, progress=self.plan.report
                ),
            )
            assert isinstance(refined, StackNet)
            net = refined.to(self.device)
        self.stages.append(Stage("refinement", choice.stack, choice.refined, time.monotonic() - begun, helps))
        return net, choice

    def _choose_refinement(self, effort: str, begun: float) -> RefinementChoice:
        """The settings of the refinement, read from the work folder if an interrupted run chose them."""
        from hedgerow.deep import refinement_search

        # The time left is recorded, so that a resumed run makes the same decisions.
        until = self.limit.until
        left = self.files.seconds("left", 0.0 if until is None else max(until - begun, 0))
        first = replace(FIRST_REFINEMENT, seed=self.config.seed)
        if effort == "best":
            first = replace(first, pixels=BEST_PIXELS if self.device != "cpu" else BEST_PIXELS_CPU)

        def choose() -> RefinementChoice:
            return refinement_search.choose_refinement(
                self.labelled,
                self.config,
                first,
                until=None if until is None else begun + SEARCH_FRACTION[effort] * left,
                seconds=REFINE_FRACTION[effort] * left,
                device=self.device,
                folder=self.files.folder,
                saved_stack=lambda grow: self._saved_stack("held-out-stack", grow),
                say=self.say,
                report=self.plan.report,
            )

        def from_dict(values: dict[str, Any]) -> RefinementChoice:
            tried = [(name, dice) for name, dice in values["tried"]]
            config = RefineConfig.from_dict(values["config"])
            return refinement_search.RefinementChoice(config, values["stack"], values["refined"], tried)

        return self.files.record(
            "choice", choose, lambda choice: {**asdict(choice), "config": choice.config.to_dict()}, from_dict
        )

    def _deepen(self, net: StackNet, *, is_turned: bool) -> DeepStack:
        """The network with a convolutional level."""
        from hedgerow.deep.fitting import deepen_labelled, held_out_probabilities
        from hedgerow.deep.recipe import Recipe

        begun, folder, report = self._begin(2), self.files.folder, self.plan.report
        plan = deep_plan(net, self.labelled, is_turned, self.device, self.config.seed)
        stack_proba = held_out_probabilities(net, Recipe(plan, self.labelled), folder=folder, progress=report)
        # Recorded, since they depend on the speed of this machine.
        settings = self.files.record(
            "deep",
            lambda: deep_settings(plan, net, self.labelled, self.device, self.limit.until, self.say, report),
            DeepConfig.to_dict,
            DeepConfig.from_dict,
        )
        recipe = Recipe(settings, self.labelled)
        self.say(
            f"convolutional networks: {len(recipe.tasks)} of {settings.conv.base} channels, "
            f"{settings.conv.n_steps} steps of {settings.conv.batch} crops of {settings.conv.crop} pixels"
        )
        deep = deepen_labelled(net, recipe, stack_proba=stack_proba, device=self.device, folder=folder, progress=report)
        scores = deep.record.scores
        for name in (name for name in scores if name != ENSEMBLE):
            self.say(f"  {name}: {scores[name]:.3f}, weight {deep.weights.get(name, 0.0):g}")
        is_better = bool(deep.nets) and scores[ENSEMBLE] > scores["stack"]
        seconds = time.monotonic() - begun
        self.stages.append(Stage("convolutional level", scores["stack"], scores[ENSEMBLE], seconds, is_better))
        return deep

    def _saved_stack(self, name: str, grow: Callable[[], ForestStack]) -> ForestStack:
        stack = self._saved_model(name, grow)
        assert isinstance(stack, ForestStack)
        return stack

    def _saved_model(self, name: str, fit: Callable[[], AnyModel]) -> AnyModel:
        """The model of a stage, read from the work folder if an interrupted run fitted it."""
        return self.files.file(f"{name}.hedge", fit, model_file.save, model_file.load)
