"""Training by effort: "fast" grows a stack of forests, "good" refines it, "best" adds a convolutional level.

Each stage is kept only if it improves the score on held-out images. A work folder stores finished stages until the end
of the run, so that an interrupted run resumes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hedgerow import extras
from hedgerow.config import DeepConfig, RefineConfig, StackConfig
from hedgerow.deep.record import ENSEMBLE
from hedgerow.errors import ConfigError
from hedgerow.features.registry import layout_of
from hedgerow.files import fingerprint
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.default_settings import settings_for
from hedgerow.forest.groups import GroupsOf
from hedgerow.forest.samples import reserve
from hedgerow.images.labelled import Images, LabelledImage, LabelledSet, labelled_set
from hedgerow.images.legend import Legend
from hedgerow.io import model_file
from hedgerow.jobs.estimates import (
    EFFORTS,
    allowed_seconds,
    deep_plan,
    deep_settings,
    expected,
    seconds_for_networks,
    stage_seconds,
)
from hedgerow.jobs.plan_progress import WholePlan
from hedgerow.predict.devices import check_device
from hedgerow.predict.evaluate import score
from hedgerow.progress import Report, Say, duration, quiet, reporting
from hedgerow.work_folder import WorkFolder

if TYPE_CHECKING:
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.deep.refinement_search import RefinementChoice
    from hedgerow.network.stacknet import StackNet

    AnyModel = ForestStack | StackNet | DeepStack

log = logging.getLogger("hedgerow")
Effort = Literal["fast", "good", "best"]
BEST_PIXELS, BEST_PIXELS_CPU = 2**14, 2**12
"""Pixels per step of a refinement before a convolutional level, which repeats the refinement for every fold. On a CPU,
half the usual number leaves more time for networks (docs/measurements); the effect on a GPU was not measured."""
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


def fit(
    images: Images,
    labels: Images,
    effort: Effort = "good",
    config: StackConfig | None = None,
    *,
    minutes: float | None = None,
    device: str = "cpu",
    unlabelled: int = 255,
    names: Sequence[str] | None = None,
    legend: Legend | None = None,
    say: Say = log.info,
    progress: Report | None = None,
) -> ForestStack | StackNet | DeepStack:
    """Train a model on images (H,W[,C]) and labels (H,W); `fit_stack`, `refine` and `deepen` are its stages.

    config:  of the stack; None: chosen by the fraction of labelled pixels
    minutes: approximate time limit of the whole run; if it is too short for "best", a warning is logged and the run
             continues as "good". None: no limit; for "best" on a CPU see `allowed_seconds`
    say:     receives the time estimate, the settings chosen, and the gain of each stage

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> hr.fit(images, labels, "fast", hr.StackConfig(n_levels=1, n_trees=2)).n_classes
    22
    """
    layout = layout_of((config or StackConfig()).features)
    labelled = labelled_set(images, labels, layout=layout, unlabelled=unlabelled, names=names, legend=legend)
    settings = config or settings_for(labelled, say)
    return fit_labelled(labelled, settings, effort, minutes=minutes, device=device, say=say, progress=progress).model


def fit_labelled(
    labelled: LabelledSet,
    config: StackConfig,
    effort: Effort,
    *,
    minutes: float | None = None,
    device: str = "cpu",
    folder: Path | None = None,
    say: Say = quiet,
    progress: Report | None = None,
) -> Fitted:
    """`fit` on labelled images. folder: work folder, which the caller removes once the model is saved"""
    check_effort(effort, minutes)
    if effort != "fast":
        extras.require("torch", f"effort {effort}")
    check_device(device, is_network=effort != "fast")
    say(f"effort {effort}: {expected(labelled, effort, minutes, device)}")
    begun = time.monotonic()
    reserved: list[LabelledImage] = []
    if config.reserve:
        trained, reserved = reserve(labelled, config.reserve, config.seed)
        labelled, config = replace(labelled, images=trained), replace(config, reserve=0.0)
    allowed = allowed_seconds(labelled, effort, minutes, device)
    with reporting(progress) as report:
        run_id = None if folder is None else run_fingerprint(effort, minutes, device, config, labelled)
        files = WorkFolder(folder, run_id)
        plan = WholePlan(stage_seconds(labelled, effort, minutes, device), report)
        marks = tuple(image.mark for image in reserved)
        run = _Run(labelled, config, marks, device, begun, allowed, minutes is not None, files, say, plan)
        fitted = run.fast() if effort == "fast" else run.good() if effort == "good" else run.best()
    say("\n".join(map(str, fitted.stages)))
    if reserved:
        dice = score(fitted.model, replace(labelled, images=reserved), progress).mean_dice
        say(f"mean Dice {dice:.3f} on {len(reserved)} reserved image(s)")
    say(f"total time {duration(time.monotonic() - begun)}")
    return fitted


def check_effort(effort: str, minutes: float | None) -> None:
    """Raise ConfigError unless the effort exists and the time limit is positive."""
    if effort not in EFFORTS:
        raise ConfigError(f"the effort is {effort!r}; choose one of {', '.join(EFFORTS)}.")
    if minutes is not None and not 0 < minutes <= 10**6:
        raise ConfigError(f"the time is {minutes:g} minutes; give a positive number.")


def run_fingerprint(effort: str, minutes: float | None, device: str, config: StackConfig, labelled: LabelledSet) -> str:
    """Of everything that determines the model: only an identical run resumes."""
    arrays = [array for image in labelled for array in (image.planes, image.target)]
    return fingerprint(effort, minutes, device, config.to_dict(), list(labelled.classes), *arrays)


@dataclass
class _Run:
    """A fit in progress.

    begun:    start time, by `time.monotonic`
    allowed:  time limit in seconds; None: no limit
    is_given: whether the user set the limit
    """

    labelled: LabelledSet
    config: StackConfig
    reserved: tuple[str, ...]
    device: str
    begun: float
    allowed: float | None
    is_given: bool
    files: WorkFolder
    say: Say
    plan: WholePlan
    stages: list[Stage] = field(default_factory=list)

    @property
    def until(self) -> float | None:
        """The deadline, by `time.monotonic`."""
        return None if self.allowed is None else self.begun + self.allowed

    @property
    def report(self) -> Report:
        return self.plan.report

    def fast(self) -> Fitted:
        return Fitted(self._stack(), self.stages)

    def good(self) -> Fitted:
        return self._good(self._stack())

    def _good(self, stack: ForestStack) -> Fitted:
        net, _ = self._refined(stack, "good")
        return Fitted(net if self.stages[-1].kept else stack, self.stages)

    def best(self) -> Fitted:
        from hedgerow.deep.fitting import deepen_labelled, held_out_probabilities
        from hedgerow.deep.recipe import Recipe

        stack = self._stack()
        if not self._has_time():
            return self._good(stack)
        net, choice = self._refined(stack, "best")
        before = net if self.stages[-1].kept else stack
        begun, folder = self._begin(2), self.files.folder
        plan = deep_plan(net, self.labelled, choice.is_turned, self.device, self.config.seed)
        stack_proba = held_out_probabilities(net, self.labelled, plan, folder=folder, progress=self.report)
        # Recorded, since they depend on the speed of this machine.
        settings = self.files.record(
            "deep",
            lambda: deep_settings(plan, net, self.labelled, self.device, self.until, self.say, self.report),
            DeepConfig.to_dict,
            DeepConfig.from_dict,
        )
        self.say(
            f"convolutional networks: {len(Recipe(settings, self.labelled).tasks)} of {settings.conv.base} channels, "
            f"{settings.conv.n_steps} steps of {settings.conv.batch} crops of {settings.conv.crop} pixels"
        )
        deep = deepen_labelled(
            net,
            self.labelled,
            settings,
            stack_proba=stack_proba,
            device=self.device,
            folder=folder,
            progress=self.report,
        )
        scores = deep.record.scores
        for name in (name for name in scores if name != ENSEMBLE):
            self.say(f"  {name}: {scores[name]:.3f}, weight {deep.weights.get(name, 0.0):g}")
        is_better = bool(deep.nets) and scores[ENSEMBLE] > scores["stack"]
        seconds = time.monotonic() - begun
        self.stages.append(Stage("convolutional level", scores["stack"], scores[ENSEMBLE], seconds, is_better))
        return Fitted(deep if is_better else before, self.stages)

    def _has_time(self) -> bool:
        """Whether the time limit allows a convolutional level. A limit that the user did not set is extended."""
        # The recorded duration of the stack is used, so that a resumed run makes the same decision.
        needed = seconds_for_networks(self.labelled, self.device, self.stages[0].seconds)
        if self.allowed is None or needed <= self.allowed:
            return True
        if self.is_given:
            minutes = math.ceil(1.1 * needed / 60)
            log.warning(
                "%s is too short for convolutional networks, so the run continues as effort good; effort best takes "
                "about %d minutes in all",
                duration(self.allowed),
                minutes,
            )
            self.plan.change(2, self.allowed)
            return False
        self.allowed = needed
        self.plan.change(3, needed)
        self.say(f"forests took longer than estimated; the whole run now takes about {duration(needed)}")
        return True

    def _begin(self, stage: int) -> float:
        """Begin a stage; returns its start time."""
        self.plan.begin(stage)
        return time.monotonic()

    def _stack(self) -> ForestStack:
        begun = self._begin(0)

        def scored(level: int, dice: float, held: GroupsOf) -> None:
            self.say(f"  level {level}: {dice:.3f}")

        def grown() -> ForestStack:
            stack = grow_stack(self.labelled, self.config, progress=self.report, scored=scored)
            return replace(stack, known=replace(stack.known, reserved=self.reserved))

        stack = self._model("stack", grown)
        assert isinstance(stack, ForestStack)
        dice = stack.held_out_dice[: stack.n_levels]
        first, last = (dice[0], dice[-1]) if dice else (None, None)
        seconds = self.files.seconds("stack", time.monotonic() - begun)
        self.stages.append(Stage("stack of forests", first, last, seconds))
        return stack

    def _refined(self, stack: ForestStack, effort: str) -> tuple[StackNet, RefinementChoice]:
        """The network of the stack, refined if that improves the held-out score."""
        from hedgerow.deep.refinement_search import choose_refinement
        from hedgerow.network.mapping import to_convnet
        from hedgerow.network.stacknet import StackNet
        from hedgerow.refinement.loop import refine_labelled

        begun = self._begin(1)
        # The time left is recorded, so that a resumed run makes the same decisions.
        left = self.files.seconds("left", 0.0 if self.until is None else max(self.until - begun, 0))
        until = None if self.until is None else begun + SEARCH_FRACTION[effort] * left
        first = replace(RefineConfig(), seed=self.config.seed, held_out=0.0)
        if effort == "best":
            first = replace(first, pixels=BEST_PIXELS if self.device != "cpu" else BEST_PIXELS_CPU)
        choice = self._choice(
            first,
            lambda: choose_refinement(
                self.labelled,
                self.config,
                first,
                until=until,
                seconds=REFINE_FRACTION[effort] * left,
                device=self.device,
                folder=self.files.folder,
                saved_stack=self._held_out_stack,
                say=self.say,
                report=self.report,
            ),
        )
        net = to_convnet(stack).to(self.device)
        helps = choice.refined > choice.stack
        if helps:
            refined = self._model(
                "refined",
                lambda: refine_labelled(
                    net,
                    self.labelled,
                    choice.config,
                    checkpoint=self.files.path("refining.checkpoint"),
                    progress=self.report,
                ),
            )
            assert isinstance(refined, StackNet)
            net = refined.to(self.device)
        self.stages.append(Stage("refinement", choice.stack, choice.refined, time.monotonic() - begun, helps))
        return net, choice

    def _held_out_stack(self, grow: Callable[[], ForestStack]) -> ForestStack:
        """The stack on which settings of the refinement are compared, saved like a stage."""
        stack = self._model("held-out-stack", grow)
        assert isinstance(stack, ForestStack)
        return stack

    def _model(self, name: str, make: Callable[[], AnyModel]) -> AnyModel:
        """The model of a stage, from the work folder or made now."""

        def save(model: AnyModel, path: Path) -> None:
            model_file.save(model.to("cpu"), path)

        return self.files.file(f"{name}.hedge", make, save, model_file.load)

    def _choice(self, first: RefineConfig, make: Callable[[], RefinementChoice]) -> RefinementChoice:
        """The settings of the refinement, from the work folder or chosen now, beginning with `first`."""
        from hedgerow.deep import refinement_search  # loads PyTorch

        def from_dict(values: dict[str, Any]) -> RefinementChoice:
            tried = [(name, dice) for name, dice in values["tried"]]
            config = first.from_dict(values["config"])
            return refinement_search.RefinementChoice(config, values["stack"], values["refined"], tried)

        return self.files.record(
            "choice", make, lambda choice: {**asdict(choice), "config": choice.config.to_dict()}, from_dict
        )
