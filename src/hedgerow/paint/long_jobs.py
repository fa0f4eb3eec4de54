"""Longer jobs of the page: training on all paint, improving a model, and exporting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hedgerow import jobs
from hedgerow.images.regions import Region
from hedgerow.memory import megabytes
from hedgerow.overwrite_guard import remove_empty
from hedgerow.paint.code_cache import CodeCache
from hedgerow.paint.engine import Engine
from hedgerow.paint.exports import (
    IMPROVED,
    MODEL,
    check_label_maps,
    commands,
    new_folder,
    offers,
    skipped,
    train,
    write_exports,
)
from hedgerow.paint.messages import Refused
from hedgerow.paint.model_predictions import MAX_WHOLE_PIXELS, describe_forests, predict_tiles
from hedgerow.paint.overlays import Overlay, OverlayLayer, tiles_of
from hedgerow.paint.project import Project
from hedgerow.predict.devices import no_cuda
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report
from hedgerow.work_folder import RUN_FILE

IMPROVEMENT_MINUTES = {"refine": 5.0, "deep": 20.0}  # approximate limits
EFFORTS = {"refine": "good", "deep": "best"}
MODEL_NAMES = {"refine": "refined", "deep": "convolutional"}
Message = dict[str, Any]


class LongJobs:
    """Does the longer jobs; called by the engine's thread."""

    def __init__(
        self,
        project: Project,
        codes: CodeCache,
        engine: Engine,
        next_id: Callable[[], int],
        minutes: Mapping[str, float] = IMPROVEMENT_MINUTES,
    ) -> None:
        self.project, self.codes, self._engine = project, codes, engine
        self._next_id, self._minutes = next_id, minutes
        self._newest: tuple[tuple[int, ...], Path] | None = None  # the newest model, and the state of its paint

    def train(self, report: Report) -> Message:
        """Train the model that the command line would make."""
        output, stamp = self.project.folder / MODEL, self.project.stamp
        trained = train(self.project, output, report)
        self._newest = stamp, output
        is_scored = trained.held_out and trained.held_out[-1] > 0  # 0: no class has a stroke to spare
        score = f", mean Dice {trained.held_out[-1]:.3f} on {trained.unseen} held out" if is_scored else ""
        forests = describe_forests(trained.model.n_levels, trained.model.levels[0].n_trees)
        self._show(trained.model, forests, stamp, report)
        text = f"trained on {len(self.project.painted_images())} image(s){score}; {megabytes(trained.n_bytes)}"
        return self._done("train", text, output)

    def improve(self, how: str, report: Report) -> Message:
        """Train a better model: a refined network, convolutional levels, or features of a pretrained network."""
        check_size(self.project)
        output, stamp = self.project.folder / IMPROVED, self.project.stamp
        changes: dict[str, Any] = {"changes": {"features": f"bank+{how}"}}
        if how in EFFORTS:
            device = "cuda" if no_cuda() is None else "cpu"
            changes = {"effort": EFFORTS[how], "minutes": self._minutes[how], "device": device, "restart": True}
        # An interrupted run at this path is discarded, so it must be a run of this page, not of a command.
        run_file = output.with_name(output.name + ".work") / RUN_FILE
        trained = train(self.project, output, report, [run_file], **changes)
        self._newest = stamp, output
        self._show(trained.model, MODEL_NAMES.get(how, f"with {how}"), stamp, report)
        if how in EFFORTS:
            return self._done("improve", " ".join(map(str, trained.stages)), output)
        score = f": mean Dice {trained.held_out[-1]:.3f} on {trained.unseen} held out" if trained.held_out else ""
        return self._done("improve", f"features bank+{how}{score}", output)

    def export(self, kinds: list[str], report: Report) -> Message:
        """Write the requested files; trains first if there is no model of the current paint."""
        model, output = self._newest_model(), self.project.folder / MODEL
        needs_training = model is None and any(kind != "labels" for kind in kinds)
        if needs_training or {"labels", "report"}.intersection(kinds):  # before anything is written
            check_label_maps(self.project, [output] if needs_training else [])
        number, folder = new_folder(self.project)
        try:
            if needs_training:
                stamp = self.project.stamp
                train(self.project, output, report)
                self._newest, model = (stamp, output), output
            files = write_exports(self.project, kinds, folder, model, report)
        finally:
            for empty in (folder, folder.parent):  # nothing was exported
                remove_empty(empty)
        without = skipped(self.project, kinds)
        return {
            "say": "done",
            "job": "export",
            "text": f"{len(files)} file(s) in {folder}{f'; {without}' if without else ''}",
            "files": offers(number, files),
            "commands": commands(self.project, model or output),
        }

    def _newest_model(self) -> Path | None:
        """The model of the current paint that this session trained; None: there is none."""
        stamp, model = self._newest or ((), None)
        return model if model is not None and stamp == self.project.stamp and model.is_file() else None

    def _done(self, job: str, text: str, model: Path) -> Message:
        lines = commands(self.project, model if job == "train" else self.project.folder / MODEL)
        return {"say": "done", "job": job, "text": text, "files": offers(0, [model]), "commands": lines}

    def _show(self, model: Model, name: str, stamp: tuple[int, ...], report: Report) -> None:
        """Show a model's segmentation of the image on the screen; of a large image, of the part on the screen."""
        view = self._engine.view
        if view is None:
            return
        size = self.project.images[view.image].size
        region = Region.whole(size) if math.prod(size) <= MAX_WHOLE_PIXELS else view.region
        if region.height * region.width > MAX_WHOLE_PIXELS:
            return
        places = tiles_of(region, size)
        layer = OverlayLayer(0, predict_tiles(model, self.codes.pyramid(view.image), places, report))
        overlay = Overlay(self._next_id(), view.image, size, model.classes, [layer], "full", name, stamp)
        self._engine.show(overlay, region, 0.0)


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
