"""Longer jobs of the page: training on all paint, improving a model, and exporting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hedgerow import jobs
from hedgerow.deep.any_model import parts_of
from hedgerow.errors import HedgerowError
from hedgerow.files import make_folder
from hedgerow.io import model_file
from hedgerow.memory import megabytes
from hedgerow.overwrite_guard import remove_empty
from hedgerow.paint.engine import Engine
from hedgerow.paint.exports import (
    MODEL,
    check_label_maps,
    commands,
    new_folder,
    offers,
    skipped,
    train,
    unreadable,
    write_exports,
)
from hedgerow.paint.messages import Refused
from hedgerow.paint.model_at_rest import ModelAtRest
from hedgerow.paint.model_predictions import describe_forests
from hedgerow.paint.project import Project
from hedgerow.paint.project_file import PageModel
from hedgerow.predict.devices import no_cuda
from hedgerow.progress import Report
from hedgerow.temporary import temporary_folder
from hedgerow.work_folder import RUN_FILE

if TYPE_CHECKING:
    from hedgerow.jobs.effort_run import Trained

IMPROVEMENT_MINUTES = {"refine": 5.0, "deep": 20.0}  # approximate limits
EFFORT_OF_JOB = {"refine": "good", "deep": "best"}
MODEL_NAMES = {"refine": "refined forest", "deep": "convolutional model"}
Message = dict[str, Any]
Made = TypeVar("Made")


class LongJobs:
    """Does the longer jobs; called by the engine's thread."""

    def __init__(
        self,
        project: Project,
        at_rest: ModelAtRest,
        engine: Engine,
        models: Callable[[], Message],
        minutes: Mapping[str, float] = IMPROVEMENT_MINUTES,
    ) -> None:
        """models: makes the message about all models"""
        self.project, self._at_rest, self._engine = project, at_rest, engine
        self._models, self._minutes = models, minutes

    def train(self, report: Report) -> Message:
        """Train the model that the command line would make."""
        return self._trained("train", report)

    def improve(self, how: str, report: Report) -> Message:
        """Train a better model: a refined network, convolutional levels, or features of a pretrained network."""
        check_size(self.project)
        return self._trained(how, report, **self._changes(how))

    def _changes(self, how: str) -> dict[str, Any]:
        """What a way to train changes in the request."""
        if how not in EFFORT_OF_JOB:
            return {} if how == "train" else {"changes": {"features": f"bank+{how}"}}
        device = "cuda" if no_cuda() is None else "cpu"
        return {"effort": EFFORT_OF_JOB[how], "minutes": self._minutes[how], "device": device, "restart": True}

    def _trained(self, how: str, report: Report, **changes: Any) -> Message:
        """Train a model to a new file, and add it to the list; `changes` of the request."""
        project, number = self.project, self.project.new_model_number()
        output, paint = project.model_file(number), project.paint_state
        make_folder(output.parent)
        # An interrupted run at this path is discarded, so it must be a run of this page, not of a command.
        run_file = output.with_name(output.name + ".work") / RUN_FILE
        trained = self._without_unreadable(lambda: train(project, output, report, [run_file], **changes), report)
        score, warning = self._scored(how, report)
        model = PageModel(number, how, _name(how, trained), score or _score(trained), paint)
        project.add_model(model)
        self._engine.broadcast(self._models())
        self._engine.show_again()
        left_out = f"; {unreadable(project)}" if project.problems else ""
        painted_since = "" if project.current_model == model else "; older than the paint, so it is in the list only"
        return {
            "say": "done",
            "job": "train" if how == "train" else "improve",
            "text": f"{model.title}; {model.text}; {megabytes(trained.n_bytes)}{left_out}{painted_since}{warning}",
            "warns": bool(warning),
            "files": offers(0, [output]),
            "commands": commands(project, output, self._options(how)),
        }

    def _without_unreadable(self, work: Callable[[], Made], report: Report) -> Made:
        """The result of some work; if it fails because images can no longer be read, it is done without them."""
        try:
            return work()
        except HedgerowError:
            if not self._at_rest.codes.read_again(report):
                raise
            return work()

    def _scored(self, how: str, report: Report) -> tuple[str, str]:
        """The score of a trained model, and a warning if it is worse than the one that follows the paint."""
        if how != "train":
            return "", ""
        wait = lambda: report("scoring on held-out strokes", 0, 1)  # noqa: E731
        score, shown = self._at_rest.score_of_training(wait), self._at_rest.choose(wait)
        if score.dice is None or shown is None or shown.score.dice is None:
            return "", ""
        text = f"{score} on held-out strokes"
        if score.dice >= shown.score.dice:
            return text, ""
        return text, f". This is worse than the model that follows the paint ({shown.score}); choose that to go back"

    def export(self, kinds: list[str], report: Report) -> Message:
        """Write the requested files; the segmentations are those of the model that is shown."""
        chosen = self.project.current_model
        if {"labels", "report"}.intersection(kinds):  # before anything is written
            check_label_maps(self.project)
        number, folder = new_folder(self.project)
        try:
            with temporary_folder(folder) as inside:
                model = None if chosen is None else self.project.model_file(chosen.number)
                if model is None and any(kind != "labels" for kind in kinds):
                    model = inside / MODEL
                    model_file.save(self._at_rest.model(report), model)
                write = lambda: write_exports(self.project, kinds, folder, model, report)  # noqa: E731
                files = self._without_unreadable(write, report)
        finally:
            for empty in (folder, folder.parent):  # nothing was exported
                remove_empty(empty)
        without = skipped(self.project, kinds)
        return {
            "say": "done",
            "job": "export",
            "text": f"{len(files)} file(s) in {folder}{f'; {without}' if without else ''}",
            "files": offers(number, files),
            "commands": self._continued(chosen, folder / MODEL, kinds),
        }

    def _continued(self, chosen: PageModel | None, exported: Path, kinds: list[str]) -> list[str]:
        """The commands that continue with an export."""
        if chosen is not None:
            is_older = chosen.paint != self.project.paint_state  # the label maps are not those that it was trained on
            options = None if is_older else self._options(chosen.how)
            return commands(self.project, self.project.model_file(chosen.number), options)
        lines = commands(self.project, exported, () if "labels" in kinds else None)
        return lines if exported.is_file() else [line for line in lines if line.startswith("hedgerow train")]

    def _options(self, how: str) -> list[str]:
        """The options with which the command line trains in this way."""
        changes = self._changes(how)
        if how in EFFORT_OF_JOB:
            minutes, device = f"{changes['minutes']:g}", changes["device"]
            return ["--effort", changes["effort"], "--minutes", minutes, "--device", device]
        return ["--features", changes["changes"]["features"]] if changes else []


