"""One knob: how much effort a model is worth. Fast is a stack of forests; good refines it; best adds a convolutional
level and its members.

Each stage is kept only if it helps on images that it did not see. What a run has done lies in a folder until its end,
so one that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hedgerow import extras
from hedgerow.config import RefineConfig, StackConfig
from hedgerow.errors import ConfigError
from hedgerow.features.registry import layout_of
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.choosing import settings_for
from hedgerow.forest.groups import GroupsOf
from hedgerow.forest.samples import reserve
from hedgerow.images.labelled import Images, LabelledImage, LabelledSet, labelled_set
from hedgerow.images.legend import Legend
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
from hedgerow.jobs.stage_files import StageFiles
from hedgerow.predict.devices import check_device
from hedgerow.predict.evaluate import score
from hedgerow.progress import Report, Say, duration, quiet, reporting

if TYPE_CHECKING:
    from hedgerow.deep.adapting import Choice
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.stacknet import StackNet

log = logging.getLogger("hedgerow")
Effort = Literal["fast", "good", "best"]
BEST_PIXELS, BEST_PIXELS_CPU = 2**14, 2**12
"""Per step of a refinement that a convolutional level follows: the network is then made again for every fold. On a CPU,
half the usual pixels leave more time for networks (docs/deep.md); what fewer cost on a GPU was not measured."""
CHOOSING = {"good": 0.25, "best": 0.15}  # part of the minutes that may go into choosing how to refine
REFINING = {"good": 0.5, "best": 0.1}  # and into a refinement; `best` makes it again for each fold


@dataclass(frozen=True)
class Stage:
    """What a stage brought.

    before, after: mean Dice of the model without and with it, on images, or parts of them, that neither saw; None:
                   nothing was held out
    kept:          whether the model has it
    """

    name: str
    before: float | None
    after: float | None
    seconds: float
    kept: bool = True

    def __str__(self) -> str:
        taken = duration(self.seconds)
        if self.before is None or self.after is None:
            return f"{self.name}: nothing was held out to score it ({taken})"
        helps = "" if self.kept else "; it does not help, so the model is that of before"
        return f"{self.name}: held-out mean Dice {self.before:.3f} -> {self.after:.3f} ({taken}){helps}"


@dataclass
class Fitted:
    """The model, and what each stage brought."""

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
    """A model from images (H,W[,C]) and labels (H,W), by how much effort it is worth; `fit_stack`, `refine` and
    `deepen` are its stages.

    config:  of the stack; None: chosen by how much is painted
    minutes: for all of it, about; too few for "best" make a model of effort "good", and a warning. None: as long as it
             takes, see `allowed_seconds` for "best" on a CPU
    say:     is told what each stage is expected to take, what was chosen, and what it brought

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
    """`fit` on labelled images. folder: keeps what was done; the caller removes it once the model is safe"""
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
        files = StageFiles(folder, effort, minutes, device, config, labelled)
        plan = WholePlan(stage_seconds(labelled, effort, minutes, device), report)
        marks = tuple(image.mark for image in reserved)
        run = _Run(labelled, config, marks, device, begun, allowed, minutes is not None, files, say, plan)
        fitted = run.fast() if effort == "fast" else run.good() if effort == "good" else run.best()
    say("\n".join(map(str, fitted.stages)))
    if reserved:
        dice = score(fitted.model, replace(labelled, images=reserved), progress).mean_dice
        say(f"mean Dice {dice:.3f} on {len(reserved)} reserved image(s)")
    say(f"in all {duration(time.monotonic() - begun)}")
    return fitted


def check_effort(effort: str, minutes: float | None) -> None:
    """Raise a ConfigError unless there is such an effort, and such a time."""
    if effort not in EFFORTS:
        raise ConfigError(f"the effort is {effort!r}; choose one of {', '.join(EFFORTS)}.")
    if minutes is not None and not 0 < minutes <= 10**6:
        raise ConfigError(f"the time is {minutes:g} minutes; give a positive number.")


