"""The commands `measure` and `objects`, and the options of `predict` that define an object."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hedgerow import jobs
from hedgerow.cli.common import Result
from hedgerow.cli.options import Overwrite, Pages, output_option
from hedgerow.cli.usage import ALL, object_option

Background = Annotated[int | None, object_option(help="Class value to exclude from tables and outlines.")]
MinSize = Annotated[
    int,
    object_option(min=0, help="Remove objects of fewer pixels; they take the class that most of their border touches."),
]
FillHoles = Annotated[
    int,
    object_option(
        min=0,
        metavar="[N]",
        help="Fill holes of up to N pixels with the class of the surrounding object; without N, of any size.",
    ),
]
Diameter = Annotated[
    float | None, object_option(help="Diameter of a typical object in pixels; by default estimated in each image.")
]
FewestPixels = Annotated[
    int, object_option(min=0, help="Leave out objects of fewer pixels; 0: of a sixteenth of a typical one.")
]
MaxSize = Annotated[int, object_option(min=0, help="Leave out objects of more pixels.")]
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


def objects(
    proba: Annotated[
        list[str], typer.Argument(metavar="PROBABILITIES", help="Probabilities: a folder, files, or a pattern.")
    ],
    output: Annotated[Path, output_option("File for one image, e.g. objects.tif, or folder for several.")],
    classes: Annotated[
        Path | None,
        typer.Option(readable=False, help="The model that predicted, or a classes.toml, for the names of the classes."),
    ] = None,
    objects: Annotated[
        str | None,
        object_option(
            metavar="NAME,NAME",
            help="Classes that are objects, by name or number of their channel; by default all but the first and a "
            "class named boundary.",
        ),
    ] = None,
    boundary: Annotated[
        int | None, object_option(min=2, help="Channel, from 1, whose pixels separate touching objects.")
    ] = None,
    diameter: Diameter = None,
    min_size: FewestPixels = 0,
    max_size: MaxSize = 0,
    fill_holes: FillHoles = 0,
    table: Annotated[
        Path | None, typer.Option(readable=False, help="Also write a table with a row per object.")
    ] = None,
    overwrite: Overwrite = False,
) -> Result:
    """Find objects in probabilities from any program: write their numbers, from 1, as a 32-bit image.

    Example: hedgerow objects probabilities.tif -o objects.tif --diameter 12
    """
    request = jobs.ObjectsRequest(
        proba, output, wanted=names_of(objects), boundary=boundary, classes=classes, table=table,
        diameter=diameter, min_size=min_size, max_size=max_size, fill_holes=fill_holes, overwrite=overwrite,
    )  # fmt: skip
    written = jobs.find_objects(request)
    print(f"{written.n_objects:,} object(s) in {len(written.files)} image(s), written to {output}")
    return {"files": [str(path) for path in written.files], "n_objects": written.n_objects}


def names_of(text: str | None) -> list[str]:
    """The names in an option, parted by commas; none if it is not given or stands alone."""
    return [] if text in (None, ALL) else [name.strip() for name in text.split(",") if name.strip()]
