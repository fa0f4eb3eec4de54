"""The settings of a stack that suit its images: rules first, then a few candidates on held-out subjects.

The plain defaults were chosen on two sets of images. On others, a smaller window, balanced classes or images scaled by
their own intensities are worth more than a level. Rules decide what sizes tell. If several subjects are labelled, small
stacks that are grown without some of them score candidates by successive halving: one level of few trees for each
candidate, then two levels for those that gained, alone and together. A second level is needed because some changes,
such as balanced classes, raise the first level's score and ruin the next one's. The rules stay unless a candidate is
clearly better. With one subject nothing honest can be held out, so rules decide alone, and take the smaller window.

Estimated costs decide how much is tried, not a clock: the choice is the same on any machine, for any number of threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from hedgerow.config import AugmentConfig, StackConfig
from hedgerow.errors import ConfigError, shown
from hedgerow.features.registry import layout_of
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.default_settings import (
    STROKE_TREES,
    TILTED,
    VOLUME_STEP,
    labelled_fraction,
    settings_for,
    stroke_settings,
    volume_copies,
)
from hedgerow.forest.growth_time import growing_costs
from hedgerow.forest.judges import FULLY_LABELLED, Judge, held_out_judges
from hedgerow.forest.samples import FEW_SUBJECTS
from hedgerow.images.given import training_set
from hedgerow.images.given_arrays import VoxelSides
from hedgerow.images.instances import OBJECT_CLASSES
from hedgerow.images.labelled import Images, LabelledSet
from hedgerow.images.legend import Legend
from hedgerow.images.subjects import Groups, grouped
from hedgerow.plan_progress import PERMILLE
from hedgerow.progress import Report, Say, quiet, reporting, silent

log = logging.getLogger("hedgerow")
Tune: TypeAlias = Literal["auto", "off"]
"""auto: settings chosen for the images; off: the plain defaults."""

SMALL_WINDOW = 33
TINY_SIDE = 96  # pixels: in smaller images a window of half a side is wide enough
MOST_LOCAL_CLASSES = 12  # more are usually parts of a body that look alike: their place tells them apart
MARGIN = 0.01  # mean Dice by which a candidate must be better than what the rules say
SEARCH_SHARE = 0.5  # of the time that growing with the plain settings takes, for all judges together
MOST_TIMES = 1.9  # the time of the choice and of growing, of the time that the plain settings take
START_SECONDS = 2.0  # of that time: reading images, loading compiled code
SLIGHTLY_ALTERED = AugmentConfig(rotation=15.0, scale=0.1, shift=0.1, brightness=0.2, contrast=0.2)

Change: TypeAlias = Callable[[StackConfig], StackConfig]


@dataclass(frozen=True)
class Option:
    """A change of settings that may help, in words; name: the setting of `StackConfig` that it is for."""

    name: str
    words: str
    change: Change


def check_tune(tune: Any) -> Tune:
    """`tune` as a caller gave it."""
    if tune not in ("auto", "off"):
        raise ConfigError(f"tune (--tune) is {shown(tune)}; it must be auto or off.")
    return "off" if tune == "off" else "auto"


@dataclass(frozen=True)
class SettingsChoice:
    """The settings that rules suggest, and the options that judges compare with them.

    reasons: why the rules suggest them
    notes:   what is printed of the plain settings
    seconds: estimated seconds that the judges may take on the reference machine
    """

    labelled: LabelledSet
    plain: StackConfig
    ruled: StackConfig
    reasons: str = ""
    notes: Sequence[str] = ()
    options: Sequence[Option] = ()
    judges: Sequence[Judge] = ()
    seconds: float = 0.0

    @property
    def cost(self) -> float:
        """Estimated seconds of the choice on the reference machine."""
        return min(self.seconds, _cost(self.judges, self.ruled, len(self.options))) if self.judges else 0.0

    def settings(self, say: Say = quiet, progress: Report | None = silent) -> StackConfig:
        """The settings of the rules, with the options that held-out subjects or strokes prefer; prints what was chosen
        and why."""
        chosen, why = self._judged(say, progress)
        for line in self.notes:
            if chosen.features == self.plain.features or not line.startswith("features"):
                say(line)
        reasons = "; ".join(filter(None, (self.reasons, why)))
        if reasons:
            say(f"settings: {reasons}; --tune off keeps the plain ones")
        return chosen

    def _judged(self, say: Say, progress: Report | None) -> tuple[StackConfig, str]:
        """The settings, and which options were preferred to those of the rules."""
        if not self.judges:
            return self.ruled, ""
        say("choosing settings by small stacks on held-out " + _held(self.labelled))
        with reporting(progress) as report:
            chosen, names, before, after = Search(self.judges, self.seconds, report).best(self.ruled, self.options)
        if not names:
            return self.ruled, ""
        scores = f"{after:.3f} instead of {before:.3f}"
        return chosen, f"{' and '.join(names)}: {scores} on held-out {_held(self.labelled)}"


def settings_choice(
    labelled: LabelledSet, tune: Tune = "auto", changes: Mapping[str, Any] | None = None
) -> SettingsChoice:
    """How the settings for these images are chosen.

    changes: settings by name that a caller wants, which are not chosen
    """
    changes, notes = changes or {}, list[str]()
    plain = replace(
        settings_for(labelled_fraction(labelled), notes.append, keep_features="features" in changes), **changes
    )
    if tune == "off":
        return SettingsChoice(labelled, plain, plain, notes=notes)
    ruled, reasons = _by_rules(labelled, plain, changes)
    usual, most = _seconds(labelled, plain)
    seconds = min(SEARCH_SHARE * usual, most - growing_costs(labelled, ruled).total)
    options = _options(labelled, ruled, changes)
    options = [option for option in options if growing_costs(labelled, option.change(ruled)).total <= most - seconds]
    judges = held_out_judges(labelled, plain) if options else []
    while len(judges) > 1 and _cost(judges, ruled, len(options)) > seconds:
        judges.pop()
    return SettingsChoice(labelled, plain, ruled, reasons, notes, options, judges, seconds)


def suited_settings(
    labelled: LabelledSet,
    tune: Tune = "auto",
    say: Say = quiet,
    changes: Mapping[str, Any] | None = None,
    progress: Report | None = silent,
) -> StackConfig:
    """The settings for these images, and the changes that a caller wants; prints what was chosen and why.

    progress: of the choice, as of `grow_stack`
    """
    return settings_choice(labelled, tune, changes).settings(say, progress)


def _windowed(window: int) -> Change:
    return lambda config: replace(config, context=replace(config.context, window=window))


def _by_rules(labelled: LabelledSet, plain: StackConfig, changes: Mapping[str, Any]) -> tuple[StackConfig, str]:
    """What sizes decide, and why."""
    shorter, is_single = int(np.median([min(image.size[-2:]) for image in labelled])), len(labelled.subjects) == 1
    if tuple(labelled.legend.name(value) for value in labelled.classes[:2]) == OBJECT_CLASSES[:2]:
        return _for_objects(labelled, plain, changes)
    is_tiny, ruled, why, window = shorter < TINY_SIDE, plain, list[str](), plain.context.window
    if is_tiny:
        window = min(window, shorter // 4 * 2 + 1)
    elif is_single and labelled.n_classes <= MOST_LOCAL_CLASSES:
        window = min(window, SMALL_WINDOW)
    if window < plain.context.window and "context" not in changes:
        ruled = _windowed(window)(ruled)
        what = "volume" if labelled.is_volume else "image"
        reason = f"{what}s have sides of {shorter} pixels" if is_tiny else f"there is one {what} or group"
        why.append(f"offsets within {window} pixels, since {reason}")
    if ((is_tiny and is_single) or labelled.is_volume) and "encoder" in plain.features and "features" not in changes:
        ruled = replace(ruled, features="bank")
        why.append(
            "the filter bank alone, since "
            + ("the pretrained network does not look into other slices" if labelled.is_volume
               else "one small group is too little for the pretrained network")
        )  # fmt: skip
    if labelled.is_volume and plain.n_levels > 1:
        if "sampling" not in changes:
            ruled = replace(ruled, sampling=replace(ruled.sampling, step=VOLUME_STEP))
        n_copies = volume_copies(labelled) if is_tiny and "augment" not in changes else 0
        if n_copies > 0:
            ruled = replace(ruled, augment=replace(TILTED, copies=n_copies))
            why.append(f"{_in_copies(n_copies)} of each volume, since they are small")
        if len(labelled.subjects) < FEW_SUBJECTS and "drop_levels" not in changes:
            ruled = replace(ruled, drop_levels=False)
            why.append("all levels stay, since parts of few volumes do not tell which of them help")
        return ruled, "; ".join(why)
    if is_tiny and plain.n_levels > 1 and not {"augment", "features"} & changes.keys():
        usual, most = _seconds(labelled, plain)
        searching = most if is_single else most - SEARCH_SHARE * usual  # with one subject there is no search
        for n_copies, room in ((2, searching), (1, searching), (1, most)):
            altered = replace(ruled, augment=replace(SLIGHTLY_ALTERED, copies=n_copies))
            if growing_costs(labelled, altered).total <= room:
                return altered, "; ".join([*why, f"{_in_copies(n_copies)} of each image, since they are small"])
    return ruled, "; ".join(why)


def _in_copies(n_copies: int) -> str:
    return "1 slightly altered copy" if n_copies == 1 else f"{n_copies} slightly altered copies"


def _for_objects(labelled: LabelledSet, plain: StackConfig, changes: Mapping[str, Any]) -> tuple[StackConfig, str]:
    """What suits numbered objects, which look alike at every place and in images of any brightness, and why."""
    ruled, why = plain, list[str]()
    if "normalise" not in changes:
        ruled = replace(ruled, normalise=True)
        why.append("images scaled by their own intensities, since objects are learned")
    if plain.context.window > SMALL_WINDOW and "context" not in changes:
        ruled = _windowed(SMALL_WINDOW)(ruled)
        why.append(f"offsets within {SMALL_WINDOW} pixels, since objects are alike at every place")
    if len(labelled.subjects) == 1 and "encoder" in plain.features and "features" not in changes:
        ruled = replace(ruled, features="bank")
        why.append("the filter bank alone, since there is one image or group")
    return ruled, "; ".join(why)


def _seconds(labelled: LabelledSet, plain: StackConfig) -> tuple[float, float]:
    """Estimated seconds of training with the plain settings, and how long growing may take with others."""
    usual = START_SECONDS + growing_costs(labelled, plain).total
    return usual, MOST_TIMES * usual - START_SECONDS


def _options(labelled: LabelledSet, ruled: StackConfig, changes: Mapping[str, Any]) -> list[Option]:
    """What may be better than the rules, the most promising first."""
    part, window = labelled_fraction(labelled), ruled.context.window
    options = list[Option]()
    if part < FULLY_LABELLED and not changes.keys() & {"n_levels", "n_trees", "context", "sampling"}:
        if ruled.n_levels == 1:
            options.append(Option("context", "the settings for full labels", _for_full_labels))
            options.append(Option("context", f"offsets within {SMALL_WINDOW} pixels", _windowed(SMALL_WINDOW)))
        else:
            options.append(
                Option("n_levels", "the settings for strokes", partial(stroke_settings, n_trees=STROKE_TREES))
            )
    elif window > SMALL_WINDOW:
        options.append(Option("context", f"offsets within {SMALL_WINDOW} pixels", _windowed(SMALL_WINDOW)))
    if not labelled.is_volume:  # small stacks preferred balanced classes of volumes, which made whole ones worse
        options += _usual_options(ruled)
    return [option for option in options if option.name not in changes]


def _usual_options(ruled: StackConfig) -> list[Option]:
    """What may be better for images of any size."""
    options = [Option("balance", "balanced classes", lambda config: replace(config, balance=True))]
    if "encoder" in ruled.features and "bank" in ruled.features:
        options.append(Option("features", "the filter bank alone", lambda config: replace(config, features="bank")))
    if "bank" in ruled.features and not ruled.normalise:
        words = "images scaled by their own intensities"
        options.append(Option("normalise", words, lambda config: replace(config, normalise=True)))
    return options


def _for_full_labels(config: StackConfig) -> StackConfig:
    """The settings that are not those for strokes."""
    usual = StackConfig()
    return replace(
        config, n_levels=usual.n_levels, n_trees=usual.n_trees, min_split=usual.min_split, opponent=usual.opponent,
        context=usual.context, sampling=usual.sampling, encoder=replace(config.encoder, layers=usual.encoder.layers),
    )  # fmt: skip


def _cost(judges: Sequence[Judge], ruled: StackConfig, n_options: int) -> float:
    """Estimated seconds of a whole search."""
    return sum((1 + n_options) * judge.cost(ruled, 1) + (1 + n_options // 2) * judge.cost(ruled, 2) for judge in judges)


def _held(labelled: LabelledSet) -> str:
    return "strokes" if len(labelled.subjects) == 1 else "images"


class Search:
    """Scores candidates with the judges until the estimated seconds are spent."""

    def __init__(self, judges: Sequence[Judge], seconds: float, report: Report = silent) -> None:
        self.judges, self.seconds, self._report = judges, seconds, report
        self._n_done, self._n_stacks = 0, 0

    def best(self, ruled: StackConfig, options: Sequence[Option]) -> tuple[StackConfig, list[str], float, float]:
        """The settings with the options that help, these in words, and the scores without and with them."""
        self._n_stacks = len(self.judges) * (2 + len(options) + -(-len(options) // 2))  # at most
        first = self._dice(ruled, 1)
        gains = {k: self._dice(option.change(ruled), 1) - first for k, option in enumerate(options)}
        promising = sorted((k for k in gains if gains[k] > 0), key=lambda k: -gains[k])[: -(-len(options) // 2)]
        chosen, words = ruled, list[str]()
        before = best = self._dice(ruled, 2) if promising else first
        for option in (options[k] for k in promising):
            dice = self._dice(option.change(chosen), 2)
            if dice > best + MARGIN:
                chosen, best = option.change(chosen), dice
                words.append(option.words)
        return chosen, words, before, best

    def _dice(self, config: StackConfig, n_levels: int) -> float:
        """The mean score of the judges; 0 if there is no time for them, so that nothing is preferred."""
        self.seconds -= sum(judge.cost(config, n_levels) for judge in self.judges)
        if self.seconds < 0:
            return 0.0
        scores = []
        for judge in self.judges:
            scores.append(judge.dice(config, n_levels, self._stack_report))
            self._n_done += 1
        return float(np.mean(scores))

    def _stack_report(self, text: str, done: int, total: int) -> None:
        """Report the progress of one of the small stacks as that of the search."""
        self._report("choosing settings", self._n_done * PERMILLE + PERMILLE * done // total, self._n_stacks * PERMILLE)


def fit_stack(
    images: Images,
    labels: Images,
    config: StackConfig | None = None,
    *,
    unlabelled: int | Literal["auto"] | None = None,
    groups: Groups = None,
    tune: Tune = "auto",
    names: Sequence[str] | None = None,
    legend: Legend | None = None,
    axes: str | None = None,
    voxel_size: VoxelSides | None = None,
    progress: Report | None = None,
) -> ForestStack:
    """Grow a stack on images (H,W[,C]) of any sizes and their labels (H,W), on volumes (Z,Y,X) and theirs, on one image
    and its labels, or on files of both, each a folder, a file or a glob.

    With StackConfig(features="channels") an image is (F,H,W): its own channels are the features.
    config:     None: chosen for these images, see `tune`
    unlabelled: the label value that means "no label"; None: 255, but an InputError asks if 0 or -1 looks like that
                value; "auto": 255, or 0 or -1 if it looks like that value
    groups:     which images are held out together, as of `fit`
    tune:       without config, "auto": rules by the sizes of the images, then what held-out images prefer; "off": the
                plain defaults, `StackConfig()` or, if less than 10 % is painted, one level without offsets
    names:      of the images, for messages
    legend:     names and colours of the classes, kept in the stack
    axes, voxel_size: of volumes and series, as of `fit`
    progress:   report function; None: a bar on the terminal or in the notebook

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=2, n_trees=2))
    >>> stack.n_classes, len(stack.settings["held_out"])
    (22, 2)
    >>> one = hr.fit_stack(images[0], labels[0] > 0, hr.StackConfig(n_levels=1, n_trees=2))
    >>> one.classes
    (0, 1)
    """
    if not isinstance(config, StackConfig | None):
        raise ConfigError(f"config is a {type(config).__name__}; give a StackConfig, e.g. StackConfig(n_trees=16).")
    layout = layout_of((config or StackConfig()).features)
    labelled = training_set(images, labels, layout, unlabelled, names, legend, axes=axes, voxel_size=voxel_size)
    labelled = grouped(labelled, groups, log.warning)
    return grow_stack(
        labelled, config or suited_settings(labelled, check_tune(tune), log.info, progress=progress), progress=progress
    )
