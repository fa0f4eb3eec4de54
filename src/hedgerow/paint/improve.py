"""Longer work that a page asks for: training on all paint, models that are better and take longer, and exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hedgerow import extras, jobs
from hedgerow.files import megabytes
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.regions import Region
from hedgerow.io import model_file
from hedgerow.overwrite_guard import writing_as
from hedgerow.paint.engine import Engine
from hedgerow.paint.exports import IMPROVED, MODEL, Exports, commands, train
from hedgerow.paint.label_files import PAGE, check_label_maps, write_label_maps
from hedgerow.paint.live import Codes
from hedgerow.paint.messages import Refused
from hedgerow.paint.predicted import predicted_tiles
from hedgerow.paint.project import LABELS, Project
from hedgerow.paint.results import Layer, Result, tiles_of
from hedgerow.paint.segmenting import VISIBLE, WHOLE
from hedgerow.paint.stacks import described
from hedgerow.progress import Report
from hedgerow.scale.sparse_growth import MUCH
from hedgerow.work_folder import RUN_FILE

MINUTES = {"refine": 5.0, "deep": 20.0}  # about, of which less may be taken
EFFORTS = {"refine": "good", "deep": "best"}
Message = dict[str, Any]


class Workshop:
    """Does the work; called by the engine's thread."""

    def __init__(self, project: Project, codes: Codes, engine: Engine, next_id: Callable[[], int]) -> None:
        self.project, self.codes, self.engine = project, codes, engine
        self.exports = Exports(project)
        self._next_id = next_id
        self._made: tuple[tuple[int, ...], Path] | None = None  # of which paint the newest model is

    def train(self, report: Report) -> Message:
        """The model that the command line would make."""
        output, stamp = self.project.folder / MODEL, self.project.stamp
        trained = train(self.project, output, report)
        self._made = stamp, output
        is_scored = trained.held_out and trained.held_out[-1] > 0  # 0: of one stroke a class, none can be spared
        score = f", mean Dice {trained.held_out[-1]:.3f} on {trained.unseen} held out" if is_scored else ""
        assert isinstance(trained.model, ForestStack)
        words = described(trained.model.n_levels, trained.model.levels[0].n_trees)
        self._show(output, words, stamp, report)
        text = f"trained on {len(self.project.painted_images())} image(s){score}; {megabytes(trained.n_bytes)}"
        return self._done("train", text, output)

    def improve(self, how: str, report: Report) -> Message:
        """A better model: its network refined, convolutional levels, or features of a pretrained network."""
        check_size(self.project)
        output, stamp = self.project.folder / IMPROVED, self.project.stamp
        # An interrupted run in its place is discarded: it must be one of this page, not of a command.
        written = write_label_maps(self.project, [output, output.with_name(output.name + ".work") / RUN_FILE])
        request = jobs.TrainRequest([image.path for image in written], self.project.folder / LABELS, output)
        with writing_as(PAGE):
            text = self._improved(how, request, report)
        self._made = stamp, output
        self._show(output, {"refine": "refined", "deep": "convolutional"}.get(how, f"with {how}"), stamp, report)
        return self._done("improve", text, output)

    def _improved(self, how: str, request: jobs.TrainRequest, report: Report) -> str:
        """Train the better model, and say what it gained."""
        if how in EFFORTS:
            effort = replace(request, effort=EFFORTS[how], minutes=MINUTES[how], device=_device(), restart=True)
            return " ".join(map(str, jobs.train(effort, progress=report).stages))
        features = f"bank+{how}"
        trained = jobs.train(replace(request, changes={"features": features}), progress=report)
        score = f": mean Dice {trained.held_out[-1]:.3f} on {trained.unseen} held out" if trained.held_out else ""
        return f"features {features}{score}"

    def export(self, what: list[str], report: Report) -> Message:
        """Files of what is asked for; trains first if no model knows the paint as it is now."""
        model, output = self._newest_model(), self.project.folder / MODEL
        trains = model is None and any(one != "labels" for one in what)
        if trains or {"labels", "report"}.intersection(what):  # before anything is written
            check_label_maps(self.project, [output] if trains else [])
        number, folder = self.exports.new_folder()
        if trains:
            stamp = self.project.stamp
            train(self.project, output, report)
            self._made, model = (stamp, output), output
        files = self.exports.write(what, folder, model, report)
        told, left_out = self.exports.described(number, files), self.exports.left_out(what)
        return {
            "say": "done",
            "job": "export",
            "text": f"{len(files)} file(s) in {folder}{f'; {left_out}' if left_out else ''}",
            "files": told,
            "commands": commands(self.project, model or output),
        }

    def _newest_model(self) -> Path | None:
        """A model that knows the paint as it is now; None: none was made in this session."""
        stamp, model = self._made or ((), None)
        return model if model is not None and stamp == self.project.stamp and model.is_file() else None

    def _done(self, job: str, text: str, model: Path) -> Message:
        told = self.exports.described(0, [model])
        made = commands(self.project, model if job == "train" else self.project.folder / MODEL)
        return {"say": "done", "job": job, "text": text, "files": told, "commands": made}

    def _show(self, path: Path, words: str, paint: tuple[int, ...], report: Report) -> None:
        """The segmentation of the image on the screen by a model; of a large image, of the part on the screen."""
        view = self.engine.view
        if view is None:
            return
        height, width = self.project.images[view.image].size
        region = Region(0, height, 0, width) if height * width <= WHOLE else view.region
        if region.height * region.width > max(WHOLE, VISIBLE):
            return
        model = model_file.load(path)
        tiles = tiles_of((region.top, region.bottom, region.left, region.right), (height, width))
        blocks = predicted_tiles(model, self.codes.pyramid(view.image), tiles, report)
        layers = [Layer(0, blocks)]
        result = Result(self._next_id(), view.image, (height, width), model.classes, layers, "full", words, paint)
        self.engine.show(result, region, 0.0)


def check_size(project: Project) -> None:
    """Raise Refused if the painted images are too large to improve a model on."""
    n_pixels = sum(project.images[i].size[0] * project.images[i].size[1] for i in project.painted_images())
    if n_pixels > MUCH:
        raise Refused(
            f"the painted images have {n_pixels / 1e6:,.0f} million pixels; to make a model better they are held in "
            f"memory, at most {MUCH / 1e6:,.0f} million: cut out parts that show every class, paint on those, "
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


def _device() -> str:
    extras.require("torch", "improving")
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
