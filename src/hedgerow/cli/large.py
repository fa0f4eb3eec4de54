"""Options of commands on large images and many machines."""

from typing import Annotated, Any, Literal

import typer

from hedgerow.cli.usage import LARGE, Misuse


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=LARGE, **more)


Level = Annotated[int, _option("--level", min=0, help="Pyramid level to read; 0 is the full resolution.")]
PixelSize = Annotated[
    float | None,
    _option("--pixel-size", help="Read the pyramid level whose pixel size is closest to this, in micrometres."),
]
Region = Annotated[
    str | None,
    _option("--region", metavar="T:B,L:R", help="Predict only these rows and columns, e.g. 0:4096,512:1024."),
]
Mask = Annotated[
    str | None,
    _option(
        "--mask",
        metavar="FILE|'> V'|'< V'",
        help="Predict only where this mask is not 0, or where the image passes a threshold.",
    ),
]
NoLabels = Annotated[bool, _option("--no-labels", help="Do not write labels, only the other maps requested.")]
Workers = Annotated[int | None, _option("--workers", min=1, help="Number of worker processes.")]
Cluster = Annotated[
    str | None,
    _option("--cluster", metavar="ADDRESS", help="Address of a Dask scheduler to run on, e.g. tcp://host:8786."),
]

AnyDevice = Annotated[
    Literal["cpu", "cuda", "auto"],
    typer.Option(help="Device to compute on; auto: networks and encoders on a GPU if the worker has one."),
]


def workers_of(workers: int | None, cluster: str | None) -> str | int | None:
    """Who does the work, as requests take it."""
    if workers is not None and cluster is not None:
        raise Misuse("--workers and --cluster were both given; give one of them.")
    return workers if cluster is None else cluster
