"""Finding objects in probabilities that any program wrote."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike, make_folder
from hedgerow.images.instances import BOUNDARY, Finding, kinds_of
from hedgerow.images.legend import Legend
from hedgerow.images.object_search import find_tiled
from hedgerow.images.object_tables import ObjectTables, totals_beside
from hedgerow.images.objects import Objects, Rules, measured
from hedgerow.images.pairing import FilesSpec, find_files, stem_of
from hedgerow.images.reading import ImageSource, ending_of, open_image
from hedgerow.images.regions import Region
from hedgerow.images.writing import write_objects
from hedgerow.jobs.inputs import checked_output
from hedgerow.jobs.measuring import classes_in, probabilities
from hedgerow.overwrite_guard import check_overwriting
from hedgerow.plan_progress import PERMILLE
from hedgerow.predict.file_outputs import array_room
from hedgerow.progress import Report, reporting


@dataclass(frozen=True)
class ObjectsRequest:
    """Probabilities in which to find objects.

    proba:     files with a channel for each class, or one for the objects alone; whole numbers of 8 or 16 bits stand
               for 0 to 1
    output:    a file for one image, or a folder, which gets NAME_objects.tif for each
    wanted:    the classes that are objects, by name or by the number of their channel from 1; empty: all but the
               background, the first, and a class named "boundary"
    boundary:  number of the channel, from 1, that separates touching objects; None: the class of that name
    classes:   a `classes.toml` or the model that predicted, with the names of the classes
    table:     a table with a row for each object; None: not written
    diameter, min_size, max_size, fill_holes: as in `hr.objects`
    overwrite: also overwrite existing files that Hedgerow did not write
    memory:    bytes; the objects of larger images are kept in a temporary file until they are written
    """

    proba: FilesSpec
    output: PathLike
    wanted: Sequence[str] = ()
    boundary: int | None = None
    classes: PathLike | None = None
    table: PathLike | None = None
    diameter: float | None = None
    min_size: int = 0
    max_size: int = 0
    fill_holes: int = 0
    overwrite: bool = False
    memory: int = 2**26

    @property
    def finding(self) -> Finding:
        """How objects are found."""
        return Finding(self.diameter, self.min_size, self.max_size, self.fill_holes)


@dataclass(frozen=True)
class FoundObjects:
    """The files that were written, and the number of objects in all of them."""

    files: tuple[Path, ...]
    n_objects: int


def find_objects(request: ObjectsRequest, *, progress: Report | None = None) -> FoundObjects:
    """Find the objects in probabilities and write them as numbers, from 1 in each image."""
    files = find_files(request.proba)
    read = [*files, *([] if request.classes is None else [request.classes])]
    written, table = _outputs(request, files, read), None
    if request.table is not None:
        table = checked_output(request.table, read, "table.csv", overwrite=request.overwrite)
        checked_output(totals_beside(table), read, overwrite=request.overwrite)
    legend, classes = (Legend(), ()) if request.classes is None else classes_in(Path(request.classes))
    tables, n_objects = ObjectTables(), 0
    with reporting(progress) as report:
        for done, (file, path) in enumerate(zip(files, written, strict=True)):
            with open_image(file) as source, array_room(path.parent, source.size, np.int32, request.memory) as numbers:
                values, names = _channels(request, source.shape[0], legend, classes, str(file))
                kinds = kinds_of(values, names, request.wanted, None if classes else values[0])
                of_one, pixel = _of_one(report, done, len(files)), source.voxel_size
                of_objects = find_tiled(_reader(source), numbers[None], kinds, request.finding, progress=of_one)
                objects = Objects(numbers, of_objects)
                write_objects(path, numbers, pixel)
                n_objects += len(of_objects)
                if table is not None:
                    tables.add(file.name, measured(numbers, Rules(), legend=names, pixel=pixel, numbered=objects))
        report("finding objects", len(files) * PERMILLE, len(files) * PERMILLE)
    if table is not None:
        tables.write(table, totals_beside(table))
    return FoundObjects(tuple(written), n_objects)


def _of_one(report: Report, n_before: int, n_files: int) -> Report:
    """Reports the progress of one file as that of all."""

    def of_one(text: str, done: int, total: int) -> None:
        report(text, n_before * PERMILLE + PERMILLE * done // total, n_files * PERMILLE)

    return of_one


def _reader(source: ImageSource) -> Callable[[Region], np.ndarray]:
    """Reads the probabilities (C,1,h,w) of a region; a single channel is that of the objects, and gets that of the
    rest before it."""

    def read(region: Region) -> np.ndarray:
        planes = probabilities(source.read(region), source.name)
        return (planes if len(planes) > 1 else np.concatenate([1 - planes, planes]))[:, None]

    return read


def _outputs(request: ObjectsRequest, files: Sequence[Path], read: Sequence[PathLike]) -> list[Path]:
    """The file to write for each image, checked."""
    output = Path(request.output)
    if ending_of(output):
        if len(files) > 1:
            raise InputError(f"{len(files)} images do not fit into {output}; give a folder, e.g. -o objects/.")
        return [checked_output(output, read, "objects.tif", overwrite=request.overwrite)]
    written = [output / f"{stem_of(file).removesuffix('_proba')}_objects.tif" for file in files]
    twice = {path for path in written if written.count(path) > 1}
    if twice:
        raise InputError(f"several images would be written to {min(twice)}; rename them, or give them one by one.")
    check_overwriting(written, read, request.overwrite)
    make_folder(output)
    return written


def _channels(
    request: ObjectsRequest, n_channels: int, legend: Legend, classes: Sequence[int], name: str
) -> tuple[Sequence[int], Legend]:
    """A value for each plane, and their names: those of the classes, or the numbers of the channels from 1. A single
    channel is that of the objects, and 0 stands for the rest."""
    if not classes and request.boundary is None:
        return (range(2) if n_channels == 1 else range(1, n_channels + 1)), Legend()
    if classes and len(classes) != n_channels:
        raise InputError(
            f"{name} has {n_channels} channel(s), and {request.classes} has {len(classes)} classes; give the model "
            "that predicted it."
        )
    values = classes or range(1, n_channels + 1)
    names = dict(legend.names)
    if request.boundary is not None:
        if not 1 < request.boundary <= n_channels:
            raise InputError(f"{name} has no channel {request.boundary} for the boundary; it has {n_channels}.")
        names[values[request.boundary - 1]] = BOUNDARY
    return values, Legend(names)
