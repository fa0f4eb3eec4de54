"""Predicting many image files into a folder; one bad file does not stop the others."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hedgerow import memory
from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import PathLike, make_folder
from hedgerow.images.object_tables import SPECK_PIXELS, ObjectTables, speck_hint, totals_beside
from hedgerow.images.objects import Measured
from hedgerow.images.pairing import FilesSpec, find_files, stem_of
from hedgerow.images.reading import Pages, ending_of, open_image
from hedgerow.overwrite_guard import check_overwriting
from hedgerow.predict.file_outputs import Outputs, write_outputs
from hedgerow.predict.protocol import Model, note_on_dtype
from hedgerow.progress import Report, reporting, silent

TABLE = "objects.csv"  # objects of all images, in the folder of the results


@dataclass(frozen=True)
class Predicted:
    """The number of images, one sentence per failure, and the number of objects if they were measured.

    hint: a sentence about the objects, or ""
    """

    n_images: int
    failures: tuple[str, ...] = ()
    n_objects: int | None = None
    hint: str = ""


@dataclass(frozen=True)
class OneFile:
    """How to predict each file into a folder."""

    folder: Path
    outputs: Outputs
    pages: Pages = None
    tile: int | None = None


@dataclass(frozen=True)
class Done:
    """The outcome for one file.

    words:   how the file was read
    note:    a warning, or empty
    objects: those measured in it, if requested
    failure: why it was not predicted, in one sentence
    """

    words: str = ""
    note: str = ""
    objects: Measured | None = None
    failure: str | None = None


EachFile = Callable[[Sequence[Path], OneFile], Iterator[tuple[Path, Done]]]
"""Predicts files, anywhere and in any order, and yields the outcome of each."""


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
    each: EachFile | None = None,
    say: Callable[[str], None] = lambda text: None,
    progress: Report | None = None,
) -> Predicted:
    """Predict all images of a folder, file or glob into `folder`; `say` receives notes as the images are read.

    inputs:    files that must not be overwritten, in addition to the images
    overwrite: overwrite also existing files that Hedgerow did not write
    pages:     the pages of image files to read, see `read_image`
    each:      predicts the files; None: in this process, one after another
    """
    files = find_files(images)
    written = _check_names(files, folder, outputs)
    check_overwriting(written, [*files, *inputs], overwrite)
    make_folder(folder)
    last_words, outcomes = "", dict[Path, Done]()
    with reporting(progress) as report:
        each = each or partial(_one_after_another, model, report)
        for file, done in each(files, OneFile(folder, outputs, pages, tile)):
            if done.words not in ("", last_words):
                say(f"{file}: {done.words}")
                last_words = done.words
            if done.note:
                say(done.note)
            outcomes[file] = done
            report("images", len(outcomes), len(files))
    tables = ObjectTables()
    tables.expect({value: model.legend.name(value) for value in outputs.object_values(model)})
    for file in files:  # in their order, not in that of the outcomes
        measured = outcomes[file].objects
        if measured is not None and outputs.measure:
            tables.add(file.name, measured)
    if len(tables):
        tables.write(folder / TABLE, totals_beside(folder / TABLE))
    failures = tuple(failure for file in files if (failure := outcomes[file].failure) is not None)
    if not outputs.measure:
        return Predicted(len(files), failures)
    n_objects, n_specks = tables.n_objects, tables.n_below(SPECK_PIXELS)
    return Predicted(len(files), failures, n_objects, speck_hint(n_objects, n_specks, outputs.rules.min_size))


def _one_after_another(
    model: Model, report: Report, files: Sequence[Path], how: OneFile
) -> Iterator[tuple[Path, Done]]:
    def tiles(message: str, done: int, total: int) -> None:
        if total > 1:  # a large image, which needs progress of its own
            report("tiles of this image", done, total)

    report("images", 0, len(files))
    for file in files:
        yield file, predict_file(model, file, how, tiles)


def predict_file(model: Model, file: Path, how: OneFile, progress: Report = silent) -> Done:
    """Predict one file; a failure is recorded in the outcome, not raised."""
    done = Done()
    try:
        with open_image(file, model.features.layout, how.pages) as source:
            done = replace(done, words=source.words)
            image, pixel = source.array(), source.voxel_size
        done = replace(done, note=note_on_dtype(model, image.dtype, str(file)))
        paths = how.outputs.paths(how.folder, stem_of(file))
        objects = write_outputs(model, image, how.outputs, paths, how.tile, progress, pixel, name=file.name)
        return replace(done, objects=objects)
    except Exception as error:
        if not (isinstance(error, HedgerowError) or memory.ran_out(error)):
            raise
        text = str(error) if isinstance(error, HedgerowError) else "it does not fit in memory"
        return replace(done, failure=text if str(file) in text else f"{file}: {text}")


def _check_names(files: list[Path], folder: Path, outputs: Outputs) -> list[Path]:
    """All files to write; raises InputError if one could replace an image or the result of another image."""
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
