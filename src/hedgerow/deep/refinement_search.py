"""A search for the settings of a refinement with the best held-out score.

How images are altered, how soft the splits are and how long to train matter much, and the best choice depends on the
data (docs/measurements). The settings are tried one after the other, each with the best of the previous ones. With a
work folder, an interrupted search resumes: finished trials are read back, and a trial resumes from its checkpoint.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from hedgerow.config import AugmentConfig, RefineConfig
from hedgerow.deep.folds import Folds
from hedgerow.files import fingerprint
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.metrics import Scores, confusion
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from hedgerow.overwrite_guard import remove_state
from hedgerow.plan_progress import WholePlan
from hedgerow.predict.protocol import Model
from hedgerow.predict.tiling import predict_indices
from hedgerow.refinement.loop import refine_labelled
from hedgerow.work_folder import WorkFolder

TURNED = AugmentConfig(rotation=180.0, flip=True, scale=0.1, shift=0.1, brightness=0.2, contrast=0.2)
"""For images without an upright orientation: any rotation, and mirrored images."""
SOFTNESSES = (0.3, 0.03)  # tried besides that of the settings
LONGER_FACTOR = 3  # the longest refinement has this many times the steps of the settings
NO_TIME = "no time left"
PERFECT = 0.9995  # mean Dice that is printed as 1.000
TRIAL_PART = 1 / 3  # fraction of the steps after which alterations and softness are compared


@dataclass(frozen=True)
class RefinementChoice:
    """The result of a search.

    config: the best settings
    stack, refined: held-out mean Dice of the forests, and of the network refined with these settings
    tried:  each trial in words, and its mean Dice
    held:   what was held out, in words
    """

    config: RefineConfig
    stack: float
    refined: float
    tried: list[tuple[str, float]] = field(default_factory=list)
    held: str = ""

    @property
    def in_words(self) -> str:
        """The settings that were chosen."""
        turned = "images rotated by any angle and mirrored" if self.is_turned else "images altered a little"
        return f"{turned}, softness {self.config.relax:g}, {self.config.n_steps} steps"

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


class OutOfTimeError(Exception):
    """A trial was stopped because its time is up; its checkpoint stays."""


class Trial:
    """Refines the same forests, which were grown without the first fold, again and again, and scores on that fold.

    key:          fingerprint of the images and of the settings of the forests
    plan:         the progress: its first stage is the growth of the forests, its last the refinement with the chosen
                  settings, and those between are the trials, see `search_seconds`
    work:         stores finished trials, and the checkpoint of the one in progress
    clock:        returns the time in seconds
    latest:       when a trial is stopped, by the clock
    resumed_from: the step that the last refinement began with
    """

    def __init__(
        self,
        folds: Folds,
        stack: ForestStack,
        device: str,
        plan: WholePlan,
        key: str = "",
        work: WorkFolder | None = None,
        clock: Callable[[], float] = time.monotonic,
        latest: float = math.inf,
    ) -> None:
        self.latest = latest
        self.folds, self.stack, self.device, self.plan, self.clock = folds, stack, device, plan, clock
        self.training, self.stack_dice = folds.training(0), held_dice(stack, folds)
        self.key, self.work, self._measured = key, work or WorkFolder(None), set[str]()
        self.resumed_from = 0

    def outcome(self, config: RefineConfig) -> tuple[Outcome, bool]:
        """The outcome of a refinement with these settings, and whether an interrupted search measured it."""
        key = self._key(config)

        def measured() -> np.ndarray:
            self._measured.add(key)
            begun = self.clock()
            dice = self.dice(config)
            seconds = self.clock() - begun
            return np.array([dice, seconds / max(config.n_steps - self.resumed_from, 1), seconds])

        outcome = Outcome(*self.work.array("trial", key, measured).tolist())
        if (state := self.work.state("trial", key)) is not None:  # no longer needed, since the outcome is stored
            remove_state(state)
        return outcome, key not in self._measured

    def dice(self, config: RefineConfig) -> float:
        """Mean Dice, on the fold, of a network refined with these settings."""
        net, begun = to_convnet(self.stack).to(self.device), list[int]()

        def report(message: str, done: int, total: int) -> None:
            begun.append(done)
            self.plan.report(message, done, total)
            if done < total and self.clock() > self.latest:
                raise OutOfTimeError

        checkpoint = self.work.state("trial", self._key(config))
        refined = refine_labelled(
            net, self.training, config, checkpoint=checkpoint, keep_checkpoint=True, progress=report
        )
        self.resumed_from = begun[0]
        return held_dice(refined, self.folds)

    def _key(self, config: RefineConfig) -> str:
        return fingerprint(self.key, config.to_dict())


def search_seconds(config: RefineConfig, step_seconds: float) -> list[float]:
    """Estimated seconds of the trials of `choose_refinement`, in their order."""
    short = max(round(TRIAL_PART * config.n_steps), 1) * step_seconds
    return [*[short] * (2 + len(SOFTNESSES)), config.n_steps * step_seconds]


def choose_refinement(
    trial: Trial,
    config: RefineConfig,
    *,
    until: float | None = None,
    seconds: float = 0.0,
    say: Callable[[str], None] = lambda text: None,
) -> RefinementChoice:
    """Try settings that differ from `config`.

    until:   deadline by the clock of the trial: after the second trial, none begins that would not end in time; None:
             there is none
    seconds: time for refinement with the chosen settings: it gets as many steps as fit, but no fewer than the trials
             of softness
    """
    if trial.stack_dice >= PERFECT:
        say(f"no refinement: the forests have a mean Dice of 1.000 on held-out {_held(trial.folds)}")
        return RefinementChoice(config, trial.stack_dice, trial.stack_dice, [], f"held-out {_held(trial.folds)}")
    tried: list[tuple[str, float]] = []
    of_a_step, is_over = 0.0, False
    n_trials = len(search_seconds(config, 1.0))

    def attempt(name: str, candidate: RefineConfig, best: tuple[float, RefineConfig]) -> tuple[float, RefineConfig]:
        nonlocal of_a_step, until, is_over
        if is_over:
            return best
        if until is not None and len(tried) > 1 and trial.clock() + candidate.n_steps * of_a_step > until:
            return best
        trial.plan.begin(1 + min(len(tried), n_trials - 1))
        try:
            outcome, is_saved = trial.outcome(candidate)
        except OutOfTimeError:
            is_over = True
            return best
        of_a_step = outcome.step_seconds
        expected = [*search_seconds(config, of_a_step), config.n_steps * of_a_step]
        for later in range(len(tried) + 1, len(expected)):
            trial.plan.expect(1 + later, expected[later])
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
    if not tried:
        say("  no refinement: there was no time for it")
        return RefinementChoice(config, trial.stack_dice, trial.stack_dice, [], NO_TIME)
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
    return RefinementChoice(best[1], trial.stack_dice, best[0], tried, f"held-out {_held(trial.folds)}")


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
