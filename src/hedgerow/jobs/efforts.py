"""Training by effort: "fast" grows a stack of forests, "good" refines it, "best" adds a convolutional level."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hedgerow import extras
from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError
from hedgerow.features.registry import layout_of
from hedgerow.files import fingerprint
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import GrowAll, grow_stack
from hedgerow.forest.default_settings import settings_for
from hedgerow.forest.samples import reserve
from hedgerow.images.labelled import Images, LabelledImage, LabelledSet, labelled_set
from hedgerow.images.legend import Legend
from hedgerow.jobs.effort_run import EffortRun, Fitted, TimeLimit, level_printer
from hedgerow.jobs.estimates import EFFORTS, allowed_seconds, expected, stage_seconds
from hedgerow.jobs.plan_progress import WholePlan
from hedgerow.predict.devices import check_device
from hedgerow.predict.evaluate import score
from hedgerow.progress import Report, Say, duration, quiet, reporting
from hedgerow.work_folder import WorkFolder

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel

log = logging.getLogger("hedgerow")
Effort = Literal["fast", "good", "best"]


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
) -> AnyModel:
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
    grow_all: GrowAll | None = None,
    say: Say = quiet,
    progress: Report | None = None,
) -> Fitted:
    """`fit` on labelled images, with the score on images that the settings reserve.

    folder:   work folder, which the caller removes once the model is saved
    grow_all: grows the forests of effort "fast" on workers; None: this process
    """
    check_effort(effort, minutes)
    if effort != "fast":
        extras.require("torch", f"effort {effort}")
    check_device(device, is_network=effort != "fast")
    say(f"effort {effort}: {expected(labelled, effort, minutes, device)}")
    if effort == "fast":
        stack = grow_stack(labelled, config, progress=progress, scored=level_printer(say), grow_all=grow_all)
        fitted = Fitted(stack)
    else:
        fitted = _fit_in_stages(labelled, config, effort, minutes, device, folder, say, progress)
    model = fitted.model
    reserved = [image for image in labelled if image.mark in model.known.reserved]
    if reserved:
        dice = float(score(model, replace(labelled, images=reserved), progress).mean_dice)
        say(f"mean Dice {dice:.3f} on {len(reserved)} reserved image(s)")
        if isinstance(model, ForestStack):
            recorded = {"n_images": len(reserved), "mean_dice": dice}
            fitted.model = replace(model, settings={**model.settings, "reserved": recorded})
    return fitted


def _fit_in_stages(
    labelled: LabelledSet,
    config: StackConfig,
    effort: Effort,
    minutes: float | None,
    device: str,
    folder: Path | None,
    say: Say,
    progress: Report | None,
) -> Fitted:
    """Efforts "good" and "best"."""
    begun = time.monotonic()
    reserved: list[LabelledImage] = []
    if config.reserve:
        trained, reserved = reserve(labelled, config.reserve, config.seed)
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
