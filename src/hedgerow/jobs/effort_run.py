"""The stages of efforts "good" and "best": forests, their refined network, and a convolutional level.

A stage is part of the model only if it improves the score on held-out images. A work folder stores finished stages
until the end of the run, so that an interrupted run resumes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hedgerow.config import DeepConfig, RefineConfig, StackConfig
from hedgerow.deadline import Deadline
from hedgerow.deep.any_model import parts_of
from hedgerow.deep.folds import search_folds
from hedgerow.deep.record import ENSEMBLE
from hedgerow.files import fingerprint
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.samples import HELD_OUT, split_reserved
from hedgerow.forest.tree_store import TreeStore
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.io import model_file
from hedgerow.jobs.estimates import PLANNED_FRACTION, REFINE_SECONDS, Budget, Estimate
from hedgerow.plan_progress import WholePlan
from hedgerow.predict.devices import check_device
from hedgerow.progress import Report, Say, duration, quiet, reporting
from hedgerow.threads import get_threads
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


RESUMED = {"stack": "the stack of forests", "refinement": "the refinement"}


@dataclass(frozen=True)
class Stage:
    """The outcome of a stage.

    before, after: mean Dice without and with the stage, on held-out images or parts of images; None: nothing was held
                   out
    scored_on:     what they were scored on, in words
    chosen:        what was chosen, in words
    kept:          whether the model includes the stage
    """

    name: str
    before: float | None
    after: float | None
    seconds: float
    scored_on: str = ""
    chosen: str = ""
    kept: bool = True

    def __str__(self) -> str:
        time_taken = duration(self.seconds)
        if self.before is None or self.after is None:
            return f"{self.name}: not scored, since {self.scored_on or 'nothing was held out'} ({time_taken})"
        verdict = "" if self.kept else "; no gain on held-out images; stage discarded"
        return f"{self.name}: held-out mean Dice {self.before:.3f} -> {self.after:.3f} ({time_taken}){verdict}"


def summary(stages: Sequence[Stage]) -> str:
    """A table of the stages, and what was chosen."""
    head = ("stage", "without", "with", "time", "scored on")
    rows: list[tuple[str, ...]] = [head]
    for stage in stages:
        scores = ["" if dice is None else f"{dice:.3f}" for dice in (stage.before, stage.after)]
        discarded = "" if stage.kept or stage.after is None else "; discarded: no gain"
        rows.append((stage.name, *scores, duration(stage.seconds), (stage.scored_on or "nothing held out") + discarded))
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    lines = ["held-out mean Dice without and with each stage:"]
    lines += [
        "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if len({stage.scored_on for stage in stages if stage.after is not None}) > 1:
        lines.append("  Compare scores within a row: rows are scored on different pixels.")
    chosen = [f"{stage.name}: {stage.chosen}" for stage in stages if stage.kept and stage.chosen]
    return "\n".join([*lines, "chosen: " + "; ".join(chosen)] if chosen else lines)


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


def _fingerprint_of(labelled: LabelledSet) -> str:
    arrays = (array for image in labelled for array in (image.planes, image.target))
    return fingerprint(list(labelled.classes), *arrays)


def files_of_run(labelled: LabelledSet, folder: Path | None, say: Say = quiet) -> WorkFolder:
    """The work folder of a run on these images, which may hold what an interrupted run finished."""
    files = WorkFolder(folder, None if folder is None else _fingerprint_of(labelled))
    if files.is_of_other_images:
        say(f"note: {folder} holds an interrupted run with other images or labels; nothing of it is reused")
    return files


def fit_in_stages(
    labelled: LabelledSet,
    config: StackConfig,
    budget: Budget,
    estimate: Estimate,
    begun: float,
    files: WorkFolder,
    say: Say,
    progress: Report | None,
) -> Trained:
    """Fit a model by effort "good" or "best"; arguments as of `training.fit_labelled`."""
    check_device(budget.device, is_network=True)
    reserved: list[LabelledImage] = []
    if config.reserve:
        trained, reserved = split_reserved(labelled, config.reserve, config.seed)
        labelled, config = replace(labelled, images=trained), replace(config, reserve=0.0)
    with reporting(progress) as report:
        images = _fingerprint_of(labelled)
        until = None if estimate.limit is None else begun + estimate.limit
        plan = WholePlan(estimate.stages, report, budget.clock, until=until)
        marks = tuple(image.mark for image in reserved)
        run = EffortRun(labelled, config, budget, images, marks, files, say, plan, begun, estimate.limit)
        fitted = run.fit()
    say(summary(fitted.stages))
    say(f"total time {duration(budget.clock() - begun)}")
    return fitted


@dataclass
class EffortRun:
    """A run of effort "good" or "best", whose methods are its stages.

    images:   fingerprint of the images and labels
    reserved: marks of the reserved images, which score the model and are not in `labelled`
    begun:    start time, by the clock of `budget`; earlier by the time that reused stages took
    seconds:  time limit; None: no limit
    """

    labelled: LabelledSet
    config: StackConfig
    budget: Budget
    images: str
    reserved: tuple[str, ...]
    files: WorkFolder
    say: Say
    plan: WholePlan
    begun: float
    seconds: float | None
    stages: list[Stage] = field(default_factory=list)

    @cached_property
    def stack_key(self) -> str:
        """Fingerprint of everything that determines the stack."""
        return fingerprint(self.images, self.labelled.subjects, self.config.to_dict(), list(self.reserved))

    @cached_property
    def limits_key(self) -> str:
        """Fingerprint of that and of what the time limit decides."""
        return fingerprint(self.stack_key, self.budget.effort, self.budget.minutes, self.budget.device)

    @property
    def until(self) -> float | None:
        """The deadline, by the clock of `budget`."""
        return None if self.seconds is None else self.begun + self.seconds

    def fit(self) -> Trained:
        """The model of the effort."""
        stack = self._grow()
        net, choice = self._refine(stack)
        before = net if self.stages[-1].kept else stack
        if self.budget.effort == "good":
            return Trained(before, self.stages)
        deep = self._deepen(net, is_turned=choice.is_turned)
        return Trained(deep if self.stages[-1].kept else before, self.stages)

    def _begin(self, stage: int) -> float:
        """Begin a stage; returns its start time."""
        self.plan.begin(stage)
        return self.budget.clock()

    def _grow(self) -> ForestStack:
        begun = self._begin(0)

        def grow() -> ForestStack:
            stack = self._grown("trees", self.stack_key, self.labelled, self.plan.report, self.say)
            return replace(stack, known=replace(stack.known, reserved=self.reserved))

        stack = self._saved("stack", self.stack_key, grow)
        seconds = self._seconds("stack", self.stack_key, begun)
        dice = stack.held_out_dice[: stack.n_levels]
        first, last = (dice[0], dice[-1]) if dice else (None, None)
        held = f"{HELD_OUT[stack.settings['held']]}; without: the first level alone" if dice else ""
        chosen = f"{stack.n_levels} level(s) of {self.config.n_trees} trees"
        self.stages.append(Stage("stack of forests", first, last, seconds, held, chosen))
        return stack

    def _grown(self, name: str, key: str, labelled: LabelledSet, report: Report, say: Say = quiet) -> ForestStack:
        """A stack, with the trees that an interrupted run has grown."""
        store = TreeStore(self.files.path(name, key, ""), key, self.budget.clock)
        if len(store):
            self.say(f"resuming: {len(store)} trees of the interrupted run are reused")
        return grow_stack(labelled, self.config, progress=report, say=say, grow_all=store.grow_all)

    def _refine(self, stack: ForestStack) -> tuple[StackNet, RefinementChoice]:
        """The network of the stack, refined if that improves the held-out score."""
        from hedgerow.deep.refinement_search import NO_TIME
        from hedgerow.network.mapping import to_convnet
        from hedgerow.refinement.loop import refine_labelled

        begun = self._begin(1)
        seconds = self._planned_seconds(begun)
        plan = WholePlan(seconds, self.plan.report, self.budget.clock, name="refinement", counts=False)
        choice = self._choose_refinement(begun, plan)
        net = to_convnet(stack).to(self.budget.device)
        helps = choice.refined > choice.stack
        if helps:
            key = fingerprint(self.stack_key, choice.config.to_dict())
            checkpoint = self.files.path("refining", key, ".checkpoint")
            plan.begin(len(seconds) - 1)
            deadline = None
            if self.until is not None:
                left = max(self.until - self.budget.clock(), 0.0)
                part = PLANNED_FRACTION if self.budget.effort == "good" else 2 * REFINE_FRACTION["best"]
                deadline = Deadline(self.budget.clock() + part * left, self.budget.clock)
            refined = self._saved(
                "refined",
                key,
                lambda: refine_labelled(
                    net, self.labelled, choice.config, checkpoint=checkpoint, deadline=deadline, progress=plan.report
                ),
            )
            net = refined.to(self.budget.device)
        taken = self._seconds("refinement", self.limits_key, begun)
        self.stages.append(
            Stage("refinement", choice.stack, choice.refined, taken, choice.held, choice.in_words, helps)
            if choice.held != NO_TIME
            else Stage("refinement", None, None, taken, NO_TIME, kept=False)
        )
        return net, choice

    def _planned_seconds(self, begun: float) -> list[float]:
        """Estimated seconds of the stack of the search, of each of its trials, and of the refinement."""
        from hedgerow.deep.refinement_search import search_seconds

        first, stack = self._first_refinement, self.stages[0].seconds
        step = REFINE_SECONDS / get_threads()
        planned = [stack, *search_seconds(first, step), first.n_steps * step]
        if self.until is None:
            return planned
        shorter = min(1.0, max(self.until - begun, 1.0) / sum(planned))
        return [shorter * seconds for seconds in planned]

    @property
    def _first_refinement(self) -> RefineConfig:
        """The settings that the search begins with."""
        first = replace(self.budget.first_refinement, seed=self.config.seed)
        if self.budget.effort == "best":
            first = replace(first, pixels=BEST_PIXELS_CPU if self.budget.is_cpu else BEST_PIXELS)
        return first

    def _choose_refinement(self, begun: float, plan: WholePlan) -> RefinementChoice:
        """The settings of the refinement, read from the work folder if an interrupted run chose them."""
        from hedgerow.deep.refinement_search import NO_TIME, RefinementChoice, Trial

        # The time left is recorded, so that a resumed run makes the same decisions.
        until, first, effort = self.until, self._first_refinement, self.budget.effort
        left = self.files.seconds("left", self.limits_key, 0.0 if until is None else max(until - begun, 0))

        def choose() -> RefinementChoice:
            folds = search_folds(self.labelled, self.config.seed)
            is_grown = self.files.holds("held-out-stack", self.stack_key, ".hedge")
            part = 0.0 if is_grown else len(folds.training(0)) / len(self.labelled)
            if until is not None and self.budget.clock() + part * self.stages[0].seconds > until:
                self.say("no refinement: there is no time left for it")
                return RefinementChoice(first, 0.0, 0.0, [], NO_TIME)
            plan.begin(0)
            stack = self._saved(
                "held-out-stack",
                self.stack_key,
                lambda: self._grown("held-out-trees", self.stack_key, folds.training(0), plan.report),
            )
            now = self.budget.clock()
            latest = math.inf if until is None else (now + until) / 2  # the other half is for the refinement itself
            trial = Trial(folds, stack, self.budget.device, plan, self.stack_key, self.files, self.budget.clock, latest)
            return self.budget.search(
                trial,
                first,
                until=None if until is None else begun + SEARCH_FRACTION[effort] * left,
                seconds=REFINE_FRACTION[effort] * left,
                say=self.say,
            )

        def from_dict(values: dict[str, Any]) -> RefinementChoice:
            tried = [(name, dice) for name, dice in values["tried"]]
            config = RefineConfig.from_dict(values["config"])
            return RefinementChoice(config, values["stack"], values["refined"], tried, values["held"])

        key = fingerprint(self.limits_key, first.to_dict())
        return self.files.record(
            "choice", key, choose, lambda choice: {**asdict(choice), "config": choice.config.to_dict()}, from_dict
        )

    def _deepen(self, net: StackNet, *, is_turned: bool) -> DeepStack:
        """The network with a convolutional level."""
        from hedgerow.deep.fitting import deepen_labelled, held_out_probabilities
        from hedgerow.deep.recipe import Recipe

        begun, folder, budget = self._begin(2), self.files.folder, self.budget
        level = budget.level_plan(net, self.labelled, is_turned, self.config.seed)
        refolds = Recipe(level, self.labelled).n_regrown_stacks
        folds = refolds * (self.stages[0].seconds + self.stages[1].seconds / 3)
        left = budget.gpu_seconds if self.until is None else max(self.until - begun - folds, 1.0)
        plan = WholePlan([folds, left], self.plan.report, budget.clock, name="networks", counts=False)
        plan.begin(0)
        until = None if self.until is None else budget.training_end(self.until)
        held_out = replace(Recipe(level, self.labelled), until=until, clock=budget.clock)
        stack_proba = held_out_probabilities(net, held_out, folder=folder, progress=plan.report)
        plan.begin(1)
        if self.until is not None:
            plan.expect(1, max(self.until - budget.clock(), 1.0))
        # Recorded, since they depend on the speed of this machine.
        settings = self.files.record(
            "deep",
            fingerprint(self.limits_key, level.to_dict()),
            lambda: budget.level_settings(level, net, self.labelled, self.until, self.say, plan.report),
            DeepConfig.to_dict,
            DeepConfig.from_dict,
        )
        recipe = replace(Recipe(settings, self.labelled), until=until, clock=budget.clock)
        networks = (
            f"{len(recipe.tasks)} of {settings.conv.base} channels, {settings.conv.n_steps} steps of "
            f"{settings.conv.batch} crops of {settings.conv.crop} pixels"
        )
        self.say(f"convolutional networks: {networks}")
        deep = deepen_labelled(
            net, recipe, stack_proba=stack_proba, device=budget.device, folder=folder, progress=plan.report
        )
        scores = deep.record.scores
        for name in (name for name in scores if name != ENSEMBLE):
            self.say(f"  {name}: {scores[name]:.3f}, weight {deep.weights.get(name, 0.0):g}")
        is_better = bool(deep.nets) and scores[ENSEMBLE] > scores["stack"]
        seconds = budget.clock() - begun
        held = f"{deep.record.n_held} held-out image(s)" if deep.record.n_held else "held-out parts of the images"
        self.stages.append(
            Stage("convolutional level", scores["stack"], scores[ENSEMBLE], seconds, held, networks, is_better)
        )
        return deep

    def _seconds(self, name: str, key: str, begun: float) -> float:
        """How long a stage took, also if an interrupted run spent that time; then the run counts as begun earlier."""
        n_reused = len(self.files.reused)
        taken = self.budget.clock() - begun
        seconds = self.files.seconds(name, key, taken)
        if len(self.files.reused) > n_reused:
            self.begun -= max(seconds - taken, 0.0)
            self.say(f"resuming: {RESUMED.get(name, name)} of the interrupted run is reused ({duration(seconds)})")
        return seconds

    def _saved(self, name: str, key: str, fit: Callable[[], FittedModel]) -> FittedModel:
        """The model of a stage, read from the work folder if an interrupted run fitted it."""
        return cast("FittedModel", self.files.file(name, key, ".hedge", fit, model_file.save, model_file.load))
