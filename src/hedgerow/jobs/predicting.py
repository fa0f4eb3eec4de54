"""Predicting: label maps, and other maps, of files."""

from pathlib import Path

from hedgerow.errors import InputError
from hedgerow.files import PathLike
from hedgerow.images.pairing import FilesSpec
from hedgerow.images.reading import Pages
from hedgerow.io import model_file
from hedgerow.jobs.inputs import Say, unsaid
from hedgerow.predict.batch import Predicted, predict_files
from hedgerow.predict.outputs import Outputs
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
    overwrite: bool = False,
    say: Say = unsaid,
    progress: Report | None = None,
) -> Predicted:
    """Segment images into the folder `output`, past those that fail.

    proba, confidence, entropy: maps to write beside the labels, as numbers of `dtype`
    overlay: also write the image tinted and outlined by its classes, as PNG
    format: "png", "tif", "npy" or "zarr"; None: labels as PNG if it holds the classes, and maps as TIFF
    pages: which pages of image files to read, see `read_image`
    overwrite: also existing files that Hedgerow did not write
    """
    loaded = model_file.load(model).to(device)
    lowest, highest = min(loaded.classes), max(loaded.classes)
    fits_png = lowest >= 0 and highest <= LARGEST_IN_PNG
    if format == "png" and not fits_png:
        raise InputError(
            f"{model} has classes from {lowest} to {highest}, and PNG holds 0 to {LARGEST_IN_PNG}; choose another "
            "format (--format tif, npy or zarr)."
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
        say=say,
        progress=progress,
    )
