"""Predicting many image files into a folder; one bad file does not stop the others."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from hedgerow import memory
from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import PathLike, make_folder
from hedgerow.forest.level_input import dimensions_of
from hedgerow.images.object_tables import SPECK_PIXELS, ObjectTables, speck_hint, totals_beside
from hedgerow.images.pairing import FilesSpec, find_files, is_stack, stem_of
from hedgerow.images.reading import ending_of, open_image
from hedgerow.images.stored import ImageSpec
from hedgerow.images.volume_objects import VolumeObject, write_volume_table
from hedgerow.overwrite_guard import check_overwriting
from hedgerow.predict.file_outputs import (
    MeasuredImage,
    Outputs,
    note_on_stack,
    refuse_plane,
    write_outputs,
    write_stack,
)
from hedgerow.predict.protocol import Model, note_on_dtype
from hedgerow.progress import Report, reporting, silent

TABLE = "objects.csv"  # objects of all images, in the folder of the results
TABLE_OF_VOLUMES = "objects_3d.csv"  # those of volumes


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
    """How to predict each file into a folder. how: to read it, whatever its path; its layout is that of the model"""

    folder: Path
    outputs: Outputs
    tile: int | None = None
    how: ImageSpec = field(default_factory=lambda: ImageSpec(""))


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
    objects: Sequence[MeasuredImage] = ()
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
    how: ImageSpec | None = None,
    tile: int | None = None,
    each: EachFile | None = None,
    say: Callable[[str], None] = lambda text: None,
    progress: Report | None = None,
) -> Predicted:
    """Predict all images of a folder, file or glob into `folder`; `say` receives notes as the images are read.

    inputs:    files that must not be overwritten, in addition to the images
    overwrite: overwrite also existing files that Hedgerow did not write
    how:       to read the images, whatever their path
    each:      predicts the files; None: in this process, one after another
    """
    files, one_file = find_files(images), OneFile(folder, outputs, tile, _reading(model, how))
    written = _check_names(files, one_file)
    check_overwriting(written, [*files, *inputs], overwrite)
    make_folder(folder)
    last_words, outcomes = "", dict[Path, Done]()
    with reporting(progress) as report:
        each = each or partial(_one_after_another, model, report)
        for file, done in each(files, one_file):
            if done.words not in ("", last_words):
                say(f"{file}: {done.words}")
                last_words = done.words
            if done.note:
                say(done.note)
            outcomes[file] = done
            report("images", len(outcomes), len(files))
    tables, in_volumes = ObjectTables(), list[tuple[str, VolumeObject]]()
    tables.expect({value: model.legend.name(value) for value in outputs.object_values(model)})
    for file in files:  # in their order, not in that of the outcomes
        for measured in outcomes[file].objects if outputs.measure else ():
            if measured.image is None:
                in_volumes += [(measured.name, item) for item in measured.volume]
            else:
                tables.add(measured.name, measured.image)
    if len(tables):
        tables.write(folder / TABLE, totals_beside(folder / TABLE))
    if any(measured.image is None for done in outcomes.values() for measured in done.objects) and outputs.measure:
        write_volume_table(folder / TABLE_OF_VOLUMES, in_volumes)
    failures = tuple(failure for file in files if (failure := outcomes[file].failure) is not None)
    if not outputs.measure:
        return Predicted(len(files), failures)
    n_objects, n_specks = tables.n_objects + len(in_volumes), tables.n_below(SPECK_PIXELS)
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
        spec = spec_of(file, how)
        with open_image(**vars(spec)) as source:
            done = replace(done, words=source.words)
            if source.is_volume or source.frames:
                note = note_on_stack(model, source) or note_on_dtype(model, source.dtype, str(file))
                done = replace(done, note=note)
                paths = how.outputs.paths(how.folder, stem_of(file), _ending_of_stack(file))
                return replace(done, objects=write_stack(model, source, how.outputs, paths, how.tile, progress))
            refuse_plane(model, False, str(file))
            image, pixel = source.array(), source.voxel_size
        done = replace(done, note=note_on_dtype(model, image.dtype, str(file)))
        paths = how.outputs.paths(how.folder, stem_of(file))
        objects = write_outputs(model, image, how.outputs, paths, how.tile, progress, pixel, name=file.name)
        return replace(done, objects=() if objects is None else [MeasuredImage(file.name, objects)])
    except Exception as error:
        if not (isinstance(error, HedgerowError) or memory.ran_out(error)):
            raise
        text = str(error) if isinstance(error, HedgerowError) else "it does not fit in memory"
        return replace(done, failure=text if str(file) in text else f"{file}: {text}")


def _reading(model: Model, how: ImageSpec | None) -> ImageSpec:
    """How to read images for a model; one of volumes with one channel takes three axes without names for z, y and x."""
    takes_z = dimensions_of(model) == 3 and model.features.n_inputs == 1
    how = replace(how or ImageSpec(""), layout=model.features.layout, volumes=True)
    return replace(how, assumed="ZYX" if takes_z else "")


def spec_of(file: Path, how: OneFile) -> ImageSpec:
    """How to open a file."""
    return replace(how.how, path=str(file))


def _ending_of_stack(file: Path) -> str:
    """The ending of results for a stack, if none is chosen."""
    return "nii.gz" if ending_of(file) in (".nii", ".nii.gz") else "tif"


def _check_names(files: list[Path], how: OneFile) -> list[Path]:
    """All files to write; raises InputError if one could replace an image or the result of another image."""
    folder, outputs = how.folder, how.outputs
    if ending_of(folder):
        raise InputError(f"{folder} looks like a file; give a folder for the results, e.g. {folder.with_suffix('')}.")
    around = {
        os.path.realpath(parent) for file in files for parent in (file.parent, Path(os.path.realpath(file)).parent)
    }
    if os.path.realpath(folder) in around:
        raise InputError(f"{folder} holds the images themselves; choose another folder for the results.")
    taken: dict[Path, Path] = {}
    has_stacks = False
    for file in files:
        ending = _ending_of_stack(file) if is_stack(spec_of(file, how)) else ""
        has_stacks |= bool(ending)
        for path in outputs.paths(folder, stem_of(file), ending).values():
            if path in taken:
                raise InputError(f"{taken[path]} and {file} would both be written to {path}; rename one of them.")
            taken[path] = file
    table = folder / TABLE
    tables = [table, totals_beside(table), *([folder / TABLE_OF_VOLUMES] if has_stacks else [])]
    return [*taken, *(tables if outputs.measure else [])]