def _name(how: str, trained: Trained) -> str:
    """What a trained model is; a stage that brought nothing is not part of it."""
    if how in EFFORT_OF_JOB and trained.stages and trained.stages[-1].kept:
        return MODEL_NAMES[how]
    stack = parts_of(trained.model)[0]
    forests = describe_forests(stack.n_levels, stack.levels[0].n_trees)
    if how in EFFORT_OF_JOB:
        kept = len(trained.stages) > 2 and trained.stages[1].kept
        return MODEL_NAMES["refine"] if kept else f"{forests} (the better model was not better)"
    return forests if stack.features.kind == "bank" else f"{forests}, with a pretrained network"


def _score(trained: Trained) -> str:
    """How a model scored, in words: its last level or stage, not one that was dropped."""
    if trained.stages:
        return " ".join(map(str, trained.stages))
    stack = parts_of(trained.model)[0]
    dice = stack.held_out_dice[stack.n_levels - 1] if stack.held_out_dice else 0.0
    # 0: no class has a stroke to spare
    return (
        f"mean Dice {dice:.3f} on {trained.unseen} held out" if dice > 0 else "not scored, since nothing was held out"
    )


def check_size(project: Project) -> None:
    """Raise Refused if the painted images are too large to improve a model on."""
    n_pixels = sum(math.prod(project.images[i].size) for i in project.painted_images())
    limit = jobs.MAX_PIXELS_IN_MEMORY
    if n_pixels > limit:
        raise Refused(
            f"the painted images have {n_pixels / 1e6:,.0f} million pixels, and improving a model is limited to "
            f"{limit / 1e6:,.0f} million: cut out parts that show every class, paint on those, "
            "and use that model for the large images (hedgerow predict). Train on all works here."
        )


def check_how(how: str, can: Message) -> None:
    """Raise Refused unless this installation can improve models in this way."""
    if how.startswith("encoder:"):
        name = how.removeprefix("encoder:")
        if name not in can["encoder"]:
            raise Refused(f"the pretrained network {name} is not on this machine; see `hedgerow encoders`.")
    elif not can[how]:
        raise Refused("this needs PyTorch; run pip install '.[net]' in the folder of Hedgerow's source.")
