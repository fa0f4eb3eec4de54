"""Predicting folders of images, in spite of bad ones."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow import memory
from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import PathLike, make_folder
from hedgerow.images.object_tables import ObjectTables, totals_beside
from hedgerow.images.pairing import FilesSpec, find_files, stem_of
from hedgerow.images.reading import Pages, ending_of, read_input, read_pixel_size, what_was_read
from hedgerow.predict.outputs import Outputs, write_outputs
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report, reporting
from hedgerow.written import check_overwriting

TABLE = "objects.csv"  # of all images, in the folder of the results


@dataclass(frozen=True)
class Predicted:
    """How many images there were, a sentence for each that failed, and the number of objects, if they were measured."""

    n_images: int
    failures: tuple[str, ...] = ()
    n_objects: int | None = None


def predict_files(
    model: Model,
    images: FilesSpec,
    folder: Path,
    outputs: Outputs,
    *,
    inputs: Iterable[PathLike] = (),
    overwrite: bool = False,
    pages: Pages = None,
    tile: int | None = None,
    say: Callable[[str], None] = lambda text: None,
    progress: Report | None = None,
) -> Predicted:
    """Predict every image of a folder, file or glob into `folder`; notes go to `say` as the images are read.

    inputs:    what must not be overwritten, besides the images
    overwrite: also existing files that Hedgerow did not write
    pages:     which pages of image files to read, see `read_image`
    """
    files = find_files(images)
    written = _check_names(files, folder, outputs)
    check_overwriting(written, [*files, *inputs], overwrite)
    make_folder(folder)
    failures: list[str] = []
    said, tables = "", ObjectTables()
    objects = [value for value in model.classes if value != outputs.rules.background]
    tables.expect({value: model.legend.name(value) for value in objects})
    with reporting(progress) as report:

        def tiles(what: str, done: int, total: int) -> None:
            if total > 1:  # a large image: show how far along it is
                report("tiles of this image", done, total)

        for done, file in enumerate(files):
            report("images", done, len(files))
            try:
                words = what_was_read(file, model.features.layout, pages)
                if words not in ("", said):
                    say(f"{file}: {words}")
                    said = words
                image = read_input(file, model.features.layout, pages)
                _note_other_dtype(model, image, file, say)
                paths, pixel = outputs.paths(folder, stem_of(file)), read_pixel_size(file)
                found = write_outputs(model, image, outputs, paths, tile, tiles, pixel)
                if found is not None and outputs.measure:
                    tables.add(file.name, found)
            except Exception as error:
                if not (isinstance(error, HedgerowError) or memory.ran_out(error)):
                    raise
                text = str(error) if isinstance(error, HedgerowError) else "it does not fit in memory"
                failures.append(text if str(file) in text else f"{file}: {text}")
        report("images", len(files), len(files))
    if len(tables):
        tables.write(folder / TABLE, totals_beside(folder / TABLE))
    return Predicted(len(files), tuple(failures), tables.n_objects if outputs.measure else None)


def _check_names(files: list[Path], folder: Path, outputs: Outputs) -> list[Path]:
    """All files to write; a folder is refused in which one could be mistaken for an input or another image's."""
    if ending_of(folder):
        raise InputError(f"{folder} looks like a file; give a folder for the results, e.g. {folder.with_suffix('')}.")
    around = {
        os.path.realpath(parent) for file in files for parent in (file.parent, Path(os.path.realpath(file)).parent)
    }
    if os.path.realpath(folder) in around:
        raise InputError(f"{folder} holds the images themselves; choose another folder for the results.")
    taken: dict[Path, Path] = {}
    for file in files:
        for path in outputs.paths(folder, stem_of(file)).values():
            if path in taken:
                raise InputError(f"{taken[path]} and {file} would both be written to {path}; rename one of them.")
            taken[path] = file
    table = folder / TABLE
    return [*taken, *([table, totals_beside(table)] if outputs.measure else [])]


def _note_other_dtype(model: Model, image: np.ndarray, file: Path, say: Callable[[str], None]) -> None:
    if model.image_dtype and str(image.dtype) != model.image_dtype:
        say(f"note: {file} is {image.dtype} but the model learned from {model.image_dtype}; values must mean the same")
