"""A search for the settings of a refinement with the best held-out score.

How images are altered, how soft the splits are and how long to train matter much, and the best choice depends on the
data (docs/measurements). The settings are tried one after the other, each with the best of the previous ones. With a
work folder, an interrupted search resumes: finished trials are read back, and a trial resumes from its checkpoint.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hedgerow.config import AugmentConfig, RefineConfig
from hedgerow.deep.folds import Folds
from hedgerow.files import fingerprint
from hedgerow.forest.arrays import ForestStack
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
"""For images without an upright orientation: any rotation, and mirrored images."""
SOFTNESSES = (0.3, 0.03)  # tried besides that of the settings
LONGER_FACTOR = 3  # the longest refinement has this many times the steps of the settings
TRIAL_PART = 1 / 3  # fraction of the steps after which alterations and softness are compared


@dataclass(frozen=True)
class RefinementChoice:
    """The result of a search.

    config: the best settings
    stack, refined: held-out mean Dice of the forests, and of the network refined with these settings
    tried:  each trial in words, and its mean Dice
    """

    config: RefineConfig
    stack: float
    refined: float
    tried: list[tuple[str, float]] = field(default_factory=list)

    @property
    def is_turned(self) -> bool:
        """Whether images may be rotated by any angle."""
        return self.config.augment == TURNED


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial: mean Dice on the fold, seconds per step, and seconds in all."""

    dice: float
    step_seconds: float
    seconds: float


class Trial:
    """Refines the same forests, which were grown without the first fold, again and again, and scores on that fold.

    folder:       for finished trials, and the checkpoint of the one in progress; None: nothing is stored
    clock:        returns the time in seconds
    resumed_from: the step that the last refinement began with
    """

    def __init__(
        self,
        folds: Folds,
        stack: ForestStack,
        device: str,
        report: Report,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folds, self.stack, self.device, self.report, self.clock = folds, stack, device, report, clock
        self.training, self.stack_dice = folds.training(0), held_dice(stack, folds)
        self.work, self._measured = WorkFolder(folder), set[str]()
        self.resumed_from = 0

    def outcome(self, config: RefineConfig) -> tuple[Outcome, bool]:
        """The outcome of a refinement with these settings, and whether an interrupted search measured it."""
        name = _name(config)

        def measured() -> np.ndarray:
            self._measured.add(name)
            begun = self.clock()
            dice = self.dice(config)
            seconds = self.clock() - begun
            return np.array([dice, seconds / max(config.n_steps - self.resumed_from, 1), seconds])

        outcome = Outcome(*self.work.array(name, name, measured).tolist())
        if (state := self.work.state(name)) is not None:  # no longer needed, since the outcome is stored
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
    """The name of the files of a trial, which depends on its settings."""
    return f"trial-{fingerprint(config.to_dict())[:16]}"


def choose_refinement(
    trial: Trial,
    config: RefineConfig,
    *,
    until: float | None = None,
    seconds: float = 0.0,
    say: Callable[[str], None] = lambda text: None,
) -> RefinementChoice:
    """Try settings that differ from `config`.

    until:   deadline by the clock of the trial, which ends the search after the second trial; None: there is none
    seconds: time for refinement with the chosen settings: it gets as many steps as fit, but no fewer than the trials
             of softness
    """
    tried: list[tuple[str, float]] = []
    of_a_step = 0.0

    def attempt(name: str, candidate: RefineConfig, best: tuple[float, RefineConfig]) -> tuple[float, RefineConfig]:
        nonlocal of_a_step, until
        if until is not None and trial.clock() > until and len(tried) > 1:
            return best
        outcome, is_saved = trial.outcome(candidate)
        of_a_step = outcome.step_seconds
        if until is not None and is_saved:  # this time was spent before the interruption
            until -= outcome.seconds
        tried.append((name, outcome.dice))
        say(f"  {name}: {outcome.dice:.3f}")
        return (outcome.dice, candidate) if outcome.dice > best[0] else best

    say(
        f"choosing settings of the refinement by mean Dice on held-out {_held(trial.folds)}; "
        f"forests {trial.stack_dice:.3f}"
    )
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
        # There is no time to try more steps. On somites and vnc_sstem, all steps were better than a third of them
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
    """Mean Dice on the first fold, which the model was not trained on."""
    table = np.zeros((model.n_classes,) * 2, np.int64)
    for i in folds.held(0):
        predicted = predict_indices(model, folds.labelled.images[i].planes)
        table += confusion(folds.target(i, 0), predicted, model.n_classes)
    return float(Scores(model.classes, table).mean_dice)
