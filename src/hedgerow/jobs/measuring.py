"""Measuring the objects in label maps, into tables."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike
from hedgerow.images.array_checks import to_labels, to_planes
from hedgerow.images.components import Connectivity
from hedgerow.images.label_files import legend_files, legend_of_files, read_labels
from hedgerow.images.legend import Legend, read_legend
from hedgerow.images.object_tables import SPECK_PIXELS, ObjectTables, speck_hint, totals_beside
from hedgerow.images.objects import Rules, Split, measured
from hedgerow.images.pairing import FilesSpec, by_stem, find_files, plain_stem, stem_of
from hedgerow.images.reading import Pages, open_image, read_voxel_size
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.writing import ROUNDING_SLACK
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output
from hedgerow.predict.protocol import MAPS
from hedgerow.progress import Report, reporting

_BESIDE = (*MAPS, "overlay", "objects")  # endings of the names of files that `predict` writes beside a label map
_FULL = {"uint8": 255, "uint16": 65535}  # the whole number that means confidence 1


@dataclass(frozen=True)
class MeasuredFiles:
    """The tables that were written, and the numbers of label maps and objects.

    hint: a sentence about the objects, or ""
    """

    objects: Path
    totals: Path
    n_images: int
    n_objects: int
    hint: str = ""


@dataclass(frozen=True)
class MeasureRequest:
    """Label maps with objects to measure.

    output:     the table, with a row for each object
    totals:     the table of totals per image and class; None: table_totals.csv beside table.csv
    images:     images of the same names, for mean intensities; their pixel size, if known, is used before that of the
                label maps
    confidence: confidence maps of the same names, with or without _confidence at the end, as `predict` writes them
    classes:    a `classes.toml` or a model file with the names of the classes; None: the `classes.toml` beside the
                label maps
    background, min_size, fill_holes, split, connectivity: define objects, see `hr.measure`
    pages:      which pages of image files to read, see `read_image`
    overwrite:  also overwrite existing files that Hedgerow did not write
    """

    labels: FilesSpec
    output: PathLike
    totals: PathLike | None = None
    images: FilesSpec | None = None
    confidence: FilesSpec | None = None
    classes: PathLike | None = None
    background: int | None = None
    min_size: int = 0
    fill_holes: int = 0
    split: Split | None = None
    connectivity: Connectivity = 8
    pages: Pages = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.split == "proba" and self.confidence is None:
            raise InputError(
                "splitting objects by probability needs confidence maps; add them (--confidence), or split by distance."
            )

    @property
    def rules(self) -> Rules:
        """The definition of an object."""
        return Rules(self.background, self.min_size, self.fill_holes, self.split, self.connectivity)


def measure(request: MeasureRequest, *, progress: Report | None = None) -> MeasuredFiles:
    """Write a table of the objects in label maps, and one of their totals per image and class."""
    files = label_maps(request.labels)
    images, confidence, classes = request.images, request.confidence, request.classes
    of_image = {} if images is None else _partners(files, images, "image", "")
    of_confidence = {} if confidence is None else _partners(files, confidence, "confidence map", "_confidence")
    named = legend_files(files) if classes is None else [classes]
    read = [*files, *of_image.values(), *of_confidence.values(), *named]
    output = checked_output(request.output, read, "table.csv", overwrite=request.overwrite)
    totals = checked_output(request.totals or totals_beside(output), read, "totals.csv", overwrite=request.overwrite)
    if totals == output:
        raise InputError(f"{output} cannot hold both the objects and their totals; give two different files.")
    legend = legend_of_files(files) if classes is None else classes_in(Path(classes))[0]
    rules, names, tables = request.rules, _names(files), ObjectTables()
    with reporting(progress) as report:
        for done, file in enumerate(files):
            report("measuring", done, len(files))
            image, sure = of_image.get(file), of_confidence.get(file)
            values = rules.clean(to_labels(read_labels(file, legend=legend or None), str(file)))
            planes = voxel = None
            if image is not None:
                with open_image(image, pages=request.pages) as source:
                    planes, voxel = to_planes(source.array(), str(image)), source.voxel_size
            known = None if sure is None else _one_plane(read_proba(sure)[0], sure)
            voxel = voxel or read_voxel_size(file)
            tables.add(names[file], measured(values, rules, planes, known, legend, voxel, str(file)))
        report("measuring", len(files), len(files))
    tables.write(output, totals)
    hint = speck_hint(tables.n_objects, tables.n_below(SPECK_PIXELS), rules.min_size)
    return MeasuredFiles(output, totals, len(files), tables.n_objects, hint)


def label_maps(spec: FilesSpec) -> list[Path]:
    """The label maps among files, without other outputs of `predict`, e.g. a_confidence.tif beside a.png."""
    files = find_files(spec)
    places = {(file.parent, stem_of(file)) for file in files}
    return [file for file in files if not any((file.parent, base) in places for base in _bases(stem_of(file)))]


def _bases(stem: str) -> list[str]:
    return [stem.removesuffix(f"_{what}") for what in _BESIDE if stem.endswith(f"_{what}")]


def _partners(files: list[Path], spec: FilesSpec, kind: str, suffix: str) -> dict[Path, Path]:
    """For each label map the file of the same name, with or without a suffix; other files are ignored."""
    label_maps = set(files)
    there = by_stem(file for file in find_files(spec) if file not in label_maps)
    partners: dict[Path, Path] = {}
    for file in files:
        wanted = [base + end for end in dict.fromkeys((suffix, "")) for base in (stem_of(file), plain_stem(file))]
        partner = next((there[stem] for stem in wanted if stem in there), None)
        if partner is None:
            raise InputError(
                f"{file} has no {kind} of the same name; expected, for example, {wanted[0]}.tif, so add it or leave "
                "this label map out."
            )
        partners[file] = partner
    return partners


def _names(files: list[Path]) -> dict[Path, str]:
    """The names of the label maps in the tables: file names, or whole paths where two files have the same name."""
    how_often = Counter(file.name for file in files)
    return {file: file.name if how_often[file.name] == 1 else str(file) for file in files}


def classes_in(path: Path) -> tuple[Legend, tuple[int, ...]]:
    """The names of the classes in a `classes.toml` or a model file, and their values."""
    if path.suffix.lower() == ".toml":
        legend = read_legend(path)
        return legend, tuple(row["value"] for row in legend.to_list())
    model = model_file.load(path)
    return model.legend, tuple(model.classes)


def read_proba(path: Path) -> tuple[np.ndarray, VoxelSize | None]:
    """Probabilities (C,H,W) float32 from 0 to 1, and the size of a pixel if the file says so."""
    with open_image(path) as source:
        return probabilities(source.read(), str(path)), source.voxel_size


def probabilities(values: np.ndarray, name: str) -> np.ndarray:
    """Probabilities (C,H,W) float32 from 0 to 1, from those of a file, where whole numbers may stand for them."""
    planes = to_planes(values, name, "planes") / np.float32(_FULL.get(values.dtype.name, 1))
    low, high = float(planes.min()), float(planes.max())
    if low < -ROUNDING_SLACK or high > 1 + ROUNDING_SLACK:
        raise InputError(
            f"{name} has values from {low:g} to {high:g}, expected probabilities from 0 to 1, or whole numbers of 8 or "
            "16 bits in their place; give the files that `predict --proba` or `--confidence` writes."
        )
    return planes


def _one_plane(planes: np.ndarray, path: Path) -> np.ndarray:
    if len(planes) != 1:
        raise InputError(
            f"{path} has {len(planes)} channels, expected one; give the files that `predict --confidence` writes."
        )
    return planes
