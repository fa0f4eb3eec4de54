"""Predicting label maps and other maps for images in files, or for one image of any size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hedgerow.errors import ConfigError, InputError
from hedgerow.files import PathLike
from hedgerow.images.axes import checked_axes
from hedgerow.images.classes import check_background
from hedgerow.images.components import Connectivity
from hedgerow.images.given_arrays import VoxelSides, voxel_of
from hedgerow.images.instances import Finding, kinds_of
from hedgerow.images.objects import Rules, Split
from hedgerow.images.outlines import ObjectType
from hedgerow.images.pairing import FilesSpec, is_stack
from hedgerow.images.reading import Pages, open_image
from hedgerow.images.stored import ImageSpec
from hedgerow.io import model_file
from hedgerow.overwrite_guard import check_overwriting
from hedgerow.predict.batch import Predicted, predict_files
from hedgerow.predict.file_outputs import OUTLINES, Outputs, note_on_stack, write_stack
from hedgerow.predict.protocol import MAPS, Model
from hedgerow.progress import Report, Say, quiet, reporting
from hedgerow.scale import cluster
from hedgerow.scale.cluster import Workers
from hedgerow.scale.large_prediction import PredictedLarge as PredictedLarge
from hedgerow.scale.large_prediction import predict_large
from hedgerow.scale.large_results import results_for
from hedgerow.scale.result_names import is_large_result
from hedgerow.scale.worker_tasks import content_of, predict_files_on, resolved

LARGEST_IN_PNG = 65535


@dataclass(frozen=True)
class PredictRequest:
    """Images to segment.

    output:  a folder; for one image of any size also a file name or address that ends in .ome.zarr or .ome.tif
    labels, proba, confidence, entropy: which maps to write
    dtype:   data type of all maps except labels
    tile:    side of a tile in pixels; None: as large as fits in memory
    pages:   which pages of image files to read, see `read_image`
    axes:    letters for the axes of the files, such as "ZYX"; None: those that the files name
    voxel_size: of volumes along (z, y, x); None: what the files say
    device:  "cpu", "cuda", or "auto": a GPU for networks and encoders if there is one
    workers: a number of processes, the address of a Dask scheduler, or a client; None: this process predicts
    overwrite: also overwrite existing files that Hedgerow did not write

    For a folder:
    overlay:  also write the image tinted and outlined by its classes, as PNG
    format:   "png", "tif", "ome.tif", "npy" or "zarr"; None: PNG for labels if it can hold the classes, and TIFF
    objects:  also write the objects of these classes, numbered from 1, as NAME_objects.tif; empty: of all classes but
              the background and the boundary; None: do not
    diameter: of a typical object in pixels; None: estimated in each image; max_size: larger objects are left out
    measure:  also write tables of all objects, objects.csv and objects_totals.csv
    outlines: any of "geojson" (QuPath), "roi" (ImageJ), "coco" and "yolo"; object_type: of the objects in QuPath
    min_size, fill_holes, background, split, connectivity: define objects, see `hr.measure`

    For one image of any size, level, pixel_size, region and mask are as in `predict_large`.
    """

    model: PathLike
    images: FilesSpec
    output: PathLike
    labels: bool = True
    proba: bool = False
    confidence: bool = False
    entropy: bool = False
    dtype: str = "float32"
    tile: int | None = None
    pages: Pages = None
    axes: str | None = None
    voxel_size: VoxelSides | None = None
    device: str = "cpu"
    workers: Workers | None = None
    overwrite: bool = False
    overlay: bool = False
    format: str | None = None
    objects: Sequence[str] | None = None
    diameter: float | None = None
    max_size: int = 0
    measure: bool = False
    outlines: Sequence[str] = ()
    object_type: ObjectType = "annotation"
    background: int | None = None
    min_size: int = 0
    fill_holes: int = 0
    split: Split | None = None
    connectivity: Connectivity = 8
    level: int = 0
    pixel_size: float | None = None
    region: str | None = None
    mask: str | None = None

    def __post_init__(self) -> None:
        self.how  # noqa: B018  # refuse impossible axes
        for kind in self.outlines:
            if kind not in OUTLINES:
                raise InputError(f"outlines cannot be written as {kind!r}; choose {', '.join(OUTLINES)}.")
        if self.is_large:
            needs_all = {
                "--overlay": self.overlay, "--measure": self.measure, "--outlines": self.outlines,
                "--min-size": self.min_size, "--fill-holes": self.fill_holes,
                "--split": self.split, "--format": self.format,
            }  # fmt: skip
            if self.objects is not None:
                raise ConfigError(
                    f"--objects cannot be given for {self.output}; predict with --proba, then run hedgerow objects "
                    "NAME_proba.ome.zarr -o NAME_objects.ome.zarr, which reads it in parts."
                )
            for name in (name for name, value in needs_all.items() if value):
                raise ConfigError(
                    f"{name} needs the whole image in memory, so it cannot be given for {self.output}; give a folder, "
                    "e.g. -o segmented/, or leave it out."
                )
            return
        of_one = {
            "--level": self.level, "--pixel-size": self.pixel_size, "--region": self.region, "--mask": self.mask,
            "--no-labels": not self.labels,
        }  # fmt: skip
        for name in (name for name, value in of_one.items() if value):
            raise ConfigError(
                f"{name} needs a single image and a result in OME-Zarr or TIFF; name one, e.g. -o result.ome.zarr."
            )
        if self.objects is None and (self.diameter is not None or self.max_size):
            raise ConfigError("--diameter and --max-size are for finding objects; add --objects.")
        if self.objects is not None and self.split is not None:
            raise ConfigError("--objects splits touching objects by itself; leave out --split.")
        self.finding  # noqa: B018  # refuse impossible ones
        if self.split is not None and not (self.measure or self.outlines):
            raise ConfigError(
                "label maps cannot show split objects, only tables and outlines can; use --objects instead, or add "
                "--measure or --outlines."
            )

    @property
    def finding(self) -> Finding:
        """How objects are found."""
        return Finding(self.diameter, self.min_size, self.max_size, self.fill_holes)

    @property
    def how(self) -> ImageSpec:
        """How to read the images, whatever their path."""
        return ImageSpec(
            "", pages=self.pages, volumes=True, axes=checked_axes(self.axes), voxel=voxel_of(self.voxel_size)
        )

    @property
    def is_large(self) -> bool:
        """Whether the request is for one image of any size, which is predicted in parts."""
        return is_large_result(str(self.output))


def predict(request: PredictRequest, *, say: Say = quiet, progress: Report | None = None) -> Predicted | PredictedLarge:
    """Segment images into a folder, continuing after failures; or one image of any size into one file or store."""
    return _one_of_any_size(request, say, progress) if request.is_large else _folder(request, say, progress)


def _stack(request: PredictRequest, image: PathLike, say: Say, progress: Report | None) -> PredictedLarge:
    """One stack, which is predicted in memory, into one file or store."""
    given = {
        "--region": request.region, "--mask": request.mask, "--workers": request.workers, "--level": request.level,
        "--pixel-size": request.pixel_size,
    }  # fmt: skip
    for name in (name for name, value in given.items() if value):
        raise ConfigError(f"{name} is for images, and {image} is a stack; leave it out.")
    model = model_file.load(request.model)
    model = model.to(resolved(request.device, model))
    what = [name for name in ("labels", *MAPS) if getattr(request, name)]
    paths = {
        result.content: Path(result.path) for result in results_for(model, str(request.output), what, request.dtype)
    }
    check_overwriting([*paths.values()], [image, request.model], request.overwrite)
    outputs = replace(_outputs(request, model), objects=None, measure=False)
    spec = replace(request.how, path=str(image), layout=model.features.layout)
    with open_image(**vars(spec)) as source, reporting(progress) as report:
        say(f"{source.name}: {source.words}")
        note = note_on_stack(model, source)
        if note:
            say(note)
        write_stack(model, source, outputs, paths, request.tile, report)
        return PredictedLarge({kind: str(path) for kind, path in paths.items()}, source.size, 1, 0)


def _one_of_any_size(request: PredictRequest, say: Say, progress: Report | None) -> PredictedLarge:
    images = [request.images] if isinstance(request.images, str | Path) else list(request.images)  # type: ignore[arg-type]
    if len(images) != 1:
        raise ConfigError(
            f"{len(images)} images do not fit into one result, {request.output}; give a folder, e.g. -o segmented/."
        )
    if is_stack(replace(request.how, path=str(images[0]))):
        return _stack(request, images[0], say, progress)
    return predict_large(
        request.model, images[0], request.output,
        what=[name for name in ("labels", "proba", "confidence", "entropy") if getattr(request, name)],
        dtype=request.dtype, level=request.level, pixel_size=request.pixel_size, pages=request.pages,
        region=request.region, mask=request.mask, tile=request.tile, device=request.device, client=request.workers,
        overwrite=request.overwrite, say=say, progress=progress,
    )  # fmt: skip


def _folder(request: PredictRequest, say: Say, progress: Report | None) -> Predicted:
    model = model_file.load(request.model)
    with cluster.connected(request.workers) as client:
        each = None
        if client is None:
            model = model.to(resolved(request.device, model))
        else:
            each = predict_files_on(client, content_of(request.model), request.device)
        model.features.check_here()  # so that it fails once, not for each image
        return predict_files(
            model, request.images, Path(request.output), _outputs(request, model), inputs=[request.model],
            overwrite=request.overwrite, how=request.how, tile=request.tile, each=each, say=say, progress=progress,
        )  # fmt: skip


def _outputs(request: PredictRequest, model: Model) -> Outputs:
    """The outputs to write; raises InputError if their format cannot hold the model's classes."""
    lowest, highest = min(model.classes), max(model.classes)
    fits_png = lowest >= 0 and highest <= LARGEST_IN_PNG
    if request.format == "png" and not fits_png:
        raise InputError(
            f"{request.model} has classes from {lowest} to {highest}, and PNG holds 0 to {LARGEST_IN_PNG}; choose "
            "another format (--format tif, ome.tif, npy or zarr)."
        )
    check_background(request.background, model.classes, str(request.model))
    if request.objects is not None:
        kinds_of(model.classes, model.legend, request.objects, request.background)  # fails here, not for each image
    # PNG holds one plane of whole numbers.
    holds_maps = request.format != "png" or (not request.proba and request.dtype != "float32")
    return Outputs(
        is_default=request.format is None,
        labels=request.format or ("png" if fits_png else "tif"),
        maps=request.format if request.format and holds_maps else "tif",
        proba=request.proba,
        confidence=request.confidence,
        entropy=request.entropy,
        overlay=request.overlay,
        dtype=request.dtype,
        objects=None if request.objects is None else tuple(request.objects),
        finding=request.finding,
        measure=request.measure or request.objects is not None,
        outlines=tuple(dict.fromkeys(request.outlines)),
        object_type=request.object_type,
        rules=Rules(request.background, request.min_size, request.fill_holes, request.split, request.connectivity),
    )
