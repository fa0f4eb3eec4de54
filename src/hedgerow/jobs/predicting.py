"""Predicting: label maps, and other maps, of files."""

from collections.abc import Sequence
from pathlib import Path

from hedgerow.errors import InputError
from hedgerow.files import PathLike
from hedgerow.images.components import Connectivity
from hedgerow.images.objects import Rules, Split
from hedgerow.images.outline_files import ObjectType
from hedgerow.images.pairing import FilesSpec
from hedgerow.images.reading import Pages
from hedgerow.io import model_file
from hedgerow.jobs.inputs import Say, unsaid
from hedgerow.predict.batch import EachFile, Predicted, predict_files
from hedgerow.predict.outputs import OUTLINES, Outputs
from hedgerow.progress import Report

LARGEST_IN_PNG = 65535


def predict(
    model: PathLike,
    images: FilesSpec,
    output: PathLike,
    *,
    proba: bool = False,
    confidence: bool = False,
    entropy: bool = False,
    overlay: bool = False,
    dtype: str = "float32",
    format: str | None = None,
    tile: int | None = None,
    pages: Pages = None,
    device: str = "cpu",
    measure: bool = False,
    outlines: Sequence[str] = (),
    object_type: ObjectType = "annotation",
    background: int | None = None,
    min_size: int = 0,
    fill_holes: int = 0,
    split: Split | None = None,
    connectivity: Connectivity = 8,
    overwrite: bool = False,
    each: EachFile | None = None,
    say: Say = unsaid,
    progress: Report | None = None,
) -> Predicted:
    """Segment images into the folder `output`, past those that fail.

    proba, confidence, entropy: maps to write beside the labels, as numbers of `dtype`
    overlay: also write the image tinted and outlined by its classes, as PNG
    measure: also write tables of all objects, objects.csv and objects_totals.csv
    outlines: "geojson" for QuPath, "roi" for ImageJ, or both; object_type: what QuPath takes them for
    min_size, fill_holes: remove what is smaller from label maps; see `Rules` for these and the following ones
    background, split, connectivity: what counts as an object
    format: "png", "tif", "ome.tif", "npy" or "zarr"; None: labels as PNG if it holds the classes, and maps as TIFF
    pages: which pages of image files to read, see `read_image`
    overwrite: also existing files that Hedgerow did not write
    each: who predicts the files, `scale.batches` for many machines; None: this process
    """
    loaded = model_file.load(model).to(device)
    loaded.features.check_here()  # one refusal, not one for each image
    lowest, highest = min(loaded.classes), max(loaded.classes)
    fits_png = lowest >= 0 and highest <= LARGEST_IN_PNG
    if format == "png" and not fits_png:
        raise InputError(
            f"{model} has classes from {lowest} to {highest}, and PNG holds 0 to {LARGEST_IN_PNG}; choose another "
            "format (--format tif, ome.tif, npy or zarr)."
        )
    if background is not None and background not in loaded.classes:
        known = ", ".join(map(str, loaded.classes))
        raise InputError(f"the background is {background}; it must be one of the classes of {model}: {known}.")
    for kind in outlines:
        if kind not in OUTLINES:
            raise InputError(f"outlines are asked for as {kind!r}; choose {' or '.join(OUTLINES)}.")
    if split is not None and not (measure or outlines):
        raise InputError(
            "objects are to be split, but a label map cannot hold that; ask for tables or outlines as well (--measure, "
            "--outlines)."
        )
    holds_maps = format != "png" or (not proba and dtype != "float32")  # PNG: one plane of whole numbers
    outputs = Outputs(
        labels=format or ("png" if fits_png else "tif"),
        maps=format if format and holds_maps else "tif",
        proba=proba,
        confidence=confidence,
        entropy=entropy,
        overlay=overlay,
        dtype=dtype,
        measure=measure,
        outlines=tuple(dict.fromkeys(outlines)),
        object_type=object_type,
        rules=Rules(background, min_size, fill_holes, split, connectivity),
    )
    return predict_files(
        loaded,
        images,
        Path(output),
        outputs,
        inputs=[model],
        overwrite=overwrite,
        pages=pages,
        tile=tile,
        each=each,
        say=say,
        progress=progress,
    )
