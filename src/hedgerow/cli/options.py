"""Arguments and options shared by several commands."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from hedgerow.cli.usage import Misuse, large_option, more_option, reading_option
from hedgerow.errors import InputError
from hedgerow.features.layer_cache import cache_features
from hedgerow.settings import Checked

Config = TypeVar("Config", bound=Checked)

Images = Annotated[list[str], typer.Argument(metavar="IMAGES", help="Images: a folder, files, or a pattern.")]
Labels = Annotated[
    str, typer.Argument(metavar="LABELS", help="Label maps named like their images: a folder, files, or a pattern.")
]
# The reader refuses files that cannot be read, so typer does not check.
Model = Annotated[Path, typer.Argument(metavar="MODEL", readable=False, help="Model file.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to compute on; see hedgerow info --system.")]
Unlabelled = Annotated[
    int | None, reading_option(help="Label value that means unlabelled; by default that of the model.")
]
Pages = Annotated[
    str | None,
    reading_option(metavar="PAGES", help="Pages to read of each file: all (as channels), or e.g. 3 or 1,3-5."),
]
Axes = Annotated[
    str | None,
    reading_option(
        "--axes",
        metavar="AXES",
        help="Axes of the files, if they do not name them: T time, Z planes, C channels, Y rows, X columns, e.g. ZYX.",
    ),
]
VoxelSize = Annotated[
    str | None,
    reading_option(
        "--voxel-size", metavar="Z,Y,X", help="Size of a voxel, if the files do not give it; only z : y matters."
    ),
]
Groups = Annotated[
    str | None,
    reading_option(
        metavar="FILE|PATTERN|none",
        help="Images held out together, e.g. of one patient: a CSV file of image and group, or a regular expression "
        "for names, e.g. '^[^_]+'; by default those whose names say so or that look alike.",
    ),
]
Cache = Annotated[
    Path | None,
    more_option(
        metavar="FOLDER",
        callback=lambda folder: cache_features(folder),  # None switches the cache off
        help="Cache encoder features in this folder.",
    ),
]
Overwrite = Annotated[
    bool, more_option("--overwrite", help="Also overwrite files that Hedgerow did not write, except inputs.")
]


# Large images and many machines.
Level = Annotated[int, large_option("--level", min=0, help="Pyramid level to read; 0 is the full resolution.")]
PixelSize = Annotated[
    float | None,
    large_option("--pixel-size", help="Read the pyramid level whose pixels are closest to this size in micrometres."),
]
Region = Annotated[
    str | None,
    large_option(
        "--region",
        metavar="T:B,L:R",
        help="Predict only these rows and columns, top:bottom,left:right, e.g. 0:4096,512:1024.",
    ),
]
Mask = Annotated[
    str | None,
    large_option(
        "--mask",
        metavar="FILE|'> V'|'< V'",
        help="Predict only where this mask is not 0, or where the image is above (>) or below (<) the value V.",
    ),
]
NoLabels = Annotated[bool, large_option("--no-labels", help="Write only the other maps requested, no labels.")]
Workers = Annotated[int | None, large_option("--workers", min=1, help="Number of worker processes.")]
Cluster = Annotated[
    str | None,
    large_option("--cluster", metavar="ADDRESS", help="Address of a Dask scheduler to run on, e.g. tcp://host:8786."),
]

AnyDevice = Annotated[
    Literal["cpu", "cuda", "auto"],
    typer.Option(help="Device to compute on; auto: a GPU for networks and encoders if there is one, else the CPU."),
]


def workers_of(workers: int | None, cluster: str | None) -> str | int | None:
    """The field `workers` of a request."""
    if workers is not None and cluster is not None:
        raise Misuse("--workers and --cluster were both given; give one of them.")
    return workers if cluster is None else cluster


def output_option(about: str, kind: type = Path) -> Any:
    """The option --output of a command. kind: `str` where the output may be an address, which `Path` would change"""
    return typer.Option("--output", "-o", metavar="PATH", parser=partial(_output, kind), help=about)


def _output(kind: type, text: str) -> Any:
    """The name; an empty one is refused, because `Path("")` is the current folder."""
    if not text:
        raise InputError("--output is empty; give a name, or . for the current folder.")
    return kind(text)


def read_settings(file: Path | None, default: Config, **options: Any) -> Config:
    """The settings of a file, or the defaults, overridden by the options that were given."""
    settings = default if file is None else type(default).read(file)
    return replace(settings, **given(options))  # type: ignore[type-var]


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}
