"""The command `measure`, and the options of `predict` that define an object."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hedgerow import jobs
from hedgerow.cli.common import Result
from hedgerow.cli.options import Overwrite, Pages, output_option
from hedgerow.cli.usage import object_option

Background = Annotated[int | None, object_option(help="Class value to exclude from tables and outlines.")]
MinSize = Annotated[
    int,
    object_option(min=0, help="Remove objects of fewer pixels; they take the class that most of their border touches."),
]
FillHoles = Annotated[
    int, object_option(min=0, help="Fill holes of up to this many pixels with the class of the surrounding object.")
]
SPLIT_HELP = "Split touching objects of a class at thin necks (distance), or where its probability is low (proba)."
Split = Annotated[Literal["distance", "proba"] | None, object_option(help=SPLIT_HELP)]
Connectivity = Annotated[
    Literal["4", "8"], object_option(help="Pixels are connected if they share an edge (4), or an edge or a corner (8).")
]


def measure(
    labels: Annotated[
        str, typer.Argument(metavar="LABELMAPS", help="Label maps: a folder, a file, or a pattern in quotes.")
    ],
    output: Annotated[Path, output_option("Table to write, one row per object, e.g. table.csv.")],
    totals: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="Table of totals per image and class to write; by default table_totals.csv beside table.csv.",
        ),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(metavar="IMAGES", help="Images of the same names, for mean intensities and pixel sizes."),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(
            metavar="MAPS", help="Confidence maps from predict --confidence, for the mean confidence of objects."
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            readable=False, help="File with the names of the classes: a classes.toml, or the model that predicted."
        ),
    ] = None,
    background: Background = None,
    min_size: MinSize = 0,
    fill_holes: FillHoles = 0,
    split: Split = None,
    connectivity: Connectivity = "8",
    pages: Pages = None,
    overwrite: Overwrite = False,
) -> Result:
    """Measure objects in label maps: write their area, position, bounding box, intensity and confidence as CSV.

    Example: hedgerow measure segmented/ -o table.csv --images new_photos/
    """
    request = jobs.MeasureRequest(
        labels, output, totals=totals, images=images, confidence=confidence, classes=classes, background=background,
        min_size=min_size, fill_holes=fill_holes, split=split, connectivity=4 if connectivity == "4" else 8,
        pages=pages, overwrite=overwrite,
    )  # fmt: skip
    measured = jobs.measure(request)
    print(f"{measured.n_objects:,} object(s) of {measured.n_images} label map(s), written to {measured.objects}")
    print(f"totals per image and class: {measured.totals}")
    if measured.hint:
        print(measured.hint)
    return {
        "objects": str(measured.objects),
        "totals": str(measured.totals),
        "n_images": measured.n_images,
        "n_objects": measured.n_objects,
    }
