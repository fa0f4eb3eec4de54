"""Settings of a refinement chosen by their held-out scores, instead of being left to the user.

How an image may be altered, how soft the splits become and how long to train decide much, and differ between data sets
(docs/measurements). They are tried one after the other, each on the best of those before. With a work folder, an
interrupted search resumes: finished trials are read back, and a trial resumes from its checkpoint.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hedgerow.config import AugmentConfig, RefineConfig, StackConfig
from hedgerow.deep.folds import SEARCH_FOLDS, Folds, folds_of
from hedgerow.files import fingerprint
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.images.labelled import LabelledSet
from hedgerow.images.metrics import Scores, confusion
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from hedgerow.overwrite_guard import remove_state
from hedgerow.predict.protocol import Model
from hedgerow.predict.tiling import predict_indices
from hedgerow.progress import Report
from hedgerow.refinement.loop import refine_labelled
from hedgerow.work_folder import WorkFolder

TURNED = AugmentConfig(rotation=180.0, flip=True, scale=0.1, shift=0.1, brightness=0.2, contrast=0.2)
"""For images that have no up: any rotation, and mirrored ones."""
SOFTNESSES = (0.3, 0.03)  # beside that of the settings
LONGER_FACTOR = 3  # times as many steps
TRIAL_PART = 1 / 3  # of the steps that alterations and softness are compared after


@dataclass(frozen=True)
class RefinementChoice:
    """What was chosen.

    config: the settings that did best
    stack, refined: mean Dice of the forests, and of the network refined with these settings, on the held-out part
    tried:  what was tried, in words, and its mean Dice
    """

    config: RefineConfig
    stack: float
    refined: float
    tried: list[tuple[str, float]] = field(default_factory=list)

    @property
    def is_turned(self) -> bool:
        """Whether images may be turned any way."""
        return self.config.augment == TURNED


StackFile = Callable[[Callable[[], ForestStack]], ForestStack]
"""Returns the stack that its argument grows, or the one that an interrupted run saved."""


@dataclass(frozen=True)
class Outcome:
    """Of a trial: mean Dice on the fold, what a step took and what all of it took, in seconds."""

    dice: float
    step_seconds: float
    seconds: float


class Trial:
    """Forests grown without a fold of the images, to refine again and again.

    resumed_from: the step that the last refinement began with
    """

    def __init__(
        self,
        labelled: LabelledSet,
        stack: StackConfig,
        device: str,
        report: Report,
        folder: Path | None = None,
        saved_stack: StackFile = lambda grow: grow(),
    ) -> None:
        """folder, saved_stack: as of `choose_refinement`"""
        self.folds = folds_of(labelled, SEARCH_FOLDS, stack.seed)
        self.training, self.device, self.report = self.folds.training(0), device, report
        self.work, self._measured = WorkFolder(folder), set[str]()
        self.stack = saved_stack(lambda: grow_stack(self.training, replace(stack, reserve=0.0), progress=report))
        self.stack_dice = held_dice(self.stack, self.folds)
        self.resumed_from = 0

    def outcome(self, config: RefineConfig) -> tuple[Outcome, bool]:
        """Of a refinement with these settings, and whether an interrupted search measured it."""
        name = _name(config)

        def measured() -> np.ndarray:
            self._measured.add(name)
            begun = time.monotonic()
            dice = self.dice(config)
            seconds = time.monotonic() - begun
            return np.array([dice, seconds / max(config.n_steps - self.resumed_from, 1), seconds])

        outcome = Outcome(*self.work.array(name, name, measured).tolist())
        if (state := self.work.state(name)) is not None:  # the outcome is safe
            remove_state(state)
        return outcome, name not in self._measured

    def dice(self, config: RefineConfig) -> float:
        """Mean Dice, on the fold, of a network refined with these settings."""
        net, begun = to_convnet(self.stack).to(self.device), list[int]()

        def report(message: str, done: int, total: int) -> None:
            begun.append(done)
            self.report(message, done, total)

        refined = refine_labelled(
            net, self.training, config, checkpoint=self.work.state(_name(config)), keep_checkpoint=True, progress=report
        )
        self.resumed_from = begun[0]
        return held_dice(refined, self.folds)


def _name(config: RefineConfig) -> str:
    """Of the files of a trial: other settings have another name."""
    return f"trial-{fingerprint(config.to_dict())[:16]}"


def choose_refinement(
    labelled: LabelledSet,
    stack: StackConfig,
    config: RefineConfig,
    *,
    until: float | None = None,
    seconds: float = 0.0,
    device: str = "cpu",
    folder: Path | None = None,
    saved_stack: StackFile = lambda grow: grow(),
    say: Callable[[str], None] = lambda text: None,
    report: Report,
) -> RefinementChoice:
    """Try settings that differ from `config`.

    until:   as `time.monotonic` counts: ends it after the first two; None: there is time for everything
    seconds: what refinement with the chosen settings may take: as many steps are done as fit, but no fewer than those
             that softness is chosen with
    folder:  for finished trials, and the checkpoint of the one in progress
    saved_stack: reads back the forests of an interrupted search
    """
    trial = Trial(labelled, stack, device, report, folder, saved_stack)
    tried: list[tuple[str, float]] = []
    of_a_step = 0.0

    def attempt(name: str, candidate: RefineConfig, best: tuple[float, RefineConfig]) -> tuple[float, RefineConfig]:
        nonlocal of_a_step, until
        if until is not None and time.monotonic() > until and len(tried) > 1:
            return best
        outcome, is_saved = trial.outcome(candidate)
        of_a_step = outcome.step_seconds
        if until is not None and is_saved:  # this time was spent before the interruption
            until -= outcome.seconds
        tried.append((name, outcome.dice))
        say(f"  {name}: {outcome.dice:.3f}")
        return (outcome.dice, candidate) if outcome.dice > best[0] else best

    say(f"choosing how to refine, by mean Dice on held-out {_held(trial.folds)}; forests {trial.stack_dice:.3f}")
    steps = config.n_steps
    best = (-1.0, config)
    for name, augment in (("small changes", config.augment), ("any rotation, mirrored", TURNED)):
        best = attempt(name, replace(config, augment=augment, n_steps=max(round(TRIAL_PART * steps), 1)), best)
    for relax in SOFTNESSES:
        best = attempt(f"softness {relax:g}", replace(best[1], relax=relax), best)
    n_tried = len(tried)
    fitting = steps if until is None else int(seconds / max(of_a_step, 1e-9))
    if fitting >= steps:
        best = attempt(f"{steps} steps", replace(best[1], n_steps=steps), best)
    if len(tried) == n_tried:
        # There is no time for that. All steps were better than a third of them on somites and vnc_sstem
        # (docs/results.md).
        best = (best[0], replace(best[1], n_steps=max(min(fitting, steps), best[1].n_steps)))
    elif fitting >= LONGER_FACTOR * steps and best[1].n_steps == steps:
        best = attempt(f"{LONGER_FACTOR * steps} steps", replace(best[1], n_steps=LONGER_FACTOR * steps), best)
    return RefinementChoice(best[1], trial.stack_dice, best[0], tried)


def _held(folds: Folds) -> str:
    n = len(folds.held(0))
    whole = len(folds.training(0)) < len(folds.labelled)
    return f"images ({n})" if whole else "parts of the images"


def held_dice(model: Model | StackNet, folds: Folds) -> float:
    """Mean Dice on the first fold, which the model did not learn from."""
    table = np.zeros((model.n_classes,) * 2, np.int64)
    for i in folds.held(0):
        predicted = predict_indices(model, folds.labelled.images[i].planes)
        table += confusion(folds.target(i, 0), predicted, model.n_classes)
    return float(Scores(model.classes, table).mean_dice)