@dataclass
class _Run:
    """A fit in progress.

    begun:    when, as `time.monotonic` counts
    allowed:  seconds for all of it; None: as many as it takes; is_given: by the user
    """

    labelled: LabelledSet
    config: StackConfig
    reserved: tuple[str, ...]
    device: str
    begun: float
    allowed: float | None
    is_given: bool
    files: StageFiles
    say: Say
    plan: WholePlan
    stages: list[Stage] = field(default_factory=list)

    @property
    def until(self) -> float | None:
        """When it should be done."""
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
        from hedgerow.deep.fitting import deepen_labelled, said_before, tasks_of
        from hedgerow.deep.members import TOGETHER

        stack = self._stack()
        if not self._has_time():
            return self._good(stack)
        net, choice = self._refined(stack, "best")
        before = net if self.stages[-1].kept else stack
        begun, folder = self._begin(2), self.files.folder
        plan = deep_plan(net, self.labelled, choice.is_turned, self.device, self.config.seed)
        said = said_before(net, self.labelled, plan, folder=folder, progress=self.report)
        settings = self.files.settings(
            "deep",
            lambda: deep_settings(plan, net, self.labelled, self.device, self.until, self.say, self.report),
        )
        self.say(
            f"convolutional networks: {len(tasks_of(settings, self.labelled))} of {settings.conv.base} channels, "
            f"{settings.conv.n_steps} steps of {settings.conv.batch} crops of {settings.conv.crop} pixels"
        )
        deep = deepen_labelled(
            net, self.labelled, settings, before=said, device=self.device, folder=folder, progress=self.report
        )
        scores = deep.record.scores
        for name in (name for name in scores if name != TOGETHER):
            self.say(f"  {name}: {scores[name]:.3f}, weight {deep.weights.get(name, 0.0):g}")
        is_better = bool(deep.nets) and scores[TOGETHER] > scores["stack"]
        seconds = time.monotonic() - begun
        self.stages.append(Stage("convolutional level", scores["stack"], scores[TOGETHER], seconds, is_better))
        return Fitted(deep if is_better else before, self.stages)

    def _has_time(self) -> bool:
        """Whether the time is long enough for a convolutional level. If none was given it is made long enough."""
        # How long the stack took is kept, so a run that goes on decides as it did before.
        needed = seconds_for_networks(self.labelled, self.device, self.stages[0].seconds)
        if self.allowed is None or needed <= self.allowed:
            return True
        if self.is_given:
            minutes = math.ceil(1.1 * needed / 60)
            log.warning(
                "%s is too short for convolutional networks, so this becomes effort good; with them it takes about %d "
                "minutes in all",
                duration(self.allowed),
                minutes,
            )
            self.plan.change(2, self.allowed)
            return False
        self.allowed = needed
        self.plan.change(3, needed)
        self.say(f"forests took longer than expected, so all takes about {duration(needed)}")
        return True

    def _begin(self, stage: int) -> float:
        """When it begins."""
        self.plan.begin(stage)
        return time.monotonic()

    def _stack(self) -> ForestStack:
        begun = self._begin(0)

        def scored(level: int, dice: float, held: GroupsOf) -> None:
            self.say(f"  level {level}: {dice:.3f}")

        def grown() -> ForestStack:
            stack = grow_stack(self.labelled, self.config, progress=self.report, scored=scored)
            return replace(stack, known=replace(stack.known, reserved=self.reserved))

        stack = self.files.model("stack", grown)
        assert isinstance(stack, ForestStack)
        dice = stack.held_out_dice[: stack.n_levels]
        first, last = (dice[0], dice[-1]) if dice else (None, None)
        seconds = self.files.seconds("stack", time.monotonic() - begun)
        self.stages.append(Stage("stack of forests", first, last, seconds))
        return stack

    def _refined(self, stack: ForestStack, effort: str) -> tuple[StackNet, Choice]:
        """The network of the stack, refined if that helps."""
        from hedgerow.deep.adapting import choose_refinement
        from hedgerow.network.mapping import to_convnet
        from hedgerow.network.stacknet import StackNet
        from hedgerow.refinement.loop import refine_labelled

        begun = self._begin(1)
        # The time that was left the first time: a run that is resumed decides as it did before.
        left = self.files.seconds("left", 0.0 if self.until is None else max(self.until - begun, 0))
        until = None if self.until is None else begun + CHOOSING[effort] * left
        first = replace(RefineConfig(), seed=self.config.seed, held_out=0.0)
        if effort == "best":
            first = replace(first, pixels=BEST_PIXELS if self.device != "cpu" else BEST_PIXELS_CPU)
        choice = self.files.choice(
            lambda: choose_refinement(
                self.labelled,
                self.config,
                first,
                until=until,
                seconds=REFINING[effort] * left,
                device=self.device,
                folder=self.files.folder,
                saved_stack=self._held_out_stack,
                say=self.say,
                report=self.report,
            )
        )
        net = to_convnet(stack).to(self.device)
        helps = choice.refined > choice.stack
        if helps:
            refined = self.files.model(
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
        """The forests that refinements are tried on, saved like those of a stage."""
        stack = self.files.model("held-out-stack", grow)
        assert isinstance(stack, ForestStack)
        return stack
